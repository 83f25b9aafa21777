"""Integers are exact or refused: never wrapped, and never mistaken for "no edge"."""

import numpy as np
import pytest
import reference
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import semiring_mm as sm

inf = np.inf
OPERATIONS = {
    "plus_times": (lambda x, y: x + y, lambda x, y: x * y),
    "min_plus": (min, lambda x, y: x + y),
    "max_plus": (max, lambda x, y: x + y),
    "min_times": (min, lambda x, y: x * y),
    "max_times": (max, lambda x, y: x * y),
    "min_max": (min, max),
    "max_min": (max, min),
    "plus_min": (lambda x, y: x + y, min),
    "any_pair": (max, lambda x, y: int(x != 0 and y != 0)),
}
DTYPES = ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"]
PAIRS = [(n, d) for n in OPERATIONS for d in DTYPES if np.dtype(d) in reference.ALGEBRAS[n].dtypes]
PAIRS = [(n, d) for n, d in PAIRS if d in ("i1", "i8", "u8") or n in ("plus_times", "min_plus")]


def missing_of(name, dtype):
    """The integer that is no number under this semiring: its infinite zero."""
    zero = reference.ALGEBRAS[name].zero
    if name in ("min_max", "max_min") or np.isfinite(zero):
        return None
    return int(reference.stored(name, zero, np.dtype(dtype)))


def check(name, dtype, a, b, product=None):
    """Exact, or an OverflowError; which of the two must be right where the answer is certain."""
    add, mul = OPERATIONS[name]
    missing, info = missing_of(name, dtype), np.iinfo(dtype)
    no_edge = reference.ALGEBRAS[name].zero
    rows = reference.exact_product(add, mul, no_edge, missing, a, b)
    flat = [x for row in rows for x in row if missing is None or x != no_edge]
    fits = all(info.min <= x <= info.max and x != missing for x in flat)
    try:
        result = (product or (lambda x, y: sm.matmul(x, y, name)))(a, b)
    except OverflowError:
        # what 64 bits hold must not be refused: only entries near the ends of 64 bits may be, and
        # in sums of products those near the ends of 32
        assert not fits or (info.bits >= 32 and _near_the_ends(name, a, b)), rows
        return
    assert fits, (rows, result)
    expected = [[missing if missing is not None and x == no_edge else x for x in r] for r in rows]
    assert result.tolist() == expected


def _near_the_ends(name, a, b):
    """Whether the operands' ranges alone leave open that 64 bits do not hold a result."""
    missing = missing_of(name, a.dtype)
    largest = [max([abs(x) for x in m.ravel().tolist() if x != missing], default=0) for m in (a, b)]
    product = largest[0] * largest[1] if name.endswith("times") else max(largest)
    return max(largest) >= 2**60 or 2 * a.shape[1] * product >= 2**63


