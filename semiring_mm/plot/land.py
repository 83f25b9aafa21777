"""Outlines of land, of Natural Earth: see tools/land.py, which makes the file."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from .projections import Azimuthal, EqualEarth

__all__ = ["outlines"]

Points = NDArray[np.float64]

_STEPS = 30  # of the file's grid to a degree
_HORIZON = 2 * np.sin(np.radians(130 / 2))  # what is farther than 130° is out of every picture


@functools.cache
def _rings() -> list[Points]:
    """Longitudes and latitudes around each piece of land, which is on the left, and each lake."""
    with np.load(Path(__file__).with_name("land.npz")) as file:
        points = np.cumsum(file["steps"], axis=1, dtype=np.int16).T / _STEPS
        return np.split(points, np.cumsum(file["lengths"], dtype=np.int64)[:-1])


def _cylinder(west: float) -> list[Points]:
    """The rings that meet the longitudes from `west` to `west` + 360, closed in that plane."""
    found = []
    for ring in _rings():
        if abs(ring[-1, 0] - ring[0, 0]) > 180:  # around a pole: along it back
            around = np.array([np.sign(ring[-1, 0] - ring[0, 0]) * 360, 0])
            ring = np.concatenate([ring + k * around for k in range(-3, 4)])
            pole = np.copysign(90.0, ring[0, 1])
            found.append(np.concatenate([ring, [[ring[-1, 0], pole], [ring[0, 0], pole]]]))
            continue
        low, high = ring[:, 0].min(), ring[:, 0].max()
        for turn in range(int(np.ceil((west - high) / 360)), int((west + 360 - low) // 360) + 1):
            found.append(ring + np.array([360.0 * turn, 0.0]))
    return found


def outlines(projection: Azimuthal | EqualEarth) -> list[Points]:
    """Land as rings in the plane, to be filled together where they go around more to the left.

    Each is (k, 2); those of EqualEarth go beyond the map's edge, to be cut there.
    """
    if isinstance(projection, EqualEarth):
        return [projection(ring) for ring in _cylinder(projection.longitude - 180)]
    # Around the antipode an azimuthal map is turned inside out: the inside of a ring becomes its
    # outside. Where that is land, a disc as large as the map under all rings makes it right.
    from matplotlib.path import Path as Outline

    opposite = projection.longitude + 180, -projection.latitude
    rings = _cylinder(projection.longitude)
    land = sum(Outline(ring).contains_point(opposite) for ring in rings) % 2
    turns = np.linspace(0, 2 * np.pi, 73)
    disc = [2 * np.stack([np.cos(turns), np.sin(turns)], axis=1)] if land else []
    return disc + [_to_horizon(projection(ring)) for ring in _rings()]


def _to_horizon(ring: Points) -> Points:
    """A ring with what is beyond the horizon moved there, so that no chord crosses the picture."""
    radius = np.hypot(*ring.T)
    if (radius < _HORIZON).all():
        return ring
    closed = np.concatenate([ring, ring[:1]])
    angle = np.unwrap(np.arctan2(closed[:, 1], closed[:, 0]))
    beyond = np.append(radius, radius[0]) >= _HORIZON
    parts = []
    for k, point in enumerate(ring):
        if not beyond[k]:
            parts.append(point[None])
            continue
        along = np.arange(0, 1, 0.25) if beyond[k + 1] else np.zeros(1)
        turn = angle[k] + along * (angle[k + 1] - angle[k])
        parts.append(_HORIZON * np.stack([np.cos(turn), np.sin(turn)], axis=1))
    return np.concatenate(parts)
