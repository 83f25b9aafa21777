"""Chains of products are products one after the other: all prefixes, the whole, or a vector."""

import numpy as np
import pytest
import reference as ref
from numpy.testing import assert_array_equal

import semiring_mm as sm

inf = np.inf
RNG = np.random.default_rng(17)
ROW = sm.Semiring("row_first", "min(a, b)", "a + 2 * b", inf, 0)  # ⊗ does not commute


def operands(name, dtype, batch, steps, n):
    """Matrices, emissions and a vector, small whole numbers with some zeros of the semiring."""
    s = name if isinstance(name, sm.Semiring) else sm.semirings[name]
    found = []
    for shape in ((*batch, steps, n, n), (*batch, steps, n), (*batch, n)):
        x = RNG.random(shape) < 0.4 if dtype == "?" else RNG.integers(0, 3, shape).astype(dtype)
        x[RNG.random(shape) < 0.15] = s.identities(dtype)[0]
        found.append(x)
    return found


def one_by_one(s, matrices, first=None):
    """All prefixes by :func:`semiring_mm.matmul`."""
    found = []
    for t in range(matrices.shape[-3]):
        here = matrices[..., t, :, :]
        first = here if first is None else sm.matmul(first, here, s)
        found.append(first)
    return np.stack(found, -3)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("inclusive", [False, True])
def test_ragged_lengths(reverse, inclusive):
    """Each chain by itself; many of them, so that some go on together and threads take parts."""
    lengths = RNG.integers(0, 8, (4, 10))
    a, e, x = operands("max_plus", "f8", (4, 10), 7, 6)
    options = {"reverse": reverse, "inclusive": inclusive}
    shared = a[0, 0, 0]
    for matrices, emissions in ((a, None), (shared, e), (a, e)):
        for start in (x, None):
            found = sm.scan(matrices, "max_plus", x=start, emissions=emissions, lengths=lengths,
                            **options)  # fmt: skip
            last = sm.chain(matrices, start, "max_plus", emissions=emissions, lengths=lengths,
                            reverse=reverse)  # fmt: skip
            for b in np.ndindex(4, 10):
                n = lengths[b]
                own = shared[np.newaxis] if matrices is shared else a[b][:n]
                if n:
                    parts = (
                        (own, "max_plus"),
                        {
                            "x": None if start is None else start[b],
                            "emissions": None if emissions is None else e[b][:n],
                        },
                    )
                    assert_array_equal(found[b][:n], sm.scan(*parts[0], **parts[1], **options))
                    whole = sm.scan(*parts[0], **parts[1], reverse=reverse)
                    assert_array_equal(last[b], whole[0 if reverse else -1])
                else:
                    assert_array_equal(last[b], np.where(np.eye(6), 0, -inf) if start is None
                                       else start[b])  # fmt: skip
                assert (found[b][n:] == -inf).all()


def test_axes():
    a, _, _ = operands("min_plus", "f4", (2,), 5, 6)
    expected = sm.scan(a, "min_plus")
    moved = np.moveaxis(a, 1, -1)
    assert_array_equal(sm.scan(moved, "min_plus", axis=-1), np.moveaxis(expected, 1, -1))
    for axis in (4, -5):
        with pytest.raises(ValueError, match=f"axis is one of the 4 axes of a, got {axis}"):
            sm.scan(moved, "min_plus", axis=axis)
    with pytest.raises(TypeError, match=r"scan: axis must be an integer, got 1\.0"):
        sm.scan(moved, "min_plus", axis=1.0)


