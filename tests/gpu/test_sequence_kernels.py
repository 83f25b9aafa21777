"""Kernels of sequences: what compiles gives what the same text gives in Python."""

import operator
from dataclasses import replace

import numpy as np
import pytest
from plain_kernels import both

from semiring_mm.cpu.compiler import host_target
from semiring_mm.cpu.kernels import chains, forward_backward, viterbi
from semiring_mm.kernel import Operations
from semiring_mm.plan import Facts, make_plan
from semiring_mm.semirings import semirings

MAX_PLUS = Operations(max, operator.add, operator.gt, -np.inf, 0.0)


def plan_of(dtype):
    known = Facts(-1e3, 1e3, False)
    plan = make_plan(semirings["max_plus"], np.dtype(dtype), known, known, 1)
    return replace(plan, keep_nan=False)


def model(batch, steps, states, dtype, *, table=False, shared=True):
    """Parameters of both kernels: ties, impossible steps, an infinity that marks a sequence."""
    rng = np.random.default_rng(states)
    draw = lambda *shape: rng.integers(-4, 5, shape).astype(dtype)  # noqa: E731
    a = draw(1 if shared else batch, states, states)
    a[rng.random(a.shape) < 0.1], a[:, 0, 0] = -np.inf, 1
    e = draw(1, 6, states) if table else draw(batch, steps, states)
    end = draw(batch, states)
    end[2, 0] = np.inf
    return a, {
        "begin": 1, "stop": batch, "n": states, "far": -np.inf,
        "order": rng.permutation(batch), "lengths": rng.integers(1, steps + 1, batch), "e": e,
        "symbols": rng.integers(0, 6, (batch, steps)) if table else None, "end": end,
        "x": draw(batch, states), "path": np.full((batch, steps), -1, "i4"),
        "score": np.zeros(batch, dtype), "odd": np.zeros(batch, "u1"),
    }  # fmt: skip


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize(("states", "times"), [(1, 1), (9, 0), (33, 0), (17, None)])
@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("shared", [False, True])
def test_viterbi(states, times, table, shared, dtype):
    batch, steps, together = 7, 5, 2 if shared else 1
    lanes = host_target().vector_bytes // np.dtype(dtype).itemsize
    a, fields = model(batch, steps, states, dtype, table=table, shared=shared)
    vectors = -(-states // lanes)
    padded, deep = vectors * lanes, -(-states // 2) * 2
    found = both(
        viterbi.best_paths, MAX_PLUS, plan_of(dtype), **fields, padded=padded, deep=deep,
        shared=shared, width=1, times=vectors if times is None else times * (vectors == times),
        together=together, parts=2, a=a, rows=np.zeros((together, steps, padded), dtype),
        matrix=np.full((vectors, deep, lanes), -np.inf, dtype), panels=vectors, W=lanes,
        columns=np.full((states + together, padded), -np.inf, dtype),
    )  # fmt: skip
    assert found["odd"].sum() == (fields["order"][0] != 2)


@pytest.mark.parametrize("dtype", ["f4", "f8"])
@pytest.mark.parametrize("states", [1, 3, 8])
@pytest.mark.parametrize("table", [False, True])
def test_viterbi_of_a_sequence_a_lane(states, table, dtype):
    batch, steps = 21, 5
    lanes = host_target().vector_bytes // np.dtype(dtype).itemsize
    if states > lanes:
        pytest.skip("vectors have fewer lanes")
    a, fields = model(batch, steps, states, dtype, table=table)
    wide = np.full((states, lanes), -np.inf, dtype)
    wide[:, :states] = a[0]
    names = [x for x in fields if x != "n"]
    found = both(
        viterbi.best_paths_in_lanes, MAX_PLUS, plan_of(dtype), ["rows"], n=states, many=lanes,
        a=wide.ravel(), rows=np.zeros((steps, states * lanes), dtype),
        **{name: fields[name] for name in names},
    )  # fmt: skip
    assert found["odd"].sum() == (fields["order"][0] != 2)


@pytest.mark.parametrize("table", [False, True])
@pytest.mark.parametrize("what", ["total", "states", "pairs"])
@pytest.mark.parametrize(("states", "width", "times"), [(3, 1, 1), (9, 2, 0)])
def test_forward_backward(states, width, times, what, table):
    batch, steps, together, symbols = 5, 70, 2, 6
    rng = np.random.default_rng(states)
    lanes = host_target().vector_bytes // 8
    wide = width * lanes
    panels = -(-states // wide)
    padded, depth = panels * wide, states + states % 2
    a = np.zeros((2, 1, depth, padded))
    a[0, 0, :states, :states] = rng.dirichlet(np.ones(states), states)
    a[1, 0, :states, :states] = a[0, 0, :states, :states].T
    matrices, turned = a.reshape(2, 1, depth, panels, wide).transpose(0, 1, 3, 2, 4).copy()
    e = rng.normal(size=(symbols, states) if table else (batch, steps, states))
    kept, size = steps if what != "total" else 2, steps if what != "total" else 64
    powers = np.zeros((1, symbols, padded) if table else (together, size, padded))
    tops = np.zeros(powers.shape[:2])
    if table:
        found = both(
            forward_backward.of_symbols, None, "f8", (), 1e-13, count=symbols, n=states,
            padded=padded, least=-1e9, e=e, powers=powers, tops=tops,
        )  # fmt: skip
        np.testing.assert_allclose(found["powers"][0, :, :states], np.exp(e - e.max(1)[:, None]))
        powers, tops = found["powers"], found["tops"]
    out, pairs = np.zeros((batch, steps, states)), np.zeros((batch, states, states))
    found = both(
        forward_backward.forward_backward, None, "f8",
        ["rows", "powers", "tops", "behind", "ahead", "shares", "sums"], 1e-11,
        begin=0, stop=batch, n=states, padded=padded, depth=depth, wide=wide, panels=panels,
        own=0, least=-1e9, together=together, width=width, times=times * panels,
        down=min(lanes, 8 // width), limited=states > 3, order=rng.permutation(batch),
        lengths=np.array([70, 1, 65, 64, 2]), matrices=matrices, turned=turned,
        a_tops=np.array([0.25]), e=None if table else e, total=np.zeros(batch),
        symbols=rng.integers(0, symbols, (batch, steps)) if table else None,
        x=rng.normal(size=(batch, states)), end=rng.normal(size=(batch, states)),
        odd=np.zeros(batch, "u1"), out=None if what == "total" else out,
        pairs=pairs if what == "pairs" else None, rows=np.zeros((together, kept, padded)),
        powers=powers, tops=tops, behind=np.zeros((together, padded)),
        ahead=np.zeros((together, padded)),
        shares=np.zeros((together, 64, padded)) if what == "pairs" else None,
        sums=np.zeros((together, padded, padded)) if what == "pairs" else None,
    )  # fmt: skip
    assert not found["odd"].any()
    if what != "total":
        inside = np.arange(steps) < found["lengths"][:, None]
        np.testing.assert_allclose(found["out"].sum(2), inside, atol=1e-12)
    if what == "pairs":
        np.testing.assert_allclose(found["pairs"].sum((1, 2)), found["lengths"] - 1, atol=1e-11)


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize(("logs", "shared"), [(0, True), (0, False), (1, False), (2, True)])
def test_carry(logs, shared, given, turned, reverse):
    batch, steps, n, lanes = 3, 4, 11, host_target().vector_bytes // 8
    rng = np.random.default_rng(logs)
    panels = -(-n // lanes)
    shape = (batch, 1 if shared else steps, n, n)
    a = np.broadcast_to(rng.normal(size=shape), (batch, steps, n, n))
    name = "log_plus" if logs else "max_plus"
    plan = make_plan(semirings[name], np.dtype("f8"), None, None, 1)
    logarithms = Operations(np.logaddexp, operator.add, operator.gt, -np.inf, 0.0)
    count, rows = 2 * batch, 2
    both(
        chains.carry, logarithms if logs else MAX_PLUS, plan,
        ["packed", "powers", "tops", "carried", "weights"], 1e-12,
        begin=0, stop=batch, row0=0, rows=rows, n=n, panels=panels, skip=0, every=not reverse,
        own=shared, together=2 - shared, W=lanes, reverse=reverse, turned=turned, shared=shared,
        quick=shared and not logs, far=-np.inf, swapped=reverse, whole=False, logs=logs,
        levelled=logs > 0, lift=400, least=-511, enough=2.0**-850, scale=2.0**-800,
        lengths=np.array([4, 0, 3]), a=a, e=rng.normal(size=(batch, steps, n)),
        x=rng.normal(size=(batch, rows, n)) if given else None,
        y=np.zeros((batch, 1 if reverse else steps, rows, n)),
        levels=np.zeros((batch, steps)) if turned and logs else None, flags=np.zeros(8, "u1"),
        packed=np.zeros((panels, n, lanes)), powers=np.zeros((panels, n, lanes)),
        tops=np.zeros(panels * lanes), carried=np.zeros((2, count, panels * lanes)),
        weights=np.zeros(panels * lanes), offsets=np.zeros(count),
    )  # fmt: skip


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("draws", [False, True])
def test_paths(draws, shared):
    batch, steps, n, lanes = 4, 5, 11, host_target().vector_bytes // 8
    rng = np.random.default_rng(n)
    padded = -(-n // lanes) * lanes
    plan = make_plan(semirings["max_plus"], np.dtype("f8"), None, None, 1)
    a = np.broadcast_to(
        rng.normal(size=(batch, 1 if shared else steps, n, n)), (batch, steps, n, n)
    )
    found = both(
        chains.paths, MAX_PLUS, plan, ["packed", "column"], 1e-12,
        begin=1, stop=batch, n=n, padded=padded, own=shared, shared=shared, draws=draws,
        lengths=np.array([5, 5, 0, 2]), a=a, rows=rng.normal(size=(batch - 1, steps, n)),
        end=rng.normal(size=(batch, n)), uniform=rng.random((batch, steps)) if draws else None,
        path=np.full((batch, steps), -1, "i4"), score=np.zeros(batch),
        packed=np.zeros((n if shared else 1, n)), column=np.zeros(padded),
    )  # fmt: skip
    assert ((found["path"] >= 0).sum(1) == [0, 5, 0, 2]).all()


@pytest.mark.parametrize("pairs", [None, "sum", "each"])
def test_posterior(pairs):
    batch, steps, n = 3, 70, 5
    rng = np.random.default_rng(n)
    plan = make_plan(semirings["log_plus"], np.dtype("f8"), None, None, 1)
    logarithms = Operations(np.logaddexp, operator.add, operator.gt, -np.inf, 0.0)
    draw = lambda *shape: rng.normal(size=shape)  # noqa: E731
    both(
        chains.posterior, logarithms, plan, ["sums", "column"], 1e-11,
        begin=0, stop=batch, n=n, lengths=np.array([70, 0, 3]), a=draw(batch, steps - 1, n, n),
        e=draw(batch, steps, n), forward=draw(batch, steps, n), backward=draw(batch, steps, n),
        end=draw(batch, n), total=np.zeros(batch), out=np.zeros((batch, steps, n)),
        pairs=np.zeros((batch, steps - 1 if pairs == "each" else 1, n, n)) if pairs else None,
        every=pairs == "each", column=np.zeros(n), levels=draw(batch, steps), sums=np.zeros((n, n)),
    )  # fmt: skip
