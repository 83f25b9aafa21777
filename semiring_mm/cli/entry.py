"""The entry point: commands, exit codes, and errors as one line."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import io
import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import semiring_mm as sm

from ..ladder import command as ladder
from . import apsp
from .options import Parser, Refusal, add_options

__all__ = ["main"]


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Parameters
    ----------
    argv : sequence of str, optional
        Arguments behind the program's name; default those of the process.

    Returns
    -------
    int
        0: done. 1: the computation says no (a negative cycle, no path between the two nodes).
        2: wrong use, bad input, or too large for the memory. 130: interrupted. 141: the reader of
        the output closed it.

    Examples
    --------
    >>> main(["apsp", "absent.gr"])
    2
    """
    try:
        try:
            arguments = list(sys.argv[1:] if argv is None else argv)
            if arguments[:1] == ["bench"]:
                return _bench(arguments[1:])  # which has options of its own
            args = _parser().parse_args(arguments)
            code: int = args.run(args)
        finally:
            # Here, where a closed pipe is still caught, and not when the interpreter ends.
            sys.stdout.flush()
        return code
    except BrokenPipeError:
        # What is still buffered would raise again when the interpreter ends.
        with contextlib.suppress(OSError, ValueError, io.UnsupportedOperation):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        return _say("interrupted", 130)
    except Refusal as refusal:
        return _say(f"error: {refusal}", refusal.code)
    except OSError as error:
        what = f"{error.filename}: {error.strerror}" if error.filename else str(error)
        return _say(f"error: {what}", 2)
    except (
        ValueError, TypeError, MemoryError, ImportError, AssertionError, RuntimeError,
    ) as error:  # fmt: skip
        return _say(f"error: {str(error) or type(error).__name__}", 2)


def _say(message: str, code: int) -> int:
    with contextlib.suppress(OSError):
        print("semiring-mm:", " ".join(message.split()), file=sys.stderr)
    return code


def _parser() -> Parser:
    parser = Parser(
        prog="semiring-mm",
        description="All-pairs shortest paths, and other best paths, of a graph in a file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=Parser)

    best = commands.add_parser(
        "apsp",
        allow_abbrev=False,
        help="best paths between all pairs of nodes",
        description="Best paths between all pairs of nodes of a graph. Prints a summary unless "
        "asked for something else.",
    )
    best.set_defaults(run=apsp.run)
    add_options(best)
    info = commands.add_parser("info", help="engines, devices, versions, caches")
    info.set_defaults(run=_info)
    climb = commands.add_parser(
        "ladder",
        allow_abbrev=False,
        help="the textbook steps to a fast product on a GPU, one by one",
        description="Run the textbook steps from the plain loop to this library's product on a "
        "GPU; check each against NumPy and measure it. docs/ladder.md explains them.",
    )
    ladder.add_options(climb)
    commands.add_parser("bench", help="measure this machine (in a checkout of the repository)")
    return parser


class _Version(argparse.Action):
    def __call__(self, *_: Any) -> NoReturn:
        from importlib.metadata import PackageNotFoundError, version

        try:
            print("semiring-mm", version("semiring-mm"))
        except PackageNotFoundError:
            print("semiring-mm, not installed")
        raise SystemExit(0)


def _info(args: argparse.Namespace) -> int:
    sm.show_config()
    return 0


def _bench(arguments: list[str]) -> int:
    sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec("bench") is None:
        raise Refusal(
            "the benchmark is not part of the installed package: run this in a checkout of the "
            "repository, where the folder bench is"
        )
    return int(importlib.import_module("bench.__main__").main(arguments) or 0)
