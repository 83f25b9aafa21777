"""Measure this machine's CPU or its CUDA device, or renew the tables of README and docs.

``python -m bench sparse`` measures shortest paths of large sparse graphs; ``--help`` after it tells
its own options.
"""

from __future__ import annotations

import argparse
import functools
import importlib
import importlib.util
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from . import machine

#: Variables that bound the threads of everyone who takes part; read when each is loaded.
_THREADS = """SEMIRING_MM_NUM_THREADS OPENBLAS_NUM_THREADS OMP_NUM_THREADS MKL_NUM_THREADS
    RAYON_NUM_THREADS NUMBA_NUM_THREADS""".split()


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    if arguments[:1] == ["sparse"]:
        from . import sparse

        return sparse.main(arguments[1:])
    args = _parser().parse_args(arguments)
    if args.what == "readme":
        return _renew()
    for package in ("numpy", "llvmlite"):
        if importlib.util.find_spec(package) is None:
            print(f"bench: {package} is not installed", file=sys.stderr)
            return 1
    if args.what == "tune":
        return _tune()
    if args.what == "gpu":
        # the checks bring threads of their own; copies from the host have as many as a user's
        os.environ |= dict.fromkeys(_THREADS[1:], "1")
        return _gpu(args)
    # rivals' threads sleep while they wait: else they hold the cores in the next contender's sample
    wanted = {name: str(args.threads) for name in _THREADS} | {"OMP_WAIT_POLICY": "passive"}
    if wanted.items() <= os.environ.items() or "numpy" not in sys.modules:
        os.environ |= wanted
        return _cpu(args)
    # NumPy has read the variables already: begin anew with them, in this process, so that an
    # interrupt meets the program that has the results
    os.chdir(machine.ROOT)
    command = [sys.executable, "-m", "bench", *arguments]
    os.execve(sys.executable, command, os.environ | wanted)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument(
        "what", nargs="?", choices=("cpu", "gpu", "tune", "readme"), default="cpu",
        help="cpu (default), gpu: measure; tune: measure the tiles on this GPU and keep that; "
        "readme: every table and figure of README and docs from the newest committed results",
    )  # fmt: skip
    parser.add_argument("--quick", action="store_true", help="tiny sizes: does everything run?")
    parser.add_argument("--full", action="store_true", help="add the lines that take minutes")
    parser.add_argument(
        "--only", metavar="NAME[,NAME]", default="",
        help="only the operations whose names contain one of these",
    )  # fmt: skip
    parser.add_argument("--threads", type=_positive, default=machine.cores(), metavar="T")
    parser.add_argument(
        "--out", type=_absolute, metavar="FILE",
        help="raw results (default bench/results/cpu-MACHINE-DATE.json, or gpu-...; "
        "none for --quick and --only)",
    )  # fmt: skip
    parser.add_argument(
        "--keep-going", action="store_true", help="note a line that fails, and go on; exit code 1"
    )
    parser.add_argument(
        "--compile", choices=("first", "only", "no"), default="first",
        help="of gpu: compile all kernels into the disk cache before measuring (default), do "
        "nothing else, or leave that out since an earlier run did it",
    )  # fmt: skip
    parser.add_argument("--share", help=argparse.SUPPRESS)  # I/N: compile what gpu will need
    return parser


def _positive(word: str) -> int:
    number = int(word) if word.isdecimal() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1 on, got {word!r}")
    return number


def _absolute(word: str) -> Path:
    return Path(word).absolute()


_KEPT_EVERY = 20.0  # seconds between writes of the lines so far
#: Programs with results and pages of their own.
_PROGRAMS = (
    "betweenness", "bits", "neighbours_jax", "neighbours_knn", "neighbours_networkx",
    "neighbours_scipy", "neighbours_sequences", "neighbours_torch", "precision", "scaling",
    "sparse", "sparse_products", "strassen",
)  # fmt: skip


def _renew() -> int:
    """Renew every table and figure that comes from committed results."""
    from . import report

    codes = [report.renew()]
    for name in _PROGRAMS:
        codes.append(importlib.import_module(f".{name}", __package__).main(["--table"]))
    return max(codes)


def _cpu(args: argparse.Namespace) -> int:
    from . import cases, ceilings

    options = cases.Options(args.threads, full=args.full, quick=args.quick)
    return _run(args, cases.CASES, options, ceilings)


def _tune() -> int:
    from semiring_mm.gpu import device

    if why := device.why_not():
        print(f"bench: {why}", file=sys.stderr)
        return 1
    from . import tune

    return tune.tune()


def _gpu(args: argparse.Namespace) -> int:
    from semiring_mm.gpu import device

    from . import cases, gpu, gpu_ceilings, gpu_neighbours, gpu_sequences, sparse_products

    if why := device.why_not():
        print(f"bench: {why}", file=sys.stderr)
        return 1
    table = [*gpu.CASES, *gpu_sequences.CASES, *sparse_products.cases(True)]
    table += [*gpu_neighbours.CASES, *gpu.REST, gpu.LONGEST]
    options = cases.Options(0, full=args.full, quick=args.quick)
    if args.share:
        i, n = map(int, args.share.split("/"))
        gpu.compile_share(i, n, _chosen(args, table), options)
        return 0
    if args.compile != "no":
        _compile_ahead(args)
    return 0 if args.compile == "only" else _run(args, table, options, gpu_ceilings, gpu.Events())


