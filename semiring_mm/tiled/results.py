"""Files of a result: an unfinished matrix and its checksums, published when it is complete.

A result ``dist.zarr`` is computed in ``dist.zarr.part`` and renamed when it is complete. Meanwhile
checksums of its tiles are in ``dist.zarr.part.sums``, so that a resumed run refuses damaged data.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import zlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.elimination import Grid
from ..naming import named
from ..storage import sync_folder
from .stores import NpyStore, Shape, Store, ZarrStore, open_zarr

__all__ = [
    "SumStore", "check_path", "check_room", "checksum", "create", "discard", "open_part",
    "open_result", "part_of", "publish", "work_of",
]  # fmt: skip

Array = NDArray[Any]
Sums = np.memmap[tuple[int], np.dtype[np.uint64]]
STORES: dict[str, type[NpyStore | ZarrStore]] = {".npy": NpyStore, ".zarr": ZarrStore}

_PAGE = 4096  # bytes of which the sums are taken
_UNWRITTEN, _WRITING, _WRITTEN = 0, 1, 1 << 32  # an entry of the checksum file; the last has a sum


def checksum(block: Array) -> int:
    """CRC-32 of the sums of a block's pages and of their columns of 64-bit words.

    Any change within one word is found, and so is a page in the wrong place; other changes are
    missed with probability 2⁻³². It is as fast as a copy, which ``zlib.crc32`` over all bytes is
    not (3 GB/s a core), so that it can be taken of every tile that is written.
    """
    data = np.ascontiguousarray(block).reshape(-1).view(np.uint8)
    whole = data.size // _PAGE * _PAGE
    pages = data[:whole].view(np.uint64).reshape(-1, _PAGE // 8)
    found = zlib.crc32(data[whole:].data)
    for axis in range(2):
        found = zlib.crc32(pages.sum(axis=axis, dtype=np.uint64).data, found)
    return found


class SumStore(Store):
    """An unfinished matrix on disk with a checksum of each tile.

    The checksums are in a mapped file beside the matrix, one 64-bit entry for each tile. It is
    marked before a tile is written and gets the checksum afterwards. A process that is killed
    therefore leaves at most the tiles that it was writing without a checksum. These are used as
    they are: each of their entries is an older or a newer one, and both are values of paths.

    :meth:`verify` finds every other tile whose bytes have changed, and so does :func:`open_part`
    for the description of the array (the header of a ``.npy`` file, ``zarr.json``). What it cannot
    find: a change to a tile that was being written when the process was killed, and data that were
    already wrong in memory. It cannot tell a damaged tile from one that was written, but did not
    reach the disk before the machine lost power: both are refused, and the message says how to
    go on in the second case.

    Parameters
    ----------
    store : NpyStore or ZarrStore
    path : Path
        Of the finished result.
    tile : (int, int)
        Rows and columns of a tile.
    sums : ndarray of uint64
        The mapped file.
    """

    def __init__(self, store: NpyStore | ZarrStore, path: Path, tile: Shape, sums: Sums) -> None:
        self.store, self.path, self.shape, self.dtype = store, path, store.shape, store.dtype
        self._rows, self._columns = (Grid(*x) for x in zip(store.shape, tile, strict=True))
        self._sums = sums

    def read(self, rows: slice, columns: slice, into: Array) -> None:
        self.store.read(rows, columns, into)

    def write(self, rows: slice, columns: slice, block: Array) -> None:
        """Write whole tiles, and their checksums."""
        block = block.astype(self.dtype, copy=False)
        parts = [
            (i * self._columns.count + j, self._rows.part(i), self._columns.part(j))
            for i in range(rows.start // self._rows.tile, -(-rows.stop // self._rows.tile))
            for j in range(
                columns.start // self._columns.tile, -(-columns.stop // self._columns.tile)
            )
        ]
        for at, *_ in parts:
            self._sums[at] = _WRITING
        self.store.write(rows, columns, block)
        for at, x, y in parts:
            tile = block[
                x.start - rows.start : x.stop - rows.start,
                y.start - columns.start : y.stop - columns.start,
            ]
            self._sums[at] = _WRITTEN | checksum(tile)

    def verify(self, workers: int = 1) -> None:
        """Raise ValueError if a tile is not what was written last."""
        with ThreadPoolExecutor(workers) as pool:
            list(pool.map(self._verify, range(self._rows.count * self._columns.count)))

    def _verify(self, at: int) -> None:
        if self._sums[at] in (_UNWRITTEN, _WRITING):
            return
        i, j = divmod(at, self._columns.count)
        rows, columns = self._rows.part(i), self._columns.part(j)
        tile = np.empty((rows.stop - rows.start, columns.stop - columns.start), self.dtype)
        try:
            self.store.read(rows, columns, tile)
            cause = None
        except OSError as error:
            cause = error
        if cause is not None or self._sums[at] != _WRITTEN | checksum(tile):
            raise _damaged(self.path, f"tile ({i}, {j})") from cause

    def flush(self) -> None:
        self.store.flush()
        self._sums.flush()

    def close(self) -> None:
        self.store.close()
        del self._sums


def _damaged(path: Path, what: str) -> ValueError:
    part, sums = part_of(path), _sums_of(path)
    return ValueError(
        f"{named('tiles.resume')}: {what} of {part} has changed since it was written, or {sums} "
        f"has: remove what is left of the run, and leave out {named('tiles.resume')} to begin "
        f"again. (If the machine lost power during the run and nothing else happened, remove "
        f"{sums} only, and resume without this check.)"
    )


def _description(part: Path) -> bytes:
    """The header of a ``.npy`` file, or the metadata of a Zarr array."""
    if part.is_dir():
        return (part / "zarr.json").read_bytes()
    with open(part, "rb") as file:
        head = file.read(10)  # its last two bytes are the length of the rest
        return head + file.read(int.from_bytes(head[8:], "little"))


def part_of(path: Path) -> Path:
    """Path of the unfinished result."""
    return path.with_name(path.name + ".part")


def work_of(path: Path) -> Path:
    """Path of the distances in the type to compute in, if the result has another."""
    return path.with_stem(path.stem + ".work")


def _sums_of(path: Path) -> Path:
    """Path of the checksums of the unfinished result."""
    return path.with_name(path.name + ".part.sums")


def check_path(path: Path, dtype: np.dtype[Any]) -> None:
    """Raise an error for a path that names no kind of store, or a dtype that none holds."""
    if path.suffix not in STORES:
        raise ValueError(f"{named('tiles.out')}: {path} ends in neither {' nor '.join(STORES)}")
    if dtype.kind not in "biuf":
        raise TypeError(f"{named('tiles.out')}: files hold no {dtype}; give the graph in float32")


def create(path: Path, shape: Shape, dtype: np.dtype[Any], tile: Shape) -> SumStore:
    """A new unfinished matrix and its checksums; no entry of it is defined yet."""
    store = STORES[path.suffix].create(part_of(path), shape, dtype, tile)
    return SumStore(store, path, tile, _new_sums(path, shape, tile))


def _new_sums(path: Path, shape: Shape, tile: Shape) -> Sums:
    """Map a new file with an entry for each tile, and one for the description of the array."""
    sums = np.zeros(_sums_size(shape, tile), np.uint64)
    sums[-1] = _WRITTEN | zlib.crc32(_description(part_of(path)))
    with open(_sums_of(path), "wb") as file:  # written, since a mapped hole of a full disk is fatal
        file.write(sums.tobytes())  # NumPy's tofile drops a signal that comes at its beginning
        file.flush()
        os.fsync(file.fileno())
    sync_folder(path.parent)
    return np.memmap(_sums_of(path), np.uint64, "r+")


def _sums_size(shape: Shape, tile: Shape) -> int:
    return Grid(shape[0], tile[0]).count * Grid(shape[1], tile[1]).count + 1


def open_part(path: Path, shape: Shape, dtype: np.dtype[Any], tile: Shape) -> SumStore:
    """Open the unfinished matrix of a run; where its checksums were removed, they begin anew.

    Raises
    ------
    ValueError
        If it is not the matrix that was created, or cannot be read.
    """
    part, sums = part_of(path), None
    try:
        if _sums_of(path).exists():
            sums = np.memmap(_sums_of(path), np.uint64, "r+")
            if len(sums) != _sums_size(shape, tile):
                raise ValueError(f"{len(sums)} checksums")
            if sums[-1] != _WRITTEN | zlib.crc32(_description(part)):
                raise ValueError("the checksum differs")
        store = STORES[path.suffix](part)
    except (OSError, ValueError, EOFError) as error:
        raise _damaged(path, "the description") from error
    if store.shape != shape or store.dtype != dtype:
        store.close()
        raise ValueError(
            f"{named('tiles.resume')}: {part} holds {store.dtype} of shape {store.shape}, and "
            f"{dtype} of shape {shape} is what its state speaks of; remove both"
        )
    return SumStore(store, path, tile, _new_sums(path, shape, tile) if sums is None else sums)


def publish(path: Path) -> None:
    """Rename a finished result to its final path."""
    part = part_of(path)
    if part.exists():
        if path.exists():
            raise FileExistsError(
                f"{named('tiles.out')}: {path} appeared during the run; the result is {part}"
            )
        part.rename(path)
        sync_folder(path.parent)
    _sums_of(path).unlink(missing_ok=True)


def open_result(path: Path) -> Any:
    """Open a finished result to read: a mapped array, or a Zarr array."""
    if path.suffix == ".npy":
        return np.load(path, mmap_mode="r")
    return open_zarr(path)


def discard(path: Path) -> None:
    """Remove an unfinished result."""
    part = part_of(path)
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(part) if part.is_dir() else part.unlink()
    _sums_of(path).unlink(missing_ok=True)


def check_room(results: Iterable[tuple[Path, int]]) -> None:
    """Raise OSError if new results of so many bytes do not fit on their disks."""
    needed: dict[int, tuple[Path, int]] = {}
    for path, size in results:
        folder = path.absolute().parent
        disk = os.stat(folder).st_dev
        needed[disk] = (folder, size + needed.get(disk, (folder, 0))[1])
    for folder, size in needed.values():
        free = shutil.disk_usage(folder).free
        if size > free:
            raise OSError(
                errno.ENOSPC,
                f"the result takes {size / 1e9:.3g} GB in {folder}, and {free / 1e9:.3g} GB are "
                f"free; make room, or give another path as out",
            )
