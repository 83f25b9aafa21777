"""Dense matrices in NumPy's files, ``.npy``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import check_memory
from .file import File, Reading
from .graph import Graph, NumberLabels

__all__ = ["map_matrix", "read", "read_matrix"]

_PIECE = 1 << 20  # entries of the pieces in which a matrix is read: it may not fit in memory


def read_matrix(path: str | PathLike[str]) -> NDArray[np.float64]:
    """Read a dense matrix of weights from a `.npy` file, without making an edge list of it.

    Parameters
    ----------
    path : path
        A square matrix of real numbers; inf is no edge, and so is False in a matrix of bool
        (True is an edge of weight 1).

    Returns
    -------
    (n, n) float64
        Memory-mapped and read-only where the file holds float64.

    Raises
    ------
    GraphFileError
        Not a square real matrix, or a NaN in it.
    OSError
        The file cannot be opened.
    MemoryError
        The file holds another type, and the matrix in float64 does not fit in memory.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> path = pathlib.Path(tempfile.mkdtemp(), "a.npy")
    >>> np.save(path, np.array([[0, 2], [3, 0]]))
    >>> read_matrix(path)
    array([[0., 2.],
           [3., 0.]])
    """
    file = File(Path(path))
    array = map_matrix(file)
    n = len(array)
    if array.dtype != np.float64:
        check_memory(8 * n * n, f"the {n} x {n} matrix of {file.path} in float64")
    if array.dtype == np.bool_:
        return np.where(array, 1.0, np.inf)
    matrix = np.asarray(array, dtype=np.float64)
    for i, values in enumerate(matrix):  # isnan of the whole is a temporary of n² bytes
        if (wrong := np.isnan(values) | np.isneginf(values)).any():
            j = int(wrong.argmax())
            raise file.error(
                None, f"entry ({i}, {j}) is {values[j]}; weights are numbers, and inf is no edge"
            )
    return matrix


def map_matrix(file: File) -> NDArray[Any]:
    """The square matrix of real numbers or bool in a file, memory-mapped and not yet read."""
    with file.path.open("rb"):
        pass  # an error of the system names the file
    try:
        array = np.load(file.path, mmap_mode="r", allow_pickle=False)
    except Exception as error:  # the parser of the header lets any error of Python through
        raise file.error(None, f"not a .npy file of numbers ({error})") from None
    if not isinstance(array, np.ndarray):
        raise file.error(None, "a .npz archive under the name .npy; rename it")
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise file.error(None, f"expected a square matrix, got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise file.error(None, f"expected real numbers, got dtype {array.dtype}")
    return array


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a matrix's finite entries, but for zeros on the diagonal."""
    matrix = read_matrix(file.path)
    n = len(matrix)
    lines = max(1, _PIECE // max(1, n))
    rows, cols = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for i in range(0, n, lines):
        row, col = np.nonzero(~np.isposinf(matrix[i : i + lines]))
        # A loop of weight 0 says nothing, and a matrix of distances has n of them.
        kept = (row + i != col) | (matrix[row + i, col] != 0)
        rows.append(row[kept] + i)
        cols.append(col[kept])
    row, col = np.concatenate(rows), np.concatenate(cols)
    values = matrix[row, col]
    notes: tuple[str, ...] = ()
    if zeros := int(np.count_nonzero(values == 0)):
        notes = (f"{zeros} zeros off the diagonal are edges of weight 0; no edge is inf",)
    return Reading(Graph(NumberLabels(0, n), row, col, values, directed=True, notes=notes))
