"""Durable files: replaced as a whole or not at all, and texts that show whether they are whole."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["atomic_write", "seal", "sync_folder", "unseal"]


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
