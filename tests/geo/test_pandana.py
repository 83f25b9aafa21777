"""pandana's Network: values by brute force over NetworkX's distances, tables as pandana's."""

import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import nx

pd = pytest.importorskip("pandas")

from semiring_mm import pandana  # noqa: E402

FAR = 4294967.295
RADII = (2, 7.5, 40)


class Town:
    """A random network, its tables, and all distances in thousandths."""

    def __init__(self, seed, *, twoway, impedances=("m", "s")):
        rng = np.random.default_rng(seed)
        n, m = 30, 45
        ids = [f"n{i}" for i in rng.permutation(n)]
        self.nodes = pd.DataFrame(rng.random((n, 2)), ids, ["x", "y"])
        self.edges = pd.DataFrame({"from": rng.choice(ids, m), "to": rng.choice(ids, m)})
        self.weights = pd.DataFrame({"m": rng.random(m) * 9, "s": rng.integers(0, 6, m)})
        self.weights = self.weights[[*impedances]]
        self.net = pandana.Network(
            self.nodes.x, self.nodes.y, self.edges["from"], self.edges.to, self.weights, twoway
        )
        self.places = pd.Series(rng.choice(ids, 25))
        self.values = pd.Series(rng.integers(-20, 20, 25) + 0.25)
        self.d = {name: self._distances(self.weights[name], twoway) for name in self.weights}

    def _distances(self, weights, twoway):
        graph = nx.MultiGraph() if twoway else nx.MultiDiGraph()
        graph.add_nodes_from(self.nodes.index)
        for u, v, w in zip(self.edges["from"], self.edges.to, weights, strict=True):
            graph.add_edge(u, v, weight=max(int(w * 1000), 1))
        found = dict(nx.all_pairs_dijkstra_path_length(graph))
        ids = self.nodes.index
        return np.array([[found[a].get(b, math.inf) for b in ids] for a in ids]) / 1000

    def seen(self, name, radius):
        """Of each node the distances to the values within a radius, and the values."""
        at = self.nodes.index.get_indexer(self.places)
        for d in self.d[name][:, at]:
            yield d[d <= radius], self.values.to_numpy()[d <= radius]


TOWNS = [(0, True), (1, False)]


@pytest.fixture(params=TOWNS, ids=["twoway", "oneway"], scope="module")
def town(request):
    return Town(request.param[0], twoway=request.param[1])


def quantile(part):
    return lambda x: np.sort(x)[int(len(x) * part)] if len(x) else -1


AGGREGATES = {
    "count": len, "min": lambda x: x.min(initial=99) if len(x) else -1,
    "max": lambda x: x.max() if len(x) else -1, "25pct": quantile(0.25), "median": quantile(0.5),
    "75pct": quantile(0.75), "std": lambda x: x.std() if len(x) else 0,
}  # fmt: skip
DECAYS = {
    "flat": lambda d, r: np.ones(len(d)), "linear": lambda d, r: 1 - d / r,
    "exp": lambda d, r: np.exp(-d / r),
}  # fmt: skip


@pytest.mark.parametrize("impedance", ["m", "s"])
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("kind", AGGREGATES)
def test_aggregates_without_a_decay(town, kind, radius, impedance):
    town.net.set(town.places, town.values)
    found = town.net.aggregate(radius, type=kind, decay="exp", imp_name=impedance)
    expected = [AGGREGATES[kind](x) for _, x in town.seen(impedance, radius)]
    assert found.index.equals(town.nodes.index)
    assert found.dtype == np.float64
    assert_allclose(found, expected, rtol=1e-12, atol=1e-9 if kind == "std" else 0)


@pytest.mark.parametrize("decay", DECAYS)
@pytest.mark.parametrize("radius", RADII)
@pytest.mark.parametrize("kind", ["sum", "mean"])
def test_sums_and_means(town, kind, radius, decay):
    town.net.set(town.places, town.values, name="trade")
    found = town.net.aggregate(radius, type=kind, decay=decay, imp_name="m", name="trade")
    terms = [DECAYS[decay](d, radius) * x for d, x in town.seen("m", radius)]
    expected = [x.sum() / (max(len(x), 1) if kind == "mean" else 1) for x in terms]
    assert_allclose(found, expected, rtol=1e-11, atol=1e-11)


