"""The command line: shortest and other best paths of a graph in a file."""

from __future__ import annotations

import argparse
import contextlib
import csv
import importlib.util
import io
import itertools
import math
import operator
import os
import re
import shutil
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from .ladder import command as ladder
from .tiled.sizes import parse_size

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .files import Graph

__all__ = ["main"]

# From here on the result is worked on in its file, so that it need not fit in memory beside the
# predecessors and the rest.
_MAPPED_FROM = 1 << 30

_BLOCK = 1 << 20  # bytes of the result looked at at a time: what a cache holds


@dataclass(frozen=True)
class _Kind:
    """How to speak of the paths of one semiring."""

    path: str  # the best path
    value: str  # what it is worth
    worst: str  # the largest distance, the smallest width, ...
    join: Callable[[float, float], float]  # ⊗, on two legs
    better: Callable[..., float]  # ⊕
    unit: bool = True  # whether its values have the unit of the weights


_KINDS = {
    "min_plus": _Kind("shortest", "distance", "diameter", operator.add, min),
    "max_min": _Kind("widest", "width", "narrowest", min, max),
    "min_max": _Kind("minimax", "largest leg", "worst", max, min),
    "max_times": _Kind("most reliable", "reliability", "least", operator.mul, max, False),
    "min_times": _Kind("least product", "product", "largest", operator.mul, min, False),
    "max_plus": _Kind("longest", "length", "least", operator.add, max),
    "lor_land": _Kind("any", "reachability", "", min, max, False),
}