def numbers(name, dtype):
    """Entries at the ends of the range, around zero, and missing ones."""
    info, missing = np.iinfo(dtype), missing_of(name, dtype)
    special = {info.min, info.min + 1, info.max - 1, info.max, 0, 1, info.max // 2, info.min // 2}
    special |= {info.max // 2 + 1, int(info.max**0.5), int(info.max**0.5) + 1}
    special |= {-x for x in special if info.min <= -x <= info.max} | (
        {missing} if missing is not None else set()
    )
    near = [st.sampled_from(sorted(special)), st.integers(max(info.min, -5), 5)]
    return st.one_of(*near, st.integers(info.min, info.max))


@pytest.mark.parametrize(("name", "dtype"), PAIRS)
def test_exact_or_refused_at_the_ends_of_the_range(name, dtype):
    @settings(max_examples=25, deadline=None, database=None)
    @given(
        st.integers(1, 4).flatmap(
            lambda k: st.tuples(
                *[st.lists(numbers(name, dtype), min_size=2 * k, max_size=2 * k)] * 2, st.just(k)
            )
        )
    )
    def run(drawn):
        left, right, k = drawn
        a, b = np.array(left, dtype).reshape(2, k), np.array(right, dtype).reshape(k, 2)
        check(name, dtype, a, b)
        # the same through the matrix-vector kernel
        check(name, dtype, a, b[:, :1], lambda x, y: sm.matmul(x, y[:, 0], name)[:, None])

    run()


@settings(max_examples=60, deadline=None, database=None)
@given(
    name=st.sampled_from(["min_plus", "plus_times", "max_plus", "max_times"]),
    dtype=st.sampled_from(["i1", "i4"]),
    data=st.data(),
)
def test_scalars_and_c_at_the_ends_of_the_range(name, dtype, data):
    add, mul = OPERATIONS[name]
    missing, info = missing_of(name, dtype), np.iinfo(dtype)
    draw = data.draw
    entries = numbers(name, dtype)
    a, b, c = (np.array(draw(st.lists(entries, min_size=4, max_size=4)), dtype).reshape(2, 2)
               for _ in range(3))  # fmt: skip
    alpha, beta = draw(entries), draw(entries)
    zero = reference.ALGEBRAS[name].zero

    def times(x, y):
        return (
            zero
            if missing is not None and (x in (missing, zero) or y in (missing, zero))
            else mul(x, y)
        )

    rows = [
        [
            add(
                add(*(times(times(alpha, int(a[i, k])), int(b[k, j])) for k in (0, 1))),
                times(beta, int(c[i, j])),
            )
            for j in (0, 1)
        ]
        for i in (0, 1)
    ]
    flat = [x for row in rows for x in row if missing is None or x != zero]
    fits = all(info.min <= x <= info.max and x != missing for x in flat)
    try:
        result = sm.gemm(alpha, a, b, beta, c, semiring=name)
        column = sm.gemv(alpha, a, b[:, 0], beta, c[:, 0], semiring=name)
    except OverflowError:
        if fits:  # only where 64 bits do not hold α ⊗ A ⊗ B
            assert dtype == "i4"
            assert "times" in name
        return
    column_fits = all(info.min <= r[0] <= info.max and r[0] != missing
                      for r in rows if missing is None or r[0] != zero)  # fmt: skip
    assert fits, (rows, result)
    assert column_fits
    expected = [[missing if missing is not None and x == zero else x for x in row] for row in rows]
    assert result.tolist() == expected
    assert column.tolist() == [row[0] for row in expected]


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8"])
@pytest.mark.parametrize(("name", "sign"), [("min_plus", 1), ("max_plus", -1)])
def test_no_edge_stays_no_edge(name, sign, dtype):
    """Whatever is added to it: the largest weights of the other sign too."""
    info = np.iinfo(dtype)
    far = info.max if sign > 0 else info.min
    most = -sign * (2**60 if dtype == "i8" else info.max)
    a = np.full((30, 40), far, dtype)
    b = np.full((40, 50), most, dtype)
    assert_array_equal(sm.matmul(a, b, name), np.full((30, 50), far))
    assert_array_equal(sm.matmul(a, b[:, 0], name), np.full(30, far))
    a[7, 3] = 0
    expected = np.full((30, 50), far, dtype)
    expected[7] = most
    assert_array_equal(sm.matmul(a, b, name), expected)
    assert_array_equal(sm.matmul(a, np.full_like(b, far), name), np.full((30, 50), far))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("min_plus", "i1"), ("max_plus", "i1"), ("min_plus", "u1"), ("max_plus", "i2"),
     ("min_plus", "i8")],
)  # fmt: skip
def test_sums_at_the_ends_of_the_type_computed_in(name, dtype):
    """Sums of the largest entries are no infinity, and infinity plus the least of them is one.

    A type of b bits takes entries to 2^(b - 4); beyond, the next one does.
    """
    bits, missing = np.iinfo(dtype).bits, missing_of(name, dtype)
    for most in (2 ** (bits - 4), 2 ** (bits - 3)):
        values = {most, most - 1, 0, missing} | ({-most, 1 - most} if dtype[0] == "i" else set())
        a = np.array(sorted(values), dtype)[:, None]
        check(name, dtype, a, a.T)
        check(name, dtype, a, a[:1], lambda x, y: sm.matmul(x, y[0], name)[:, None])


@pytest.mark.parametrize(
    ("name", "dtype", "left", "right"),
    [
        ("min_plus", "i1", 100, 27), ("min_plus", "i4", 2**31 - 2, 1), ("min_plus", "u1", 250, 5),
        ("max_plus", "i2", -32768 + 1, -1), ("min_times", "u1", 51, 5),
        ("min_plus", "u4", 2**32 - 2, 1), ("min_times", "i2", 4681, 7),
        ("min_plus", "i8", 2**62, 2**62 - 1),
    ],
)  # fmt: skip
def test_a_result_that_would_read_as_no_edge_is_refused(name, dtype, left, right):
    words = "does not fit|more than 64 bits"
    for shape in ((1, 1), (30, 40)):
        a, b = np.full((shape[0], 3), left, dtype), np.full((3, shape[1]), right, dtype)
        with pytest.raises(OverflowError, match=words):
            sm.matmul(a, b, name)
    with pytest.raises(OverflowError, match=words):
        sm.matmul(a, b[:, 0], name)
    step = 1 if name != "max_plus" else -1
    if name.endswith("plus") and dtype != "i8":
        assert sm.matmul(a, b - b.dtype.type(step), name)[0, 0] == left + right - step


