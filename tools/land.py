"""Make semiring_mm/plot/land.npz, the outlines of land that maps are drawn on.

They are those of Natural Earth 4.1 at 1:50,000,000 (naturalearthdata.com, public domain), as
TopoJSON by the npm package world-atlas 2.0.2:

    npm pack world-atlas@2.0.2 && tar xzf world-atlas-2.0.2.tgz
    python tools/land.py package/land-50m.json

Lines are simplified by Visvalingam and Whyatt's algorithm, small islands are left out, and what
remains is rounded to a grid. The file has two arrays: `lengths`, how many points each ring has, and
`steps`, int16 of shape (2, points): steps of the grid in longitude and in latitude from the point
before (a ring's first from the last one's last), of which int16 sums give the points. Longitudes
continue past 180° rather than jump. Land is on the left of a ring; Antarctica's goes once around
the pole and is left open.
"""

import heapq
import json
import sys
from pathlib import Path

import numpy as np

TRIANGLE = 130.0  # km²; a point that makes a smaller one with its neighbours is left out
SMALLEST = 150.0  # km² of an island that is kept
STEPS = 30  # to a degree, of the grid that points are rounded to: 4 km
EARTH = 6371.0


def rings(topology):
    """The rings of the one object, longitudes continued."""
    scale, shift = (np.array(topology["transform"][key]) for key in ("scale", "translate"))
    arcs = [np.cumsum(np.array(arc), axis=0) * scale + shift for arc in topology["arcs"]]
    for polygon in topology["objects"]["land"]["geometries"][0]["arcs"]:
        for k, numbers in enumerate(polygon):
            parts = [arcs[i] if i >= 0 else arcs[~i][::-1] for i in numbers]
            ring = np.concatenate([part[k > 0 :] for k, part in enumerate(parts)])
            if ring[:, 1].max() < -89:  # the pole itself, given as a hole of Antarctica
                continue
            ring[:, 0] = np.unwrap(ring[:, 0], period=360)
            yield ring, k > 0


def area(ring):
    """Signed area in km² on the sphere, positive where the inside is on the left."""
    lon, lat = np.radians(ring).T
    return -(EARTH**2) * np.sum(np.diff(lon) * (np.sin(lat[1:]) + np.sin(lat[:-1]))) / 2


def simplified(ring):
    """Ring without the points whose triangle with their neighbours is small, the smallest first."""
    lon, lat = np.radians(ring).T
    at = EARTH * np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], 1)
    before, after = np.arange(len(ring)) - 1, np.arange(len(ring)) + 1

    def size(k):
        sides = at[[before[k], after[k]]] - at[k]
        return float(np.linalg.norm(np.cross(*sides))) / 2

    keep = np.ones(len(ring), bool)
    queue = [(size(k), k) for k in range(1, len(ring) - 1)]
    heapq.heapify(queue)
    now = {k: area for area, k in queue}
    while queue and queue[0][0] < TRIANGLE:
        area, k = heapq.heappop(queue)
        if not keep[k] or now[k] != area:  # an entry from before a neighbour went
            continue
        keep[k] = False
        left, right = before[k], after[k]
        after[left], before[right] = right, left
        for j in (left, right):
            if 0 < j < len(ring) - 1:
                now[j] = max(size(j), area)
                heapq.heappush(queue, (now[j], j))
    return ring[keep]


def main(source):
    kept = []
    for ring, hole in rings(json.loads(Path(source).read_text())):
        around = abs(ring[-1, 0] - ring[0, 0]) > 180
        if not around and abs(area(ring)) < SMALLEST:
            continue
        leftwards = ring[-1, 0] < ring[0, 0] if around else (area(ring) > 0) != hole
        points = np.round(STEPS * simplified(ring if leftwards else ring[::-1])).astype(np.int64)
        points = points[np.append(True, np.any(np.diff(points, axis=0), axis=1))]
        if len(points) > 3:
            kept.append(points if around else points[:-1])
    kept.sort(key=len, reverse=True)
    steps = np.diff(np.concatenate(kept), axis=0, prepend=0).T
    target = Path(__file__).parents[1] / "semiring_mm" / "plot" / "land.npz"
    np.savez_compressed(
        target,
        lengths=np.array([len(ring) for ring in kept], np.uint16),
        steps=steps.astype(np.int16),
    )
    print(
        f"{target.name}: {len(kept)} rings, {steps.shape[1]} points, {target.stat().st_size} bytes"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
