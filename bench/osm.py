"""From a map of OpenStreetMap to a prepared network: seconds for each step, and for 5 M ways.

``python -m bench.osm [ways | map.osm.pbf]`` writes a grid of so many streets with the tags of a
town, by osmium, or reads a map; rivals are those readers that are installed.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from semiring_mm.geo import TurnNetwork, network, read_osm

KINDS = """residential residential residential residential residential residential primary secondary
    tertiary service footway track""".split()
INNER = 6  # nodes of a street between crossings


def written(path: Path, ways: int) -> None:
    """A map of a grid, each street a way."""
    import osmium

    side = max(2, int((ways / 2) ** 0.5) + 1)
    step, rng = 0.003, np.random.default_rng(0)
    streets = [
        (i * side + j, i * side + j + offset)
        for i in range(side) for j in range(side)
        for offset, there in ((1, j + 1 < side), (side, i + 1 < side)) if there
    ][:ways]  # fmt: skip
    n = side * side
    node, way = osmium.osm.mutable.Node, osmium.osm.mutable.Way
    with osmium.SimpleWriter(str(path)) as out:
        for k in range(n):
            out.add_node(node(id=k + 1, location=(5 + step * (k % side), 45 + step * (k // side))))
        for k, (a, b) in enumerate(streets):
            for q in range(INNER):
                f = (q + 1) / (INNER + 1)
                x = 5 + step * ((1 - f) * (a % side) + f * (b % side)) + 1e-5 * rng.normal()
                y = 45 + step * ((1 - f) * (a // side) + f * (b // side))
                out.add_node(node(id=n + k * INNER + q + 1, location=(x, y)))
        for k, (a, b) in enumerate(streets):
            inner = range(n + k * INNER + 1, n + (k + 1) * INNER + 1)
            tags = {"highway": KINDS[k % 12], "name": f"Street {k}", "surface": "asphalt"}
            tags |= {"maxspeed": str(30 + 10 * (k % 4))} if k % 3 == 0 else {}
            tags |= {"oneway": "yes"} if k % 7 == 0 else {}
            tags |= {"lit": "yes", "lanes": "2"} if k % 2 else {}
            out.add_way(way(id=k + 1, nodes=[a + 1, *inner, b + 1], tags=tags))


def timed(name: str, call: Callable[[], Any]) -> Any:
    start, busy = time.perf_counter(), time.process_time()
    found = call()
    wall, cores = time.perf_counter() - start, time.process_time() - busy
    print(f"{name:<40}{wall:8.2f} s {cores:8.2f} s of a core", flush=True)
    return found


def main(given: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(given)
        if given.isdecimal():
            path = Path(folder, "map.osm.pbf")
            timed(f"a map of {int(given):,} ways is written", lambda: written(path, int(given)))
        warm = Path(folder, "warm.osm.pbf")
        written(warm, 2000)
        network(read_osm(warm), weight="travel_time", largest=True)  # compiles
        start = time.perf_counter()
        streets = timed("read_osm", lambda: read_osm(path))
        net = timed("network", lambda: network(streets, weight="travel_time", largest=True))
        print(f"{'both':<40}{time.perf_counter() - start:8.2f} s   {streets}, {net}")
        timed("TurnNetwork", lambda: TurnNetwork(streets))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"at most {peak / 2**20:.1f} GiB")
        try:
            import pyrosm
        except ImportError:
            return
        if path.stat().st_size < 20e6:
            timed("pyrosm", lambda: pyrosm.OSM(str(path)).get_network("driving", nodes=True))


if __name__ == "__main__":
    main(sys.argv[1] if len(sys.argv) > 1 else "300000")
