"""Run the textbook steps from the plain loop to the library's product: python -m apps.ladder."""

from __future__ import annotations

import argparse
import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from semiring_mm.cli.entry import run_as_program
from semiring_mm.cli.options import Parser
from semiring_mm.gpu import device
from semiring_mm.semirings import Semiring, as_semiring

from . import example, measure, profile, report, rungs

__all__ = ["main"]

_SIZES = {"product": (256, 512, 1024, 2048, 4096), "gemv": (1024, 4096, 16384)}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the program: measure the ladder, or print it or its example; return the exit code."""
    arguments = sys.argv[1:] if argv is None else argv
    return run_as_program(lambda: _run(_parsed(arguments)), process=argv is None)


def _parsed(arguments: Sequence[str]) -> argparse.Namespace:
    parser = Parser(
        prog="python -m apps.ladder", allow_abbrev=False,
        description="Run the textbook steps from the plain loop to this library's product on a "
        "GPU; check each against NumPy and measure it. docs/ladder.md explains them.",
    )  # fmt: skip
    parser.add_argument(
        "--semiring", default="min_plus", metavar="NAME",
        help="a built-in one (default min_plus), or your own: 'ADD; MUL; ZERO; ONE', such as "
        "'min(a, b); max(abs(a), abs(b)); inf; 0'",
    )  # fmt: skip
    parser.add_argument(
        "--sizes", type=_sizes, metavar="N,N,...",
        help="default 256,512,1024,2048,4096; with --gemv 1024,4096,16384",
    )  # fmt: skip
    parser.add_argument(
        "--gemv", action="store_true", help="matrix times vector, not matrix times matrix"
    )
    parser.add_argument("--rungs", default="", metavar="R,R,...", help="some of them, by number")
    parser.add_argument("--no-sweeps", action="store_true", help="no block sizes and so on")
    parser.add_argument(
        "--profile", action="store_true",
        help="count bytes, conflicts and instructions at the largest size by Nsight Compute (ncu)",
    )  # fmt: skip
    parser.add_argument("--plot", metavar="FILE", help="the roofline, the sizes and the sweeps")
    parser.add_argument("--out", metavar="FILE", help="raw results as JSON")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--show", action="store_true",
        help="template arguments and the model's bytes, without running: needs no GPU",
    )  # fmt: skip
    way.add_argument(
        "--example", action="store_true", help="five nodes, every D^k printed: needs no GPU"
    )
    way.add_argument("--once", action="store_true", help=argparse.SUPPRESS)  # for the profiler
    parser.refuse_unknown(arguments)
    return parser.parse_args(arguments)


def _sizes(word: str) -> tuple[int, ...]:
    parts = word.split(",")
    if not all(part.strip().isascii() and part.strip().isdigit() for part in parts):
        raise argparse.ArgumentTypeError(f"expected sizes such as 256,512, got {word!r}")
    sizes = tuple(map(int, parts))
    if min(sizes) < 1:
        raise argparse.ArgumentTypeError(f"sizes are at least 1, got {word!r}")
    return sizes


def _semiring(word: str) -> Semiring:
    if ";" not in word:
        return as_semiring(word)
    parts = [part.strip() for part in word.split(";")]
    if len(parts) != 4:
        raise ValueError(
            f"--semiring {word!r}: expected four parts, 'ADD; MUL; ZERO; ONE', got {len(parts)}"
        )
    return Semiring("yours", parts[0], parts[1], float(parts[2]), float(parts[3]))


def _run(args: argparse.Namespace) -> int:
    if args.example:
        print(example.text())
        return 0
    semiring, verb = _semiring(args.semiring), "gemv" if args.gemv else "product"
    sizes = args.sizes or _SIZES[verb]
    rungs.plan_of(semiring)  # or an error
    only = frozenset(word.strip() for word in args.rungs.split(",") if word.strip())
    chain, _ = measure.rungs_of(semiring, verb, report.H200[1])
    known = [rung.number for rung in chain]
    if unknown := sorted(word for word in only if not measure.wanted(chain, frozenset({word}))):
        raise ValueError(
            f"--rungs: there is no rung {', '.join(unknown)}; there are {', '.join(known)}"
        )
    if args.show:
        print(report.show(semiring, verb, sizes))
        return 0
    if why := device.why_not():
        raise ValueError(
            f"the ladder climbs on a GPU: {why}. Without one, --show prints its rungs and what the "
            f"model says of them, and --example the lecture's example"
        )
    if args.once:
        measure.once(semiring, verb, sizes[0], only, profile.marker)
        return 0
    for option, name in (("--plot", args.plot), ("--out", args.out)):
        if name is not None and not Path(name).parent.is_dir():
            raise ValueError(f"{option} {name}: there is no directory {Path(name).parent}")
    with _progress() as tell:
        result = measure.ladder(
            semiring, verb, sizes, only=only, sweeps=not args.no_sweeps, tell=tell
        )
        for profiled in (False, True) if args.profile else (False,):
            if profiled:
                tell("Nsight Compute")
                _profile(args, result, semiring, verb, max(sizes), only)
            if args.out:  # before the profiler too, which may be interrupted
                Path(args.out).write_text(report.dumps(result), encoding="utf-8")
    print(report.text(result))
    if args.plot:
        from .draw import draw

        draw(args.plot, result)
    return 0


def _profile(
    args: argparse.Namespace, result: dict[str, Any], semiring: Semiring, verb: str, n: int,
    only: frozenset[str],
) -> None:  # fmt: skip
    options = ["--semiring", args.semiring, "--sizes", str(n)]
    options += ["--gemv"] * (verb == "gemv") + ["--rungs", args.rungs] * bool(only)
    found, why_not = profile.counters(options)
    chain, _ = measure.rungs_of(semiring, verb, device.current().arch)
    numbers = [*(rung.number for rung in measure.wanted(chain, only)), measure.CUBLAS]
    result["profile"] = {str(n): {numbers[place]: counts for place, counts in found.items()}}
    if why_not:
        result["notes"].append(f"no counters: {why_not}")


@contextlib.contextmanager
def _progress() -> Iterator[Any]:
    """Return a callback that shows the current step on a terminal's stderr."""
    terminal = sys.stderr.isatty()

    def tell(what: str) -> None:
        if terminal:
            print(f"\r{what}\x1b[K", end="", file=sys.stderr, flush=True)

    try:
        yield tell
    finally:
        tell("")


if __name__ == "__main__":
    sys.exit(main())
