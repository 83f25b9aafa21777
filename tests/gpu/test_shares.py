"""Gradients of products over log_plus in one launch: the kernel on the host, and a CUDA device."""

import numpy as np
import pytest
from engines import HOST
from host_device import guarded
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm import gradients
from semiring_mm.gpu import device
from semiring_mm.gpu.shares import log_shares
from semiring_mm.verb import sum_to

inf, nan = np.inf, np.nan
LOG = sm.semirings["log_plus"]
BOTH = (True, True)


def exact(g, a, b):
    """By the (m, k, n) array of shares."""
    terms = a[..., :, :, None] + b[..., None, :, :]
    high = terms.max(-2, keepdims=True)
    with np.errstate(all="ignore"):
        high = np.where(high == -inf, 0, high)
        total = np.log(np.exp(terms - high).sum(-2, keepdims=True)) + high
        shares = np.where(total == -inf, 0, np.exp(terms - total)) * g[..., :, None, :]
    left, right = (sum_to(shares.sum(axis), x.shape) for axis, x in ((-1, a), (-3, b)))
    return left, right, total[..., 0, :]


def found(there, g, a, b, needs=BOTH, c=None):
    c = exact(*(x.astype("f8") for x in (g, a, b)))[2].astype(a.dtype) if c is None else c
    pair = gradients.summed(LOG, *(there.put(x) for x in (g, a, b, c)), needs)
    found = [None if x is None else there.get(x) for x in pair]  # of the whole stack
    return [
        x if x is None else sum_to(x, like.shape) for x, like in zip(found, (a, b), strict=True)
    ]


def drawn(shapes, dtype="f4", scale=3.0):
    rng = np.random.default_rng(sum(map(sum, shapes)))
    m, n = shapes[0][-2], shapes[1][-1]
    batch = np.broadcast_shapes(shapes[0][:-2], shapes[1][:-2])
    g, a, b = rng.normal(size=(*batch, m, n)), *(scale * rng.normal(size=s) for s in shapes)
    return [x.astype(dtype) for x in (g, a, b)]


@pytest.fixture(autouse=True)
def _only_this_way(monkeypatch):
    monkeypatch.setattr(gradients, "log_shares", None)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    "shapes",
    [((1, 1), (1, 1)), ((33, 40), (40, 70)), ((64, 32), (32, 32)), ((2, 3, 5, 9), (3, 9, 4)),
     ((3, 1, 5, 9), (2, 9, 35)), ((7, 6), (4, 6, 5))],
    ids=str,
)  # fmt: skip
def test_sums_of_shares(there, shapes, dtype):
    """Also of infinite operands, and of rows, columns and steps that nothing is reached by."""
    g, a, b = drawn(shapes, dtype)
    if a.shape[-2] > 4:
        a[..., 1, :] = a[..., 2, -1] = b[..., 0, 3] = b[..., 2, :] = b[..., :, 2] = -inf
        a[..., 3, 1] = nan
    wide = exact(*(x.astype("f8") for x in (g, a, b)))
    off = 200 * np.finfo(dtype).eps
    for got, want in zip(found(there, g, a, b), wide, strict=False):
        assert got.dtype == dtype
        assert_allclose(got, want, rtol=off, atol=off)
    left, right = found(there, g, a, b)
    for needs, want in (((True, False), [left, None]), ((False, True), [None, right])):
        for x, y in zip(found(there, g, a, b, needs), want, strict=True):
            assert x is y if y is None else (x.tobytes() == y.tobytes())


def test_operands_of_any_strides(there):
    g, a, b = drawn(((40, 37), (37, 45)))
    a[2] = -inf  # an empty sum
    want = found(there, g, a, b)
    turned = [there.put(np.ascontiguousarray(x.T)).T for x in (a, b)]
    a_back = there.put(np.ascontiguousarray(a[::-1, ::-1]))[::-1, ::-1]
    c = there.put(exact(*(x.astype("f8") for x in (g, a, b)))[2].astype("f4"))
    for x, y in (turned, (a_back, turned[1])):
        for z in (c, there.put(np.ascontiguousarray(there.get(c).T)).T):
            for got, wanted in zip(
                gradients.summed(LOG, there.put(g), x, y, z, BOTH), want, strict=True
            ):
                assert_array_equal(there.get(got), wanted)
    ones = np.broadcast_to(there.put(np.ones((1, 1), "f4")), g.shape)
    got = gradients.summed(LOG, ones, there.put(a), there.put(b), c, BOTH)
    for x, wanted in zip(got, found(there, np.ones_like(g), a, b), strict=True):
        assert_array_equal(there.get(x), wanted)


def test_nothing_comes_from_empty_sums(there):
    """Not even where what came to them is no number."""
    g, a, b = drawn(((5, 6), (6, 7)))
    a[2] = -inf
    want = found(there, g, a, b)
    g[2] = [nan, inf, -inf, 0, 1, nan, inf]
    for x, y in zip(found(there, g, a, b), want, strict=True):
        assert_array_equal(x, y)


@pytest.mark.usefixtures("gxx")
@pytest.mark.parametrize("first", [False, True])
def test_nothing_is_read_beside_the_operands(monkeypatch, first):
    """Memory that ends, or begins, where the operands do."""
    monkeypatch.setattr(device, "current", lambda: HOST)
    g, a, b = drawn(((33, 5), (5, 35)))
    c = exact(*(x.astype("f8") for x in (g, a, b)))[2].astype("f4")
    fenced = [guarded(x.shape, x.dtype, 0, first=first) for x in (g, a, b, c, a, b)]
    for x, y in zip(fenced, (g, a, b, c), strict=False):
        x[...] = y
    log_shares(*(x[np.newaxis] for x in fenced))
    for x, y in zip(fenced[4:], exact(*(x.astype("f8") for x in (g, a, b))), strict=False):
        assert_allclose(x, y, rtol=1e-5, atol=1e-5)


def test_shares_of_numbers_far_from_zero(there):
    """Operands whose sum is small are large: what the sum of two of them loses counts."""
    g, a, b = drawn(((9, 12), (12, 10)), scale=1)
    a, b = a - np.float32(3e5), b + np.float32(3e5)
    wide = exact(*(x.astype("f8") for x in (g, a, b)))
    for got, want in zip(found(there, g, a, b), wide, strict=False):
        assert_allclose(got, want, rtol=2e-5, atol=2e-5)


def test_small_shares_of_large_gradients(there):
    a, b = np.array([[0, -150]], "f4"), np.zeros((2, 1), "f4")
    left, _ = found(there, np.array([[1e30]], "f4"), a, b)
    assert_allclose(left, [[1e30, 1e30 * np.exp(-150.0)]], rtol=1e-4)


def test_no_shares_of_an_infinite_sum_are_made_up(there):
    """As PyTorch's: of what is infinite there is no share."""
    a, b = np.array([[inf, 0], [0, 0]], "f4"), np.zeros((2, 1), "f4")
    left, right = found(there, np.ones((2, 1), "f4"), a, b, c=np.array([[inf], [np.log(2)]], "f4"))
    assert_allclose(left, [[nan, 0], [0.5, 0.5]], rtol=1e-6)
    assert_allclose(right, [[nan], [0.5]], rtol=1e-6)
