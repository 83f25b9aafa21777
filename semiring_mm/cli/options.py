"""The options of the command line, and what they exclude."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib.util
import itertools
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

from ..naming import install, naming_options
from ..plot import PANELS
from ..semirings import as_semiring, semirings
from ..tiles import Tiles, parse_size

__all__ = [
    "KINDS", "MATRICES", "OPTIONS", "PICTURES", "TABLES", "USUAL", "WHAT", "Kind", "Parser",
    "Refusal", "add_rows", "check_disk", "check_labels", "check_names", "check_paths",
    "check_tiles", "did_you_mean", "given_files", "in_files", "in_tiles", "is_matrix", "is_table",
    "is_zarr", "kept_tiles", "refuse", "settings",
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
#: Statistics: the usual ones, and all.
USUAL = ("eccentricity", "mean", "closeness", "harmonic", "histogram")
WHAT = (*USUAL, "diameter", "radius", "center", "betweenness", "edge_betweenness", "stress")
MATRICES, TABLES = (".npy", ".zarr"), (".csv", ".csv.gz", ".parquet")


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


def add_rows(command: Parser, text: str) -> None:
    """Add options that are declared as a help text shows them, a row each.

    A row begins with two blanks: an option, what it takes, two blanks or more, and what it is for;
    a line that is indented deeper goes on with the row above it. A line without blanks before it is
    the title of a group. ``[N]`` may be left out, ``A...`` may come again, ``FILE!`` has to be
    there, one of ``{a,b}`` is taken, and nothing makes it a switch. An option behind ``|``
    excludes the one above. Whatever else argparse needs is in a table of this module.
    """
    lines = [x for x in re.sub(r"\n {4,}", " ", text).splitlines() if x.strip()]
    group: Any = command
    place: Any = command
    for line, after in itertools.zip_longest(lines, lines[1:], fillvalue=""):
        if not line.startswith("  "):
            title, _, about = line.partition(":")
            group = command.add_argument_group(title, about.strip() or None)
            continue
        names, _, words = line.strip().removeprefix("| ").partition("  ")
        if not line.startswith("  |"):
            place = group.add_mutually_exclusive_group() if after.startswith("  |") else group
        flags = [x for x in names.split() if x.startswith("-")]
        takes = names.split()[-1] if len(flags) < len(names.split()) else ""
        known: dict[str, Any] = {"help": words.strip() or None}
        if not flags:
            flags, known["nargs"] = [takes.removesuffix("...").lower()], "+"
        elif takes.endswith("..."):
            known["action"] = "append"
        if takes.startswith("{"):
            known["choices"] = takes[1:-1].split(",")
        elif takes:
            known["metavar"] = takes.strip("[]!.")
        else:
            known["action"] = "store_true"
        if takes.startswith("["):
            known |= {"nargs": "?", "const": True}
        if takes.endswith("!"):
            known["required"] = True
        place.add_argument(*flags, **known | _MORE.get(flags[-1], {}))


@contextlib.contextmanager
def settings(args: argparse.Namespace) -> Iterator[None]:
    """Let the engine start as many threads as is said, and messages name options."""
    if getattr(args, "threads", None):
        # Before the engine is loaded: it starts its threads once.
        os.environ["SEMIRING_MM_NUM_THREADS"] = str(args.threads)
    with warnings.catch_warnings(), naming_options(OPTIONS):
        warnings.showwarning = _show
        yield


def _show(message: Warning | str, *where: Any, **more: Any) -> None:
    """Print a warning as others of this program; of what packages deprecate nothing is printed."""
    if not isinstance(message, DeprecationWarning):
        print(f"semiring-mm: warning: {message}", file=sys.stderr)


def kept_tiles(args: argparse.Namespace, out: Any = None, **also: Any) -> Tiles:
    """The options of files and devices as the library takes them; `out` is where a state is."""
    state = {} if out is None else {"out": out, "resume": args.resume}
    if state and args.checkpoint is not True:
        state["checkpoint"] = args.checkpoint
    return Tiles(**state, **also)


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


def _reads(
    pattern: str, expected: str, convert: Callable[[str], Any] = str
) -> Callable[[str], Any]:  # fmt: skip
    """What converts a word of a pattern, and refuses others and those that do not convert."""

    def read(word: str) -> Any:
        with contextlib.suppress(ValueError):
            if re.fullmatch(pattern, word):
                return convert(word)
        raise argparse.ArgumentTypeError(f"expected {expected}, got {word!r}")

    return read


def _parts(word: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in word.split(","))


def _some_of(known: Sequence[str]) -> Callable[[str], tuple[str, ...]]:
    """What reads some of these words, between commas."""
    one = rf"\s*({'|'.join(known)})\s*"
    return _reads(f"{one}(,{one})*", f"some of {','.join(known)}", _parts)


def _finite(word: str) -> list[float]:
    """Finite numbers, whole ones as int."""
    values = [float(part) for part in word.split(",")]
    if not all(map(math.isfinite, values)):
        raise ValueError(word)
    return [int(x) if x == int(x) else x for x in values]


def _different(word: str) -> str | list[int]:
    """All devices, or the numbers of some, none of them twice."""
    numbers = [int(x.removeprefix("cuda:")) for x in _parts(word) if x != "all"]
    if len({*numbers}) < len(numbers):
        raise ValueError(word)
    return numbers or word


_positive = _reads(r"(?a)0*[1-9]\d*", "a positive whole number", int)
_numbers = _reads(".*", "a number, or several: 5,10", _finite)


def _size(word: str) -> int:
    try:
        return parse_size(word)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


#: What argparse needs to know of an option that its row does not say.
_MORE: dict[str, dict[str, Any]] = {
    "--weight": {"default": "weight"},
    "--unweighted": {"dest": "weight", "action": "store_const", "const": None},
    "--columns": {
        "type": _reads(
            r"\s*[^\s,][^,]*,\s*[^\s,][^,]*",
            "two columns such as origin,destination or 1,2",
            _parts,
        ),
        "default": (None, None),
    },
    "--directed": {"default": None},
    "--undirected": {"dest": "directed", "action": "store_false"},
    "--semiring": {"type": _semiring},
    "--method": {"default": "auto"},
    "--max-hops": {"type": _positive},
    "--device": {"type": _reads(r"cpu|cuda(:[0-9]+)?", "cpu, cuda or cuda:N")},
    "--devices": {
        "type": _reads(
            r"(?a)all|\s*(cuda:)?\d+\s*(,\s*(cuda:)?\d+\s*)*",
            "all, or GPUs such as 0,1",
            _different,
        )
    },
    "--scheduler": {
        "type": _reads(r"[a-z]+://\S+", "a scheduler's address such as tcp://HOST:8786")
    },
    "--threads": {"type": _positive},
    "--memory-limit": {"type": _size},
    "--checkpoint": {"type": _positive},
    "--from": {"dest": "start"},
    "--to": {"dest": "end"},
    "--from-file": {"dest": "start_file"},
    "--to-file": {"dest": "end_file"},
    "--plot-what": {"type": _some_of(PANELS), "default": ("map",)},
    "--what": {"type": _some_of(WHAT)},
    "--bins": {"type": lambda word: (_numbers if "," in word else _positive)(word), "default": 50},
    "--within": {"type": _numbers},
    "--trips": {"default": "trips"},
    "--limit": {"type": _reads(r".*", "a number of metres", float)},
    "-k": {"type": _positive, "default": 1},
}


def given_files(args: argparse.Namespace) -> list[Path]:
    """The files that are read."""
    graphs = [name for name in getattr(args, "graph", ()) if name != "-"]
    also = (
        "nodes", "weights", "pairs", "sources", "facilities", "start_file", "end_file", "places",
        "origins",
    )  # fmt: skip
    others = (getattr(args, name, None) for name in also)
    return [Path(name).resolve() for name in (*graphs, *others) if name]


def is_matrix(name: str | None) -> bool:
    """Whether a name is that of a file for a matrix."""
    return bool(name and name.lower().endswith(MATRICES))


def is_table(name: str | None) -> bool:
    """Whether a name is that of a file with a row for each pair."""
    return bool(name and name.lower().endswith(TABLES))


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
    files, drawn = in_files(args), args.plot and is_zarr(args.output)
    zarr = is_zarr(args.output) or is_zarr(args.predecessors)
    own = "is for this machine; workers of a scheduler have their own: dask worker"
    refuse({
        "--max-hops and --method are for one device and a matrix in memory; several devices, and "
        "files, take --method floyd_warshall; files also --method sparse":
            in_tiles(args) and (args.max_hops or args.method not in methods),
        f"--threads {own} --nthreads": args.scheduler and args.threads,
        f"--memory-limit {own} --memory-limit": args.scheduler and args.memory_limit,
        f"--scheduler needs Dask: {install('distributed')}":
            args.scheduler and importlib.util.find_spec("distributed") is None,
        "--memory-limit, --checkpoint, --resume and .zarr work in the output's file: add "
        "--output D.zarr (or D.npy)": files and not is_matrix(args.output),
        "--from with a matrix in a file needs --predecessors P.zarr (or P.npy)":
            files and args.start is not None and not args.predecessors,
        "--plot draws from a .npy file: write --output D.npy": drawn,
        f".zarr needs Zarr: {install('zarr')}, or use .npy":
            zarr and importlib.util.find_spec("zarr") is None,
    })  # fmt: skip


def check_paths(args: argparse.Namespace) -> None:
    """Refuse options that say different things of the paths."""
    other = args.semiring not in (None, "min_plus")
    hops, walked = args.max_hops, args.predecessors or args.start is not None or args.routes
    refuse({
        "--from and --to go together: --from A --to B": (args.start is None) != (args.end is None),
        "--routes is for --pairs; --from A --to B prints the path leg by leg":
            args.routes and args.pairs is None,
        f"--max-hops and --method are for min_plus, not {args.semiring}":
            other and (hops or args.method != "auto"),
        "--max-hops needs --method squaring (or auto)":
            hops and args.method in ("floyd_warshall", "sparse"),
        "--max-hops: shortest paths of limited length do not form trees, so there are no "
        "predecessors to walk them by; leave out --predecessors, --from, --to and --routes":
            hops and walked,
        "--method sparse runs on the CPU: leave out --device":
            args.method == "sparse" and args.device not in (None, "cpu"),
    })  # fmt: skip


def refuse(rules: Mapping[str, object]) -> None:
    """Raise the first message whose condition holds."""
    for message, wrong in rules.items():
        if wrong:
            raise Refusal(message)


def check_names(args: argparse.Namespace, outputs: Mapping[str, tuple[str, ...]]) -> None:
    """Refuse names of output files that cannot be written, or that exist already.

    Parameters
    ----------
    args : Namespace
        With `--force`, existing files are overwritten; with `--resume`, they may be the result of
        the run that goes on.
    outputs : dict of str to tuple of str
        The extensions that each option accepts.
    """
    taken, resume = given_files(args), getattr(args, "resume", False)
    for option, accepted in outputs.items():
        if (name := getattr(args, option[2:])) is None:
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
        goes_on = resume and (option != "--plot" or (args.output and Path(args.output).exists()))
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
