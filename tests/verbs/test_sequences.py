"""Hidden Markov models and random fields: against all sequences, and against hmmlearn."""

import json

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import Optional

import semiring_mm as sm
from bench import neighbours_sequences, report
from bench.measure import Line
from semiring_mm import pool, sequences
from semiring_mm.cpu import chain

hmm = Optional("hmmlearn.hmm")
inf, nan = np.inf, np.nan
BATCH = 4


def model(states, steps, each, seed=3):
    """Scores of a batch of ragged sequences, with transitions of all steps or of each."""
    rng = np.random.default_rng(seed)
    a = rng.normal(size=(BATCH, steps - 1, states, states) if each else (states, states))
    if states > 2:
        a[..., 0, 1] = -inf
    scores = {
        "emissions": rng.normal(size=(BATCH, steps, states)), "transitions": a,
        "start": rng.normal(size=states), "end": rng.normal(size=(BATCH, states)),
    }  # fmt: skip
    return scores, np.array([steps, max(0, steps - 1), 0, steps])


@pytest.mark.parametrize("each", [False, True], ids=["one matrix", "a matrix a step"])
@pytest.mark.parametrize(("states", "steps"), [(1, 1), (1, 4), (3, 4), (2, 2), (3, 1)])
def test_draws_are_as_often_as_they_are_probable(states, steps, each):
    scores, lengths = model(states, steps, each)
    probable, pairs = sequences.marginals(**scores, lengths=lengths, pairs=True)
    drawn = sequences.sample(**scores, lengths=lengths, size=3000, rng=7)
    for b, n in enumerate(lengths):
        assert (drawn[:, b, n:] == -1).all()
        often = (drawn[:, b, :, np.newaxis] == np.arange(states)).mean(0)
        assert_allclose(often, probable[b], atol=0.06)
        if n > 1:  # of pairs, too: a draw is of a whole sequence
            both = (drawn[:, b, :-1] == 0) & (drawn[:, b, 1:] == states - 1)
            expected = pairs[b, ..., 0, states - 1].sum()
            assert_allclose(both.sum(1).mean(), expected, atol=0.06 * n)


@pytest.mark.parametrize("states", [3, 8, 33])
@pytest.mark.parametrize("batch", [(), (5,), (3, 7)], ids=str)
def test_observations(batch, states):
    """Of discrete emissions: a table of scores and the symbols seen."""
    rng = np.random.default_rng(states)
    table, a, x = (rng.normal(size=shape) for shape in ((states, 11), (states, states), states))
    lengths = rng.integers(0, 31, batch)
    inside = np.arange(30) < lengths[..., np.newaxis]
    seen = np.where(inside, rng.integers(0, 11, (*batch, 30)), -7)  # which is not read
    e, tags = table.T[seen], np.zeros(seen.shape, int)
    for verb, more in (
        (sequences.viterbi, [x]), (sequences.log_partition, [x]), (sequences.forward, [x]),
        (sequences.backward, []), (sequences.marginals, [x]), (sequences.score, [tags]),
        (lambda *m, **k: sequences.viterbi(*m, k=3, **k), []),
        (lambda *m, **k: sequences.sample(*m, rng=1, **k), [x]),
    ):  # fmt: skip
        found = verb(table, a, *more, observations=seen, lengths=lengths)
        expected = verb(e, a, *more, lengths=lengths)
        for one, other in zip(*((r if isinstance(r, tuple) else (r,)) for r in (found, expected)),
                              strict=True):  # fmt: skip
            assert_array_equal(one, other)


def test_observations_of_what_is_no_number():
    seen = np.random.default_rng(0).integers(0, 4, (20, 9))
    table = np.log([[0.2, 0.3, 0.4, 0.1], [0.1, 0.1, 0.1, 0.7]])
    table[1, 2] = nan
    path, score = sequences.viterbi(table, np.zeros((2, 2)), observations=seen)
    assert_array_equal(np.isnan(score), (seen == 2).any(1))
    assert_array_equal(path, sequences.viterbi(table.T[seen], np.zeros((2, 2)))[0])


def test_observations_are_symbols_of_the_table():
    table, a = np.zeros((2, 4)), np.zeros((2, 2))
    for seen, error, text in (
        ([0, 4], ValueError, "observations must be from 0 to 3, got 0 to 4"),
        ([-1, 2], ValueError, "observations must be from 0 to 3, got -1 to 2"),
        ([0.5], TypeError, "observations are the numbers of symbols, got dtype float64"),
        (3, ValueError, r"a table of scores \(S, V\), one for each state and symbol"),
    ):
        with pytest.raises(error, match=text):
            sequences.viterbi(table, a, observations=seen)
    with pytest.raises(ValueError, match=r"got shapes \(1,\) and \(1, 2, 4\)"):
        sequences.viterbi(table[None], a, observations=[0])


