"""The kernels of chains on the host, against the CPU engine; see tests/gpu/test_kernels.py."""

import numpy as np
import pytest
import reference
from host_device import HostDevice, guarded
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm
from semiring_mm.cpu import chain as cpu
from semiring_mm.gpu import chain, device, wide

inf, nan = np.inf, np.nan
pytestmark = pytest.mark.usefixtures("gxx")
HOST = HostDevice()
LENGTHS = np.array([6, 3, 0, 1])
BATCH, STEPS = 4, 6


@pytest.fixture(autouse=True)
def _host(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: HOST)


@pytest.fixture(params=[True, False], ids=["registers", "memory"])
def held(request, monkeypatch):
    """Whether the number of states is known to the compiler."""
    monkeypatch.setattr(chain, "_HELD", 128 if request.param else 0)


def same(name, found, expected):
    if sm.semirings[name].selective:
        assert_array_equal(found, expected)
    else:
        eps = 1e-5 if found.dtype.itemsize < 8 else 1e-13
        assert_allclose(found, expected, rtol=eps, atol=eps)


def numbers(name, shape, dtype, rng):
    x = rng.integers(-3, 4, shape).astype(dtype)
    if np.dtype(dtype).kind == "f" and sm.semirings[name].zero == -inf:
        x[rng.random(shape) < 0.3] = -inf
    return x


@pytest.mark.parametrize(
    ("name", "dtype", "n", "shared", "factored"),
    [
        ("max_plus", "f4", 5, True, True), ("log_plus", "f4", 5, True, True),
        ("log_plus", "f8", 34, False, True), ("plus_times", "f8", 5, False, False),
        ("min_plus", "i4", 3, False, True), ("max_times", "f2", 34, True, True),
        ("lor_land", "?", 3, False, False),
    ],
)  # fmt: skip
def test_rows_through_chains(held, name, dtype, n, shared, factored):
    rng = np.random.default_rng(3)
    semiring = sm.semirings[name]
    a = numbers(name, (n, n) if shared else (BATCH, STEPS, n, n), dtype, rng)
    a = np.broadcast_to(a, (BATCH, STEPS, n, n)) if shared else a.swapaxes(-1, -2)
    e = numbers(name, (BATCH, STEPS, n), dtype, rng) if factored else None
    x = numbers(name, (BATCH, 1, n), dtype, rng)
    if dtype == "i4":
        e[1, 2] = semiring.identities(np.dtype(dtype))[0]
    for given, every, reverse, exclusive in (
        (x, True, False, False), (x, False, True, False), (None, True, True, True),
        (None, False, False, False),
    ):  # fmt: skip
        rows = n if given is None else 1
        shape = (BATCH, STEPS if every else 1, rows, n)
        found, expected = (np.full(shape, reference.small(rng, name, (1,), np.dtype(dtype), 0, 1))
                           for _ in "xy")  # fmt: skip
        expected = found.copy()
        for verbs, y in ((chain, found), (cpu, expected)):
            verbs.carry(
                semiring, a, e, given, y, LENGTHS, every=every, reverse=reverse,
                exclusive=exclusive,
            )  # fmt: skip
        same(name, found, expected)


