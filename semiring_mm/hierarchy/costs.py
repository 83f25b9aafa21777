"""Costs of the methods for paths, in nanoseconds: pure functions of sizes and of constants.

The constants are nanoseconds of one thread in float64, rounded from what ``python -m
bench.calibrate`` prints. Only their ratios decide, and these are much the same on other machines.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

__all__ = [
    "ATTEMPT",
    "ORDER",
    "TooExpensive",
    "brief",
    "closure",
    "eliminations",
    "forest",
    "launch",
    "least",
    "neighbours",
    "potentials",
    "rest",
    "reverse_sweeps",
    "reversed_searches",
    "rounds",
    "searches",
]

#: A pair (⊗, ⊕) of a dense elimination of many nodes; nodes for which one takes twice as long.
PAIR, HALF = 0.08, 500
#: The same beside one in float64: with predecessors, and in types of at most four bytes.
PREDECESSORS, NARROW = 1.7, 0.5
#: An elimination of any size; and rounds from some sources.
BEGIN, BEGIN_ROUNDS = 5e5, 1e6
#: An entry of a matrix that is made, read and written around a dense elimination.
ENTRY = 4.0
#: Pairs of a node for each entry of the matrix, in rounds of Bellman and Ford from all sources
#: together, and from one more.
ROUNDS, ROUND = 128, 32
#: An arc, or a step in the queue, of a search; with an arc being listed; and a call.
SEARCH, LIST, CALL = 8.0, 10.0, 3e5
#: The same where all arcs weigh the same.
QUEUE = 5.0
#: An arc that is sorted by its weight, or joined in a round from one source; a pair in one launch.
SORT, ROUND_ARC, LAUNCH = 40.0, 6.0, 0.002
#: An arc in a round of Bellman and Ford, for potentials; and rounds, of which there may be fewer or
#: many more.
POTENTIAL, POTENTIALS = 60.0, 16
#: A node or arc in lists of neighbours; a unit of the work of an order by minimum degree; a node
#: or edge in the structure.
NEIGHBOUR, ORDER, STRUCTURE = 20.0, 4.5, 50.0
#: An arc that gets its weight; a triangle; an edge and a node in a sweep; what elimination needs
#: at any rate.
WEIGHT, TRIANGLE, SWEEP, LABEL, ELIMINATION = 100.0, 3.0, 0.5, 2.5, 4e6
#: An arc, or a step in the queue, of a search with weights that counts paths, and back.
COUNTED = 6.0
#: An arc in searches by levels from so many sources at once, and back; arcs of a node from which
#: most of them meet it together.
LEVELS, LEVELS_WIDTH, MET = 4.0, 16, 6
#: An edge in reverse sweeps from so many sources at once, and a triangle in the customization of
#: numbers of paths and its reverse.
REVERSE, REVERSE_WIDTH, REVERSE_TRIANGLE = 0.6, 64, 3.0
#: Part of the time of another method that is risked for an order that may prove to be too bad.
ATTEMPT = 0.2


class TooExpensive(Exception):
    """A method takes longer, or more memory, than another one; the message says what it takes."""


def closure(
    n: int, count: int | None, *, itemsize: int = 8, predecessors: bool = False,
    undirected: bool = False, threads: int = 1,
) -> float:  # fmt: skip
    """A dense matrix: its elimination, or rounds of products for a number of sources.

    `count` are the sources, None: all pairs. `undirected`: half of an elimination is enough.
    """
    rows = n if count is None else min(n, ROUNDS + ROUND * count)
    half = undirected and count is None and not predecessors
    pairs = float(n) * (n + HALF) * rows / (2 if half else 1)
    type_ = PREDECESSORS if predecessors else NARROW if itemsize <= 4 else 1.0
    begin = BEGIN if count is None else BEGIN_ROUNDS
    return begin + PAIR * type_ * pairs / threads + ENTRY * float(n) ** 2


def forest(n: int, arcs: int, count: int) -> float:
    """A spanning forest, and the rows that are written from it."""
    return CALL / 4 + SORT * arcs + ENTRY / 4 * float(n) * count


def rounds(arcs: int, hops: int, count: int) -> float:
    """Rounds of Bellman and Ford over a list of edges."""
    return CALL + ROUND_ARC * float(arcs) * hops * count


def launch(n: int) -> float:
    """A closure in one launch of a device."""
    return CALL / 4 + LAUNCH * float(n) ** 3


def searches(
    n: int, arcs: int, count: int, *, threads: int = 1, equal: bool = False
) -> float:  # fmt: skip
    """A search from each source, of which a thread does one at a time.

    `equal`: all arcs weigh the same, so that there is a queue and no heap.
    """
    each = QUEUE * (arcs + n) if equal else SEARCH * (arcs + n * math.log2(n + 1))
    return CALL + LIST * arcs + each * max(1.0, count / threads)


def reversed_searches(n: int, arcs: int, count: int, *, unit: bool, threads: int = 1) -> float:
    """A search from each source and back, which counts shortest paths (Brandes).

    `unit`: all edges have one weight.
    """
    if unit:
        batches = max(1.0, -(-count // LEVELS_WIDTH) / threads)
        often = max(1.0, MET * n / max(1, arcs)) ** 2
        return CALL + LIST * arcs + LEVELS * often * LEVELS_WIDTH * float(arcs) * batches
    each = COUNTED * (arcs + n * math.log2(n + 1))
    return CALL + LIST * arcs + each * max(1.0, count / threads)


def reverse_sweeps(
    n: int, arcs: int, edges: float, triangles: float, count: int, *, threads: int = 1
) -> float:
    """An elimination without a core, sweeps that count shortest paths, and their reverse.

    `edges` and `triangles` are those of the elimination.
    """
    fixed = neighbours(n, arcs) + ELIMINATION + WEIGHT * arcs + STRUCTURE * (n + edges)
    batches = max(1.0, -(-count // REVERSE_WIDTH) / threads)
    sweeps = REVERSE_WIDTH * batches * (REVERSE * edges + LABEL * n)
    return fixed + (TRIANGLE + REVERSE_TRIANGLE) * triangles + sweeps


def rest(
    n: int, left: int, edges: float, count: int, *, itemsize: int = 8, threads: int = 1
) -> float:
    """What eliminating the nodes that are left, or closing a core of them, does not fall short of.

    `edges` are those of the elimination of all that are left, about the same number for each.
    """
    type_ = NARROW if itemsize <= 4 else 1.0
    node, outside = SWEEP * count * edges / max(1, left), min(count, n - left)
    # the core of which the closure and the rows cost as much more as one node less
    core = min(left, (math.sqrt(outside**2 + 3 * node / PAIR) - outside) / 3)
    return type_ * (node * (left - core) + PAIR * (core + outside) * core**2) / threads


def brief(
    n: int, arcs: int, count: int, *, threads: int = 1, hops: float | None = None
) -> bool:  # fmt: skip
    """Whether searches over lists that are there end before any other method can.

    By the number of edges alone. `hops`: all arcs weigh the same, and breadth-first searches from
    all sources at once take that.
    """
    taken = searches(n, arcs, count, threads=threads, equal=hops is not None) - LIST * arcs
    if taken < 2 * CALL:
        return True
    others = least(n, arcs, count, threads=threads), closure(n, count, threads=threads)
    return taken < min(*others, math.inf if hops is None else hops)


def potentials(n: int, arcs: int) -> float:
    """What negative weights add to searches."""
    return POTENTIALS * POTENTIAL * float(n + arcs)


def neighbours(n: int, arcs: int) -> float:
    """What an elimination needs to know before it begins."""
    return NEIGHBOUR * (float(n) + 2.0 * arcs)


def least(n: int, arcs: int, count: int, *, threads: int = 1) -> float:
    """What no elimination falls short of: with an order in no time, and without fill."""
    shared = (SWEEP + LABEL) * float(n) * count / threads
    fixed = ELIMINATION + STRUCTURE * n + WEIGHT * arcs
    return neighbours(n, arcs) + fixed + shared


def eliminations(
    n: int, arcs: int, degree: NDArray[np.int32], count: int, *, itemsize: int = 8, threads: int = 1
) -> NDArray[np.float64]:
    """An elimination of 0, 1, 2, … nodes in an order at hand, and of the others as a dense core.

    Nodes have a `degree`, (k,), when they are eliminated; `count` are the sources of sweeps.
    """
    d = degree.astype(np.float64)
    core = n - np.arange(len(d) + 1, dtype=np.float64)
    type_ = NARROW if itemsize <= 4 else 1.0
    shared = np.zeros(len(core))
    (TRIANGLE * d * d + SWEEP * type_ * count * d).cumsum(out=shared[1:])
    outside = np.minimum(count, n - core)  # the rows of sources in the core are its closure's
    shared += PAIR * type_ * (core * core * (core + HALF) + outside * core**2)
    shared += LABEL * float(n) * count
    alone = np.zeros(len(core))
    (STRUCTURE * (1 + d)).cumsum(out=alone[1:])
    return ELIMINATION + WEIGHT * arcs + alone + ENTRY * core**2 + shared / threads
