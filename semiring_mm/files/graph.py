"""The graph of a file: an edge list and what is known of its nodes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ..closures.edges import EdgeList

__all__ = ["Graph", "great_circle", "in_both_directions"]

EARTH_RADIUS_KM = 6371.0088  # IUGG mean radius


@dataclass(frozen=True, repr=False)
class Graph(EdgeList):
    """A weighted graph read from a file or a table: its edge list and what is known of its nodes.

    Attributes
    ----------
    nodes : sequence of str
        Labels, in the order of the rows and columns of every result; of a table in memory as it has
        them.
    row, col : (m,) int64
        Where each edge starts and ends, as positions in `nodes`. Parallel edges and loops are
        kept. Where `directed` is False an entry stands for both directions.
    weight : (m,) array
        Of float64, or as a table in memory has it. Never NaN; a zero is an edge of weight zero.
    directed : bool
        Whether an entry leads only from `row` to `col`.
    coordinates : (n, 2) float64 or None
        Longitude and latitude where `geographic`, else x and y. NaN where a node has none.
    geographic : bool
        Whether `coordinates` are degrees on the Earth.
    names : list of str or None
        What to call the nodes in print, where that is more than the label.
    unit : str
        Unit of the weights, "" where unknown.
    notes : tuple of str
        What a reader of the results should know.
    warnings : tuple of str
        What may make the results mean something else than intended: columns of numbers that are not
        used, zeros where no edge may have been meant.
    weight_source : str
        Where the weights come from: ``price (column 3)``, ``none: legs are counted``.
    centroids : (k,) int64 or None
        Positions of the zone centroids of a TNTP network, which begin and end paths only: no path
        of the command line leads through them.
    direction_source : str
        Why edges lead one way or both: ``column oneway: 3 of 9 edges lead both ways``, ``the
        default of an edge list``.
    """

    __module__ = "semiring_mm.files"  # where users import it from

    coordinates: NDArray[np.float64] | None = None
    geographic: bool = False
    names: list[str] | None = None
    unit: str = ""
    notes: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    weight_source: str = ""
    direction_source: str = ""
    centroids: NDArray[np.int64] | None = None


def in_both_directions(graph: Graph, which: NDArray[np.bool_] | None = None) -> Graph:
    """A directed graph: those edges, or all, once in each direction."""
    other = graph.row != graph.col
    if which is not None:
        other &= which
    rows = np.arange(len(other)) if graph.table_rows is None else graph.table_rows
    return replace(
        graph,
        row=np.concatenate([graph.row, graph.col[other]]),
        col=np.concatenate([graph.col, graph.row[other]]),
        weight=np.concatenate([graph.weight, graph.weight[other]]),
        table_rows=np.concatenate([rows, rows[other]]),
        directed=True,
    )


def great_circle(start: NDArray[np.float64], end: NDArray[np.float64]) -> NDArray[np.float64]:
    """Great-circle distances in kilometres on a sphere of the Earth's mean radius.

    Parameters
    ----------
    start, end : (..., 2) float64
        Longitude and latitude in degrees.

    Returns
    -------
    (...) float64

    Examples
    --------
    >>> round(float(great_circle(np.array([0.0, 0.0]), np.array([180.0, 0.0]))))
    20015
    """
    (lon1, lat1), (lon2, lat2) = (np.moveaxis(np.radians(x), -1, 0) for x in (start, end))
    # Haversine: unlike the arc cosine it keeps its digits for neighbours.
    h = np.sin((lat2 - lat1) / 2) ** 2
    h = h + np.cos(lat1) * np.cos(lat2) * np.sin((lon2 - lon1) / 2) ** 2
    distance: NDArray[np.float64] = 2 * EARTH_RADIUS_KM * np.arcsin(np.sqrt(np.minimum(h, 1.0)))
    return distance
