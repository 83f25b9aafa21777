"""Semirings: the table, identities, laws, and semirings of one's own through the engine."""

import dataclasses
import os
import pickle
import re
import subprocess
import sys
from xml.etree import ElementTree

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from reference import ALGEBRAS, BFLOAT16, MEANT

import semiring_mm as sm
from semiring_mm.cli import main
from semiring_mm.cpu.product_code import product_code
from semiring_mm.semirings import as_semiring, fold_start

inf, nan = np.inf, np.nan


def own(add="max(a, b)", mul="a + b", zero=-inf, one=0, name="own"):
    return sm.Semiring(name, add, mul, zero, one)


# --- the table and the class --------------------------------------------------------------------


def test_the_table():
    for name, algebra in MEANT.items():
        s = sm.semirings[name]
        assert (s.zero, s.one) == (algebra.zero, algebra.one), name
    lines = repr(sm.semirings).splitlines()
    assert lines[0].split()[:3] == ["name", "add", "mul"]
    assert [line.split()[0] for line in lines[1:]] == list(sm.semirings)
    assert "shortest, tropical" in lines[2]
    assert "shortest paths" in lines[2]


def test_the_table_prints_on_any_terminal():
    script = "import semiring_mm as sm; print(sm.semirings); print(sm.semirings.min_plus)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, timeout=60,
        env={**os.environ, "PYTHONIOENCODING": "ascii"},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.count(b"\n") == len(sm.semirings) + 2


@pytest.mark.parametrize("name", ["min_plus", "any_pair", "max_min"])
def test_the_representation_makes_an_equal_semiring(name):
    s = sm.semirings[name]
    assert eval(repr(s), {"Semiring": sm.Semiring, "inf": inf}) == s
    assert repr(own()) == "Semiring('own', add='max(a, b)', mul='a + b', zero=-inf, one=0)"


def test_tables_for_notebooks():
    whole, row = sm.semirings._repr_html_(), sm.semirings.lor_land._repr_html_()
    assert whole.count("<tr>") == len(sm.semirings) + 1
    assert row.count("<tr>") == 2
    assert "<code>a &amp; b</code>" in row  # escaped
    for html in (whole, row):
        ElementTree.fromstring(html)  # well-formed
    assert "<th>also</th>" in whole
    assert "| `lor_land` | `a \\| b` |" in sm.semirings._repr_markdown_()


# --- names --------------------------------------------------------------------------------------

WORDS = {
    "min_plus": ("min_plus", "min-plus", "MIN_PLUS", "min plus", "MinPlus", "min.plus"),
    "plus_times": ("PLUS_TIMES", "counting"),
    "max_plus": ("max-plus", "longest", "critical"),
    "max_times": ("reliable", "viterbi", "Viterbi"),
    "max_min": ("widest", "bottleneck"),
    "min_max": ("minimax", "min-max"),
    "lor_land": ("reachability", "boolean", "LOR_LAND"),
    "xor_land": ("gf2", "GF(2)"),
    "log_plus": ("log",),
}
WORDS["min_plus"] += ("tropical", "shortest")


@pytest.mark.parametrize(("name", "word"), [(n, w) for n, words in WORDS.items() for w in words])
def test_words_for_semirings(name, word):
    assert as_semiring(word) is sm.semirings[name]
    assert sm.semirings[word] is sm.semirings[name]
    assert word in sm.semirings
    if word.isidentifier():
        assert getattr(sm.semirings, word) is sm.semirings[name]


def test_words_wherever_a_semiring_is_given():
    a = np.array([[1.0, 5], [2, 3]])
    for found in (
        sm.matmul(a, a, "tropical")[0, 0], sm.einsum("ij,jk->ik", a, a, semiring="Min-Plus")[0, 0],
        sm.matrix_power(a, 2, "shortest")[0, 0], sm.gemm(0, a, a, semiring="tropical")[0, 0],
        sm.gemv(0, a, a[:, 0], semiring="tropical")[0],
    ):  # fmt: skip
        assert found == 2
    assert sm.closure(a, "shortest")[0, 1] == 5
    assert sm.adjacency(a, "tropical")[0].shape == (2, 2)


