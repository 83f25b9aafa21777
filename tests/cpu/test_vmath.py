"""Elementary functions in machine code against NumPy in a wider precision."""

import ctypes
import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

from semiring_mm.cpu import vmath
from semiring_mm.cpu.compiler import compile_functions, host_target
from semiring_mm.cpu.ir import F32, F64, I32, I64, PTR, Function

WIDER = {np.float32: np.float64, np.float64: np.longdouble}
# What the docstrings say, in units in the last place.
BOUNDS = {"exp": 1.0, "expm1": 2.0, "log": 1.1, "log1p": 1.6}
UNARY = list(BOUNDS)
inf, nan = np.inf, np.nan


@functools.cache
def _compiled(name, dtype, lanes):
    element = {np.float32: F32, np.float64: F64}[dtype]
    operands = 2 if name == "logaddexp" else 1
    f = Function(f"{name}_{element}_{lanes}", [I64, PTR, PTR, PTR])
    n, *sources, target = f.args
    vector = element.vector(lanes)
    with f.loop(0, n) as i:
        offset = i * vector.size
        values = [f.load(s.at(offset), vector) for s in sources[:operands]]
        f.store(getattr(vmath, name)(f, *values), target.at(offset))
    library = compile_functions([f], host_target())
    return library.function(f.name, ctypes.c_int64, *[ctypes.c_void_p] * 3)


