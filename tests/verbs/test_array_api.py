"""Arrays of any library that follows the Python array API standard, on the host."""

import numpy as np
import pytest
from numpy.testing import assert_array_equal

import semiring_mm as sm

xp = pytest.importorskip("array_api_strict")

inf = np.inf
W = [[0.0, 3.0, 8.0], [inf, 0.0, 1.0], [2.0, inf, 0.0]]
DEVICES = [xp.Device("CPU_DEVICE"), xp.Device("device1")]


@pytest.fixture(params=DEVICES, ids=str)
def device(request):
    return request.param


def same(got, expected, like):
    """Of the library of `like`, on its device, in NumPy's dtype."""
    assert type(got) is type(like)
    assert got.device == like.device
    values = np.from_dlpack(got)
    assert values.dtype == np.asarray(expected).dtype
    assert_array_equal(values, expected)


def test_pairs_of_results(device):
    a, n = xp.asarray(W, device=device), np.array(W)
    for got, expected in (
        (sm.apsp(a, return_predecessors=True), sm.apsp(n, return_predecessors=True)),
        (
            sm.matmul(a, a, "min_plus", return_arg=True),
            sm.matmul(n, n, "min_plus", return_arg=True),
        ),
    ):
        for x, y in zip(got, expected, strict=True):
            same(x, y, a)
    assert sm.reconstruct_path(sm.apsp(a, return_predecessors=True)[1], 0, 2) == [0, 1, 2]


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.3.0", reason="read-only by DLPack before NumPy 2.3"
)
def test_out_is_filled_and_given_back(device):
    a = xp.asarray(W, device=device)
    out = xp.zeros((3, 3), device=device)
    assert sm.matmul(a, a, "min_plus", out=out) is out
    same(out, sm.matmul(np.array(W), np.array(W), "min_plus"), a)
    assert sm.apsp(a, overwrite=True) is a
    same(a, sm.apsp(np.array(W)), a)


def test_no_copy_of_what_comes_in():
    from semiring_mm.arrays import Call

    a = xp.asarray(np.arange(6.0).reshape(2, 3))
    with Call(a=a.T) as call:
        assert np.shares_memory(call["a"], np.from_dlpack(a))
        assert call["a"].shape == (3, 2)


def test_dtypes_mix_as_in_numpy_and_numpys_arrays_take_part():
    """The standard leaves int64 with float32 open; NumPy's promotion is the rule here."""
    a, b = xp.asarray([[1, 2]]), xp.asarray([[1.0], [2.0]], dtype=xp.float32)
    same(sm.matmul(a, b), np.array([[5.0]]), a)
    same(sm.matmul(np.array([[1.0, 2.0]]), b), np.array([[5.0]]), b)


def test_arrays_on_different_devices_are_refused():
    a, b = (xp.asarray(W, device=device) for device in DEVICES)
    with pytest.raises(TypeError, match=r"a lives on .*CPU_DEVICE.* and b on .*device1.*to_device"):
        sm.matmul(a, b)
    with pytest.raises(TypeError, match=r"a lives on .* and out on "):
        sm.matmul(a, a, out=b)


def test_complex_numbers_are_refused_as_numpys_are():
    with pytest.raises(TypeError, match="complex numbers have no order"):
        sm.matmul(xp.asarray([[1j]]), xp.asarray([[1j]]))
