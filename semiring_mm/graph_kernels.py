"""What an engine offers to algorithms on graphs: plain values, and a protocol for each family.

Graph kernels work on the factor of a sparse elimination, on lists of arcs and on trees. They take
arrays and the values of this module, never an object of the algorithms above. An engine that lacks
a family has None in its place.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from .layouts import LayoutError, assert_fields, assert_lies
from .lazy import cached_property
from .plan import Facts, Plan
from .semirings import Semiring

__all__ = [
    "Arcs", "Customizer", "Factor", "FactorRows", "FactorSweeps", "HopDependencies", "HopSearches",
    "Index", "Node", "PathCounts", "ReverseSweeps", "SymbolicFactor", "assert_arcs", "offsets",
    "ranges",
]  # fmt: skip

Array = Any  # of the engine's namespace
Index = NDArray[np.int64]
Node = NDArray[np.int32]
Arcs = tuple[Array, Array]  # (n + 1,) int64 and (arcs,) int32: where a node's begin, and their ends


def offsets(counts: NDArray[Any]) -> NDArray[np.int64]:
    """Where ranges of these lengths begin, one after the other, and where the last one ends."""
    return np.concatenate([[0], np.cumsum(counts, dtype=np.int64)])


def ranges(first: NDArray[Any], counts: NDArray[Any]) -> NDArray[np.int64]:
    """The numbers of ranges, one range after the other."""
    begin = offsets(counts)
    return np.arange(begin[-1]) + np.repeat(first - begin[:-1], counts)


def assert_arcs(n: int, *lists: Arcs) -> None:
    """Raise LayoutError for what are no lists of arcs of n nodes."""
    for first, near in lists:
        assert_lies("first", first, "whole(i64[n + 1])", n=n)
        assert_lies("near", near, "whole(i32[:])")
        if isinstance(first, np.ndarray) and (first[0] != 0 or first[-1] != len(near)):
            raise LayoutError(f"first leads from {first[0]} to {first[-1]}, of {len(near)} arcs")


@dataclass(frozen=True)
class SymbolicFactor:
    """Vertices by position in an elimination order, and the edges that the elimination fills in.

    The first `eliminated` positions are eliminated one by one; they are a postorder of the
    elimination tree, so that the descendants of a position come right before it. The others are
    the core, a dense supernode at the root. Arrays are NumPy's.
    """

    eliminated: int
    # the position of each node, and the node at each position. A part of a factor, whose nodes are
    # positions of the whole, has more entries in `rank`
    rank: whole(i32[max(n, len(rank))])
    order: whole(i32[n])
    # the first higher neighbour: the parent in the elimination tree, or a node of the core; n where
    # there is none
    parent: whole(i32[eliminated])
    # height in the elimination tree: all lower neighbours have lower heights
    height: whole(i32[eliminated])
    # the higher neighbours of each eliminated position, ascending, from ``first`` on
    first: whole(i64[eliminated + 1])
    head: whole(i32[first[-1]])

    def __post_init__(self) -> None:
        assert_fields(self, SymbolicFactor)

    @cached_property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.order)

    @cached_property
    def core(self) -> int:
        """Number of nodes of the core."""
        return self.n - self.eliminated


@dataclass(frozen=True)
class Factor:
    """A customized factor: weights of all edges of a symbolic one, and the core's closure."""

    structure: SymbolicFactor
    semiring: Semiring
    dtype: np.dtype[Any]  # of the core's entries, and of distances
    known: tuple[Facts, Facts, Facts] | None  # ranges that hold for all entries at all times
    plan: Plan  # how labels are computed along paths
    # upward and downward, in the type that the plan computes in; the same array where the graph is
    # symmetric
    out: whole(T[len(structure.head)])
    back: whole(T[len(structure.head)])
    # best paths within the core and through the other nodes
    core: whole(dtype[structure.core, structure.core])

    def __post_init__(self) -> None:
        assert_fields(self, Factor)


