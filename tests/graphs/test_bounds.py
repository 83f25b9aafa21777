"""Diameter, radius and center by bounds on eccentricities, against all eccentricities."""

import numpy as np
import pytest
from optional import nx

import semiring_mm as sm
from semiring_mm.graphs import bounds

EXTREMES = ("diameter", "radius", "center")


def graph(seed):
    """A random graph, often in several parts: unweighted, of small integers, or of decimals."""
    rng = np.random.default_rng(seed)
    G = nx.gnp_random_graph(int(rng.integers(1, 40)), rng.choice([0.03, 0.08, 0.2, 0.5]), seed=seed)
    kind = seed % 3
    for u, v in G.edges if kind else ():
        whole = kind == 1
        G[u][v]["weight"] = int(rng.integers(0, 6)) if whole else float(rng.choice([0.1, 0.2, 0.7]))
    return G, "weight" if kind else None


@pytest.mark.parametrize("first", range(0, 60, 20))
def test_the_same_as_by_all_eccentricities(first):
    for seed in range(first, first + 20):
        G, weight = graph(seed)
        every = sm.statistics(G, "eccentricity", weight=weight)
        reach = np.array([len(nx.node_connected_component(G, v)) for v in G])
        assert every.radius == every.eccentricity[reach == reach.max()].min(), seed
        for asked in (*EXTREMES, EXTREMES):
            found = sm.statistics(G, asked, weight=weight)
            for name in {*([asked] if isinstance(asked, str) else asked)}:
                if name == "center" and seed % 3 == 2:  # whose sums are rounded
                    continue
                assert getattr(found, name) == pytest.approx(getattr(every, name)), (seed, name)
            if found.ends is not None:
                one, other = (list(G).index(x) for x in found.ends)
                D = sm.apsp(G, weight=weight, sources=[found.ends[0]])
                assert np.asarray(D)[0, other] == pytest.approx(found.diameter), (seed, one)


@pytest.mark.parametrize("name", ["diameter", "radius", "center", "periphery"])
def test_networkx_to_the_last_bit(name):
    function = getattr(nx, name)
    with nx.config.backends.semiring_mm(min_nodes=0):
        for seed in range(90):
            G, weight = graph(seed)
            if not nx.is_connected(G) or (name == "center" and nx.is_tree(G)):
                continue
            expected, found = (
                function(G, weight=weight),
                function(G, weight=weight, backend="semiring_mm"),
            )
            assert found == expected, seed
            assert type(found) is type(expected), seed


def test_few_searches_and_what_bounds_do_not_decide(monkeypatch):
    searched = []

    def counted(self, sources, d, join=bounds.Bounds._join):
        searched.append(len(sources))
        join(self, sources, d)

    monkeypatch.setattr(bounds.Bounds, "_join", counted)
    G = nx.grid_2d_graph(40, 30)
    found = sm.statistics(G, "diameter", weight=None)
    assert (found.diameter, sum(searched) <= 64) == (68, True)
    assert {*found.ends} in ({(0, 0), (39, 29)}, {(0, 29), (39, 0)})
    searched.clear()
    ring = sm.statistics(nx.cycle_graph(1000), EXTREMES, weight=None)  # all nodes are alike
    assert (ring.diameter, ring.radius, len(ring.center)) == (500, 500, 1000)
    assert sum(searched) < 1000


def test_prepared_graphs_whose_nodes_are_all_alike():
    """Bounds decide little, so that many eccentricities are swept, in the order of elimination."""
    rng = np.random.default_rng(3)
    for G in (nx.cycle_graph(200), nx.grid_2d_graph(14, 15, periodic=True)):
        for u, v in G.edges:
            G[u][v]["weight"] = int(rng.integers(3, 6))
        net = sm.prepare(G)
        every, found = sm.statistics(net, "eccentricity"), sm.statistics(net, EXTREMES)
        for name in EXTREMES:
            assert getattr(found, name) == getattr(every, name), name


def test_directed_graphs_and_some_sources_take_all_eccentricities():
    G = nx.gnp_random_graph(30, 0.2, seed=1, directed=True)
    every = sm.statistics(G, "eccentricity", weight=None)
    found = sm.statistics(G, "diameter", weight=None)
    assert (found.diameter, found.eccentricity) == (every.diameter, None)
    some = sm.statistics(G.to_undirected(), "radius", weight=None, sources=[3, 4])
    far = sm.statistics(G.to_undirected(), "eccentricity", weight=None).eccentricity
    assert some.radius == far[[3, 4]].min()


def test_large_integers_are_exact():
    W = np.full((5, 5), np.iinfo("i8").max)  # no edge
    for u in range(4):
        W[u, u + 1] = W[u + 1, u] = 2**55 + u
    found = sm.statistics(W, EXTREMES)
    assert (found.diameter, found.radius, found.center) == (2**57 + 6, 2**56 + 5, [2])
