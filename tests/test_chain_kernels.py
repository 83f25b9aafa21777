"""Kernels of chains: what compiles gives what the same text gives in Python."""

import operator
from dataclasses import replace

import numpy as np
import pytest
from plain_kernels import both

from semiring_mm.cpu.compiler import host_target
from semiring_mm.cpu.kernels import viterbi
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
        matrix=np.full((deep, padded), -np.inf, dtype),
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
