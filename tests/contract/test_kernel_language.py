"""The language of kernels: what compiles gives what Python gives, and the rest is an error."""

from __future__ import annotations

import types

import numpy as np
import pytest
from plain_kernels import MIN_PLUS, both

from semiring_mm.cpu import codegen
from semiring_mm.cpu.codegen import compiled
from semiring_mm.cpu.compiler import host_target
from semiring_mm.kernel import (
    I,
    Kernel,
    KernelError,
    S,
    T,
    across,
    add,
    add_exp,
    better,
    bit,
    bit_length,
    bits,
    decode,
    each,
    encode,
    entries,
    exp_gap,
    f64,
    first,
    fma,
    i32,
    i64,
    kernel,
    lanes,
    log,
    mul,
    one,
    pick,
    popcount,
    scale,
    sqrt,
    static,
    stream,
    u64,
    unrolled,
    where,
    zero,
)  # fmt: skip
from semiring_mm.layouts import LayoutError
from semiring_mm.plan import Facts, bytewise, make_plan
from semiring_mm.semirings import semirings

KNOWN = Facts(-1e3, 1e3, False)


@kernel
def numbers(n: i64, x: i64[:], y: i32[:], out: i64[:, :]):
    k = 0
    for i in range(n):
        a, b = x[i], y[i]
        out[0, i] = a // b
        out[1, i] = a % b
        out[2, i] = (a << 2) ^ (b >> 1) | ~a & 7
        out[3, i] = -a if a < 0 < b else min(a, b, 3)
        while True:
            k += 1
            if k % 3 == 0:
                continue
            if k > 7 * i or not a < 100:
                break
        out[4, i] = k
        out[6, i] = bit_length(a & 1023)
    for i in range(n - 1, -1, -2):
        out[5, i] = max(out[5, n - 1 - i], i) + (x[i] == y[i])


def test_integers_are_those_of_python():
    rng = np.random.default_rng(0)
    x, y = rng.integers(-50, 50, 40), rng.integers(-9, 9, 40).astype("i4")
    y[y == 0] = 3
    both(numbers, n=40, x=x, y=y, out=np.zeros((7, 40), "i8"))


@kernel
def guarded(n: i64, near: i64[:], x: f64[:], out: f64[:]):
    for i in range(n):
        if (near[i] >= 0 and x[near[i]] > 0.5) or i == 3:
            out[i] = x[i] if near[i] < 0 else x[near[i]] / 2.0
        known = near[i] < 0 or x[near[i]] > 0.0
        if not known:
            out[i] = -1.0


def test_what_follows_and_or_is_computed_if_need_be():
    rng = np.random.default_rng(1)
    near = rng.integers(-1, 30, 30)
    both(guarded, n=30, near=near, x=rng.normal(size=30), out=np.zeros(30))


@kernel
def largest(x, n):
    best = x[0]
    for i in range(1, n):
        if x[i] < best:
            return best, i
        best = x[i]
    return best, n


@kernel
def runs(n: i64, x: i64[:, :], out: i64[:, :], turned: static, extra: i64[:]):
    for row in range(n):
        best, end = largest(x[row], 9)
        out[row, 0], out[row, 1] = (end, best) if turned else (best, end)
        rest, _ = largest(x[row, 4:], 5)
        if extra is not None:
            out[row, 0] += extra[row] + rest


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("extra", [None, np.arange(7)])
def test_kernels_within_kernels_statics_and_arrays_that_are_none(turned, extra):
    x = np.random.default_rng(2).integers(0, 9, (7, 9))
    both(runs, n=7, x=x, out=np.zeros((7, 2), "i8"), turned=turned, extra=extra)


@kernel
def relax(n: i64, count: static, weights: T[:, :], label: T[:], out: T[:, :], best: T[:]):
    for j in lanes(n):
        sums = [zero, one]
        for i in range(count):
            sums[0] = add(sums[0], mul(label[i], weights[i, j]), numbers=count > 3)
            sums[1] = mul(sums[1], weights[i, j])
        out[0, j] = sums[0]
        out[1, j] = sums[1]
        out[2, j] = sums[1] if sums[1] < 3.0 else sums[0]
    total = each(zero)
    for j in lanes(n):
        total = add(total, out[0, j])
    best[0] = across(total)


