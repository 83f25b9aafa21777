"""A drop-in replacement for :class:`pandana.Network`: only the import changes.

:class:`Network` has the methods of pandana's (0.8) and the arguments of its successor pandarm:
sums, means and quantiles of what is around each node of a street network, the nearest points of
interest, shortest paths and their lengths, and the nodes within a range.

Distances are pandana's: weights of edges, and radii, are whole thousandths of their unit, the rest
is cut off, and an edge has one at least. Where pandana rounds to float32, numbers are float64 here.

>>> import pandas as pd
>>> from semiring_mm import pandana
>>> nodes = pd.DataFrame({"x": [0.0, 300.0, 300.0], "y": [0.0, 0.0, 400.0]}, index=[7, 8, 9])
>>> edges = pd.DataFrame({"from": [7, 8], "to": [8, 9], "metres": [300, 400]})
>>> net = pandana.Network(nodes.x, nodes.y, edges["from"], edges["to"], edges[["metres"]])
>>> net.set(pd.Series([7, 9]), pd.Series([10.0, 5.0]))
>>> net.aggregate(500, type="sum", decay="flat").to_dict()
{7: 10.0, 8: 15.0, 9: 5.0}
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .closures.edges import EdgeList
from .graph_kernels import Index, offsets, ranges
from .graphs.accessibility import accessibility
from .graphs.nearest import nearest
from .graphs.prepared import PreparedGraph, prepare
from .lazy import cached_property
from .naming import install, listing, optional
from .warn import warn

try:
    import pandas as pd
except ImportError as error:
    raise ImportError(
        f"semiring_mm.pandana works with tables of pandas: {install('pandas')}"
    ) from error

__all__ = ["Network"]
__dir__ = listing(__all__)

Array = NDArray[Any]
Float = NDArray[np.float64]

#: Parts of a unit that distances are counted in.
_PARTS = 1000.0
#: The length of a path where there is none.
_NO_PATH = 4294967.295
_TYPES = ("sum", "mean", "min", "25pct", "median", "75pct", "max", "std", "count")
_DECAYS = ("exp", "linear", "flat")
_ALIASES = {
    "ave": "mean", "avg": "mean", "average": "mean", "stddev": "std", "med": "median",
    "exponential": "exp",
}  # fmt: skip
#: At which part of the values in their order a quantile is.
_QUANTILES = {"25pct": 0.25, "median": 0.5, "75pct": 0.75}
#: A variance below so much of the mean of squares is rounding.
_ROUNDING = 1e-14


class Network:
    """Street network with the methods of pandana's ``Network``.

    Parameters
    ----------
    node_x, node_y : Series of float
        Coordinates of the nodes; the index of both is the ids of the nodes.
    edge_from, edge_to : Series
        Ids of the ends of each edge.
    edge_weights : DataFrame
        A column for each *impedance*, such as metres or minutes, with the index of the edges.
    twoway : bool, default True
        Whether edges lead both ways, or from `edge_from` to `edge_to` alone.

    Attributes
    ----------
    nodes_df, edges_df : DataFrame
        Columns x and y; from, to and the impedances.
    impedance_names : list

    Raises
    ------
    ValueError
        If ids are repeated, an end is no node, or a weight is negative or missing.

    Notes
    -----
    The network is prepared once (:func:`semiring_mm.prepare`), and customized for each further
    impedance when it is first asked for. Nothing is precomputed for a distance.

    Examples
    --------
    >>> import pandas as pd
    >>> from semiring_mm.pandana import Network
    >>> x = pd.Series([0.0, 3.0, 3.0], index=["a", "b", "c"])
    >>> ends = pd.Series(["a", "b"]), pd.Series(["b", "c"])
    >>> net = Network(x, x, *ends, pd.DataFrame({"minutes": [3, 4]}))
    >>> net.shortest_path_length("a", "c")
    7.0
    """

    __module__ = "semiring_mm.pandana"

    def __init__(
        self, node_x: Any, node_y: Any, edge_from: Any, edge_to: Any, edge_weights: Any,
        twoway: bool = True,
    ) -> None:  # fmt: skip
        if not isinstance(edge_weights, pd.DataFrame):
            raise TypeError(
                f"edge_weights is a DataFrame with a column for each impedance, got "
                f"{type(edge_weights).__name__}: write edges[['length']]"
            )
        self.nodes_df = pd.DataFrame({"x": node_x, "y": node_y})
        self.edges_df = pd.DataFrame({"from": edge_from, "to": edge_to}).join(edge_weights)
        self.impedance_names = list(edge_weights.columns)
        self.variable_names: set[str] = set()
        self.poi_category_names: list[str] = []
        self._twoway = bool(twoway)
        ids = self.nodes_df.index
        if not ids.is_unique:
            raise ValueError(
                f"ids of nodes differ, and {ids.duplicated().sum()} are repeated, such as "
                f"{ids[ids.duplicated()][0]!r}"
            )
        row, col = (self._positions(self.edges_df[x], f"edge_{x}") for x in ("from", "to"))
        if not self.impedance_names:
            raise ValueError("edge_weights has a column for each impedance, got none")
        weights = self._weights(self.impedance_names[0])
        edges = EdgeList(range(len(ids)), row, col, weights, not twoway)
        self._graph: PreparedGraph = prepare(edges, dtype=np.float64)
        self._prepared = {self.impedance_names[0]: self._graph}
        self._variables: dict[str, tuple[Index, Float]] = {}
        self._pois: dict[str, tuple[Any, Index, float, int]] = {}
        self._poi_defaults: tuple[float, int] | None = None

    def _weights(self, name: Any) -> Float:
        column = self.edges_df[name]
        values = np.asarray(column, np.float64)
        wrong = np.flatnonzero(~(values >= 0))
        if wrong.size:
            e = int(wrong[0])
            raise ValueError(
                f"weights of edges are not negative and not missing: {name!r} is {values[e]} from "
                f"{self.edges_df['from'].iloc[e]!r} to {self.edges_df['to'].iloc[e]!r} (one of "
                f"{wrong.size} such edges)"
            )
        return np.maximum(np.trunc(values * _PARTS), 1.0)

    def _impedance(self, name: Any) -> PreparedGraph:
        """The prepared graph of an impedance, in parts of its unit."""
        if name is None and len(self.impedance_names) == 1:
            (name,) = self.impedance_names
        if name is None or name not in self.impedance_names:
            raise ValueError(f"imp_name is one of {self.impedance_names}, got {name!r}")
        if name not in self._prepared:
            self._prepared[name] = self._graph.reweighted(self._weights(name))
        return self._prepared[name]

    def _positions(self, ids: Any, name: str) -> Index:
        """Positions of nodes by their ids, all of which there have to be."""
        given = ids if isinstance(ids, (pd.Series, pd.Index, np.ndarray)) else pd.Index([*ids])
        found: Index = self.node_ids.get_indexer(pd.Index(given)).astype(np.int64)
        if (absent := np.flatnonzero(found < 0)).size:
            raise ValueError(
                f"{name}: there is no node {pd.Index(given)[absent[0]]!r} (one of {absent.size} "
                f"that are no nodes)"
            )
        return found

    @property
    def aggregations(self) -> list[str]:
        """The types of :meth:`aggregate`."""
        return [*_TYPES]

    @property
    def decays(self) -> list[str]:
        """The decays of :meth:`aggregate`."""
        return [*_DECAYS]

    @property
    def node_ids(self) -> Any:
        """The ids of the nodes, which are the index of results."""
        return self.nodes_df.index

    @property
    def bbox(self) -> list[float]:
        """The extent of the nodes: [xmin, ymin, xmax, ymax]."""
        x, y = self.nodes_df["x"], self.nodes_df["y"]
        return [x.min(), y.min(), x.max(), y.max()]

    # --- paths ----------------------------------------------------------------------------------

    def shortest_path(self, node_a: Any, node_b: Any, imp_name: Any = None) -> Array:
        """A shortest path between two nodes.

        Parameters
        ----------
        node_a, node_b : id of a node
        imp_name : optional
            The impedance; needed where there are several.

        Returns
        -------
        ndarray
            The ids of the nodes on the way, both ends included; empty where there is no path.
        """
        return self.shortest_paths([node_a], [node_b], imp_name)[0]

    def shortest_paths(self, nodes_a: Any, nodes_b: Any, imp_name: Any = None) -> list[Array]:
        """Shortest paths between many pairs of nodes, on all threads.

        Parameters
        ----------
        nodes_a, nodes_b : sequences of ids, as many of one as of the other
        imp_name : optional
            As for :meth:`shortest_path`.

        Returns
        -------
        list of ndarray
            As of :meth:`shortest_path`.
        """
        ends = self._pairs(nodes_a, nodes_b)
        found = self._impedance(imp_name).paths(ends)
        return np.split(self.node_ids.values[found.nodes], found.indptr[1:-1]) if len(ends) else []

    def shortest_path_length(self, node_a: Any, node_b: Any, imp_name: Any = None) -> float:
        """The length of a shortest path between two nodes.

        Parameters
        ----------
        node_a, node_b, imp_name
            As for :meth:`shortest_path`.

        Returns
        -------
        float
            4294967.295 where there is no path, with a warning.
        """
        return self.shortest_path_lengths([node_a], [node_b], imp_name)[0]

    def shortest_path_lengths(
        self, nodes_a: Any, nodes_b: Any, imp_name: Any = None
    ) -> list[float]:
        """The lengths of shortest paths between many pairs of nodes, on all threads.

        Parameters
        ----------
        nodes_a, nodes_b, imp_name
            As for :meth:`shortest_paths`.

        Returns
        -------
        list of float
            4294967.295 where there is no path, with a warning.
        """
        ends = self._pairs(nodes_a, nodes_b)
        lengths = self._impedance(imp_name).weights(ends) / _PARTS
        if (none := np.flatnonzero(np.isinf(lengths))).size:
            a, b = self.node_ids[ends[none[0]]]
            warn(
                f"{none.size:,} of the {len(ends):,} pairs of nodes have no path, such as that "
                f"from {a!r} to {b!r}: their length is said to be {_NO_PATH}"
            )
            lengths[none] = _NO_PATH
        found: list[float] = lengths.tolist()
        return found

    def _pairs(self, nodes_a: Any, nodes_b: Any) -> Index:
        if len(nodes_a) != len(nodes_b):
            raise ValueError(
                f"there are {len(nodes_a)} origins and {len(nodes_b)} destinations, one each for a "
                f"path"
            )
        ends = self._positions(nodes_a, "nodes_a"), self._positions(nodes_b, "nodes_b")
        return np.stack(ends, axis=1)

    def nodes_in_range(self, nodes: Any, radius: float, imp_name: Any = None) -> Any:
        """The nodes within a distance of some nodes.

        Parameters
        ----------
        nodes : sequence of ids
        radius : float
        imp_name : optional
            As for :meth:`shortest_path`.

        Returns
        -------
        DataFrame
            Columns source, destination and the name of the impedance; the nearest destinations of
            a source first, itself included.
        """
        net, order = self._impedance(imp_name), pd.Index([*nodes]).unique()
        found = net.within(_parts(radius), self._positions(order, "nodes"))
        row = np.repeat(np.arange(len(order)), np.diff(found.indptr))
        by = np.lexsort((found.indices, found.distance, row))
        name = self.impedance_names[0] if imp_name is None else imp_name
        return pd.DataFrame({
            "source": order[row[by]], "destination": self.node_ids[found.indices[by]],
            name: found.distance[by] / _PARTS,
        })  # fmt: skip

    # --- aggregations ---------------------------------------------------------------------------

    def set(self, node_ids: Any, variable: Any = None, name: str = "tmp") -> None:
        """Put the values of a variable at nodes, to be aggregated.

        Parameters
        ----------
        node_ids : Series
            Ids of nodes, as :meth:`get_node_ids` finds them; a node may come more than once.
        variable : Series of numbers, optional
            The values, with the index of `node_ids`. Default: 1 each.
        name : str, default "tmp"

        Warns
        -----
        UserWarning
            If values are missing or ids are no nodes: these are left out.
        """
        at = self.node_ids.get_indexer(pd.Index(node_ids)).astype(np.int64)
        where = pd.Series(at, index=node_ids.index).where(at >= 0)
        given = pd.Series(1.0, index=node_ids.index) if variable is None else variable
        table = pd.DataFrame({"value": given, "node": where})
        kept = table.dropna()
        if left := len(table) - len(kept):
            warn(f"{left:,} of {len(table):,} rows are left out: they have no value, or no node")
        self.variable_names.add(name)
        values = kept["value"].to_numpy(np.float64)
        self._variables[name] = kept["node"].to_numpy(np.int64), values

    def precompute(self, distance: float) -> None:
        """Do nothing: pandana finds the ranges of all nodes here, and none are needed.

        Parameters
        ----------
        distance : float
        """

    def aggregate(
        self, distance: float, type: str = "sum", decay: str = "linear", imp_name: Any = None,
        name: str = "tmp", exp_constant: float | None = None, *, func: str | None = None,
    ) -> Any:  # fmt: skip
        """Aggregate a variable over what is within a distance of each node.

        Parameters
        ----------
        distance : float
            The radius, itself included.
        type : str, default "sum"
            "sum", "mean", "std" (of all values: not of a sample), "count", "min", "max", "median",
            "25pct" or "75pct". Of n values in their order, a quantile q is the one at ⌊qn⌋.
        decay : {"linear", "exp", "flat"}
            Values in a sum or a mean count 1 - d / distance, exp(-d / distance), or fully.
        imp_name : optional
            As for :meth:`shortest_path`.
        name : str, default "tmp"
            Of the variable: see :meth:`set`.
        exp_constant : float, optional
            The rate of the exponential decay, exp(-exp_constant d), in place of that above.
        func : str, optional
            What pandarm calls `type`.

        Returns
        -------
        Series of float64
            For each node. Where nothing is in reach: -1 for the minimum, the maximum and quantiles,
            0 for the others.

        Raises
        ------
        ValueError
            If there is no such type, decay, impedance or variable.

        Notes
        -----
        Sums, counts, means and deviations are sums over all nodes
        (:func:`semiring_mm.accessibility`); deviations are of values around their mean, of which
        1e-7 of the largest may be lost. Quantiles take the pairs within the radius
        (:func:`semiring_mm.within`), in batches.

        Examples
        --------
        >>> import pandas as pd
        >>> from semiring_mm.pandana import Network
        >>> x = pd.Series([0.0, 3.0, 7.0])
        >>> net = Network(x, x, pd.Series([0, 1]), pd.Series([1, 2]), pd.DataFrame({"m": [3, 4]}))
        >>> net.set(pd.Series([0, 1, 1]), pd.Series([1.0, 2.0, 6.0]))
        >>> net.aggregate(4, type="mean", decay="flat").tolist()
        [3.0, 3.0, 4.0]
        >>> net.aggregate(4).tolist()  # linear
        [3.0, 8.25, 0.0]
        """
        net = self._impedance(imp_name)
        kind, fall = _known(func or type, _TYPES, "type"), _known(decay, _DECAYS, "decay")
        if name not in self._variables:
            raise ValueError(
                f"there is no variable {name!r}, but {sorted(self._variables)}: set() makes it"
            )
        at, values = self._variables[name]
        radius = _parts(distance)
        if kind in ("min", "max", *_QUANTILES):
            found = _quantiles(net, radius, at, values, kind)
        elif len(at):
            found = _sums(net, radius, at, values, kind, fall, distance, exp_constant)
        else:
            found = np.zeros(len(self.node_ids))
        return pd.Series(found, index=self.node_ids)

    def low_connectivity_nodes(self, impedance: float, count: int, imp_name: Any = None) -> Array:
        """The nodes that fewer than `count` nodes are within a distance of.

        Parameters
        ----------
        impedance : float
            The distance.
        count : int
            A node counts itself.
        imp_name : optional
            As for :meth:`shortest_path`.

        Returns
        -------
        ndarray of ids
        """
        self.set(self.node_ids.to_series(), name="counter")
        found = self.aggregate(impedance, type="count", imp_name=imp_name, name="counter")
        return np.array(found[found < count].index)

    # --- points ---------------------------------------------------------------------------------

    @cached_property
    def _tree(self) -> Any:
        spatial = optional("scipy.spatial", "SciPy finds the nearest nodes", "scipy")
        return spatial.cKDTree(self.nodes_df[["x", "y"]].to_numpy(np.float64))

    def get_node_ids(self, x_col: Any, y_col: Any, mapping_distance: float | None = None) -> Any:
        """The nearest node to each point, as the crow flies in the plane of the coordinates.

        Parameters
        ----------
        x_col, y_col : Series of float
            With the same index.
        mapping_distance : float, optional
            Points that are farther from any node are left out. In the unit of the coordinates.

        Returns
        -------
        Series of ids
            Called node_id, with the index of the points.

        Raises
        ------
        ValueError
            If a coordinate is not finite.
        """
        points = pd.DataFrame({"x": x_col, "y": y_col})
        places = points.to_numpy(np.float64)
        wrong = ~np.isfinite(places).all(axis=1)
        if wrong.any():
            raise ValueError(
                f"coordinates are finite: leave out {wrong.sum()} points, such as that of "
                f"{points.index[wrong][0]!r}"
            )
        far, at = self._tree.query(places)
        found = pd.Series(self.node_ids[at], index=points.index, name="node_id")
        return found if mapping_distance is None else found[far <= mapping_distance]

    def init_pois(self, num_categories: int, max_dist: float, max_pois: int) -> None:
        """Say for :meth:`set_pois` what it is not told: nothing else is done.

        Parameters
        ----------
        num_categories : int
            Is not used.
        max_dist : float
        max_pois : int
        """
        self._poi_defaults = max_dist, max_pois

    def set_pois(
        self, category: str, maxdist: Any = None, maxitems: Any = None, x_col: Any = None,
        y_col: Any = None, mapping_distance: float | None = None,
    ) -> None:  # fmt: skip
        """Put points of interest of a category at their nearest nodes.

        Parameters
        ----------
        category : str
        maxdist : float
            How far :meth:`nearest_pois` looks at most.
        maxitems : int
            How many it finds at most.
        x_col, y_col : Series of float
            Coordinates; the index is the ids of the points.
        mapping_distance : float, optional
            As for :meth:`get_node_ids`.

        Raises
        ------
        ValueError
            If maxdist or maxitems are missing, and there was no :meth:`init_pois`.
        """
        if isinstance(maxdist, pd.Series):  # (category, x, y), as before pandana 0.4
            x_col, y_col, maxdist, maxitems = maxdist, maxitems, None, None
        if maxdist is None or maxitems is None:
            if self._poi_defaults is None:
                raise ValueError("set_pois(category, maxdist, maxitems, x_col, y_col) takes all")
            distance, items = self._poi_defaults
            maxdist = distance if maxdist is None else maxdist
            maxitems = items if maxitems is None else maxitems
        ids = self.get_node_ids(x_col, y_col, mapping_distance=mapping_distance)
        if category not in self.poi_category_names:
            self.poi_category_names.append(category)
        at = self.node_ids.get_indexer(pd.Index(ids)).astype(np.int64)
        self._pois[category] = ids.index, at, float(maxdist), int(maxitems)

    def nearest_pois(
        self, distance: float, category: str, num_pois: int = 1, max_distance: float | None = None,
        imp_name: Any = None, include_poi_ids: bool = False,
    ) -> Any:  # fmt: skip
        """The distances to the nearest points of interest of each node.

        Parameters
        ----------
        distance : float
            How far to look; ``maxdist`` of the category if that is less.
        category : str
            See :meth:`set_pois`.
        num_pois : int, default 1
            How many.
        max_distance : float, optional
            What stands where there are fewer. Default: `distance`.
        imp_name : optional
            As for :meth:`shortest_path`.
        include_poi_ids : bool, default False
            Whether there are columns poi1, poi2, ..., of their ids; NaN where there are fewer.

        Returns
        -------
        DataFrame
            A row for each node; columns 1, 2, ... of the distances. Of equally near points those
            come first whose node does, and at one node those given first.

        Raises
        ------
        ValueError
            If there is no such category, or more points are asked for than its ``maxitems``.
        """
        if category not in self._pois:
            raise ValueError(f"there is no category {category!r}: set_pois() makes it")
        names, at, farthest, most = self._pois[category]
        if num_pois > most:
            raise ValueError(
                f"{num_pois} points of {category!r} are asked for, and set_pois() was told of at "
                f"most {most}, its maxitems"
            )
        net, n = self._impedance(imp_name), len(self.node_ids)
        lengths = np.full((n, num_pois), distance if max_distance is None else max_distance, float)
        which = np.full((n, num_pois), -1)
        if len(at):
            order = np.argsort(at, kind="stable")
            places, count = np.unique(at, return_counts=True)
            found = nearest(net, places, k=num_pois)
            near = (found.facility >= 0) & (found.distance <= _parts(min(distance, farthest)))
            slot = np.searchsorted(places, np.where(near, found.facility, places[0]))
            first, end = offsets(count), np.where(near, count[slot], 0).cumsum(axis=1)
            for k in range(num_pois):
                column = (end <= k).sum(axis=1)  # of the place where the k-th point is
                row = np.flatnonzero(column < num_pois)
                column = column[row]
                place = slot[row, column]
                rank = k - (end[row, column] - count[place])
                lengths[row, k] = found.distance[row, column] / _PARTS
                which[row, k] = order[first[place] + rank]
        table = pd.DataFrame(lengths, index=self.node_ids, columns=[*range(1, num_pois + 1)])
        if include_poi_ids:
            ids = pd.Series(names)
            for k in range(num_pois):
                column = pd.Series(ids.reindex(which[:, k]).to_numpy(), index=self.node_ids)
                table[f"poi{k + 1}"] = column
        return table

    # --- files and pictures ---------------------------------------------------------------------

    def save_hdf5(self, filename: str, rm_nodes: Any = None) -> None:
        """Save the network, in the form of pandana's files, by PyTables.

        Parameters
        ----------
        filename : str
        rm_nodes : sequence of ids, optional
            Nodes that are left out, with their edges.
        """
        left = [] if rm_nodes is None else [*rm_nodes]
        ends = self.edges_df["from"].isin(left) | self.edges_df["to"].isin(left)
        with pd.HDFStore(filename, mode="w") as store:
            store["nodes"] = self.nodes_df[~self.node_ids.isin(left)]
            store["edges"] = self.edges_df[~ends]
            store["two_way"] = pd.Series([self._twoway])
            store["impedance_names"] = pd.Series(self.impedance_names)

    @classmethod
    def from_hdf5(cls, filename: str) -> Network:
        """Load a network that pandana, or :meth:`save_hdf5`, has saved.

        Parameters
        ----------
        filename : str

        Returns
        -------
        Network
        """
        with pd.HDFStore(filename, mode="r") as store:
            nodes, edges = store["nodes"], store["edges"]
            names, twoway = store["impedance_names"].tolist(), bool(store["two_way"].iloc[0])
        return cls(nodes["x"], nodes["y"], edges["from"], edges["to"], edges[names], twoway)

    def plot(
        self, data: Any, bbox: Sequence[float] | None = None, plot_type: str = "scatter",
        fig_kwargs: Any = None, plot_kwargs: Any = None, cbar_kwargs: Any = None,
    ) -> tuple[Any, Any]:  # fmt: skip
        """Draw values of the nodes on a map, by Matplotlib.

        Parameters
        ----------
        data : Series
            A number for each node.
        bbox : (float, float, float, float), optional
            The part to show: (ymin, xmin, ymax, xmax).
        plot_type : {"scatter", "hexbin"}
        fig_kwargs, plot_kwargs, cbar_kwargs : dict, optional
            For ``pyplot.subplots``, the plot and the colour bar.

        Returns
        -------
        (Figure, Axes)
        """
        plt = optional("matplotlib.pyplot", "plot() draws by Matplotlib", "plot")
        if plot_type not in ("scatter", "hexbin"):
            raise ValueError(f"plot_type is 'scatter' or 'hexbin', got {plot_type!r}")
        figure, axes = plt.subplots(**(fig_kwargs or {"figsize": (10, 8)}))
        values = {"c" if plot_type == "scatter" else "C": np.asarray(data)}
        more = {"cmap": "hot_r"} | ({"s": 1} if plot_type == "scatter" else {})
        drawn = getattr(axes, plot_type)(
            self.nodes_df["x"], self.nodes_df["y"], **values, **(plot_kwargs or more)
        )
        if bbox is not None:
            axes.set(ylim=(bbox[0], bbox[2]), xlim=(bbox[1], bbox[3]))
        figure.colorbar(drawn, ax=axes, **(cbar_kwargs or {}))
        return figure, axes


def _known(given: str, known: Sequence[str], what: str) -> str:
    """A word of pandana's by its name or an alias."""
    word = str(given).lower()
    word = _ALIASES.get(word, word)
    if word not in known:
        raise ValueError(f"{what} is one of {', '.join(known)}, got {given!r}")
    return word


