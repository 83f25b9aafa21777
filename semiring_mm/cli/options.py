"""The options of the command line, and what they exclude."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import math
import operator
import os
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from ..files.file import PACKINGS
from ..files.formats import FORMATS
from ..naming import install, naming_options
from ..plot import PANELS
from ..semirings import as_semiring, semirings
from ..tiles import Tiles, parse_size

__all__ = [
    "KINDS", "OPTIONS", "PICTURES", "Kind", "Parser", "Refusal", "add_options", "check_disk",
    "check_labels", "check_names",
    "check_outputs", "check_paths", "check_tiles", "device_option", "devices_option",
    "did_you_mean", "explain_option", "given_files", "graph_options", "in_files",
    "in_tiles", "is_matrix", "is_table", "is_zarr", "kept_tiles", "numbers", "output_file",
    "output_manner", "positive", "resume_options", "semiring_option", "settings", "some_of",
    "threads_option",
]  # fmt: skip


@dataclass(frozen=True)
class Kind:
    """The words and the arithmetic for the paths of one semiring."""

    path: str  # the best path
    value: str  # what it is worth
    worst: str  # the largest distance, the smallest width, ...
    join: Callable[[float, float], float]  # ⊗, on two legs
    better: Callable[..., float]  # ⊕
    counted: str  # what becomes of the weights along a path
    unit: bool = True  # whether its values have the unit of the weights

    @property
    def paths(self) -> str:
        """What is looked for."""
        return "reachability" if self.path == "any" else f"{self.path} paths"


KINDS = {
    "min_plus": Kind("shortest", "distance", "diameter", operator.add, min, "summed"),
    "max_min": Kind("widest", "width", "narrowest", min, max, "the smallest counts"),
    "min_max": Kind("minimax", "largest leg", "worst", max, min, "the largest counts"),
    "max_times": Kind(
        "most reliable", "reliability", "least", operator.mul, max, "multiplied", unit=False
    ),
    "min_times": Kind(
        "least product", "product", "largest", operator.mul, min, "multiplied", unit=False
    ),
    "max_plus": Kind("longest", "length", "least", operator.add, max, "summed"),
    "lor_land": Kind("any", "reachability", "", min, max, "", unit=False),
}
#: The options for the library's arguments, by which its messages name them.
OPTIONS = {
    "checkpoint": "--checkpoint", "device": "--device", "devices": "--devices",
    "directed=False": "--undirected", "directed=True": "--directed", "dtype": "--dtype",
    "format": "--format", "method": "--method",
    "nodes": "--nodes", "source and target": "--columns", "tiles.memory": "--memory-limit",
    "tiles.out": "--output", "tiles.resume": "--resume", "tiles.resume=True": "--resume",
    "weight": "--weight", "weight=None": "--unweighted",
}  # fmt: skip
PICTURES = (".png", ".pdf", ".svg", ".jpg", ".webp")
_MATRICES, _TABLES = (".npy", ".zarr"), (".csv", ".csv.gz", ".parquet")


class Refusal(Exception):
    """An error message for the user, and the exit code."""

    def __init__(self, message: str, code: int = 2) -> None:
        super().__init__(message)
        self.code = code


class Parser(argparse.ArgumentParser):
    """A parser whose errors are a :class:`Refusal`."""

    def refuse_unknown(self, words: Sequence[str]) -> None:
        """Refuse a command or a long option that there is not, and name the nearest."""
        found = (x.choices for x in self._actions if isinstance(x, argparse._SubParsersAction))
        commands: Mapping[str, Parser] | None = next(found, None)
        for k, word in enumerate(words):
            name = word.partition("=")[0]
            if word == "--":
                break
            if commands is not None and not word.startswith("-"):
                if word not in commands:
                    near = did_you_mean(word, {x: x for x in commands})
                    self.error(f"there is no command {word!r}{near}")
                commands[word].refuse_unknown(words[k + 1 :])
                break
            options = self._option_string_actions
            if name.startswith("--") and name not in options and " " not in name:
                near = did_you_mean(name, {x: x for x in options})
                self.error(f"there is no option {name}{near}")

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message} (see: {self.prog} --help)")


def did_you_mean(word: str, known: Mapping[str, str]) -> str:
    """The end of a message about an unknown word: what is meant by similar ones, if any."""
    close = difflib.get_close_matches(word.casefold(), [*known][:50_000], n=3)
    meant = dict.fromkeys(known[name] for name in close)
    return f"; did you mean {' or '.join(meant)}?" if meant else ""


def graph_options(command: Parser, *, prepared: bool = True) -> argparse._ArgumentGroup:
    """Add what says which graph is read, and how; it may be a `prepared` one."""
    command.set_defaults(semiring=None)  # where there is no such option, that of the graph
    more = "; or NET.npz of semiring-mm prepare" if prepared else ""
    text = ", ".join(extension for extension, form in FORMATS.items() if form.packed)
    other = ", ".join(extension for extension, form in FORMATS.items() if not form.packed)
    command.add_argument(
        "graph",
        nargs="+",
        metavar="GRAPH",
        help=f"a file of the graph, several files of its edges, or - for standard input: {text} "
        f"(each also {', '.join(PACKINGS)}), {other}{more}",
    )
    read = command.add_argument_group("the graph")
    read.add_argument("--nodes", metavar="FILE", help="table of nodes: order, names, coordinates")
    weights = read.add_mutually_exclusive_group()
    weights.add_argument(
        "--weight",
        default="weight",
        metavar="COLUMN",
        help="the column, by name or number, or the attribute with the weights; default the first "
        "there is of weight, distance, length, cost, ...",
    )
    weights.add_argument(
        "--unweighted", dest="weight", action="store_const", const=None, help="count legs"
    )
    if prepared:
        read.add_argument(
            "--weights",
            metavar="FILE",
            help="new weights for NET.npz: a file of the same edges, of which --weight and "
            "--columns are the columns",
        )
    read.add_argument(
        "--columns",
        type=_columns,
        default=(None, None),
        metavar="FROM,TO",
        help="the columns of an edge list that hold the ends, by names or numbers",
    )
    read.add_argument(
        "--format", metavar="EXT", help="read GRAPH as a file of this extension, such as csv"
    )
    way = read.add_mutually_exclusive_group()
    way.add_argument("--directed", action="store_true", default=None, help="edges lead one way")
    way.add_argument(
        "--undirected", dest="directed", action="store_false", help="edges lead both ways"
    )
    return read


@contextlib.contextmanager
def settings(args: argparse.Namespace) -> Iterator[None]:
    """Let the engine start as many threads as is said, and messages name options."""
    if args.threads:
        # Before the engine is loaded: it starts its threads once.
        os.environ["SEMIRING_MM_NUM_THREADS"] = str(args.threads)
    with warnings.catch_warnings(), naming_options(OPTIONS):
        warnings.showwarning = _show
        yield


def _show(message: Warning | str, *where: Any, **more: Any) -> None:
    """Print a warning as others of this program; of what packages deprecate nothing is printed."""
    if not isinstance(message, DeprecationWarning):
        print(f"semiring-mm: warning: {message}", file=sys.stderr)


def semiring_option(group: argparse._ArgumentGroup) -> None:
    """Add the choice of a semiring."""
    group.add_argument(
        "--semiring",
        type=_semiring,
        metavar="NAME",
        help="what a best path is: "
        + ", ".join(
            f"{name} ({kind.path}{', the default' if name == 'min_plus' else ''})"
            for name, kind in KINDS.items()
        )
        + "; or a word such as shortest, widest, reliable, reachability",
    )


def threads_option(group: argparse._ArgumentGroup) -> None:
    """Add the number of threads."""
    group.add_argument("--threads", type=positive, metavar="N", help="default all cores")


def explain_option(group: argparse._ArgumentGroup) -> None:
    """Add the table of methods in place of the work."""
    group.add_argument(
        "--explain",
        action="store_true",
        help="print which method would be taken, with the estimated time and memory of each, and "
        "do nothing else",
    )


def device_option(
    group: argparse._ArgumentGroup | argparse._MutuallyExclusiveGroup, default: str
) -> None:
    """Add the choice of a device."""
    group.add_argument("--device", type=_device, help=f"cpu, cuda or cuda:N; default {default}")


def devices_option(group: argparse._MutuallyExclusiveGroup) -> None:
    """Add the choice of several."""
    group.add_argument(
        "--devices", type=_devices, metavar="LIST", help="GPUs that share the work: all, or 0,1"
    )


def resume_options(group: argparse._ArgumentGroup) -> None:
    """Add when a state is kept, and whether the work goes on from it."""
    group.add_argument(
        "--checkpoint",
        type=positive,
        nargs="?",
        const=True,
        metavar="STEPS",
        help="keep a state in or beside the file of --output after so many steps, from which "
        "--resume can go on; without STEPS as often as is worthwhile",
    )
    group.add_argument(
        "--resume",
        action="store_true",
        help="go on from the last such state of the same work; begin where there is none, and do "
        "nothing where all is done",
    )


def kept_tiles(args: argparse.Namespace, out: Any = None, **also: Any) -> Tiles:
    """The options of files and devices as the library takes them; `out` is where a state is."""
    state = {} if out is None else {"out": out, "resume": args.resume}
    if state and args.checkpoint is not True:
        state["checkpoint"] = args.checkpoint
    return Tiles(**state, **also)


def output_file(
    command: Parser, text: str, *, file: str = "FILE", required: bool = False
) -> argparse._ArgumentGroup:
    """Add what is written, of which a `text` tells; the group of all that is written."""
    out = command.add_argument_group("the output")
    out.add_argument("-o", "--output", required=required, metavar=file, help=text)
    return out


def output_manner(group: argparse._ArgumentGroup, force: str = "overwrite existing files") -> None:
    """Add how results are written, and what is printed beside them."""
    group.add_argument("--json", action="store_true", help="print JSON")
    group.add_argument("--force", action="store_true", help=force)
    noise = group.add_mutually_exclusive_group()
    noise.add_argument("--quiet", action="store_true", help="no progress and no remarks")
    noise.add_argument("--progress", action="store_true", help="progress though not on a terminal")


def add_options(apsp: Parser) -> None:
    """Add what ``semiring-mm apsp`` takes."""
    graph_options(apsp)
    work = apsp.add_argument_group("the computation")
    semiring_option(work)
    work.add_argument("--dtype", choices=("float64", "float32"), help="default float64")
    methods = ("auto", "floyd_warshall", "sparse", "squaring")
    work.add_argument("--method", choices=methods, default="auto")
    work.add_argument("--max-hops", type=positive, metavar="H", help="paths of at most H edges")
    where = work.add_mutually_exclusive_group()
    device_option(where, "a GPU for big dense graphs if there is one")
    devices_option(where)
    where.add_argument(
        "--scheduler",
        type=_address,
        metavar="ADDRESS",
        help="workers of Dask share the work: the scheduler's address, such as tcp://HOST:8786",
    )
    threads_option(work)
    explain_option(work)
    work.add_argument(
        "--memory-limit",
        type=_size,
        metavar="SIZE",
        help="memory to work in, such as 16GB; the matrix stays in the file of --output",
    )
    resume_options(work)
    out = output_file(
        apsp,
        "D.npy or D.zarr: the matrix, rows in the order of D.nodes.txt, which is written beside it "
        "where nodes are not 0, 1, 2, ...; D.zarr is worked on in the file. D.csv, D.csv.gz or "
        "D.parquet: a row for each pair with a path (from, to, distance, legs), or for those of "
        "--pairs",
    )
    out.add_argument(
        "--predecessors", metavar="FILE", help="P.npy or P.zarr: int32, -9999 for none"
    )
    out.add_argument(
        "--pairs", metavar="PAIRS", help="a CSV file of pairs of nodes, or 'A,B;C,D'; prints CSV"
    )
    out.add_argument(
        "--routes", action="store_true", help="with --pairs: the nodes of each path, too"
    )
    out.add_argument("--from", dest="start", metavar="A", help="print the best path from A ...")
    out.add_argument("--to", dest="end", metavar="B", help="... to B, leg by leg")
    out.add_argument("--summary", action="store_true", help="size, reach, diameter, average, time")
    out.add_argument(
        "--plot", metavar="FILE", help="draw the network with the path, or --plot-what"
    )
    out.add_argument(
        "--plot-what",
        type=some_of(PANELS),
        default=("map",),
        metavar="LIST",
        help=f"what to draw, of {','.join(PANELS)}; default map",
    )
    output_manner(
        out,
        "overwrite existing output, and take more than 4 GiB of memory for what was not said to "
        "be so large",
    )


def _semiring(word: str) -> str:
    """The name of the semiring that a word stands for."""
    try:
        name = as_semiring(word).name
    except ValueError:
        words = [x for x in dir(semirings) if x in semirings and semirings[x].name in KINDS]
        close = difflib.get_close_matches(word.casefold(), words, n=2)
        advice = (
            f"did you mean {' or '.join(close)}?" if close else f"choose one of {', '.join(words)}"
        )
        raise argparse.ArgumentTypeError(f"there is no semiring {word!r}: {advice}") from None
    if name not in KINDS:
        raise argparse.ArgumentTypeError(
            f"{name} has no best paths: choose one of {', '.join(KINDS)}"
        )
    return name


def _columns(word: str) -> tuple[str, str]:
    ends = tuple(part.strip() for part in word.split(","))
    if len(ends) != 2 or not all(ends):
        raise argparse.ArgumentTypeError(
            f"expected two columns such as origin,destination or 1,2, got {word!r}"
        )
    return ends


def some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """What reads some of these words, between commas."""

    def read(word: str) -> tuple[str, ...]:
        names = tuple(part.strip() for part in word.split(","))
        if not {*names} <= {*known}:
            raise argparse.ArgumentTypeError(f"expected some of {','.join(known)}, got {word!r}")
        return names

    return read


def positive(word: str) -> int:
    """A positive whole number."""
    value = int(word) if word.isascii() and word.isdigit() else 0
    if not value:
        raise argparse.ArgumentTypeError(f"expected a positive whole number, got {word!r}")
    return value


def numbers(word: str) -> list[float]:
    """Finite numbers between commas, whole ones as int."""
    try:
        values = [float(part) for part in word.split(",")]
    except ValueError:
        values = [math.nan]
    if not all(map(math.isfinite, values)):
        raise argparse.ArgumentTypeError(f"expected a number, or several: 5,10; got {word!r}")
    return [int(x) if x == int(x) else x for x in values]


def _size(word: str) -> int:
    try:
        return parse_size(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _devices(word: str) -> str | list[int]:
    if word == "all":
        return word
    numbers = [x.strip().removeprefix("cuda:") for x in word.split(",")]
    if not all(x.isascii() and x.isdigit() for x in numbers) or len({*numbers}) < len(numbers):
        raise argparse.ArgumentTypeError(f"expected all, or GPUs such as 0,1, got {word!r}")
    return [int(x) for x in numbers]


def _like(pattern: str, expected: str) -> Callable[[str], str]:
    """What takes a word of this pattern."""

    def read(word: str) -> str:
        if not re.fullmatch(pattern, word):
            raise argparse.ArgumentTypeError(f"expected {expected}, got {word!r}")
        return word

    return read


_device = _like(r"cpu|cuda(:[0-9]+)?", "cpu, cuda or cuda:N")
_address = _like(r"[a-z]+://\S+", "a scheduler's address such as tcp://HOST:8786")


def given_files(args: argparse.Namespace) -> list[Path]:
    """The files that are read."""
    graphs = [name for name in args.graph if name != "-"]
    also = ("nodes", "weights", "pairs", "sources", "facilities", "start_file", "end_file")
    others = (getattr(args, name, None) for name in also)
    return [Path(name).resolve() for name in (*graphs, *others) if name]


def is_matrix(name: str | None) -> bool:
    """Whether a name is that of a file for a matrix."""
    return bool(name and name.lower().endswith(_MATRICES))


def is_table(name: str | None) -> bool:
    """Whether a name is that of a file with a row for each pair."""
    return bool(name and name.lower().endswith(_TABLES))


def is_zarr(name: str | None) -> bool:
    """Whether a name is that of an array of Zarr."""
    return bool(name and name.lower().endswith(".zarr"))


def in_files(args: argparse.Namespace) -> bool:
    """Whether the work is done in the output's files, which need not fit in memory."""
    limited = args.memory_limit or args.checkpoint or args.resume
    return bool(limited or is_zarr(args.output) or is_zarr(args.predecessors))