@pytest.mark.parametrize("n", [1, 7, 16, 33])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lanes(n, dtype):
    rng = np.random.default_rng(3)
    plan = make_plan(semirings["min_plus"], np.dtype(dtype), KNOWN, KNOWN, 1)
    both(
        relax, MIN_PLUS, plan, n=n, count=5, label=rng.integers(0, 9, 5).astype(dtype),
        weights=rng.integers(0, 9, (5, n)).astype(dtype), out=np.zeros((3, n), dtype),
        best=np.zeros(1, dtype),
    )  # fmt: skip


@kernel
def mixed(n: i64, count: static, at: i64[n, count] < n, x: u64[n, count], out: u64[4, count]):
    for lane in lanes(count, whole=True):
        total, high = each(u64(7)), x[0, lane]
        for i in range(n):
            picked = [x[at[i, k], k] for k in unrolled(count)]
            total = u64(total * 3 + picked[lane]) ^ u64(~x[i, lane]) >> (i & 63)
            high = max(high, total)
        out[0, lane], out[1, lane] = total, high
        out[2, lane] = popcount(total) if total > x[0, lane] else u64(-1)
        out[3, lane] = u64(i64(total >> 1) << 2)


@kernel
def fused(n: i64, x: f64[n], out: f64[n]):
    for j in lanes(n):
        out[j] = fma(x[j], x[j], -1.0)


@pytest.mark.parametrize("count", [1, 2])
def test_words_without_sign_and_an_entry_for_each_lane(count):
    rng = np.random.default_rng(5)
    x = rng.integers(0, 1 << 64, (9, count), "u8")
    at = rng.integers(0, 9, x.shape)
    found = both(mixed, n=9, count=count, at=at, x=x, out=np.zeros((4, count), "u8"))
    assert (found["out"][1] >= 1 << 63).all()


def test_a_product_and_a_sum_rounded_once():
    x = np.random.default_rng(6).random(19) + 0.5
    found = both(fused, n=19, x=x, out=np.zeros(19))["out"]
    assert (found != x * x - 1).any()


WIDTH = 64


@kernel
def marked(n: i64, words: u64[n], x: T[n, WIDTH], out: i64[n]):
    near, far = x[0], x[n - 1]
    near, far = far, near
    for v in range(n):
        for j in lanes(WIDTH, whole=True):
            mine = x[v, j]
            if bit(words[v], j):
                x[v, j] = T(v + 3)
                mine = near[j]
            else:
                near[j] = far[j]
            out[v] += across(i64(mine), sum)


@pytest.mark.parametrize("dtype", ["u1", "i4", "f8"])
def test_assignments_in_some_lanes(dtype):
    rng = np.random.default_rng(6)
    x = rng.integers(0, 99, (4, WIDTH)).astype(dtype)
    words = rng.integers(0, 1 << 64, 4, "u8")
    both(marked, None, dtype, n=4, words=words, x=x, out=np.zeros(4, "i8"))


@kernel
def several(n: i64, padded: i64, x: T[:, :], y: T[:], out: T[:, :], places: i64[:]):
    sums = [zero for c in unrolled(3)]
    for i in range(n):
        for c in unrolled(3):
            sums[c] = add(sums[c], mul(x[c, i], y[i]))
    for c in unrolled(3):
        out[c, 0] = sums[c]
    place = n
    negative = each(False)
    for j in lanes(padded, whole=True):
        out[3, j] = y[j] if j < n else zero
        place = min(place, first(j, out[3, j] < 0.0))
        negative |= not out[3, j] >= 0.0
    places[0] = place
    places[1] = across(negative, any)


@pytest.mark.parametrize("n", [5, 8, 21])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_lists_and_loads_by_a_condition(n, dtype):
    rng = np.random.default_rng(5)
    plan = make_plan(semirings["min_plus"], np.dtype(dtype), KNOWN, KNOWN, 1)
    x, y = rng.integers(0, 9, (3, n)).astype(dtype), rng.integers(0, 9, n).astype(dtype)
    for least in (0, -1):
        y[n - 2] = least
        found = both(
            several, MIN_PLUS, plan, n=n, padded=32, x=x, y=y, out=np.zeros((4, 32), dtype),
            places=np.zeros(2, "i8"),
        )  # fmt: skip
        assert found["places"].tolist() == ([n - 2, 1] if least else [n, 0])