def test_other_words_for_aggregates(town):
    town.net.set(town.places, town.values)
    ask = town.net.aggregate
    for word, kind in {"AVE": "mean", "average": "mean", "stddev": "std", "med": "median"}.items():
        assert ask(9, type=word, imp_name="m").equals(ask(9, func=kind, imp_name="m"))
    slow = ask(9, decay="exponential", imp_name="m", exp_constant=0.5)
    expected = [(np.exp(-d / 2) * x).sum() for d, x in town.seen("m", 9)]
    assert_allclose(slow, expected, rtol=1e-11, atol=1e-11)
    assert town.net.aggregations == [
        "sum", "mean", "min", "25pct", "median", "75pct", "max", "std", "count",
    ]  # fmt: skip
    assert town.net.decays == ["exp", "linear", "flat"]


def test_deviations_do_not_cancel(town):
    """pandana's are the roots of what rounding leaves of two large numbers."""
    town.net.set(town.places, pd.Series(1e8 + (np.arange(25) % 2)))
    found = town.net.aggregate(7.5, type="std", imp_name="m")
    at = town.nodes.index.get_indexer(town.places)
    near = town.d["m"][:, at] <= 7.5
    expected = [(np.flatnonzero(x) % 2).std() if x.any() else 0 for x in near]
    assert_allclose(found, expected, atol=1e-7)
    town.net.set(town.places, pd.Series(np.full(25, 0.1)))
    assert (town.net.aggregate(7.5, type="std", imp_name="m") == 0).all()


def test_a_variable_is_all_ones_by_default(town):
    town.net.set(town.places)
    found = town.net.aggregate(5, decay="flat", imp_name="s")
    assert_array_equal(found, [len(x) for _, x in town.seen("s", 5)])


def test_values_without_a_node_are_told(town):
    places, values = town.places.copy(), town.values.copy()
    places[3], values[7] = "nowhere", np.nan
    with pytest.warns(UserWarning, match="2 of 25 rows are left out"):
        town.net.set(places, values, name="some")
    assert town.net.aggregate(math.inf, "count", imp_name="s", name="some").max() <= 23
    with pytest.warns(UserWarning, match="1 of 1 rows"):
        town.net.set(pd.Series(["nowhere"]), name="none")
    for kind, value in {"sum": 0, "std": 0, "count": 0, "min": -1, "median": -1}.items():
        found = town.net.aggregate(5, kind, "flat", imp_name="s", name="none")
        assert (found == value).all()


@pytest.mark.parametrize("impedance", ["m", "s"])
def test_paths_and_their_lengths(town, impedance):
    ids = town.nodes.index
    a, b = (x.ravel() for x in np.meshgrid(ids, ids))
    ends = ids.get_indexer(a), ids.get_indexer(b)
    expected = np.where(np.isinf(d := town.d[impedance][ends]), FAR, d)
    with pytest.warns(UserWarning, match="pairs of nodes have no path"):
        lengths = town.net.shortest_path_lengths(a, b, imp_name=impedance)
    assert isinstance(lengths, list)
    assert_allclose(lengths, expected, rtol=1e-15)
    best = {}
    twoway = town.net._twoway
    for u, v, w in zip(town.edges["from"], town.edges.to, town.weights[impedance], strict=True):
        for pair in ((u, v), (v, u))[: 1 + twoway]:
            best[pair] = min(best.get(pair, math.inf), max(int(w * 1000), 1))
    paths = town.net.shortest_paths(a, b, imp_name=impedance)
    for path, u, v, length in zip(paths, a, b, lengths, strict=True):
        if length == FAR:
            assert path.size == 0
            continue
        assert (path[0], path[-1]) == (u, v)
        total = sum(best[pair] for pair in itertools.pairwise(path))
        assert total / 1000 == length
    i = int(np.argmax(np.where(expected == FAR, 0, expected)))
    assert_array_equal(town.net.shortest_path(a[i], b[i], impedance), paths[i])
    assert town.net.shortest_path_length(a[i], b[i], impedance) == lengths[i]
    assert town.net.shortest_paths([], [], impedance) == []
    assert town.net.shortest_path_lengths([], [], impedance) == []


