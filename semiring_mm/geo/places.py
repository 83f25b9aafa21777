"""Places: points snapped to the nearest street, with the offset along it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..engine import compiled
from ..naming import optional
from . import kernels
from .outputs import geopandas
from .streets import Streets, as_crs, distance

__all__ = ["Locator", "Places", "check_single", "points_of"]

Index = NDArray[np.int64]
Float = NDArray[np.float64]

#: Cells of the grid, for each segment.
_CELLS = 0.5
#: Points that a task snaps.
_POINTS = 1 << 13
#: Latitude beyond which the projection is not used.
_POLE = 89.0


@dataclass(frozen=True, repr=False, eq=False)
class Places:
    """Points on a street network: what takes nodes takes them, too.

    :meth:`Network.snap` makes them. ``places[3]``, ``places[:10]`` and ``places[mask]`` are some.

    Attributes
    ----------
    edge : (k,) int64
        The position of the directed edge that each is on; -1 where no street is within the limit.
    fraction : (k,) float64
        Of the edge's length, from its `u` on; NaN where there is none.
    distance : (k,) float64
        Metres from the point to the street, which no verb adds; inf where there is none.
    x, y : (k,) float64
        On the street, in the CRS of the network; the point itself where there is none.
    ids : sequence
        What results call them: an index of a GeoSeries, or ``range(k)``.
    """

    __module__ = "semiring_mm.geo"  # where users import it from

    edge: Index
    fraction: Float
    distance: Float
    x: Float
    y: Float
    ids: Sequence[Any]
    _whole: tuple[Places, Index] | None = None  # what these are some of, and which

    def __len__(self) -> int:
        return len(self.edge)

    def __repr__(self) -> str:
        off = f", {self.off.sum()} off the network" if self.off.any() else ""
        near = self.distance[~self.off]
        far = f", {np.median(near):.3g} m from the street" if near.size else ""
        return f"<Places: {len(self)}{off}{far}>"

    @property
    def off(self) -> NDArray[np.bool_]:
        """Which have no street within the limit, (k,)."""
        return self.edge < 0

    @property
    def root(self) -> tuple[Places, Index]:
        """The places that these were taken from, and which of them they are."""
        return (self, np.arange(len(self))) if self._whole is None else self._whole

    def to_geodataframe(self, crs: Any, **columns: Any) -> Any:
        """Points on the streets, with results as columns.

        Parameters
        ----------
        crs : object
            That of the network, ``net.streets.crs``.
        **columns : (k,) arrays

        Returns
        -------
        GeoDataFrame
            By ids, with `distance`.
        """
        given = {"distance": self.distance} | columns
        points = geopandas().points_from_xy(self.x, self.y)
        return geopandas().GeoDataFrame(given, geometry=points, index=list(self.ids), crs=crs)

    def __getitem__(self, key: Any) -> Places:
        which = np.atleast_1d(np.arange(len(self))[key])
        whole, rows = self.root
        ids = [self.ids[i] for i in which]
        return Places(
            self.edge[which], self.fraction[which], self.distance[which], self.x[which],
            self.y[which], ids, (whole, rows[which]),
        )  # fmt: skip


class Locator:
    """The nearest street to a point, by a grid over its segments.

    Edges that are `closed` both ways are no streets.
    """

    def __init__(self, streets: Streets, closed: NDArray[np.bool_]) -> None:
        self.streets = streets
        twin = streets.twin
        edges = np.arange(len(twin))
        # one of both directions stands for a street
        open_ = ~closed
        mine = open_ & ((twin < 0) | (edges < twin) | closed[twin])
        first, points = streets.lines
        count = first[1:] - first[:-1] - 1
        row = np.repeat(edges, count)
        begin = np.arange(len(row)) + row  # each line has one more point than segments
        keep = mine[row]
        self.edge, self.begin = row[keep], begin[keep]  # of each segment, and its first point
        begin = self.begin
        flat = self._flat(points)
        self.low = flat.min(axis=1, initial=np.inf) if len(points) else np.zeros(2)
        extent = flat.max(axis=1) - self.low if len(points) else np.ones(2)
        area = float(np.prod(np.maximum(extent, extent.max() * 1e-3 + 1e-9)))
        self.side = max(np.sqrt(area / (_CELLS * len(begin) + 1)), 1e-9)
        self.wide, self.high = (int(x) for x in extent // self.side + 1)
        flat = (flat - self.low[:, np.newaxis]) / self.side
        self.x, self.y = (np.stack([z[begin], z[begin + 1]], axis=1) for z in flat)
        self.first = np.zeros(self.wide * self.high + 1, np.int64)
        fields = {
            "m": len(begin), "wide": self.wide, "high": self.high, "x": self.x, "y": self.y
        }  # fmt: skip
        sort = compiled(kernels.sort_segments)
        sort(**fields, count=self.first, held=np.empty(0, np.int32), full=0)
        np.cumsum(self.first, out=self.first)
        self.held = np.empty(self.first[-1], np.int32)
        sort(**fields, count=self.first.copy(), held=self.held, full=1)
        # metres from the beginning of each segment's edge, and along it
        step = distance(points[begin].T, points[begin + 1].T, streets.crs)
        done = np.cumsum(step) - step
        starts = np.flatnonzero(np.diff(self.edge, prepend=-1))
        own = np.diff(starts, append=len(self.edge))
        self.before, self.step = done - np.repeat(done[starts], own), step
        total = np.add.reduceat(step, starts) if len(starts) else step
        self.total = np.repeat(total, own)

    def _flat(self, points: Float) -> Float:
        """Coordinates in a plane where the nearest is the nearest, (2, k).

        Degrees by Mercator's projection, which keeps angles.
        """
        x, y = points.T
        if not self.streets.geographic:
            return np.stack([x, y])
        y = np.radians(np.clip(y, -_POLE, _POLE))
        return np.stack([np.radians(x), np.arctanh(np.sin(y))])

    def nearest(self, points: Float, limit: float | None, ids: Sequence[Any]) -> Places:
        """The places of points, (k, 2), in the streets' CRS."""
        k, streets = len(points), self.streets
        u, v = (self._flat(points) - self.low[:, np.newaxis]) / self.side
        found, part, square = np.empty(k, np.int64), np.empty(k), np.empty(k)
        kernel, reach = compiled(kernels.nearest_segments), np.inf
        if limit is not None and k:  # in cells, and at least
            unit = distance([[0.0], [0.0]], [[0.0], [1.0]], streets.crs)[0] * self.side
            if streets.geographic:
                # a step of the projection is shorter by the cosine, away from the equator
                lat = np.abs(np.append(points[:, 1], streets.y)).max(initial=0.0)
                unit *= np.degrees(1.0) * np.cos(np.radians(min(lat + 1.0, _POLE)))
            reach = 1.01 * limit / unit

        def some(begin: int, end: int) -> None:
            kernel(
                begin=begin, end=end, wide=self.wide, high=self.high, first=self.first,
                held=self.held, x=self.x, y=self.y, px=u, py=v, most=reach * reach, found=found,
                part=part, square=square,
            )  # fmt: skip

        if k and len(self.edge):
            pool.run_parts(some, k, -(-k // _POINTS))
        else:
            found[:] = kernels.NONE
        there = found >= 0
        s, t = found[there], part[there]
        corners, at_begin = streets.lines[1], self.begin[s]
        begin, end = corners[at_begin], corners[at_begin + 1]
        if streets.geographic:  # a long segment is not straight in both planes
            scale = np.cos(np.radians(points[there, 1:])) * [1.0, 0.0] + [0.0, 1.0]
            span, from_begin = (end - begin) * scale, (points[there] - begin) * scale
            square_of = np.maximum((span * span).sum(1), np.finfo(float).tiny)
            t = np.clip((span * from_begin).sum(1) / square_of, 0.0, 1.0)
        at = points.astype(np.float64)
        far = np.full(k, np.inf)
        at[there] = begin + t[:, np.newaxis] * (end - begin)
        far[there] = distance(points[there].T, at[there].T, streets.crs)
        edge, fraction = np.full(k, -1), np.full(k, np.nan)
        total = self.total[s]
        along = np.minimum((self.before[s] + t * self.step[s]) / np.where(total > 0, total, 1), 1)
        edge[there], fraction[there] = self.edge[s], along
        if limit is not None:
            beyond = far > limit
            edge[beyond], fraction[beyond], far[beyond] = -1, np.nan, np.inf
            at[beyond] = points[beyond]
        return Places(edge, fraction, far, at[:, 0], at[:, 1], ids)


def check_single(x: Any, name: str) -> None:
    """Raise ValueError for places that are not exactly one."""
    if isinstance(x, Places) and len(x) != 1:
        raise ValueError(f"{name} is one place, as places[0]; got {len(x)}")


def points_of(x: Any, y: Any, crs: Any, streets: Streets) -> tuple[Float, Sequence[Any]]:
    """Points in the CRS of streets, (k, 2), and their ids.

    Parameters
    ----------
    x : GeoSeries, GeoDataFrame, array of shapely's points, (k, 2) array; or (k,) array or number
    y : with the last of these
    crs : object, optional
        Of the points. Default: their own, or that of the streets.

    Raises
    ------
    ValueError
        If there is one point that is empty, no point, or not finite, or the streets have no CRS.
    """
    ids: Sequence[Any] | None = None
    if y is not None:
        points = np.stack(
            [np.atleast_1d(np.asarray(z, np.float64)) for z in (x, y)], axis=-1
        )  # fmt: skip
    else:
        own = getattr(x, "crs", None)
        if own is not None and crs is not None and as_crs(own) != as_crs(crs):
            raise ValueError(f"the places have a CRS, {as_crs(own).name}, and crs={crs!r} differs")
        crs = own if crs is None else crs
        if hasattr(x, "geometry"):
            ids, x = x.index.tolist(), x.geometry.values
        x = np.atleast_1d(np.asarray(x))
        points = x if x.dtype.kind in "iuf" else _coordinates(x, ids)
        points = np.asarray(points, np.float64)
    if points.ndim != 2 or points.shape[1] != 2:
        raise ValueError(
            f"places are snap(x, y), an array of shape (k, 2), or points of GeoPandas or shapely; "
            f"got shape {points.shape}"
        )
    ids = range(len(points)) if ids is None else ids
    wrong = np.flatnonzero(~np.isfinite(points).all(1))
    if wrong.size:
        raise ValueError(
            f"coordinates of places are finite: place {ids[int(wrong[0])]!r} is at "
            f"{tuple(points[wrong[0]].tolist())} (one of {wrong.size} such places)"
        )
    if crs is not None:
        if streets.crs is None:
            raise ValueError(f"the places have crs={crs!r}, and the network has none to turn to")
        given, wanted = as_crs(crs), as_crs(streets.crs)
        if given != wanted:
            import pyproj

            turn = pyproj.Transformer.from_crs(given, wanted, always_xy=True).transform
            points = np.stack(turn(*points.T), axis=1)
    return points, ids


def _coordinates(points: Any, ids: Sequence[Any] | None) -> Float:
    shapely = optional("shapely", "points are shapely's", "geo")
    kind = shapely.get_type_id(points)
    wrong = np.flatnonzero((kind != 0) | shapely.is_empty(points))
    if wrong.size:
        i = int(wrong[0])
        raise ValueError(
            f"places are points: place {i if ids is None else ids[i]!r} is {points[i]} (one of "
            f"{wrong.size} such places)"
        )
    found: Float = shapely.get_coordinates(points)
    return found
