"""The nearest of some facilities to every node of a graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from ..arrays import check_memory
from ..closures.labelled import pandas
from ..display import cell, chosen, html_table
from ..hierarchy.metric import Metric
from ..progress import Progress, Tick, reporter
from .inputs import positions
from .kernels import nearest as kernels
from .prepared import distances_of
from .rows import Rows, Sweeps
from .statistics import finder, request_of

__all__ = ["Nearest", "nearest"]

Array = NDArray[Any]
Index = NDArray[np.int64]

_ROWS = 64


@dataclass(frozen=True, repr=False)
class Nearest:
    """The nearest facilities of every node.

    Attributes
    ----------
    nodes : sequence
        All nodes of the graph.
    facility : (n, k) int64
        The positions of the facilities in `nodes`, the nearest first; -1 where there are fewer.
    distance : (n, k) array
        The distances to them, inf where there are fewer.
    """

    __module__ = "semiring_mm"  # where users import it from

    nodes: Sequence[Any]
    facility: Index
    distance: Array

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _title(self) -> str:
        n, k = self.facility.shape
        return f"Nearest: {n} nodes, k = {k}, {self.distance.dtype}"

    def _repr_html_(self) -> str:
        def row(i: int | None) -> list[str]:
            if i is None:
                return ["..."] * 4
            node, rank = divmod(i, self.facility.shape[1])
            at = int(self.facility[node, rank])
            name = "" if at < 0 else cell(self.nodes[at])
            return [cell(self.nodes[node]), str(rank + 1), name, cell(self.distance[node, rank])]

        rows = [row(i) for i in chosen(self.facility.size)]
        return html_table(self._title(), ["node", "rank", "facility", "distance"], rows)

    def to_frame(self) -> Any:
        """A table of pandas with a row for each node and facility.

        Returns
        -------
        pandas.DataFrame
            Columns node, rank (from 1), facility and distance.
        """
        pd = pandas()
        node, rank = np.nonzero(self.facility >= 0)
        names = np.empty(len(self.nodes), object)
        names[:] = list(self.nodes)
        return pd.DataFrame({
            "node": names[node], "rank": rank + 1, "facility": names[self.facility[node, rank]],
            "distance": self.distance[node, rank],
        })  # fmt: skip


@overload
def nearest(
    graph: Any, facilities: Mapping[Any, Any], k: int = ..., *, weight: str | int | None = ...,
    source: Any = ..., target: Any = ..., dtype: Any = ..., directed: bool | None = ...,
    outward: bool = ..., progress: Progress = ...,
) -> dict[Any, Nearest]: ...  # fmt: skip
@overload
def nearest(
    graph: Any, facilities: Any, k: int = ..., *, weight: str | int | None = ...,
    source: Any = ..., target: Any = ..., dtype: Any = ..., directed: bool | None = ...,
    outward: bool = ..., progress: Progress = ...,
) -> Nearest: ...  # fmt: skip
def nearest(
    graph: Any,
    facilities: Any,
    k: int = 1,
    *,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    outward: bool = False,
    progress: Progress = None,
) -> Nearest | dict[Any, Nearest]:
    """The k nearest of some facilities to every node.

    Parameters
    ----------
    graph : any graph that :func:`adjacency` takes, or a prepared one of :func:`prepare`
    facilities : node, or sequence of nodes, or dict of these
        A dict has the facilities of several categories, by their names.
    k : int, default 1
    weight : str or None, default "weight"
        As for :func:`adjacency`; None: each edge counts 1.
    source, target, dtype : optional
        As for :func:`statistics`.
    directed : bool, optional
        False also reads every edge backwards. Default: what the graph says of itself.
    outward : bool, default False
        In a directed graph: the distances from the facilities, not to them.
    progress : bool or callable, optional
        As for :func:`apsp`, of the facilities from which a search runs.

    Returns
    -------
    Nearest, or dict of Nearest
        Of equally near facilities the one given first. Of a dict one for each category.

    Raises
    ------
    ValueError
        If there is no such node, or a cycle has negative weight (:class:`NegativeCycleError`).

    Notes
    -----
    O(k f) in all on a sparse graph, f being the edges of an elimination (see :func:`prepare`),
    however many facilities there are.

    Examples
    --------
    >>> import networkx as nx
    >>> import semiring_mm as sm
    >>> found = sm.nearest(nx.path_graph(6), [0, 4], k=2)
    >>> found.facility[:, 0], found.distance[3]
    (array([0, 0, 0, 4, 4, 4]), array([1., 3.]))
    >>> found = sm.nearest(nx.path_graph(6), {"school": [0, 4], "shop": 2})
    >>> found["shop"].distance[:, 0]
    array([2., 1., 0., 1., 2., 3.])
    """
    if type(k) is not int or k < 1:
        raise ValueError(f"k: a positive number of facilities, got {k!r}")
    edges, metric = distances_of(graph, weight, directed, source, target, dtype)
    own, ends = edges.original, edges.ends
    n = own.n
    by_category = isinstance(facilities, Mapping)
    groups = dict[Any, Index]()
    for name, some in facilities.items() if by_category else [(None, facilities)]:
        given = positions(some, n, own.nodes, "facilities")
        if given is None:
            raise TypeError("facilities: a node or several, got None")
        groups[name] = given[np.sort(np.unique(given, return_index=True)[1])]
    kept = {name: min(k, max(1, len(places))) for name, places in groups.items()}
    total, each = sum(map(len, groups.values())), sum(kept.values())
    check_memory(n * each * 24, f"the table of the {each} nearest of {n} nodes")
    tick = reporter(progress, float(total), "the nearest facilities", "facilities")
    request = request_of(edges, total, metric=True)
    rows = finder(request) if metric is None else Sweeps(*metric)
    rows = rows if outward else rows.reversed
    results, done = dict[Any, Nearest](), 0.0
    for name, places in groups.items():
        at = places if ends is None or outward else ends[places]
        if isinstance(rows, Sweeps):
            d, who = _by_lists(rows.metric, at, kept[name])
        else:
            d, who = _by_rows(rows, at, kept[name], tick, done)
        if ends is not None:
            some = ends if outward else np.arange(n)
            d, who = d[some], who[some]
        done += len(places)
        if tick is not None:
            tick(done)
        facility = np.append(places, -1)[who]
        if kept[name] < k:
            room = ((0, 0), (0, k - kept[name]))
            d = np.pad(d, room, constant_values=np.inf)
            facility = np.pad(facility, room, constant_values=-1)
        results[name] = Nearest(own.nodes, facility, d)
    return results if by_category else results[None]


def _by_lists(metric: Metric, places: Index, k: int) -> tuple[Array, Index]:
    """Distances, inf for none, and numbers of places, of which there is one more for none."""
    x, far = metric.structure, metric.identities[0]
    label = np.full((x.n, k), far, metric.out.dtype)
    who = np.full((x.n, k), kernels.NOWHERE, np.int32)
    at = x.rank[places]
    label[at, 0], who[at, 0] = 0, np.arange(len(places))
    core = metric.core.astype(metric.out.dtype, order="C")
    core[metric.core == metric.steps.identities[0]] = far
    engines.compiled(kernels.k_nearest, label.dtype.str[1:])(
        eliminated=x.eliminated, core=x.core, k=k, far=far, first=x.first, head=x.head, place=who,
        core_place=np.empty((x.core, k), np.int32), label=label, matrix=core, out=metric.out,
        core_label=np.empty((x.core, k), label.dtype), back=metric.back,
    )  # fmt: skip
    who, label = who[x.rank], label[x.rank]
    none = who == kernels.NOWHERE
    d = label.astype(label.dtype if label.dtype.kind == "f" else np.float64)
    d[none] = np.inf
    return d, np.where(none, len(places), who).astype(np.int64)


def _by_rows(
    rows: Rows, places: Index, k: int, tick: Tick | None, done: float
) -> tuple[Array, Index]:
    """The same by rows of distances from each place."""
    n, none, kind = rows.problem.source.n, len(places), rows.dtype
    d = np.full((k, n), np.inf, kind if kind.kind == "f" else np.float64)
    who = np.full((k, n), none)
    for i in range(0, none, _ROWS):
        some = np.arange(i, min(i + _ROWS, none))
        found = rows.rows(places[some])
        d = np.concatenate([d, found])
        who = np.concatenate([who, np.where(np.isinf(found), none, some[:, np.newaxis])])
        order = np.argsort(d, axis=0, kind="stable")[:k]  # earlier places come first
        d, who = np.take_along_axis(d, order, 0), np.take_along_axis(who, order, 0)
        if tick is not None and i + _ROWS < none:
            tick(done + i + _ROWS)
    return np.ascontiguousarray(d.T), np.ascontiguousarray(who.T)