STACK = r"y = np.zeros\(.*\); y\[np.arange\(max\(lengths\)\) < np.c_\[lengths\]\] = x"


@pytest.mark.parametrize("symbols", [False, True])
def test_sequences_one_after_the_other(symbols):
    """As hmmlearn takes them, an empty one among them: each gets what it gets alone."""
    rng, lengths = np.random.default_rng(2), [20, 0, 27, 3]
    x, a, tags = rng.normal(size=(50, 3)), rng.normal(size=(3, 3)), rng.integers(0, 3, 50)
    start = rng.normal(size=(4, 3))  # of each
    seen, table = rng.integers(0, 7, 50), rng.normal(size=(3, 7))
    each = [slice(i, i + n) for i, n in zip(np.cumsum(lengths) - lengths, lengths, strict=True)]
    k3 = lambda *m, **k: sequences.viterbi(*m, k=3, **k)  # noqa: E731
    pairs = lambda *m, **k: sequences.marginals(*m, pairs=True, **k)  # noqa: E731
    for verb, more, axes in (
        (sequences.viterbi, [start], (0, None)), (k3, [start], (1, None)), (pairs, [], (0, None)),
        (sequences.log_partition, [start], (None,)), (sequences.forward, [start], (0,)),
        (sequences.backward, [], (0,)), (sequences.score, [tags], (None,)),
    ):  # fmt: skip

        def call(at, own, lengths=None, verb=verb, more=more):
            args = [v[own] if v is start else v[at] for v in more]
            given = {"observations": seen[at]} if symbols else {}
            found = verb(table if symbols else x[at], a, *args, lengths=lengths, **given)
            return found if isinstance(found, tuple) else (found,)

        alone = [call(at, i) for i, at in enumerate(each)]
        for found, axis, *parts in zip(call(slice(None), slice(None), lengths), axes, *alone,
                                       strict=True):  # fmt: skip
            join = np.stack(parts) if axis is None else np.concatenate(parts, axis)
            assert_allclose(found, join, rtol=1e-12)
    given = {"observations": seen} if symbols else {}
    one = sequences.sample(table if symbols else x, a, lengths=lengths, rng=3, **given)
    assert one.shape == (50,)
    drawn = sequences.sample(table if symbols else x, a, size=4000, lengths=lengths, rng=3, **given)
    probable = sequences.marginals(table if symbols else x, a, lengths=lengths, **given)
    assert_allclose((drawn == 0).mean(0), probable[:, 0], atol=0.05)
    if not symbols:
        loss = sequences.crf_loss(x, a, tags, lengths=lengths)
        alone = [sequences.crf_loss(x[at], a, tags[at]) for at in each]
        assert_allclose(loss.loss, [one.loss for one in alone])
        assert_allclose(loss.emissions, np.concatenate([one.emissions for one in alone]))
        assert_allclose(loss.transitions, sum(one.transitions for one in alone))
        assert_allclose(loss.start, sum(one.start for one in alone))
    assert sequences.marginals(x[:0], a, lengths=[]).shape == (0, 3)


STACK = r"y = np.zeros\(.*\); y\[np.arange\(max\(lengths\)\) < np.c_\[lengths\]\] = x"


def test_lengths_that_do_not_fit():
    x, a = np.zeros((50, 3)), np.zeros((3, 3))
    stack = r"shape \(2,\) for one sequence of 50 steps. .* one after the other: " + STACK
    for call, text in (
        (lambda: sequences.viterbi(x, a, lengths=[20, 31]), "add up to 51, and there are 50 steps"),
        (lambda: sequences.viterbi(x, a, lengths=[60, -10]), "lengths must be from 0 to the 50"),
        (
            lambda: sequences.viterbi(x, np.zeros((49, 3, 3)), lengths=[20, 30]),
            "one matrix of transitions for all steps",
        ),
        (lambda: sequences.score(x, a, [0] * 49, lengths=[20, 30]), "for 50 steps"),
        (
            lambda: sequences.viterbi(x[None], a, lengths=[20, 30]),
            r"\(2,\) for a batch of .*\(1,\)",
        ),
        (
            lambda: sm.chain(a, np.zeros(3), "max_plus", emissions=x, lengths=[20, 30]),
            stack,
        ),
    ):
        with pytest.raises(ValueError, match=text):
            call()