class _Refusal(Exception):
    """A line for the user and the exit code that goes with it."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise _Refusal(f"{message} (see: {self.prog} --help)")


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
        2: wrong use, bad input, or too large for the memory. 130: interrupted. 141: whoever read
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
    except _Refusal as refusal:
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


def _parser() -> _Parser:
    parser = _Parser(
        prog="semiring-mm",
        description="All-pairs shortest paths, and other best paths, of a graph in a file.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action=_Version, nargs=0, help="print the version and exit")
    commands = parser.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)

    apsp = commands.add_parser(
        "apsp",
        allow_abbrev=False,
        help="best paths between all pairs of nodes",
        description="Best paths between all pairs of nodes of a graph. Prints a summary unless "
        "asked for something else.",
    )
    apsp.set_defaults(run=_apsp)
    apsp.add_argument(
        "graph",
        metavar="GRAPH",
        help=".gr, .mtx, .csv, .tsv, .txt, _net.tntp (each also .gz), .graphml, .gml, .npy or .npz",
    )
    read = apsp.add_argument_group("the graph")
    read.add_argument("--nodes", metavar="FILE", help="table of nodes: order, names, coordinates")
    read.add_argument("--weight", metavar="COLUMN", help="column or attribute with the weights")
    way = read.add_mutually_exclusive_group()
    way.add_argument("--directed", action="store_true", default=None, help="edges lead one way")
    way.add_argument(
        "--undirected", dest="directed", action="store_false", help="edges lead both ways"
    )

    work = apsp.add_argument_group("the computation")
    work.add_argument(
        "--semiring",
        choices=_KINDS,
        default="min_plus",
        metavar="NAME",
        help="what a best path is: "
        + ", ".join(
            f"{name} ({kind.path}{', the default' if name == 'min_plus' else ''})"
            for name, kind in _KINDS.items()
        ),
    )
    work.add_argument("--dtype", choices=("float64", "float32"), help="default float64")
    methods = ("auto", "floyd_warshall", "sparse", "squaring")
    work.add_argument("--method", choices=methods, default="auto")
    work.add_argument("--max-hops", type=_positive, metavar="H", help="paths of at most H edges")
    where = work.add_mutually_exclusive_group()
    where.add_argument(
        "--device", help="cpu, cuda or cuda:N; default a GPU for big dense graphs if there is one"
    )
    where.add_argument(
        "--devices", type=_devices, metavar="LIST", help="GPUs that share the work: all, or 0,1"
    )
    where.add_argument(
        "--scheduler",
        type=_address,
        metavar="ADDRESS",
        help="workers of Dask share the work: the scheduler's address, such as tcp://HOST:8786",
    )
    work.add_argument("--threads", type=_positive, metavar="N", help="default all cores")
    work.add_argument(
        "--memory-limit",
        type=_size,
        metavar="SIZE",
        help="memory to work in, such as 16GB; the matrix stays in the file of --output",
    )
    work.add_argument(
        "--checkpoint",
        type=_positive,
        metavar="STEPS",
        help="steps between the states in that file from which --resume can go on; default 1",
    )
    work.add_argument(
        "--resume", action="store_true", help="go on from the last such state of the same work"
    )

    out = apsp.add_argument_group("the output")
    out.add_argument(
        "-o",
        "--output",
        metavar="FILE",
        help="D.npy or D.zarr: the matrix, in the file's node order; D.zarr is worked on in the "
        "file. D.csv: the pairs of --pairs",
    )
    out.add_argument(
        "--predecessors", metavar="FILE", help="P.npy or P.zarr: int32, -9999 for none"
    )
    out.add_argument(
        "--pairs", metavar="PAIRS", help="a CSV file of pairs of nodes, or 'A,B;C,D'; prints CSV"
    )
    out.add_argument("--from", dest="start", metavar="A", help="print the best path from A ...")
    out.add_argument("--to", dest="end", metavar="B", help="... to B, leg by leg")
    out.add_argument("--summary", action="store_true", help="size, reach, diameter, average, time")
    out.add_argument("--plot", metavar="FILE", help="network with the path, histogram and matrix")
    out.add_argument("--force", action="store_true", help="overwrite existing output")
    noise = out.add_mutually_exclusive_group()
    noise.add_argument("--quiet", action="store_true", help="no progress and no remarks")
    noise.add_argument("--progress", action="store_true", help="progress though not on a terminal")

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


def _positive(word: str) -> int:
    value = int(word) if word.isascii() and word.isdigit() else 0
    if not value:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got {word!r}")
    return value


def _size(word: str) -> int:
    try:
        return parse_size(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _devices(word: str) -> str | list[int]:
    if word == "all":
        return word
    numbers = word.split(",")
    if not all(x.isascii() and x.isdigit() for x in numbers) or len({*numbers}) < len(numbers):
        raise argparse.ArgumentTypeError(f"expected all, or GPUs such as 0,1, got {word!r}")
    return [int(x) for x in numbers]


def _address(word: str) -> str:
    if not re.fullmatch(r"[a-z]+://\S+", word):
        raise argparse.ArgumentTypeError(
            f"expected a scheduler's address such as tcp://HOST:8786, got {word!r}"
        )
    return word


def _info(args: argparse.Namespace) -> int:
    import semiring_mm as sm

    sm.show_config()
    return 0


def _bench(arguments: list[str]) -> int:
    sys.path.insert(0, os.getcwd())
    if importlib.util.find_spec("bench") is None:
        raise _Refusal(
            "the benchmark is not part of the installed package: run this in a checkout of the "
            "repository, where the folder bench is"
        )
    return int(importlib.import_module("bench.__main__").main(arguments) or 0)


# --- apsp --------------------------------------------------------------------------------------


def _apsp(args: argparse.Namespace) -> int:
    if (args.start is None) != (args.end is None):
        raise _Refusal("--from and --to go together: --from A --to B")
    if args.semiring != "min_plus" and (args.max_hops or args.method != "auto"):
        raise _Refusal(f"--max-hops and --method are for min_plus, not {args.semiring}")
    _check_tiles(args)
    _check_outputs(args)
    if args.threads:
        # Before the engine is loaded: it starts its threads once.
        os.environ["SEMIRING_MM_NUM_THREADS"] = str(args.threads)

    graph, matrix = _read(args)
    n = len(graph.nodes)
    if n == 0:
        raise _Refusal(f"{args.graph}: the graph has no nodes")
    find = _Finder(graph)
    ends = (find(args.start), find(args.end)) if args.start is not None else None
    pairs = _pairs(args.pairs, find) if args.pairs is not None else None

    kind = _KINDS[args.semiring]
    with contextlib.ExitStack() as stack:
        run = _solve(args, graph, matrix, stack)
        code = 0
        path: list[int] = []
        asked = args.summary or not (args.output or args.predecessors or pairs or ends or args.plot)
        if ends is not None:
            path = run.path(*ends)
            if not path:
                code = 1
            else:
                _print_path(run, kind, path)
        if asked:
            if path:
                print()
            _print_summary(args, run, kind)
        if (asked or path) and not args.quiet:
            for note in graph.notes:
                print(f"note: {note}")
        if args.plot:
            _plot(args, run, kind, path, ends)
        if args.predecessors and not run.stored:
            _save(args.predecessors, run.predecessors)
        if args.output and args.output.lower().endswith(".npy") and not run.stored:
            _save(args.output, run.result, run.mapped)
        if pairs is not None:
            _write_pairs(args, run, kind, pairs)
        if code:
            assert ends is not None
            a, b = (graph.nodes[k] for k in ends)
            raise _Refusal(f"there is no path from {a} to {b}", 1)
    return code


def _is_zarr(name: str | None) -> bool:
    return bool(name and name.lower().endswith(".zarr"))


def _stored(args: argparse.Namespace) -> bool:
    """Whether the work is done in the output's files, which need not fit in memory."""
    limited = args.memory_limit or args.checkpoint or args.resume
    return bool(limited or _is_zarr(args.output) or _is_zarr(args.predecessors))