def in_tiles(args: argparse.Namespace) -> bool:
    """Whether the matrix is worked on in tiles: by several devices, or in files."""
    return bool(args.devices or args.scheduler or in_files(args))


def check_tiles(args: argparse.Namespace) -> None:
    """Refuse options that several devices, a scheduler, or files exclude."""
    methods = ["auto", "floyd_warshall", *([] if args.devices or args.scheduler else ["sparse"])]
    if in_tiles(args) and (args.max_hops or args.method not in methods):
        raise Refusal(
            "--max-hops and --method are for one device and a matrix in memory; several devices, "
            "and files, take --method floyd_warshall; files also --method sparse"
        )
    if args.scheduler:
        for option in ("threads", "memory_limit"):
            if getattr(args, option):
                name = option.replace("_", "-")
                raise Refusal(
                    f"--{name} is for this machine; workers of a scheduler have their own: "
                    f"dask worker {'--nthreads' if name == 'threads' else '--memory-limit'}"
                )
        if importlib.util.find_spec("distributed") is None:
            raise Refusal(f"--scheduler needs Dask: {install('distributed')}")
    if not in_files(args):
        return
    if not is_matrix(args.output):
        raise Refusal(
            "--memory-limit, --checkpoint, --resume and .zarr work in the output's file: add "
            "--output D.zarr (or D.npy)"
        )
    if args.start is not None and not args.predecessors:
        raise Refusal("--from with a matrix in a file needs --predecessors P.zarr (or P.npy)")
    if args.plot and is_zarr(args.output):
        raise Refusal("--plot draws from a .npy file: write --output D.npy")
    if (is_zarr(args.output) or is_zarr(args.predecessors)) and (
        importlib.util.find_spec("zarr") is None
    ):
        raise Refusal(f".zarr needs Zarr: {install('zarr')}, or use .npy")


