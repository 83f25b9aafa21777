"""Einstein sums against nested loops over all values of all indices."""

import functools
import importlib.util
import itertools
import math
import operator
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_allclose, assert_array_equal
from processes import run

import semiring_mm as sm
from semiring_mm import summation

inf = math.inf
HAS_PATHS = importlib.util.find_spec("opt_einsum") is not None
#: ⊕, ⊗, the empty sum, dtype, and entries of the domain on which the laws hold.
ALGEBRAS = {
    "plus_times": (operator.add, operator.mul, 0, "f8", range(-3, 4)),
    "plus_times, integers": (operator.add, operator.mul, 0, "i4", range(-3, 4)),
    "min_plus": (min, operator.add, inf, "f8", [-2, 0, 1, 3, inf]),
    "min_plus, integers": (min, operator.add, 2**31 - 1, "i4", [-2, 0, 1, 3]),
    "max_plus": (max, operator.add, -inf, "f4", [-2, 0, 1, 3]),
    "max_times": (max, operator.mul, 0, "f8", [0, 0.5, 1, 2]),
    "max_min": (max, min, -inf, "f8", range(-3, 4)),
    "min_max, integers": (min, max, 127, "i1", range(-3, 4)),
    "lor_land": (operator.or_, operator.and_, False, "?", [False, True]),
    "xor_land": (operator.xor, operator.and_, False, "?", [False, True]),
    "any_pair, integers": (max, lambda a, b: int(a != 0 and b != 0), 0, "u1", [0, 1]),
}  # fmt: skip


def by_loops(algebra, subscripts, operands):
    """⊕ over the values of all indices of ⊗ over the operands, from left to right."""
    add, mul, empty, dtype, _ = algebra
    inputs, arrow, output = subscripts.partition("->")
    terms = inputs.split(",")
    letters = sorted(set("".join(terms)))
    if not arrow:
        output = "".join(c for c in letters if "".join(terms).count(c) == 1)
    sizes = dict.fromkeys(letters, 1)
    for term, x in zip(terms, operands, strict=True):
        for c, n in zip(term, x.shape, strict=True):
            sizes[c] = n if sizes[c] == 1 else sizes[c]
    result = {}
    for values in itertools.product(*(range(sizes[c]) for c in letters)):
        at = dict(zip(letters, values, strict=True))
        factors = (
            x[tuple(at[c] if n > 1 else 0 for c, n in zip(term, x.shape, strict=True))].item()
            for term, x in zip(terms, operands, strict=True)
        )
        product = functools.reduce(mul, factors)
        place = tuple(at[c] for c in output)
        result[place] = add(result[place], product) if place in result else product
    c = np.full([sizes[c] for c in output], empty, dtype)
    for place, value in result.items():
        c[place] = value
    return c


