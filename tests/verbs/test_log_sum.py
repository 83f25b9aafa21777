"""Products whose ⊕ is logaddexp: shifted exponentials and term by term, on both engines.

The thresholds on the size are taken away, so that small products take every way. The GPU's kernels
run on the host, as in ``test_kernels.py``.
"""

import host_device
import numpy as np
import pytest
from host_device import HostDevice, guarded
from numpy.testing import assert_array_equal
from reference import BFLOAT16, finfo, layouts

import semiring_mm as sm
from semiring_mm.cpu import engine as cpu
from semiring_mm.cpu import logsum as on_cpu
from semiring_mm.cpu import product
from semiring_mm.engine import Scaling
from semiring_mm.gpu import device
from semiring_mm.gpu import engine as gpu
from semiring_mm.gpu import logsum as on_gpu
from semiring_mm.gpu import product as on_device
from semiring_mm.plan import make_plan

inf, nan = np.inf, np.nan
LOG = sm.semirings["log_plus"]
HOST = HostDevice()
M, K, N = 70, 37, 66
both = pytest.mark.parametrize("where", ["cpu", "gpu"])


@pytest.fixture(autouse=True)
def _every_size(monkeypatch):
    """Every product is shifted, and the GPU is the host."""
    monkeypatch.setattr(product, "_SHIFTED", 0)
    monkeypatch.setattr(product, "_THIN", 1)
    monkeypatch.setattr(on_gpu, "_WORTH", 0)
    monkeypatch.setattr(on_gpu, "_SHALLOW", 0)
    monkeypatch.setattr(device, "current", lambda: HOST)
    on_device._plans.cache_clear()
    yield
    on_device._plans.cache_clear()


def term_by_term(monkeypatch):
    monkeypatch.setattr(product, "_SHIFTED", inf)
    monkeypatch.setattr(on_gpu, "_WORTH", inf)
    monkeypatch.setattr(on_gpu, "_DEEP", inf)


def multiply(where, a, b, c=None, semiring=LOG, out=None, **options):
    """By an engine; the result is written into an array that holds something else."""
    if where == "gpu":
        host_device.need_compiler()
    batch = np.broadcast_shapes(a.shape[:-2], b.shape[:-2])
    if out is None:
        out = np.full((*batch, a.shape[-2], b.shape[-1]), 7, a.dtype)
    if c is not None:
        out[...] = c
    run = cpu.product if where == "cpu" else gpu.product
    run(semiring, a, b, out, Scaling(c is not None, **options))
    return out


# --- what it has to be --------------------------------------------------------------------------


def exact(a, b, alpha=0.0, c=None, beta=0.0):
    """In a wider type; terms are added in the type computed in, which decides what is infinite."""
    compute = np.float64 if a.dtype.itemsize == 8 else np.float32
    with np.errstate(all="ignore"):
        terms = a.astype(compute)[..., :, :, None] + b.astype(compute)[..., None, :, :]
        total = np.logaddexp.reduce(terms.astype(np.longdouble), axis=-2) + alpha
        return total if c is None else np.logaddexp(total, c.astype(compute) + beta)


def allowed(a, b, value):
    """The bound of docs/log_plus.md on the difference of a shifted sum, as float64.

    With u half a unit in the last place of 1 and g = r + c - C, how far an entry is below the
    largest that its row and its column allow.
    """
    u = float(finfo(np.float64 if a.dtype.itemsize == 8 else np.float32).eps) / 2
    k = a.shape[-1]
    with np.errstate(all="ignore"):
        x, y = a.astype("f8"), b.astype("f8")
        r, c = x.max(-1)[..., :, None], y.max(-2)[..., None, :]
        r, c = np.where(r == -inf, 0, r), np.where(c == -inf, 0, c)
        gap = np.maximum(r + c - value.astype("f8"), 0)
        off = u * (k + 16 + np.log(k) + 4 * gap + np.abs(r + c) + np.abs(value).astype("f8"))
    if a.dtype.itemsize == 2:  # and the result is rounded
        off = off + float(finfo(a.dtype).eps) / 2 * np.abs(value).astype("f8")
    return off


