"""Streets: a street network as arrays, nodes with coordinates and directed edges with columns."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..display import cell
from ..graph_kernels import Index, offsets, ranges
from ..lazy import cached_property
from ..naming import optional

__all__ = ["Streets", "as_crs", "lengths"]

Float = NDArray[np.float64]

#: Radius in metres of the sphere that has the Earth's area.
_RADIUS = 6_371_007.0
#: By how much points of the two directions of a street may differ, of the largest coordinate.
_SAME = 1e-7


@dataclass(frozen=True, repr=False, eq=False)
class Streets:
    """Street network as arrays: nodes with coordinates, and directed edges with attributes.

    Readers make it (:func:`semiring_mm.geo.network`), and so may you.

    Attributes
    ----------
    nodes : sequence
        Labels of the n nodes, all different.
    x, y : (n,) float64
        Coordinates of the nodes, finite, in `crs`.
    crs : object
        What ``pyproj.CRS.from_user_input`` takes ("EPSG:4326"); None: plain numbers of metres.
    u, v : (m,) int64
        Positions in `nodes` of the ends of each directed edge; a street open both ways is two.
    columns : mapping of str to (m,) arrays
        Attributes of edges: "length" in metres, "travel_time" in seconds, "key", "osmid",
        "highway", ...
    shape : (offsets, points), optional
        Lines of the edges, each from its `u` to its `v`: (m + 1,) int64, where the points of each
        begin, and (k, 2) float64. None: straight lines.

    Raises
    ------
    ValueError
        If arrays differ in length, a label is there twice, a coordinate is not finite, an end is no
        node, or a line has fewer than two points.

    Examples
    --------
    >>> import numpy as np
    >>> from semiring_mm.geo import Streets
    >>> x, ends = np.array([0.0, 30.0, 30.0]), (np.array([0, 1]), np.array([1, 2]))
    >>> streets = Streets(["a", "b", "c"], x, np.array([0.0, 0.0, 40.0]), None, *ends, {})
    >>> streets
    <Streets: 3 nodes, 2 directed edges, no CRS>
    >>> streets.edge_id(1), streets.lengths
    (('b', 'c', 0), array([30., 40.]))
    """

    __module__ = "semiring_mm.geo"  # where users import it from

    nodes: Sequence[Any]
    x: Float
    y: Float
    crs: Any
    u: Index
    v: Index
    columns: Mapping[str, NDArray[Any]]
    shape: tuple[Index, Float] | None = None

    def __post_init__(self) -> None:
        for name, kind in (("x", np.float64), ("y", np.float64), ("u", np.int64), ("v", np.int64)):
            object.__setattr__(self, name, np.ascontiguousarray(getattr(self, name), kind))
        n, m = len(self.nodes), len(self.u)
        if self.x.shape != (n,) or self.y.shape != (n,) or self.v.shape != (m,):
            raise ValueError(
                f"{n} nodes have {self.x.shape} x and {self.y.shape} y coordinates, and edges "
                f"{self.u.shape} and {self.v.shape} ends"
            )
        if not isinstance(self.nodes, range) and len(set(self.nodes)) < n:
            raise ValueError(f"labels of nodes differ, and {n - len(set(self.nodes))} are repeated")
        wrong = np.flatnonzero(~(np.isfinite(self.x) & np.isfinite(self.y)))
        if wrong.size:
            i = int(wrong[0])
            raise ValueError(
                f"coordinates are finite: node {self.nodes[i]!r} is at ({self.x[i]}, {self.y[i]}) "
                f"(one of {wrong.size} such nodes)"
            )
        for end in (self.u, self.v):
            if m and not 0 <= end.min() <= end.max() < n:
                raise ValueError(f"ends of edges are positions of the {n} nodes, got {end.max()}")
        for name, column in self.columns.items():
            if np.shape(column) != (m,):
                raise ValueError(f"column {name!r} has shape {np.shape(column)}, of {m} edges")
        if self.shape is not None:
            self._check_shape(m)

    def _check_shape(self, m: int) -> None:
        assert self.shape is not None
        first = np.ascontiguousarray(self.shape[0], np.int64)
        points = np.ascontiguousarray(self.shape[1], np.float64)
        object.__setattr__(self, "shape", (first, points))
        if first.shape != (m + 1,) or points.shape != (first[-1], 2) or first[0] != 0:
            raise ValueError(
                f"shape has {first.shape} offsets and {points.shape} points, of {m} edges"
            )
        short = np.flatnonzero(first[1:] - first[:-1] < 2)
        if short.size:
            raise ValueError(
                f"a line has two points or more: the geometry of edge "
                f"{self.edge_id(int(short[0]))} is empty (one of {short.size} such edges)"
            )
        if not np.isfinite(points).all():
            e = int(np.searchsorted(first, np.flatnonzero(~np.isfinite(points).all(1))[0], "right"))
            raise ValueError(f"coordinates are finite: not those of edge {self.edge_id(e - 1)}")

    def __repr__(self) -> str:
        crs = "no CRS" if self.crs is None else cell(str(as_crs(self.crs).name))
        return f"<Streets: {len(self.nodes)} nodes, {len(self.u)} directed edges, {crs}>"

    def edge_id(self, e: int) -> tuple[Any, Any, Any]:
        """The labels of the ends of an edge and its key, as OSMnx has them.

        Parameters
        ----------
        e : int
            Position of the edge.

        Returns
        -------
        (u, v, key)
            The key is 0 where there is no such column.
        """
        key = self.columns["key"][e] if "key" in self.columns else 0
        key = key.item() if isinstance(key, np.generic) else key
        return self.nodes[self.u[e]], self.nodes[self.v[e]], key

    @cached_property
    def geographic(self) -> bool:
        """Whether coordinates are degrees of longitude and latitude."""
        return _unit(self.crs) is None

    @cached_property
    def lines(self) -> tuple[Index, Float]:
        """`shape`, with straight lines where there is none."""
        if self.shape is not None:
            return self.shape
        m = len(self.u)
        ends = np.stack([self.u, self.v], axis=1).ravel()
        return 2 * np.arange(m + 1), np.stack([self.x[ends], self.y[ends]], axis=1)

    def line(self, e: int) -> Float:
        """The points of an edge.

        Parameters
        ----------
        e : int
            Position of the edge.

        Returns
        -------
        (k, 2) float64
            From its `u` to its `v`.
        """
        first, points = self.lines
        return points[first[e] : first[e + 1]]

    @cached_property
    def lengths(self) -> Float:
        """Lengths of the lines in metres, (m,)."""
        return lengths(*self.lines, self.crs)

    @cached_property
    def twin(self) -> Index:
        """For each edge the same street the other way, -1 where there is none; (m,).

        It leads back along the same points, and is as long if there is a column "length".
        """
        first, points = self.lines
        count, m = first[1:] - first[:-1], len(self.u)
        found = np.full(m, -1)
        if not m:
            return found
        # the mean of the points tells parallel streets apart, whatever their direction
        near = _SAME * max(1.0, float(np.abs(points).max()))
        middle = np.add.reduceat(points, first[:-1], axis=0).T / count
        second, last = points[first[:-1] + 1], points[first[1:] - 2]
        back = np.where(self.u == self.v, _precedes(last, second), self.u > self.v)
        length = np.asarray(self.columns.get("length", np.zeros(m)))
        keys = [np.minimum(self.u, self.v), np.maximum(self.u, self.v), count]
        keys += [np.round(x / near) for x in middle]
        keys += [np.round(np.nan_to_num(length), 2)] if length.dtype.kind in "iuf" else []
        order = np.lexsort([back, *keys])
        changes = np.append(True, np.any([np.diff(key[order]) != 0 for key in keys], axis=0))
        alike = np.cumsum(changes)
        begin = np.flatnonzero(np.append(True, changes[1:] | (np.diff(back[order]) > 0)))
        rank = np.arange(m) - np.repeat(begin, np.diff(begin, append=m))  # in their direction
        turn = np.lexsort([back[order], rank, alike])
        order, alike, rank = order[turn], alike[turn], rank[turn]
        a, b = order[:-1], order[1:]
        same = (alike[:-1] == alike[1:]) & (rank[:-1] == rank[1:]) & ~back[a] & back[b]
        for one, other in ((second[a], last[b]), (last[a], second[b])):
            same &= (count[a] == 2) | (np.abs(one - other) <= near).all(1)
        found[a[same]], found[b[same]] = b[same], a[same]
        return found

    def taken(self, edges: Index, *, backward: NDArray[np.bool_] | None = None) -> Streets:
        """Some edges, with all nodes.

        Parameters
        ----------
        edges : (k,) int64
            Positions.
        backward : (k,) bool, optional
            Which are turned around.

        Returns
        -------
        Streets
        """
        u, v = self.u[edges], self.v[edges]
        columns = {name: column[edges] for name, column in self.columns.items()}
        if backward is None:
            backward = np.zeros(len(edges), bool)
        u, v = np.where(backward, v, u), np.where(backward, u, v)
        shape = None
        if self.shape is not None:
            begin, at = some_lines(self.shape[0], edges, backward)
            shape = begin, self.shape[1][at]
        return Streets(self.nodes, self.x, self.y, self.crs, u, v, columns, shape)


def some_lines(first: Index, edges: Index, backward: NDArray[np.bool_]) -> tuple[Index, Index]:
    """Where the lines of some edges begin, and which points they have, of some backwards."""
    count = first[edges + 1] - first[edges]
    at = ranges(first[edges], count)
    mirror = np.repeat(2 * first[edges] + count - 1, count) - at
    return offsets(count), np.where(np.repeat(backward, count), mirror, at)


def _precedes(a: Float, b: Float) -> NDArray[np.bool_]:
    """Which points come before others, by x and then by y."""
    found = (a[:, 0] < b[:, 0]) | ((a[:, 0] == b[:, 0]) & (a[:, 1] < b[:, 1]))
    return np.asarray(found)


def as_crs(crs: Any) -> Any:
    """A coordinate reference system of pyproj from what it takes.

    Raises
    ------
    ValueError
        If pyproj knows no such system.
    """
    pyproj = optional("pyproj", "pyproj knows coordinate systems", "geo")
    try:
        return pyproj.CRS.from_user_input(crs)
    except pyproj.exceptions.CRSError as error:
        raise ValueError(f"crs is what pyproj takes, such as 'EPSG:4326': {error}") from None


def lengths(first: Index, points: Float, crs: Any) -> Float:
    """Lengths of lines in metres: along great circles where a CRS has degrees.

    Parameters
    ----------
    first : (m + 1,) int64
    points : (k, 2) float64
    crs : object
        As of :class:`Streets`.

    Returns
    -------
    (m,) float64

    Notes
    -----
    The great circles are those of a sphere of 6,371,007 m, which is at most 0.6 % from the
    ellipsoid.
    """
    step = np.zeros(len(points))
    if len(points):
        step[:-1] = distance(points[:-1].T, points[1:].T, crs)
    step[first[1:] - 1] = 0.0  # from a line to the next one
    return np.add.reduceat(step, first[:-1]) if len(first) > 1 else np.zeros(0)


@functools.lru_cache(maxsize=32)
def _unit(crs: Any) -> float | None:
    """Metres of a coordinate's unit; None for degrees."""
    if crs is None:
        return 1.0
    system = as_crs(crs)
    return None if system.is_geographic else float(system.axis_info[0].unit_conversion_factor)


def distance(a: Any, b: Any, crs: Any) -> Float:
    """Distances in metres between points, (2, k) each, as :func:`lengths` measures them."""
    unit = _unit(crs)
    if unit is None:
        (lon, lat), (other, high) = np.radians(a), np.radians(b)
        h = np.sin((high - lat) / 2) ** 2
        h = h + np.cos(lat) * np.cos(high) * np.sin((other - lon) / 2) ** 2
        return np.asarray(2 * _RADIUS * np.arcsin(np.sqrt(np.minimum(h, 1.0))))
    return np.asarray(unit * np.hypot(*np.subtract(b, a)))