def test_words_on_the_command_line(tmp_path, capsys):
    (tmp_path / "roads.csv").write_text("from,to,weight\na,b,3\nb,c,4\n")
    assert main(["apsp", str(tmp_path / "roads.csv"), "--semiring", "Widest"]) == 0
    assert "widest" in capsys.readouterr().out
    assert main(["apsp", str(tmp_path / "roads.csv"), "--semiring", "widets"]) == 2
    assert "did you mean widest?" in capsys.readouterr().err


def test_the_table_is_a_mapping_of_names():
    """Words are found, and each semiring is there once."""
    assert list(sm.semirings) == list(MEANT)
    assert len(sm.semirings) == len(MEANT)
    assert sm.semirings.get("nothing of the kind") is None
    assert 3 not in sm.semirings
    again = pickle.loads(pickle.dumps(sm.semirings))
    assert again == sm.semirings
    assert again.tropical == sm.semirings.min_plus


def test_completion():
    keys = sm.semirings._ipython_key_completions_()
    assert {"min_plus", "tropical"} <= set(keys)
    assert set(keys) <= set(dir(sm.semirings))
    assert "items" in dir(sm.semirings)


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ("min_pulse", "did you mean 'min_plus'"), ("shortst", "did you mean 'shortest'"),
        ("maxtime", "did you mean 'max_times'"), ("x", "choose one of plus_times, min_plus"),
        ("", "choose one of plus_times"),
    ],
)  # fmt: skip
def test_a_name_that_is_none(wrong, words):
    words = f"there is no built-in semiring {wrong!r}: {words}"
    with pytest.raises(ValueError, match=re.escape(words)):
        sm.matmul([[1.0]], [[1.0]], wrong)
    with pytest.raises(KeyError, match=re.escape(words)):
        sm.semirings[wrong]
    with pytest.raises(AttributeError, match=re.escape(words)):
        getattr(sm.semirings, wrong)


def test_a_semiring_is_a_frozen_value():
    s = own()
    assert s == own()
    assert hash(s) == hash(own())
    with pytest.raises(dataclasses.FrozenInstanceError):
        s.zero = 3
    assert own(zero=np.float32(2)).zero == 2.0
    assert type(own(zero=np.int8(2)).zero) is int


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"name": "min plus"}, ValueError, "a semiring's name is an identifier .* got 'min plus'"),
        ({"name": 3}, ValueError, "identifier"),
        ({"add": "min(a, c)"}, ValueError, "the name 'c' is not allowed"),
        ({"mul": "a **b"}, ValueError, "is not allowed"),
        ({"mul": 3}, TypeError, "an expression is a string"),
        ({"zero": nan}, ValueError, "own.zero must be a number, got nan"),
        ({"one": "0"}, TypeError, "own.one must be a real number, got '0'"),
        ({"one": 1j}, TypeError, "own.one must be a real number, got 1j"),
        ({"zero": None}, TypeError, "own.zero must be a real number, got None"),
        ({"zero": np.ones(2)}, TypeError, "own.zero must be a real number"),
        ({"domain": "real"}, ValueError, "own.domain is 'any', .* got 'real'"),
    ],
    ids=str,
)
def test_refused_semirings(change, error, words):
    row = {"name": "own", "add": "min(a, b)", "mul": "a + b", "zero": inf, "one": 0} | change
    with pytest.raises(error, match=words):
        sm.Semiring(**row)


@pytest.mark.parametrize(
    ("name", "kind", "idempotent", "selective", "order_only", "start"),
    [
        ("plus_times", "+", False, False, False, 0), ("min_plus", "min", True, True, False, inf),
        ("max_plus", "max", True, True, False, -inf), ("min_times", "min", True, True, False, inf),
        ("max_times", "max", True, True, False, -inf), ("min_max", "min", True, True, True, inf),
        ("max_min", "max", True, True, True, -inf), ("lor_land", "|", True, False, False, 0),
        ("xor_land", "^", False, False, False, 0), ("any_pair", "max", True, True, False, -inf),
        ("plus_min", "+", False, False, False, 0), ("log_plus", "", False, False, False, -inf),
    ],
)  # fmt: skip
def test_what_is_known_of_a_semiring(name, kind, idempotent, selective, order_only, start):
    s = sm.semirings[name]
    assert (s.add_kind, s.idempotent, s.selective) == (kind, idempotent, selective)
    assert s.order_only is order_only
    assert fold_start(s) == start