@dataclass(frozen=True)
class PathCounts:
    """Numbers of shortest paths along the edges of a factor over min_plus, without a core."""

    structure: SymbolicFactor
    depth: int  # nodes on the longest path up the elimination tree
    # weights upward and downward, whole numbers; the same array where the graph is symmetric
    out: whole(T[len(structure.head)])
    back: whole(T[len(structure.head)])
    # of out and back: numbers of shortest paths, to be multiplied by powers of 2⁴⁰⁰, these
    paths: tuple[NDArray[np.float64], NDArray[np.float64]]
    powers: tuple[NDArray[np.float64], NDArray[np.float64]]
    slack: int  # by how much lengths of paths may differ that count as equal

    def __post_init__(self) -> None:
        assert_fields(self, PathCounts)


# --- on the host ---------------------------------------------------------------------------------


class FactorRows(Protocol):
    """Rows of labels over a factor, whose lanes are sources: how many fit the host's registers."""

    def lanes(self, itemsize: int) -> int:
        """Labels of a vector, which are computed in a type of that size."""

    def vectors(self) -> int:
        """Vectors of labels that stay in registers: each weight that is loaded serves them all."""


# --- families in the memory of any engine --------------------------------------------------------


class Customizer(Protocol):
    """Customizes a symbolic factor in the engine's memory, for one list of weights after another.

    It is made of ``(structure, slot, undirected=)``: a :class:`SymbolicFactor`; int64 of NumPy, for
    each arc 2 e upward along edge e, 2 e + 1 downward, -1 - (i c + j) from the i-th to the j-th
    node of a core of c; and whether each arc leads both ways.
    """

    def __call__(
        self, semiring: Semiring, dtype: np.dtype[Any], plan: Plan, weight: Array, *, look: bool
    ) -> tuple[Array, Array, Array, bool]:
        """The weights of a factor, as :class:`Factor` has them.

        Parameters
        ----------
        weight : array (arcs,) of `dtype`
            In the engine's memory.
        look : bool
            Whether edges are compared with one.

        Returns
        -------
        out, back : arrays (edges,)
        core : array (core, core) of `dtype`
            Before its closure.
        improves : bool
            Whether the way up some edge and back is better than one.
        """


class FactorSweeps(Protocol):
    """Best paths from many sources over a customized factor: triangular solves on an engine.

    It is made of ``(shape=, like=)``, both optional: the engine's own sizes of blocks, and sweeps
    over the same structure on another device, whose layout may be taken over.
    """

    factor: Factor  # of the last call of :meth:`weigh`

    @property
    def width(self) -> int:
        """Sources that are swept together."""

    def weigh(self, factor: Factor, bound: float | None = None) -> Array | None:
        """Take a factor; its arrays are on the host or in the engine's memory.

        No finite distance is larger than `bound`, where that is given; it is for whole numbers
        that are not negative.

        Returns
        -------
        core : array (nodes, nodes) of the factor's dtype, or None
            A matrix that the caller closes in place before the first sweep: the engine's core has
            more nodes than the factor's.
        """

    def rows(
        self, sources: Index, *, targets: Index | None = None, out: Array | None = None,
        edges: tuple[Index, Index, NDArray[Any]] | None = None, parents: Array | None = None,
    ) -> Array:  # fmt: skip
        """Best paths from some nodes to all or some, in the engine's memory.

        Parameters
        ----------
        sources, targets : array of int64, of NumPy
            Nodes.
        out : array (sources, targets), optional
            Of the factor's dtype, or for whole numbers of float32 or float64; rows are contiguous.
        edges : (row, col, weight), optional
            Of the graph, with weights as the factor has them, for `parents`.
        parents : array of int32, optional
            Of the shape of `out`; takes the node before each target, or -9999. Of all targets.
        """

    def statistics(
        self, sources: Index, kinds: Collection[str], *, radii: NDArray[Any] | None = None,
        mass: NDArray[Any] | None = None, edges: NDArray[Any] | None = None, bound: float = ...,
    ) -> dict[str, NDArray[Any]]:  # fmt: skip
        """Statistics of the distances from each source to the nodes that it reaches, over min_plus.

        No two floats are added in an order that changes.

        Parameters
        ----------
        sources : array of int64
        kinds : collection of str
            ``"largest"``: the largest distance, or 0; ``"count"``: how many nodes are reached;
            ``"sum"``: of their distances, in int64 or float64; ``"inverse"``: the sum of
            1 / distance where that is not 0; ``"within"``: for each of some `radii` how many are no
            farther, or the sum of their `mass`; ``"bins"``: as ``numpy.histogram`` of all
            distances by `edges`, for all sources together.
        radii : (k,) array, optional
        mass : (n,) array of int64 or float64, optional
            Of each node.
        edges : (bins + 1,) array, optional
        bound : float
            No distance is larger.
        """


