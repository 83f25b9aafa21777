"""From degrees to the plane: a projection for the world, one for a part of it, and their lines.

Why not pyproj: see docs/design.md.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

__all__ = ["Azimuthal", "EqualEarth", "Plane", "Projection", "choose", "great_circle_arcs"]

Points = NDArray[np.float64]

_REGION = 60.0  # degrees from the middle to the farthest node of what is drawn as a region
_STRAIGHT = 1.5  # degrees; a shorter edge is drawn straight
_POINTS = 2_000_000  # on all edges together
_CUT = 11.0  # the world's middle: its edge, at 169° W, then runs through the Bering Strait


def great_circle_arcs(start: Points, end: Points, points: int) -> Points:
    """Points along great circles, evenly spaced.

    Parameters
    ----------
    start, end : (m, 2) float64
        Longitude and latitude in degrees.
    points : int
        How many on each arc, its ends among them.

    Returns
    -------
    (m, points, 2) float64
        Longitudes continue past ±180 rather than jump.

    Examples
    --------
    >>> arc = great_circle_arcs(np.array([[170.0, 0.0]]), np.array([[-170.0, 0.0]]), 3)
    >>> arc[0, :, 0].round(6).tolist()
    [170.0, 180.0, 190.0]
    """
    a, b = _vectors(start)[:, None], _vectors(end)[:, None]  # (m, 1, 3)
    angle = np.arccos(np.clip((a * b).sum(-1, keepdims=True), -1, 1))  # (m, 1, 1)
    t = np.linspace(0, 1, points)[None, :, None]
    sine = np.where(angle > 1e-9, np.sin(angle), 1.0)
    mix = np.where(angle > 1e-9, np.sin((1 - t) * angle) / sine, 1 - t) * a
    mix = mix + np.where(angle > 1e-9, np.sin(t * angle) / sine, t) * b  # (m, points, 3)
    lon, lat = np.moveaxis(_degrees(mix), -1, 0)
    return np.stack([np.unwrap(lon, axis=1, period=360), lat], axis=-1)


def _vectors(degrees: Points) -> Points:
    lon, lat = np.moveaxis(np.radians(degrees), -1, 0)
    return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)


def _degrees(vectors: Points) -> Points:
    x, y, z = np.moveaxis(vectors, -1, 0)
    degrees: Points = np.degrees([np.arctan2(y, x), np.arctan2(z, np.hypot(x, y))])
    return np.moveaxis(degrees, 0, -1)


@dataclass(frozen=True)
class Plane:
    """Coordinates that are x and y already."""

    def __call__(self, places: Points) -> Points:
        """The places themselves."""
        return places

    def lines(self, start: Points, end: Points) -> list[Points]:
        """Straight lines between places."""
        return list(np.stack([start, end], axis=1))


@dataclass(frozen=True)
class Azimuthal:
    """Lambert's azimuthal equal-area projection of what lies around a point.

    J. P. Snyder, Map Projections: A Working Manual (USGS Professional Paper 1395, 1987),
    equations 24-2 to 24-4, on a sphere of radius 1.
    """

    longitude: float
    latitude: float

    def __call__(self, places: Points) -> Points:
        """Longitudes and latitudes in degrees as x and y."""
        lon, lat = np.moveaxis(np.radians(places), -1, 0)
        lon = lon - np.radians(self.longitude)
        sine, cosine = np.sin(np.radians(self.latitude)), np.cos(np.radians(self.latitude))
        near = sine * np.sin(lat) + cosine * np.cos(lat) * np.cos(lon)  # cos of the distance
        opposite = near < -1 + 1e-12  # all of the map's rim; any point of it will do
        scale = np.sqrt(2 / np.where(opposite, 1, 1 + near))
        x = np.where(opposite, 2.0, scale * np.cos(lat) * np.sin(lon))
        y = scale * (cosine * np.sin(lat) - sine * np.cos(lat) * np.cos(lon))
        return np.stack([x, y], axis=-1)

    def lines(self, start: Points, end: Points) -> list[Points]:
        """Great-circle arcs between places."""
        straight, arcs = _arcs(start, end)
        return [*self(straight), *self(arcs)]


@dataclass(frozen=True)
class EqualEarth:
    """The whole Earth.

    B. Šavrič, T. Patterson and B. Jenny, The Equal Earth map projection, International Journal of
    Geographical Information Science 33 (2019), equations 5 and 6, on a sphere of radius 1.
    """

    longitude: float  # of the middle

    def __call__(self, places: Points) -> Points:
        """Longitudes and latitudes in degrees as x and y, also beyond the map's edges."""
        lon, lat = np.moveaxis(np.radians(places), -1, 0)
        a = (1.340264, -0.081106, 0.000893, 0.003796)
        t = np.arcsin(np.sqrt(3) / 2 * np.sin(lat))
        slope = 9 * a[3] * t**8 + 7 * a[2] * t**6 + 3 * a[1] * t**2 + a[0]
        x = 2 * np.sqrt(3) / 3 * (lon - np.radians(self.longitude)) * np.cos(t) / slope
        y = a[3] * t**9 + a[2] * t**7 + a[1] * t**3 + a[0] * t
        return np.stack([x, y], axis=-1)

    def wrapped(self, places: Points) -> Points:
        """Places with longitudes on the map: within 180° of its middle."""
        west = self.longitude - 180
        return np.stack([(places[..., 0] - west) % 360 + west, places[..., 1]], axis=-1)

    def edge(self) -> Points:
        """The map's edge, counterclockwise from the south-east."""
        lat = np.linspace(-90, 90, 181)
        lon = np.full(181, self.longitude)
        east, west = np.stack([lon + 180, lat], 1), np.stack([lon - 180, lat[::-1]], 1)
        return self(np.concatenate([east, west]))

    def lines(self, start: Points, end: Points) -> list[Points]:
        """Great-circle arcs between places, cut where they leave the map."""
        west = self.longitude - 180
        start = self.wrapped(start)
        # A straight line too takes the shorter way around.
        end = np.stack([start[:, 0] + (end[:, 0] - start[:, 0] + 180) % 360 - 180, end[:, 1]], 1)
        lines: list[Points] = []
        for arcs in _arcs(start, end):
            turns = np.floor((arcs[..., 0] - west) / 360)
            whole = (turns == turns[:, :1]).all(axis=1)
            lines += list(self(arcs[whole]))
            for arc, turn in zip(arcs[~whole], turns[~whole], strict=True):
                lines += [self(piece) for piece in _cut(arc, turn, west)]
        return lines


