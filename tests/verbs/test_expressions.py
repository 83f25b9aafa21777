"""The language of ⊕ and ⊗: what is accepted, what it means, what the analyses promise."""

import ast
import itertools
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.testing import assert_array_equal

import semiring_mm as sm
from semiring_mm import expressions as ex

inf, nan = np.inf, np.nan


def python_value(text, a, b):
    """What Python makes of the text; an oracle that shares nothing with the package."""
    names = {"a": a, "b": b, "min": min, "max": max, "abs": abs, "inf": inf}
    return eval(compile(ast.parse(text, mode="eval"), "", "eval"), {"__builtins__": {}}, names)


# --- parsing ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "cannot parse the expression ''"),
        ("a +", r"cannot parse the expression 'a \+'"),
        ("a; b", "cannot parse"),
        ("c", "the name 'c' is not allowed"),
        ("a ** 2", r"'a \*\* 2' is not allowed.*write a product \(a \* a\) instead of '\*\*'"),
        ("a and b", "write '&' and '|' instead of 'and' and 'or'"),
        ("not a", "write '~' instead of 'not'"),
        ("a @ b", "'a @ b' is not allowed"),
        ("a << b", "'a << b' is not allowed"),
        ("a < b < 1", "the chained comparison 'a < b < 1' .*join two with '&'"),
        ("a is b", "'a is b' is not allowed"),
        ("a in b", "'a in b' is not allowed"),
        ("min(a)", r"min of 1 argument\(s\) is not allowed"),
        ("exp(a, b)", r"exp of 2 argument\(s\) is not allowed"),
        ("logaddexp(a)", r"logaddexp of 1 argument\(s\)"),
        ("sin(a)", r"'sin\(a\)' is not allowed"),
        ("min(a, key=b)", r"'min\(a, key=b\)' is not allowed"),
        ("min(*a)", r"min of 1 argument|'\*a' is not allowed"),
        ("a.real", "'a.real' is not allowed"),
        ("a[0]", r"'a\[0\]' is not allowed"),
        ("lambda: a", "'lambda: a' is not allowed"),
        ("(a := b)", "'.a := b.' is not allowed"),
        ("'a'", """"'a'" is not allowed"""),
        ("1j", "'1j' is not allowed"),
        ("None", "'None' is not allowed"),
        ("[a, b]", r"'\[a, b\]' is not allowed"),
        ("__import__('os').remove('x')", "is not allowed"),
        ("a + f'{b}'", "is not allowed"),
        ("+".join(["a"] * 150), "has more than 200 operations"),
        ("(" * 500 + "a" + ")" * 500, "cannot parse"),
        ("-" * 9000 + "a", "is nested too deeply: at most 200 operations"),
        ("+".join(["a"] * 3000), "is nested too deeply: at most 200 operations"),
        ("a + " + "9" * 310, r"the number 9{20}\.\.\. of 310 digits, more than float64 holds"),
        ("a * -" + "9" * 310, "of 310 digits, more than float64 holds"),
        ("z" * 9000, "is not allowed"),
        ("a + b" + " " * 10_000_000 + ")", "has 10000006 characters; at most 10000 are accepted"),
    ],
)
def test_what_is_refused(text, words):
    with pytest.raises(ValueError, match=words) as caught:
        ex.parse(text)
    assert len(str(caught.value)) < 500


def test_a_refusal_lists_what_is_allowed():
    with pytest.raises(ValueError, match=r"use the names a and b, numbers, inf, .* logaddexp"):
        ex.parse("c")


@pytest.mark.parametrize("text", [None, 3, b"a + b", ["a"]])
def test_an_expression_is_a_string(text):
    with pytest.raises(TypeError, match="an expression is a string"):
        ex.parse.__wrapped__(text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a if a < b else b", "min(a, b)"), ("a if a <= b else b", "min(a, b)"),
        ("b if a < b else a", "max(a, b)"), ("a if a > b else b", "max(a, b)"),
        ("b if b > a else a", "max(b, a)"), ("b if a >= b else a", "min(a, b)"),
        ("a + 1 if a + 1 < b else b", "min(a + 1, b)"),
        ("min(a, b, 1)", "min(min(a, b), 1)"), (" a+b\n", "a + b"), ("+a", "a"), ("True", "1"),
    ],
)  # fmt: skip
def test_equal_trees(text, expected):
    assert ex.parse(text) == ex.parse(expected)