def check_paths(args: argparse.Namespace) -> None:
    """Refuse options that say different things of the paths."""
    if (args.start is None) != (args.end is None):
        raise Refusal("--from and --to go together: --from A --to B")
    if args.routes and args.pairs is None:
        raise Refusal("--routes is for --pairs; --from A --to B prints the path leg by leg")
    other = args.semiring not in (None, "min_plus")
    if other and (args.max_hops or args.method != "auto"):
        raise Refusal(f"--max-hops and --method are for min_plus, not {args.semiring}")
    if args.max_hops and args.method in ("floyd_warshall", "sparse"):
        raise Refusal("--max-hops needs --method squaring (or auto)")
    if args.max_hops and (args.predecessors or args.start is not None or args.routes):
        raise Refusal(
            "--max-hops: shortest paths of limited length do not form trees, so there are no "
            "predecessors to walk them by; leave out --predecessors, --from, --to and --routes"
        )
    if args.method == "sparse" and args.device not in (None, "cpu"):
        raise Refusal("--method sparse runs on the CPU: leave out --device")


def check_outputs(args: argparse.Namespace) -> None:
    """Refuse before any work what would fail after it."""
    check_names(
        args,
        {
            "--output": (args.output, _MATRICES + _TABLES),
            "--predecessors": (args.predecessors, _MATRICES),
            "--plot": (args.plot, PICTURES),
        },
    )