Projection = Plane | Azimuthal | EqualEarth


def _arcs(start: Points, end: Points) -> tuple[Points, Points]:
    """Short edges as straight lines of two points each, and the others as arcs of many."""
    apart = np.linalg.norm(_vectors(start) - _vectors(end), axis=-1)
    far = apart > np.radians(_STRAIGHT)
    points = int(np.clip(_POINTS // max(int(far.sum()), 1), 8, 50))
    arcs = great_circle_arcs(start[far], end[far], points)
    arcs[..., 0] += (start[far, 0] - arcs[:, 0, 0])[:, None]
    return np.stack([start[~far], end[~far]], axis=1), arcs


def _cut(arc: Points, turns: Points, west: float) -> list[Points]:
    """The pieces of an arc on either side of the map's edge, each moved onto the map."""
    pieces = []
    first: list[Points] = []
    begin = 0
    for k in np.flatnonzero(np.diff(turns)).tolist():
        edge = west + 360 * max(turns[k], turns[k + 1])
        t = (edge - arc[k, 0]) / (arc[k + 1, 0] - arc[k, 0])
        crossing = np.array([[edge, arc[k, 1] + t * (arc[k + 1, 1] - arc[k, 1])]])
        pieces.append(np.concatenate([*first, arc[begin : k + 1], crossing]) - (360 * turns[k], 0))
        first, begin = [crossing], k + 1
    pieces.append(np.concatenate([*first, arc[begin:]]) - (360 * turns[-1], 0))
    return pieces


def choose(places: Points, path: Points) -> Azimuthal | EqualEarth:
    """A projection for the extent of some places, and one that keeps a path in one piece.

    Both have longitudes and latitudes in degrees: of all nodes that are drawn, and of the path.
    """
    vectors = _vectors(places)
    # The middle of the smallest cap around all: Bădoiu and Clarkson's steps to the farthest point.
    middle = vectors.mean(axis=0)
    for k in range(1, 65):
        farthest = vectors[np.argmin(vectors @ middle)]
        middle = middle + (farthest - middle) / (k + 1)
    size = float(np.linalg.norm(middle))
    # Of points that go round the whole Earth the middle is its centre, which is no direction.
    near = float((vectors @ middle).min()) / size if size > 1e-6 else -1.0
    if near > np.cos(np.radians(_REGION)):
        longitude, latitude = _degrees(middle).tolist()
        return Azimuthal(longitude, latitude)
    lon = np.unwrap(path[:, 0], period=360)
    if lon.size:
        lon = lon - 360 * np.round((lon.mean() - _CUT) / 360)
    if lon.size and (lon.max() > _CUT + 180 or lon.min() < _CUT - 180):
        return EqualEarth(float(lon.min() + lon.max()) / 2)
    return EqualEarth(_CUT)