@kernel
def row_a_lane(
    many: static, n: static, order: i64[:], count: i64[:], x: T[:, :], table: T[:], out: T[:, :],
    last: i32[:, :],
):  # fmt: skip
    for lane in lanes(many, whole=True):
        row = x[order[lane]]
        values = entries(row, n)
        for j in unrolled(n):
            out[j, lane] = mul(values[j], row[j])
        total, steps = each(one), i32(count[lane])
        for t in range(across(count[lane], max)):
            total = mul(total, pick(table, steps)) if i32(t) < steps else total
        out[n, lane] = total
        last[order[lane], 1] = steps


@pytest.mark.parametrize("n", [1, 3, 8, 19])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_a_row_in_each_lane(n, dtype):
    rng = np.random.default_rng(6)
    plan = make_plan(semirings["min_plus"], np.dtype(dtype), KNOWN, KNOWN, 1)
    many = host_target().vector_bytes // np.dtype(dtype).itemsize
    both(
        row_a_lane, MIN_PLUS, plan, many=many, n=n, order=rng.permutation(many),
        count=rng.integers(0, many, many), x=rng.integers(0, 9, (many, n)).astype(dtype),
        table=rng.integers(0, 9, many).astype(dtype), out=np.zeros((n + 1, many), dtype),
        last=np.zeros((many, 2), "i4"),
    )  # fmt: skip


@kernel
def some_lanes(n: i64, whole: i64, many: static, x: T[:, :], out: T[:, :], last: f64[:]):
    a, b = x[0], x[1]
    a, b = b, a
    high = each(zero)
    for j in lanes(n, times=many):
        high = add(high, a[j])
    for j in lanes(whole, whole=True):
        v = each(one)
        if j < n:
            if a[j] < 4.0:
                v = mul(v, b[j])
                out[0, j] = v
            else:
                out[0, j] = T(2.0)
        out[1, j] = v
    last[0] = fma(f64(out[0, 0]), 3.0, 1.0) + f64(exp_gap(-1.0, 2, -60) + add_exp(0.5, 0.0))
    last[1] = bits(bits(last[0]) + (1 << 52)) + log(last[0] + 9.0) + across(f64(high), min)
    last[1] += sqrt(last[0])
    if whole == 0:
        return
    last[2] = 1.0


