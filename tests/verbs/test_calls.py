"""Small products are prepared once, and nothing else about them changes."""

import decimal
import functools
import gc
import os
import re
import sys
import threading

import numpy as np
import pytest

import semiring_mm as sm
from semiring_mm.cpu import calls, engine
from semiring_mm.cpu.facts import CLASSES, class_of, class_scan, facts, facts_of_class

INF, NAN = np.inf, np.nan
RNG = np.random.default_rng(5)
F4, F8 = (RNG.standard_normal((3, 6, 6)).astype(x) for x in ("f4", "f8"))
I4, B1 = RNG.integers(0, 9, (3, 6, 6), np.int32), RNG.random((3, 6, 6)) < 0.5
A, B, C, D = F4[0], F4[1], F4[2], F8[0]
WIDE = RNG.standard_normal((4, 7)).astype("f4")
STEPPED, BACK = np.repeat(np.repeat(A, 2, 0), 3, 1)[::2, ::3], F4[1, ::-1, ::-1]
UNALIGNED = np.ndarray((6, 6), "f4", bytearray(145), 1)
UNALIGNED[...] = A

#: Small calls of every kind.
SMALL = {
    "min_plus": lambda **k: sm.matmul(A, B, "min_plus", **k),
    "keyword": lambda **k: sm.matmul(a=A, b=B, semiring="min_plus", **k),
    "another word for it": lambda **k: sm.matmul(A, B, "Tropical", **k),
    "the semiring itself": lambda **k: sm.matmul(A, B, sm.semirings.min_plus, **k),
    "plus_times": lambda **k: sm.matmul(A, B, **k),
    "oblong": lambda **k: sm.matmul(WIDE, WIDE.T, "min_plus", **k),
    "Fortran's order": lambda **k: sm.matmul(np.asfortranarray(A), B.T, "min_plus", **k),
    "strides": lambda **k: sm.matmul(STEPPED, BACK, "min_plus", **k),
    "unaligned": lambda **k: sm.matmul(UNALIGNED, B, "min_plus", **k),
    "integers": lambda **k: sm.matmul(I4[0], I4[1], "min_plus", **k),
    "truth values": lambda **k: sm.matmul(B1[0], B1[1], "lor_land", **k),
    "matrix and vector": lambda **k: sm.matmul(A, B[0], "min_plus", **k),
    "vector and matrix": lambda **k: sm.matmul(A[0], B, "min_plus", **k),
    "two vectors": lambda **k: sm.matmul(A[0], B[:, 1], "min_plus", **k),
    "one row": lambda **k: sm.matmul(A[:1], B, "min_plus", **k),
    "one column": lambda **k: sm.matmul(A, B[:, :1], "min_plus", **k),
    "stacks": lambda **k: sm.matmul(F4, F4.copy(), "min_plus", **k),
    "stack and matrix": lambda **k: sm.matmul(F4, B, "min_plus", **k),
    "matrix and stack": lambda **k: sm.matmul(A, F4, "min_plus", **k),
    "gemm": lambda **k: sm.gemm(None, A, B, semiring="min_plus", **k),
    "sgemm": lambda **k: sm.sgemm(1.0, A, B, **k),
    "sgemm 2": lambda **k: sm.sgemm(2, A, B, **k),
    "sgemm transposed": lambda **k: sm.sgemm(-0.5, WIDE, WIDE, trans_a=True, **k),
    "sgemm and C": lambda **k: sm.sgemm(2.0, A, B, 0.5, C.T, trans_b=True, **k),
    "integers and C": lambda **k: sm.gemm(2, I4[0], I4[1], 7, I4[2], semiring="min_plus", **k),
    "dgemm": lambda **k: sm.dgemm(1.0, D, D.T, **k),
    "sgemv": lambda **k: sm.sgemv(1.0, A, B[0], **k),
    "sgemv transposed": lambda **k: sm.sgemv(2.0, WIDE, A[0, :4], trans=True, **k),
    "sgemv and y": lambda **k: sm.sgemv(2.0, A, B[0], 3.0, C[1], **k),
    "gemv": lambda **k: sm.gemv(1.5, A, B[0], semiring="min_plus", **k),
    "a row and C": lambda **k: sm.sgemm(2.0, A[:1], B, 3.0, C[:1], **k),
}  # fmt: skip


