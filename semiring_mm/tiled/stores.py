"""Matrices that are read and written by rectangle: arrays in memory, files on disk."""

from __future__ import annotations

import errno
import mmap
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..naming import optional
from ..storage import sync_folder

__all__ = ["NpyStore", "Shape", "Store", "ZarrStore", "open_zarr", "sync_file"]

Array = NDArray[Any]
Shape = tuple[int, int]


class Store:
    """A matrix that is read and written by rectangle, from any thread; this one lies in memory.

    Parameters
    ----------
    array : array_like of two axes
        To be read alone, whatever gives NumPy arrays for two slices.
    dtype : dtype, optional
        In which it is read; default its own.
    """

    shape: Shape
    dtype: np.dtype[Any]

    def __init__(self, array: Any, dtype: np.dtype[Any] | None = None) -> None:
        self.array, self.shape = array, (array.shape[0], array.shape[1])
        self.dtype = np.dtype(array.dtype) if dtype is None else dtype

    def read(self, rows: slice, columns: slice, into: Array) -> None:
        """Copy a rectangle into an array of its shape and of ``dtype``."""
        np.copyto(into, self.array[rows, columns], casting="unsafe")

    def write(self, rows: slice, columns: slice, block: Array) -> None:
        """Copy an array into a rectangle; threads may write different tiles."""
        np.copyto(self.array[rows, columns], block, casting="unsafe")

    def flush(self) -> None:
        """Return when all writes have reached the disk."""

    def close(self) -> None:
        """Close files."""