@pytest.mark.parametrize("name", ["max_plus", "min_plus", "log_plus", "max_times", "max_min"])
def test_infinities_and_nan(name):
    """As products have them, whichever way a step is computed: special values come at any step."""
    s, special = sm.semirings[name], np.array([inf, -inf, np.nan, 0, 0, 0, 0, 0, 0])
    for shared in (True, False):
        a, e, x = operands(name, "f8", (40,), 3, 3)
        for v in (a, e, x):
            v[...] = np.where(RNG.random(v.shape) < 0.9, v, RNG.choice(special, v.shape))
        steps = np.broadcast_to(a[0, 0], a.shape) if shared else a
        row, before = x, name == "max_times"  # which does not distribute over negative factors
        with np.errstate(invalid="ignore"):
            for t in range(3):
                own = e[:, t]
                matrix = ref.times(name, steps[:, t], own[:, np.newaxis]) if before else steps[:, t]
                row = ref.matmul(name, row[:, np.newaxis], matrix)[:, 0]
                row = row if before else ref.times(name, row, own)
        found = sm.chain(a[0, 0] if shared else a, x, name, emissions=e)
        np.testing.assert_allclose(found, row, rtol=1e-14 if "log" in s.add else 0)


def test_logarithms_far_apart():
    """Where shifted exponentials vanish, entries are computed again term by term."""
    a = np.array([[0, -400, -inf], [-900, 0, 5], [-inf, -inf, -800]])
    e = np.tile([[0, -1000.0, 3], [-2000, 7, -inf]], (30, 1))
    for dtype in ("f4", "f8"):
        row = np.zeros(3, dtype)
        for t in range(60):
            row = np.logaddexp.reduce(row[:, np.newaxis] + a.astype(dtype)) + e[t].astype(dtype)
        found = sm.chain(a.astype(dtype), np.zeros(3, dtype), "log_plus", emissions=e.astype(dtype))
        np.testing.assert_allclose(found, row, rtol=200 * np.finfo(dtype).eps)


@pytest.mark.parametrize(("n", "steps"), [(5, 2000), (100, 80)])
@pytest.mark.parametrize("reverse", [False, True])
def test_logarithms_keep_their_digits(n, steps, reverse):
    """In float32 behind many steps: what is rounded at each of them is what exceeds an offset."""
    a, e, x = (RNG.normal(size=shape).astype("f4") for shape in ((steps, n, n), (steps, n), n))
    for matrices in (a, a[0]):
        for given in (x, None):
            options = {"semiring": "log_plus", "x": given, "reverse": reverse}
            exact = sm.scan(matrices.astype("f8"), emissions=e.astype("f8"), **options)
            found = sm.scan(matrices, emissions=e, **options)
            np.testing.assert_allclose(found, exact, rtol=1.5e-7, atol=3e-6)
            last = sm.chain(matrices, emissions=e, **options)
            np.testing.assert_array_equal(last, found[0 if reverse else -1])


def test_products_of_short_floats_are_rounded_once():
    """Also by blocks for the caches."""
    a = RNG.normal(size=(20, 100, 100)).astype("f2")
    expected = sm.chain(a.astype("f4"), semiring="max_plus").astype("f2")
    assert_array_equal(sm.chain(a, semiring="max_plus"), expected)


def test_large_matrices():
    """Whole products of many states go through the blocks of a product."""
    a = RNG.integers(0, 50, (3, 100, 100)).astype("f4")
    e = RNG.integers(0, 9, (3, 100)).astype("f4")
    by_hand = one_by_one(sm.semirings.min_plus, a + e[:, np.newaxis])
    assert_array_equal(sm.scan(a, "min_plus", emissions=e), by_hand)
    assert_array_equal(sm.chain(a, semiring="min_plus", emissions=e, reverse=True), by_hand[-1])


def test_integers_never_wrap():
    a = np.full((40, 2, 2), 3)
    with pytest.raises(OverflowError, match=r"does not fit|more than 64 bits"):
        sm.chain(a)
    with pytest.raises(OverflowError, match="does not fit int8"):
        sm.chain(np.full((5, 2, 2), 60, "i1"), np.zeros(2, "i1"), "max_plus")
    huge = np.full((2, 1, 1), 1 << 62)
    with pytest.raises(OverflowError):
        sm.scan(huge, "max_plus")
    assert sm.chain(huge >> 3, semiring="min_plus").item() == 1 << 60


