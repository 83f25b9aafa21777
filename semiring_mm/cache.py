"""The cache directory: measurements of this machine and compiled code."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path

__all__ = ["cache_directory", "cached"]

_LIMIT = 256 << 20  # bytes of a folder of compiled code
_DAY = 86_400  # seconds after which a file that is read is marked as used again


def cache_directory() -> Path:
    """Return ``$SEMIRING_MM_CACHE``, or semiring_mm's folder in the user's cache directory."""
    if named := os.environ.get("SEMIRING_MM_CACHE"):
        return Path(named)
    home = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(home) / "semiring_mm"


def cached(kind: str, parts: Iterable[str], make: Callable[[], bytes]) -> bytes:
    """Compiled code from the cache directory, or made and stored there.

    Parameters
    ----------
    kind : str
        Name of a folder of the cache directory. It holds 256 MiB at most; the files that were not
        used for the longest time are removed first.
    parts : iterable of str
        All that the code depends on: source, processor, versions.
    make : callable
        Compiles the code.

    Notes
    -----
    A file begins with the digest of its name and its content. What is damaged, truncated or of
    another name is made again. Files are replaced as a whole, so processes may share a directory.
    Nothing is flushed to the disk: the digest finds what a power failure leaves behind. A directory
    that cannot be written costs nothing but the compilation.
    """
    key = hashlib.sha256("\0".join(parts).encode()).digest()
    path = cache_directory() / kind / key.hex()[:32]
    with contextlib.suppress(OSError):
        data = path.read_bytes()
        if data[:32] == hashlib.sha256(key + data[32:]).digest():
            if time.time() - path.stat().st_mtime > _DAY:
                os.utime(path)
            return data[32:]
    code = make()
    part = path.with_name(f".{os.urandom(8).hex()}.part")
    with contextlib.suppress(OSError):
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            part.write_bytes(hashlib.sha256(key + code).digest() + code)
            part.replace(path)
        finally:
            part.unlink(missing_ok=True)
        _shrink(path.parent)
    return code


def _shrink(folder: Path) -> None:
    """Remove the oldest files of a folder that holds more than the limit."""
    files = [(file.stat(), file.path) for file in os.scandir(folder)]
    size = sum(status.st_size for status, _ in files)
    if size <= _LIMIT:
        return
    for status, name in sorted(files, key=lambda file: file[0].st_mtime):
        if size <= _LIMIT * 3 // 4:
            break
        with contextlib.suppress(OSError):  # another process removed it, or has it open
            os.unlink(name)
        size -= status.st_size