def _parts(distance: float) -> float:
    """A distance in whole parts of its unit."""
    return float(np.trunc(float(distance) * _PARTS))


def _sums(
    net: PreparedGraph, radius: float, at: Index, values: Float, kind: str, fall: str,
    distance: float, rate: float | None,
) -> Float:  # fmt: skip
    """Sums, means, deviations and counts of the values in reach of each node."""
    decay: Any = None
    if kind in ("sum", "mean") and fall != "flat":
        if not (0 < distance < math.inf or (fall == "exp" and rate is not None)):
            raise ValueError(f"with a decay distance is positive and finite, got {distance!r}")
        if fall == "linear":
            decay = ("linear", distance * _PARTS)
        else:
            decay = ("exponential", (1 / distance if rate is None else rate) / _PARTS)

    def total(weights: Array | None, decay: Any = None) -> Float:
        return np.asarray(accessibility(net, at, weights, radius=radius, decay=decay), np.float64)

    if kind == "count":
        return total(None)
    if kind == "sum":
        return total(values, decay)
    if kind == "mean" and decay is not None:
        return total(values, decay) / np.maximum(total(None), 1.0)
    away = values - values.mean() if kind == "std" else values
    powers = [np.ones(len(away)), away, away * away][: 2 + (kind == "std")]
    count, *sums = total(np.stack(powers, axis=1)).T
    mean: Float = sums[0] / np.maximum(count, 1.0)
    if kind == "mean":
        return mean
    square = sums[1] / np.maximum(count, 1.0)
    variance = square - mean**2
    return np.asarray(np.sqrt(np.where(variance < _ROUNDING * square, 0.0, variance)))