def check_names(
    args: argparse.Namespace, outputs: Mapping[str, tuple[str | None, tuple[str, ...]]]
) -> None:
    """Refuse names of output files that cannot be written, or that exist already.

    Parameters
    ----------
    args : Namespace
        With `--force`, existing files are overwritten; with `--resume`, they may be the result of
        the run that goes on.
    outputs : dict of str to (name, extensions)
        By option, `--output` first.
    """
    taken, resume = given_files(args), getattr(args, "resume", False)
    for option, (name, accepted) in outputs.items():
        if name is None:
            continue
        path = Path(name)
        if not (path.suffix and name.lower().endswith(accepted)):
            raise Refusal(f"{option} {name}: expected a name in {', '.join(accepted)}")
        if not path.parent.is_dir():
            raise Refusal(f"{option} {name}: there is no directory {path.parent}")
        if path.resolve() in taken:
            raise Refusal(f"{option} {name}: the name is already given to another file here")
        taken.append(path.resolve())
        if path.is_dir() and not (is_zarr(name) and _is_array(path)):
            raise Refusal(f"{option} {name}: that is a directory")
        # What is there of matrices is looked at later; a picture is there when they are.
        output = outputs["--output"][0]
        goes_on = resume and (option != "--plot" or (output and Path(output).exists()))
        if path.exists() and not (args.force or goes_on):
            raise Refusal(f"{option} {name}: the file exists; --force overwrites it")
        if name.lower().endswith(".parquet") and importlib.util.find_spec("pyarrow") is None:
            raise Refusal(f".parquet needs PyArrow: {install('io')}")
        if option == "--plot" and importlib.util.find_spec("matplotlib") is None:
            raise Refusal(f"--plot needs Matplotlib: {install('plot')}")