@st.composite
def sums(draw, most=4):
    """(algebra, subscripts, operands) of some sum."""
    algebra = draw(st.sampled_from(list(ALGEBRAS)))
    dtype, entries = ALGEBRAS[algebra][3:]
    sizes = {c: draw(st.integers(0, 3) if c == "a" else st.integers(1, 3)) for c in "abcd"}
    terms = draw(st.lists(st.text("abcd", max_size=4 - most // 3), min_size=1, max_size=most))
    operands = []
    for term in terms:
        short = draw(st.sets(st.sampled_from("abcd"))) if draw(st.booleans()) else set()
        shape = [1 if c in short and term.count(c) == 1 else sizes[c] for c in term]
        draws = st.lists(
            st.sampled_from(list(entries)), min_size=(n := math.prod(shape)), max_size=n
        )
        operands.append(np.array(draw(draws), dtype).reshape(shape))
    subscripts = ",".join(terms)
    if draw(st.booleans()):
        letters = sorted(set(subscripts) - {","})
        chosen = draw(st.permutations(letters))[: draw(st.integers(0, len(letters)))]
        subscripts += "->" + "".join(chosen)
    return algebra, subscripts, operands


@settings(max_examples=250, deadline=None)
@given(sums(), st.sampled_from([True, False, "greedy"] if HAS_PATHS else [False]))
def test_random_sums(case, optimize):
    algebra, subscripts, operands = case
    expected = by_loops(ALGEBRAS[algebra], subscripts, operands)
    name = algebra.partition(",")[0]
    got = sm.einsum(subscripts, *operands, semiring=name, optimize=optimize)
    assert_array_equal(got, expected)
    assert np.asarray(got).dtype == expected.dtype


@settings(max_examples=60, deadline=None)
@given(sums(most=2))
def test_sums_of_probabilities(case):
    """log_plus is plus_times on logarithms."""
    _, subscripts, operands = case
    operands = [np.abs(np.nan_to_num(x.astype(float), posinf=2)) % 4 for x in operands]
    with np.errstate(divide="ignore"):
        got = sm.einsum(subscripts, *map(np.log, operands), semiring="log_plus")
    assert_allclose(
        np.exp(got), by_loops(ALGEBRAS["plus_times"], subscripts, operands), rtol=1e-12, atol=1e-300
    )


SHAPES = [
    ("ij,jk->ik", (5, 4), (4, 6)), ("ij,kj->ki", (5, 4), (6, 4)), ("ji,jk", (4, 5), (4, 6)),
    ("bij,bjk->bik", (3, 5, 4), (3, 4, 2)), ("...ij,...jk->...ik", (2, 3, 5, 4), (3, 4, 2)),
    ("...ij,jk->...ik", (2, 3, 5, 4), (4, 2)), ("i...,i...", (4, 2, 3), (4, 1, 3)),
    ("ijab,abkl->ijkl", (2, 3, 4, 5), (4, 5, 3, 2)),
    ("ijab,bakl->ijkl", (2, 3, 4, 5), (5, 4, 3, 2)), ("iabc,cabj->ji", (2, 3, 4, 5), (5, 3, 4, 2)),
    ("ij,jk,kl,lm->im", (2, 3), (3, 4), (4, 5), (5, 2)),
    ("ij,jk,kl,lm->mi", (2, 3), (3, 4), (4, 5), (5, 2)), ("ii", (4, 4)), ("iij->ji", (3, 3, 4)),
    ("iiijj->ij", (2, 2, 2, 3, 3)), ("ij->", (4, 5)), ("...j->...", (2, 3, 4)), ("ij->ji", (2, 3)),
    ("i,i,i->", (5,), (5,), (5,)), ("i,j,k->kji", (2,), (3,), (4,)), (",", (), ()), ("", ()),
    ("i,->i", (3,), ()), ("bi,bj->bij", (3, 4), (3, 5)), ("ij,j->ij", (3, 4), (4,)),
    ("bhqd,bhkd->bhqk", (2, 3, 4, 5), (2, 3, 6, 5)), ("ab,ac,ad->bcd", (7, 2), (7, 3), (7, 4)),
    ("ij,jk->ik", (3, 0), (0, 2)), ("ij,jk->ik", (0, 3), (3, 2)),
    (" i j , j k -> i k ", (2, 3), (3, 2)),
]  # fmt: skip


@pytest.mark.parametrize(("subscripts", "shapes"), [(x[0], x[1:]) for x in SHAPES])
def test_as_numpys_einsum(subscripts, shapes):
    if len(shapes) > 2:
        pytest.importorskip("opt_einsum")
    rng = np.random.default_rng(0)
    operands = [rng.integers(-4, 5, shape).astype(float) for shape in shapes]
    expected = np.einsum(subscripts, *operands)
    got = sm.einsum(subscripts, *operands)
    assert_array_equal(got, expected)
    assert type(got) is type(expected) or got.ndim == 0
    out = np.full(expected.shape, np.nan)
    assert sm.einsum(subscripts, *operands, out=out) is out
    assert_array_equal(out, expected)
    turned = [x.T.copy().T for x in operands]
    assert_array_equal(sm.einsum(subscripts, *turned), expected)


def test_axes_as_numbers():
    rng = np.random.default_rng(1)
    a, b = rng.integers(0, 9, (2, 3, 4)), rng.integers(0, 9, (4, 3))
    for arguments in (
        (a, [0, 1, 2], b, [2, 3], [3, 0, 1]), (a, [..., 5], b, [5, 1]), (a, (0, 1, 2), (2, 0)),
        (a, [0, 1, 2]),
    ):  # fmt: skip
        assert_array_equal(sm.einsum(*arguments), np.einsum(*arguments))


class One:
    def __index__(self):
        return 1


X, Y = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
#: Arguments that NumPy takes, or refuses with an error of this type, and our words for it.
LABELS = [
    ((X, [0, 1], Y, [1, 2], [0, 2]), None, ""),
    ((X, np.array([0, 1]), Y, np.array([1, 2]), np.array([0, 2])), None, ""),
    ((X, np.array([0, 1], np.uint8), Y, (1, 2)), None, ""),
    ((X, np.array([..., 1], object), [1, ...]), None, ""),
    ((X, range(2), range(1, -1, -1)), None, ""),
    ((X, [np.int8(3), np.uint64(1)]), None, ""), ((X, [27, 3]), None, ""),
    ((X, [One(), 0]), None, ""), ((X, [np.array(2), 1]), None, ""), ((X, [26, 25]), None, ""),
    ((X, [51, 0], [51]), None, ""), ((X, [..., 0], [0]), ValueError, "write [..., 0] to keep them"),
    ((3.0, []), None, ""), ((3.0, np.array([])), None, ""),
    ((X, [0.5, 1], Y, [1, 2], [0, 2]), TypeError, "an integer or ..., got 0.5"),
    ((X, [np.float64(0), 1]), TypeError, "an integer or ..., got np.float64(0.0)"),
    ((X, np.array([0.0, 1.0])), TypeError, "an integer or ..., got np.float64(0.0)"),
    ((X, [True, False]), TypeError, "an integer or ..., got True"),
    ((X, np.array([True, False])), TypeError, "an integer or ..., got np.True_"),
    ((X, ["l", 0]), TypeError, "an integer or ..., got 'l'"),
    ((X, [None, 0]), TypeError, "an integer or ..., got None"),
    ((X, [[0], 1]), TypeError, "an integer or ..., got [0]"),
    ((X, [1j, 0]), TypeError, "an integer or ..., got 1j"),
    ((X, [-1, 0]), ValueError, "axes are numbered from 0 on, got -1"),
    ((X, "ij"), TypeError, "got 'ij' where a list of axes belongs"),
    ((X, 1), TypeError, "got 1 where a list of axes belongs"),
    ((X, None), TypeError, "got None where a list of axes belongs"),
    ((X, np.array([[0, 1]])), TypeError, None),
    ((1, X), TypeError, "got an array of shape (2, 3) where a list of axes belongs"),
    ((X, [0, 1], [0, 0]), ValueError, "the result [0, 0] has an axis twice"),
    ((X, [0, 1], [2]), ValueError, "the result has 2, which no operand has"),
    ((X, [0, 1, 2]), ValueError, "[0, 1, 2] names 3 axes, and operand 0 has 2"),
    ((X, [..., ...]), ValueError, "at most one ellipsis"),
    ((X, [0, 1], Y, [0, 1]), ValueError, "axis [0] has length 2 in one operand and 3 in another"),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "error", "words"), LABELS, ids=range(len(LABELS)))
def test_labels_as_numpy_takes_them(arguments, error, words):
    if error is None:
        assert_array_equal(sm.einsum(*arguments), np.einsum(*arguments))
        return
    with pytest.raises(error):
        np.einsum(*arguments)
    with pytest.raises(error, match=re.escape(words or "where a list of axes belongs")):
        sm.einsum(*arguments)


def test_networks_have_more_axes_than_numpy_has_numbers():
    found = sm.einsum(X, [1000, 52], Y, [52, 60], [1000, 60])
    assert_array_equal(found, X @ Y)


def test_labels_without_an_order_are_refused():
    """NumPy takes them, in the order that they happen to have."""
    for axes in ({0, 1}, {0: 1, 1: 2}):
        with pytest.raises(TypeError, match="where a list of axes belongs"):
            sm.einsum(X, axes)
    with pytest.raises(TypeError, match="got one operand and no axes"):
        sm.einsum(X)


def test_the_result_is_new():
    a = np.arange(9.0).reshape(3, 3)
    for subscripts in ("ij->ji", "ij", "ii->i", "..."):
        got = sm.einsum(subscripts, a)
        assert not np.shares_memory(got, a)
        assert got.flags.writeable
    out = a.copy()
    assert sm.einsum("ij,jk->ki", out, a, out=out) is out  # which overlaps an operand
    assert_array_equal(out, (a @ a).T)


def test_no_copy_of_transposed_operands(monkeypatch):
    seen = []
    multiply = summation.multiply
    monkeypatch.setattr(
        summation, "multiply", lambda e, s, x, y: (seen.append((x, y)), multiply(e, s, x, y))[1]
    )
    a, b = np.ones((4, 3, 5)), np.ones((6, 5))
    sm.einsum("bij,kj->ikb", a, b)
    ((x, y),) = seen
    assert np.shares_memory(y, b)
    assert y.shape == (5, 6)
    assert x.size == a.size
    seen.clear()
    sm.einsum("bji,bjk->bik", a, a)
    ((x, y),) = seen
    assert np.shares_memory(x, a)
    assert np.shares_memory(y, a)


# Sums of one operand

#: Subscripts, the shape of a long sum, and how it is laid out.
LONG_SUMS = {
    "contiguous": ("i->", (300_000,), lambda x: x),
    "reversed": ("i->", (300_000,), lambda x: x[::-1]),
    "with gaps": ("i->", (300_000,), lambda x: np.repeat(x, 2)[::2]),
    "rows": ("ij->i", (5, 60_000), lambda x: x),
    "columns": ("ij->j", (60_000, 5), lambda x: x),
    "all": ("ij->", (100, 3000), lambda x: x),
    "a stack": ("ijk->ik", (2, 4000, 70), lambda x: x),
    "a stack with gaps": ("ijk->ij", (2, 70, 8000), lambda x: np.repeat(x, 2, 1)[:, ::2]),
}


@pytest.mark.parametrize("entries", ["0.1", "random"])
@pytest.mark.parametrize("dtype", ["f4", "f8", "f2", "bfloat16"])
@pytest.mark.parametrize("how", LONG_SUMS)
def test_long_sums_lose_no_digits(how, dtype, entries):
    """NumPy's are pairwise; one after the other would lose 10 to 17 bits of these."""
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    subscripts, shape, lay = LONG_SUMS[how]
    x = np.random.default_rng(5).random(shape) if entries == "random" else np.full(shape, 0.1)
    x = lay((x / 16).astype(dtype))  # float16 holds the sum
    inputs, _, output = subscripts.partition("->")
    rows = np.moveaxis(x, [inputs.index(c) for c in output], range(len(output)))
    rows = rows.reshape(*rows.shape[: len(output)], -1).astype("f8")
    exact = np.apply_along_axis(math.fsum, -1, rows)
    got = np.asarray(sm.einsum(subscripts, x))
    units = 1 if x.dtype.itemsize == 2 else 4
    tolerance = {"float16": 2**-11, "float32": 2**-24, "float64": 2**-53}.get(x.dtype.name, 2**-8)
    assert_allclose(got.astype("f8"), exact, rtol=1.01 * units * tolerance)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(
    ("special", "expected"),
    [([inf], inf), ([-inf, 1], -inf), ([inf, -inf], math.nan), ([math.nan], math.nan)],
)  # fmt: skip
def test_long_sums_of_special_values(special, expected, dtype):
    x = np.zeros(5000, dtype)
    x[100 : 100 + len(special)] = special
    assert_array_equal(sm.einsum("i->", x), expected)
    assert_array_equal(sm.einsum("i->", np.repeat(x, 2)[::2]), expected)
    assert_array_equal(sm.einsum("ij->i", np.stack([x, x])), [expected, expected])
    assert_array_equal(sm.einsum("ij->j", np.stack([x, x], 1)), [expected, expected])
    assert sm.einsum("i->", np.full(100, np.finfo(dtype).max)) == inf


# Laws


#: ⊗ keeps its left operand: associative, distributive over min, and not commutative.
FIRST = sm.Semiring("first", "min(a, b)", "a", inf, 0)


@pytest.mark.parametrize(
    "subscripts", ["ij,jk,kl->il", "kl,ij,jk->il", "i,j->ji", "jk,ij->ik", "i,i,i->i"]
)
def test_operands_keep_their_order_where_it_matters(subscripts):
    rng = np.random.default_rng(2)
    sizes = {"i": 2, "j": 3, "k": 4, "l": 5}
    shapes = [[sizes[c] for c in term] for term in subscripts.partition("->")[0].split(",")]
    operands = [rng.integers(-9, 9, shape).astype(float) for shape in shapes]
    expected = by_loops((min, lambda a, b: a, inf, "f8", ()), subscripts, operands)
    assert_array_equal(sm.einsum(subscripts, *operands, semiring=FIRST), expected)
    if len(operands) < 3:
        return
    with pytest.raises(ValueError, match=r"⊗ = a of first is not known to be commutative"):
        sm.einsum(subscripts, *operands, semiring=FIRST, optimize="greedy")


def test_what_needs_a_law_that_does_not_hold_is_refused():
    a, b = np.full((2, 3), 2.0), np.full((3, 4), 3.0)
    expected = np.minimum(a[:, :, None], b).sum(1)
    assert_array_equal(sm.einsum("ij,jk->ik", a, b, semiring="plus_min"), expected)
    assert_array_equal(sm.einsum("ij->i", a, semiring="plus_min"), a.sum(1))
    message = "plus_min on float64: ⊗ distributes over ⊕ from the left fails"
    for subscripts, operands in (("ij,jk->i", (a, b)), ("ij,jk,k->ik", (a, b, b[0]))):
        with pytest.raises(ValueError, match=message):
            sm.einsum(subscripts, *operands, semiring="plus_min")


def test_a_sum_of_any_pair_is_not_a_product_with_one():
    x = np.array([[5, 2], [0, 3]], np.uint8)
    assert_array_equal(sm.einsum("ij->i", x, semiring="any_pair"), [5, 3])


# Integers


def test_integers_never_wrap():
    big = np.array([100, 100], np.int8)
    for subscripts, operands in (("i->", (big,)), ("i,i->i", (big, big)), ("i,j->ij", (big, big))):
        with pytest.raises(OverflowError, match="int8"):
            sm.einsum(subscripts, *operands)
    with pytest.raises(OverflowError):
        sm.einsum("i,i->i", big, big, semiring="min_plus")
    with pytest.raises(OverflowError):  # 127 stands for "no edge", and is no sum
        sm.einsum("i,i->i", big, np.array([27, 27], np.int8), semiring="min_plus")


def test_no_edge_stays_no_edge_in_integers():
    top = np.iinfo(np.int16).max
    x, y = np.array([top, 5, top, 1], np.int16), np.array([-3, top, top, 2], np.int16)
    assert_array_equal(sm.einsum("i,i->i", x, y, semiring="min_plus"), [top, top, top, 3])
    assert_array_equal(sm.einsum("i->", x, semiring="min_plus"), 1)
    assert sm.einsum("i->", x[:1], semiring="min_plus") == top
    x, y = np.array([127, 100], np.int8), np.array([30, 26], np.int8)  # 127 + 30 is no overflow
    for subscripts, a, b in (("i,i->i", x, y), ("i,ij->ij", x, y[:, None])):
        found = sm.einsum(subscripts, a, b, semiring="min_plus")
        assert_array_equal(found.ravel(), [127, 126])


@pytest.mark.parametrize("dtype", ["f2", "bfloat16"])
def test_short_floats(dtype):
    if dtype == "bfloat16":
        dtype = pytest.importorskip("ml_dtypes").bfloat16
    a = np.arange(12).reshape(3, 4).astype(dtype)
    for subscripts, operands in (("ij,kj->ik", (a, a)), ("ij,ij->ij", (a, a)), ("ij->j", (a,))):
        got = sm.einsum(subscripts, *operands, semiring="max_plus")
        assert got.dtype == a.dtype
        wide = [x.astype("f8") for x in operands]
        assert_array_equal(got.astype("f8"), sm.einsum(subscripts, *wide, semiring="max_plus"))


# The path


def test_the_path_is_taken():
    """Of a chain with a narrow end the cheap order is asked for, and what is given is used."""
    opt_einsum = pytest.importorskip("opt_einsum")
    rng = np.random.default_rng(3)
    operands = [rng.random((2, 30)), rng.random((30, 40)), rng.random((40, 3))]
    expected = sm.einsum("ij,jk,kl->il", *operands, semiring="min_plus", optimize=False)
    for optimize in (True, "optimal", [(1, 2), (0, 1)], [(0, 1, 2)]):
        got = sm.einsum("ij,jk,kl->il", *operands, semiring="min_plus", optimize=optimize)
        assert_allclose(got, expected, rtol=1e-14)
    asked = []

    class Optimizer(opt_einsum.paths.PathOptimizer):
        def __call__(self, inputs, output, sizes, memory_limit=None):
            asked.append((inputs, output))
            return [(0, 1), (0, 1)]

    assert_allclose(
        sm.einsum("ij,jk,kl->il", *operands, semiring="min_plus", optimize=Optimizer()),
        expected, rtol=1e-14,
    )  # fmt: skip
    assert len(asked) == 1


def test_without_opt_einsum_three_operands_say_what_to_install():
    done = run(
        "-c",
        "import sys; sys.modules['opt_einsum'] = None\n"
        "import numpy as np, semiring_mm as sm\n"
        "x = np.ones((2, 2))\n"
        "assert (sm.einsum('ij,jk', x, x) == 2).all()\n"
        "assert (sm.einsum('ij,jk,kl', x, x, x, optimize=False) == 4).all()\n"
        "sm.einsum('ij,jk,kl', x, x, x)\n",
    )
    assert "ModuleNotFoundError: einsum of three or more operands asks opt_einsum" in done.stderr
    assert "semiring-mm[einsum]" in done.stderr


# Errors


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("ij,jk", (2, 3)), "describes 2 operands, and 1 came"),
        (("ij", (2,)), "'ij' names 2 axes, and operand 0 has 1"),
        (("i", (2, 3)), "'i' names 1 axes, and operand 0 has 2"),
        (("ij,jk", (2, 3), (4, 5)), "axis 'j' has length 3 in one operand and 4 in another"),
        (("...j,j...->...", (2, 3), (3, 4)), "axis '...' has length 2 in one operand and 4"),
        (("ii", (2, 3)), "'i' is twice in an operand of shape (2, 3)"),
        (("ij->ik", (2, 3)), "the result has 'k', which no operand has"),
        (("ij->ii", (2, 3)), "the result 'ii' has an axis twice"),
        (("i1", (2, 3)), "'1' in 'i1': an axis is a letter"),
        (("...i...", (2, 3)), "at most one ellipsis"),
        (("...i->i", (2, 3)), "write '...i' to keep them"),
        (("i->...i->i", (2,)), "an axis is a letter"),
    ],
)
def test_what_does_not_fit_is_refused(arguments, message):
    subscripts, *shapes = arguments
    with pytest.raises(ValueError, match=re.escape(message)):
        sm.einsum(subscripts, *(np.ones(shape) for shape in shapes))


def test_other_errors():
    a = np.ones((2, 2))
    with pytest.raises(ValueError, match=r"out has shape \(3, 3\)"):
        sm.einsum("ij,jk", a, a, out=np.empty((3, 3)))
    with pytest.raises(TypeError, match="has no float64 form: use dtype bool"):
        sm.einsum("ij,ij->ij", a, a, semiring="lor_land")
    with pytest.raises(TypeError, match="operand_1 is a masked array"):
        sm.einsum("ij,jk", a, np.ma.array(a))
    with pytest.raises(ValueError, match="there is no built-in semiring 'plus'"):
        sm.einsum("ij", a, semiring="plus")