def _tiled(args: argparse.Namespace) -> bool:
    """Whether the matrix is worked on in tiles: by several devices, or in files."""
    return bool(args.devices or args.scheduler or _stored(args))


def _check_tiles(args: argparse.Namespace) -> None:
    if _tiled(args) and (args.max_hops or args.method not in ("auto", "floyd_warshall")):
        raise _Refusal(
            "--max-hops and --method are for one device and a matrix in memory; several devices, "
            "and files, take --method floyd_warshall"
        )
    if args.scheduler:
        for option in ("threads", "memory_limit"):
            if getattr(args, option):
                name = option.replace("_", "-")
                raise _Refusal(
                    f"--{name} is for this machine; workers of a scheduler have their own: "
                    f"dask worker {'--nthreads' if name == 'threads' else '--memory-limit'}"
                )
        if importlib.util.find_spec("distributed") is None:
            raise _Refusal('--scheduler needs Dask; write: pip install "semiring-mm[distributed]"')
    if not _stored(args):
        return
    if not args.output or args.output.lower().endswith(".csv"):
        raise _Refusal(
            "--memory-limit, --checkpoint, --resume and .zarr work in the output's file: add "
            "--output D.zarr (or D.npy)"
        )
    if args.start is not None and not args.predecessors:
        raise _Refusal("--from with a matrix in a file needs --predecessors P.zarr (or P.npy)")
    if args.plot and _is_zarr(args.output):
        raise _Refusal("--plot draws from a .npy file: write --output D.npy")
    if (_is_zarr(args.output) or _is_zarr(args.predecessors)) and (
        importlib.util.find_spec("zarr") is None
    ):
        raise _Refusal('.zarr needs Zarr; write: pip install "semiring-mm[zarr]", or use .npy')


def _check_outputs(args: argparse.Namespace) -> None:
    """Refuse before any work what would fail after it."""
    suffixes = {
        "--output": (args.output, (".npy", ".zarr", ".csv")),
        "--predecessors": (args.predecessors, (".npy", ".zarr")),
        "--plot": (args.plot, (".png", ".pdf", ".svg", ".jpg", ".webp")),
    }
    if args.output and args.output.lower().endswith(".csv") and args.pairs is None:
        raise _Refusal("a CSV file takes the pairs of --pairs; for all pairs write --output D.npy")
    taken = [Path(name).resolve() for name in (args.graph, args.nodes, args.pairs) if name]
    for option, (name, accepted) in suffixes.items():
        if name is None:
            continue
        path = Path(name)
        if path.suffix.lower() not in accepted:
            raise _Refusal(f"{option} {name}: expected a name in {', '.join(accepted)}")
        if not path.parent.is_dir():
            raise _Refusal(f"{option} {name}: there is no directory {path.parent}")
        if path.resolve() in taken:
            raise _Refusal(f"{option} {name}: the name is already given to another file here")
        taken.append(path.resolve())
        if path.is_dir() and not (_is_zarr(name) and _is_array(path)):
            raise _Refusal(f"{option} {name}: that is a directory")
        if path.exists() and not args.force:
            raise _Refusal(f"{option} {name}: the file exists; --force overwrites it")
    if args.plot and importlib.util.find_spec("matplotlib") is None:
        raise _Refusal('--plot needs Matplotlib; write: pip install "semiring-mm[plot]"')


def _is_array(folder: Path) -> bool:
    """Whether a folder is an array of Zarr, which may be overwritten as a file may."""
    return (folder / "zarr.json").is_file() or (folder / ".zarray").is_file()