def test_what_is_known_of_a_semiring_of_ones_own():
    assert own(add="min(b, a)").add_kind == "min"
    assert own(add="a if a < b else b").add_kind == "min"
    assert own(add="min(a, b + 1)").add_kind == ""
    assert own(add="max(min(a, b), max(a, b))").idempotent
    assert own(add="(a | b) & (b | a)").idempotent
    assert not own(add="a + b - a * b").idempotent
    assert not own(add="min(a, b)", mul="max(a, b + 1)").order_only


@pytest.mark.parametrize(
    ("name", "dtype", "zero", "one"),
    [
        ("min_plus", "f4", inf, 0), ("max_min", "f2", -inf, inf), ("min_plus", BFLOAT16, inf, 0),
        ("min_plus", "i4", 2**31 - 1, 0), ("max_plus", "i8", -(2**63), 0),
        ("min_plus", "u1", 255, 0), ("max_min", "u2", 0, 65535), ("min_max", "i1", 127, -128),
        ("max_times", "i2", 0, 1), ("plus_min", "u8", 0, 2**64 - 1), ("lor_land", "?", 0, 1),
        ("min_max", "?", True, False), ("max_min", "?", False, True), ("min_times", "?", 1, 1),
    ],
    ids=str,
)  # fmt: skip
def test_identities(name, dtype, zero, one):
    found = sm.semirings[name].identities(dtype)
    assert found == (zero, one)
    assert all(np.asarray(x).dtype == np.dtype(dtype) for x in found)


@pytest.mark.parametrize(
    ("semiring", "dtype", "words"),
    [
        (sm.semirings["max_plus"], "u4", "max_plus needs -inf for its zero, which uint32 cannot"),
        (own(one=0.5), "i4", "own has one = 0.5, which dtype int32 cannot hold"),
        (own(zero=0, one=300), "u1", "own has one = 300, which dtype uint8 cannot hold"),
        (own(zero=0, one=-1), "u1", "own has one = -1, which dtype uint8 cannot hold"),
        (own(one=2), "?", "own has one = 2, which dtype bool cannot hold"),
        (own(zero=1e300), "f4", r"own has zero = 1e\+300, which dtype float32 cannot hold"),
        (own(zero=1e5), "f2", "own has zero = 100000, which dtype float16 cannot hold"),
        (sm.semirings["min_plus"], "c8", "dtype complex64 cannot hold"),
    ],
    ids=str,
)
def test_refused_identities(semiring, dtype, words):
    with pytest.raises(TypeError, match=words):
        semiring.identities(dtype)


# --- laws ---------------------------------------------------------------------------------------

HELD = [
    (n, d) for n, algebra in ALGEBRAS.items() for d in ("f4", "f8", "i4")
    if n != "plus_min" and np.dtype(d) in algebra.dtypes
]  # fmt: skip
# there are no products of these on integers, but laws
HELD += [(n, "i4") for n in ("lor_land", "xor_land", "log_plus")]
CLOSED = ["min_times", "max_times", "min_max", "max_min", "lor_land", "xor_land", "any_pair"]
HELD += [(n, "?") for n in CLOSED]


@pytest.mark.parametrize(("name", "dtype"), HELD)
def test_the_built_ins_keep_the_laws(name, dtype):
    sm.semirings[name].check_laws(dtype)


def test_plus_min_does_not_distribute():
    with pytest.raises(sm.SemiringLawError, match=r"plus_min on float64: ⊗ distributes") as caught:
        sm.semirings["plus_min"].check_laws()
    assert caught.value.law == "⊗ distributes over ⊕ from the left"
    a, b, c = caught.value.values
    assert min(a, b + c) != min(a, b) + min(a, c)
    assert f"at a = {a:g}, b = {b:g}, c = {c:g} gives" in str(caught.value)
    assert "⊕ is a + b, ⊗ is min(a, b), zero 0, one inf" in str(caught.value)