def _compile_ahead(args: argparse.Namespace) -> None:
    """Compile all kernels in processes of their own, into the disk cache."""
    count = min(16, args.threads)
    command = [sys.executable, "-m", "bench", "gpu", "--only", args.only]
    command += ["--quick"] * args.quick + ["--full"] * args.full + ["--share"]
    begin = time.perf_counter()
    # how long each line took is told where nothing else is done; failures show when it is measured
    told = None if args.compile == "only" else subprocess.DEVNULL
    shares = [
        subprocess.Popen(
            [*command, f"{i}/{count}"], cwd=machine.ROOT, stdout=told, stderr=subprocess.DEVNULL
        )
        for i in range(count)
    ]
    for share in shares:
        share.wait()
    print(f"compiled in {time.perf_counter() - begin:.0f} s by {count} processes", flush=True)


def _chosen(args: argparse.Namespace, table: Sequence[Any]) -> list[Any]:
    names = [name.strip() for name in args.only.split(",") if name.strip()]
    return [c for c in table if not names or any(name in c.name for name in names)]


def _run(
    args: argparse.Namespace, table: Sequence[Any], options: Any, source: Any, clock: Any = None
) -> int:
    """Measure the chosen lines of a table, with ceilings from the module `source`.

    A device has a clock of its own. An interrupt or SIGTERM ends the run, and what was measured is
    kept.
    """
    from . import report
    from .measure import UNITS, sample

    chosen = _chosen(args, table)
    if not chosen:
        print(
            f"bench: no operation has {args.only!r} in its name; there are: "
            + "; ".join(c.name for c in table),
            file=sys.stderr,
        )
        return 2
    arguments = {"quick": args.quick, "full": args.full, "only": args.only}
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    result = report.begin(options.threads, on_device=args.what == "gpu", arguments=arguments)
    print(report.heading(result), flush=True)
    ceilings = Ceilings(source, quick=args.quick)
    lines, failed = [], False
    keep = functools.partial(
        report.keep, kind=args.what, out=args.out, scratch=bool(args.quick or args.only)
    )
    start = kept = time.perf_counter()
    try:
        for line in itertools.chain.from_iterable(case.lines(options) for case in chosen):
            try:
                if not line.skipped:
                    if line.ceiling:
                        rate = ceilings.rate(line.ceiling, line.threads)
                        line.ceiling_rate = float(f"{rate:.6g}")
                    sample(line, quick=args.quick, clock=clock)
            except Exception as error:
                if not args.keep_going:
                    raise
                said = (str(error).strip() or "no words").splitlines()[0]
                failed, line.skipped = True, f"{type(error).__name__}: {said}"
            line.took = round(time.perf_counter() - start - sum(x["took"] for x in lines), 2)
            lines.append(line.raw())  # before it is seen that there is one
            print(report.text(line), flush=True)
            assert line.unit in UNITS
            line.check = line.prepare = None
            line.contenders.clear()  # their data may fill the memory
            if clock is not None:
                clock.tidy()
            if time.perf_counter() - kept > _KEPT_EVERY:  # a rival may end the process
                keep(result | {"lines": lines, "ceilings": ceilings.raw()}, quiet=True)
                kept = time.perf_counter()
        ceilings.again()
    except KeyboardInterrupt:
        failed = True
        print("interrupted: the lines above are kept", flush=True)
    print("\n" + report.ceilings_text(ceilings.raw()), flush=True)
    print(f"{len(lines)} lines in {time.perf_counter() - start:.0f} s")
    keep(result | {"lines": lines, "ceilings": ceilings.raw()})
    return int(failed)


class Ceilings:
    """The ceilings of the lines, each measured on first use and again at the end."""

    def __init__(self, source: Any, *, quick: bool) -> None:
        self._source = source
        self._how: dict[str, Any] = {"seconds": 0.001, "repeat": 2} if quick else {}
        self._samples: dict[tuple[str, int], list[dict[str, list[float]]]] = {}

    def rate(self, name: str, threads: int) -> float:
        """The best form's best sample so far."""
        from .ceilings import best

        runs = self._samples.setdefault((name, threads), [])
        if not runs:
            runs.append(self._source.measure(name, threads, **self._how))
        return max(best(samples)[1] for samples in runs)

    def again(self) -> None:
        """Measure each ceiling again: a difference shows drift of the machine."""
        for (name, threads), runs in self._samples.items():
            runs.append(self._source.measure(name, threads, **self._how))

    def raw(self) -> list[dict[str, Any]]:
        return [
            {"name": name, "threads": threads, "before": runs[0], "after": runs[-1]}
            for (name, threads), runs in self._samples.items()
        ]


if __name__ == "__main__":
    sys.exit(main())