def apply(name, x, y=None, lanes=None):
    """The function of arrays, padded to whole vectors."""
    dtype = x.dtype.type
    lanes = lanes or host_target().vector_bytes // x.itemsize
    padded = [np.resize(a, -(-x.size // lanes) * lanes) for a in (x, x if y is None else y)]
    out = np.empty_like(padded[0])
    function = _compiled(name, dtype, lanes)
    function(out.size // lanes, *(a.ctypes.data for a in (*padded, out)))
    return out[: x.size]


def reference(name, *arguments):
    dtype = arguments[0].dtype.type
    if np.finfo(WIDER[dtype]).nmant <= np.finfo(dtype).nmant:
        pytest.skip("no wider type to compare with")
    with np.errstate(all="ignore"):
        return getattr(np, name)(*(a.astype(WIDER[dtype]) for a in arguments))


def compare(got, wide, bound, unit_of=None, floor=0.0):
    """Equal where not finite, elsewhere within `bound` units in the last place of `unit_of`."""
    dtype = got.dtype.type
    with np.errstate(all="ignore"):
        want = wide.astype(dtype)
        finite = np.isfinite(want)
        assert_array_equal(got[~finite], want[~finite])
        unit = np.spacing(np.abs(want if unit_of is None else unit_of.astype(dtype)))
        error = (np.abs(got.astype(wide.dtype) - wide) - floor) / unit.astype(wide.dtype)
        worst = np.max(error[finite], initial=0)
    assert worst <= bound, f"{worst} ulp"
    return float(worst)


def bit_patterns(dtype, n, seed=0):
    """Every exponent and sign alike, with infinities, NaN and denormals."""
    return np.random.default_rng(seed).bytes(n * np.dtype(dtype).itemsize)


def sweep(name, dtype):
    """Arguments where the function is not constant, dense where it is delicate."""
    info = np.finfo(dtype)
    n = 60_001
    tiny = np.geomspace(info.smallest_subnormal, 1, n, dtype=np.longdouble)
    top = np.log(info.max)
    parts = [tiny, -tiny, np.linspace(-2, 2, n), np.linspace(-1.2 * top, 1.1 * top, n)]
    parts.append(np.geomspace(info.smallest_subnormal, info.max, n, dtype=np.longdouble))
    parts.append(1 + np.linspace(-0.5, 1, n) / 1000)
    if name == "log1p":
        parts.append(tiny - 1)
    with np.errstate(all="ignore"):
        x = np.concatenate(parts).astype(dtype)
    return np.concatenate([x, np.frombuffer(bit_patterns(dtype, n), dtype)])


both = pytest.mark.parametrize("dtype", [np.float32, np.float64])


@both
@pytest.mark.parametrize("name", UNARY)
def test_accuracy(name, dtype):
    x = sweep(name, dtype)
    compare(apply(name, x), reference(name, x), BOUNDS[name])


@both
@pytest.mark.parametrize("name", [*UNARY, "logaddexp"])
@pytest.mark.parametrize("lanes", [1, 2, 3, 8, 32])
def test_lanes_do_not_matter(name, dtype, lanes):
    x = np.frombuffer(bit_patterns(dtype, 5000), dtype)
    x = np.concatenate([x, np.linspace(-5, 5, 1000, dtype=dtype)])
    arguments = (x, x[::-1].copy()) if name == "logaddexp" else (x,)
    assert_array_equal(apply(name, *arguments, lanes=lanes), apply(name, *arguments))


def specials(dtype):
    info = np.finfo(dtype)
    least, tiny, big = info.smallest_subnormal, info.smallest_normal, info.max
    x = [0.0, inf, 1.0, 2.0, 0.5, 100.0, 1000.0, least, 3 * least, tiny, tiny - least, big]
    x += [info.eps, 1 + info.eps, 1 - info.epsneg, np.log(big), np.log(tiny), np.log(least)]
    x = np.array(x, dtype)
    with np.errstate(over="ignore"):
        edges = np.concatenate([np.nextafter(x, dtype(inf)), np.nextafter(x, dtype(-inf))])
    return np.concatenate([x, -x, edges, -edges, np.array([nan], dtype)])


@both
@pytest.mark.parametrize("name", UNARY)
def test_special_values(name, dtype):
    x = specials(dtype)
    got, wide = apply(name, x), reference(name, x)
    compare(got, wide, BOUNDS[name])
    zero = x == 0
    assert_array_equal(np.signbit(got[zero]), np.signbit(wide[zero]))
    if name in ("log1p", "expm1"):  # the identity, to the last bit of a denormal
        small = np.abs(x) < np.finfo(dtype).smallest_normal
        assert_array_equal(got[small], x[small])


@both
def test_special_values_by_name(dtype):
    def one(name, *arguments):
        return apply(name, *(np.array([a], dtype) for a in arguments))[0]

    assert one("exp", -inf) == 0
    assert one("exp", inf) == inf
    assert one("exp", 0) == 1
    assert one("expm1", -inf) == -1
    assert one("log", 0) == one("log", -0.0) == -inf
    assert one("log", 1) == 0
    assert np.isnan(one("log", -1))
    assert np.isnan(one("log", -inf))
    assert one("log1p", -1) == -inf
    assert np.isnan(one("log1p", -1.5))
    assert one("logaddexp", -inf, -inf) == -inf
    assert one("logaddexp", inf, inf) == inf
    assert one("logaddexp", inf, -inf) == one("logaddexp", -inf, inf) == inf
    for x in (-inf, -1e30, -90, -1, 0, 1, 1e30, inf):
        assert np.isnan(one("logaddexp", x, nan))
        assert np.isnan(one("logaddexp", nan, x))
        assert one("logaddexp", x, -inf) == one("logaddexp", -inf, x) == dtype(x)


@both
def test_lifted_exponentials(dtype, monkeypatch):
    """2**lift times the exponential, and zero in place of what is smaller than the least."""
    lift, least = (52, -63) if dtype is np.float32 else (400, -511)
    name = f"lifted_{lift}"
    monkeypatch.setattr(
        vmath, name, lambda f, x: vmath.lifted_exp(f, x, lift, least), raising=False
    )
    x = -np.abs(sweep("exp", dtype))
    x = np.concatenate([x, np.linspace((least - lift - 3) * np.log(2), 0, 50_001).astype(dtype)])
    got = apply(name, x)
    wide = reference("exp", x) * 2.0**lift
    wide[x < dtype((least - lift) * np.log(2))] = 0
    compare(got, wide, 1.0)
    assert np.min(got[got > 0]) >= 0.999 * 2.0**least
    assert_array_equal(apply(name, np.array([-inf, nan], dtype)), np.array([0, nan], dtype))


def check_logaddexp(x, y):
    """Four units of the result or of the term added, if that is larger; see the docstring."""
    got, wide = apply("logaddexp", x, y), reference("logaddexp", x, y)
    with np.errstate(all="ignore"):
        gap = np.where(x == y, x.dtype.type(0), np.abs(x - y)).astype(wide.dtype)
        term = np.log1p(np.exp(-gap))
        rounding = np.spacing(np.fmin(gap, 1e4).astype(x.dtype)) / 2 * np.exp(-gap)
        unit_of = np.fmax(np.abs(wide), term)
    return compare(got, wide, 4, unit_of, 2 * np.finfo(x.dtype).smallest_normal + rounding)


@both
def test_logaddexp(dtype):
    rng = np.random.default_rng(1)
    n = 200_000
    top = -np.log(np.finfo(dtype).smallest_normal)
    for scale in (1e-6, 1e-2, 1, 10, 100, 1e4):
        x = (rng.standard_normal(n) * scale).astype(dtype)
        check_logaddexp(x, (rng.standard_normal(n) * scale).astype(dtype))
        check_logaddexp(x, (x - rng.uniform(-1.2, 1.2, n) * top).astype(dtype))
    gap = np.linspace(0, -1.1 * top, n).astype(dtype)
    for x in (np.zeros(n, dtype), rng.uniform(0, 1e-3, n).astype(dtype)):
        check_logaddexp(x, gap)
        check_logaddexp(gap, x)
    with np.errstate(all="ignore"):
        x, y = (np.frombuffer(bit_patterns(dtype, n, seed), dtype) for seed in (2, 3))
        check_logaddexp(x, y)
        s = specials(dtype)
        check_logaddexp(np.repeat(s, s.size), np.tile(s, s.size))


@both
def test_logaddexp_commutes(dtype):
    x, y = (np.frombuffer(bit_patterns(dtype, 20_000, seed), dtype) for seed in (4, 5))
    with np.errstate(all="ignore"):
        y = np.where(np.arange(y.size) % 2, y, x + 1)
    assert_array_equal(apply("logaddexp", x, y), apply("logaddexp", y, x))


@both
@settings(deadline=None, max_examples=50)
@given(data=st.data())
def test_any_numbers(dtype, data):
    width = np.dtype(dtype).itemsize * 8
    numbers = st.lists(st.floats(width=width), min_size=1, max_size=20)
    x = np.array(data.draw(numbers), dtype)
    for name in UNARY:
        compare(apply(name, x), reference(name, x), BOUNDS[name])
    y = np.resize(np.array(data.draw(numbers), dtype), x.size)
    check_logaddexp(x, y)


def test_other_types_are_refused():
    f = Function("f", [I32])
    for name in ("exp", "log", "log1p", "expm1"):
        with pytest.raises(TypeError, match="float or double, got i32"):
            getattr(vmath, name)(f, f.args[0])