@pytest.mark.parametrize(
    ("semiring", "law", "left", "right"),
    [
        (own(add="a - b", zero=0), "⊕ is commutative",
         lambda a, b, c: a - b, lambda a, b, c: b - a),
        (own(zero=5), "zero is the identity of ⊕", lambda a, b, c: max(a, 5), lambda a, b, c: a),
        (own(mul="a"), "one is the identity of ⊗ from the left",
         lambda a, b, c: 0, lambda a, b, c: a),
        (own(mul="b"), "one is the identity of ⊗ from the right",
         lambda a, b, c: 0, lambda a, b, c: a),
        (own(zero=-100), "zero is the identity of ⊕",
         lambda a, b, c: max(a, -100), lambda a, b, c: a),
        (own("min(a, b)", "a + b", zero=10), "zero is the identity of ⊕",
         lambda a, b, c: min(a, 10), lambda a, b, c: a),
        (own("max(a, b)", "a * b", zero=0, one=1), "zero is the identity of ⊕",
         lambda a, b, c: max(a, 0), lambda a, b, c: a),
        (own("(a + b) / 2", "a * b", 0, 1), "zero is the identity of ⊕",
         lambda a, b, c: a / 2, lambda a, b, c: a),
        (own("abs(a - b)", "a * b", 0, 1), "zero is the identity of ⊕",
         lambda a, b, c: abs(a), lambda a, b, c: a),
        (own("a + b", "a - b", 0, 0), "one is the identity of ⊗ from the left",
         lambda a, b, c: 0 - a, lambda a, b, c: a),
        (own("a + b", "a + b", 0, 0), "zero annihilates from the right",
         lambda a, b, c: a + 0, lambda a, b, c: 0),
    ],
    ids=lambda x: x if isinstance(x, str) else "",
)  # fmt: skip
def test_a_broken_law_is_named_with_a_counterexample(semiring, law, left, right):
    samples = [-200.0, -3.0, -1.0, 0.5, 2.0, 7.0, 20.0]
    with pytest.raises(sm.SemiringLawError) as caught:
        semiring.check_laws(samples=samples)
    assert caught.value.law == law
    a, b, c = caught.value.values
    assert {a, b, c} <= {*samples, semiring.zero, semiring.one}
    assert left(a, b, c) != right(a, b, c)
    assert f"own on float64: {law} fails" in str(caught.value)


def test_laws_of_three_variables():
    broken = own("max(a, b)", "a * b if a < b else b * a + (a > 1) * (b > 1)", 0, 1)
    with pytest.raises(sm.SemiringLawError) as caught:
        broken.check_laws(domain="nonnegative")
    assert caught.value.law in ("⊗ is associative", "⊗ distributes over ⊕ from the left")
    only_right = own("a + b", "a if b == 1 else (a != 0) * b", 0, 1)
    with pytest.raises(sm.SemiringLawError, match=r"⊗") as caught:
        only_right.check_laws(domain="nonnegative")
    assert len(caught.value.values) == 3


def test_the_domain_decides():
    sm.semirings["max_times"].check_laws()
    with pytest.raises(sm.SemiringLawError, match=r"zero is the identity of ⊕ fails"):
        sm.semirings["max_times"].check_laws(domain="any")
    sm.semirings["plus_min"].check_laws(samples=[0])
    with pytest.raises(
        ValueError, match=r"domain is one of any, nonnegative, positive, binary, got"
    ):
        sm.semirings["max_times"].check_laws(domain="real")


def test_laws_on_bits():
    with pytest.raises(TypeError, match=r"lor_land on float64: ⊕ is a \| b, which has no float64"):
        sm.semirings["lor_land"].check_laws()
    bits = own("a | b", "a & b", 0, -1)
    bits.check_laws("i4", samples=[0, 1, 2, 5, 6, -7])
    with pytest.raises(sm.SemiringLawError, match=r"1 ⊕ 1 = 2 is not a bool") as caught:
        sm.semirings["plus_times"].check_laws("?")
    assert caught.value.law == "bool is closed under ⊕"
    assert caught.value.values == (True, True)
    with pytest.raises(sm.SemiringLawError, match=r"1 ⊗ 1 = 2 is not a bool"):
        sm.semirings["min_plus"].check_laws("?")


