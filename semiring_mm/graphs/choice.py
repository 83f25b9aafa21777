"""What is asked for, of which graph: facts that decide which method is taken."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import pool
from ..arrays import Call, check_all_pairs, check_memory, device_index, gpu_has
from ..closures import memory
from ..closures.edges import EdgeList, symmetrize
from ..closures.solve import Problem
from ..closures.sources import ArraySource, EdgeSource
from ..closures.spanning import SpanningForest, spans
from ..engine import Engine, named
from ..lazy import cached_property
from ..memory import free_memory, too_large
from ..progress import Progress
from ..semirings import Semiring, semirings
from ..tiles import TileOptions
from ..warn import warn
from .inputs import adjacency, edges_hint

if TYPE_CHECKING:
    from ..hierarchy.symbolic import Structure
    from .hops import Hops

__all__ = [
    "DENSE", "GPU_FROM", "GPU_HOPS", "GPU_SWEEPS", "SPARSE_FROM", "Request", "check_graph",
    "check_shape", "count_edges", "hop_device", "matrix_of", "sweep_device",
]  # fmt: skip

Array = Any  # of the engine's library
Index = NDArray[np.int64]
#: Nodes from which a dense graph on the host is moved to a GPU, if there is one: about where what
#: it costs to move and to launch some hundred kernels is small beside the work on few cores.
GPU_FROM = 2048
#: Edges of an elimination times sources from which sweeps go to a GPU: where the CPU takes about
#: as long as it takes to load CuPy and kernels that are compiled already.
GPU_SWEEPS = 1e10
#: Nanoseconds of breadth-first searches from which they go to a GPU, for the same reason.
GPU_HOPS = 1.5e9
#: Labels of a node for which the GPU must have room.
_LABELS = 1024
#: Nodes from which, and edges a node of a matrix up to which, other than dense methods are tried.
SPARSE_FROM, DENSE = 100, 16
#: Edges leading from a node, on average, below which sweeps are tried on a GPU: where separators
#: are small, they take a hundredth of the time of a dense elimination there, elsewhere as long.
ROADS = 4
_NO_TILES = TileOptions()
_TOLD = 1 << 26  # bytes of a matrix that are compared with what is free
_ROOM = 1 << 28  # bytes that are nothing to speak of


@dataclass(eq=False)
class Request:
    """What is asked for, of which graph, and what is known of both.

    Facts that take time are found when a method first asks for them.
    """

    s: Semiring
    n: int  # nodes
    dtype: np.dtype[Any]  # of the result
    # edges that are stored; None: more than a sparse method is tried for, or not known
    arcs: int | None = None
    method: str = "auto"  # {"auto", "floyd_warshall", "squaring", "sparse"}
    predecessors: bool = False
    sources: int | None = None  # how many; None: all nodes
    rows: Index | None = None  # (sources,): their positions
    hops: int | None = None  # the most edges of a path
    overwrite: bool = False
    directed: bool | None = None
    undirected: bool = False  # whether it is known that each edge leads both ways
    # "cpu", or a CUDA device, for a graph on the host; :meth:`place` may choose one
    device: str | None = None
    host: bool = True  # whether the graph is one, not a batch, and on the host
    options: TileOptions = _NO_TILES
    tiles: bool = False  # whether the matrix is in tiles: :meth:`place` finds out
    # whether distances are the result, of which there may be a matrix, or only pass
    kept: bool = True
    edges: EdgeList | None = None  # the graph, if it is a list
    labels: Sequence[Any] | None = None  # names of the nodes, for messages
    progress: Progress = None
    call: Call | None = None  # the call that has the matrix, if the graph is one
    # whether what finds distances has to know the weights, though all may be 1
    metric: bool = False
    loads: bool = False  # whether shortest paths are counted, for the loads of nodes and edges
    strips: bool = False  # whether tiles are the alternative to what finds rows
    room: int | None = None  # bytes that the work may take
    # bytes of what keeps an elimination of a structure
    extra: Callable[[Structure], int] | None = None
    stack: bool = False  # whether the graph is a stack of matrices
    tiled: Any = None  # what gives arrays on the host for two slices, if the graph is that
    # what methods are known to be for a request, or their costs, from: this and what follows
    structure: Structure | None = None
    hop_graph: Hops | None = None
    device_hops: Any = None
    forest: SpanningForest | None = None

    @cached_property
    def count(self) -> int:
        """Rows of the result."""
        return self.n if self.sources is None else self.sources

    @property
    def nodes(self) -> Index:
        """The sources, also where these are all nodes."""
        return np.arange(self.n) if self.rows is None else self.rows

    @cached_property
    def threads(self) -> int:
        """Threads that work."""
        return pool.get_num_threads()

    @property
    def both(self) -> int:
        """Edges, each in each of its directions."""
        return (1 + self.undirected) * (self.arcs or 0)

    @property
    def itemsize(self) -> int:
        """Bytes of a number that methods compute with."""
        if self.edges is None:
            return self.dtype.itemsize
        return 4 if self.edges.weight.dtype == np.float32 else 8

    @property
    def result_bytes(self) -> int:
        """Bytes of the result that are not there yet."""
        there = self.edges is None and self.rows is None
        return self.count * self.n * (self.itemsize * (not there) + 4 * self.predecessors)

    @property
    def structure_bytes(self) -> int:
        """Bytes of the result and of an elimination."""
        if self.structure is None:
            return 0
        if self.extra is not None:
            return self.extra(self.structure)
        size = self.sparse.steps.dtype.itemsize
        needed = self.structure.bytes(size, trees=self.predecessors)
        return needed + self.result_bytes * self.kept

    def free(self, *, host: bool) -> int | None:
        """Bytes that can be had on the host, or where the matrix is; None: nobody knows."""
        if self.room is not None:
            return self.room
        if not host:
            return self.engine.free_memory()
        free = free_memory()
        return free if free is None or self.kept else max(_ROOM, free)

    @cached_property
    def comparing(self) -> bool:
        """Whether ⊕ and ⊗ are minimum and maximum."""
        return spans(self.s, self.dtype)

    @cached_property
    def elsewhere(self) -> bool:
        """Whether a graph on the host goes to a device, once it is placed."""
        return self.device not in (None, "cpu")

    @property
    def engine(self) -> Engine:
        """Where the matrix is."""
        return named("cpu") if self.call is None else self.call.engine

    def check_matrix(self, more: int, *, large: bool = False) -> None:
        """Speak of a matrix that a graph of edges did not have, before there is one.

        MemoryError above 4 GiB, unless `large` ones are accepted; a warning above a quarter of the
        free memory. An entry has `more` bytes.
        """
        size = (self.dtype.itemsize + more) * self.n**2
        statistics = (
            ", sm.statistics(graph) keeps none of them" if self.s.name == "min_plus" else ""
        )
        instead = (
            f"tiles=sm.Tiles(memory='4GB') takes them, with so much for the work, "
            f"Tiles(out='D.npy') writes them to a file, sources=[...] finds some rows{statistics}, "
            f"sm.prepare(graph) answers for pairs"
        )
        if not large:
            check_all_pairs(self.n, size, instead)
        free = free_memory() if size > _TOLD else None
        if free is not None and 4 * size > free:
            warn(str(too_large(f"a matrix of all pairs of {self.n:,} nodes", size, free, instead)))

    # --- where the work is done ---

    def refused_by_tiles(self) -> list[str]:
        """The arguments for which there is no method over tiles."""
        given = {
            "sources": self.sources is not None, "max_hops": self.hops is not None,
            "overwrite": self.overwrite,
            f"method={self.method!r}": self.method not in ("auto", "floyd_warshall"),
        }  # fmt: skip
        return [name for name, there in given.items() if there]

    @cached_property
    def dense(self) -> str:
        """Why only dense methods are tried; "" where others are."""
        if self.hops is not None:
            return "finds paths of any number of edges"
        if self.method not in ("auto", "sparse"):
            return "needs method='auto'"
        truth = self.edges is not None and self.dtype.kind not in "f"
        # all pairs of truth values are 32 columns to a word
        if self.kept and not (self.sources is not None if truth else self.s.selective):
            return "needs an ⊕ that chooses one operand, and numbers or sources"
        if self.s.name != "min_plus" and self.arcs is None:
            return "needs a list of edges, or a matrix over min_plus"
        if self.method == "sparse":
            return ""
        if self.arcs is None:
            return f"needs at most {DENSE} edges a node"
        few = self.n < SPARSE_FROM and self.sources is None
        return f"needs {SPARSE_FROM} nodes, or sources" if few else ""

    @cached_property
    def matrix_only(self) -> str:
        """Why no method for a list of edges is tried where the work is done; "" where some are."""
        if self.dense or self.options or (self.tiles and self.edges is None):
            return self.dense or "the matrix is in tiles"
        roads = self.method == "sparse" or not self.kept or self.both < ROADS * self.n
        if self.elsewhere and not (self.arcs is not None and roads):
            return f"needs fewer than {ROADS} edges a node on a device"
        return ""

    @property
    def may_use_gpu(self) -> bool:
        """Whether it matters what a CUDA device has free."""
        if not self.host or self.n < GPU_FROM or self.device == "cpu":
            return False
        if self.device is not None:
            return True
        if self.comparing and self.undirected:
            return False
        return bool(not (self.options or not self.dense or self.sources is not None))

    @cached_property
    def gpu(self) -> int | None:
        """Bytes free on the CUDA device that is asked for, or else the current one, if any."""
        if not gpu_has(0):
            return None
        index, engine = device_index(self.device), named("cuda")
        with engine.on(-1 if index is None else index):
            return engine.free_memory() or 1 << 62

    def place(self) -> Request:
        """Choose a device for a graph on the host, and whether its matrix is in tiles."""
        # the result, the graph as it was given, and half of it for products in place
        needed = self.n * self.n * (5 * self.dtype.itemsize // 2 + 6 * self.predecessors)
        self.tiles = bool(self.options)
        if self.may_use_gpu and self.gpu is not None:
            exceeds, tiles_can = needed > self.gpu, not self.refused_by_tiles()
            if self.device is None and (tiles_can or not exceeds):
                self.device = "cuda"
            self.tiles = self.tiles or (self.device is not None and tiles_can and exceeds)
        return self

    @property
    def countable(self) -> bool:
        """Whether the number of edges in a matrix decides."""
        few = self.n >= SPARSE_FROM and self.s.name == "min_plus" and self.hops is None
        return few and self.method == "auto" and self.arcs is None

    def count_arcs(self, matrix: Any) -> None:
        """Count the edges of its matrix on the host as far as it takes to see that they are few."""
        if self.countable and matrix.dtype.kind in "iuf":
            zero = self.s.identities(matrix.dtype)[0]
            self.arcs = count_edges(matrix, zero, DENSE * self.n)

    # --- the graph ---

    @cached_property
    def given(self) -> ArraySource:
        """The matrix as it was given, or that of the edges, to be overwritten."""
        assert self.call is not None
        engine = self.call.engine
        if self.edges is None:
            return self._own_matrix(self.call)
        if self.rows is not None:
            self.check_matrix(0)
        d = adjacency(self.edges, self.s)[0]
        if self.call.moved:
            check_memory(d.nbytes, matrix_of(d), engine)
            d = engine.from_host(d)
        return ArraySource(engine, self.s, d, undirected=not self.edges.directed)

    @property
    def kept_given(self) -> ArraySource:
        """The matrix as it was given, in its own memory, where it is as it is to be read."""
        call = self.call
        if call is None or self.edges is not None or "given" in self.__dict__:
            return self.given
        if call.out is not None or call.moved or self.directed is False:
            return self.given
        x = call["graph"]
        return ArraySource(call.engine, self.s, x, x) if x.dtype.isnative else self.given

    def _own_matrix(self, call: Call) -> ArraySource:
        x = call["graph"]
        native = x.dtype.newbyteorder("=")
        original = None
        if call.out is not None:
            if not getattr(call.out.flags, "writeable", True):
                raise ValueError("overwrite=True: the array is read-only")
            d = call.out.astype(native, copy=False)
        elif call.moved:
            d = x
        else:
            check_memory(x.size * x.itemsize, matrix_of(x), call.engine)
            original = x
            if isinstance(x, np.ndarray):
                d = np.empty(x.shape, native)
                call.engine.copy(x, d)  # by all threads
            else:
                d = x.astype(native, order="C")
        if self.directed is False:
            symmetrize(call.engine, self.s, d)
            original = None
        return ArraySource(call.engine, self.s, d, original, undirected=self.directed is False)

    @cached_property
    def problem(self) -> Problem:
        """The problem of the matrix; only an elimination, or a forest, gains by symmetry."""
        gains = self.hops is None and self.method != "squaring"
        gains = gains and (self.sources is None or self.comparing)
        directed = self.directed if gains else True
        labels = self.labels if self.edges is None else self.edges.nodes
        return Problem.of(self.given, directed, self.predecessors, labels, self.progress)

    @cached_property
    def matrix(self) -> Problem:
        """The same in numbers, of which facts are asked."""
        return self.problem.in_numbers()

    @cached_property
    def sparse(self) -> Problem:
        """The problem of the edges; for truth values whether a path of any width is there."""
        if self.edges is None:
            return self._edges_of_matrix()
        s, edges = self.s, self.edges
        if self.dtype.kind == "b":
            s, edges = semirings["max_min"], edges.weighted(np.ones(len(edges.col), np.float32))
        dtype = np.float32 if edges.weight.dtype == np.float32 else np.float64
        source = EdgeSource(s, edges.kept(edges.weight != s.zero), dtype)
        return Problem.of(source, None, self.predecessors, edges.nodes, self.progress)

    def _edges_of_matrix(self) -> Problem:
        problem, n = self.matrix, self.n
        engine, d = self.engine, memory.begin(problem)
        d = engine.to_host(d)
        zero, one = problem.source.s.identities(d.dtype)
        there = d != zero
        np.fill_diagonal(there, d.diagonal() != one)
        row, col = np.nonzero(there)
        small = {"i": np.int32, "f": np.float32, "V": np.float32}[d.dtype.kind]
        weight = d[row, col].astype(d.dtype if d.dtype.itemsize >= 4 else small)
        edges = EdgeSource(problem.source.s, EdgeList.of(n, row, col, weight), weight.dtype)
        return replace(problem, source=edges)

    @cached_property
    def searchable(self) -> bool:
        """Whether a search finds best paths: ⊕ chooses, and no weight is better than one."""
        return self.sparse.source.s.selective and not self.sparse.weights.look(1)

    @property
    def listed(self) -> EdgeList:
        """The edges, as far as they are no zeros, each once."""
        source = self.sparse.source
        assert isinstance(source, EdgeSource)
        assert source.margins is None
        return source.given

    @property
    def unit(self) -> bool:
        """Whether every edge counts 1."""
        facts = self.sparse.weights.facts
        return bool(facts.lo == facts.hi == 1)


def check_shape(x: Array) -> None:
    """Raise ValueError if an array of any library has not the shape of a graph's matrix."""
    if len(x.shape) == 3 and x.shape[1] != x.shape[2]:
        raise ValueError(f"a batch of graphs has shape (b, n, n), got {x.shape}")
    if len(x.shape) not in (2, 3) or x.shape[-1] != x.shape[-2]:
        raise ValueError(f"a graph's matrix is square, got shape {x.shape}{edges_hint(x.shape)}")