def check(got, want, off):
    """Equal where not finite, elsewhere no further off than allowed."""
    with np.errstate(all="ignore"):
        rounded = want.astype(got.dtype).astype("f8")
        finite = np.isfinite(rounded)
        assert_array_equal(got.astype("f8")[~finite], rounded[~finite])
        worst = np.max((np.abs(got.astype(np.longdouble) - want) / off)[finite], initial=0)
    assert worst <= 1, f"{worst} times what is allowed"


def data(kind, dtype, seed=1, shape=(M, K, N)):
    """Operands of a kind."""
    rng = np.random.default_rng(seed)
    m, k, n = shape
    a, b = rng.standard_normal((m, k)), rng.standard_normal((k, n))
    top = float(finfo(dtype).max)
    match kind:
        case "wide":  # some sums underflow
            a, b = 60 * a, 60 * b
        case "far rows":  # in some rows all do, or all but a few terms
            a[::7, 0], b[0] = 2000, -3000
        case "banded":
            a[np.abs(np.subtract.outer(np.arange(m), np.arange(k))) > 3] = -inf
            b[np.abs(np.subtract.outer(np.arange(k), np.arange(n))) > 3] = -inf
        case "sparse and wide":
            a, b = 300 * a, 300 * b
            a[rng.random(a.shape) < 0.9], b[rng.random(b.shape) < 0.9] = -inf, -inf
        case "nothing":
            a[:], b[:, ::2] = -inf, -inf
            a[5, 7] = 3
        case "not finite":
            a[rng.random(a.shape) < 0.01], b[rng.random(b.shape) < 0.02] = inf, -inf
            a[4, 4], b[6, -1], b[8, n // 2] = nan, nan, inf
        case "nan":
            a[4, 4], b[6, 6] = nan, nan
        case "huge":
            a, b = (rng.choice([top, top / 2, -top, -inf, 1, -500], x.shape) for x in (a, b))
    return a.astype(dtype), b.astype(dtype)


KINDS = ["normal", "wide", "far rows", "banded", "sparse and wide", "nothing", "not finite", "huge"]
DTYPES = [np.dtype("f4"), np.dtype("f8"), np.dtype("f2"), BFLOAT16]


@both
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [*((kind, dtype) for kind in KINDS for dtype in DTYPES[:2]),
     *((kind, dtype) for kind in ("wide", "not finite") for dtype in DTYPES[2:])],
    ids=str,
)  # fmt: skip
def test_shifted(where, kind, dtype):
    a, b = data(kind, dtype)
    want = exact(a, b)
    check(multiply(where, a, b), want, allowed(a, b, want))


@both
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
@pytest.mark.parametrize("kind", KINDS)
def test_term_by_term(where, kind, dtype, monkeypatch):
    """The largest term comes late, or never, and no gap costs anything."""
    term_by_term(monkeypatch)
    a, b = data(kind, dtype, shape=(M, 301, 20))
    a = a[:, np.argsort(np.where(np.isnan(a[3]), 0, a[3]))]
    want = exact(a, b)
    u = float(np.finfo(dtype).eps) / 2
    with np.errstate(all="ignore"):
        check(multiply(where, a, b), want, u * (16 + 4 * np.abs(want).astype("f8")))


@both
@pytest.mark.parametrize("kind", ["normal", "banded", "nothing", "nan"])
def test_what_is_not_reached_needs_no_second_way(where, kind, monkeypatch):
    """Entries of -inf are told from sums that underflow, and NaN is at once what it is."""
    needed = []
    monkeypatch.setattr(on_cpu, "_entries", lambda *_: needed.append("entries"))
    monkeypatch.setattr(on_cpu, "_DENSE", inf)
    empty = "(const __grid_constant__ sr::LogSumParams) {}"
    monkeypatch.setattr(
        on_gpu, "log_sum_source", lambda *_: f'#include "logsum.cuh"\nvoid kernel{empty}'
    )
    a, b = data(kind, DTYPES[0])
    want = exact(a, b)
    check(multiply(where, a, b), want, allowed(a, b, want))
    assert not needed
    if kind in ("banded", "nothing"):
        assert (want == -inf).any()