def _read(args: argparse.Namespace) -> tuple[Graph, NDArray[Any] | None]:
    """The graph, and in place of its edges the matrix where that is what the file holds."""
    import numpy as np

    from .files import Graph, read_graph, read_matrix

    whole = args.graph.lower().endswith(".npy") and args.semiring == "min_plus"
    if not whole or args.nodes or args.weight:
        graph = read_graph(args.graph, weight=args.weight, nodes=args.nodes, directed=args.directed)
        return graph, None
    matrix: NDArray[Any] | None = None
    if _tiled(args):  # a file of floats is read where it is
        matrix = np.load(args.graph, mmap_mode="r")
        if matrix.dtype not in (np.float32, np.float64):
            matrix = None
        elif args.dtype not in (None, matrix.dtype.name):
            raise _Refusal(
                f"--dtype {args.dtype}: {args.graph} holds {matrix.dtype}, in which several "
                f"devices, and files, work"
            )
    if matrix is None:
        matrix = read_matrix(args.graph)
    none = np.empty(0, dtype=np.int64)
    labels = [str(k) for k in range(len(matrix))]
    directed = args.directed is not False
    return Graph(labels, none, none, np.empty(0), directed=directed), matrix


class _Finder:
    """Nodes by label, or by display name where just one node has it."""

    def __init__(self, graph: Graph) -> None:
        self._labels = {label: k for k, label in enumerate(graph.nodes)}
        self._display = graph.names or []
        self._names: dict[str, list[int]] = {}
        for k, name in enumerate(self._display):
            self._names.setdefault(name.casefold(), []).append(k)

    def __call__(self, word: str) -> int:
        word = word.strip()
        if word in self._labels:
            return self._labels[word]
        named = self._names.get(word.casefold(), [])
        if len(named) == 1:
            return named[0]
        labels = list(self._labels)
        if named:
            which = ", ".join(labels[k] for k in named[:5])
            raise _Refusal(f"more than one node is called {word!r}: choose one of {which}")
        if labels[0].isdigit() and labels[-1].isdigit():
            raise _Refusal(f"no node {word!r}: nodes are {labels[0]} to {labels[-1]}")
        raise _Refusal(f"no node {word!r}{self._similar(word)}")

    def _similar(self, word: str) -> str:
        import difflib

        known = {label.casefold(): label for label in self._labels}
        labels = list(self._labels)
        for name, at in self._names.items():
            known.setdefault(name, f"{labels[at[0]]} ({self._display[at[0]]})")
        close = difflib.get_close_matches(word.casefold(), list(known)[:50_000], n=3)
        meant = dict.fromkeys(known[word] for word in close)
        return f"; did you mean {' or '.join(meant)}?" if meant else ""


def _pairs(argument: str, find: _Finder) -> list[tuple[int, int]]:
    """Node pairs of `--pairs`: from the file of that name, or from the words themselves."""
    path = Path(argument)
    if path.is_file():
        with path.open(encoding="utf-8-sig", newline="") as file:
            rows = [(reader.line_num, row) for reader in (csv.reader(file),) for row in reader]
        if rows and [cell.strip().casefold() for cell in rows[0][1][:2]] == ["from", "to"]:
            rows = rows[1:]
    elif "," not in argument:
        raise _Refusal(f"--pairs {argument}: neither a file nor pairs such as 'A,B;C,D'")
    else:
        rows = [(0, pair.split(",")) for pair in argument.split(";")]
    pairs = []
    for line, row in rows:
        if not any(cell.strip() for cell in row):
            continue
        place = f"{argument}:{line}: " if line else "--pairs: "
        if len(row) != 2:
            raise _Refusal(f"{place}expected a pair of nodes, got {','.join(row)!r}")
        try:
            pairs.append((find(row[0]), find(row[1])))
        except _Refusal as refusal:
            raise _Refusal(f"{place}{refusal}") from None
    if not pairs:
        raise _Refusal(f"--pairs {argument}: no pairs in it")
    return pairs