def check_labels(
    target: str, file: Path, labels: Sequence[str], args: argparse.Namespace, instead: str, *,
    goes_on: bool = False,
) -> None:  # fmt: skip
    """Refuse a file for the labels of a matrix's rows or columns that cannot be written."""
    goes = f"{target}: its labels go to {file}"
    if file.resolve() in given_files(args):
        raise Refusal(f"{goes}, which is read here; choose another name for the output")
    if file.is_dir() or (file.exists() and not (args.force or goes_on)):
        raise Refusal(f"{goes}, which exists; --force overwrites it")
    if (broken := next((x for x in labels if len(x.splitlines()) > 1), None)) is not None:
        raise Refusal(f"{goes}, one a line, and {broken!r} has more; write --output {instead}")


def check_disk(target: str, what: str, size: int) -> None:
    """Refuse a result for which there is no room on the disk."""
    if size > (free := shutil.disk_usage(Path(target).parent).free):
        raise Refusal(
            f"{target}: {what} {size / 2**30:,.1f} GiB, and {free / 2**30:,.1f} GiB are free there"
        )


def _is_array(folder: Path) -> bool:
    """Whether a folder is an array of Zarr, which may be overwritten as a file may."""
    return (folder / "zarr.json").is_file() or (folder / ".zarray").is_file()
