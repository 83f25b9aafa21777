"""Dense matrices in NumPy's files, ``.npy``."""

from __future__ import annotations

from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import NumberLabels
from .file import File, Reading
from .graph import Graph

__all__ = ["map_matrix", "matrix_reading", "read", "read_matrix", "zero_warnings"]

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
    return _weights(file, map_matrix(file))


def _weights(file: File, array: NDArray[Any]) -> NDArray[np.float64]:
    """A matrix of float64, in which inf is no edge and no entry is NaN or -inf."""
    n = len(array)
    if array.dtype != np.float64:
        from ..arrays import check_memory

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
    with file.raw():
        pass  # an error of the system names the file
    try:
        if file.data is None:
            array = np.load(file.path, mmap_mode="r", allow_pickle=False)
        else:
            array = np.load(file.raw(), allow_pickle=False)
    except Exception as error:  # the parser of the header lets any error of Python through
        raise file.error(None, f"not a .npy file of numbers ({error})") from None
    if not isinstance(array, np.ndarray):
        raise file.error(None, "a .npz archive under the name .npy; rename it")
    if array.ndim != 2 or array.shape[0] != array.shape[1]:
        raise file.error(None, f"expected a square matrix, got shape {array.shape}")
    if array.dtype.kind not in "biuf":
        raise file.error(None, f"expected real numbers, got dtype {array.dtype}")
    return array


def zero_warnings(matrix: NDArray[Any]) -> tuple[str, ...]:
    """A warning of zeros off the diagonal, if there are any: elsewhere they may mean no edge.

    Parameters
    ----------
    matrix : (n, n) ndarray
        It may be memory-mapped: it is read once, in pieces.

    Examples
    --------
    >>> zero_warnings(np.array([[0, 2], [0, 0]]))
    ('zeros off the diagonal: 1, an edge of weight 0 each; where no edge is meant, write inf',)
    >>> zero_warnings(np.array([[0, 2], [np.inf, 0]]))
    ()
    """
    n = len(matrix)
    if matrix.dtype == np.bool_:
        return ()
    lines = max(1, _PIECE // max(1, n))
    entries = sum(int(np.count_nonzero(matrix[i : i + lines])) for i in range(0, n, lines))
    zeros = n * n - entries - int(np.count_nonzero(np.diagonal(matrix) == 0))
    if not zeros:
        return ()
    return (
        f"zeros off the diagonal: {zeros:,}, an edge of weight 0 each; where no edge is meant, "
        "write inf",
    )


def read(file: File, weight: str | None) -> Reading:
    """The directed graph of a matrix's finite entries, but for zeros on the diagonal."""
    return matrix_reading(file, map_matrix(file))


def matrix_reading(file: File, array: NDArray[Any]) -> Reading:
    """The directed graph of a square matrix."""
    matrix = _weights(file, array)
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
    graph = Graph(
        NumberLabels(0, n),
        row,
        col,
        matrix[row, col],
        directed=True,
        warnings=zero_warnings(matrix),
        weight_source="the entries of the matrix",
        direction_source="the entries of the matrix",
    )
    return Reading(graph, weighted=array.dtype != np.bool_)