@dataclass(frozen=True)
class _Run:
    """A finished computation."""

    graph: Graph
    matrix: NDArray[Any] | None
    kind: _Kind
    result: NDArray[Any]  # or an array of Zarr, and so are the predecessors
    predecessors: NDArray[np.int32] | None
    zero: float  # the entry of a pair without a path
    seconds: float
    mapped: Path | None = None  # where the result is, until it is renamed
    stored: bool = False  # whether the result is in its file already

    def path(self, start: int, end: int) -> list[int]:
        """Nodes of the best path; empty where there is none."""
        import numpy as np

        import semiring_mm as sm

        if start == end:
            return [start]
        if self.result[start, end] == self.zero:
            return []
        assert self.predecessors is not None
        row = np.asarray(self.predecessors[start])[np.newaxis]
        return list(sm.reconstruct_path(row, 0, end))

    def leg(self, start: int, end: int) -> float:
        """The best of the parallel edges between two nodes."""
        if self.matrix is not None:
            both = [self.matrix[start, end]]
            if not self.graph.directed:
                both.append(self.matrix[end, start])
            return float(self.kind.better(both))
        row, col, weight = self.graph.row, self.graph.col, self.graph.weight
        edges = (row == start) & (col == end)
        if not self.graph.directed:
            edges |= (row == end) & (col == start)
        return float(self.kind.better(weight[edges].tolist()))

    def label(self, node: int) -> str:
        """The node as a person would write it."""
        label = self.graph.nodes[node]
        name = self.graph.names[node] if self.graph.names else ""
        return f"{name} ({label})" if name and name != label else label

    def blocks(self) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """The result in blocks, each with its first row and column: some rows, or Zarr's chunks."""
        n = self.result.shape[0]
        rows = max(1, _BLOCK // (self.result.dtype.itemsize * n))
        rows, columns = getattr(self.result, "chunks", (rows, n))
        for i, j in itertools.product(range(0, n, rows), range(0, n, columns)):
            yield i, j, self.result[i : i + rows, j : j + columns]


def _solve(
    args: argparse.Namespace,
    graph: Graph,
    matrix: NDArray[Any] | None,
    stack: contextlib.ExitStack,
) -> _Run:
    import numpy as np

    import semiring_mm as sm

    kind = _KINDS[args.semiring]
    if args.semiring == "lor_land":
        if args.dtype:
            raise _Refusal("lor_land has results of dtype bool; leave out --dtype")
        dtype = np.dtype(np.bool_)
    elif matrix is not None and _tiled(args):
        dtype = matrix.dtype
    else:
        dtype = np.dtype(args.dtype or "float64")
    n = len(graph.nodes)
    stored = _stored(args)
    matrix_out = None if not args.output or args.output.lower().endswith(".csv") else args.output
    for name, size in ((matrix_out, n * n * dtype.itemsize), (args.predecessors, n * n * 4)):
        # A mapped file is sparse at first: without room for it the process dies at a later write.
        if args.resume:
            break  # what is there of them already is looked at below
        if name and size > (free := shutil.disk_usage(Path(name).parent).free):
            raise _Refusal(
                f"{name}: {n:,} × {n:,} entries take {size / 2**30:,.1f} GiB, and "
                f"{free / 2**30:,.1f} GiB are free there"
            )
    out: NDArray[Any] | None = None
    mapped: Path | None = None
    if matrix_out and not _tiled(args) and n * n * dtype.itemsize > _MAPPED_FROM:
        mapped = _part(Path(matrix_out))
        stack.callback(mapped.unlink, missing_ok=True)
        out = np.lib.format.open_memmap(mapped, mode="w+", dtype=dtype, shape=(n, n))
    wanted = args.predecessors or args.start is not None
    wanted = bool(wanted or (args.plot and graph.coordinates is not None and not stored))

    bar = _Bar(show=args.progress or (sys.stderr.isatty() and not args.quiet))
    stack.callback(bar.close)
    common: dict[str, Any] = {
        "directed": graph.directed,
        "return_predecessors": wanted,
        "progress": bar if bar.show else None,
    }
    work: Any = graph if matrix is None else matrix
    start = time.perf_counter()
    if _tiled(args):
        if matrix is None and dtype.kind == "f":
            work = replace(graph, weight=graph.weight.astype(dtype))
        common |= _tiled_arguments(args, stack)
    else:
        work, _ = sm.adjacency(work, args.semiring, dtype=dtype, directed=graph.directed, out=out)
        common |= {"overwrite": True, "device": args.device}
        if args.semiring == "min_plus":
            common |= {"method": args.method, "max_hops": args.max_hops}
    try:
        if args.scheduler:
            solved = _on_workers(args, work, common, stack)
        elif args.semiring == "min_plus":
            solved = sm.apsp(work, **common)
        else:
            solved = sm.closure(work, args.semiring, **common)
    except sm.NegativeCycleError as error:
        raise _Refusal(_cycle(graph, matrix, kind, list(error.cycle)), 1) from None
    except OSError as error:  # of the files that are worked on
        raise _Refusal(str(error).replace("resume=True", "--resume")) from None
    seconds = time.perf_counter() - start
    bar.close()
    result, predecessors = solved if wanted else (solved, None)
    if out is not None and not np.shares_memory(result, out):
        out[...] = result
        result = out
    zero = float(sm.semirings[args.semiring].identities(dtype)[0])
    stored = stored or bool(args.scheduler)
    return _Run(graph, matrix, kind, result, predecessors, zero, seconds, mapped, stored)


def _tiled_arguments(args: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, Any]:
    """What the options for several devices, and for files, are in Python."""
    if args.scheduler:
        state = (_steps_of(args), args.checkpoint) if args.checkpoint else _steps_of(args)
        return {"checkpoint": state, "resume": args.resume} if _has_steps(args) else {}
    given: dict[str, Any] = {
        "device": args.device,
        "devices": args.devices,
        "memory_limit": args.memory_limit,
        "checkpoint": args.checkpoint,
    }
    given = {name: value for name, value in given.items() if value is not None}
    if _stored(args):
        files = _matrices(args)
        for name in files:
            stack.callback(_set_aside(Path(name)))
        given["out"] = files[0] if len(files) == 1 else tuple(files)
        given["resume"] = args.resume
    return given


def _matrices(args: argparse.Namespace) -> list[str]:
    """Files for the matrix and the predecessors."""
    return [name for name in (args.output, args.predecessors) if name and name[-4:] != ".csv"]


def _has_steps(args: argparse.Namespace) -> bool:
    return bool(args.checkpoint or args.resume)


def _steps_of(args: argparse.Namespace) -> str:
    """The folder for the states of a scheduler's workers."""
    return f"{args.output}.steps"


def _set_aside(path: Path) -> Callable[[], None]:
    """Make room for a result; what is called at the end gives back what was there, or removes it.

    An old result is kept under another name until there is a new one.
    """
    aside = path.with_name(f"{path.name}.old")
    if not path.exists():
        return lambda: None
    if aside.exists():
        raise _Refusal(f"{aside}: the old result of an earlier run is there; move it away")
    path.rename(aside)

    def end() -> None:
        if path.exists():
            _remove(aside)
        else:
            aside.rename(path)

    return end


def _remove(path: Path) -> None:
    """Take a file away, or an array of Zarr."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _on_workers(
    args: argparse.Namespace, graph: Any, arguments: dict[str, Any], stack: contextlib.ExitStack
) -> Any:
    """The results of a scheduler's workers: in the files asked for, or in memory."""
    dask = importlib.import_module("semiring_mm.dask")
    client = stack.enter_context(importlib.import_module("distributed").Client(args.scheduler))
    if args.semiring == "min_plus":
        solved = dask.apsp(client, graph, **arguments)
    else:
        solved = dask.closure(client, graph, args.semiring, **arguments)
    wanted = arguments["return_predecessors"]
    files = (args.output, args.predecessors)
    arrays = [
        _brought(array, name if name in _matrices(args) else None)
        for array, name in zip(solved if wanted else (solved,), files, strict=False)
    ]
    if _has_steps(args):
        shutil.rmtree(_steps_of(args))
    return tuple(arrays) if wanted else arrays[0]


def _brought(array: Any, name: str | None) -> Any:
    """An array of Dask in memory, or in a file."""
    if not _is_zarr(name):
        result = array.compute()
        if name:
            _save(name, result)
        return result
    assert name
    part = _part(Path(name))
    try:
        array.to_zarr(str(part))
        _remove(Path(name))
        part.replace(name)
    finally:
        _remove(part)
    return importlib.import_module("zarr").open_array(name, mode="r")


def _cycle(graph: Graph, matrix: NDArray[Any] | None, kind: _Kind, cycle: list[int]) -> str:
    import numpy as np

    run = _Run(graph, matrix, kind, np.empty((0, 0)), None, math.inf, 0.0)
    closed = [*cycle, cycle[0]]
    weight = sum(run.leg(u, v) for u, v in itertools.pairwise(closed))
    names = [run.label(node) for node in closed]
    if len(names) > 14:
        names[7:-7] = ["..."]
    shown = _Format([weight], graph.unit)(weight)
    return f"negative cycle of weight {shown}: {' → '.join(names)}"


# --- what is printed and written ----------------------------------------------------------------


class _Format:
    """Numbers of one table: whole ones as such, others with five or so digits of the largest."""

    def __init__(
        self, values: Sequence[float], unit: str = "", *, whole: bool | None = None
    ) -> None:
        finite = [abs(value) for value in values if math.isfinite(value)]
        top = max(finite, default=0.0)
        if whole is None:
            whole = all(value == int(value) for value in finite)
        self._large = top >= 1e15  # beyond what a float64 holds exactly
        self._digits = 0 if whole or not top else max(0, 4 - math.floor(math.log10(top)))
        self._unit = f" {unit}" if unit else ""

    def __call__(self, value: float) -> str:
        if not math.isfinite(value):
            return str(value)
        if self._large:
            return f"{value:.5g}{self._unit}"
        return f"{value:,.{self._digits}f}{self._unit}"


def _unit(run: _Run) -> str:
    return run.graph.unit if run.kind.unit else ""


def _title(run: _Run, path: list[int]) -> str:
    legs = len(path) - 1
    ends = f"{run.label(path[0])} → {run.label(path[-1])}"
    count = f"{legs} leg{'s' * (legs != 1)}"
    if run.kind.path == "any":
        return f"{ends} in {count}"
    value = float(run.result[path[0], path[-1]]) if legs else 0.0
    return f"{ends}: {_Format([value], _unit(run))(value)} in {count}"


def _print_path(run: _Run, kind: _Kind, path: list[int]) -> None:
    print(_title(run, path))
    names = run.graph.names or [""] * len(run.graph.nodes)
    rows = [(run.graph.nodes[node], names[node], "", "") for node in path]
    if kind.path != "any" and len(path) > 1:
        legs = [run.leg(u, v) for u, v in itertools.pairwise(path)]
        totals = list(itertools.accumulate(legs, kind.join))
        form = _Format([*legs, *totals])
        for k, (leg, total) in enumerate(zip(legs, totals, strict=True), 1):
            rows[k] = (*rows[k][:2], form(leg), form(total))
        unit = f" ({_unit(run)})" if _unit(run) else ""
        total_word = "total" if kind.value == "distance" else kind.value
        rows.insert(0, ("", "", f"leg{unit}", f"{total_word}{unit}"))
    widths = [max(len(row[k]) for row in rows) for k in range(4)]
    for row in rows:
        cells = [row[k].ljust(widths[k]) if k < 2 else row[k].rjust(widths[k]) for k in range(4)]
        print(("  " + "  ".join(cell for cell in cells if cell)).rstrip())


@dataclass(frozen=True)
class _Statistics:
    pairs: int  # ordered pairs i ≠ j with a path
    total: float
    worst: float
    ends: tuple[int, int]
    whole: bool  # whether all values are whole numbers


def _statistics(run: _Run) -> _Statistics:
    import numpy as np

    pairs, total, worst, ends, whole = 0, 0.0, math.nan, (0, 0), True
    sign = 1.0 if run.kind.better is min else -1.0
    for row, column, block in run.blocks():
        there = block != run.zero
        own = np.arange(max(row, column), min(row + block.shape[0], column + block.shape[1]))
        there[own - row, own - column] = False
        if not (count := int(np.count_nonzero(there))):
            continue
        pairs += count
        total += float(block.sum(where=there, dtype=np.float64))
        ranked = np.where(there, sign * block.astype(np.float64), -math.inf)
        i, j = divmod(int(ranked.argmax()), block.shape[1])
        if worst != worst or ranked[i, j] > sign * worst:
            worst, ends = float(block[i, j]), (row + i, column + j)
        if whole and block.dtype.kind == "f":
            whole = bool(np.all(block == np.rint(block), where=there))
    return _Statistics(pairs, total, worst, ends, whole)


def _print_summary(args: argparse.Namespace, run: _Run, kind: _Kind) -> None:
    import numpy as np

    n = len(run.graph.nodes)
    if run.matrix is None:
        edges = len(run.graph.row)
    else:
        edges = sum(
            int(np.isfinite(row).sum()) - bool(row[i] == 0) for i, row in enumerate(run.matrix)
        )
    found = _statistics(run)
    possible = n * (n - 1)
    whole_graph = found.pairs == possible
    strongly = "strongly " if run.graph.directed else ""
    share = 100 * found.pairs / possible if possible else 100.0
    # A network that is almost connected is not "100 %".
    percent = "100" if whole_graph else f"{min(share, 99.99):.4g}"
    lines = [
        ("nodes", f"{n:,}"),
        ("edges", f"{edges:,}, {'directed' if run.graph.directed else 'undirected'}"),
        (
            "reachable",
            f"{percent} % of {possible:,} ordered pairs, {'' if whole_graph else 'not '}{strongly}"
            "connected",
        ),
    ]
    if found.pairs and kind.path != "any":
        a, b = (run.label(node) for node in found.ends)
        form = _Format([found.worst], _unit(run), whole=found.whole)
        lines.append((kind.worst, f"{form(found.worst)}, {a} → {b}"))
        mean = found.total / found.pairs
        lines.append(("average", f"{_Format([mean], _unit(run))(mean)}"))
    work = float(n) ** 3
    # Of a small graph that is the time to compile the kernels: a rate would say nothing.
    rate = f", n³ = {work:.3g} pairs (⊗, ⊕) at {_rate(work / run.seconds)}" if work >= 1e9 else ""
    lines.append(("time", f"{run.seconds:.3f} s{rate}"))
    print(f"{Path(args.graph).name}: {_paths(kind)}")
    width = max(len(word) for word, _ in lines)
    for word, text in lines:
        print(f"  {word.ljust(width)}  {text}")


def _rate(pairs: float) -> str:
    """Pairs of ⊗ and ⊕ a second."""
    size, prefix = next(
        (size, prefix) for size, prefix in ((1e12, "T"), (1e9, "G"), (0, "M")) if pairs >= size
    )
    return f"{pairs / (size or 1e6):.3g} {prefix}/s"


def _paths(kind: _Kind) -> str:
    return "reachability" if kind.path == "any" else f"{kind.path} paths"


def _write_pairs(
    args: argparse.Namespace, run: _Run, kind: _Kind, pairs: list[tuple[int, int]]
) -> None:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(["from", "to", kind.value.replace(" ", "_")])
    for i, j in pairs:
        value = float(run.result[i, j])
        shown = int(value) if math.isfinite(value) and value == int(value) else value
        writer.writerow([run.graph.nodes[i], run.graph.nodes[j], shown])
    if args.output and args.output.lower().endswith(".csv"):
        with _written(args.output) as part:
            part.write_text(text.getvalue(), encoding="utf-8")
    else:
        print(text.getvalue(), end="")


def _plot(
    args: argparse.Namespace, run: _Run, kind: _Kind, path: list[int], ends: tuple[int, int] | None
) -> None:
    from .plot import draw

    title = f"{Path(args.graph).name}: {_paths(kind)}"
    if not path and ends is None and run.predecessors is not None:
        path = run.path(*_statistics(run).ends)
    if len(path) > 1:
        title = _title(run, path)
    graph = replace(run.graph, unit=_unit(run))
    with _written(args.plot) as part:
        draw(
            str(part), run.result, graph, path=path, value=kind.value, missing=run.zero, title=title
        )


def _part(target: Path) -> Path:
    """Where to write what becomes the target once it is whole: beside it, so that a rename does."""
    return target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")


@contextlib.contextmanager
def _written(target: str) -> Iterator[Path]:
    part = _part(Path(target))
    try:
        yield part
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)