@pytest.mark.parametrize("radius", RADII)
def test_nodes_in_range(town, radius):
    ids = town.nodes.index
    some = [ids[4], ids[0], ids[4]]
    found = town.net.nodes_in_range(some, radius, imp_name="m")
    assert list(found.columns) == ["source", "destination", "m"]
    expected = {
        (a, b): town.d["m"][ids.get_loc(a), ids.get_loc(b)]
        for a in some for b in ids if town.d["m"][ids.get_loc(a), ids.get_loc(b)] <= radius
    }  # fmt: skip
    pairs = list(zip(found.source, found.destination, strict=True))
    assert dict(zip(pairs, found.m, strict=True)) == expected
    assert len(pairs) == len(expected)
    assert list(found.source.unique()) == some[:2]
    for _, rows in found.groupby("source", sort=False):
        assert rows.m.is_monotonic_increasing
    assert found.index.equals(pd.RangeIndex(len(found)))


@pytest.mark.parametrize("count", [1, 4])
def test_nearest_points(town, count):
    rng = np.random.default_rng(5)
    names = [f"p{i}" for i in range(12)]
    at = rng.choice(town.nodes.index, 12)
    points = town.nodes.loc[at].set_axis(names)
    town.net.set_pois("shops", 20, 5, points.x, points.y)
    found = town.net.nearest_pois(15, "shops", count, imp_name="m", include_poi_ids=True)
    column = town.nodes.index.get_indexer(at)
    d = town.d["m"][:, column]
    d = np.where(d <= 15, d, np.inf)
    order = np.lexsort((np.broadcast_to(column, d.shape), d))[:, :count]
    best = np.take_along_axis(d, order, 1)
    assert list(found.columns) == [*range(1, count + 1), *(f"poi{k + 1}" for k in range(count))]
    assert_allclose(found[[*range(1, count + 1)]], np.where(np.isinf(best), 15, best), rtol=1e-15)
    ids = found[[f"poi{k + 1}" for k in range(count)]].to_numpy()
    expected = np.where(np.isinf(best), None, np.array(names, object)[order])
    assert_array_equal(pd.isna(ids), pd.isna(expected))
    assert (ids[~pd.isna(ids)] == expected[~pd.isna(ids)]).all()
    # farther than the category goes nothing is found, and something else can stand for that
    less = town.net.nearest_pois(99, "shops", count, max_distance=-1, imp_name="m").to_numpy()
    d = np.sort(town.d["m"][:, column])[:, :count]
    assert_allclose(less, np.where(d <= 20, d, -1), rtol=1e-15)


def test_points_of_interest_as_in_old_programs(town):
    points = town.nodes.iloc[:3].set_axis([0, 1, 2])
    with pytest.raises(ValueError, match="takes all"):
        town.net.set_pois("old", points.x, points.y)
    town.net.init_pois(1, 9, 2)
    town.net.set_pois("old", points.x, points.y)
    town.net.set_pois("new", 9, 2, points.x, points.y)
    old, new = (town.net.nearest_pois(9, x, 2, imp_name="m") for x in ("old", "new"))
    assert old.equals(new)


def test_nearest_nodes(town):
    rng = np.random.default_rng(8)
    points = pd.DataFrame(rng.random((20, 2)), [f"p{i}" for i in range(20)], ["x", "y"])
    far = np.hypot(*(points.to_numpy()[:, np.newaxis] - town.nodes.to_numpy()).transpose(2, 0, 1))
    found = town.net.get_node_ids(points.x, points.y)
    assert found.name == "node_id"
    assert found.index.equals(points.index)
    assert_array_equal(found, town.nodes.index[far.argmin(1)])
    near = town.net.get_node_ids(points.x, points.y, 0.08)
    assert_array_equal(near.index, points.index[far.min(1) <= 0.08])
    assert 0 < len(near) < 20


def test_low_connectivity_nodes(town):
    found = town.net.low_connectivity_nodes(4, 3, imp_name="m")
    few = (town.d["m"] <= 4).sum(1) < 3
    assert_array_equal(found, town.nodes.index[few])
    assert 0 < few.sum() < len(few)


def test_what_a_network_tells(town):
    x, y = town.nodes.x, town.nodes.y
    assert town.net.bbox == [x.min(), y.min(), x.max(), y.max()]
    assert town.net.node_ids.equals(town.nodes.index)
    assert town.net.impedance_names == ["m", "s"]
    assert list(town.net.edges_df.columns) == ["from", "to", "m", "s"]
    assert town.net.precompute(1000) is None