class ReverseSweeps(Protocol):
    """Loads of a factor's edges in all shortest paths: sweeps with numbers of paths, and back.

    It is made of ``(sweeps, counts, seed, stress=)``: a :class:`FactorSweeps` that has the factor's
    weights; :class:`PathCounts`; the demand of each position, of NumPy, or None for ones; and
    whether each path counts 1, not all of those between two nodes together.
    """

    def loads(self, sources: Index, *, wide: bool) -> dict[str, NDArray[np.float64]] | None:
        """What the shortest paths from some nodes to all others put on each edge, on the host.

        Floats are added up in any order.

        Parameters
        ----------
        sources : array of int64, of NumPy
            Nodes.
        wide : bool
            Whether numbers of paths have powers.

        Returns
        -------
        dict, or None
            ``out`` and ``back``, for each edge, and ``ends``, the demands of each position from all
            sources but itself; None if the numbers of paths need powers.
        """


class HopSearches(Protocol):
    """Breadth-first searches from many sources at once over a graph whose edges all count 1.

    Parameters
    ----------
    n : int
        Nodes.
    out, back : Arcs
        Those from each node, and those to it, on the host or in the engine's memory; the same
        object where each edge leads both ways. None leads from a node to itself.

    Attributes
    ----------
    LANES : int
        Sources of one pass over the graph.
    """

    LANES: int

    def __init__(self, n: int, out: Arcs, back: Arcs) -> None: ...

    @staticmethod
    def bytes(n: int, arcs: int, count: int, *, labels: bool) -> int:
        """About how much memory searches from `count` sources take in which distances are kept."""

    def statistics(self, sources: Index, radii: Index) -> dict[str, NDArray[Any]]:
        """Numbers of nodes at each distance from some sources, added up; on the host.

        For each source: ``reached`` nodes beside itself, the ``total`` of their distances and of
        the ``inverse`` distances, the largest, ``far``, and the number ``within`` each radius (a
        row for each). ``table``, (n + 2,), has the number of pairs for each distance but 0.
        """

    def rows(
        self, sources: Index, dtype: Any, unreached: float, out: Array | None = None,
        done: Callable[[int], None] | None = None,
    ) -> Array:  # fmt: skip
        """Distances from some sources, a row each.

        Parameters
        ----------
        sources : array of int64
        dtype : int32, int64, float32 or float64
        unreached : number
            The distance where there is no path.
        out : array, optional
            Of that dtype, on the host or in the engine's memory; rows are contiguous. Default: a
            new array in the engine's memory.
        done : callable, optional
            Is told after how many sources the work stands.
        """


class HopDependencies(Protocol):
    """Dependencies on nodes and edges, summed over sources, where each edge counts 1.

    Parameters
    ----------
    n : int
        Nodes.
    out, back : Arcs
        Those from each node, and those to it; parallel ones are paths of their own.
    """

    def __init__(self, n: int, out: Arcs, back: Arcs) -> None: ...

    @staticmethod
    def bytes(n: int, arcs: int) -> int:
        """About how much of the engine's memory sums of nodes and edges take."""

    def sums(
        self, sources: Index, demand: NDArray[np.float64] | None, most: float, *, edges: bool,
        stress: bool,
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None, bool]:  # fmt: skip
        """Sums over sources, on the host; their order does not change from call to call.

        Parameters
        ----------
        sources : array of int64
        demand : (n,) float64, optional
            By what the shares of the paths to each node are multiplied. Default: 1.
        most : float
            Number of paths between two nodes whose shares float64 has.
        edges : bool
            Whether sums of edges are wanted.
        stress : bool
            Whether each shortest path counts 1, not all of those between two nodes together.

        Returns
        -------
        nodes : (n,) float64
            Paths that begin or end at a node are left out.
        edges : (arcs,) float64, or None
            In the order of `out`.
        more : bool
            Whether there are more than `most` paths between two nodes.
        """
