"""Results of graphs whose nodes have labels, and paths from predecessor matrices."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..arrays import Call
from ..deprecated import renamed
from ..display import cell, chosen, html_table, text_table
from ..engine import Engine
from ..lazy import cached_property
from ..naming import integer, optional
from ..semirings import Semiring
from .paths import leg_counts

__all__ = ["LabelledArray", "Labels", "labelled", "objects", "pandas", "reconstruct_path"]

_SOURCE, _TARGET = "one of the sources", "one of the targets"
_PIECE = 1 << 22  # entries of a predecessor matrix that are searched at a time


class Labels:
    """The labels of nodes, and where each of them is.

    Attributes
    ----------
    nodes : sequence
    what : str
        What they are: all nodes of the graph, or the sources or targets chosen by label, of which
        some may be the same.
    """

    def __init__(self, nodes: Sequence[Any], what: str = "a node of the graph") -> None:
        self.nodes, self.what = nodes, what

    def __reduce__(self) -> Any:
        return Labels, (self.nodes, self.what)

    @cached_property
    def _places(self) -> dict[Any, int] | None:
        if not isinstance(self.nodes, (list, tuple)):  # a sequence that finds its items itself
            return None
        return {node: k for k, node in enumerate(self.nodes)}

    def __contains__(self, label: Any) -> bool:
        return self._find(label) is not None

    def place(self, label: Any) -> int:
        """Position of a label.

        Raises
        ------
        ValueError
            If there is no such node.
        """
        found = self._find(label)
        if found is None:
            some = ", ".join(map(repr, self.nodes[:3])) + (", …" if len(self.nodes) > 3 else "")
            raise ValueError(f"{label!r} is not {self.what}; labels are {some or 'none'}")
        return found

    def positions(self, labels: Iterable[Any]) -> NDArray[np.int64]:
        """Positions of several labels; raises as :meth:`place` does."""
        given, places = list(labels), self._places
        find = self.nodes.index if places is None else places.__getitem__
        try:
            return np.fromiter(map(find, given), np.int64, len(given))
        except (KeyError, ValueError, TypeError):
            return np.array([self.place(label) for label in given], np.int64)

    def _find(self, label: Any) -> int | None:
        try:
            return self.nodes.index(label) if self._places is None else self._places[label]
        except (KeyError, ValueError, TypeError):  # the last where it is not hashable
            return None

    def unique(self) -> Labels:
        """The same labels, if no two nodes have the same one."""
        places = self._places
        chosen = self.what in (_SOURCE, _TARGET)
        if not chosen and places is not None and len(places) < len(self.nodes):
            twice = next(x for k, x in enumerate(self.nodes) if places[x] != k)
            raise ValueError(
                f"two nodes have the label {twice!r}, so labels cannot name nodes: make them differ"
            )
        return self


class LabelledArray(np.ndarray[Any, np.dtype[Any]]):
    """A NumPy array with a row and a column for each node of a graph that has labels.

    :func:`apsp` and :func:`closure` return it for graphs with labels: of NetworkX and igraph, of
    tables, dictionaries and files. Everything that NumPy computes from it, and every part of it,
    is without labels; copies keep them. ``D["a", "c"]``, ``D["a"]`` and ``D[:, "c"]`` look up by
    names; whole numbers are positions, as in NumPy, also where labels are numbers.

    Attributes
    ----------
    nodes : sequence
        Labels of the columns.
    sources : sequence
        Labels of the rows: `nodes`, or what ``sources=`` asked for.
    predecessors : LabelledArray or None
        The predecessor matrix, if it was asked for: ``predecessors[i, j]`` is the position in
        `nodes` of the node before ``nodes[j]``. That of a predecessor matrix is itself.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> D, P = sm.apsp({"a": {"b": 3, "c": 8}, "b": {"c": 1}}, return_predecessors=True)
    >>> D
    LabelledArray, 3 x 3, float64
         a    b  c
    a    0    3  4
    b  inf    0  1
    c  inf  inf  0
    >>> D["a", "c"], D[0, 2], D.path("a", "c")
    (np.float64(4.0), np.float64(4.0), ['a', 'b', 'c'])
    >>> D.to_frame().loc["a", "c"]
    np.float64(4.0)
    >>> D.to_frame(long=True)
      from to  distance  legs
    0    a  b       3.0     1
    1    a  c       4.0     2
    2    b  c       1.0     1
    """

    __module__ = "semiring_mm"  # where users import it from

    # What makes a view or a new array of the type copies no attributes, so these hold for it.
    _columns: Labels | None = None
    _rows: Labels | None = None
    _tree: LabelledArray | None = None
    _semiring: Semiring | None = None  # None: of a predecessor matrix

    @property
    def nodes(self) -> Sequence[Any] | None:
        return None if self._columns is None else self._columns.nodes

    @property
    def sources(self) -> Sequence[Any] | None:
        return None if self._rows is None else self._rows.nodes

    @property
    def predecessors(self) -> LabelledArray | None:
        return self._tree if self._columns is None or self._semiring is not None else self

    @renamed(start="source", end="target")
    def path(self, source: Any, target: Any) -> list[Any]:
        """The labels of the nodes on a best path.

        Parameters
        ----------
        source, target : node labels

        Returns
        -------
        list
            From `source` to `target`, both included; ``[source]`` if they are the same.

        Raises
        ------
        ValueError
            If there is no path, no such node, or there are no predecessors.
        """
        columns, rows = self._own()
        j, row = columns.unique().place(target), rows.place(source)
        tree = self.predecessors
        if tree is None:
            raise ValueError(
                "path() needs predecessors, which this array has not: D, P = sm.apsp(graph, "
                "return_predecessors=True), or net.path(source, target) of a prepared graph"
            )
        found = _walk(np.asarray(tree[row]), columns.place(source), j, row)
        if found is None:
            raise ValueError(f"there is no path from {source!r} to {target!r}")
        return [columns.nodes[k] for k in found]

    def to_frame(self, *, long: bool = False) -> Any:
        """The array as a table of pandas.

        Parameters
        ----------
        long : bool, default False
            A row for each pair of different nodes between which there is a path, with the columns
            from, to, distance (of another semiring than min_plus its name) and, if there are
            predecessors, legs: the number of edges.

        Returns
        -------
        pandas.DataFrame
            By default with the rows and columns of the array, under their labels. A predecessor
            matrix has labels as entries, too.
        """
        pd = pandas()
        (columns, rows), tree = self._own(), self.predecessors
        values, name = np.asarray(self), "distance"
        if self._semiring is None:
            values, name = objects([*columns.nodes, None])[np.maximum(values, -1)], "predecessor"
        elif self._semiring.name != "min_plus":
            name = self._semiring.name
        if not long:
            labels = [
                pd.Index(list(x.nodes), tupleize_cols=False, name=word)
                for x, word in ((rows, "from"), (columns, "to"))
            ]
            return pd.DataFrame(values, *labels)
        found = [columns._find(x) for x in rows.nodes]  # a source of a table may be no target
        sources = np.array([-1 if k is None else k for k in found], np.int64)
        if self._semiring is None:
            there = np.asarray(self) >= 0
        else:
            there = values != self._semiring.identities(values.dtype)[0]
            own = np.flatnonzero(sources >= 0)
            there[own, sources[own]] = False
        row, col = np.nonzero(there)
        table = {"from": objects(rows.nodes)[row], "to": objects(columns.nodes)[col]}
        table = {word: pd.Series(x).infer_objects() for word, x in table.items()}
        table[name] = values[row, col]
        if tree is not None:
            table["legs"] = leg_counts(np.asarray(tree), sources)[row, col]
        return pd.DataFrame(table)

    def _own(self) -> tuple[Labels, Labels]:
        if self._columns is None or self._rows is None:
            raise ValueError(
                "this array has no labels: they belong to the whole result, not to what is "
                "computed from it"
            )
        return self._columns, self._rows

    def __repr__(self) -> str:
        if self._columns is None:
            return super().__repr__()
        return f"{self._title()}\n{text_table(*self._shown())}"

    def __str__(self) -> str:
        return super().__str__() if self._columns is None else repr(self)

    def _repr_html_(self) -> str | None:
        return None if self._columns is None else html_table(self._title(), *self._shown())

    def _title(self) -> str:
        return f"LabelledArray, {' x '.join(map(str, self.shape))}, {self.dtype}"

    def _shown(self) -> tuple[list[str], list[list[str]]]:
        """The labels of the first and last columns, and such rows with theirs, as text."""
        columns, rows = self._own()
        values, across = np.asarray(self), chosen(len(columns.nodes))

        def line(i: int | None) -> list[str]:
            if i is None:
                return ["..."] * (1 + len(across))
            entries = ("..." if j is None else cell(values[i, j]) for j in across)
            return [cell(rows.nodes[i]), *entries]

        head = ["", *("..." if j is None else cell(columns.nodes[j]) for j in across)]
        return head, [line(i) for i in chosen(len(rows.nodes))]

    def __getitem__(self, key: Any) -> Any:
        try:
            found = super().__getitem__(key)
        except IndexError:
            if (places := self._positions(key)) is None:
                raise
            found = super().__getitem__(places)
        return found.view(np.ndarray) if isinstance(found, LabelledArray) else found

    def _positions(self, key: Any) -> tuple[Any, ...] | None:
        """An index with positions in place of labels; None: there are none in it."""
        parts = key if isinstance(key, tuple) and len(key) <= 2 else (key,)
        plain = (int, np.integer, slice, np.ndarray, list, type(None), type(...))
        if self._columns is None or all(isinstance(part, plain) for part in parts):
            return None
        axes = zip(parts, (self._rows, self._columns), strict=False)
        try:
            return tuple(
                part if isinstance(part, plain) else labels.unique().place(part)
                for part, labels in axes if labels is not None
            )  # fmt: skip
        except ValueError as error:
            raise IndexError(str(error)) from None

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:  # of an operation in place
            return self
        return array[()] if return_scalar else np.asarray(array)

    def copy(self, order: Any = "C") -> LabelledArray:
        """A copy of the numbers, under the same labels."""
        return self._like(np.array(self, order=order), self._tree)

    def sort(self, *args: Any, **kwargs: Any) -> None:
        """Sort in place, which takes the numbers away from their labels; so of a copy, np.sort."""
        self._columns = self._rows = None
        super().sort(*args, **kwargs)

    def partition(self, *args: Any, **kwargs: Any) -> None:
        """As NumPy's; the labels are lost as by :meth:`sort`."""
        self._columns = self._rows = None
        super().partition(*args, **kwargs)

    def __copy__(self) -> LabelledArray:
        return self.copy("K")

    def __deepcopy__(self, memo: dict[int, Any] | None, /) -> LabelledArray:
        return self._like(np.array(self, order="K"), copy.deepcopy(self._tree, memo))

    def __reduce__(self) -> Any:
        own = (self._columns, self._rows, self._semiring, self._tree)
        return (_array, (np.asarray(self), *own))

    def _like(self, values: Any, tree: LabelledArray | None) -> LabelledArray:
        return _array(values, self._columns, self._rows, self._semiring, tree)


