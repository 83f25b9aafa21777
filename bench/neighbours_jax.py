"""Products and closures with their gradients inside ``jit``, against the same by JAX's operators.

``python -m bench.neighbours_jax`` measures on the CPU and writes raw results below
``bench/results``; ``--table`` renews the table of docs/jax.md from the newest committed results.
Contenders of a line take turns, as in ``python -m bench``.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, report
from .measure import Contender, Line, sample

TARGET = machine.ROOT / "docs" / "jax.md"
OURS, PLAIN = "semiring_mm.jax", "JAX"


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_jax", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument("--out", type=Path, help="default bench/results/jax-cpu-MACHINE-DATE.json")
    parser.add_argument("--table", action="store_true", help="renew the table of docs/jax.md")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_pairs(
            TARGET,
            "jax-cpu",
            "| step | n | semiring_mm.jax | JAX's operators | |",
            ["jax"],
            "JAX's operators are",
        )
    import jax

    result = report.begin(machine.cores())
    result["versions"]["jax"] = jax.__version__
    with jax.default_device(jax.devices("cpu")[0]):
        for line in _lines(32 if args.quick else 512, result["threads"]):
            sample(line, quick=args.quick)
            result["lines"].append(line.raw())
            print(report.pair_row(line), flush=True)
    report.keep(result, "jax-cpu", args.out, scratch=args.quick)
    return 0


def _lines(n: int, threads: int) -> Any:
    import jax
    import jax.numpy as jnp

    from semiring_mm.jax import apsp, matmul

    rng = np.random.default_rng(0)
    a, b, g = (jnp.asarray(rng.standard_normal((n, n)), jnp.float32) for _ in "abg")
    w = jnp.asarray(rng.random((n, n)), jnp.float32)

    def broadcast(semiring: str) -> Any:
        least = semiring == "min_plus"
        return lambda a, b: (
            (a[:, :, None] + b).min(1) if least else jax.nn.logsumexp(a[:, :, None] + b, 1)
        )

    def floyd_warshall(w: Any) -> Any:
        d = jnp.where(jnp.eye(n, dtype=bool), 0, w)
        step = lambda k, d: jnp.minimum(d, d[:, k, None] + d[k])  # noqa: E731
        return jax.lax.fori_loop(0, n, step, d)

    def line(name: str, functions: dict[str, Any], inputs: Any, gradient: bool) -> Line:
        def call(function: Any) -> Any:
            def loss(*x: Any) -> Any:
                return (function(*x) * g).sum()

            first = tuple(range(len(inputs)))
            run = jax.jit(jax.value_and_grad(loss, first) if gradient else loss)
            return lambda: jax.block_until_ready(run(*inputs))

        steps = {who: call(function) for who, function in functions.items()}
        wanted = jax.tree.leaves(steps[PLAIN]())[0]
        contenders = [Contender(who, step) for who, step in steps.items()]
        made = Line(name, str(n), "", threads, contenders)
        made.check = lambda found: np.testing.assert_allclose(
            jax.tree.leaves(found)[0], wanted, rtol=1e-3, atol=1e-2
        )
        return made

    for semiring in ("min_plus", "log_plus"):
        name = f"{semiring.replace('_', '-')} product"
        mine = lambda a, b, s=semiring: matmul(a, b, s)  # noqa: E731
        both = {OURS: mine, PLAIN: broadcast(semiring)}
        yield line(name, both, (a, b), False)
        yield line(f"{name} and gradients", both, (a, b), True)
    yield line("all shortest paths", {OURS: apsp, PLAIN: floyd_warshall}, (w,), False)


if __name__ == "__main__":
    sys.exit(main())