class NpyStore(Store):
    """A ``.npy`` file in row-major order.

    It is mapped, which is several times faster than a system call for each row of a tile. The pages
    are released after each rectangle, so that they do not count as memory of the process. All
    blocks of the file are reserved when it is created: writing to a mapped hole of a full disk
    would end the process.
    """

    def __init__(self, path: Path) -> None:
        whole = np.load(path, mmap_mode="r+")
        if whole.ndim != 2 or not whole.flags.c_contiguous:
            raise ValueError(f"{path} is no matrix in row-major order")
        super().__init__(whole)
        self._mapped, self._first = whole._mmap, whole.offset
        self._file = os.open(path, os.O_RDWR)

    @classmethod
    def create(cls, path: Path, shape: Shape, dtype: np.dtype[Any], tile: Shape) -> NpyStore:
        """A new file; its entries are undefined."""
        with open(path, "xb") as file:
            head = {"descr": dtype.str, "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, head)
            file.flush()
            reserve(file.fileno(), file.tell(), shape[0] * shape[1] * dtype.itemsize)
        return cls(path)

    def read(self, rows: slice, columns: slice, into: Array) -> None:
        super().read(rows, columns, into)
        self._release(rows)

    def write(self, rows: slice, columns: slice, block: Array) -> None:
        super().write(rows, columns, block)
        self._release(rows)

    def _release(self, rows: slice) -> None:
        if self._mapped is not None and hasattr(mmap, "MADV_DONTNEED"):
            line = self.shape[1] * self.dtype.itemsize
            first = (self._first + rows.start * line) // mmap.PAGESIZE * mmap.PAGESIZE
            end = self._first + rows.stop * line
            if end > first:
                self._mapped.madvise(mmap.MADV_DONTNEED, first, end - first)

    def flush(self) -> None:
        os.fsync(self._file)

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
        self._file, self._mapped = -1, None
        del self.array


def reserve(file: int, first: int, size: int) -> None:
    """Reserve disk blocks for some bytes of a file, or raise OSError."""
    if size and hasattr(os, "posix_fallocate"):
        os.posix_fallocate(file, first, size)
        return
    zeros = bytes(1 << 20)
    os.lseek(file, first, os.SEEK_SET)
    while size:
        size -= os.write(file, zeros[:size])


class ZarrStore(Store):
    """A Zarr 3 array in a folder; each tile is a chunk, stored as it is in memory.

    zarr-python writes and reads the metadata. Chunks are read and written here, without the copies
    that would count against a memory limit. They are overwritten in place, which is five times
    faster than replacing files. A chunk that is half new does no harm: the result is not published
    yet, and the step will be repeated.
    """

    def __init__(self, path: Path) -> None:
        found = open_zarr(path)
        self.path, self.dtype = path, np.dtype(found.dtype)
        self.shape, self.chunks = tuple(found.shape), tuple(found.chunks)
        self._fresh: set[Path] = set()  # written and not yet flushed
        self._lock = threading.Lock()

    @classmethod
    def create(cls, path: Path, shape: Shape, dtype: np.dtype[Any], tile: Shape) -> ZarrStore:
        """A new array without chunks."""
        _zarr().create_array(
            str(path), shape=shape, chunks=tile, dtype=dtype, compressors=None,
            filters=None, fill_value=0,
        )  # fmt: skip
        (path / "c").mkdir()
        for i in range(-(-shape[0] // tile[0])):
            (path / "c" / str(i)).mkdir()
        sync_file(path / "zarr.json")
        for folder in (path / "c", path):
            sync_folder(folder)
        return cls(path)

    def read(self, rows: slice, columns: slice, into: Array) -> None:
        for path, inside, outside in self._chunks(rows, columns):
            block = into[outside]
            whole = block.shape == self.chunks and block.flags.c_contiguous
            chunk = block if whole else np.empty(self.chunks, self.dtype)
            with open(path, "rb", buffering=0) as file:
                if file.readinto(_bytes(chunk)) != chunk.nbytes:
                    raise OSError(f"{path} is shorter than a chunk of {chunk.nbytes} bytes")
            if not whole:
                block[...] = chunk[inside]

    def write(self, rows: slice, columns: slice, block: Array) -> None:
        for path, inside, outside in self._chunks(rows, columns):
            chunk = block[outside]
            if chunk.shape != self.chunks or not chunk.flags.c_contiguous:
                height, width = chunk.shape
                if inside != (slice(0, height), slice(0, width)):
                    raise ValueError("a chunk is written as a whole")
                chunk = np.zeros(self.chunks, self.dtype)  # zeros beyond the edge of the matrix
                chunk[inside] = block[outside]
            file = os.open(path, os.O_WRONLY | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o666)
            try:
                written = os.write(file, _bytes(chunk))
            finally:
                os.close(file)
            if written != chunk.nbytes:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
            with self._lock:
                self._fresh.add(path)

    def _chunks(
        self, rows: slice, columns: slice
    ) -> Iterator[tuple[Path, tuple[slice, slice], tuple[slice, slice]]]:
        """Files that hold a rectangle; its slices within the chunk, the chunk's within it."""
        for i, *vertical in _cuts(rows, self.chunks[0]):
            for j, *horizontal in _cuts(columns, self.chunks[1]):
                inside, outside = zip(vertical, horizontal, strict=True)
                yield self.path / "c" / str(i) / str(j), inside, outside

    def flush(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, set()
        for path in sorted(fresh):
            sync_file(path)
        for folder in {path.parent for path in fresh}:
            sync_folder(folder)


def _cuts(part: slice, size: int) -> Iterator[tuple[int, slice, slice]]:
    """The chunks along one axis of a slice: number, slice in the chunk, slice in `part`."""
    for i in range(part.start // size, -(-part.stop // size)):
        lo, hi = max(part.start, i * size), min(part.stop, (i + 1) * size)
        yield i, slice(lo - i * size, hi - i * size), slice(lo - part.start, hi - part.start)


def _bytes(x: Array) -> memoryview:
    return x.reshape(-1).view(np.uint8).data


def _zarr() -> Any:
    return optional(
        "zarr", "a result in .zarr needs Zarr", "zarr", ", or use a path that ends in .npy"
    )


def open_zarr(path: Path) -> Any:
    """Open a Zarr array to read."""
    return _zarr().open_array(str(path), mode="r")


def sync_file(path: Path) -> None:
    """Flush a file to the disk."""
    file = os.open(path, os.O_RDWR)  # Windows flushes only what is open for writing
    try:
        os.fsync(file)
    finally:
        os.close(file)