#: Those that are prepared: of a matrix, and another or a vector.
PREPARED = (
    "min_plus", "keyword", "another word for it", "the semiring itself", "plus_times", "oblong",
    "Fortran's order", "strides", "unaligned", "integers", "truth values", "gemm", "sgemm", "dgemm",
    "matrix and vector", "sgemv", "sgemm 2", "sgemm transposed", "sgemm and C", "integers and C",
    "sgemv transposed", "sgemv and y", "gemv",
)  # fmt: skip


@pytest.fixture
def general(monkeypatch):
    """A list that grows with each call that takes the general way."""
    made = []

    def counted(verb):
        @functools.wraps(verb)  # the engine's layouts are those of its parameters
        def call(*args, **options):
            made.append(args)
            return verb(*args, **options)

        return call

    for name in ("product", "gemv"):
        monkeypatch.setattr(engine, name, counted(getattr(engine, name)))
    return made


@pytest.fixture
def unprepared(monkeypatch):
    """Makes a call in which no product is prepared."""

    def made(call, *args):
        with monkeypatch.context() as patch:
            patch.setattr(calls, "prepared", lambda *_: None)
            return call(*args, device="cpu")  # which is not looked up

    return made


def assert_same(got, wanted):
    """Equal to the bit, the sign of a zero included (of NaN only that it is one)."""
    assert type(got) is type(wanted)
    assert (got.dtype, got.shape, got.strides) == (wanted.dtype, wanted.shape, wanted.strides)
    np.testing.assert_array_equal(got, wanted)
    if wanted.dtype.kind == "f":
        np.testing.assert_array_equal(np.signbit(got), np.signbit(wanted))


def settled(call):
    """The call, made before."""
    call()
    return call


@pytest.mark.parametrize("name", SMALL)
def test_a_repeated_call_changes_no_bit(name, general, unprepared):
    call = settled(SMALL[name])
    general.clear()
    got = call()
    assert name not in PREPARED or not general
    wanted = unprepared(call)
    assert general
    assert_same(got, wanted)


@pytest.mark.parametrize("name", [x for x in SMALL if x != "two vectors"])
def test_a_repeated_call_writes_to_out(name, general, unprepared):
    call = settled(SMALL[name])
    wanted = unprepared(call)
    spaced = np.zeros([2 * n for n in wanted.shape], wanted.dtype)
    outs = {
        "own": np.zeros_like(wanted),
        "Fortran's order": np.zeros_like(wanted, order="F"),
        "spaced, backwards": spaced[tuple(slice(None, None, -2) for _ in wanted.shape)],
    }
    blas = name in (
        "plus_times",
        "sgemm",
        "dgemm",
        "sgemv",
        "sgemv transposed",
    )  # which takes a result as it lies, or not
    for layout, out in outs.items():
        general.clear()
        assert call(out=out) is out
        np.testing.assert_allclose(out, wanted, rtol=1e-5 if blas else 0)
        assert name not in PREPARED or not general or (blas and layout == "spaced, backwards")
    assert np.count_nonzero(spaced) == np.count_nonzero(wanted)


def test_c_may_be_the_result():
    c, wanted = C.copy(), sm.sgemm(2.0, A, B, 0.5, C, device="cpu")
    settled(lambda: sm.sgemm(2.0, A, B, 0.5, C))
    assert sm.sgemm(2.0, A, B, 0.5, c, out=c) is c
    np.testing.assert_array_equal(c, wanted)


class Sub(np.ndarray):
    """A subclass of NumPy's array."""


def _same_memory(kind):
    """Operands and a result that shares memory with one of them."""
    memory = np.concatenate([A, B, C])
    a, b, c = memory[:6], memory[6:12], memory[12:]
    out = {"a": a, "b": b, "shifted": memory[3:9], "c turned": c.T, "c shifted": memory[11:17]}[
        kind
    ]
    return lambda **k: sm.sgemm(2.0, a, b, 0.5, c, out=out, **k).copy()


def _locked():
    out = np.zeros_like(A)
    out.flags.writeable = False
    return out


