"""Where and how a graph's paths are found: one pure function of numbers."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from .. import engine as engines
from .. import pool
from ..arrays import device_index, gpu_has
from ..engine import named
from ..hierarchy import costs
from ..lazy import cached_property

if TYPE_CHECKING:
    from ..hierarchy.structure import Structure

__all__ = [
    "DENSE",
    "GPU_FROM",
    "GPU_HOPS",
    "GPU_SWEEPS",
    "SPARSE_FROM",
    "Choice",
    "Machine",
    "Request",
    "choose",
    "count_edges",
    "hop_device",
    "machine_for",
    "sweep_device",
]  # fmt: skip

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


@dataclass(frozen=True)
class Request:
    """What is asked for, of which graph.

    Attributes
    ----------
    semiring : str
        Its name.
    selective : bool
        Whether ⊕ chooses one of its operands, in the type of the weights.
    n, itemsize : int
        Nodes, and bytes of an entry of the matrix.
    edges : int, optional
        None: more than a sparse method is tried for, or not known.
    method : {"auto", "floyd_warshall", "squaring", "sparse"}
    predecessors : bool
    sources : int, optional
        How many; None: all nodes.
    hops : bool
        Whether paths are limited to some edges.
    overwrite : bool
    undirected : bool
        Whether it is known that each edge leads both ways.
    device : str, optional
        "cpu", or a CUDA device, for a graph on the host.
    host : bool
        Whether the graph is one, not a batch, and on the host.
    tiles : bool
        Whether work over tiles is asked for.
    comparing : bool
        Whether ⊕ and ⊗ are minimum and maximum.
    """

    semiring: str
    n: int
    itemsize: int
    edges: int | None = None
    method: str = "auto"
    predecessors: bool = False
    sources: int | None = None
    hops: bool = False
    overwrite: bool = False
    undirected: bool = False
    device: str | None = None
    host: bool = True
    tiles: bool = False
    selective: bool = True
    comparing: bool = False

    def refused_by_tiles(self) -> list[str]:
        """The arguments for which there is no method over tiles."""
        given = {
            "sources": self.sources is not None, "max_hops": self.hops,
            "overwrite": self.overwrite,
            f"method={self.method!r}": self.method not in ("auto", "floyd_warshall"),
        }  # fmt: skip
        return [name for name, there in given.items() if there]

    @property
    def sparse(self) -> bool:
        """Whether other than dense methods are tried."""
        if self.hops or self.method not in ("auto", "sparse"):
            return False
        if not self.selective or (self.semiring != "min_plus" and self.edges is None):
            return False
        if self.method == "sparse":
            return True
        return self.edges is not None and (self.n >= SPARSE_FROM or self.sources is not None)

    @cached_property
    def may_use_gpu(self) -> bool:
        """Whether it matters what a CUDA device has free."""
        if not self.host or self.n < GPU_FROM or self.device == "cpu":
            return False
        if self.device is not None:
            return True
        if self.comparing and self.undirected:
            return False
        return not (self.tiles or self.sparse or self.sources is not None)

    @property
    def countable(self) -> bool:
        """Whether the number of edges in a matrix decides."""
        few = self.n >= SPARSE_FROM and self.semiring == "min_plus" and not self.hops
        return few and self.method == "auto" and self.edges is None

    def counted(self, matrix: Any, zero: Any) -> Request:
        """The same, with the edges of its matrix on the host if they are few."""
        if matrix.dtype.kind not in "iuf":
            return self
        return replace(self, edges=count_edges(matrix, zero, DENSE * self.n))


@dataclass(frozen=True)
class Machine:
    """What there is to compute with.

    Attributes
    ----------
    gpu : int, optional
        Bytes free on the CUDA device that is asked for, or else the current one; None: no device.
    threads : int
    """

    gpu: int | None = None
    threads: int = 1


@dataclass(frozen=True)
class Choice:
    """How a graph's paths are found.

    Attributes
    ----------
    device : str, optional
        As it was asked for, or "cuda".
    tiles : bool
        Over tiles, none of what follows applies.
    method : {"hops", "sources", "squaring", "elimination"}
        On the dense matrix.
    dense : float
        Nanoseconds that this takes, and a sparse elimination has to fall short of; 0: none is
        tried.
    search : float
        Nanoseconds of a search from each source, where no weight is negative.
    forest : bool
        From a spanning forest in place of an elimination, if the graph is undirected.
    """

    device: str | None
    tiles: bool
    method: str
    dense: float = 0.0
    search: float = math.inf
    forest: bool = False

    @property
    def sparse(self) -> bool:
        """Whether other than dense methods are tried."""
        return self.dense > 0


def choose(asked: Request, machine: Machine) -> Choice:
    """The fastest way to do what is asked for on a machine."""
    n = asked.n
    # the result, the graph as it was given, and half of it for products in place
    needed = n * n * (5 * asked.itemsize // 2 + 6 * asked.predecessors)
    device, tiles, tiles_can = asked.device, asked.tiles, not asked.refused_by_tiles()
    if asked.may_use_gpu and machine.gpu is not None:
        exceeds = needed > machine.gpu
        if device is None and (tiles_can or not exceeds):
            device = "cuda"
        tiles = tiles or (device is not None and tiles_can and exceeds)
    method = (
        "hops" if asked.hops else "sources" if asked.sources is not None
        else "squaring" if asked.method == "squaring" else "elimination"
    )  # fmt: skip
    if asked.hops and asked.sources is not None:
        method = "sources"
    forest = asked.comparing and not asked.hops and asked.method == "auto"
    elsewhere, dense, search = device not in (None, "cpu"), math.inf, math.inf
    if not asked.sparse or (tiles and (asked.tiles or not elsewhere)):
        return Choice(device, tiles, method, forest=forest)
    arcs = (1 + asked.undirected) * (asked.edges or 0)
    if asked.method != "sparse":
        dense = costs.closure(
            n, asked.sources, itemsize=asked.itemsize, predecessors=asked.predecessors,
            undirected=asked.undirected, threads=machine.threads,
        )  # fmt: skip
    if elsewhere:
        few = asked.edges is not None and (asked.method == "sparse" or arcs < ROADS * n)
        return Choice(device, tiles and not few, method, dense if few else 0.0, forest=forest)
    if asked.method != "sparse":
        count = n if asked.sources is None else asked.sources
        search = costs.searches(n, arcs, count, threads=machine.threads)
    return Choice(device, tiles, method, dense, search, forest)


# --- what a request and a machine are made of ---------------------------------------------------


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


def hop_device(time: float, n: int, arcs: int) -> int | None:
    """The current CUDA device, -1, for searches that take the CPU so long; None: the CPU."""
    if time < GPU_HOPS:
        return None
    if engines.why_not("cuda"):
        return None
    searches = engines.named("cuda").HopSearches
    needed = None if searches is None else searches.bytes(n, arcs, 1, labels=False)
    return -1 if needed is not None and gpu_has(needed) else None


def machine_for(asked: Request) -> Machine:
    """What of this machine matters for a request."""
    gpu = None
    if asked.may_use_gpu and gpu_has(0):
        index, engine = device_index(asked.device), named("cuda")
        with engine.on(-1 if index is None else index):
            gpu = engine.free_memory() or 1 << 62
    return Machine(gpu, pool.get_num_threads())
