"""Demand: what the shortest paths between pairs of nodes carry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..graph_kernels import Index, Node, offsets, ranges

__all__ = ["Demand", "DemandRows"]

Array = NDArray[Any]

_ENTRIES = 1 << 24  # of a matrix that are computed at a time


@dataclass(frozen=True)
class Demand:
    """Amounts of pairs of n nodes, in compressed rows: a row for each source."""

    n: int
    target: Node  # (k,)
    # (n + 1,): where the entries of each source begin. None: all sources have the same
    first: Index | None = None
    amount: Array | None = None  # (k,) of float64 and any sign; None: 1 each

    @classmethod
    def to(cls, n: int, targets: Index | None = None) -> Demand:
        """1 from each source to all nodes or some, each of which counts once."""
        every = np.arange(n) if targets is None else np.unique(targets)
        return cls(n, every.astype(np.int32))

    @classmethod
    def between(cls, n: int, source: Index, target: Index, amount: Array) -> Demand:
        """Amounts of some pairs; those of a pair that comes twice are added up."""
        pair = source * n + target
        order = np.argsort(pair, kind="stable")
        pair, amount = pair[order], amount[order].astype(np.float64)
        new = np.flatnonzero(np.diff(pair, prepend=-1))
        amount = np.add.reduceat(amount, new) if len(new) else amount
        row, col = np.divmod(pair[new], n)
        kept = (row != col) & (amount != 0)
        first = np.searchsorted(row[kept], np.arange(n + 1))
        return cls(n, col[kept].astype(np.int32), first, amount[kept])

    @classmethod
    def of(cls, n: int, sources: Index, targets: Index, matrix: Any) -> Demand:
        """Amounts of a matrix, which may be sparse, with a row a source and a column a target."""
        if hasattr(matrix, "tocoo"):
            entries = matrix.tocoo()
            return cls.between(n, sources[entries.row], targets[entries.col], entries.data)
        row, col = np.argsort(sources), np.argsort(targets)
        start, end = sources[row], targets[col]
        if (np.diff(start) == 0).any() or (np.diff(end) == 0).any():
            row, col = np.nonzero(matrix)
            return cls.between(n, sources[row], targets[col], matrix[row, col])
        matrix = matrix[np.ix_(row, col)]  # whose entries are those of compressed rows, in order
        there = (matrix != 0) & (start[:, np.newaxis] != end)
        counts = np.zeros(n, np.int64)
        counts[start] = there.sum(axis=1)
        target = end.astype(np.int32)[np.nonzero(there)[1]]
        return cls(n, target, offsets(counts), matrix[there].astype(np.float64))

    def ending(self, ends: Index, n: int) -> Demand:
        """The same amounts, which go to the ends of nodes, among n nodes."""
        assert self.first is not None
        assert self.amount is not None
        source = np.repeat(np.arange(self.n), np.diff(self.first))
        return Demand.between(n, source, ends[self.target], self.amount)

    @property
    def of_targets(self) -> Array:
        """The (n,) float64 amounts that go to each node, where all sources have the same."""
        assert self.first is None
        amounts = np.zeros(self.n)
        amounts[self.target] = 1.0
        return amounts

    @property
    def sources(self) -> Index:
        """The nodes that have entries."""
        if self.first is None:
            return np.arange(self.n)
        return np.flatnonzero(np.diff(self.first))

    @property
    def step(self) -> int:
        """Sources of a :meth:`batch` at most."""
        return max(1, self.n)

    @property
    def total(self) -> float:
        """The sum of the amounts."""
        return float(self.target.size if self.amount is None else self.amount.sum())

    def batch(self, sources: Index) -> Demand:
        """The demand of some sources."""
        return self

    def rows(self, sources: Index) -> tuple[Index, Node, Array]:
        """Entries of some sources: where those of each begin, their targets and amounts."""
        assert self.first is not None
        assert self.amount is not None
        begin = self.first[sources]
        counts = self.first[sources + 1] - begin
        entries = ranges(begin, counts)
        return offsets(counts), self.target[entries], self.amount[entries]

    def blocks(self, sources: Index, width: int, place: Node | None = None) -> dict[str, Any]:
        """Entries of blocks of sources, by their targets, as kernels take them.

        Parameters
        ----------
        place : (n,) int32, optional
            The numbers of nodes for the kernel, by which the targets of a block ascend.

        Returns
        -------
        dict
            ``bounds``: where the targets of each block begin and end. ``entry_first``,
            ``entry_lane`` and ``amount``: the entries of each, None where all count 1.
        """
        n, blocks = self.n, -(-len(sources) // width)
        if self.first is None:
            target = np.sort(self.target if place is None else place[self.target])
            bounds = np.tile([0, len(target)], (blocks, 1))
            entries = dict.fromkeys(("entry_first", "entry_lane", "amount"))
            return {"bounds": bounds, "target": target} | entries
        first, target, amount = self.rows(sources)
        line = np.repeat(np.arange(len(sources)), np.diff(first))
        key = (target if place is None else place[target]) + n * (line // width)
        order = np.argsort(key, kind="stable")
        key = key[order]
        begin = np.flatnonzero(np.diff(key, prepend=-1))
        there = key[begin]
        cuts = np.searchsorted(there, n * np.arange(blocks + 1))
        return {
            "bounds": np.stack([cuts[:-1], cuts[1:]], 1), "target": (there % n).astype(np.int32),
            "entry_first": np.append(begin, len(key)),
            "entry_lane": (line % width)[order].astype(np.int32), "amount": amount[order],
        }  # fmt: skip


class DemandRows:
    """Demand whose amounts are computed for some sources at a time.

    Sources are different nodes, and so are targets. `total` is the amounts so far, between
    different nodes.
    """

    def __init__(self, n: int, sources: Index, targets: Index) -> None:
        self.n, self.sources, self.targets, self.total = n, sources, targets, 0.0

    @property
    def step(self) -> int:
        """Sources of a :meth:`batch` at most."""
        return max(1, _ENTRIES // max(1, len(self.targets)))

    def batch(self, sources: Index) -> Demand:
        """The demand of some sources."""
        some = Demand.of(self.n, sources, self.targets, self.amounts(sources))
        self.total += some.total
        return some

    def amounts(self, sources: Index) -> Array:
        """The (k, t) amounts from k of the sources."""
        raise NotImplementedError