def labelled(
    distances: Any, predecessors: Any, s: Semiring, nodes: Sequence[Any],
    sources: Iterable[int] | None = None, targets: Iterable[int] | None = None,
) -> tuple[LabelledArray, LabelledArray | None]:  # fmt: skip
    """NumPy arrays of distances, and of predecessors or None, under the labels of nodes.

    Parameters
    ----------
    sources : iterable of int, optional
        Positions of the nodes of the rows; None: all nodes.
    targets : iterable of int, optional
        Of the columns; then there are no predecessors.
    """
    whole = Labels(nodes)
    columns = whole if targets is None else Labels([nodes[j] for j in targets], _TARGET)
    rows = whole if sources is None else Labels([nodes[i] for i in sources], _SOURCE)
    tree = None if predecessors is None else _array(predecessors, columns, rows, None, None)
    return _array(distances, columns, rows, s, tree), tree


def _array(
    values: Any, columns: Labels | None, rows: Labels | None, s: Semiring | None,
    tree: LabelledArray | None,
) -> LabelledArray:  # fmt: skip
    found = np.asarray(values).view(LabelledArray)
    found._columns, found._rows, found._semiring, found._tree = columns, rows, s, tree
    return found


def pandas() -> Any:
    """The module pandas, for the methods ``to_frame``."""
    return optional("pandas", "to_frame() makes a table of pandas", "pandas")