def test_memory_of_lengths_far_apart(monkeypatch):
    monkeypatch.setattr("semiring_mm.arrays._UNASKED", 1000)
    monkeypatch.setattr("semiring_mm.cpu.engine.free_memory", lambda: 1 << 14)
    with pytest.raises(MemoryError, match=r"11 sequences of 100 steps.* a call of their own"):
        sequences.viterbi(np.zeros((110, 30)), np.zeros((30, 30)), lengths=[100] + [1] * 10)


def test_ragged_sequences():
    a, rows = np.zeros((2, 2)), [[0, 1, 1], [1, 0]]
    for name, call in (
        ("observations", lambda: sequences.viterbi(np.zeros((2, 4)), a, observations=rows)),
        ("emissions", lambda: sequences.marginals([np.zeros((3, 2)), np.zeros((2, 2))], a)),
        ("tags", lambda: sequences.score(np.zeros((2, 3, 2)), a, rows)),
    ):
        text = rf"{name} have 2 to 3 steps. Stack them: x = np.concatenate\({name}\); .*{STACK}"
        with pytest.raises(ValueError, match=text):
            call()


def test_the_k_best_with_a_nan():
    """Which counts as better than any number, as where only the best is wanted."""
    e, a = np.array([[0.0, 5], [1, nan], [2, 0]]), np.zeros((2, 2))
    paths, best = sequences.viterbi(e, a, k=2)
    assert_array_equal(np.isnan(best), True)
    assert (paths[:, 1] == 1).all()
    assert_array_equal(paths[0], sequences.viterbi(e, a)[0])


def test_sequences_of_one_step_that_is_impossible():
    """Among longer ones: each is computed with care where it has to be."""
    e, a, lengths = np.zeros((4, 4, 2)), np.zeros((2, 2)), [1, 4, 1, 1]
    e[0, 0], e[2, 0, 1], e[3, 0, 1] = -inf, nan, inf
    total = sequences.log_partition(e, a, lengths=lengths)
    assert_array_equal(total, [-inf, np.log(16), nan, inf])
    states, pairs = sequences.marginals(e, a, lengths=lengths, pairs=True)
    assert_array_equal(np.isnan(states[:, 0, 0]), [True, False, True, True])
    assert_array_equal(pairs[:, 0, 0], [0, 0.75, 0, 0])


def test_long_sequences_and_equal_scores():
    rng = np.random.default_rng(0)
    e, a = rng.integers(-3, 4, (2, 60, 7)), rng.integers(-3, 4, (7, 7))
    paths, best = sequences.viterbi(e, a, k=40)
    assert len({tuple(y) for y in paths[1].tolist()}) == 40
    each = np.broadcast_to(e[:, np.newaxis], (2, 40, 60, 7))
    assert_array_equal(best, sequences.score(each, a, paths))
    assert (np.diff(best) <= 0).all()
    with pytest.raises(ValueError, match="at least 1, got 0"):
        sequences.viterbi(e, a, k=0)


def test_no_more_sequences_are_sought_than_there_are():
    """A large k costs its rows of -1, not a search for each."""
    k = 5_000_000
    paths, best = sequences.viterbi([[1, 3, 2]], np.zeros((3, 3)), k=k)
    assert_array_equal(paths[:4], [[1], [2], [0], [-1]])
    assert_array_equal(best[:4], [3, 2, 1, -np.inf])
    assert (paths.shape, best.shape) == ((k, 1), (k,))
    assert (paths[3:] == -1).all()


def test_results_that_take_too_much_memory():
    a = np.zeros((3, 3))
    with pytest.raises(ValueError, match=r"takes 12 GB, and there are 3 sequences of 1 .* k=3"):
        sequences.viterbi([[1.0, 3, 2]], a, k=10**9)
    with pytest.raises(MemoryError, match=r"the 1000000000000 best of 2 sequences .* lower k"):
        sequences.viterbi(np.zeros((2, 100, 3)), a, k=10**12)


