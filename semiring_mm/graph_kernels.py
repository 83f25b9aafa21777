"""What an engine offers to algorithms on graphs: plain values, and a protocol for each family.

Graph kernels work on the factor of a sparse elimination, on lists of arcs and on trees. They take
arrays and the values of this module, never an object of the algorithms above. An engine that lacks
a family has None in its place.

Kernels on the host take their arguments by name, in a dictionary. A layout names them: numbers,
then after colons int64 arrays, int32 arrays, and others. Behind an array's name stand

* ``/f8``: its dtype; arrays with the same capital letter, such as ``/T``, have one dtype;
* ``[n + 1]``, without spaces: the least number of entries, of numbers and of other arguments;
* ``<n``: entries are indices from 0 to n - 1;
* ``~``: rows may lie apart; arrays without it are contiguous.

What is not given is 0, or no array. :func:`check` compares arguments with a layout: an array that
is too short, or of another dtype, would have a kernel read or write foreign memory.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from types import CodeType
from typing import Any, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from .layouts import LayoutError
from .plan import Facts, Plan
from .semirings import Semiring

__all__ = [
    "LAYOUTS", "Arcs", "Checked", "Code", "Customizer", "Factor",
    "FactorKernels", "FactorSweeps", "HopSearches", "Index",
    "Node", "SumKernels", "SymbolicFactor", "assert_arcs", "assert_lies", "check",
    "offsets", "ranges",
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


def assert_lies(name: str, x: Array, dtype: Any, *shape: int) -> None:
    """Raise LayoutError for an array of another dtype or shape, or one that is not contiguous."""
    if x.dtype != dtype or x.shape != shape or not x.flags.c_contiguous:
        raise LayoutError(
            f"{name} is {x.dtype} of shape {x.shape} with strides {x.strides}; accepted: "
            f"{np.dtype(dtype)}, contiguous, of shape {shape}"
        )


def assert_arcs(n: int, *lists: Arcs) -> None:
    """Raise LayoutError for what are no lists of arcs of n nodes."""
    for first, near in lists:
        assert_lies("first", first, np.int64, n + 1)
        assert_lies("near", near, np.int32, len(near))
        if isinstance(first, np.ndarray) and (first[0] != 0 or first[-1] != len(near)):
            raise LayoutError(f"first leads from {first[0]} to {first[-1]}, of {len(near)} arcs")


@dataclass(frozen=True)
class SymbolicFactor:
    """Vertices by position in an elimination order, and the edges that the elimination fills in.

    The first `fringe` positions are eliminated one by one; they are a postorder of the elimination
    tree, so that the descendants of a position come right before it. The others are the core,
    between whose nodes all edges are taken to be. Arrays are NumPy's, contiguous.

    Attributes
    ----------
    fringe : int
    position, node : (n,) int32
        The position of each node, and the node at each position. A part of a factor, whose nodes
        are positions of the whole, has more entries in `position`.
    parent : (fringe,) int32
        The first higher neighbour: in the fringe the parent in the elimination tree, else in the
        core; n where there is none.
    level : (fringe,) int32
        Height in the elimination tree: all lower neighbours have lower levels.
    first : (fringe + 1,) int64
    head : (edges,) int32
        The higher neighbours of each position of the fringe, ascending, from ``first`` on.
    """

    fringe: int
    position: Node
    node: Node
    parent: Node
    level: Node
    first: Index
    head: Node

    def __post_init__(self) -> None:
        assert_lies("position", self.position, np.int32, max(self.n, len(self.position)))
        assert_lies("node", self.node, np.int32, self.n)
        assert_lies("parent", self.parent, np.int32, self.fringe)
        assert_lies("level", self.level, np.int32, self.fringe)
        assert_lies("first", self.first, np.int64, self.fringe + 1)
        assert_lies("head", self.head, np.int32, int(self.first[-1]))

    @property
    def n(self) -> int:
        """Number of nodes."""
        return len(self.node)

    @property
    def core(self) -> int:
        """Number of nodes of the core."""
        return self.n - self.fringe


@dataclass(frozen=True)
class Factor:
    """A customized factor: weights of all edges of a symbolic one, and the core's closure.

    Attributes
    ----------
    structure : SymbolicFactor
    semiring : Semiring
    dtype : dtype
        Of the core's entries, and of distances.
    known : tuple of Facts, optional
        Ranges that hold for all entries at all times.
    plan : Plan
        How labels are computed along paths.
    out, back : (edges,) arrays of the type that the plan computes in
        Upward and downward; the same array where the graph is symmetric.
    core : (core, core) array of `dtype`
        Best paths within the core and through the fringe.
    """

    structure: SymbolicFactor
    semiring: Semiring
    dtype: np.dtype[Any]
    known: tuple[Facts, Facts, Facts] | None
    plan: Plan
    out: Array
    back: Array
    core: Array

    def __post_init__(self) -> None:
        edges, core = len(self.structure.head), self.structure.core
        assert_lies("out", self.out, self.out.dtype, edges)
        assert_lies("back", self.back, self.out.dtype, edges)
        assert_lies("core", self.core, self.dtype, core, core)


# --- kernels on the host: families of functions, and the layouts of their arguments --------------

Fields = Mapping[str, Any]

FACTOR = {  # of the functions that are no kernels in Python, which check their arguments themselves
    "write_values": "n base : offsets where[n] : : label rows~ turned/u1",
    "write_nodes": "n base : offsets where[n] : : label/i4 rows/i4~ turned/u1",
}
SUMS = {
    "depths": "n : : parent[n] depth[n]",
    "climb": "fringe : source first[fringe+1] visits[2] : parent[fringe] head[first[fringe]] "
    "place visited : risen/T out/T[head.size]",
    "fall": "fringe core segment bins radii : source first[fringe+1] visits[2] "
    ": slot[first[fringe]] own[fringe] visited counts table : label/T risen/T back/T[slot.size] "
    "largest/T part total rest/f8 inverse_part/f8 inverse/f8 inverse_rest/f8 radius/T[radii] "
    "within edges/T scale mass",
}
#: By the names of families, as engines have them; the kernels of others check their arguments.
LAYOUTS = {"factor": FACTOR, "sums": SUMS}


class _Argument(NamedTuple):
    name: str
    dtype: np.dtype[Any] | None
    same: str  # arrays with the same letter have one dtype
    size: CodeType | None
    below: CodeType | None
    apart: bool


_WORD = re.compile(r"(\w+)(?:/(\w+))?(?:\[(.+)\])?(?:<(.+))?(~?)")


@functools.cache
def _arguments(layout: str) -> list[_Argument]:
    """The arrays of a layout."""
    found = list[_Argument]()
    for words, default in zip(layout.split(":")[1:], ("i8", "i4", ""), strict=False):
        for word in words.split():
            match = _WORD.fullmatch(word)
            assert match is not None, word
            name, kind, size, below, apart = match.groups()
            kind = kind or default
            known = np.dtype(kind) if kind and not kind.isupper() else None
            same = kind if known is None else ""
            least, end = (None if x is None else compile(x, name, "eval") for x in (size, below))
            found.append(_Argument(name, known, same, least, end, bool(apart)))
    return found


def check(kernel: str, layout: str, fields: Fields) -> None:
    """Compare arguments with a layout.

    Raises
    ------
    TypeError
        If an array has another dtype, or is not contiguous.
    ValueError
        If it is too short, or holds an index that is out of range.
    """
    kinds: dict[str, np.dtype[Any]] = {}
    for name, dtype, same, size, below, apart in _arguments(layout):
        x = fields.get(name)
        if x is None:
            continue
        if same:
            dtype = kinds.setdefault(same, x.dtype)
        if dtype is not None and x.dtype != dtype:
            raise TypeError(f"{kernel}: {name} is an array of {dtype}, got {x.dtype}")
        if not (apart or x.flags.c_contiguous):
            raise TypeError(
                f"{kernel}: {name} is contiguous, got strides {x.strides} of shape {x.shape}"
            )
        if size is not None and x.size < (least := eval(size, {}, fields)):
            raise ValueError(f"{kernel}: {name} has {least} entries or more, got {x.size}")
        if below is not None and x.size:
            end = eval(below, {}, fields)
            if x.min() < 0 or x.max() >= end:
                wrong = x[(x < 0) | (x >= end)][0]
                raise ValueError(f"{kernel}: {name} has indices below {end}, got {wrong}")


class Checked:
    """A family of kernels, whose arguments are checked before each call."""

    def __init__(self, family: Any, layouts: Mapping[str, str]) -> None:
        self._family, self._layouts = family, layouts

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._family, name)
        if name == "Code":
            member = functools.partial(_CheckedCode, member, self._layouts)
        elif name in self._layouts:
            member = functools.partial(_call, name, self._layouts[name], member)
        setattr(self, name, member)  # the next time at once
        return member


def _call(name: str, layout: str, kernel: Callable[..., None], *args: Any) -> None:
    check(name, layout, args[-1])
    kernel(*args)


class _CheckedCode:
    """Kernels that are compiled together, as :class:`Checked`."""

    def __init__(self, made: Any, layouts: Mapping[str, str], *args: Any, **options: Any) -> None:
        self._code, self._layouts = made(*args, **options), layouts

    def __call__(self, name: str, fields: Fields) -> None:
        check(name, self._layouts.get(name, ""), fields)
        self._code(name, fields)


class Code(Protocol):
    """Kernels that are compiled together."""

    def __call__(self, name: str, fields: Fields) -> None:
        """Call one of them."""


class FactorKernels(Protocol):
    """What sweeps over a factor need of the host beside kernels: :data:`FACTOR`.

    The lanes of vectors are sources, of which a chunk has as many as :meth:`chunk_width`. A label
    is a path's weight; labels of a vertex lie next to each other.
    """

    def chunk_width(self, itemsize: int) -> int:
        """Sources of one chunk, whose labels are computed in a type of that size."""

    def turned_bytes(self) -> int:
        """Scratch memory of the functions that write."""

    def write_values(self, plan: Plan, fields: Fields) -> None:
        """Row of lane i, column j ← label of vertex ``where[j]``, stored as the plan says.

        Rows begin ``offsets`` bytes behind ``rows``, whose address is ``base``, too; ``turned`` is
        scratch of :meth:`turned_bytes`.
        """

    def write_nodes(self, plan: Plan, fields: Fields) -> None:
        """The same of int32 labels, such as predecessors."""


class SumKernels(Protocol):
    """Triangular solves whose labels are only added up: :data:`SUMS`.

    Attributes
    ----------
    SEGMENT : int
        Distances that are added up before they join a sum with compensation.
    """

    SEGMENT: int

    def chunk_width(self, itemsize: int) -> int:
        """Sources of one chunk."""

    def vectors(self) -> int:
        """Vectors of a row: each weight that is loaded serves all of them, in registers."""

    def far_of(self, dtype: str) -> float | int:
        """What stands for no path."""

    def depths(self, fields: Fields) -> None:
        """``depth`` of each of `n` positions whose parents have higher numbers; 0 of roots."""

    def Code(self, dtype: str, kinds: frozenset[str], negative: bool, mass: str = "") -> Code:
        """The functions for one type of labels and one selection of sums.

        ``climb``: labels from the source of each lane, in ``risen``: first rows of the core, which
        hold no path beforehand, then one for each ancestor, whose position goes to ``visited``.
        ``source`` ascends and ends with a number that is no vertex; ``place`` has the rows of the
        core.

        ``fall``: from rows of the core in ``label``, and the ancestors, to all vertices.

        Parameters
        ----------
        dtype : {"int32", "int64", "float32", "float64"}
        kinds : frozenset of str
            Of "largest", "count", "sum", "inverse", "within"; of a histogram "bins" stand for even
            distances, "even" for those of whole numbers, "edges" for others; with "half" each
            source counts only what has a lower position.
        negative : bool
            Whether there are negative weights.
        mass : {"", "int64", "float64"}
            The type of an attribute of nodes of which sums within a radius are taken; "": they are
            counted.
        """


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

    Attributes
    ----------
    factor : Factor
        Of the last call of :meth:`weigh`.
    width : int
        Sources that are swept together.
    """

    factor: Factor

    @property
    def width(self) -> int: ...

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