@pytest.mark.parametrize("n", [3, 8, 31, 32])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_conditions_about_lanes_and_functions_of_numbers(n, dtype):
    plan = make_plan(semirings["min_plus"], np.dtype(dtype), KNOWN, KNOWN, 1)
    x = np.random.default_rng(7).integers(0, 9, (2, n)).astype(dtype)
    many = -(-n * x.itemsize // host_target().vector_bytes)
    both(
        some_lanes, MIN_PLUS, plan, (), 1e-6, n=n, whole=32, many=many, x=x,
        out=np.zeros((2, 32), dtype), last=np.zeros(3),
    )  # fmt: skip


@kernel
def chosen(n: i64, x: f64[n], out: i64[n + 1]):
    for j in lanes(n, 2):
        for c in where(j, x[j] > 0.5):
            if x[c] > 0.9:
                continue
            out[1 + out[0]] = c
            out[0] += 1


@pytest.mark.parametrize("n", [3, 32, 75])
def test_lanes_that_are_visited_one_by_one(n):
    x = np.random.default_rng(8).random(n)
    found = both(chosen, n=n, x=x, out=np.zeros(n + 1, "i8"))["out"]
    assert found[1:][: found[0]].tolist() == np.flatnonzero((x > 0.5) & (x <= 0.9)).tolist()


@kernel
def left_early(x: i64[:]):
    for j in lanes(8):
        for c in where(j, x[j] > 5):
            x[c] = 0
            break


@kernel
def one_number_for_lanes(x: i64[:]):
    last = 0
    for j in lanes(32, whole=True):
        if x[j] > 5:
            last = 1
    x[0] = last


@kernel
def halves(n: i64, x: T[:], out: T[:]):
    for j in lanes(n):
        out[j] = x[j] / 2 if x[j] > 0 else x[j]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_arrays_of_a_dtype(dtype):
    x = np.random.default_rng(4).normal(size=21).astype(dtype)
    out = np.zeros_like(x)
    compiled(halves, dtype)(n=21, x=x, out=out)
    assert out.tolist() == np.where(x > 0, x / 2, x).tolist()


def test_a_call_that_is_bound_keeps_its_arrays():
    out = np.zeros(2000)
    x = np.arange(2000.0)
    call = compiled(halves, "f8").bind(n=2000, x=x + 1, out=out)
    others = [np.full(2000, 7.0) for _ in range(9)]
    call()
    assert out.tolist() == ((x + 1) / 2).tolist()
    assert len(others) == 9


@kernel
def most(x: i64[:, n], n: i64, out: i64[:]) -> i64:
    for i in range(n):
        out[i] = max(x[0, i], x[1, i])
        if out[i] > 9:
            return i
    return -1


def test_a_kernel_may_return_an_integer_and_be_called_for_arrays_that_lie_alike():
    x, out = np.array([[3, 4, 12], [5, 1, 7]]), np.zeros(3, "i8")
    call = compiled(most).function_of("x", x=x, n=3, out=out)
    assert [call(x), call(x[::-1].copy()), call(x - 3)] == [2, 2, -1]
    assert out.tolist() == [2, 1, 9]
    assert most.plain(x=x, n=3, out=out) == compiled(most)(x=x, n=3, out=out) == 2


@kernel
def streamed(n: i64, count: static, x: i64[n], out: i64[:]):
    for first_ in range(0, n, count):
        for j in lanes(count, whole=True):
            stream(out, first_ + j, x[first_ + j] + 1)


def test_vectors_are_stored_past_the_caches():
    out = np.zeros(64, "i8")
    out = out[-out.ctypes.data % 64 // 8 :][:32]
    count = host_target().vector_bytes // 8
    expected = out.copy()
    streamed.plain(n=32, count=count, x=np.arange(32), out=expected)
    compiled(streamed)(n=32, count=count, x=np.arange(32), out=out)
    assert out.tolist() == expected.tolist() == list(range(1, 33))


def test_arguments_are_checked():
    call = compiled(guarded)
    good = {"n": 2, "near": np.zeros(2, "i8"), "x": np.ones(2), "out": np.ones(2)}
    call(**good)
    with pytest.raises(LayoutError, match=r"guarded: near is int32 of .*; accepted: .*i64\["):
        call(**good | {"near": np.zeros(2, "i4")})
    with pytest.raises(LayoutError, match="strides"):
        call(**good | {"x": np.ones(4)[::2]})
    with pytest.raises(LayoutError, match=r"near is a list"):
        call(**good | {"near": [1, 2]})
    with pytest.raises(TypeError, match=r"n is a number of type i64, got 1\.5"):
        call(**good | {"n": 1.5})
    with pytest.raises(
        TypeError, match=r"guarded\(\) missing 3 required .*: .near., .x., and .out."
    ):
        call(n=3)


@kernel
def gathered(n: i64, m: i64, near: i64[n] < m, x: f64[2, m], out: f64[n + 1]):
    for i in range(n):
        out[i] = x[1, near[i]]


def test_lengths_and_indices_are_checked():
    good = {"n": 3, "m": 2, "near": np.array([1, 0, 1]), "x": np.ones((2, 2)), "out": np.zeros(4)}
    for run in (compiled(gathered), gathered.plain):
        run(**good)
        with pytest.raises(LayoutError, match=r"near has entries from 0 to 2; .* < m .*, m = 2"):
            run(**good | {"near": np.array([1, 2, 0])})
        with pytest.raises(
            LayoutError, match=r"shape \(2,\) .*: i64\[n\] < m or longer, where n = 3"
        ):
            run(**good | {"near": np.array([1, 0])})
        with pytest.raises(
            LayoutError, match=r"x is .* \(2, 1\) .*: f64\[2, m\] or longer, where m = 2"
        ):
            run(**good | {"x": np.ones((2, 1))})


@kernel
def rooted(n: i64, up: -1 <= i32[n] < n, out: i64[n]):
    for i in range(n):
        out[i] = up[i]


def test_a_range_may_begin_below_zero():
    out = np.zeros(3, "i8")
    for run in (compiled(rooted), rooted.plain):
        run(n=3, up=np.array([-1, 2, 0], "i4"), out=out)
        for wrong in (-2, 3):
            with pytest.raises(LayoutError, match=f"up has entries from .*{wrong}"):
                run(n=3, up=np.array([wrong, 0, 0], "i4"), out=out)


@kernel
def of_an_object(x: i64[:]):
    x.sort()


@kernel
def of_two_types(x: i64[:], y: f64[:]):
    x[0] = y[0]


@kernel
def of_two_signs(x: i64[:]):
    x[0] += u64(x[0])


@kernel
def of_itself(x: i64[:]):
    of_itself(x)


@kernel
def of_a_name(x: i64[:]):
    x[0] = somewhere


@kernel
def of_a_type(x):
    x[0] = 1


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        (of_an_object, "call this"), (of_two_types, "double where there is i64"),
        (of_two_signs, "i64 and u64 do not go together"),
        (of_itself, "call itself"), (one_number_for_lanes, "of lanes that differ"),
        (of_a_name, "somewhere has no value"), (of_a_type, "a parameter is"),
        (left_early, "no loop to leave"),
    ],
)  # fmt: skip
def test_errors_name_the_line(wrong, words):
    with pytest.raises(KernelError, match=words) as caught:
        compiled(wrong)(
            **{a.arg: np.zeros(1) for a in wrong.tree.args.args} | {"x": np.zeros(1, "i8")}
        )
    first = wrong.function.__code__.co_firstlineno
    assert caught.value.filename == __file__
    assert first < caught.value.lineno <= first + 5