@pytest.mark.parametrize("text", ["a if a < b else 1", "a if a == b else b", "a if b < 1 else b"])
def test_other_conditionals_stay(text):
    assert ex.parse(text).op == "if"


def test_operations_of_a_tree():
    assert ex.parse("min(a, -b) + 2").ops() == {"+", "min", "a", "neg", "b", "const"}
    assert ex.parse("-2").value == -2
    assert ex.parse("-inf").value == -inf


# --- evaluation ---------------------------------------------------------------------------------

WHOLE = np.array([-128, -100, -7, -3, -2, -1, 0, 1, 2, 3, 7, 100, 127])
A, B = (x.ravel() for x in np.meshgrid(WHOLE, WHOLE))
INTEGER_TEXTS = [
    "a + b", "a - b", "a * b", "-a", "+b", "abs(a)", "min(a, b)", "max(a, b, 3)",
    "a & b", "a | b", "a ^ b", "~a", "a & ~b", "a < b", "a <= b", "a > b", "a >= b", "a == b",
    "a != b", "(a < b) + (b < 3)", "(a < b) * b", "-(a < b)", "abs(a < b)", "a - (a < b)",
    "(a < b) & (b < 3)", "(a < b) | (b < a)", "(a < b) ^ (b < 3)", "a if b > 0 else -b",
    "a if b else 5", "min(a < b, b)", "(a < b) == (b < 3)", "1000 + a", "2 * a - 3 * b + 1",
]  # fmt: skip


@pytest.mark.parametrize("text", INTEGER_TEXTS)
def test_integers_evaluate_as_in_python(text):
    expected = [int(python_value(text, a, b)) for a, b in zip(A.tolist(), B.tolist(), strict=True)]
    assert_array_equal(ex.evaluate(ex.parse(text), A, B), expected)


def test_division_rounds_down_and_by_zero_gives_zero():
    for text in ("a // b", "a % b"):
        expected = [
            0 if b == 0 else python_value(text, a, b)
            for a, b in zip(A.tolist(), B.tolist(), strict=True)
        ]
        assert_array_equal(ex.evaluate(ex.parse(text), A, B), expected)


def test_floats_evaluate_without_warnings():
    x = np.array([nan, inf, -inf, 0.0, -1.0])
    with np.testing.assert_no_warnings():
        assert_array_equal(ex.evaluate(ex.parse("a - b"), x, x), [nan, nan, nan, 0, 0])
        assert_array_equal(ex.evaluate(ex.parse("log(a)"), x, x), [nan, inf, nan, -inf, nan])
        assert_array_equal(ex.evaluate(ex.parse("1 / a"), x, x), [nan, 0, -0.0, inf, -1])
        assert ex.evaluate(ex.parse("exp(a < b)"), np.float64(1), np.float64(2)) == math.e


# --- analyses -----------------------------------------------------------------------------------


def texts(leaves, binary, unary):
    """Random expressions as text."""
    return st.recursive(
        st.sampled_from(leaves),
        lambda inner: st.one_of(
            st.tuples(st.sampled_from(unary), inner).map(lambda t: t[0].format(t[1])),
            st.tuples(st.sampled_from(binary), inner, inner).map(lambda t: t[0].format(*t[1:])),
        ),
        max_leaves=7,
    )


WHOLE_TEXTS = texts(
    ["a", "b", "0", "1", "-3", "200"],
    ["({} + {})", "({} - {})", "({} * {})", "({} // {})", "({} % {})", "min({}, {})",
     "max({}, {})", "({} & {})", "({} | {})", "({} ^ {})", "({} < {})", "({} != {})",
     "({} if a > b else {})", "({} if b else {})"],
    ["(-{})", "abs({})", "(~({} + 0))"],
)  # fmt: skip
RANGE = st.tuples(st.integers(-300, 300), st.integers(-300, 300)).map(sorted)


@settings(max_examples=300, deadline=None)
@given(text=WHOLE_TEXTS, a=RANGE, b=RANGE, data=st.data())
def test_an_interval_holds_every_value(text, a, b, data):
    (lo, hi), (least, most) = ex.intervals(ex.parse(text), tuple(a), tuple(b))
    assert least <= lo <= hi <= most
    inside = [tuple(data.draw(st.integers(*r)) for r in (a, b)) for _ in range(3)]
    for x, y in [*inside, *itertools.product(a, b)]:
        try:
            value = int(python_value(text, x, y))
        except ZeroDivisionError:
            continue
        assert lo <= value <= hi, (text, x, y)