@both
@pytest.mark.parametrize(("i", "j"), [(0, 0), (1, 33), (33, 1), (69, 65)])
def test_one_sum_that_underflows_is_found_wherever_it_is(where, i, j):
    a, b = data("normal", DTYPES[0])
    a[i, 0], b[0, j] = 2000, -3000
    want = exact(a, b)
    check(multiply(where, a, b), want, allowed(a, b, want))


@pytest.mark.parametrize("dense", [0, inf])
def test_sums_that_underflow_go_one_by_one_or_by_rows(dense, monkeypatch):
    monkeypatch.setattr(on_cpu, "_DENSE", dense)
    a, b = data("wide", DTYPES[0])
    want = exact(a, b)
    check(multiply("cpu", a, b), want, allowed(a, b, want))


@both
@pytest.mark.parametrize("kind", ["wide", "sparse and wide", "not finite"])
@pytest.mark.parametrize("dtype", [DTYPES[0], DTYPES[2]], ids=str)
def test_scalars_and_joins(where, kind, dtype):
    a, b = data(kind, dtype)
    c = np.random.default_rng(2).standard_normal((M, N)).astype(dtype)
    c[::3] = -inf
    c[1, 1], c[2, 2] = inf, nan
    for alpha, beta in ((None, None), (-2.5, None), (None, 3.0), (700.0, -0.5)):
        want = exact(a, b, alpha or 0.0, c, beta or 0.0)
        off = allowed(a, b, exact(a, b)) + allowed(a, b, want)
        off += 2**-23 * (np.abs(alpha or 0) + np.abs(c.astype("f8") + (beta or 0)))
        check(multiply(where, a, b, c, alpha=alpha, beta=beta), want, off)
    want = exact(a, b, -2.5)
    off = allowed(a, b, exact(a, b)) + allowed(a, b, want) + 2**-22
    check(multiply(where, a, b, alpha=-2.5), want, off)


@both
def test_every_layout(where):
    a, b = data("sparse and wide", DTYPES[0])
    want = exact(a, b)
    off = allowed(a, b, want)
    for how in ("F", "strided", "reversed"):
        x, y = layouts(a)[how], layouts(b)[how]
        check(multiply(where, x, b), want, off)
        check(multiply(where, a, y), want, off)
        check(multiply(where, x, y, out=layouts(np.zeros((M, N), "f4"))[how]), want, off)


@pytest.mark.parametrize("shape", [(1, 1, 1), (31, 32, 33), (65, 64, 63), (64, 20, 64)])
def test_nothing_beyond_an_operand_is_read(shape):
    """The last entry lies before memory that nobody may touch."""
    a, b = data("sparse and wide", DTYPES[0], shape=shape)
    x, y = (guarded(z.shape, z.dtype, nan) for z in (a, b))
    x[...], y[...] = a, b
    want = exact(a, b)
    for where in ("cpu", "gpu"):
        check(multiply(where, x, y), want, allowed(a, b, want))


@both
def test_stacks(where, monkeypatch):
    """Also those that repeat a matrix, and in parts where temporary arrays would be large."""
    rng = np.random.default_rng(3)
    a, b = rng.standard_normal((5, 20, 17)).astype("f4"), rng.standard_normal((5, 17, 30))
    a[2, 3], b[1, 0], b[1, :, 2] = -inf, 200, -400
    b = b.astype("f4")
    once = np.broadcast_to(a[:1], a.shape), np.broadcast_to(b[1:2], b.shape)
    for most in (1 << 30, 1):
        monkeypatch.setattr(on_gpu, "_MOST", most)
        for x, y in ((a, b), (once[0], b), (a, once[1]), once):
            want = exact(x, y)
            check(multiply(where, x, y), want, allowed(x, y, want))
        tall = np.resize(a, (1100, 17))  # more rows than a part has
        want = exact(tall, b[0])
        check(multiply(where, tall, b[0]), want, allowed(tall, b[0], want))