def _save(target: str, array: NDArray[Any] | None, mapped: Path | None = None) -> None:
    import numpy as np

    assert array is not None
    if mapped is not None and isinstance(array, np.memmap):
        array.flush()
        mapped.replace(target)
        return
    with _written(target) as part:
        np.save(part, array)


class _Bar:
    """A progress bar on stderr for work of more than a second."""

    def __init__(self, show: bool) -> None:
        self.show = show
        self._terminal = sys.stderr.isatty()
        self._start = self._last = time.perf_counter()
        self._drawn = False

    def __call__(self, done: float, total: float, parts: Mapping[str, float] | None = None) -> None:
        now = time.perf_counter()
        elapsed = now - self._start
        if elapsed < 1 or now - self._last < (0.1 if self._terminal else 1) or not total:
            return
        self._last = now
        share = min(done / total, 1.0)
        rate = done / elapsed
        left = math.ceil((total - done) / rate) if rate else 0
        filled = round(30 * share)
        line = (
            f"{'█' * filled}{'░' * (30 - filled)} {100 * share:3.0f} %  {_rate(rate)}  "
            f"{left // 60}:{left % 60:02d} left"
        )
        line += "".join(f"  {who} {_rate(x / elapsed)}" for who, x in (parts or {}).items())
        print(f"\r{line}\x1b[K" if self._terminal else line, end="" if self._terminal else "\n",
              file=sys.stderr, flush=True)  # fmt: skip
        self._drawn = True

    def close(self) -> None:
        """Leave the line as it was."""
        if self._drawn and self._terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
        self._drawn = False
