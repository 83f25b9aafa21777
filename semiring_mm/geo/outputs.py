"""Answers out: GeoDataFrames, Arrow batches, xarray, and matrices for routing solvers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..naming import optional

if TYPE_CHECKING:
    from .network import Network, Route

__all__ = ["MATRICES", "batches", "frame_of", "routes_frame", "solver_matrix", "to_xarray"]

Array = NDArray[Any]

#: Pairs of a batch, unless it is said how many.
_PAIRS = 1 << 20


def geopandas() -> Any:
    """The module GeoPandas."""
    return optional("geopandas", "GeoDataFrames are of GeoPandas", "geo")


def frame_of(net: Network, what: str, columns: dict[str, Any]) -> Any:
    """A GeoDataFrame of edges or nodes, with further columns."""
    import shapely

    gpd, streets = geopandas(), net.streets
    if what not in ("edges", "nodes"):
        raise ValueError(f"what is 'edges' or 'nodes', got {what!r}")
    count = len(streets.u) if what == "edges" else len(streets.nodes)
    for name, column in columns.items():
        if len(column) != count:
            raise ValueError(f"{name} has {len(column)} entries, and there are {count} {what}")
    import pandas as pd

    if what == "nodes":
        index = pd.Index(list(streets.nodes), tupleize_cols=False, name="osmid")
        points = shapely.points(streets.x, streets.y)
        return gpd.GeoDataFrame(columns, geometry=points, index=index, crs=streets.crs)
    first, points = streets.lines
    lines = shapely.linestrings(points, indices=np.repeat(np.arange(count), np.diff(first)))
    ids = [streets.edge_id(e) for e in range(count)]
    index = pd.MultiIndex.from_tuples(ids, names=["u", "v", "key"])
    given = {name: column for name, column in streets.columns.items() if name != "key"}
    return gpd.GeoDataFrame(given | columns, geometry=lines, index=index, crs=streets.crs)


def routes_frame(routes: Iterable[Route], crs: Any, **columns: Any) -> Any:
    """Routes as lines: a GeoDataFrame with columns weight and edges (how many)."""
    routes = list(routes)
    given = {"weight": [r.weight for r in routes], "edges": [len(r.edges) for r in routes]}
    lines = [r.to_linestring() for r in routes]
    return geopandas().GeoDataFrame(given | columns, geometry=lines, crs=crs)


def batches(
    net: Network, sources: Any, targets: Any, pairs: int | None, options: dict[str, Any]
) -> Iterator[Any]:
    """Record batches of Arrow, of the pairs between which there is a path."""
    pa = optional("pyarrow", "record batches are of pyarrow", "io")
    from .places import Places

    if not isinstance(sources, Places):
        sources = net._names(sources, net.graph.positions(sources, "sources"))
    some = net.distances(sources[:1], targets, **options)
    first = some[0] if isinstance(some, tuple) else some
    names = pa.array(list(first.nodes))
    rows = max(1, (pairs or _PAIRS) // max(1, len(names)))
    words = ["distance", "along"]
    for begin in range(0, len(sources), rows):
        part = net.distances(sources[begin : begin + rows], targets, **options)
        tables = part if isinstance(part, tuple) else (part,)
        origin, end = np.nonzero(np.isfinite(np.asarray(tables[0])))
        columns = [
            pa.array(list(tables[0].sources)).take(pa.array(origin)),
            names.take(pa.array(end)),
        ]
        columns += [pa.array(np.asarray(table)[origin, end]) for table in tables]
        yield pa.record_batch(columns, names=["from", "to", *words[: len(tables)]])


def to_xarray(table: Any, name: str = "distance") -> Any:
    """A labelled table as a DataArray of xarray, with the coordinates "from" and "to".

    Parameters
    ----------
    table : LabelledArray
        As of :meth:`Network.distances`.
    name : str

    Returns
    -------
    xarray.DataArray
    """
    try:
        import xarray
    except ImportError:
        raise ImportError("to_xarray() makes a DataArray: python -m pip install xarray") from None
    coordinates = {"from": list(table.sources), "to": list(table.nodes)}
    return xarray.DataArray(np.asarray(table), coordinates, dims=["from", "to"], name=name)


def _vroom(table: NDArray[np.int64]) -> dict[str, Any]:
    most = np.iinfo(np.uint32).max
    if table.max(initial=0) > most:
        raise ValueError(f"VROOM takes whole numbers to {most}, got {table.max()}: use a scale")
    return {"matrices": {"car": {"durations": table.tolist()}}}


#: What a solver takes, by its name.
MATRICES: dict[str, Any] = {"pyvrp": lambda x: x, "ortools": lambda x: x.tolist(), "vroom": _vroom}


def solver_matrix(
    solver: str, table: Any, *, scale: float = 1.0, unreachable: int | None = None
) -> Any:
    """A square table as a solver of vehicle routing problems takes it: in whole numbers.

    Parameters
    ----------
    solver : {"pyvrp", "ortools", "vroom"}
    table : (k, k) array
        As of ``net.distances(places, places)``.
    scale : float, default 1
        By which weights are multiplied before they are rounded: 10 for tenths of seconds.
    unreachable : int, optional
        What stands for no path, not multiplied. Default: that is an error.

    Returns
    -------
    (k, k) int64 array for PyVRP, list of lists for OR-tools, dict with "matrices" for VROOM

    Raises
    ------
    ValueError
        If the table is not square, a pair has no path and `unreachable` is not given, or there is
        no such solver.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> sm.geo.solver_matrix("ortools", np.array([[0, 12.4], [9.6, 0]]))
    [[0, 12], [10, 0]]
    """
    if solver not in MATRICES:
        raise ValueError(f"solver is {', '.join(map(repr, MATRICES))}; got {solver!r}")
    values = np.asarray(table, np.float64)
    if values.ndim != 2 or values.shape[0] != values.shape[1]:
        raise ValueError(f"a solver takes a square table, got shape {values.shape}")
    missing = ~np.isfinite(values)
    if missing.any() and unreachable is None:
        i, j = np.argwhere(missing)[0]
        raise ValueError(
            f"{missing.sum()} of {values.size} pairs have no path, such as ({i}, {j}): leave such "
            f"places out, or say what stands for it, unreachable="
        )
    whole = np.rint(np.where(missing, 0, values) * scale).astype(np.int64)
    whole[missing] = 0 if unreachable is None else unreachable
    return MATRICES[solver](whole)