@both
@pytest.mark.parametrize("dtype", DTYPES[:2], ids=str)
def test_vectors(where, dtype):
    """A matrix by rows and by columns, times a vector, with and without α and y."""
    run = cpu.gemv if where == "cpu" else gpu.gemv
    if where == "gpu":
        host_device.need_compiler()
    u = float(np.finfo(dtype).eps)
    for kind in KINDS:
        for m, k in ((70, 37), (9, 1300), (300, 11)):
            a, b = data(kind, dtype, shape=(m, k, 3))
            for matrix in (a, np.asfortranarray(a), a[:, ::-1][::2]):
                x, y = b[:, 1], data("normal", dtype, shape=(matrix.shape[0], 1, 1))[0][:, 0]
                want, old = exact(matrix, b[:, 1:2])[:, 0], y.copy()
                with np.errstate(all="ignore"):
                    off = u * (24 + 4 * np.abs(want).astype("f8"))
                run(LOG, matrix, x, y)
                check(y, want, off)
                y[...] = old
                alpha = 0.0 if kind == "huge" else 0.5  # which large entries would swallow
                run(LOG, matrix, x, y, Scaling(True, alpha))
                with np.errstate(all="ignore"):
                    want = np.logaddexp(want + alpha, old)
                    off += u * 4 * (1 + np.abs(want).astype("f8"))
                check(y, want, off)


def test_twins_take_the_same_way_and_others_their_own():
    a, b = data("normal", DTYPES[0])
    twin = sm.Semiring("twin", "logaddexp(b, a)", "b + a", -inf, 0)
    other = sm.Semiring("soft", "logaddexp(a, b)", "min(a, b)", -inf, inf)
    with np.errstate(all="ignore"):
        soft = np.logaddexp.reduce(np.minimum(a[:, :, None], b).astype("f8"), axis=1)
    for where in ("cpu", "gpu"):
        assert_array_equal(multiply(where, a, b, semiring=twin), multiply(where, a, b))
        HOST.launched.clear()
        check(multiply(where, a, b, semiring=other), soft, 2e-6)
    assert ["sr::LogSum<" in x for x in HOST.launched] == [True]


@pytest.mark.usefixtures("nvrtc")
@pytest.mark.parametrize("arch", [75, 120])
def test_kernels_compile_for_the_device(arch):
    """float32, whose exponential is an instruction; test_cuda.py has float64."""
    plan = make_plan(LOG, DTYPES[0], None, None, 1)
    tile = on_gpu._LARGE
    for text in (
        on_gpu.shift_source(plan, True),
        on_gpu.settle_source(plan, tile),
        on_gpu.log_sum_source(plan, tile, False, True, False, True),
    ):
        cubin, report = device.compile_source(text, arch)
        assert cubin[:4] == b"\x7fELF"
        assert "warning" not in report


def test_the_public_verb(monkeypatch):
    """A product that is large enough by itself."""
    monkeypatch.undo()
    shifted = []
    run = on_cpu.product
    monkeypatch.setattr(on_cpu, "product", lambda *x, **y: (shifted.append(1), run(*x, **y)))
    a, b = data("sparse and wide", DTYPES[1], shape=(160, 180, 170))
    c = sm.matmul(a, b, "log_plus")
    assert shifted
    want = exact(a, b)
    check(c, want, allowed(a, b, want))
    check(sm.gemm(1.5, b.T, a.T, 0.5, c.T, semiring="log_plus"),
          np.logaddexp(want.T + 1.5, want.T + 0.5), 1e-11)  # fmt: skip