def test_intervals_cover_what_lies_between():
    """A type that holds the interval must hold every intermediate result."""
    _, (lo, hi) = ex.intervals(ex.parse("(a * b) // 100"), (0, 1000), (0, 1000))
    assert hi >= 1_000_000
    _, (lo, hi) = ex.intervals(ex.parse("min(a - b, 0) + max(a + b, 0)"), (-5, 5), (-7, 7))
    assert lo <= -12
    assert hi >= 12
    bounds = ex.intervals(ex.parse("a * b < 7"), (0, 1000), (0, 1000))
    assert bounds == ((0, 1), (0, 1_000_000))


@pytest.mark.parametrize(
    ("text", "result", "reach"),
    [  # of a in [-2, 3] and b in [10, 20]; 0 and the operands are in every reach
        ("a + b", (8, 23), (-2, 23)), ("a - b", (-22, -7), (-22, 20)),
        ("b - a", (7, 22), (-2, 22)), ("a * b", (-40, 60), (-40, 60)),
        ("-b", (-20, -10), (-20, 20)), ("~b", (-21, -11), (-21, 20)),
        ("abs(b - 40)", (20, 30), (-30, 40)), ("min(a, b)", (-2, 3), (-2, 20)),
        ("max(2 * a, b)", (10, 20), (-4, 20)), ("b // a", (-20, 20), (-20, 20)),
        ("b % a", (-1, 2), (-2, 20)), ("a & b", (-32, 31), (-32, 31)),
        ("b | 64", (0, 127), (0, 127)), ("a < b", (0, 1), (-2, 20)),
        ("5 * b if a else -7 * b", (-140, 100), (-140, 100)),
    ],
)  # fmt: skip
def test_intervals(text, result, reach):
    assert ex.intervals(ex.parse(text), (-2, 3), (10, 20)) == (result, reach)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a / b", "'/' has no integer meaning"), ("exp(a)", "'exp' has no integer meaning"),
        ("a + 0.5", "constant 0.5 is not an integer"), ("a + inf", "constant inf is not an int"),
    ],
)  # fmt: skip
def test_what_has_no_integer_meaning(text, words):
    with pytest.raises(ValueError, match=words):
        ex.intervals(ex.parse(text), (0, 1), (0, 1))


VALUES = {
    "nan": [nan], "-inf": [-inf], "-": [-1e300, -7.0, -1.0, -1e-300], "0": [0.0],
    "+": [1e-300, 0.3, 1.0, 1e300], "+inf": [inf],
}  # fmt: skip
FLOAT_TEXTS = texts(
    ["a", "b", "0", "1", "-2.5", "inf"],
    ["({} + {})", "({} - {})", "({} * {})", "({} / {})", "({} // {})", "({} % {})",
     "min({}, {})", "max({}, {})", "logaddexp({}, {})", "({} < {})", "({} if a > b else {})"],
    ["(-{})", "abs({})", "exp({})", "log({})", "log1p({})", "expm1({})", "sqrt({})"],
)  # fmt: skip
KINDS = st.frozensets(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4)


@settings(max_examples=300, deadline=None)
@given(text=FLOAT_TEXTS, a=KINDS, b=KINDS)
def test_no_nan_appears_where_none_is_promised(text, a, b):
    expr = ex.parse(text)
    if ex.may_be_nan(expr, a, b):
        return
    x, y = (np.array([v for kind in kinds for v in VALUES[kind]]) for kinds in (a, b))
    result = ex.evaluate(expr, x[:, None], y)
    assert not np.isnan(np.asarray(result, np.float64)).any()


@pytest.mark.parametrize(
    ("text", "a", "b", "expected"),
    [
        ("a + b", {"+inf"}, {"-inf"}, True), ("a + b", {"+inf", "-"}, {"+", "0"}, False),
        ("a * b", {"0"}, {"+inf"}, True), ("a * b", {"-", "+"}, {"+inf"}, False),
        ("a * b * b", {"+"}, {"0", "+"}, True), ("min(a, b)", {"nan"}, {"+"}, True),
        ("log(a)", {"+", "0"}, {"+"}, False), ("sqrt(a)", {"-"}, {"+"}, True),
        ("a < b", {"+", "-inf"}, {"-"}, False),
    ],
)  # fmt: skip
def test_where_nan_comes_from(text, a, b, expected):
    assert ex.may_be_nan(ex.parse(text), frozenset(a), frozenset(b)) is expected


