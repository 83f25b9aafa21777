"""Time this checkout and another one, line by line: python -m bench.compare PATH [--rounds N].

Each round runs every line in a fresh process of each checkout, one after the other, so that a drift
of the machine affects both. A line is the best of seven samples after a warm-up, and of all rounds:
on a shared machine medians are those of the others' load. Only calls that both have are timed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from . import machine

Lines = dict[str, Callable[[], Any]]
#: A process of one checkout, with the lines of this one.
_PROCESS = """
import json, sys
tree, here, only = sys.argv[1:]
sys.path.insert(0, tree)
import semiring_mm
assert semiring_mm.__file__.startswith(tree), semiring_mm.__file__
sys.path.insert(0, here)
from bench.compare import measured
print(json.dumps(measured(only)))
"""


def lines() -> Lines:
    """What is timed: a call of each verb on the CPU, small and large."""
    import numpy as np

    import semiring_mm as sm
    from semiring_mm import alignment, neighbours, sequences

    rng = np.random.default_rng(5)

    def uniform(*shape: int) -> Any:
        return rng.random(shape, np.float32)

    side = 150
    at = np.arange(side * side).reshape(side, side)
    ends = [(at[:, 1:], at[:, :-1]), (at[1:], at[:-1])]
    rows, columns = (
        np.concatenate([np.concatenate([e[k].ravel(), e[1 - k].ravel()]) for e in ends])
        for k in (0, 1)
    )
    from scipy.sparse import csr_array

    grid = csr_array((rng.integers(1, 5000, len(rows)).astype("f8"), (rows, columns)))
    many = 20_000
    picks = rng.integers(0, many, (2, 8 * many))
    loose = csr_array((rng.random(8 * many) + 0.1, picks), (many, many))
    hops = csr_array((np.ones(len(rows)), (rows, columns)))
    net, names = sm.prepare(grid), rng.integers(0, side * side, (2, 1000)).tolist()
    found: Lines = {
        "prepare, grid of 22,500": lambda: sm.prepare(grid),
        "customize, grid of 22,500": lambda: net.customize(grid.data),
        "200 paths": lambda: [
            net.path(*ends) for ends in zip(*(x[:200] for x in names), strict=True)
        ],
        "1000 x 1000 distances": lambda: net.distances(names[0], targets=names[1]),
        "statistics, grid": lambda: sm.statistics(net),
        "nearest of 50": lambda: sm.nearest(net, names[0][:50], k=3),
        "apsp from 100 sources, grid": lambda: sm.apsp(grid, sources=names[0][:100]),
        "apsp from 20 sources, 160,000 edges": lambda: sm.apsp(loose, sources=[*range(20)]),
        "breadth-first, 64 sources": lambda: sm.apsp(hops, sources=[*range(64)]),
    }
    for n in (4, 64, 512, 1024):
        a = uniform(n, n)
        found[f"matmul min_plus {n}"] = lambda a=a: sm.matmul(a, a, "min_plus")
        found[f"gemv min_plus {n}"] = lambda a=a: sm.gemv(None, a, a[0], semiring="min_plus")
    for n in (64, 512, 1024):
        w = uniform(n, n)
        found[f"apsp {n}"] = lambda w=w: sm.apsp(w)
        found[f"apsp {n}, predecessors"] = lambda w=w: sm.apsp(w, return_predecessors=True)
    dense = uniform(many, 32)
    found["csr x vector"] = lambda: sm.matmul(loose, dense[:, 0].astype("f8"), "min_plus")
    found["csr x 32 columns"] = lambda: sm.matmul(loose, dense.astype("f8"), "min_plus")
    for batch, steps, states in ((1, 100, 4), (64, 200, 8), (64, 200, 32), (8, 200, 128)):
        e, t = np.log(uniform(batch, steps, states)), np.log(uniform(states, states))
        size = f"{batch} x {steps} x {states}"
        for verb in (sequences.viterbi, sequences.log_partition, sequences.marginals):
            found[f"{verb.__name__} {size}"] = lambda f=verb, e=e, t=t: f(e, t)
        found[f"scan max_plus {size}"] = lambda e=e, t=t: sm.scan(
            t, "max_plus", x=e[0, 0], emissions=e
        )
    x, y = uniform(64, 256), uniform(256, 256)
    words = rng.integers(0, 4, (2, 2000, 200))
    found |= {
        "dtw, 256 pairs of 256": lambda: alignment.dtw(x.repeat(4, 0), y),
        "edit distance, 2000 of 200": lambda: alignment.edit_distance(*words),
        "edit distance of 2 words": lambda: alignment.edit_distance("kitten", "sitting"),
    }
    points = uniform(20_000, 16)
    for metric in ("euclidean", "cityblock", "cosine"):
        found[f"knn {metric}, 1000 of 20,000"] = lambda m=metric: neighbours.knn(
            points[:1000], points, 10, m
        )
        found[f"cdist {metric}, 1500 x 1500"] = lambda m=metric: neighbours.cdist(
            points[:1500], points[:1500], m
        )
    return found


def measured(only: str) -> dict[str, float]:
    """Seconds of each line."""
    result = {}
    for name, call in lines().items():
        if only not in name:
            continue
        call()
        begin = time.perf_counter()
        call()
        each = time.perf_counter() - begin
        repeats = max(1, min(2000, int(2e-3 / max(each, 1e-7))))
        samples = []
        for _ in range(7 if each < 0.3 else 3):
            begin = time.perf_counter()
            for _ in range(repeats):
                call()
            samples.append((time.perf_counter() - begin) / repeats)
        result[name] = min(samples)
    return result


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.compare", description=__doc__)
    parser.add_argument("other", type=Path, help="another checkout")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", default="", help="lines whose names contain this")
    args = parser.parse_args()
    trees = {"before": args.other.resolve(), "after": machine.ROOT}
    rounds = []
    for _ in range(args.rounds):
        rounds.append({
            name: json.loads(subprocess.run(
                [sys.executable, "-c", _PROCESS, str(tree), str(machine.ROOT), args.only],
                cwd=tempfile.gettempdir(), check=True, stdout=subprocess.PIPE, text=True,
            ).stdout)
            for name, tree in trees.items()
        })  # fmt: skip
    commits = {
        name: subprocess.run(
            ["git", "rev-parse", "--short", "HEAD"], cwd=tree, capture_output=True, text=True
        ).stdout.strip()
        for name, tree in trees.items()
    }
    m = machine.describe()
    print(f"{m['cpu']}, {m['cores']} cores; {commits['before']} and {commits['after']}; "
          f"{time.strftime('%Y-%m-%d')}; {args.rounds} rounds")  # fmt: skip
    print(f"{'':40}{'before':>12}{'after':>12}{'after/before':>14}")
    for line in rounds[0]["after"]:
        before, after = (min(r[k][line] for r in rounds) for k in ("before", "after"))
        cells = [f"{1e3 * x:.4g} ms" for x in (before, after)]
        print(f"{line:40}{cells[0]:>12}{cells[1]:>12}{after / before:>14.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