@pytest.mark.parametrize("dtype", ["i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8"])
@pytest.mark.parametrize("name", ["plus_times", "max_times", "min_times"])
def test_integers_never_wrap_by_emissions(name, dtype):
    """With operands, or steps in between, that alone would fit."""
    most = int(np.iinfo(dtype).max)
    one, half, two = (np.array([v], dtype) for v in (1, most // 2 + 1, 2))
    for call in (
        lambda: sm.chain(one[None, None], half, name, emissions=two[None]),
        lambda: sm.chain(one[None, None], half, name, emissions=two[None], reverse=True),
        lambda: sm.scan(one[None, None], name, x=half, emissions=two[None]),
        lambda: sm.scan(half[None, None], name, emissions=two[None]),
        lambda: sm.chain(one[None], one, name, emissions=np.full((70, 1), 2, dtype)),
    ):
        with pytest.raises(OverflowError):
            call()
    fits = half // 4
    assert sm.chain(one[None, None], fits, name, emissions=two[None]) == 2 * int(fits[0])


def test_integers_of_operations_that_do_not_commute():
    """Reversed, a row is the right operand: 2 x may not fit where x + 2 A does."""
    a, x = np.zeros((1, 1, 1), np.int64), np.array([5 << 60])
    assert sm.chain(a, x, ROW) == 5 << 60
    with pytest.raises(OverflowError):
        sm.chain(a, x, ROW, reverse=True)


def scaled(s, a, e):
    """A ⊗ diag(e) of each step, a column at a time."""
    columns = [sm.matmul(a[..., [j]], e[..., [j], np.newaxis], s) for j in range(a.shape[-1])]
    return np.concatenate(columns, -1)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("dtype", ["f8", "i4"])
@pytest.mark.parametrize("name", ["plus_min", "any_pair", "max_times", ROW], ids=str)
def test_emissions_multiply_the_matrices(name, dtype, reverse):
    """x ⊗ (A ⊗ e), also where that is not (x ⊗ A) ⊗ e, as of maxima of negative products."""
    a, e, x = (RNG.integers(-3, 4, shape).astype(dtype) for shape in ((3, 4, 4), (2, 3, 4), (2, 4)))
    options = {"reverse": reverse, "lengths": [3, 2]}
    for matrices in (a, a[:1]):
        steps = scaled(name, matrices, e)
        found = sm.chain(matrices, x, name, emissions=e, **options)
        assert_array_equal(found, sm.chain(steps, x, name, **options))
        found = sm.scan(matrices, name, emissions=e, **options)
        assert_array_equal(found, sm.scan(steps, name, **options))


def test_what_lies_behind_an_end_is_not_multiplied():
    s = sm.Semiring("least_product", "min(a, b)", "a * b * 1", inf, 1)  # of an unknown kind
    a, e = np.full((2, 3, 1, 1), 2), np.array([[[3], [5], [1 << 62]]] * 2)
    assert sm.chain(a, [1], s, emissions=e, lengths=[2, 1]).tolist() == [[60], [6]]


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: sm.chain(np.ones((2, 3, 4))), ValueError, r"square matrices.*\(2, 3, 4\)"),
        (lambda: sm.chain(np.ones((3, 3))), ValueError, r"\(S, S\) for all steps with emissions"),
        (lambda: sm.chain(np.ones((2, 3, 3)), "max_plus"), TypeError, "semiring='max_plus'"),
        (lambda: sm.chain(np.ones((2, 3, 3)), np.ones(4)), ValueError, "S = 3 states take x of"),
        (lambda: sm.scan(np.ones((2, 3, 3)), emissions=np.ones((3, 3))), ValueError, "2 steps"),
        (lambda: sm.scan(np.ones((2, 3, 3)), lengths=3), ValueError, "from 0 to the 2 steps"),
        (lambda: sm.scan(np.ones((2, 3, 3)), lengths=1.5), TypeError, "whole numbers"),
        (lambda: sm.scan(np.ones((4, 2, 3, 3)), x=np.ones((5, 3))), ValueError, "not broadcast"),
        (lambda: sm.scan(np.ones((2, 3, 3), complex)), TypeError, "complex"),
        (lambda: sm.scan(np.ones((2, 3, 3)), "lor_land"), TypeError, "works on bits"),
    ],
)
def test_what_is_refused(call, error, words):
    with pytest.raises(error, match=words):
        call()