def check_graph(x: Array) -> None:
    """Raise ValueError or TypeError if an array is no matrix of a graph, or stack of them."""
    check_shape(x)
    if x.dtype.kind not in "biuf" and x.dtype.name != "bfloat16":
        raise TypeError(f"a graph's weights are real numbers, got dtype {x.dtype}")


def matrix_of(d: Array) -> str:
    """The words for a matrix in messages about its memory."""
    return f"the {' x '.join(map(str, d.shape))} matrix in {d.dtype}"


def count_edges(matrix: Any, zero: Any, most: int) -> int | None:
    """Entries of a square matrix on the host that are not `zero`, its diagonal left out.

    None: there are more than `most`. Not many rows more are read than it takes to see that.
    """
    count, lines, n = 0, 64, len(matrix)
    most += n  # on the diagonal
    for i in range(0, n, lines):
        count += int(np.count_nonzero(matrix[i : i + lines] != zero))
        if count > most:
            return None
    return count - int(np.count_nonzero(matrix.diagonal() != zero))


def sweep_device(device: str | None, x: Structure, sources: int, itemsize: int) -> int | None:
    """The CUDA device for so many sweeps, -1 for the current one; None: the CPU.

    Without a `device` it is the current one where there is one with room for labels, and sweeps
    on the CPU would take longer than bringing them there.
    """
    if device is not None:
        return device_index(device)
    work = float(sources) * (len(x.head) + float(x.core) ** 2 / 16)
    return -1 if work >= GPU_SWEEPS and gpu_has(_LABELS * x.n * itemsize) else None


def hop_device(time: float, n: int, arcs: int, *, paths: bool = False) -> int | None:
    """The current CUDA device, -1, for searches that take the CPU so long; None: the CPU.

    `paths`: they count shortest paths.
    """
    if time < GPU_HOPS:
        return None
    if engines.why_not("cuda"):
        return None
    engine = engines.named("cuda")
    assert engine.HopSearches is not None
    assert engine.HopDependencies is not None
    needed = (
        engine.HopDependencies.bytes(n, arcs)
        if paths
        else engine.HopSearches.bytes(n, arcs, 1, labels=False)
    )
    return -1 if gpu_has(needed) else None
