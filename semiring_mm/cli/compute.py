"""From options to a call of the library, and its result."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

from ..memory import free_memory, too_large
from ..progress import ProgressBar, Watched
from ..storage import atomic_write, sync_folder
from ..text import NumberFormat
from .graph import GivenGraph
from .options import (
    Refusal,
    check_disk,
    in_files,
    in_tiles,
    is_matrix,
    is_table,
    is_zarr,
    kept_tiles,
)

__all__ = ["Result", "asks_net", "explained", "from_net", "refused", "save", "solve", "watched"]

# From here on the result is worked on in its file, so that it need not fit in memory beside the
# predecessors and the rest.
_MAPPED_FROM = 1 << 30

# Bytes from which the size of a file is told, and rows come from sources however many these are.
_TOLD = 4 << 30

# Bytes of rows from which only some pairs are wanted: of more, some rows are found at a time.
_ROWS = 1 << 30

_NONE = -9999  # a predecessor that there is not

_BLOCK = 1 << 20  # bytes of the result that are read at a time: what a cache holds


Pair = tuple[int, int]


@dataclass(frozen=True)
class Result:
    """A finished computation."""

    given: GivenGraph
    values: NDArray[Any]  # (n, n), or an array of Zarr, and so are the predecessors
    predecessors: NDArray[np.int32] | None
    zero: float  # the entry of a pair without a path
    seconds: float
    work: Watched  # how it was done
    mapped: Path | None = None  # where the values are, until the file is renamed
    stored: bool = False  # whether the values are in their file already
    sources: Sequence[int] | None = None  # nodes whose rows these are; None: all
    done: bool = False  # whether nothing was left to compute
    chosen: Mapping[Pair, Any] | None = None  # the values of pairs in place of rows
    routes: Mapping[Pair, list[int]] | None = None  # and the nodes of their paths

    def row(self, node: int) -> int:
        """The row of the values and predecessors with the paths from a node."""
        return node if self.sources is None else self.sources.index(node)

    def value(self, start: int, end: int) -> Any:
        """What the best path between two nodes is worth."""
        if self.chosen is not None:
            return self.chosen[start, end]
        return self.values[self.row(start), end]

    def path(self, start: int, end: int) -> list[int]:
        """Nodes of the best path; empty where there is none."""
        if start == end:
            return [start]
        if self.routes is not None:
            return self.routes[start, end]
        if self.value(start, end) == self.zero:
            return []
        assert self.predecessors is not None
        row = np.asarray(self.predecessors[self.row(start)])[np.newaxis]
        return list(sm.reconstruct_path(row, start, end))

    def labels(self, start: int, end: int) -> list[str]:
        """The labels of the nodes of the best path."""
        return [self.given.graph.nodes[k] for k in self.path(start, end)]

    def blocks(self) -> Iterator[tuple[int, int, NDArray[Any]]]:
        """The values in blocks, each with its first row and column: some rows, or Zarr's chunks."""
        n = self.values.shape[0]
        rows = max(1, _BLOCK // (self.values.dtype.itemsize * n))
        rows, columns = getattr(self.values, "chunks", (rows, n))
        for i, j in itertools.product(range(0, n, rows), range(0, n, columns)):
            yield i, j, self.values[i : i + rows, j : j + columns]


def solve(
    args: argparse.Namespace, given: GivenGraph, stack: contextlib.ExitStack,
    sources: Sequence[int] | None = None, pairs: Sequence[Pair] | None = None,
) -> Result:  # fmt: skip
    """Best paths of the graph as the options ask, from all nodes or from some.

    `stack` removes temporary files at its end. Only the values of `pairs` are wanted, if there are.
    """
    dtype = _dtype(args, given)
    sources = _few(args, given.graph.n, dtype, sources)
    _check_disk(args, given.graph.n, dtype)
    stored = in_files(args)
    wanted = args.predecessors or args.start is not None
    wanted = wanted or (is_table(args.output) and not (args.pairs or args.max_hops))  # for legs
    drawn = args.plot and "map" in args.plot_what and not (stored or args.max_hops)
    whole = bool(wanted or drawn)
    wanted = whole or args.routes
    rows = max(1, _ROWS // (given.graph.n * dtype.itemsize))
    some = pairs if not whole and sources is not None and len(sources) > rows else None
    _check_memory(args, given.graph.n, dtype, sources if some is None else [0], trees=wanted)
    mapped, out = _mapped_output(args, given.graph.n, dtype, stack)
    work = watched(args, stack)
    common = {
        "directed": given.graph.directed, "return_predecessors": wanted, "progress": work,
    }  # fmt: skip
    done = _is_done(args)
    start = time.perf_counter()

    zero = float(sm.semirings[args.semiring].identities(dtype)[0])

    def call(sources: Sequence[int] | None) -> Result:
        matrix = out if given.ways is None else None
        solved = _call(args, given, dtype, common, matrix, stack, sources)
        values, trees = solved if wanted else (solved, None)
        values = given.folded(values)
        if trees is not None:
            trees = given.folded(trees)
            if given.ways is not None:  # nothing is before a node on the way to itself
                own = np.arange(given.graph.n) if sources is None else np.array(sources)
                trees[np.arange(len(own)), own] = _NONE
        return Result(given, values, trees, zero, 0.0, work, sources=sources)

    try:
        with refused(given):
            result = call(sources) if some is None else _of_pairs(some, rows, call)
    except KeyboardInterrupt as end:
        if rest := _resumable(args):
            end.add_note(f"--resume goes on with what is in {rest}")
        raise
    if done:
        work.method, work.unit = "nothing was left to compute", ""
        if not args.quiet:
            print(f"semiring-mm: note: nothing to do: {args.output} is finished", file=sys.stderr)
    seconds = time.perf_counter() - start
    if isinstance(work.progress, ProgressBar):
        work.progress.close()
    values = result.values
    if out is not None and not np.shares_memory(values, out):
        out[...] = values
        values = out
    stored = stored or bool(args.scheduler)
    return replace(result, values=values, seconds=seconds, mapped=mapped, stored=stored, done=done)


def _of_pairs(pairs: Sequence[Pair], rows: int, call: Callable[[Sequence[int]], Result]) -> Result:
    """The values, and paths if there are predecessors, of pairs, from so many nodes at a time."""
    ends: dict[int, list[int]] = {}
    for i, j in pairs:
        ends.setdefault(i, []).append(j)
    sources, values, routes = sorted(ends), dict[Pair, Any](), dict[Pair, list[int]]()
    for first in range(0, len(sources), rows):
        part = call(sources[first : first + rows])
        some = [(i, j) for i in sources[first : first + rows] for j in ends[i]]
        values |= {pair: part.value(*pair) for pair in some}
        if part.predecessors is not None:
            routes |= {pair: part.path(*pair) for pair in some}
    return replace(
        part, values=part.values[:0], predecessors=None, chosen=values, routes=routes or None
    )


def asks_net(args: argparse.Namespace) -> bool:
    """Whether a prepared graph answers, and no option asks for another method."""
    plain = args.method == "auto" and args.device in (None, "cpu")
    return plain and not (args.max_hops or in_tiles(args))


def from_net(
    args: argparse.Namespace, given: GivenGraph, net: sm.PreparedGraph, pairs: Iterable[Pair]
) -> Result:
    """The paths between pairs of nodes of a prepared graph."""
    start, nodes, far = time.perf_counter(), net.nodes, net.semiring.zero
    none = net.semiring.identities(net.dtype)[0]
    values, routes = dict[Pair, Any](), dict[Pair, list[int]]()
    asked = args.routes or args.start is not None
    place = {x: k for k, x in enumerate(nodes)} if asked else {}
    for i, j in pairs:
        value = net.distance(nodes[i], nodes[j])
        there = value != none
        values[i, j] = value if there else far
        if asked:
            routes[i, j] = [place[x] for x in net.path(nodes[i], nodes[j])] if there else []
    work = Watched(None)
    work.method = "a prepared graph"
    dtype = np.dtype(np.float64 if net.dtype.kind in "iu" else net.dtype)
    return Result(
        given, np.empty((0, given.graph.n), dtype), None, float(far), time.perf_counter() - start,
        work, chosen=values, routes=routes,
    )  # fmt: skip


def watched(args: argparse.Namespace, stack: contextlib.ExitStack) -> Watched:
    """What shows the progress if it is to be shown, until the stack ends, and learns the method."""
    show = args.progress or (sys.stderr.isatty() and not args.quiet)
    bar = ProgressBar(transient=True) if show else None
    if bar is not None:
        stack.callback(bar.close)
    return Watched(bar)


def _dtype(args: argparse.Namespace, given: GivenGraph) -> np.dtype[Any]:
    """The dtype of the result."""
    if args.semiring == "lor_land":
        if args.dtype:
            raise Refusal("lor_land has results of dtype bool; leave out --dtype")
        return np.dtype(np.bool_)
    if given.matrix is not None and in_tiles(args):
        return given.matrix.dtype
    return np.dtype(args.dtype or "float64")


def _matrix_output(args: argparse.Namespace) -> str | None:
    """The file for the matrix, where one is asked for."""
    return args.output if is_matrix(args.output) else None


def _check_disk(args: argparse.Namespace, n: int, dtype: np.dtype[Any]) -> None:
    """Refuse results for which there is no room on the disk.

    A mapped file is sparse at first: without room the process would die at a later write.
    """
    if args.resume:
        return  # the library counts what is there of the files already
    sizes = ((_matrix_output(args), n * n * dtype.itemsize), (args.predecessors, n * n * 4))
    for name, size in sizes:
        if name:
            check_disk(name, f"{n:,} × {n:,} entries take", size)


def _few(
    args: argparse.Namespace, n: int, dtype: np.dtype[Any], sources: Sequence[int] | None
) -> Sequence[int] | None:
    """The nodes from which alone paths are computed; None: from all of them.

    Rounds from many sources take longer than an elimination.
    """
    if sources is None or in_tiles(args) or args.method not in ("auto", "sparse"):
        return None
    return sources if 8 * len(sources) <= n or n * n * dtype.itemsize > _TOLD else None


def _check_memory(
    args: argparse.Namespace, n: int, dtype: np.dtype[Any], sources: Sequence[int] | None, *,
    trees: bool,
) -> None:  # fmt: skip
    """Refuse a matrix of many GiB that no option speaks of, or for which there is no room."""
    entries = n * (n if sources is None else len(sources))
    file, size = _matrix_output(args), entries * dtype.itemsize
    if file and size > _TOLD and not args.quiet:
        print(f"semiring-mm: note: {file} takes {size / 2**30:,.1f} GiB", file=sys.stderr)
    if args.force or in_files(args):
        return
    unasked = (not file) * size + (trees and not args.predecessors) * 4 * entries
    free = free_memory()
    instead = (
        f"--force takes it, -o D.npy --memory-limit 4GB works in a file"
        f"{', --from A --to B needs one row of it' if args.start is None else ''}"
        f"{', semiring-mm stats none' if args.semiring == 'min_plus' else ''}"
    )
    if free is not None and size * 4 > free and size <= _TOLD and not args.quiet:
        what = f"a matrix of all pairs of {n:,} nodes"
        print(f"semiring-mm: note: {too_large(what, size, free, instead)}", file=sys.stderr)
    from ..arrays import check_all_pairs

    try:
        check_all_pairs(n, unasked, instead)
    except MemoryError as error:
        raise Refusal(str(error)) from None
    if file and free is not None and size > free:
        instead = "--memory-limit 4GB works in the file, --force in memory all the same"
        raise Refusal(str(too_large(f"{file} of {n:,} × {n:,} entries", size, free, instead)))


def _mapped_output(
    args: argparse.Namespace, n: int, dtype: np.dtype[Any], stack: contextlib.ExitStack
) -> tuple[Path | None, NDArray[Any] | None]:
    """A temporary file beside the output, mapped, where the result is large."""
    name = _matrix_output(args)
    if not name or in_tiles(args) or n * n * dtype.itemsize <= _MAPPED_FROM:
        return None, None
    mapped = _part(Path(name))
    stack.callback(mapped.unlink, missing_ok=True)
    return mapped, np.lib.format.open_memmap(mapped, mode="w+", dtype=dtype, shape=(n, n))


def explained(args: argparse.Namespace, given: GivenGraph, sources: Sequence[int] | None) -> str:
    """The methods for the paths that the options ask for, as a table."""
    dtype = _dtype(args, given)
    sources = _few(args, given.graph.n, dtype, sources)
    trees = bool(args.predecessors or args.start is not None or args.routes)
    _check_memory(args, given.graph.n, dtype, sources, trees=trees)
    common = {"directed": given.graph.directed, "return_predecessors": trees}
    with contextlib.ExitStack() as stack:
        work, more = _arguments(args, given, dtype, common, None, stack, sources)
        return str(sm.explain(work, semiring=args.semiring, **more))


def _arguments(
    args: argparse.Namespace, given: GivenGraph, dtype: np.dtype[Any], common: dict[str, Any],
    out: NDArray[Any] | None, stack: contextlib.ExitStack, sources: Sequence[int] | None,
) -> tuple[Any, dict[str, Any]]:  # fmt: skip
    """The graph, and the other arguments of the library's function."""
    # nodes by their numbers, as all of this program has them
    work: Any = given.matrix
    if work is None:
        work = given.numbered
    if given.matrix is None and dtype.kind == "f" and (in_tiles(args) or sources is not None):
        work = replace(work, weight=work.weight.astype(dtype))
    if in_tiles(args):
        common = common | _tiled_arguments(args, stack)
    elif sources is not None:
        work = work if given.matrix is None else given.matrix.astype(dtype, copy=False)
        common = common | {"sources": list(sources), "device": args.device}
    else:
        work, _ = sm.adjacency(
            work, args.semiring, dtype=dtype, directed=given.graph.directed, out=out
        )
        common = common | {"overwrite": True, "device": args.device}
    if args.semiring == "min_plus" and not in_tiles(args):
        common |= {"method": args.method, "max_hops": args.max_hops}
    return work, common


def _call(
    args: argparse.Namespace, given: GivenGraph, dtype: np.dtype[Any], common: dict[str, Any],
    out: NDArray[Any] | None, stack: contextlib.ExitStack, sources: Sequence[int] | None,
) -> Any:  # fmt: skip
    """What the library's function returns."""
    work, common = _arguments(args, given, dtype, common, out, stack, sources)
    if args.scheduler:
        try:
            return _on_workers(args, work, common, stack)
        except Exception as error:
            if not type(error).__module__.startswith("distributed"):
                raise
            rest = _resumable(args)
            raise Refusal(
                f"the workers of {args.scheduler}: {str(error) or type(error).__name__}"
                f"{f'; --resume goes on with what is in {rest}' if rest else ''}"
            ) from None
    if args.semiring == "min_plus":
        return sm.apsp(work, **common)
    return sm.closure(work, args.semiring, **common)


def _tiled_arguments(args: argparse.Namespace, stack: contextlib.ExitStack) -> dict[str, Any]:
    """The options for several devices, and for files, as arguments of the library."""
    if args.scheduler:
        return {"tiles": kept_tiles(args, _steps_of(args))} if _has_steps(args) else {}
    out = None
    if in_files(args):
        files = _matrices(args)
        for name in files if args.force else ():
            stack.callback(_set_aside(Path(name)))
        out = files[0] if len(files) == 1 else tuple(files)
    tiles = kept_tiles(args, out, devices=args.devices, memory=args.memory_limit)
    arguments: dict[str, Any] = {"device": args.device, "tiles": tiles}
    if args.semiring == "min_plus":
        arguments["method"] = args.method
    return arguments


def _matrices(args: argparse.Namespace) -> list[str]:
    """Files for the matrix and the predecessors."""
    return [name for name in (args.output, args.predecessors) if is_matrix(name)]


def _is_done(args: argparse.Namespace) -> bool:
    """Whether --resume finds all results there, and no unfinished run.

    Whether they are those of the same work is the library's to say.
    """
    names = _matrices(args)
    return bool(
        args.resume and not args.force and not _resumable(args) and all(map(os.path.exists, names))
    )


def _resumable(args: argparse.Namespace) -> str:
    """The files from which --resume can continue, as text; empty if there are none."""
    names = _matrices(args)
    if args.scheduler and _has_steps(args) and Path(_steps_of(args), "run.json").exists():
        return _steps_of(args)
    if in_files(args) and names:
        from ..tiled.checkpoint import Checkpoint
        from ..tiled.results import part_of

        if Checkpoint(Path(names[0])).file.exists():
            return str(part_of(Path(names[0])))
    return ""


def _has_steps(args: argparse.Namespace) -> bool:
    return bool(args.checkpoint or args.resume)


def _steps_of(args: argparse.Namespace) -> str:
    """The folder for the states of a scheduler's workers."""
    return f"{args.output}.steps"


def _set_aside(path: Path) -> Callable[[], None]:
    """Rename an old result; the callback removes it if there is a new one, else restores it."""
    aside = path.with_name(f"{path.name}.old")
    if not path.exists():
        return lambda: None
    if aside.exists():
        raise Refusal(f"{aside}: the old result of an earlier run is there; move it away")
    path.rename(aside)

    def end() -> None:
        if path.exists():
            _remove(aside)
        else:
            aside.rename(path)

    return end


def _remove(path: Path) -> None:
    """Remove a file, or an array of Zarr."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _on_workers(
    args: argparse.Namespace, graph: Any, arguments: dict[str, Any], stack: contextlib.ExitStack
) -> Any:
    """The results of a scheduler's workers: in the files asked for, or in memory."""
    from ..closures.sources import source_of
    from ..tiled.checkpoint import is_finished, keep_record
    from ..tiled.results import open_result

    wanted, names = arguments["return_predecessors"], _matrices(args)
    s, paths = sm.semirings[args.semiring], [Path(name) for name in names]
    source = source_of(s, graph, arguments["directed"])
    task = {"semiring": str(s), "n": source.n, "dtype": str(source.dtype), "results": names}
    goes_on = args.resume and not args.force and not _resumable(args)
    if goes_on and is_finished(paths, task, source.fingerprint):
        opened = [open_result(path) for path in paths]
        return tuple(opened) if wanted else opened[0]
    for path in () if args.force else paths:
        if path.exists():
            raise FileExistsError(f"{path} is there already, beside {_steps_of(args)}; move one")
    dask = importlib.import_module("semiring_mm.dask")
    client = stack.enter_context(importlib.import_module("distributed").Client(args.scheduler))
    if args.semiring == "min_plus":
        solved = dask.apsp(client, graph, **arguments)
    else:
        solved = dask.closure(client, graph, args.semiring, **arguments)
    files = (args.output, args.predecessors)
    arrays = [
        _gather(array, name if name in names else None)
        for array, name in zip(solved if wanted else (solved,), files, strict=False)
    ]
    if paths:
        keep_record(paths, task, source.fingerprint())
    if _has_steps(args):
        shutil.rmtree(_steps_of(args))
    return tuple(arrays) if wanted else arrays[0]


def _gather(array: Any, name: str | None) -> Any:
    """An array of Dask in memory, or in a file."""
    if not is_zarr(name):
        result = array.compute()
        if name:
            save(name, result)
        return result
    assert name
    part = _part(Path(name))
    try:
        array.to_zarr(str(part))
        _remove(Path(name))
        part.replace(name)
        sync_folder(part.parent)
    finally:
        _remove(part)
    return importlib.import_module("zarr").open_array(name, mode="r")


@contextlib.contextmanager
def refused(given: GivenGraph) -> Iterator[None]:
    """Refuse a graph for its negative cycle, which is named."""
    try:
        yield
    except sm.NegativeCycleError as error:
        raise Refusal(_cycle(given, list(error.cycle)), 1) from None


def _cycle(given: GivenGraph, cycle: list[int]) -> str:
    """The message for a negative cycle."""
    closed = [*cycle, cycle[0]]
    weight = sum(given.legs(closed))
    names = [given.label(node) for node in closed]
    if len(names) > 14:
        names[7:-7] = ["..."]
    shown = NumberFormat([weight], given.graph.unit)(weight)
    return f"negative cycle of weight {shown}: {' → '.join(names)}"


def _part(target: Path) -> Path:
    """A temporary path beside the target, to be renamed when it is whole."""
    return target.with_name(f".{target.stem}.{os.getpid()}.part{target.suffix}")


def save(target: str, array: NDArray[Any] | None, mapped: Path | None = None) -> None:
    """Write an array to a `.npy` file, or rename the file that it is mapped from."""
    assert array is not None
    if mapped is not None and isinstance(array, np.memmap):
        array.flush()
        mapped.replace(target)
        sync_folder(mapped.parent)
        return
    with atomic_write(target) as part:
        np.save(part, array)