def objects(labels: Sequence[Any]) -> Any:
    """Labels, which may be tuples, as an array of one dimension."""
    found = np.empty(len(labels), object)
    found[:] = list(labels)
    return found


@renamed(i="source", j="target")
def reconstruct_path(predecessors: Any, source: Any, target: Any) -> list[Any]:
    """The path between two nodes by a predecessor matrix.

    Parameters
    ----------
    predecessors : array of int32, shape (n, n) or (sources, n)
        From :func:`apsp` or :func:`closure`; ``predecessors[i, j]`` is the node before `j` on the
        path from `i`. With ``sources=`` the row of `source` is found by its entries.
    source, target : int
        The first and the last node; of a :class:`LabelledArray` their labels.

    Returns
    -------
    list of int, or of labels
        Nodes from `source` to `target`, both included; ``[source]`` if they are the same.

    Raises
    ------
    ValueError
        If `target` cannot be reached, or the matrix has no row of paths from `source`.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> inf = np.inf
    >>> W = np.array([[0, 1, 9], [inf, 0, 1], [inf, inf, 0]])
    >>> D, P = sm.apsp(W, return_predecessors=True)
    >>> sm.reconstruct_path(P, 0, 2)
    [0, 1, 2]
    >>> D, P = sm.apsp(W, sources=[1], return_predecessors=True)
    >>> sm.reconstruct_path(P, 1, 2)
    [1, 2]
    """
    if isinstance(predecessors, LabelledArray) and predecessors.nodes is not None:
        return predecessors.path(source, target)
    with Call(predecessors=predecessors) as call:
        return _path(call.engine, call["predecessors"], source, target)