# --- CUDA ---------------------------------------------------------------------------------------


def test_cuda_text_of_the_built_ins():
    expected = {
        "plus_times": ("(a + b)", "(a * b)"),
        "min_plus": ("sr::min(a, b)", "(a + b)"),
        "max_plus": ("sr::max(a, b)", "(a + b)"),
        "min_times": ("sr::min(a, b)", "(a * b)"),
        "max_times": ("sr::max(a, b)", "(a * b)"),
        "min_max": ("sr::min(a, b)", "sr::max(a, b)"),
        "max_min": ("sr::max(a, b)", "sr::min(a, b)"),
        "lor_land": ("(a | b)", "(a & b)"),
        "xor_land": ("(a ^ b)", "(a & b)"),
        "any_pair": ("sr::max(a, b)", "((a != float(0)) & (b != float(0)))"),
        "plus_min": ("(a + b)", "sr::min(a, b)"),
        "log_plus": ("sr::logaddexp(a, b)", "(a + b)"),
    }
    for name, text in expected.items():
        s = sm.semirings[name]
        assert (ex.to_cuda(s.add_expr, "float"), ex.to_cuda(s.mul_expr, "float")) == text


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a // b", "sr::floor_div(a, b)"), ("a % 2", "sr::floor_mod(a, double(2))"),
        ("-a / b", "((-a) / b)"), ("~a & b", "((~a) & b)"), ("~(a < b)", "(!(a < b))"),
        ("inf", "sr::infinity<double>()"), ("-inf", "-sr::infinity<double>()"),
        ("a + 0.1", "(a + double(0.1))"), ("a - 1e-20", "(a - double(1e-20))"),
        ("2 if a < b else b", "((a < b) ? double(2) : b)"),
        ("(a < b) + 1", "(double((a < b)) + double(1))"),
        ("max(a, b, 0)", "sr::max(sr::max(a, b), double(0))"),
        ("exp(abs(a)) * sqrt(b)", "(sr::exp(sr::abs(a)) * sr::sqrt(b))"),
    ],
)  # fmt: skip
def test_cuda_text(text, expected):
    assert ex.to_cuda(ex.parse(text), "double") == expected


# --- derivatives --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "a + b", "a - 2 * b", "-a * b", "a / b", "a * a / (1 + b)", "(a + b) % 0.7", "a // b + b",
        "min(a, b)", "max(a, 2 * b)", "abs(a - b)", "exp(a) * log(b)", "log1p(a * b)", "expm1(-b)",
        "sqrt(a + b * b)", "logaddexp(a, 2 * b)", "a if a < b else 3 * b", "(a < b) * a",
    ],
)  # fmt: skip
def test_derivatives_are_differences(text):
    expr, step = ex.parse(text), 1e-6
    a, b = np.random.default_rng(3).uniform(0.1, 2, (2, 50))
    for name, (da, db) in {"a": (step, 0), "b": (0, step)}.items():
        after, before = ex.evaluate(expr, a + da, b + db), ex.evaluate(expr, a - da, b - db)
        found = np.broadcast_to(ex.evaluate(ex.derivative(expr, name), a, b), a.shape)
        np.testing.assert_allclose(found, (after - before) / (2 * step), rtol=1e-5, atol=1e-6)


def test_derivatives_where_operands_are_equal():
    zero, infinite = np.zeros(2), np.full(2, -inf)
    for text, expected in (("min(a, b)", (1, 0)), ("max(a, b)", (1, 0)), ("abs(a)", (0, 0))):
        for name, value in zip("ab", expected, strict=True):
            assert_array_equal(ex.evaluate(ex.derivative(ex.parse(text), name), zero, zero), value)
    half = ex.derivative(ex.parse("logaddexp(a, b)"), "a")
    assert_array_equal(ex.evaluate(half, infinite, infinite), 0.5)
    assert ex.derivative(ex.parse("a + b"), "a") == ex.parse("1")
    assert ex.derivative(ex.parse("(a != 0) & (b != 0)"), "b") == ex.parse("0")
