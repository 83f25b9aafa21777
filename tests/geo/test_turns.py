"""Turn costs against Dijkstra's algorithm on (edge) states, written plainly."""

import heapq
import itertools
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal
from optional import nx

import semiring_mm as sm
from semiring_mm.geo import Places, Streets, TurnNetwork, dual, turn_angles

inf = math.inf


def searched(starts, v, weight, turn):
    """Costs of being at the end of each edge, from some edges at some costs."""
    cost = dict.fromkeys(range(len(v)), inf)
    heap = [(d, e) for e, d in starts.items()]
    while heap:
        d, e = heapq.heappop(heap)
        if d < cost[e]:
            cost[e] = d
            for f in range(len(v)):
                if (t := turn(e, f)) < inf:
                    heapq.heappush(heap, (d + t + weight[f], f))
    return cost


def plain(n, u, v, weight, turn):
    """The table between all nodes."""
    table = np.full((n, n), inf)
    for a in range(n):
        cost = searched({e: weight[e] for e in range(len(u)) if u[e] == a}, v, weight, turn)
        for e, d in cost.items():
            table[a, v[e]] = min(table[a, v[e]], d)
        table[a, a] = 0.0
    return table


def turns_of(u, v, costs, u_turn=0.0, twin=None):
    """The cost of a turn, from those of pairs of edges."""

    def is_back(e, f):
        return f == twin[e] if twin is not None else v[f] == u[e]

    def turn(e, f):
        if v[e] != u[f]:
            return inf
        back = 0.0
        if is_back(e, f):
            back = u_turn
            others = [g for g in range(len(u)) if u[g] == v[e] and not is_back(e, g)]
            if u_turn == inf and not others:
                back = 0.0
        return back + costs.get((e, f), 0.0)

    return turn