#: Calls that the general way has to see, before and after such calls were learnt.
GENERAL = {
    "lists": lambda **k: sm.matmul(A.tolist(), B.tolist(), "min_plus", **k),
    "subclass": lambda **k: sm.matmul(A.view(Sub), B, "min_plus", **k),
    "two dtypes": lambda **k: sm.matmul(A, D, "min_plus", **k),
    "byte order": lambda **k: sm.matmul(A.astype(">f4"), B.astype(">f4"), "min_plus", **k),
    "metadata": lambda **k: sm.matmul(*[A.astype(np.dtype("f4", metadata={"a": 1}))] * 2, **k),
    "no axes": lambda **k: sm.matmul(A[0, 0], B[0, 0], "min_plus", **k),
    "0-d": lambda **k: sm.matmul(np.array(1.0, "f4"), B, "min_plus", **k),
    "no k": lambda **k: sm.matmul(A[:, :0], B[:0], "min_plus", **k),
    "no rows": lambda **k: sm.matmul(A[:0], B, "min_plus", **k),
    "no stack": lambda **k: sm.matmul(F4[:0], B, "min_plus", **k),
    "four axes": lambda **k: sm.matmul(F4[None], B, "min_plus", **k),
    "stack backwards": lambda **k: sm.matmul(F4, F4[::-1], "min_plus", **k),
    "stack and vector": lambda **k: sm.matmul(F4, A[0], "min_plus", **k),
    "stacks that broadcast": lambda **k: sm.matmul(F4, F4[:1], "min_plus", **k),
    "stacks of two lengths": lambda **k: sm.matmul(F4, F4[:2], "min_plus", **k),
    "shapes": lambda **k: sm.matmul(A, WIDE, "min_plus", **k),
    "no semiring": lambda **k: sm.matmul(A, B, "min_pls", **k),
    "a list as a semiring": lambda **k: sm.matmul(A, B, ["min_plus"], **k),
    "complex": lambda **k: sm.matmul(A + 1j, B + 1j, "min_plus", **k),
    "argument": lambda **k: sm.matmul(A, B, "plus_times", return_arg=True, **k),
    "vectors in gemm": lambda **k: sm.sgemm(1.0, A[0], B, **k),
    "stack in gemv": lambda **k: sm.sgemv(1.0, F4, B[0], **k),
    "matrix in gemv": lambda **k: sm.sgemv(1.0, A, B, **k),
    "dtype of sgemm": lambda **k: sm.sgemm(1.0, D, D, **k),
    "semiring of sgemm": lambda **k: sm.sgemm(1.0, A, B, semiring="min_plus", **k),
    "precision": lambda **k: sm.sgemm(1.0, A, B, precision="tf", **k),
    "unknown word": lambda **k: sm.sgemv(1.0, A, B[0], trans_a=True, **k),
    "flag of NumPy": lambda **k: sm.sgemm(1.0, A, B, trans_a=np.True_, **k),
    "α is a Decimal": lambda **k: sm.sgemm(decimal.Decimal(1), A, B, **k),
    "α is a word": lambda **k: sm.sgemm("1", A, B, **k),
    "α of NumPy": lambda **k: sm.sgemm(np.float32(0.1), A, B, **k),
    "α is True": lambda **k: sm.sgemm(True, A, B, **k),
    "α is too large": lambda **k: sm.sgemm(10**400, A, B, **k),
    "α over a minimum": lambda **k: sm.gemm(2.0, A, B, semiring="min_plus", **k),
    "α of integers": lambda **k: sm.gemm(2, I4[0], I4[1], semiring="min_plus", **k),
    "β without C": lambda **k: sm.sgemm(1.0, A, B, 2.0, **k),
    "C without β": lambda **k: sm.sgemm(1.0, A, B, None, C, **k),
    "C of another shape": lambda **k: sm.sgemm(1.0, A, B, 2.0, C[:5], **k),
    "C of another dtype": lambda **k: sm.gemm(1.0, A, B, 2.0, D, **k),
    "out is read-only": lambda **k: sm.matmul(A, B, "min_plus", out=_locked(), **k),
    "out of another shape": lambda **k: sm.matmul(A, B, "min_plus", out=C[:5].copy(), **k),
    "out of another dtype": lambda **k: sm.matmul(A, B, "min_plus", out=D.copy(), **k),
    "out is spread": lambda **k: sm.matmul(
        A, B, "min_plus", out=np.ndarray((6, 6), "f4", bytearray(24), 0, (0, 4)), **k
    ),
    "out is a list": lambda **k: sm.matmul(A, B, "min_plus", out=[], **k),
    "out is a subclass": lambda **k: sm.matmul(A, B, "min_plus", out=A.copy().view(Sub), **k),
    **{f"out is {x}": lambda x=x, **k: _same_memory(x)(**k)
       for x in ("a", "b", "shifted", "c turned", "c shifted")},
}  # fmt: skip


@pytest.mark.parametrize("name", GENERAL)
def test_everything_else_is_as_in_the_general_way(name, unprepared):
    for known in ("min_plus", "sgemm and C", "sgemv", "stacks"):
        settled(SMALL[known])
    results = []
    call = GENERAL[name]
    for way in (call, call, functools.partial(unprepared, call)):
        try:
            results.append(way())
        except Exception as error:
            results.append(error)
    wanted = results.pop()
    for got in results:
        if isinstance(wanted, Exception):
            assert (type(got), str(got)) == (type(wanted), str(wanted))
        else:
            assert_same(got, wanted)