@pytest.mark.parametrize(
    ("value", "text"),
    [(-inf, "no sequence of states is possible"), (nan, "of NaN"), (inf, r"of \+inf")],
)
def test_nothing_to_draw_by(value, text):
    e, a = np.zeros((2, 4, 3, 2)), np.zeros((2, 2))
    e[1, 2, 1] = value
    with pytest.raises(ValueError, match=rf"sample: .*{text} in sequence \(1, 2\) of the batch"):
        sequences.sample(e, a, size=5)
    with pytest.raises(ValueError, match=f"sample: .*{text}: there is nothing to draw by"):
        sequences.sample(e[1, 2], a)
    e[1, 2, 1, 1] = 0
    if value == -inf:  # of the other state
        assert (sequences.sample(e, a, size=50)[:, 1, 2, 1] == 1).all()
    assert sequences.sample(e[1, 2, :0], a).shape == (0,)


@pytest.mark.parametrize("each", [False, True])
def test_logarithms_keep_their_digits(each):
    """In float32, of long sequences with unlikely emissions."""
    scores, _ = model(4, 1000, each)
    scores["emissions"] -= 40
    short = {k: v.astype("f4") for k, v in scores.items()}
    exact = {k: v.astype("f8") for k, v in short.items()}
    for verb, without in (
        (sequences.log_partition, ""), (sequences.forward, "end"), (sequences.backward, "start"),
    ):  # fmt: skip
        found, expected = (
            verb(**{k: v for k, v in m.items() if k != without}) for m in (short, exact)
        )
        assert_allclose(found, expected, rtol=1.5e-7, atol=3e-6)


@pytest.mark.parametrize("each", [False, True])
def test_gradients_of_the_loss(each):
    scores, lengths = model(2, 3, each)
    # not read behind the ends; of one sequence the same transition twice
    tags = np.array([[1, 1, 1], [1, 0, 9], [-5, 7, 7], [1, 1, 0]])
    found = sequences.crf_loss(tags=tags, **scores, lengths=lengths)
    for name, x in scores.items():
        gradient = getattr(found, name)
        assert gradient.shape == x.shape
        for at in np.ndindex(x.shape):
            sides = []
            for step in (1e-5, -1e-5):
                moved = x.copy()
                moved[at] += step
                args = scores | {name: moved}
                sides.append(sequences.crf_loss(tags=tags, **args, lengths=lengths).loss.sum())
            assert_allclose((sides[0] - sides[1]) / 2e-5, gradient[at], atol=1e-8)