def random_case(seed, n=9, m=26, banned=8, priced=8):
    """A network with loops and parallel edges, and costs of some turns."""
    rng = np.random.default_rng(seed)
    half = rng.integers(0, n, (2, m // 2))
    u, v = np.concatenate([half, half[::-1]], axis=1) if seed % 2 else rng.integers(0, n, (2, m))
    weight = rng.integers(1, 9, len(u)).astype(float)
    weight[rng.integers(0, len(u))] = inf  # closed
    meeting = [(e, f) for e in range(len(u)) for f in range(len(u)) if v[e] == u[f]]
    chosen = [meeting[k] for k in rng.permutation(len(meeting))[: banned + priced]]
    costs = {
        pair: inf if k < banned else float(rng.integers(0, 5)) for k, pair in enumerate(chosen)
    }
    return n, u, v, weight, costs


def remembered(n, u, v, weight, turn, bans):
    """The table between all nodes, by searches that know the last edges."""
    size = max(map(len, bans)) - 1
    table = np.full((n, n), inf)
    for a in range(n):
        heap = [(weight[e], (e,)) for e in range(len(u)) if u[e] == a and weight[e] < inf]
        heapq.heapify(heap)
        seen = set()
        while heap:
            d, way = heapq.heappop(heap)
            if way in seen:
                continue
            seen.add(way)
            table[a, v[way[-1]]] = min(table[a, v[way[-1]]], d)
            for f in range(len(u)):
                new = (*way, f)
                if turn(way[-1], f) + weight[f] == inf or any(new[-len(x) :] == x for x in bans):
                    continue
                heapq.heappush(heap, (d + turn(way[-1], f) + weight[f], new[-size:]))
        table[a, a] = 0.0
    return table


def random_ways(rng, u, v, count, sizes=(3, 4, 5)):
    """Ways of several edges, of which some begin or end like others."""
    ways = []
    while len(ways) < count:
        begin = ways[int(rng.integers(len(ways)))][-2:] if ways and rng.random() < 0.5 else ()
        way = list(begin) or [int(rng.integers(len(u)))]
        for _ in range(int(rng.choice(sizes)) - len(way)):
            following = np.flatnonzero(u == v[way[-1]])
            if not following.size:
                break
            way.append(int(rng.choice(following)))
        else:
            ways.append(tuple(way))
    return ways


def parts_of_routes(rng, net):
    """Ways that best routes take."""
    d = np.asarray(net.distances())
    routes = [net.edges(a, b) for a, b in np.argwhere(np.isfinite(d)).tolist()]
    return [tuple(x[: int(rng.integers(3, 5))]) for x in routes if len(x) > 2][::2]


@pytest.mark.parametrize("u_turn", [0.0, inf])
@pytest.mark.parametrize("seed", [*range(1, 10), 11, 12, 13])
def test_ways_that_are_banned(seed, u_turn):
    n, u, v, weight, costs = random_case(seed, n=6, m=16, banned=3, priced=5)
    rng = np.random.default_rng(seed)
    turn = turns_of(u, v, costs, u_turn)
    free = TurnNetwork((u, v), weight, turns=table_of(costs), u_turn=u_turn)
    n = len(free.nodes)
    before = free.distances()
    ways = random_ways(rng, u, v, 8) + parts_of_routes(rng, free)
    net = TurnNetwork((u, v), weight, turns=table_of(costs), bans=ways, u_turn=u_turn)
    expected = remembered(n, u, v, weight, turn, ways)
    assert (expected != before).any()
    assert_array_equal(net.distances(), expected)
    for a, b in np.argwhere(np.isfinite(expected)).tolist():
        edges = net.edges(a, b)
        assert_array_equal(u[edges], net.path(a, b)[:-1])
        assert not any(
            tuple(edges[k : k + len(way)]) == way for way in ways for k in range(len(edges))
        )
        steps = [turn(e, f) for e, f in itertools.pairwise(edges)]
        assert sum(steps) + weight[edges].sum() == expected[a, b] == net.distance(a, b)
    other = rng.integers(1, 9, len(u)).astype(float)
    net.customize(other)
    assert_array_equal(net.distances(), remembered(n, u, v, other, turn, ways))
    demand = rng.integers(0, 5, (n, n)).astype(float)
    demand[np.isinf(net.distances())] = 0
    load = net.flows(demand)
    total = (demand * np.where(demand > 0, net.distances(), 0)).sum()
    assert load @ other <= total * (1 + 1e-12)  # the rest is for turns
    if not any(0 < x < inf for x in costs.values()):
        assert_allclose(load @ other, total)


def table_of(costs):
    return tuple(np.array(x) for x in zip(*((e, f, t) for (e, f), t in costs.items()), strict=True))


@pytest.mark.parametrize("u_turn", [0.0, 2.0, inf])
@pytest.mark.parametrize("seed", range(8))
def test_distances_and_routes_obey_turns(seed, u_turn):
    n, u, v, weight, costs = random_case(seed)
    turn = turns_of(u, v, costs, u_turn)
    net = TurnNetwork((u, v), weight, turns=table_of(costs), u_turn=u_turn)
    n = len(net.nodes)
    expected = plain(n, u, v, weight, turn)
    assert_array_equal(net.distances(), expected)
    for a in range(n):
        for b in range(n):
            assert net.distance(a, b) == expected[a, b]
            if expected[a, b] == inf:
                with pytest.raises(ValueError, match=f"no path from {a} to {b}"):
                    net.path(a, b)
                continue
            edges, nodes = net.edges(a, b), net.path(a, b)
            assert nodes == [a, *v[edges]]
            assert_array_equal(u[edges], nodes[:-1])
            steps = [turn(e, f) for e, f in itertools.pairwise(edges)]
            assert sum(steps) + weight[edges].sum() == expected[a, b]


def test_without_turns_it_is_the_graph():
    _, u, v, weight, _ = random_case(3)
    net = TurnNetwork((u, v), weight)
    assert len(net.graph.nodes) == len(net.nodes)
    assert_array_equal(net.distances(), plain(len(net.nodes), u, v, weight, turns_of(u, v, {})))


def test_only_nodes_where_a_turn_costs_are_expanded():
    u, v = np.array([0, 1, 1, 2, 2, 3]), np.array([1, 0, 2, 1, 3, 2])
    net = TurnNetwork((u, v), np.ones(6), bans=[(0, 2)])
    assert repr(net) == "<TurnNetwork: 4 nodes, 1 expanded, 6 directed edges>"
    assert len(net.graph.nodes) == 4 + 2 + 1


def test_new_weights_keep_turns():
    n, u, v, weight, costs = random_case(5)
    net = TurnNetwork((u, v), weight, turns=table_of(costs))
    other = np.arange(1.0, len(u) + 1)
    net.customize(other)
    n = len(net.nodes)
    assert_array_equal(net.distances(), plain(n, u, v, other, turns_of(u, v, costs)))
    with pytest.raises(ValueError, match="that of edge 2 is -1"):
        net.customize(np.where(np.arange(len(u)) == 2, -1.0, other))
    assert_array_equal(net.distances(), plain(n, u, v, other, turns_of(u, v, costs)))


def test_in_dead_ends_one_may_turn_around():
    u, v = np.array([0, 1, 1, 2, 1, 3]), np.array([1, 0, 2, 1, 3, 1])
    net = TurnNetwork((u, v), np.ones(6), bans=[(0, 4)], u_turn=inf)
    assert net.path(0, 3) == [0, 1, 2, 1, 3]
    assert TurnNetwork((u, v), np.ones(6), bans=[(0, 4), (2, 3)], u_turn=inf).distance(0, 3) == inf


def test_of_parallel_edges_the_lightest_is_taken():
    net = TurnNetwork(([0, 0, 1], [1, 1, 2]), [3, 2, 1], turns=([1], [2], [5]))
    assert net.edges(0, 1) == [1]
    assert net.edges(0, 2) == [0, 2]
    net.customize([3, 4, 1])
    assert net.edges(0, 1) == [0]


def test_a_place_behind_on_a_street_one_way_is_reached_around():
    x, y = np.array([0.0, 1.0, 0.0]), np.array([0.0, 0.0, 1.0])
    streets = Streets(range(3), x, y, None, np.array([0, 1, 2]), np.array([1, 2, 0]), {})
    net = TurnNetwork(streets, [4, 10, 20], turns=([2], [0], [3]))
    places = places_on(streets, [0, 0], [0.25, 0.75])
    assert_array_equal(net.distances(places, places), [[0, 2], [35, 0]])
    assert net.distance(places[0], places[1]) == 2
    with pytest.raises(ValueError, match=r"target is one place, as places\[0\]; got 2"):
        net.distance(places[0], places)
    net.customize([8, 10, 20])
    assert_array_equal(net.distances(places, places), [[0, 4], [37, 0]])
    net.customize([inf, 10, 20])
    assert_array_equal(net.distances(places, [1]), [[inf], [inf]])


def test_bans_as_rows_of_an_array():
    u, v = np.array([0, 1, 0, 2, 2]), np.array([1, 2, 2, 3, 1])
    rows = [(2, 3), (0, 1, 3), (0, 1, 4, 1)]
    padded = np.array([[2, 3, -1, -1], [0, 1, 3, -1], [0, 1, 4, 1]], np.int32)
    one, other = (TurnNetwork((u, v), [1, 1, 5, 1, 1], bans=x) for x in (rows, padded))
    assert one.edges(0, 3) == [2, 4, 1, 3]
    assert one.distance(1, 3) == 2.0
    assert_array_equal(one.distances(), other.distances())
    assert len(one.graph.nodes) == 4 + 4 + 2 + 2  # edges to nodes 1 and 2, and ways 0-1, 0-1-4


@pytest.mark.parametrize("seed", range(6))
def test_places_where_ways_are_banned(seed):
    """As nodes of a network whose streets are cut there."""
    streets, rng = grid(3, seed), np.random.default_rng(seed)
    u, v, weight = streets.u, streets.v, 8 * streets.columns["length"]
    m, n = len(u), len(streets.nodes)
    free = TurnNetwork(streets, weight, bans=(), u_turn=3)
    ways = random_ways(rng, u, v, 20, (3, 4)) + parts_of_routes(rng, free)
    cut = 2 * rng.permutation(m // 2)[:4]  # streets with a place in their middle
    net = TurnNetwork(streets, weight, bans=ways, u_turn=3)
    places = places_on(streets, cut, [0.5] * 4)
    # the first half of an edge keeps its number
    place = {e + side: n + k for k, e in enumerate(cut.tolist()) for side in (0, 1)}
    second = {e: m + k for k, e in enumerate(place)}
    x = np.array([*u, *place.values()])
    y = np.array([*(place.get(e, v[e]) for e in range(m)), *v[[*second]]])
    share = np.array([weight[e] / (2 if e in place else 1) for e in [*range(m), *second]])

    def whole(way):
        first, *inner, last = way
        middle = [f for e in inner for f in ((e, second[e]) if e in place else (e,))]
        return (second.get(first, first), *middle, last)

    back = [(e, second[e ^ 1]) for e in place]  # nobody turns in the middle of a street
    costs = [second.get(e, e) for e in range(m)], [e ^ 1 for e in range(m)], np.full(m, 3)
    other = TurnNetwork((x, y), share, bans=[*map(whole, ways), *back], turns=costs)
    nodes, there = [*range(n)], [*range(n, n + 4)]
    changed = 0
    for a, start in ((places, there), (nodes, nodes)):
        for b, end in ((places, there), (nodes, nodes)):
            assert_array_equal(net.distances(a, b), other.distances(start, end))
            changed += (net.distances(a, b) != free.distances(a, b)).sum()
    assert changed > 10


@pytest.mark.parametrize(
    ("bans", "told"),
    [
        ([(0,)], "a ban is of two edges or more"),
        (np.array([[-1, 0, 1]]), "a ban is of two edges or more"),
        ([(0, 1, 2)], "edge 1 ends at 2, edge 2 begins at 0"),
        ([(0, 1, 9)], "there is no edge 9, they are 0 to 3"),
        ([(0.5, 1)], "rows of positions of edges, got dtype float64"),
        (np.array([0, 1]), "rows of positions of edges"),
    ],
    ids=str,
)
def test_bans_that_are_none(bans, told):
    u, v = np.array([0, 1, 0, 2]), np.array([1, 2, 2, 3])
    with pytest.raises((ValueError, TypeError), match=told):
        TurnNetwork((u, v), np.ones(4), bans=bans)


def grid(side, seed=0, labels=None):
    """Streets both ways of a grid that is bent a little; a twin follows each edge."""
    rng = np.random.default_rng(seed)
    n = side * side
    x, y = np.divmod(np.arange(n), side)[::-1] + rng.uniform(-0.3, 0.3, (2, n))
    pairs = [(k, k + 1) for k in range(n) if (k + 1) % side] + [
        (k, k + side) for k in range(n - side)
    ]
    ends = np.array([end for a, b in pairs for end in ((a, b), (b, a))]).T
    columns = {"length": rng.integers(1, 9, len(pairs)).repeat(2).astype(float)}
    return Streets(range(n) if labels is None else labels, x, y, None, *ends, columns)


def places_on(streets, edge, part):
    k = len(edge)
    zeros = np.zeros(k)
    return Places(np.array(edge), np.array(part), zeros, zeros, zeros, range(k))


@pytest.mark.parametrize("u_turn", [0.0, 1.0, inf])
def test_places_are_left_and_reached_on_their_street(u_turn):
    streets = grid(3)
    u, v, weight = streets.u, streets.v, streets.columns["length"]
    costs = {(e, f): inf for e, f in [(0, 2), (4, 7)] if v[e] == u[f]}
    rng = np.random.default_rng(1)
    m = len(u)
    meeting = [(e, f) for e in range(m) for f in range(m) if v[e] == u[f]]
    costs |= {meeting[k]: float(k % 4) for k in rng.permutation(len(meeting))[:20]}
    turn = turns_of(u, v, costs, u_turn, streets.twin)
    net = TurnNetwork(streets, "length", turns=table_of(costs), u_turn=u_turn)
    edge, part = [0, 0, 1, 5, 8, 8, -1], [0.25, 0.75, 0.5, 0.0, 0.5, 1.0, np.nan]
    places = places_on(streets, edge, part)

    def ways(k):
        """The edges that a place is on, and which part of each lies behind it."""
        if edge[k] < 0:
            return []
        return [(edge[k], part[k]), (streets.twin[edge[k]], 1 - part[k])]

    def to(starts, k, begun=()):
        """The least cost to a place, when one is on some edges or has just left a node."""
        cost = searched(dict(starts), v, weight, turn)
        found = [inf]
        for f, s in ways(k):
            found += [cost[e] + turn(e, f) + s * weight[f] for e in range(m) if turn(e, f) < inf]
            found += [s * weight[f] for node in begun if u[f] == node]
        return min(found)

    for i in range(len(edge)):
        starts = [(e, (1 - t) * weight[e]) for e, t in ways(i)]
        for j in range(len(edge)):
            along = [
                (s - t) * weight[e] for e, t in ways(i) for f, s in ways(j) if e == f and s >= t
            ]
            expected = min([to(starts, j), *along]) if starts else inf
            assert net.distances(places, places)[i, j] == expected, (i, j)
        cost = searched(dict(starts), v, weight, turn)
        for b in range(9):
            expected = min([cost[e] for e in range(m) if v[e] == b])
            assert net.distances(places, [b])[i, 0] == expected
            leaving = [(e, weight[e]) for e in range(m) if u[e] == b]
            assert net.distance(b, places[i]) == to(leaving, i, [b])


def test_labels_are_those_of_the_streets():
    streets = grid(2, labels=["a", "b", "c", "d"])
    net = TurnNetwork(streets, "length")
    assert net.distances(["a"], ["d"])["a", "d"] == net.distance("a", "d")
    assert net.path("a", "d")[0] == "a"
    assert net.path("b", "b") == ["b"]
    assert net.edges("b", "b") == []
    with pytest.raises(ValueError, match="'e' is not a node"):
        net.distance("a", "e")


# Angles


CROSS = Streets(
    range(5), np.array([0.0, 1, 0, -1, 0]), np.array([0.0, 0, 1, 0, -1]), None,
    np.array([0, 0, 0, 0, 1, 2, 3, 4]), np.array([1, 2, 3, 4, 0, 0, 0, 0]), {},
)  # fmt: skip


@pytest.mark.parametrize(("end", "degrees"), [(2, 0.0), (1, -90.0), (3, 90.0), (0, 180.0)], ids=str)
def test_angles_are_positive_to_the_left(end, degrees):
    assert_allclose(turn_angles(CROSS, [4], [end]), [degrees])  # coming from the east


def test_angles_of_degrees_are_those_on_the_ground():
    x, y = np.array([10.0, 10.0, 10.02]), np.array([60.0, 60.01, 60.02])
    streets = Streets(range(3), x, y, "EPSG:4326", np.array([0, 1]), np.array([1, 2]), {})
    assert_allclose(turn_angles(streets, [0], [1]), [-45], atol=0.01)


def test_angles_are_of_the_pieces_at_the_crossing_or_of_chords():
    shape = np.array([0, 3, 5]), np.array([[0.0, 0], [0, 1], [1, 1], [1, 1], [2, 1]])
    ends = np.array([0.0, 1, 2]), np.array([0.0, 1, 1])
    streets = Streets(range(3), *ends, None, np.array([0, 1]), np.array([1, 2]), {}, shape)
    assert_allclose(turn_angles(streets, [0], [1]), [0])
    twice = np.array([0, 4, 6]), np.insert(shape[1], 3, [1, 1], axis=0)  # then it has no direction
    streets = Streets(range(3), *ends, None, np.array([0, 1]), np.array([1, 2]), {}, twice)
    assert_allclose(turn_angles(streets, [0], [1]), [-45])
    assert_allclose(turn_angles(streets, [0], [1], chord=True), [-45])


def test_turns_cost_by_their_angles():
    net = TurnNetwork(CROSS, None, angle=1.0)
    assert_allclose(net.distances([1], [2, 3, 4]), [[90, 0, 90]])
    left = TurnNetwork(
        CROSS, np.full(8, 10), angle=lambda d: np.where(d > 45, 7.0, 0.0), u_turn=inf
    )
    assert_array_equal(left.distances([1], [2, 3, 4]), [[20, 20, 27]])


def counted(net_nodes, u, v, weight, turn):
    """Shares of best routes through each edge, by NetworkX on (edge) states."""
    graph = nx.DiGraph()
    for e in range(len(u)):
        graph.add_edge(("from", u[e]), e, weight=weight[e])
        graph.add_edge(e, ("to", v[e]), weight=0)
        for f in range(len(u)):
            if (t := turn(e, f)) < inf:
                graph.add_edge(e, f, weight=t + weight[f])
    load = np.zeros(len(u))
    for a in net_nodes:
        for b in net_nodes:
            if a != b and nx.has_path(graph, ("from", a), ("to", b)):
                routes = [*nx.all_shortest_paths(graph, ("from", a), ("to", b), "weight")]
                for route in routes:
                    load[route[1:-1]] += 1 / len(routes)
    return load


@pytest.mark.parametrize("u_turn", [0.0, inf])
def test_betweenness_shares_the_best_routes(u_turn):
    streets = grid(4, seed=2)
    u, v = streets.u, streets.v
    weight = np.random.default_rng(0).integers(1, 4, len(u)).astype(float)
    costs = {(e, f): 2.0 for e in range(0, len(u), 3) for f in range(len(u)) if v[e] == u[f]}
    turn = turns_of(u, v, costs, u_turn, streets.twin)
    net = TurnNetwork(streets, weight, turns=table_of(costs), u_turn=u_turn)
    assert_allclose(net.betweenness(), counted(range(16), u, v, weight, turn), rtol=1e-12)


def test_flows_carry_a_demand():
    net = TurnNetwork((np.array([0, 1, 0, 2]), np.array([1, 2, 2, 3])), [1, 1, 5, 1], bans=[(1, 3)])
    assert_array_equal(net.flows([[7, 2, 3]], [0], [0, 2, 3]), [2, 2, 3, 3])
    with pytest.raises(ValueError, match=r"got shape \(1, 2\)"):
        net.flows([[1, 2]], [0], [1, 2, 3])


def test_angular_betweenness_is_of_least_turning():
    streets = grid(3, seed=4)
    u, v = streets.u, streets.v
    angles = {
        (e, f): float(np.rint(abs(turn_angles(streets, [e], [f])[0]) * 16))
        for e in range(len(u)) for f in range(len(u)) if v[e] == u[f]
    }  # fmt: skip
    net = TurnNetwork(streets, None, angle=lambda d: np.rint(np.abs(d) * 16), u_turn=inf)
    turn = turns_of(u, v, angles, inf, streets.twin)
    expected = counted(range(9), u, v, np.zeros(len(u)), turn)
    assert_allclose(net.betweenness(), expected, rtol=1e-12)


def test_the_dual_graph_joins_streets_where_they_meet():
    streets = grid(3, seed=6)
    graph = dual(streets)
    own = range(0, len(streets.u), 2)
    assert_array_equal(graph.nodes, own)
    into = {
        (e, end): e + (end == streets.u[e]) for e in own for end in (streets.u[e], streets.v[e])
    }
    expected = {
        (e, f): abs(turn_angles(streets, [into[e, a]], [into[f, a] ^ 1])[0])
        for (e, a) in into for (f, b) in into if a == b and e < f
    }  # fmt: skip
    ends = zip(graph.row, graph.col, graph.weight, strict=True)
    found = {(graph.nodes[i], graph.nodes[j]): w for i, j, w in ends}
    assert found.keys() == expected.keys()
    assert_allclose([found[x] for x in expected], [*expected.values()], atol=1e-9)


def test_a_loop_is_not_joined_to_itself():
    shape = np.array([0, 4, 6]), np.array([[0.0, 0], [1, 0], [0, 1], [0, 0], [0, 0], [-1, 0]])
    ends = np.array([0.0, -1]), np.zeros(2), None, np.array([0, 0]), np.array([0, 1])
    graph = dual(Streets(range(2), *ends, {}, shape))
    assert_array_equal([graph.row, graph.col], [[0, 0], [1, 1]])
    assert_allclose(sorted(graph.weight), [0, 90])


def test_straight_on_counts_at_least():
    crossing = dual(CROSS, least=1.0)
    assert_allclose(sorted(crossing.weight), [1, 1, 90, 90, 90, 90])
    with pytest.raises(ValueError, match="least is a cost that is not negative, got -1"):
        dual(CROSS, least=-1)
    assert_array_equal(sm.statistics(crossing, "betweenness").betweenness, np.zeros(4))
    with pytest.raises(ValueError, match="give their edges a length"):
        sm.statistics(dual(CROSS), "betweenness")


def test_angular_betweenness_of_the_dual_graph_is_that_of_momepy():
    momepy, geopandas = pytest.importorskip("momepy"), pytest.importorskip("geopandas")
    lines = geopandas.read_file(momepy.datasets.get_path("bubenec"), layer="streets")
    primal = momepy.gdf_to_nx(lines, approach="dual", angles=True, preserve_index=True)
    graph = nx.Graph()
    place = nx.get_node_attributes(primal, "index_position")
    for a, b, angle in primal.edges(data="angle"):
        graph.add_edge(place[a], place[b], weight=round(angle * 2**20))
    expected = nx.betweenness_centrality(graph, weight="weight", normalized=False)
    found = dual(sm.geo.network(lines, oneway=None).streets, chord=True)
    found = found.weighted(np.rint(found.weight * 2**20))
    assert found.n == len(lines)
    got = sm.statistics(found, "betweenness").betweenness
    assert_allclose(np.sort(got), sorted(expected.values()), rtol=1e-12)


ENDS = np.array([0, 1]), np.array([1, 2])
made = TurnNetwork
BAD = {
    "no streets": (lambda: made({}), TypeError, "Streets, or of two arrays"),
    "ends differ": (lambda: made(([0, 1], [1]), [1]), ValueError, r"int64 \(2,\) and int64"),
    "ends are real": (lambda: made(([0.5], [1]), [1]), ValueError, "u and v are integers"),
    "negative end": (lambda: made(([-1], [1]), [1]), ValueError, "from 0 on, got -1"),
    "no column": (lambda: made(ENDS), ValueError, "no column 'travel_time' of ed"),
    "one weight": (lambda: made(ENDS, [1]), ValueError, r"2 edges, one weight each"),
    "a word": (lambda: made(ENDS, ["a", "b"]), TypeError, "real numbers, got dtype <U1"),
    "negative": (lambda: made(ENDS, [1, -2]), ValueError, "that of edge 1 is -2"),
    "nan": (lambda: made(ENDS, [np.nan, 2]), ValueError, "that of edge 0 is nan"),
    "no edge": (lambda: made(ENDS, [1, 1], bans=[(0, 2)]), ValueError, "edge 2, they are 0"),
    "apart": (lambda: made(ENDS, [1, 1], bans=[(1, 0)]), ValueError, "1 ends at 2, edge 0 b"),
    "two columns": (
        lambda: made(ENDS, [1, 1], turns=([0], [1])), ValueError, "three arrays, .* got 2",
    ),
    "lengths": (
        lambda: made(ENDS, [1, 1], turns=([0], [1], [1, 2])), ValueError, "of one length",
    ),
    "names": (
        lambda: made(ENDS, [1, 1], turns=(["a"], ["b"], [1])), TypeError, "positions of edges",
    ),
    "negative turn": (
        lambda: made(ENDS, [1, 1], turns=([0], [1], [-1])), ValueError, "edge 0 to edge 1 is -1",
    ),
    "u_turn": (lambda: made(ENDS, [1, 1], u_turn=-1), ValueError, "u_turn is a cost that"),
    "angle": (lambda: made(ENDS, [1, 1], angle=1), ValueError, "angles of turns need streets"),
    "angles": (
        lambda: made(CROSS, None, angle=lambda d: -d), ValueError, "not negative for each of 20",
    ),
    "places": (
        lambda: made(ENDS, [1, 1]).distances(places_on(None, [0], [0.5])), ValueError,
        "places need streets",
    ),
    "path of places": (
        lambda: made(CROSS, None).path(places_on(None, [0], [0.5]), 1), TypeError,
        "paths lead from node to node",
    ),
    "other places": (
        lambda: made(CROSS, None).distances(places_on(None, [9], [0.5])), ValueError,
        "on edge 9 of 8",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_told(case):
    call, error, words = BAD[case]
    with pytest.raises(error, match=words):
        call()
