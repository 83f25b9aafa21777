"""Durable files: replaced as a whole or not at all, and read without trust in what they hold."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from .naming import named

if TYPE_CHECKING:
    import zipfile

__all__ = [
    "atomic_write", "digest", "one_line", "read_array", "read_arrays", "read_header", "seal",
    "sync_folder", "unseal", "unusable",
]  # fmt: skip


@contextlib.contextmanager
def atomic_write(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Replace a file atomically: yield a temporary path beside it, and rename that at the end.

    At the end of the block the temporary file is flushed to the disk, renamed to `path`, and the
    folder is flushed, so that after a power failure there is either the old file or the whole new
    one. If the block raises, the temporary file is removed and `path` is left as it was. Several
    processes or threads may write the same path; the last one wins.

    Parameters
    ----------
    path : path
        The file to make or to replace. Its folder must exist.

    Yields
    ------
    pathlib.Path
        A new name in the same folder, with the same suffix; the block makes a file of it.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "state.json")
    >>> with atomic_write(path) as part:
    ...     _ = part.write_text("{}")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('{}', 1)
    """
    target = Path(path)
    part = target.with_name(f".{target.stem}.{os.urandom(8).hex()}.part{target.suffix}")
    try:
        yield part
        with open(part, "r+b") as file:  # Windows flushes only what is open for writing
            os.fsync(file.fileno())
        part.replace(target)
    finally:
        part.unlink(missing_ok=True)
    sync_folder(target.parent)


def sync_folder(folder: str | os.PathLike[str]) -> None:
    """Flush a folder's entries to the disk, where the system can do that."""
    if os.name == "nt":  # folders cannot be opened there
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def seal(fields: dict[str, Any]) -> str:
    """JSON of some fields and of a hash of them."""
    digest = hashlib.sha256(json.dumps(fields, sort_keys=True).encode()).hexdigest()
    return json.dumps({**fields, "sha256": digest}, indent=1) + "\n"


def unseal(text: str) -> dict[str, Any]:
    """The fields of a text that :func:`seal` made; ValueError if any byte of it has changed."""
    try:
        fields = json.loads(text)
        del fields["sha256"]
        intact = seal(fields) == text
    except (ValueError, KeyError, TypeError, RecursionError):
        intact = False
    if not intact:
        raise ValueError("the text is not what was written")
    return dict(fields)


def digest(arrays: dict[str, NDArray[Any]]) -> bytes:
    """A digest of named arrays."""
    mark = hashlib.sha256()
    for name, x in sorted(arrays.items()):
        mark.update(f"{name} {x.dtype.str} {x.shape}".encode())
        mark.update(np.ascontiguousarray(x).data)
    return mark.digest()


def unusable(file: Path, leftovers: object) -> ValueError:
    """The error for the state of a run that cannot go on; `leftovers` are what to remove."""
    resume = named("tiles.resume")
    return ValueError(
        f"{resume}: {file} is no state of an unfinished run that this version can read, or it has "
        f"changed since it was written; remove {leftovers}, and leave out {resume} to begin again"
    )


def read_arrays(path: str | os.PathLike[str]) -> dict[str, NDArray[Any]]:
    """Arrays of a file of ``np.savez``, which take no more memory than the file has bytes.

    Raises
    ------
    ValueError
        If the file is anything else, such as a packed archive, or is damaged.
    OSError
        If it cannot be opened.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "x.npz")
    >>> np.savez(path, x=[1, 2])
    >>> read_arrays(path)
    {'x': array([1, 2])}
    """
    import zipfile

    with open(path, "rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        try:
            with zipfile.ZipFile(stream) as archive:
                members = archive.infolist()
                declared = sum(x.file_size for x in members)
                if declared > size:
                    raise ValueError(f"{declared:,} bytes of arrays are packed in {size:,} bytes")
                return {
                    x.filename.removesuffix(".npy"): read_array(archive, x).copy() for x in members
                }
        except MemoryError:
            raise
        except Exception as error:  # zipfile and NumPy raise many kinds for damaged files
            raise ValueError(one_line(error)) from None


def read_array(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> NDArray[Any]:
    """One array, if its header declares what the archive does: `np.load` allocates unasked."""
    with archive.open(info) as stream:
        shape, fortran, dtype = read_header(stream)
        data = stream.read()
    if dtype.hasobject:
        raise ValueError(f"{info.filename} holds objects of Python")
    if min(shape, default=0) < 0 or len(data) != dtype.itemsize * int(np.prod(shape, dtype=object)):
        raise ValueError(f"{info.filename} is not of the size that its header declares")
    return np.frombuffer(data, dtype).reshape(shape, order="F" if fortran else "C")


def read_header(stream: IO[bytes]) -> tuple[tuple[int, ...], bool, np.dtype[Any]]:
    """Shape, whether by columns, and dtype."""
    try:
        if npy.read_magic(stream) == (1, 0):
            return npy.read_array_header_1_0(stream)
        return npy.read_array_header_2_0(stream)
    except MemoryError:  # of Python's parser, for what is nested too deeply
        raise ValueError("a header is nested too deeply") from None


def one_line(error: object) -> str:
    """The message of an error about a file, shortened: it may quote what the file holds."""
    return textwrap.shorten(str(error)[:1000], 200, placeholder=" …") or type(error).__name__