# --- semirings of one's own, through the engine -------------------------------------------------

VALUES = np.array([nan, inf, -inf, -0.0, 0.0, 1, -1, 2.5, -2.5, 0.1, -0.1, 7, -7, 1e-40, 1e30, 3])


FLOAT_FORMS = [
    ("a + b", np.add), ("a - b", np.subtract), ("a * b", np.multiply), ("a / b", np.divide),
    ("a // b", np.floor_divide), ("a % b", np.remainder), ("-a", lambda a, b: -a),
    ("abs(b)", lambda a, b: np.abs(b)),
    ("min(a, b)", np.minimum), ("max(a, b)", np.maximum), ("max(a, b, 1)",
     lambda a, b: np.maximum(np.maximum(a, b), 1)),
    ("a < b", np.less), ("a <= b", np.less_equal), ("a > b", np.greater),
    ("a >= b", np.greater_equal), ("a == b", np.equal), ("a != b", np.not_equal),
    ("a if b > 0 else -b", lambda a, b: np.where(b > 0, a, -b)),
    ("a if b else 7", lambda a, b: np.where(b != 0, a, 7)),
    ("(a < b) & (b < 3)", lambda a, b: (a < b) & (b < 3)),
    ("(a < b) | (b < -2)", lambda a, b: (a < b) | (b < -2)),
    ("(a < b) ^ (b < 3)", lambda a, b: (a < b) ^ (b < 3)),
    ("~(a < b)", lambda a, b: ~(a < b)),
    ("(a < b) + (b < 3)", lambda a, b: (a < b) * 1 + (b < 3)),
    ("(a < b) * b - (b < a)", lambda a, b: (a < b) * b - (b < a) * 1),
    ("-(a < b)", lambda a, b: -1.0 * (a < b)),
    ("b - 2 * a + 1.5", lambda a, b: b - 2 * a + a.dtype.type(1.5)),
    ("1", lambda a, b: np.ones(())),
]  # fmt: skip
ROUNDED_FORMS = [
    ("exp(a - b)", lambda a, b: np.exp(a - b)), ("log(a)", lambda a, b: np.log(a)),
    ("log1p(b)", lambda a, b: np.log1p(b)),
    ("expm1(a)", lambda a, b: np.expm1(a)), ("sqrt(a * b)", lambda a, b: np.sqrt(a * b)),
    ("logaddexp(a, b)", np.logaddexp), ("exp(a < b)", lambda a, b: np.exp((a < b).astype(a.dtype))),
]  # fmt: skip


def outer(mul, a, b, add="max(a, b)"):
    """a[i] ⊗ b[j]: a product over k = 1 is ⊗ itself."""
    return sm.matmul(a[:, None], b[None, :], own(add, mul))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("text", "function"), FLOAT_FORMS, ids=[t for t, _ in FLOAT_FORMS])
def test_every_operation_on_floats(text, function, dtype):
    x = VALUES.astype(dtype)
    a, b = x[:, None], x[None, :]
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(function(a, b), (x.size, x.size))
    assert_array_equal(outer(text, x, x), expected.astype(dtype))


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("text", "function"), ROUNDED_FORMS, ids=[t for t, _ in ROUNDED_FORMS])
def test_every_function_on_floats(text, function, dtype):
    x = VALUES.astype(dtype)
    with np.errstate(all="ignore"):
        expected = np.broadcast_to(function(x[:, None], x[None, :]), (x.size, x.size))
    assert_allclose(outer(text, x, x), expected, rtol=4 * np.finfo(dtype).eps)


def test_signs_of_zero_in_division():
    x, y = np.array([0.0, -0.0, 1.0, -1.0, 5.0]), np.array([0.0, -0.0, 3.0, -3.0, inf, -inf])
    with np.errstate(all="ignore"):
        for text, function in (("a // b", np.floor_divide), ("a % b", np.remainder)):
            result, expected = outer(text, x, y), function(x[:, None], y)
            assert_array_equal(result, expected)
            assert_array_equal(
                np.signbit(result)[~np.isnan(result)], np.signbit(expected)[~np.isnan(expected)]
            )