def test_the_message_says_what_to_do():
    a = np.full((2, 2), 100, "i1")
    with pytest.raises(
        OverflowError, match=r"a result of min_plus does not fit int8: use a wider dtyp"
    ):
        sm.matmul(a, a, "min_plus")
    with pytest.raises(OverflowError, match=r"A.astype\(np.int64\)"):
        sm.matmul(a, a)
    b = np.full((2, 2), 2**62)
    with pytest.raises(
        OverflowError, match=r"plus_times on int64: with entries from .* use float64"
    ):
        sm.matmul(b, b)
    # and the next product is right again, in every thread's buffer
    assert_array_equal(sm.matmul(a // 2, a // 2, "min_plus"), np.full((2, 2), 100))


@pytest.mark.parametrize("where", [(0, 0), (33, 47), (99, 119), (50, 3)])
def test_one_entry_that_does_not_fit_is_seen_wherever_it_is(where):
    a, b = np.zeros((100, 60), "i2"), np.zeros((60, 120), "i2")
    a[where[0], 17] = 30000
    b[17, where[1]] = 3
    with pytest.raises(OverflowError, match="does not fit int16"):
        sm.matmul(a, b)
    b[17, where[1]] = 1
    expected = np.zeros((100, 120))
    expected[where] = 30000
    assert_array_equal(sm.matmul(a, b), expected)


def test_partial_results_may_leave_the_range():
    """Only the sum counts: over a K of several slabs, what fits at the end is exact."""
    k = 5000
    a = np.ones((30, k), "i1")
    b = np.ones((k, 20), "i1")
    b[2500:] = -1
    assert_array_equal(sm.matmul(a, b), np.zeros((30, 20)))
    far = np.full((30, k), 100, "i1")
    far[:, 4000:] = 1
    near = np.full((k, 20), 100, "i1")
    near[4000:] = 1
    assert_array_equal(sm.matmul(far, near, "min_plus"), np.full((30, 20), 2))
    result, arg = sm.matmul(far, near, "min_plus", return_arg=True)
    assert_array_equal(result, np.full((30, 20), 2))
    assert_array_equal(arg, np.full((30, 20), 4000))


def test_sums_grow_with_k():
    """The type computed in follows k: 300 · 127 · 127 leaves int16, and int8 is refused."""
    for k in (1, 2, 8, 300, 3000):
        a = np.full((3, k), 127, "i1")
        for wide in ("i4", "i8", "u4"):
            b = a.astype(wide)
            assert_array_equal(sm.matmul(b, b.T), np.full((3, 3), k * 127**2))
        with pytest.raises(OverflowError, match="int8"):
            sm.matmul(a, a.T)


@pytest.mark.parametrize("dtype", ["i1", "i4", "i8"])
def test_comparisons_of_the_whole_range_are_counted(dtype):
    """The sum counts pairs: it is small, whatever the entries are."""
    differ = sm.Semiring("differ", "a + b", "a != b", 0, 1)
    info = np.iinfo(dtype)
    a = np.array([[info.min, 0, info.max], [info.max, -1, info.max]], dtype)
    b = np.array([[info.min, info.max], [0, 0], [info.max, info.min]], dtype)
    expected = (a[:, :, np.newaxis] != b).sum(axis=1)
    assert_array_equal(sm.matmul(a, b, differ), expected)
    ones = np.ones((2, 2), dtype)  # which differ from β = 0
    assert_array_equal(sm.gemm(None, a, b, 0, ones, semiring=differ), expected + 1)


# --- every operation of the language, on every pair of extreme operands --------------------------

EXACT = {
    "a // b": lambda a, b: a // b if b else 0,
    "a % b": lambda a, b: a % b if b else 0,
    "abs(a) + b * -a": lambda a, b: abs(a) + b * -a,
    "a | b": lambda a, b: a | b,
    "~~a ^ b": lambda a, b: a ^ b,
    "min(a, b + 1) if a < b else max(a, b)": lambda a, b: min(a, b + 1) if a < b else max(a, b),
    "(a >= b) + 2 * (a == b)": lambda a, b: (a >= b) + 2 * (a == b),
}


def extremes(dtype):
    info = np.iinfo(dtype)
    found = [info.min, info.min + 1, 0, 1, info.max - 1, info.max]
    return np.array(found + [-1, -2] * (info.min < 0), dtype)


@pytest.mark.parametrize("dtype", ["i1", "i8", "u8"])
@pytest.mark.parametrize("mul", EXACT)
def test_every_operation_is_exact_or_refused_on_extreme_operands(mul, dtype):
    """A division that the processor traps on would end the process; nothing wraps."""
    x, info, f = extremes(dtype), np.iinfo(dtype), EXACT[mul]
    semiring = sm.Semiring("extreme", "max(a, b)", mul, 0, 0)
    operands = [(x, x)]
    if mul in ("a // b", "a % b") and dtype == "i8":  # narrower ones divide in a wider type
        operands += [(x[:1], x[-2:-1]), (x[:1], x[2:3]), (x[1:2], x[-2:-1])]
    for left, right in operands:
        exact = [[f(a, b) for b in right.tolist()] for a in left.tolist()]
        fits = all(info.min <= e <= info.max for row in exact for e in row)

        def by_product(a, b):
            return sm.matmul(a[:, None], b[None], semiring)

        def by_vectors(a, b):
            a = np.repeat(a[:, None], 5, 1)
            return np.stack([sm.gemv(None, a, np.full(5, y), semiring=semiring) for y in b], 1)

        for product in (by_product, by_vectors):
            try:
                result = product(left, right)
            except OverflowError:
                assert not fits or dtype != "i1"
                continue
            assert fits
            assert result.tolist() == exact


@pytest.mark.parametrize("dtype", ["i1", "i8"])
@pytest.mark.parametrize("mul", ["a // b", "a % b"])
@pytest.mark.parametrize(("add", "zero"), [("min(a, b)", inf), ("max(a, b)", -inf)])
def test_no_edge_may_meet_any_divisor(add, zero, mul, dtype):
    """⊗ is computed before "no edge" annihilates; -inf is the least integer."""
    semiring = sm.Semiring("divided", add, mul, zero, 1)
    missing = semiring.identities(dtype)[0]
    row = np.array([-1, 0, 1, 7, missing], dtype)
    left, right, none = np.full((1, 2), missing), np.stack([row, row]), np.full((1, 5), missing)
    assert_array_equal(sm.matmul(left, right, semiring), none)
    assert_array_equal(sm.matmul(right.T, left.T, semiring), none.T)
    assert_array_equal(sm.gemv(None, right.T, left[0], semiring=semiring), none[0])
    assert_array_equal(sm.gemm(-1, left, right, -1, none, semiring=semiring), none)


def test_sparse_entries_may_be_divided_by_anything():
    scipy_sparse = pytest.importorskip("scipy.sparse")
    semiring = sm.Semiring("shares", "a + b", "a // b if b else 0", 0, 1)
    dense, b = np.diag(extremes("i2")), np.array([[-3], [0], [7], [-3], [1], [2], [5], [-2]], "i2")
    for form in (scipy_sparse.csr_array, scipy_sparse.dia_array):
        for right in (b, b.repeat(5, 1)):
            result = sm.matmul(form(dense), right, semiring)
            assert_array_equal(result, sm.matmul(dense, right, semiring))
    least = np.full((1, 1), -(2**63))
    for form in (scipy_sparse.csr_array, scipy_sparse.dia_array):
        with pytest.raises(OverflowError):
            sm.matmul(form(least), np.full((1, 1), -1), semiring)


@pytest.mark.parametrize("dtype", ["f2", "f8", "?"])
def test_every_operation_ends_on_extreme_floats_and_truth_values(dtype):
    info = np.finfo("f4" if dtype == "?" else dtype)
    x = np.array([0, -0.0, info.tiny, -info.max, info.max, inf, -inf, np.nan], dtype)
    texts = [
        *EXACT, "a / b", "exp(a) + b", "log(a) + b", "log1p(a) + b", "expm1(a) + b", "sqrt(a) + b",
        "logaddexp(a, b)",
    ]  # fmt: skip
    for text in texts:
        semiring = sm.Semiring("extreme", "max(a, b)", text, 0, 1)
        try:
            result = sm.matmul(x[:, None], x[None], semiring)
        except TypeError:
            assert dtype == "?" or "&" in text or "|" in text or "^" in text
            continue
        assert result.shape == (8, 8)
        assert result.dtype == x.dtype