def test_files(town, tmp_path):
    pytest.importorskip("tables")
    town.net.save_hdf5(str(tmp_path / "net.h5"))
    again = pandana.Network.from_hdf5(str(tmp_path / "net.h5"))
    assert again.nodes_df.equals(town.net.nodes_df)
    assert again.edges_df.equals(town.net.edges_df)
    assert again._twoway == town.net._twoway
    left = town.nodes.index[[2, 5]]
    town.net.save_hdf5(str(tmp_path / "less.h5"), rm_nodes=left)
    less = pandana.Network.from_hdf5(str(tmp_path / "less.h5"))
    assert not less.node_ids.isin(left).any()
    assert not less.edges_df[["from", "to"]].isin(left).any(axis=None)


@pytest.mark.parametrize("kind", ["scatter", "hexbin"])
def test_pictures(town, kind):
    pytest.importorskip("matplotlib").use("agg")
    from matplotlib import pyplot as plt

    figure, axes = town.net.plot(town.nodes.x, (0.2, 0.1, 0.8, 0.9), kind)
    assert axes.get_xlim() == (0.1, 0.9)
    assert len(figure.axes) == 2
    plt.close(figure)
    with pytest.raises(ValueError, match="'scatter' or 'hexbin', got 'map'"):
        town.net.plot(town.nodes.x, plot_type="map")


def refused(change, match):
    nodes = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]}, ["a", "b"])
    tables = {
        "nodes": nodes, "from": pd.Series(["a"]), "to": pd.Series(["b"]),
        "weights": pd.DataFrame({"m": [1.0]}),
    } | change  # fmt: skip
    with pytest.raises(ValueError, match=match):
        pandana.Network(
            tables["nodes"].x, tables["nodes"].y, tables["from"], tables["to"], tables["weights"]
        )


def test_networks_that_are_none():
    twice = pd.DataFrame({"x": [0.0, 1.0], "y": [0.0, 1.0]}, ["a", "a"])
    refused({"nodes": twice}, "1 are repeated, such as 'a'")
    refused({"to": pd.Series(["c"])}, "edge_to: there is no node 'c'")
    for weight in (-1.0, np.nan):
        refused({"weights": pd.DataFrame({"m": [weight]})}, "'m' is .* from 'a' to 'b'")
    refused({"weights": pd.DataFrame(index=[0])}, "a column for each impedance")


@pytest.mark.parametrize(
    ("ask", "match"),
    [
        (lambda net, a: net.aggregate(5, imp_name="m", name="other"), "no variable 'other'"),
        (lambda net, a: net.aggregate(5), r"imp_name is one of \['m', 's'\], got None"),
        (lambda net, a: net.aggregate(5, "mode", imp_name="m"), "type is one of sum, mean"),
        (lambda net, a: net.aggregate(5, decay="half", imp_name="m"), "decay is one of exp"),
        (lambda net, a: net.aggregate(0, imp_name="m"), "positive and finite, got 0"),
        (lambda net, a: net.aggregate(-1, "count", imp_name="m"), "radius is not negative"),
        (lambda net, a: net.shortest_path(a, "z", "m"), "nodes_b: there is no node 'z'"),
        (lambda net, a: net.shortest_paths([a], [], "m"), "1 origins and 0 destinations"),
        (lambda net, a: net.nodes_in_range(["z"], 5, "m"), "there is no node 'z'"),
        (lambda net, a: net.nearest_pois(5, "parks", imp_name="m"), "no category 'parks'"),
        (lambda net, a: net.get_node_ids(pd.Series([np.nan]), pd.Series([0.0])), "leave out 1"),
    ],
)
def test_what_is_refused(town, ask, match):
    town.net.set(town.places, town.values)
    with pytest.raises(ValueError, match=match):
        ask(town.net, town.nodes.index[0])


def test_more_points_than_were_announced(town):
    town.net.set_pois("few", 9, 2, town.nodes.x, town.nodes.y)
    with pytest.raises(ValueError, match="at most 2, its maxitems"):
        town.net.nearest_pois(9, "few", 3, imp_name="m")


def test_edges_without_a_table_of_weights():
    with pytest.raises(TypeError, match=r"edge_weights is a DataFrame .*, got list"):
        pandana.Network([0.0], [0.0], [], [], [])