INTEGER_FORMS = [
    ("a + b", np.add), ("a - b", np.subtract), ("a * b", np.multiply),
    ("a // b", np.floor_divide), ("a % b", np.remainder),
    ("min(a, -b)", lambda a, b: np.minimum(a, -b)),
    ("abs(a) - abs(b)", lambda a, b: abs(a) - abs(b)),
    ("a if b > 0 else -b", lambda a, b: np.where(b > 0, a, -b)),
    ("(a < b) + 2 * (b <= 3)", lambda a, b: (a < b) * 1 + 2 * (b <= 3)),
    ("(a != b) * a", lambda a, b: (a != b) * a), ("-(a >= b)", lambda a, b: -1 * (a >= b)),
    ("a // 3 - b % -5", lambda a, b: a // 3 - b % -5), ("1", lambda a, b: 0 * a * b + 1),
]  # fmt: skip


@pytest.mark.parametrize("dtype", ["i2", "i8"])
@pytest.mark.parametrize(("text", "function"), INTEGER_FORMS, ids=[t for t, _ in INTEGER_FORMS])
def test_every_operation_on_integers(text, function, dtype):
    x = np.array([-128, -127, -50, -7, -3, -2, -1, 0, 1, 2, 3, 4, 7, 50, 126, 127], dtype)
    s = own("max(a, b)", text, 0)
    with np.errstate(all="ignore"):
        expected = function(x[:, None].astype("i8"), x[None, :].astype("i8"))
    assert_array_equal(sm.matmul(x[:, None], x[None, :], s), expected)
    deep = sm.matmul(np.stack([x, x[::-1]], 1), np.stack([x, x[::-1]]), s)
    assert_array_equal(deep, np.maximum(expected, expected[::-1, ::-1]))


BIT_FORMS = [
    ("a | b", "a & b", -1, np.bitwise_or, np.bitwise_and),
    ("a ^ b", "a & b", -1, np.bitwise_xor, np.bitwise_and),
    ("a & b", "a | b", 0, np.bitwise_and, np.bitwise_or),
    ("a | b", "a ^ b", 0, np.bitwise_or, np.bitwise_xor),
    ("a | b", "~(~a | ~b)", -1, np.bitwise_or, np.bitwise_and),
]


@pytest.mark.parametrize("dtype", ["i1", "i8", "u2"])
@pytest.mark.parametrize(("add", "mul", "one", "add_np", "mul_np"), BIT_FORMS)
def test_bits_of_integers(add, mul, one, add_np, mul_np, dtype):
    info = np.iinfo(dtype)
    ones = info.max if dtype[0] == "u" else -1
    s = own(add, mul, ones if add == "a & b" else 0, ones if one else 0)
    rng = np.random.default_rng(1)
    a, b = (rng.integers(info.min, info.max, x, dtype, endpoint=True) for x in ((9, 40), (40, 20)))
    expected = add_np.reduce(mul_np(a[:, :, None], b), axis=1)
    assert_array_equal(sm.matmul(a, b, s), expected)


def test_sums_over_a_multiplication_of_ones_own():
    rng = np.random.default_rng(2)
    a, b = (rng.integers(-9, 10, s) for s in ((30, 50), (50, 40)))
    for dtype in ("f4", "f8", "i4"):
        x, y = a.astype(dtype), b.astype(dtype)
        distance = own("a + b", "abs(a - b)", 0, 0)
        assert_array_equal(sm.matmul(x, y, distance), abs(x[:, :, None] - y).sum(1))
        equal = own("a + b", "a == b", 0, 1)
        assert_array_equal(sm.matmul(x, y, equal), (x[:, :, None] == y).sum(1))
        chebyshev = own("max(a, b)", "abs(a - b)", -inf, 0)
        assert_array_equal(sm.matmul(x, y, chebyshev), abs(x[:, :, None] - y).max(1))


def test_an_addition_of_ones_own():
    """A probabilistic or: exact on halves, and folded in any order."""
    noisy_or = own("a + b - a * b", "a * b", 0, 1)
    rng = np.random.default_rng(3)
    a, b = (rng.integers(0, 2, s) * 0.5 for s in ((25, 9), (9, 33)))
    expected = 1 - np.prod(1 - a[:, :, None] * b, axis=1)
    assert_array_equal(sm.matmul(a, b, noisy_or), expected)
    assert_array_equal(sm.matmul(a, b[:, 0], noisy_or), expected[:, 0])
    with pytest.raises(TypeError, match=r"how far ⊕ = a \+ b - a \* b can grow is not known"):
        sm.matmul(a.astype("i4"), b.astype("i4"), noisy_or)


@pytest.mark.parametrize(
    ("semiring", "dtype", "words"),
    [
        (own(mul="a / b"), "i4", "own on int32: '/' has no integer meaning; use float32"),
        (own(mul="sqrt(a)"), "i4", "'sqrt' has no integer meaning"),
        (own(mul="a + 0.5"), "i4", "the constant 0.5 is not an integer"),
        (own(mul="a & b"), "f4", "own works on bits .*no float32 form: use dtype bool"),
        (own("a | b", "a & b", 0, 1), "i4", "one = 1 is not neutral, since 1 ⊗ 2 = 0"),
        (own("max(a, b)", "a - b", 0, 0), "?", "own is not closed on bool: with a = 0, b = 1"),
        (own("max(a, b)", "a + 2", 0, 0), "?", "the expression 'a \\+ 2' gives 2"),
    ],
    ids=str,
)
def test_dtypes_that_a_semiring_has_no_meaning_in(semiring, dtype, words):
    x = np.ones((3, 3), dtype)
    with pytest.raises(TypeError, match=words):
        sm.matmul(x, x, semiring)


def test_every_truth_table_on_bool():
    """All ⊗ of two truth values, under ⊕ = or, on packed bits and byte by byte."""
    rng = np.random.default_rng(4)
    a, b = rng.random((20, 30)) < 0.1, rng.random((30, 70)) < 0.2
    tables = {
        "0": None, "a & b": lambda x, y: x & y, "a & ~b": lambda x, y: x & ~y,
        "a > b": lambda x, y: x & ~y, "a == b": lambda x, y: x == y, "a <= b": lambda x, y: ~x | y,
        "max(a, 1 - b)": lambda x, y: x | ~y, "~(a | b)": lambda x, y: ~(x | y),
        "a != b": lambda x, y: x ^ y, "1 - a * b": lambda x, y: ~(x & y),
        # dividing by zero gives zero, as of integers
        "a // b": lambda x, y: x & y, "a % b": lambda x, y: x & ~x,
        "(a % b) == 0": lambda x, y: x | ~x,
    }  # fmt: skip
    for text, function in tables.items():
        s = own("max(a, b)", text, 0, 1)
        terms = (
            np.zeros((20, 30, 70), bool)
            if text == "0"
            else function(*np.broadcast_arrays(a[:, :, None], b))
        )
        assert_array_equal(sm.matmul(a, b, s), terms.any(1), err_msg=text)
        assert_array_equal(sm.matmul(a, b[:, 3], s), terms[:, :, 3].any(1), err_msg=text)
        every = own("min(a, b)", text, 1, 1)
        assert_array_equal(sm.matmul(a, b, every), terms.all(1), err_msg=text)


# --- a twin of a built-in -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "add", "mul"),
    [
        ("min_plus", "min(a, b)", "a + b"), ("min_plus", "a if a < b else b", "(a + b)"),
        ("max_min", "a if a >= b else b", "min(a, b)"), ("plus_times", "a + b", "a * b"),
    ],
)  # fmt: skip
def test_a_twin_shares_the_compiled_code(name, add, mul):
    original = sm.semirings[name]
    twin = sm.Semiring("twin", add, mul, original.zero, original.one)
    rng = np.random.default_rng(5)
    a, b = (rng.random(s).astype("f4") for s in ((30, 31), (31, 32)))
    expected = sm.matmul(a, b, name)
    compiled = product_code.cache_info().misses
    assert compiled
    assert_array_equal(sm.matmul(a, b, twin), expected)
    assert product_code.cache_info().misses == compiled  # nothing was added
    other = sm.Semiring("other", "max(a, b)", f"a - {compiled} * b", 0, 1)
    sm.matmul(a, b, other)
    assert product_code.cache_info().misses == compiled + 1