SPECIAL = [
    [], [INF], [-INF], [NAN], [INF, -INF], [0.0], [-0.0], [0.0, NAN], [INF] * 36, [0.0] * 36,
    [-1.0] * 36, [NAN] * 36,
]  # fmt: skip


@pytest.mark.parametrize("semiring", ["min_plus", "max_times", "max_min", "plus_times"])
def test_what_operands_hold_is_looked_at_each_time(semiring, unprepared):
    call = settled(lambda a=A, b=B, **k: sm.matmul(a, b, semiring, **k))
    operands = []
    for x in SPECIAL:
        a = A.copy()
        a.ravel()[: len(x)] = x
        operands.append(a)
    with np.errstate(all="ignore"):
        for a in operands:
            for b in operands:
                for _ in range(2):
                    assert_same(call(a, b.T), unprepared(call, a, b.T))


def test_alpha_is_used_as_it_is(unprepared):
    zeros = np.zeros_like(C)
    verbs = [
        lambda x, **k: sm.sgemm(x, A, B, **k),
        lambda x, **k: sm.sgemm(x, A, B, x, zeros, **k),
        lambda x, **k: sm.sgemv(x, A, B[0], **k),
    ]
    for call in verbs:
        settled(lambda call=call: (call(1.0), call(2.0)))
    for x in (0.0, -0.0, 1, 1.0, 3, -1, 0.1, INF, NAN, 1e300, 1 << 70):
        with np.errstate(all="ignore"):
            for call in verbs:
                assert_same(call(x), unprepared(call, x))


@pytest.mark.parametrize(
    ("semiring", "dtype", "entries"),
    [
        ("min_plus", "int32", [0, 7, -3, 2**20, 2**31 - 1, 2**31 - 2, -(2**31), 2**30]),
        ("plus_times", "int16", [1, 5, 100, -181, 2**15 - 1, -(2**15)]),
        ("max_plus", "int64", [0, 3, 2**40, 2**62, -(2**62), -(2**63)]),
        ("plus_times", "uint8", [1, 2, 15, 16, 255]),
        ("max_min", "int32", [1, -(2**31), 2**31 - 1]),
    ],
)
def test_integers_never_wrap(semiring, dtype, entries, unprepared):
    a = np.array([[1, 2], [3, 0]], dtype)
    call = settled(lambda a=a, b=a, **k: sm.matmul(a, b, semiring, **k))
    outcomes = []
    for x in entries:
        for y in entries:
            left, right = a.copy(), a.copy()
            left[0, 1], right[1, 0] = x, y
            for way in (call, call, functools.partial(unprepared, call)):
                try:
                    outcomes.append(way(left, right))
                except OverflowError as error:
                    outcomes.append(str(error))
            *got, wanted = outcomes[-3:]
            for result in got:
                np.testing.assert_array_equal(result, wanted)
    assert semiring == "max_min" or any(isinstance(x, str) for x in outcomes)


def test_integers_that_join_c_never_wrap(unprepared):
    a, call = np.array([[1, 2], [3, 0]], "i2"), functools.partial(sm.gemm, 3)
    settled(lambda: call(a, a, 2, a))
    seen = set()
    for x in (0, -7, 5000, 2**14 - 1, 2**14, -(2**14), -(2**14) - 1, 2**15 - 1, -(2**15)):
        for c in (np.array([[x, 0], [0, 1]], "i2"), np.array([[0, 1], [x, x]], "i2")):
            try:
                wanted = unprepared(call, a, a, 2, c)
            except OverflowError as error:
                with pytest.raises(OverflowError, match=re.escape(str(error))):
                    call(a, a, 2, c, out=c)
                seen.add("error")
            else:
                np.testing.assert_array_equal(call(a, a, 2, c), wanted)
                np.testing.assert_array_equal(call(a, a, 2, c, out=c), wanted)
                seen.add("result")
    assert seen == {"error", "result"}


@pytest.mark.parametrize("name", PREPARED)
def test_a_repeated_call_makes_few_calls_of_python(name):
    call, count = settled(settled(SMALL[name])), 0  # the second one may choose the code

    def see(frame, event, arg):
        nonlocal count
        count += event == "call"

    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
    assert count <= (35 if "gemv" in name or "vector" in name else 24)