def _path(engine: Engine, matrix: Any, i: Any, j: Any) -> list[int]:
    if matrix.ndim != 2 or matrix.dtype.kind != "i":
        raise TypeError(
            f"predecessors is a matrix of signed integers, got shape {matrix.shape} and dtype "
            f"{matrix.dtype}"
        )
    try:
        i, j = integer(i, "a node"), integer(j, "a node")
    except TypeError as error:
        raise TypeError(
            f"{error}; the predecessors of a graph with labels take "
            f"labels, as they come from apsp or closure"
        ) from None
    n = matrix.shape[1]
    if not (0 <= i < n and 0 <= j < n):
        raise IndexError(f"nodes {i} and {j} are not both among 0 to {n - 1}, the columns")
    row = _row_from(engine, matrix, i)
    if row is None:
        if not (matrix < 0).all(1).any():  # of a node without edges, which may be i
            raise ValueError(f"predecessors has no row of paths from node {i}")
        found = [i] if i == j else None
    else:
        found = _walk(engine.to_host(matrix[row]), i, j, row)
    if found is None:
        raise ValueError(f"there is no path from node {i} to node {j}")
    return found


def _row_from(engine: Engine, matrix: Any, i: int) -> int | None:
    """The row of paths from node `i`: it has no predecessor there, and is one. None: it is none."""
    count, n = matrix.shape
    lines = max(1, _PIECE // n)
    own = [slice(i, i + 1)] if i < count else []  # where it is unless sources were chosen
    for rows in (*own, *(slice(k, k + lines) for k in range(0, count, lines))):
        part = matrix[rows]
        found = engine.xp.flatnonzero((part[:, i] < 0) & (part == i).any(1))
        if len(found):
            return rows.start + int(found[0])
    return None


def _walk(before: Any, i: int, j: int, row: int) -> list[int] | None:
    """The nodes from `i` to `j` by a row of predecessors, or None."""
    path, node = [j], int(before[j])
    while node >= 0:
        path.append(node)
        if node >= len(before) or len(path) > len(before):
            raise ValueError(f"row {row} of predecessors does not describe a tree")
        node = int(before[node])
    return path[::-1] if path[-1] == i else None
