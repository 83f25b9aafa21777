"""The nearest facilities against the matrix of all distances."""

import numpy as np
import pytest
from metrics import leave_core, only
from optional import pd
from plain_kernels import both

import semiring_mm as sm
from semiring_mm.graphs.kernels import nearest as kernels


def graph(seed, *, directed, whole, density=1.5):
    rng = np.random.default_rng(seed)
    n = int(rng.integers(1, 120))
    ends = rng.integers(0, n, (2, int(density * n)))
    weight = rng.integers(0, 9, len(ends[0])) if whole else rng.random(len(ends[0]))
    return sm.files.Graph(range(n), *ends, weight, directed)


def check(found, given, places, k, d):
    """`d` has a row for each facility; equally near ones come in their order."""
    for v in range(given.n):
        order = np.argsort(d[:, v], kind="stable")[:k]
        order = order[np.isfinite(d[order, v])]
        assert found.facility[v, : len(order)].tolist() == [places[i] for i in order]
        np.testing.assert_allclose(found.distance[v, : len(order)], d[order, v], rtol=1e-12)
        assert (found.facility[v, len(order) :] == -1).all()
        assert (found.distance[v, len(order) :] == np.inf).all()


@pytest.mark.parametrize("way", ["sweeps", "core", "search"])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("whole", [False, True])
def test_the_nearest_are_those_of_the_matrix(way, directed, whole, monkeypatch):
    """By searches, or over a prepared graph, with or without a dense core."""
    if way == "search":
        only(monkeypatch, "a search from each source", "elimination in blocks")
    if way == "core":
        leave_core(monkeypatch)
    for seed in range(6):
        given = graph(seed, directed=directed, whole=whole, density=(0.8, 1.5, 6)[seed % 3])
        rng = np.random.default_rng(seed)
        places = rng.permutation(given.n)[: rng.integers(0, 70)].tolist()
        d = np.asarray(sm.apsp(given))
        asked = given if way == "search" else sm.prepare(given)
        for k in (1, 3, 8):
            for outward in (False, True):
                found = sm.nearest(asked, places, k, outward=outward)
                check(found, given, places, k, d[places] if outward else d[:, places].T)


@pytest.mark.parametrize("way", ["sweeps", "search"])
def test_categories_are_found_as_if_alone(way, monkeypatch):
    if way == "search":
        only(monkeypatch, "a search from each source", "elimination in blocks")
    given = graph(4, directed=True, whole=False)
    groups, told = {"school": [0, 3, 0], "shop": 2, "bank": range(5), "none": []}, []
    found = sm.nearest(given, groups, 3, progress=lambda done, total: told.append((done, total)))
    assert list(found) == list(groups)
    for name, places in groups.items():
        alone = sm.nearest(given, places, 3)
        np.testing.assert_array_equal(found[name].facility, alone.facility)
        np.testing.assert_array_equal(found[name].distance, alone.distance)
    assert told[-1] == (8, 8)
    assert told == sorted(told)


def test_negative_weights_and_a_prepared_graph():
    given = {"a": {"b": -2, "c": 4}, "b": {"c": 3}, "c": {"a": 1}}
    found = sm.nearest(sm.prepare(given), ["c", "b"], 2)
    assert [found.nodes[i] for i in found.facility[:, 0]] == ["b", "b", "b"]
    assert found.distance.tolist() == [[-2, 1], [0, 3], [-1, 0]]
    table = found.to_frame()
    assert isinstance(table, pd.DataFrame)
    assert table[table["node"] == "c"]["facility"].tolist() == ["b", "c"]


@pytest.mark.parametrize(
    ("facilities", "k", "error"),
    [
        ([0], 0, "k: a positive"),
        ([0], True, "k: a positive"),
        ([7], 1, "no node 7"),
        (None, 1, "facilities"),
    ],
)
def test_errors(facilities, k, error):
    with pytest.raises((ValueError, TypeError), match=error):
        sm.nearest(np.zeros((2, 2)), facilities, k)


def test_results_have_short_texts():
    graph = {f"n{k}": {f"n{k + 1}": 1.5} for k in range(20_000)}
    net = sm.prepare(graph)
    near, found = sm.nearest(net, ["n0", "n5"], 2), sm.statistics(net, sources=["n0", "n9"])
    assert repr(near) == "<Nearest: 20001 nodes, k = 2, float64>"
    assert repr(net.edges) == "<EdgeList: 20001 nodes, 20000 directed edges, float64>"
    assert repr(found) == (
        "<Statistics: 2 of 20001 nodes, radius 30000, diameter 30000, mean distance 14997.376>"
    )
    assert repr(found.histogram).startswith("<Histogram: 39991 pairs in ")
    assert repr(sm.statistics(net, "closeness", sources="n0")) == "<Statistics: 1 of 20001 nodes>"
    for result, row in (
        (near, "<th>n0</th><td>1</td><td>n0</td><td>0</td>"),
        (near, "<th>n20000</th><td>2</td><td></td><td>inf</td>"),
        (net.edges, "<th>n0</th><td>n1</td><td>1.5</td>"),
        (found, "<th>n9</th><td>19992</td><td>29986.5</td>"),
    ):
        markup = result._repr_html_()
        assert f"<tr>{row}" in markup
        assert repr(result)[1:-1] in markup
        assert len(markup) < 2000


@pytest.mark.parametrize("core", [True, False])
def test_the_kernel_in_python(core, monkeypatch):
    if core:
        leave_core(monkeypatch)
    metric, k, far = sm.prepare(graph(3, directed=True, whole=True, density=2)).metric, 3, np.inf
    x = metric.structure
    assert bool(x.core) == core
    label, place = np.full((x.n, k), far), np.full((x.n, k), kernels.NOWHERE, "i4")
    label[::5, 0], place[::5, 0] = 0, np.arange(len(label[::5]))
    found = both(
        kernels.k_nearest, None, "f8", eliminated=x.eliminated, core=x.core, k=k, far=far,
        first=x.first, head=x.head, place=place, core_place=place[: x.core], label=label,
        matrix=metric.core, core_label=label[: x.core], out=metric.out, back=metric.back,
    )  # fmt: skip
    assert (found["place"] != place).any()