def test_a_semiring_of_the_same_name_is_another_one(general):
    results = []
    for mul in ("a + b", "a * b", "a + b"):
        own = sm.Semiring("own", "min(a, b)", mul, INF, 0)
        results.append(settled(lambda own=own: sm.matmul(A, B, own))())
    general.clear()
    twin = sm.Semiring("own", "min(a, b)", "a * b", INF, 0)
    np.testing.assert_array_equal(sm.matmul(A, B, twin), results[1])
    assert not general
    np.testing.assert_array_equal(results[0], results[2])
    assert not np.array_equal(results[0], results[1])


@pytest.mark.parametrize("name", ["min_plus", "sgemm 2", "integers"])
def test_the_number_of_threads_changes_nothing(name):
    call = settled(SMALL[name])
    wanted = call()
    for n in (1, 3):
        sm.set_num_threads(n)
        assert_same(call(), wanted)


def test_threads_at_once():
    call, large = settled(SMALL["sgemm and C"]), RNG.standard_normal((60, 60))
    wanted, other = call(), sm.matmul(large, large, "min_plus")
    wrong = []

    def work():
        for _ in range(40):
            if not np.array_equal(call(), wanted):
                wrong.append("small")
            if not np.array_equal(sm.matmul(large, large, "min_plus"), other):
                wrong.append("large")

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system has no fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_child_goes_on():
    calls = settled(SMALL["sgemm"]), settled(SMALL["min_plus"])
    wanted = [call() for call in calls]
    child = os.fork()
    if child == 0:
        same = all(np.array_equal(f(), x) for f, x in zip(calls, wanted, strict=True))
        os._exit(0 if same else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_references_are_counted():
    calls = [settled(SMALL[x]) for x in ("min_plus", "two vectors", "sgemm and C", "truth values")]
    out = np.zeros_like(A)
    overflow = settled(lambda: sm.matmul(I4[0], I4[1], "plus_times"))
    watched = [A, B, C, out, A.dtype, np.dtype("f4"), None, True, False, 2.0, I4.dtype]
    gc.collect()
    before = [sys.getrefcount(x) for x in watched]
    for _ in range(300):
        for call in calls:
            call()
        sm.matmul(A, B, "min_plus", out=out)
        sm.matmul(A[:, :0], B[:0], "min_plus")
        overflow()
    after = [sys.getrefcount(x) for x in watched]
    assert all(abs(x - y) < 50 for x, y in zip(before, after, strict=True)), (before, after)


def test_what_is_kept_is_bounded(monkeypatch):
    monkeypatch.setattr(calls, "_calls", {})
    monkeypatch.setattr(calls, "KEPT", 3)
    for i in range(5):
        own = sm.Semiring(f"own{i}", "min(a, b)", "a + b", INF, 0)
        call = settled(lambda own=own: sm.matmul(A, B, own))
        np.testing.assert_array_equal(call(), sm.matmul(A, B, "min_plus", device="cpu"))
        assert len(calls._calls) <= 3
    for word in ("min-plus", "MIN_PLUS", "min plus", "MinPlus", "tropical", "shortest"):
        settled(lambda word=word: sm.matmul(A, B, word))
        assert len(calls._calls) <= 3


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "int32", "uint64"])
def test_compiled_code_and_python_class_alike(dtype):
    dtype, semiring = np.dtype(dtype), sm.semirings.min_plus
    if dtype.kind == "f":
        rows = [[0.0], [-0.0, 1], [-1, 1], [INF], [-INF], [NAN], [INF, -INF], [-2, NAN], [3, INF]]
    else:
        info = np.iinfo(dtype)
        rows = [[0], [1, 3], [info.max], [info.max, 5], [info.max - 1], [info.min], [info.min, 0]]
        rows += [[2**i - 1] for i in range(1, 7)] + [[2**i, 1] for i in range(6)]
        rows += [[-(2**i), 2] for i in range(6)] if dtype.kind == "i" else []
    seen = set()
    for row in rows:
        x = np.array([row, row[::-1]], dtype)
        number = class_of(facts(semiring, x), dtype)
        scan = class_scan(semiring, x)
        assert scan(x) == scan(x[::-1].copy()) == number < CLASSES
        for y in (x.T, np.repeat(x, 3, axis=1)[:, ::3], np.repeat(x, 2, axis=0)[::-2]):
            assert class_scan(semiring, y)(y) == number
        assert class_of(facts_of_class(number, dtype), dtype) == number
        seen.add(number)
    assert len(seen) > 6