def _quantiles(net: PreparedGraph, radius: float, at: Index, values: Float, kind: str) -> Float:
    """Least, largest and middle values in reach of each node, -1 where there are none."""
    found = np.full(len(net.nodes), -1.0)
    if not len(at):
        return found
    places, count = np.unique(at, return_counts=True)
    first, total = offsets(count), len(at)
    rank = np.empty(total, np.int64)
    rank[np.argsort(values, kind="stable")] = np.arange(total)
    rank, values = rank[np.argsort(at, kind="stable")], np.sort(values)  # those of a place together
    for part in net.within(radius, None, places, batch="auto"):
        each = count[part.indices]
        row = np.repeat(np.arange(len(part.sources)), np.diff(part.indptr))
        number = np.bincount(row, each, len(part.sources)).astype(np.int64)
        there, begin = number > 0, offsets(number)[:-1]
        seen = rank[ranges(first[part.indices], each)]
        if kind == "min":
            seen = np.minimum.reduceat(seen, begin[there]) if len(seen) else seen
        elif kind == "max":
            seen = np.maximum.reduceat(seen, begin[there]) if len(seen) else seen
        else:
            seen += np.repeat(row, each) * total
            seen.sort()  # the sources stay in their order
            at_part = begin + (number * _QUANTILES[kind]).astype(np.int64)
            seen = seen[at_part[there]] % total
        found[part.sources[there]] = values[seen]
    return found