def plainly(e, a, x, end):
    """Viterbi's algorithm in plain loops; of equals the first, and a NaN before any number."""

    def first(v):
        return int(np.isnan(v).argmax() if np.isnan(v).any() else v.argmax())

    v, pointers = x + e[0], []
    for own in e[1:]:
        every = v[:, np.newaxis] + a
        pointers.append([first(column) for column in every.T])
        v = every[pointers[-1], range(len(v))] + own
    path = [first(v + end)]
    for pointer in reversed(pointers):
        path.append(pointer[path[-1]])
    return path[::-1], (v + end)[path[0]]


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("states", [1, 2, 3, 7, 8, 9, 15, 16, 17, 33, 64, 70, 130])
@pytest.mark.parametrize("case", ["whole", "-inf", "nan", "inf", "a matrix each", "a nan in it"])
def test_to_the_bit(states, dtype, case):
    """Ragged, so that some go on behind others' ends; what lies behind them is NaN.

    A sequence in each lane of a vector, or more states than lanes; a few of them or many.
    """
    rng = np.random.default_rng(states)
    batch, steps = (44 if states < 18 else 11), 6
    each = (batch, 1) if case == "a matrix each" else ()
    e, a, x, end = (
        rng.integers(-3, 4, shape).astype(dtype)  # many are equal
        for shape in ((batch, steps, states), (*each, states, states), (batch, states), (states,))
    )
    if case == "-inf":
        a[rng.random(a.shape) < 0.5] = -inf
        e[3], x[5] = -inf, -inf
    if case in ("nan", "inf"):
        e[[2, 4], [1, 0], rng.integers(states)] = float(case)
    if case == "a nan in it":
        a[0, -1] = nan
    lengths = np.array([6, 5, 6, 1, 2, 6, 0, 3, 6, 4, 6] * (batch // 11))
    e[np.arange(steps) >= lengths[:, np.newaxis]] = nan
    path, score = sequences.viterbi(e, a, x, end, lengths=lengths)
    assert path.dtype == np.int32
    assert score.dtype == dtype
    for b, n in enumerate(lengths):
        assert (path[b, n:] == -1).all()
        if n:
            with np.errstate(invalid="ignore"):
                best, value = plainly(e[b, :n], a[b, 0] if each else a, x[b], end)
            assert_array_equal(score[b], value)
            if value != -inf:
                assert path[b, :n].tolist() == best


def test_only_sequences_with_nan_are_computed_again(monkeypatch):
    again = []
    carefully = chain._carefully
    monkeypatch.setattr(
        chain, "_carefully", lambda *args: (again.append(args[3]), carefully(*args))
    )
    e = np.zeros((5, 3, 2))
    sequences.viterbi(e, np.zeros((2, 2)))
    assert not again
    e[3, 1, 0], e[4, 2, 1] = nan, inf
    _, score = sequences.viterbi(e, np.zeros((2, 2)), end=[0, -inf])
    assert_array_equal(score, [0, 0, 0, nan, nan])
    assert_array_equal(again[0], e[3:])


def test_a_long_sequence_and_threads_that_share_many():
    rng = np.random.default_rng(2)
    e, a = rng.integers(-9, 9, (40, 2000, 3)).astype(float), rng.integers(-9, 9, (3, 3))
    lengths = rng.integers(0, 2001, 40)
    many, best = sequences.viterbi(e, a, lengths=lengths)
    for b, n in enumerate(lengths):
        path, score = sequences.viterbi(e[b, :n], a)
        assert_array_equal(many[b, :n], path)
        assert best[b] == score
    joined, score = sequences.viterbi(e.reshape(-1, 3), a)  # more than is kept between calls
    assert score == sequences.score(e.reshape(-1, 3), a, joined)
    assert score >= best.sum() - 9 * 40


def test_one_long_sequence_goes_both_ways_at_once(monkeypatch):
    rng = np.random.default_rng(5)
    e, a = rng.normal(size=(1, 5000, 6)), rng.normal(size=(4999, 6, 6))
    monkeypatch.setattr(pool, "_threads", 1)
    alone = sequences.marginals(e, a, lengths=[4990], pairs=True)
    monkeypatch.setattr(pool, "_threads", 2)
    tasks, run = [], pool.run
    monkeypatch.setattr(pool, "run", lambda some: (tasks.append(len(some)), run(some))[1])
    both = sequences.marginals(e, a, lengths=[4990], pairs=True)
    assert tasks[0] == 2
    for x, y in zip(alone, both, strict=True):
        assert_array_equal(x, y)


@pytest.mark.parametrize("each", [False, True])
def test_probabilities_of_long_sequences_in_float32(each):
    """Scores grow with the steps; what is left of the probabilities does not."""
    scores, lengths = model(9, 1500 if not each else 300, each)
    lengths[1:3] -= 40, 0
    narrow = {k: v.astype("f4") for k, v in scores.items()}
    exact = {k: v.astype("f8") for k, v in narrow.items()}
    found = sequences.marginals(**narrow, lengths=lengths, pairs=True)
    expected = sequences.marginals(**exact, lengths=lengths, pairs=True)
    for x, y in zip(found, expected, strict=True):
        assert x.dtype == np.float32
        np.testing.assert_allclose(x, y, rtol=1e-6, atol=1e-6)
    found = sequences.marginals(**narrow, lengths=lengths)
    np.testing.assert_allclose(found, expected[0], rtol=1e-6, atol=1e-6)


def test_what_is_impossible_and_what_is_no_number():
    e, a = np.zeros((3, 4, 3)), np.full((3, 3), -inf)
    path, best = sequences.viterbi(e, a)
    assert (best == -inf).all()
    assert_array_equal(path, np.zeros((3, 4)))
    assert (sequences.log_partition(e, a) == -inf).all()
    assert np.isnan(sequences.marginals(e, a)).all()
    assert_allclose(sequences.log_partition(e[:, :1], a), np.log(3))
    e[1, 2, 0] = nan
    path, best = sequences.viterbi(e, np.zeros((3, 3)))
    assert_array_equal(np.isnan(best), [False, True, False])
    assert path[1, 2] == 0
    assert_array_equal(np.isnan(sequences.log_partition(e, np.zeros((3, 3)))), [False, True, False])


def in_logarithms(e, a, x, end):
    """The log-partition and the probabilities of states and pairs of one sequence."""
    fore, back = [x + e[0]], [end]
    for own in e[1:]:
        fore.append(np.logaddexp.reduce(fore[-1][:, np.newaxis] + a) + own)
    for own in e[:0:-1]:
        back.append(np.logaddexp.reduce(a + (own + back[-1]), axis=1))
    back = back[::-1]
    total = np.logaddexp.reduce(fore[-1] + end)
    pairs = [np.exp(u[:, np.newaxis] + a + (own + v) - total)
             for u, own, v in zip(fore, e[1:], back[1:], strict=False)]  # fmt: skip
    return total, np.exp(np.array(fore) + back - total), sum(pairs, np.zeros_like(a))


@pytest.fixture
def again(monkeypatch):
    """How many sequences have been computed in logarithms, in each call."""
    counts, slowly = [], chain._posterior_in_logarithms
    monkeypatch.setattr(
        chain,
        "_posterior_in_logarithms",
        lambda *args: (counts.append(len(args[-1])), slowly(*args)),
    )
    return counts


def compare(e, a, x, end, lengths=None, near=1e-10):
    """With the same step by step in logarithms: all three results of each sequence."""
    total = sequences.log_partition(e, a, x, end, lengths=lengths)
    states, pairs = sequences.marginals(e, a, x, end, lengths=lengths, pairs=True)
    for b, n in enumerate([e.shape[1]] * len(e) if lengths is None else lengths):
        if n:
            with np.errstate(invalid="ignore"):
                own = a[b, 0] if a.ndim > 2 else a
                expected = in_logarithms(e[b, :n].astype(float), own, x[b], end)
            assert_allclose(total[b], expected[0], rtol=1e-12 if e.itemsize > 4 else 1e-6)
            assert_allclose(states[b, :n], expected[1], rtol=near, atol=1e-250)
            assert_allclose(pairs[b].reshape(own.shape), expected[2], rtol=near, atol=1e-250)
        assert (states[b, n:] == 0).all()


@pytest.mark.parametrize("states", [1, 2, 5, 8, 9, 17, 33, 40, 70])
def test_sums_without_logarithms(states, again):
    """Ragged, with impossible transitions, in panels: none is computed in logarithms."""
    rng = np.random.default_rng(states)
    for batch, steps, share in (1, 70, 0), (13, 150, 0), (5, 9, 0.3), (21, 66, 0.2):
        e, x = rng.normal(size=(batch, steps, states)) * 4, rng.normal(size=(batch, states))
        a, end = rng.normal(size=(states, states)), rng.normal(size=states)
        a[(rng.random(a.shape) < share) & ~np.eye(states, dtype=bool)] = -inf
        lengths = rng.integers(0, steps + 1, batch)
        e[np.arange(steps) >= lengths[:, np.newaxis]] = nan
        compare(e, a, x, end, lengths)
        compare(e, a + np.arange(batch)[:, np.newaxis, np.newaxis, np.newaxis], x, end, lengths)
        found = sequences.marginals(*(v.astype("f4") for v in (e, a, x, end)), lengths=lengths)
        assert_allclose(found, sequences.marginals(e, a, x, end, lengths=lengths), atol=1e-4)
    assert not again


@pytest.mark.parametrize("forbidden", [False, True])
def test_states_that_no_float_holds_and_that_come_to_count(forbidden, again):
    """Emissions in turn leave one state and then another: by exp(-2000), and by exp(-90) a step."""
    rng = np.random.default_rng(4)
    a = np.log(rng.dirichlet(np.ones(4), 4))
    a[0, 1] = -inf if forbidden else -90
    e = rng.normal(size=(6, 40, 4))
    e[0, ::2, 0] -= 2000
    e[1, 1::2, 1:] -= 2000
    e[2, :, 1:] -= 90  # further and further behind, up to the end
    e[3, 20] -= [0, 2000, 4000, -inf if forbidden else 6000]
    e[4] += 300
    end = np.array([-80 if forbidden else -2000, 0, -inf, 0])
    compare(e, a, np.zeros((6, 4)), end)
    # what was lost may count only where transitions are impossible, or where all but that has ended
    assert again == ([3, 3] if forbidden else [1, 1])


def test_factors_that_no_float_holds(again):
    """-10,000 for what must not be, as random fields have it, and a path that needs it."""
    a = np.full((3, 3), -1e4)
    a[0, 0] = a[1, 1] = a[2, 2] = 0
    e = np.random.default_rng(1).normal(size=(4, 30, 3))
    e[1, 0, 1:], e[1, -1, :2] = -inf, -inf  # from the first state to the last
    compare(e, a, np.zeros((4, 3)), np.zeros(3), near=1e-8)
    assert again == [4, 4]
    own = np.stack([a / 1e4, a, a / 1e4, a])[:, np.newaxis]
    compare(e, own, np.zeros((4, 3)), np.zeros(3), near=1e-8)
    assert again == [4, 4, 2, 2]


@pytest.mark.parametrize("forbidden", [False, True])
def test_sums_of_infinities_and_what_is_no_number(forbidden, again):
    a = np.zeros((3, 3))
    a[0, 1] = -inf if forbidden else 0
    e = np.random.default_rng(1).normal(size=(6, 30, 3))
    e[1, 4, 2], e[2, 0, 1], e[3, 29, 0], e[4, 7] = nan, nan, inf, -inf
    total, found = sequences.log_partition(e, a), sequences.marginals(e, a)
    assert_array_equal(np.isfinite(total), [1, 0, 0, 0, 0, 1])
    assert np.isnan(total[1:3]).all()
    assert_array_equal(total[3:5], [inf, -inf])
    assert_array_equal(
        np.isnan(found), np.isin(np.arange(6), [1, 2, 3, 4])[:, None, None] | (found > 2)
    )
    assert again == [4, 4]
    for bad in (nan, inf):
        a[1, 1] = bad
        assert not np.isfinite(sequences.log_partition(e, a)).any()
    assert again == [4, 4, 6, 6]


def test_a_table_of_symbols_that_are_too_far_apart(again):
    """Only the sequences that have such a symbol are computed in logarithms."""
    rng = np.random.default_rng(0)
    table, a = rng.normal(size=(3, 7)), rng.normal(size=(3, 3))
    table[0, 5], a[2, 0] = -500, -inf
    seen = rng.integers(0, 5, (9, 20))
    seen[4, 3] = seen[7, 19] = 5
    found = sequences.marginals(table, a, observations=seen, pairs=True)
    assert again == [2]
    expected = sequences.marginals(table.T[seen], a, pairs=True)
    for x, y in zip(found, expected, strict=True):
        assert_array_equal(x, y)
    few = sequences.log_partition(table, a, observations=seen[7:8, 17:])  # than symbols
    assert few == sequences.log_partition(table.T[seen[7:8, 17:]], a)


def test_left_to_right():
    """Banded models: what cannot be reached stays -inf, and draws never go there."""
    a = np.where(np.tri(20, k=0) - np.tri(20, k=-2) > 0, np.log(0.5), -inf).T
    start = np.where(np.arange(20) == 0, 0.0, -inf)
    e = np.random.default_rng(1).normal(size=(40, 20))
    draws = sequences.sample(e, a, start, size=50, rng=np.random.default_rng(2))
    assert (draws[:, 0] == 0).all()
    assert set(np.unique(np.diff(draws))) <= {0, 1}
    assert_array_equal(draws, sequences.sample(e, a, start, size=50, rng=2))
    assert sequences.sample(e, a, start, rng=2).shape == (40,)
    fore = sequences.forward(e, a, start)
    assert_array_equal(np.isneginf(fore), np.arange(20) > np.arange(40)[:, np.newaxis])


def test_hmmlearn():
    rng = np.random.default_rng(8)
    theirs = hmm.CategoricalHMM(n_components=5)
    theirs.startprob_, theirs.transmat_ = rng.dirichlet(np.ones(5)), rng.dirichlet(np.ones(5), 5)
    theirs.emissionprob_, theirs.n_features = rng.dirichlet(np.ones(7), 5), 7
    seen, lengths = rng.integers(7, size=(3, 50)), [50, 50, 50]
    column = seen.reshape(-1, 1)
    args = (np.log(theirs.emissionprob_.T)[seen], np.log(theirs.transmat_),
            np.log(theirs.startprob_))  # fmt: skip
    score, states = theirs.decode(column, lengths)
    model = np.log(theirs.emissionprob_), *args[1:]  # the same, one after the other
    path, best = sequences.viterbi(*model, observations=seen.ravel(), lengths=lengths)
    assert_array_equal(path, states)
    assert_allclose(best.sum(), score)
    probable = sequences.marginals(*model, observations=seen.ravel(), lengths=lengths)
    assert_allclose(probable, theirs.predict_proba(column, lengths), atol=1e-10)
    path, best = sequences.viterbi(*args)
    assert_array_equal(path.ravel(), states)
    assert_allclose(best.sum(), score)
    assert_allclose(sequences.log_partition(*args).sum(), theirs.score(column, lengths))
    probable = sequences.marginals(*args).reshape(-1, 5)
    assert_allclose(probable, theirs.predict_proba(column, lengths), atol=1e-10)


def test_the_benchmark_runs(tmp_path, capsys):
    """With the packages that are installed; each line's results are compared."""
    assert neighbours_sequences.main(["--quick", "--out", str(tmp_path / "raw.json")]) == 0
    raw, printed = json.loads((tmp_path / "raw.json").read_text()), capsys.readouterr().out
    there = [name for module, name in neighbours_sequences.PACKAGES.items()
             if neighbours_sequences.has(module)]  # fmt: skip
    named = {line["contenders"][1]["name"] for line in raw["lines"]}
    assert {name.partition(",")[0] for name in named} == set(there)  # hmmlearn has two modes
    assert set(there) <= set(raw["versions"])
    for line in raw["lines"]:
        assert line["checked"]
        assert report.pair_row(Line.from_raw(line), named=True) in printed


def test_dtypes_and_shapes():
    e = [[1, 2], [3, 4], [0, 0]]
    path, best = sequences.viterbi(e, [[0, 1], [1, 0]])
    assert (path.tolist(), best, best.dtype) == ([0, 1, 0], 7.0, "f8")
    half = np.array(e, "f2")
    assert sequences.log_partition(half, half[:2]).dtype == "f4"
    assert sequences.viterbi(np.zeros((0, 3, 2)), np.zeros((2, 2)))[0].shape == (0, 3)
    assert sequences.marginals(np.zeros((4, 0, 2)), np.zeros((2, 2))).shape == (4, 0, 2)
    assert_array_equal(sequences.log_partition(np.zeros((4, 0, 2)), np.zeros((2, 2))), np.zeros(4))
    stacked = sequences.log_partition(np.zeros((3, 2, 2)), np.zeros((5, 1, 1, 2, 2)))
    assert stacked.shape == (5, 3)
    with pytest.raises(ValueError, match="from 0 to the 3 steps"):
        sequences.viterbi(np.zeros((3, 2)), np.zeros((2, 2)), lengths=4)


@pytest.mark.parametrize(
    ("args", "error", "words"),
    [
        (([1.0], np.zeros((1, 1))), ValueError, r"\(..., T, S\); got shape \(1,\)"),
        ((None, np.zeros((1, 1))), TypeError, "emissions must be an array of numbers"),
        ((np.zeros((3, 2)), None), TypeError, "transitions must be an array of numbers"),
        ((np.zeros((3, 0)), np.zeros((0, 0))), ValueError, "at least one state"),
        ((np.zeros((3, 2)), np.zeros((3, 3))), ValueError, r"shape \(2, 2\) for all steps"),
        ((np.zeros((4, 2)), np.zeros((2, 2, 2))), ValueError, r"\(..., 3, 2, 2\) for each"),
        ((np.zeros((4, 2)), np.zeros((2, 2)), [1]), ValueError, "start has S = 2 scores"),
        ((np.zeros((4, 2), complex), np.zeros((2, 2))), TypeError, "emissions are real numbers"),
        ((np.zeros((3, 4, 2)), np.zeros((2, 1, 2, 2))), ValueError, "do not broadcast"),
    ],
)
def test_what_is_refused(args, error, words):
    with pytest.raises(error, match=words):
        sequences.viterbi(*args)


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("shared", [True, False])
def test_losses_of_impossible_tags(shared):
    """As -inf less -inf, with the score's gradient, where every sequence is impossible."""
    e, a = np.zeros((3, 4, 2)), np.zeros((2, 2))
    e[0, 2], e[1, 2, 1] = -inf, -inf
    a = a if shared else np.zeros((3, 3, 2, 2))
    tags = np.array([[0, 1, 1, 1]] * 3)
    found = sequences.crf_loss(e, a, tags)
    assert_allclose(found.loss, [nan, inf, np.log(16)])
    assert_array_equal(found.emissions[0], -np.eye(2)[tags[0]])
    assert_allclose(found.emissions[2], 0.5 - np.eye(2)[tags[2]])
    assert np.isfinite(found.transitions).all()
    if not shared:
        assert_array_equal(
            found.transitions[0], [[[0, -1], [0, 0]], [[0, 0], [0, -1]], [[0, 0], [0, -1]]]
        )


def test_tags_that_are_none():
    e, a = np.zeros((3, 2)), np.zeros((2, 2))
    for tags, error, words in (
        ([0, 1, 2], ValueError, "tags must be from 0 to 1, got 0 to 2"),
        ([0.0, 1, 1], TypeError, "numbers of states"),
        ([0, 1], ValueError, "for 3 steps"),
    ):
        with pytest.raises(error, match=words):
            sequences.score(e, a, tags)
    with pytest.raises(TypeError, match="size must be an integer or None"):
        sequences.sample(e, a, size=2.5)