def test_better_is_of_a_semiring():
    @kernel
    def of_a_semiring(x: f64[:]):
        if better(x[0], x[1]):
            x[0] = 1.0

    with pytest.raises(KernelError, match="without one"):
        compiled(of_a_semiring)(x=np.zeros(2))


STEP = 3


@kernel
def stepped(x):
    return x + STEP


@kernel
def steps(n: i64, x: i64[:]):
    for i in range(n):
        x[i] = stepped(x[i])


def test_code_is_kept_until_what_it_depends_on_changes(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIRING_MM_CACHE", str(tmp_path))
    written, write = [], codegen.function_of
    monkeypatch.setattr(codegen, "function_of", lambda *of: written.append(of) or write(*of))

    def run():
        x = np.arange(4)
        compiled(kernel(steps.function))(n=4, x=x)
        return x.tolist(), len(written)

    assert [run(), run()] == [([3, 4, 5, 6], 1)] * 2
    monkeypatch.setitem(globals(), "STEP", 5)
    assert run() == ([5, 6, 7, 8], 2)
    monkeypatch.setitem(globals(), "stepped", halved)
    assert run() == ([0, 0, 1, 1], 3)


@kernel
def halved(x):
    return x // 2


@kernel
def closer(n: i64, x: S[n], y: S[n]):
    for i in range(n):
        y[i] = encode(add(decode(x[i]), decode(y[i])))


def test_stored_entries_are_converted():
    plan = make_plan(semirings["min_plus"], np.dtype("i4"), KNOWN, KNOWN, 1)
    far = semirings["min_plus"].identities(np.dtype("i4"))[0]
    x, y = np.array([3, far, far], "i4"), np.array([far, far, 7], "i4")
    compiled(closer, plan)(n=3, x=x, y=y)
    assert y.tolist() == [3, far, 7]
    plan = make_plan(semirings["lor_land"], np.dtype(bool), KNOWN, KNOWN, 1)
    x, y = np.array([True, False]), np.array([False, False])
    compiled(closer, bytewise(plan))(n=2, x=x, y=y)
    assert y.tolist() == [True, False]


def test_code_is_kept_by_the_name_of_its_kernel():
    """Which is a symbol of the object file."""
    other = Kernel(types.FunctionType(halves.function.__code__, globals(), "other_name"))
    other.function.__annotations__ = halves.function.__annotations__
    assert other.digest != halves.digest
    assert Kernel(halves.function).digest == halves.digest


@kernel
def scattered(n: i64, m: i64, near: I[n] < m, alpha: T, x: T[m], out: T[n]):
    for k in range(n):
        found = x[near[k]]
        out[k] = found if alpha is None else scale(alpha, found)


@pytest.mark.parametrize("alpha", [None, 2.5])
@pytest.mark.parametrize("index", ["i4", "i8"])
def test_numbers_that_are_none_and_indices_of_two_types(index, alpha):
    plan = make_plan(semirings["min_plus"], np.dtype("f4"), KNOWN, KNOWN, 1)
    near, x = np.array([2, 0, 1], index), np.array([3, 5, 9], "f4")
    both(scattered, MIN_PLUS, plan, n=3, m=3, near=near, alpha=alpha, x=x, out=x * 0)
    with pytest.raises(LayoutError, match=r"near is int16 of .* I = int32 or int64"):
        compiled(scattered, plan)(n=3, m=3, near=near.astype("i2"), alpha=alpha, x=x, out=x)
    with pytest.raises(LayoutError, match=r"near has entries from 0 to 2; .* < m .*, m = 2"):
        compiled(scattered, plan)(n=3, m=2, near=near, alpha=alpha, x=x, out=x)
