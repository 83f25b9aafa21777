"""Matrices in NumPy's archives, ``.npz``: sparse as SciPy writes them, or dense."""

from __future__ import annotations

import zipfile
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import NumberLabels
from ..memory import free_memory
from ..storage import read_array, read_header
from .file import MAX_NODES, File, GraphFileError, Reading
from .graph import Graph
from .npy import matrix_reading

__all__ = ["read"]

_INDICES = {"coo": ("row", "col"), "csr": ("indices", "indptr"), "csc": ("indices", "indptr")}
_NAMES = ("format", "shape", "data", "row", "col", "indices", "indptr")


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a matrix's entries; explicit zeros of a sparse one included."""
    with file.raw() as stream:
        try:
            with zipfile.ZipFile(stream) as archive:
                names = {x.filename.removesuffix(".npy"): x for x in archive.infolist()}
                if not {"data", "row", "col", "indices", "indptr"} & set(names):
                    return matrix_reading(file, _dense(file, archive, names))
                members = {x: info for x, info in names.items() if x in _NAMES}
                arrays = _arrays(file, archive, members)
        except (GraphFileError, MemoryError):
            raise
        except Exception as error:  # zipfile, zlib and NumPy raise many kinds for damaged files
            raise file.error(None, f"not a .npz archive of numbers ({error})") from None
    layout = "coo"
    if "format" in arrays:
        words: list[Any] = arrays["format"].ravel().tolist()
        word = words[0] if len(words) == 1 else words
        layout = word.decode("ascii", "replace") if isinstance(word, bytes) else str(word)
    if layout not in _INDICES:
        raise file.error(
            None, f"a sparse matrix in format {layout!r}; accepted: csr, csc, coo (use .tocsr())"
        )
    if absent := [name for name in (*_INDICES[layout], "data", "shape") if name not in arrays]:
        raise file.error(
            None,
            f"no array {absent[0]!r} in the archive, which has: {', '.join(names) or 'none'}; "
            "expected what scipy.sparse.save_npz writes, or row, col, data and shape",
        )
    for name in (*_INDICES[layout], "data"):
        kinds, what = ("biuf", "real numbers") if name == "data" else ("iu", "integers")
        x = arrays[name]
        if x.dtype.kind not in kinds or x.ndim != 1:
            raise file.error(None, f"expected {what} as {name}, got {x.dtype} {x.shape}")
    n, data = _side(file, arrays["shape"]), arrays["data"]
    first, second = (arrays[name].astype(np.int64) for name in _INDICES[layout])
    if layout != "coo":
        minor, starts = first, second
        rising = len(starts) == n + 1 and starts[0] == 0 and (starts[1:] >= starts[:-1]).all()
        if not rising or starts[-1] > len(minor):
            raise file.error(None, f"indptr does not index the {n} rows of a {layout} matrix")
        minor, data = minor[: starts[-1]], data[: starts[-1]]
        major = np.repeat(np.arange(n), np.diff(starts))
        first, second = (major, minor) if layout == "csr" else (minor, major)
    if not len(first) == len(second) == len(data):
        raise file.error(
            None,
            f"{len(first)} row, {len(second)} column and {len(data)} data entries; expected equal",
        )
    values = data.astype(np.float64)
    for message, wrong in (
        (f"out of range for n = {n}", (first < 0) | (first >= n) | (second < 0) | (second >= n)),
        ("weight {}; expected a finite number", ~np.isfinite(values)),
    ):
        if wrong.any():
            e = int(wrong.argmax())
            raise file.error(None, f"entry ({first[e]}, {second[e]}): {message.format(values[e])}")
    source = "the entries of the matrix"
    labels = NumberLabels(0, n)
    return Reading(
        Graph(labels, first, second, values, True, weight_source=source, direction_source=source)
    )


def _dense(
    file: File, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]
) -> NDArray[Any]:
    """The one square matrix of real numbers among the arrays."""
    shapes = {}
    for name, info in members.items():
        with archive.open(info) as stream:
            shape, _, dtype = read_header(stream)
        if dtype.kind in "biuf" and len(shape) == 2 and shape[0] == shape[1]:
            shapes[name] = shape
    if len(shapes) != 1:
        raise file.error(
            None,
            f"expected one square matrix of numbers, got {', '.join(shapes) or 'none'}, among "
            f"the arrays {', '.join(members) or '(none)'}; save one with np.savez(path, W=W), or a "
            "sparse one with scipy.sparse.save_npz",
        )
    return next(iter(_arrays(file, archive, {x: members[x] for x in shapes}).values()))


def _arrays(
    file: File, archive: zipfile.ZipFile, members: dict[str, zipfile.ZipInfo]
) -> dict[str, NDArray[Any]]:
    """The arrays of these names; the sizes declared are checked first."""
    declared, free = sum(info.file_size for info in members.values()), free_memory()
    if free is not None and 3 * declared > free:  # as stored, and in 64 bits
        raise file.error(
            None,
            f"its arrays unpack to {declared / 1e9:.3g} GB, too much for {free / 1e9:.3g} GB of "
            "free memory",
        )
    return {name: read_array(archive, info) for name, info in members.items()}


def _side(file: File, shape: NDArray[Any]) -> int:
    """The number of nodes."""
    sides = tuple(shape.ravel().tolist())
    if len(sides) != 2 or shape.dtype.kind not in "iu" or min(sides) < 0:
        raise file.error(None, f"expected two whole numbers as shape, got {sides} in {shape.dtype}")
    if sides[0] != sides[1]:
        raise file.error(None, f"expected a square matrix, got shape {sides}")
    if sides[0] > MAX_NODES:
        raise file.error(None, f"expected at most {MAX_NODES:,} nodes, got shape {sides}")
    return int(sides[0])