@pytest.mark.parametrize(
    ("name", "dtype", "n", "shared", "factored"),
    [
        ("max_plus", "f4", 5, True, True), ("log_plus", "f4", 5, True, True),
        ("log_plus", "f8", 3, False, False), ("min_max", "f8", 3, False, True),
        ("xor_land", "?", 3, False, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("parts", [2, 7])
def test_long_chains_are_cut_in_parts(name, dtype, n, shared, factored, parts, monkeypatch):
    rng, steps, lengths = np.random.default_rng(4), 23, np.array([23, 9, 0, 1])
    semiring = sm.semirings[name]
    a = numbers(name, (n, n) if shared else (BATCH, steps, n, n), dtype, rng)
    a = np.broadcast_to(a, (BATCH, steps, n, n))
    e = numbers(name, (BATCH, steps, n), dtype, rng) if factored else None
    x = numbers(name, (BATCH, 1, n), dtype, rng)
    monkeypatch.setattr(chain, "_parts", lambda *_: parts)
    for given, every, exclusive in (
        (x, True, False), (x, False, False), (None, True, True), (None, False, False),
        (x, True, True), (None, True, False),
    ):  # fmt: skip
        rows = n if given is None else 1
        shape = (BATCH, steps if every else 1, rows, n)
        found = np.full(shape, reference.small(rng, name, (1,), np.dtype(dtype), 0, 1))
        expected = found.copy()
        for verbs, y in ((chain, found), (cpu, expected)):
            verbs.carry(
                semiring, a, e, given, y, lengths, every=every, reverse=False, exclusive=exclusive
            )
        same(name, found, expected)


@pytest.mark.parametrize(("n", "dtype"), [(9, "f4"), (32, "f4"), (18, "f8")])
@pytest.mark.parametrize("what", ["near", "far", "impossible", "not finite"])
def test_products_of_matrices(n, dtype, what, monkeypatch):
    """In parts, of which the products are multiplied once more; by logarithms where need be."""
    rng, steps, lengths = np.random.default_rng(n), 70, np.array([70, 33, 0, 1])
    a = rng.normal(0, 60 if what == "far" else 1, (BATCH, steps, n, n)).astype(dtype)
    a[rng.random(a.shape) < 0.2] = -inf
    if what == "impossible":
        a[0, 40, :, 3:], a[0, 41, :3], a[1, 5] = -inf, -inf, -inf
    if what == "not finite":
        a[0, 9, 2, 3], a[1, 7, 1, 1], a[3, 0, 5, 5] = nan, inf, inf
    monkeypatch.setattr(HOST, "sms", 3)
    found = np.full((BATCH, 1, n, n), 7, dtype)
    expected = found.astype("f8")
    HOST.launched.clear()
    for verbs, y in ((chain, found), (cpu, expected)):
        verbs.carry(
            sm.semirings["log_plus"], a.astype(y.dtype).swapaxes(-1, -2), None, None, y, lengths,
            every=False, reverse=False, exclusive=False,
        )  # fmt: skip
    assert ["ChainProduct" in x for x in HOST.launched] == [True] * 2
    eps = 1e-6 if dtype == "f4" else 1e-13
    assert_allclose(found, expected, rtol=eps, atol=eps * (900 if what == "far" else 30))


def test_chains_that_are_cut(monkeypatch):
    """Few and long ones, of not too many states, over semirings whose parts cannot overflow."""
    monkeypatch.setattr(HOST, "sms", 132)
    one = np.array([10_000])
    assert chain._parts(32, 1, one) == 66
    assert chain._parts(32, 1, np.array([1000])) == 1
    assert chain._parts(32, 1, np.full(256, 1000)) == 1
    assert chain._parts(1024, 1, one) == 1
    for name, expected in (("log_plus", True), ("max_plus", True), ("plus_times", False)):
        assert chain._associates(sm.semirings[name], np.dtype("f4")) == expected
    assert not chain._associates(sm.semirings["max_plus"], np.dtype("f2"))


def model(n, dtype, shared, far=False):
    rng = np.random.default_rng(n)
    a = rng.normal(size=(n, n) if shared else (BATCH, STEPS - 1, n, n)).astype(dtype)
    e = rng.normal(size=(BATCH, STEPS, n)).astype(dtype)
    a[..., 0, 1] = -inf
    if far:  # what is likely at first is impossible in the end, and sums leave the range
        a[..., 0, :], a[..., 1, 0] = -inf, -300
        e[:, 2] -= 400
        e[:, 3, 0] += 150
    if shared:
        a = np.broadcast_to(a, (BATCH, STEPS - 1, n, n))
    return a, e, e[:, 0].copy(), rng.normal(size=(BATCH, n)).astype(dtype)


@pytest.mark.parametrize(("n", "shared"), [(5, True), (3, False), (34, True)])
def test_best_paths(held, n, shared):
    a, e, x, end = model(n, "f4", shared)
    a, e, x, end = (np.round(2 * v) for v in (a, e, x, end))  # ties
    e[3, 0, 2] = nan
    results = []
    for verbs in (chain, cpu):
        path, score = np.full((BATCH, STEPS), -1, np.int32), np.zeros(BATCH, "f4")
        verbs.best_path(sm.semirings["max_plus"], a, e, x, end, path, score, LENGTHS)
        results += [path, score]
    assert_array_equal(results[0], results[2])
    assert_array_equal(results[1], results[3])


@pytest.mark.parametrize("far", [False, True])
@pytest.mark.parametrize(
    ("n", "dtype", "shared", "each"),
    [
        (5, "f4", True, False),
        (5, "f8", True, True),
        (3, "f4", False, True),
        (34, "f8", True, False),
    ],
)
def test_probabilities(held, n, dtype, shared, each, far):
    a, e, x, end = model(n, dtype, shared, far)
    if far:
        end[3] = -inf  # no sequence is possible
    results = []
    for verbs in (chain, cpu):
        total, out = np.zeros(BATCH, dtype), np.zeros((BATCH, STEPS, n), dtype)
        pairs = np.zeros((BATCH, STEPS - 1 if each else 1, n, n), dtype)
        verbs.posterior(a, e, x, end, total, out, pairs, LENGTHS)
        alone = np.zeros_like(out)
        verbs.posterior(a, e, x, end, np.zeros(BATCH, dtype), alone, None, LENGTHS)
        assert_allclose(alone, out, atol=1e-6)
        only = np.zeros(BATCH, dtype)
        verbs.posterior(a, e, x, end, only, None, None, LENGTHS)
        assert_allclose(only, total, rtol=1e-6)
        results.append((total, out, pairs))
    for found, expected in zip(*results, strict=True):
        eps = 2e-4 if dtype == "f4" and far else 1e-5 if dtype == "f4" else 1e-12
        assert_allclose(found, expected, rtol=eps, atol=eps)


@pytest.mark.parametrize("n", [8, 40])
@pytest.mark.parametrize("mask", [-inf, -1e4, -1e9, -90])
@pytest.mark.parametrize("spread", [1, 30, 300, 1e6])
def test_numbers_far_apart(spread, mask, n):
    """Exponentials that leave the range of float32 at once, later, or by turns."""
    rng, steps = np.random.default_rng(n), 40
    lengths = np.array([steps, steps, 25, 1])
    a = rng.normal(size=(n, n)).astype("f4")
    a[np.arange(n) > np.arange(n)[:, np.newaxis] + 1] = mask  # one state further at most
    e = rng.normal(0, spread, (BATCH, steps, n)).astype("f4")
    x, end = e[:, 0].copy(), np.full((BATCH, n), mask, "f4")
    x[0, 1:], end[:, -1] = mask, 0
    results = []
    for verbs, dtype in ((chain, "f4"), (cpu, "f8")):
        given = [v.astype(dtype) for v in (np.broadcast_to(a, (BATCH, steps - 1, n, n)), e, x, end)]
        shared = np.broadcast_to(a.astype(dtype), given[0].shape)
        total, only, ends = np.zeros(BATCH, dtype), np.zeros(BATCH, dtype), []
        out, pairs = np.zeros((BATCH, steps, n), dtype), np.zeros((BATCH, 1, n, n), dtype)
        verbs.posterior(shared, *given[1:], total, out, pairs, lengths)
        verbs.posterior(shared, *given[1:], only, None, None, lengths)
        for reverse in (False, True):
            rows = np.zeros((BATCH, steps - 1, 1, n), dtype)
            verbs.carry(
                sm.semirings["log_plus"], shared, given[1][:, 1:], given[2][:, np.newaxis], rows,
                lengths - 1, every=True, reverse=reverse, exclusive=False,
            )  # fmt: skip
            ends.append(rows)
        results.append((total, only, out, pairs, *ends))
    for i, (found, expected) in enumerate(zip(*results, strict=True)):
        # logarithms, some near 0, are what is left of sums as large as the numbers
        assert_allclose(found, expected, rtol=2e-6, atol=5e-5 if i in (2, 3) else 1e-5 * spread)


@pytest.mark.parametrize(("n", "dtype", "k"), [(5, "f4", 4), (2, "f8", 9), (40, "f4", 3)])
def test_the_best_paths(n, dtype, k):
    """Of two states and up to three steps there are fewer than nine."""
    a, e, x, end = model(n, dtype, n == 5)
    results = []
    for verbs in (chain, cpu):
        paths, scores = np.full((BATCH, k, STEPS), -1, np.int32), np.full((BATCH, k), -inf, dtype)
        verbs.best_paths(sm.semirings["max_plus"], a, e, x, end, paths, scores, LENGTHS)
        results.append((paths, scores))
    for found, expected in zip(*results, strict=True):
        assert_array_equal(found, expected)
    path, score = np.full((BATCH, STEPS), -1, np.int32), np.full(BATCH, -inf, dtype)
    chain.best_path(sm.semirings["max_plus"], a, e, x, end, path, score, LENGTHS)
    assert_array_equal(results[0][0][:, 0], path)
    assert_array_equal(results[0][1][:, 0], score)


def test_the_best_paths_of_what_is_no_number():
    """NaN is better than any number; what is -inf is no path, also where +inf is met later."""
    a, e, x, end = model(3, "f4", True)
    a = np.where(np.arange(3) == 1, -inf, np.zeros_like(a))  # nothing leads to state 1
    e[0, 4, 1], e[1, 1, 2] = inf, nan
    paths, scores = np.full((BATCH, 2, STEPS), -1, np.int32), np.full((BATCH, 2), -inf, "f4")
    chain.best_paths(sm.semirings["max_plus"], a, e, x, end, paths, scores, LENGTHS)
    assert (paths[0, :, 1:] != 1).all()
    assert np.isfinite(scores[0]).all()
    assert np.isnan(scores[1]).all()
    assert (paths[1, :, 1] == 2).all()


def test_the_most_paths(monkeypatch):
    a, e, x, end = model(40, "f4", True)
    paths, scores = np.empty((BATCH, 400, STEPS), np.int32), np.empty((BATCH, 400), "f4")
    with pytest.raises(NotImplementedError, match="40 states the 302 best sequences are found"):
        chain.best_paths(sm.semirings["max_plus"], a, e, x, end, paths, scores, LENGTHS)


@pytest.mark.parametrize("parts", [2, 3, 5])
def test_long_models_are_cut_in_parts(parts, monkeypatch):
    """Each part as a chain of its own, from what comes before it and what is behind it."""
    monkeypatch.setattr(chain, "_parts", lambda *_: parts)
    for shared in (True, False):
        a, e, x, end = (np.round(2 * v) for v in model(5, "f4", shared))  # no sum is rounded
        found, expected = (
            (np.full((BATCH, STEPS), -1, np.int32), np.zeros(BATCH, "f4")) for _ in "xy"
        )
        for verbs, results in ((chain, found), (cpu, expected)):
            verbs.best_path(sm.semirings["max_plus"], a, e, x, end, *results, LENGTHS)
        assert_array_equal(found[1], expected[1])
        for b, (path, length) in enumerate(zip(found[0], LENGTHS, strict=True)):
            own, rest = path[:length], np.arange(length)
            total = x[b, own[:1]].sum() + e[b, rest[1:], own[1:]].sum() + end[b, own[-1:]].sum()
            assert total + a[b, rest[:-1], own[:-1], own[1:]].sum() == expected[1][b]
            assert (path[length:] == -1).all()
    for far in (False, True):
        a, e, x, end = model(5, "f4", True, far)
        end[0] = -inf if far else end[0]
        results = []
        for verbs in (chain, cpu):
            given = (np.zeros(s, "f4") for s in (BATCH, (BATCH, STEPS, 5), (BATCH, 1, 5, 5)))
            results.append([*given])
            verbs.posterior(a, e, x, end, *results[-1], LENGTHS)
            results[-1].append(np.zeros(BATCH, "f4"))
            verbs.posterior(a, e, x, end, results[-1][-1], None, None, LENGTHS)
        for one, other in zip(*results, strict=True):
            assert_allclose(one, other, rtol=2e-4, atol=2e-4 if far else 1e-5)


@pytest.mark.parametrize(("n", "shared"), [(5, True), (3, False), (70, True)])
def test_draws(n, shared):
    """The same uniform numbers, 0 and almost 1 among them, draw the same sequences."""
    a, e, x, end = model(n, "f8", shared)
    uniforms = np.random.default_rng(1).random((9, BATCH, STEPS))
    uniforms[0], uniforms[1] = 0, np.nextafter(1, 0)
    if shared:  # from each state to the next two
        a = np.where((np.arange(n) - np.arange(n)[:, np.newaxis]) % n < 2, a, -inf)
    found, expected = (np.full(uniforms.shape, -1, np.int32) for _ in "xy")
    for verbs, paths in ((chain, found), (cpu, expected)):
        verbs.draw(a, e, x, end, uniforms, paths, LENGTHS)
    assert_array_equal(found, expected)
    assert (found >= 0).sum() == 9 * LENGTHS.sum()


def test_where_there_is_no_matrix(held):
    """Sequences of one step: a device may give an array of none any strides."""
    nothing = np.lib.stride_tricks.as_strided(
        guarded((0,), np.dtype("f4"), 0), (2, 0, 3, 3), (0, 0, 12, 4)
    )
    x, lengths = np.array([[1, 5, 2], [3, 0, -1]], "f4"), np.array([1, 1])
    path, score = np.full((2, 1), -1, np.int32), np.zeros(2, "f4")
    chain.best_path(sm.semirings["max_plus"], nothing, x[:, None], x, x, path, score, lengths)
    assert_array_equal(path, [[1], [0]])
    assert_array_equal(score, [10, 6])
    out, pairs = np.zeros((2, 1, 3), "f4"), np.zeros((2, 0, 3, 3), "f4")
    chain.posterior(nothing, x[:, None], x, x, score, out, pairs, lengths)
    assert_allclose(score, np.logaddexp.reduce(2 * x, 1), rtol=1e-6)
    assert_allclose(out.sum(-1), 1, rtol=1e-6)


#: Groups of blocks, blocks of each, whether these hold their columns, rows that a thread multiplies
#: at once, and rows of a block.
SHAPES = [(1, 4, True, 8, 64), (2, 2, False, 2, 2), (4, 1, True, 4, 4)]


@pytest.fixture(params=SHAPES, ids=str)
def many(request, monkeypatch):
    """States are too many to be held, and chains too many for the memory at once."""
    groups, members, held, tile, most = request.param
    monkeypatch.setattr(wide, "_HELD", 3)
    monkeypatch.setattr(wide, "_MOST", 1 << 14)
    monkeypatch.setattr(wide, "_ROWS", tile)
    monkeypatch.setattr(wide, "_PASS", most)

    def shape(n, rows, word, sms, limit, path):
        each = -(-rows // min(groups, rows))
        found = wide._shaped(n, each, members, word, limit, path, held)[1]
        return found._replace(groups=-(-rows // each))

    monkeypatch.setattr(wide, "_shape", shape)


@pytest.mark.parametrize("exclusive", [False, True])
@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize(
    ("name", "dtype"), [("log_plus", "f4"), ("max_plus", "f4"), ("plus_times", "f8")]
)
def test_rows_through_chains_of_many_states(many, name, dtype, reverse, exclusive):
    rng, semiring, n = np.random.default_rng(5), sm.semirings[name], 11
    a = np.broadcast_to(numbers(name, (n, n), dtype, rng), (BATCH, STEPS, n, n))
    e = numbers(name, (BATCH, STEPS, n), dtype, rng)
    x = numbers(name, (BATCH, 2, n), dtype, rng)
    assert wide.serves(semiring, a, reverse=reverse)
    for every in (False, True):
        for given in ((None, None), (e, None), (None, x), (e, x)):
            shape = (BATCH, STEPS if every else 1, n if given[1] is None else 2, n)
            found, expected = np.full((2, *shape), 7, dtype)
            for engine, y in ((chain, found), (cpu, expected)):
                engine.carry(semiring, a, *given, y, LENGTHS, every=every, reverse=reverse,
                             exclusive=exclusive)  # fmt: skip
            same(name, found, expected)


@pytest.mark.parametrize(("name", "dtype"), [("max_plus", "f4"), ("min_times", "f8")])
def test_best_paths_of_many_states(many, name, dtype):
    """With ties, a NaN, and chains that no path of another score than zero leads through."""
    rng, semiring, n = np.random.default_rng(7), sm.semirings[name], 11
    a = np.broadcast_to(abs(numbers(name, (n, n), dtype, rng)), (BATCH, STEPS - 1, n, n))
    e = abs(numbers(name, (BATCH, STEPS, n), dtype, rng))
    e[0, 3, 2], e[1] = nan, semiring.zero
    end = abs(numbers(name, (BATCH, n), dtype, rng))
    found, expected = ((np.full((BATCH, STEPS), -1, "i4"), np.full(BATCH, 7, dtype)) for _ in "fe")
    for engine, (path, score) in ((chain, found), (cpu, expected)):
        engine.best_path(semiring, a, e, e[:, 0], end, path, score, LENGTHS)
    assert_array_equal(found[1], expected[1])
    assert_array_equal(found[0], expected[0])


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("spread", [1, 40, 3000])
def test_probabilities_of_many_states(many, spread, dtype):
    """With sums to be computed term by term, a NaN, infinities, and no sequence at all."""
    rng, n = np.random.default_rng(spread), 11
    a = rng.normal(size=(n, n)) * spread
    a[rng.random((n, n)) < 0.3] = -inf
    e, end = rng.normal(size=(BATCH, STEPS, n)) * spread, rng.normal(size=(BATCH, n))
    if spread == 40:
        a[2], e[1], e[0, 4, 3] = -inf, -inf, nan
    lengths = np.array([6, 6, 0, 4]) if spread == 40 else LENGTHS
    exact = None
    for kind, engine in (("f8", cpu), (dtype, chain)):
        wider = np.broadcast_to(a.astype(kind), (BATCH, STEPS - 1, n, n))
        model = wider, e.astype(kind), e[:, 0].astype(kind), end.astype(kind)
        for wanted in (0, 1, 2):
            total, out = np.zeros(BATCH, kind), np.zeros(e.shape, kind) if wanted else None
            pairs = np.ones((BATCH, 1, n, n), kind) if wanted > 1 else None
            engine.posterior(*model, total, out, pairs, lengths)
        if exact is None:
            exact = total, out, pairs
        else:
            eps = 1e-5 + 1e-6 * spread if dtype == "f4" else 1e-11  # of logarithms that large
            for found, expected in zip((total, out, pairs), exact, strict=True):
                assert_allclose(found, expected, rtol=max(eps / 10, 1e-12), atol=eps)


def test_one_impossible_step_has_no_pairs(many):
    e, a = np.zeros((2, 3, 11)), np.zeros((2, 2, 11, 11))
    a, e[0, 0] = np.broadcast_to(a[:1, :1], a.shape), -inf
    total, out, pairs = np.zeros(2), np.zeros(e.shape), np.ones((2, 1, 11, 11))
    chain.posterior(a, e, e[:, 0], np.zeros((2, 11)), total, out, pairs, np.array([1, 3]))
    assert total[0] == -inf
    assert np.isnan(out[0, 0]).all()
    assert_allclose(pairs[:, 0], np.broadcast_to([[[1]], [[1 + 2 / 121]]], (2, 11, 11)))


def walk(name, dtype, entry, start, steps, factor=None, **options):
    """One state through the same matrix at each step."""
    a = np.broadcast_to(np.array(entry, dtype), (1, steps, 1, 1))
    e = None if factor is None else np.full((1, steps, 1), factor, dtype)
    y = np.zeros((1, 1, 1, 1), dtype)
    chain.carry(
        sm.semirings[name], a, e, np.full((1, 1, 1), start, dtype), y, np.array([steps]),
        **{"every": False, "reverse": False, "exclusive": False} | options,
    )  # fmt: skip
    return y.item()


def test_integers_fit_at_each_step(held):
    """Not at the last one only: 2^64 in 64 bits is 0."""
    assert walk("plus_times", "i4", 2, 1, 30) == 1 << 30
    assert walk("plus_times", "i4", 1, 1, 10, 2) == 1 << 10
    for call in (
        lambda: walk("plus_times", "i4", 2, 1, 31), lambda: walk("plus_times", "i4", 2, 1, 64),
        lambda: walk("plus_times", "i4", 1, 1, 64, 2),
        lambda: walk("plus_times", "i4", 1, 1, 64, 2, reverse=True),
        lambda: walk("max_times", "i1", 1, 64, 1, 4),
    ):  # fmt: skip
        with pytest.raises(OverflowError, match="does not fit int"):
            call()


def test_an_infinity_stays_one():
    """However far the finite numbers that are added to it would move it."""
    assert walk("min_plus", "i1", -100, 127, 163) == 127
    assert walk("max_plus", "i1", 100, -128, 163) == -128


def test_what_is_left_to_the_host():
    one = np.zeros((1, 2, 1025, 1025), "f4")
    with pytest.raises(NotImplementedError, match="more than 1024 states run on the host"):
        chain.carry(sm.semirings["max_plus"], one, None, None, one, np.array([2]), every=False,
                    reverse=False, exclusive=False)  # fmt: skip
    wide = np.full((1, 2, 2, 2), 2**62)
    with pytest.raises(NotImplementedError, match="chains of int64 over plus_times"):
        chain.carry(sm.semirings["plus_times"], wide, None, None, wide, np.array([2]),
                    every=False, reverse=False, exclusive=False)  # fmt: skip
