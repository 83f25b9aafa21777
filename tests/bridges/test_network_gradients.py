"""Distances of prepared graphs by weights of their edges: gradients are shares of paths."""

import gc
import itertools

import numpy as np
import pytest
from optional import nx, pd, real_file

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList

torch = pytest.importorskip("torch", reason="PyTorch is not here: pip install '.[torch]'")

from semiring_mm.differentiable.rows import VERBS  # noqa: E402
from semiring_mm.torch import distances  # noqa: E402

BOTH = pytest.mark.parametrize("directed", [True, False])


def random_edges(rng, n, m, *, directed, whole=True):
    """Edges with parallel ones and loops; small whole weights have many ties."""
    row, col = rng.integers(0, n, (2, m))
    weight = rng.integers(1, 4, m).astype(float) if whole else rng.uniform(0.2, 1, m)
    return EdgeList(range(n), row, col, weight, directed)


def shares(edges, weight, g):
    """What each edge carries, path by path; g[s, t] is shared evenly by the shortest ones."""
    shortest = nx.DiGraph()
    shortest.add_nodes_from(range(edges.n))
    arcs = {}
    for e, (u, v) in enumerate(zip(edges.row.tolist(), edges.col.tolist(), strict=True)):
        for ends in ((u, v), (v, u))[: 2 - edges.directed]:
            arcs.setdefault(ends, []).append(e)
    for (u, v), parallel in arcs.items():
        least = min(weight[e] for e in parallel)
        arcs[u, v] = [e for e in set(parallel) if weight[e] == least]
        shortest.add_edge(u, v, weight=least)
    loads = np.zeros(len(weight))
    for s, t in itertools.permutations(range(edges.n), 2):
        if nx.has_path(shortest, s, t):
            paths = list(nx.all_shortest_paths(shortest, s, t, weight="weight"))
            for path in paths:
                for arc in itertools.pairwise(path):
                    loads[arcs[arc]] += g[s, t] / len(paths) / len(arcs[arc])
    return loads


def gradient(net, weight, g, sources=None, targets=None):
    """The distances, and the gradient of their sum with these factors."""
    weight = torch.tensor(weight, requires_grad=True)
    d = distances(net, weight, sources, targets)
    (found,) = torch.autograd.grad(d, weight, torch.as_tensor(g, dtype=d.dtype))
    return d.detach().numpy(), found.numpy()


@BOTH
def test_ties_share_what_a_pair_has(directed):
    for seed in range(30):
        rng = np.random.default_rng(seed)
        edges = random_edges(rng, 9, 22, directed=directed)
        g = rng.normal(size=(9, 9))
        d, found = gradient(sm.prepare(edges), edges.weight, g)
        np.testing.assert_array_equal(d, sm.apsp(edges))
        np.testing.assert_allclose(found, shares(edges, edges.weight, g), atol=1e-12)


@BOTH
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_a_distance_is_the_sum_along_its_paths(directed, dtype):
    """Distances are homogeneous of degree 1, so that w · ∂/∂w is the distance."""
    rng = np.random.default_rng(2)
    for n, m in ((300, 700), (60, 900)):  # the latter has no small separators
        edges = random_edges(rng, n, m, directed=directed, whole=False)
        weight, some, others = edges.weight.astype(dtype), rng.permutation(n)[:20], [3, 5, 3]
        g = rng.normal(size=(20, 3))
        d, found = gradient(sm.prepare(edges), weight, g, some, others)
        assert d.dtype == found.dtype == dtype
        reached = np.isfinite(d)
        expected = (g[reached] * d[reached].astype(float)).sum()
        rounding = 40 * np.finfo(dtype).eps * np.abs(g[reached] * d[reached]).sum()
        assert abs(weight.astype(float) @ found - expected) < rounding


def test_weights_of_float32_are_taken_as_they_are():
    """Paths that differ by less than float32 has digits for at their length are told apart."""
    edges = EdgeList(range(4), np.array([0, 0, 1, 2]), np.array([1, 2, 3, 3]), np.ones(4), True)
    weight = np.array([1000, 1000, 1 / 3 + 1e-6, 1 / 3], np.float32)
    _, found = gradient(sm.prepare(edges), weight, [[1.0]], [0], [3])
    assert found.tolist() == [0, 1, 0, 1]


def test_pairs_without_a_path_have_no_gradient():
    edges = EdgeList(range(4), np.array([0, 1, 2]), np.array([1, 0, 2]), np.ones(3), True)
    g = np.full((4, 4), np.nan)
    g[0, 1] = 2
    d, found = gradient(sm.prepare(edges), np.array([3.0, np.inf, 1.0]), g)
    assert (d[0, 1], np.isfinite(d).sum()) == (3, 5)
    np.testing.assert_array_equal(found, [2, 0, 0])


def test_the_prepared_graph_stays_as_it_is():
    net = sm.prepare({0: {1: 5.0}, 1: {2: 5.0}})
    gradient(net, np.array([1.0, 2.0]), np.ones((3, 3)))
    assert net.distance(0, 2) == 10
    net.customize([7, 8])
    weight = torch.tensor([1.0, 2.0], requires_grad=True)
    d = distances(net, weight)
    with torch.no_grad():
        weight *= 2  # in place, as an optimizer does
    np.testing.assert_array_equal(distances(net, weight).detach(), 2 * d.detach())
    assert net.distance(0, 2) == 15
    assert net.dtype == np.float64


def test_nodes_by_labels_and_arrays():
    weight = np.array([3.0, 8.0, 1.0])
    named = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
    plain = sm.prepare({0: {1: 3, 2: 8}, 1: {2: 1}})
    for sources, targets in (("a", ["c", "b"]), (np.array(["a"]), ("c", "b"))):
        assert gradient(named, weight, [[1, 2]], sources, targets)[1].tolist() == [3, 0, 1]
    for sources, targets in ((0, [2, 1]), (np.array([0]), torch.tensor([2, 1])), ([0], (2, 1))):
        assert gradient(plain, weight, [[1, 2]], sources, targets)[1].tolist() == [3, 0, 1]


def test_a_row_of_a_table_has_what_its_edges_carry():
    table = pd.DataFrame({
        "source": [0, 1], "target": [1, 2], "oneway": [True, False], "length": [1.0, 1.0]
    })  # fmt: skip
    net = sm.prepare(table, weight="length")
    weight = np.array([2.0, 3.0])
    count = len(net.edges.row)
    d, found = gradient(net, weight, np.ones((3, 3)))
    if count == 3:  # the second row is two edges
        assert d[2, 1] == 3
        assert found.tolist() == [2, 3]


def test_batches_of_weights_sources_and_gradients():
    rng = np.random.default_rng(0)
    edges = random_edges(rng, 8, 20, directed=True)
    net, w = sm.prepare(edges), torch.tensor(rng.integers(1, 4, (2, 1, 20)).astype(float))
    sources = torch.tensor(rng.integers(0, 8, (3, 4)))
    w.requires_grad_()
    d, g = distances(net, w, sources, [1, 2]), torch.tensor(rng.normal(size=(5, 2, 3, 4, 2)))
    assert d.shape == (2, 3, 4, 2)
    d = torch.nan_to_num(d, posinf=0)
    (found,) = torch.autograd.grad(d, w, g, is_grads_batched=True, retain_graph=True)
    for i in range(5):
        torch.testing.assert_close(found[i], torch.autograd.grad(d, w, g[i], retain_graph=True)[0])
    for i, j in np.ndindex(2, 3):
        one = distances(net, w[i, 0], sources[j], [1, 2])
        torch.testing.assert_close(torch.nan_to_num(one, posinf=0), d[i, j])


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_one_compiled_function_of_several_graphs(backend):
    def loss(net, w, nodes):
        return distances(net, w, nodes).square().sum()

    for some in ([[0], [1]], [(1, 0)], [0, 1], [torch.tensor([1, 0]), None]):
        torch.compiler.reset()
        compiled = torch.compile(loss, fullgraph=True, backend=backend)
        for k, nodes in itertools.product((2, 3), some):
            ends = np.arange(k), (np.arange(k) + 1) % k
            net = sm.prepare(EdgeList(range(k), *ends, np.ones(k), True))
            w = torch.arange(1.0, k + 1).requires_grad_()
            found, expected = compiled(net, w, nodes), loss(net, w, nodes)
            torch.testing.assert_close(found, expected)
            torch.testing.assert_close(*(torch.autograd.grad(x, w) for x in (found, expected)))


def test_a_gradient_keeps_its_graph():
    w = torch.ones(1, requires_grad=True)
    d = distances(sm.prepare({0: {1: 1.0}}), w, [0], [1])
    gc.collect()
    d.sum().backward()
    assert w.grad.tolist() == [1]


def test_a_compiled_function_does_not():
    key = str(sm.prepare({0: {1: 1.0}}).key)
    gc.collect()
    with pytest.raises(RuntimeError, match="keep it as long as"):
        torch.ops.semiring_mm.network_distances(torch.ones(1), None, None, key)


@BOTH
def test_jax_has_the_gradients_of_pytorch(directed):
    jax = pytest.importorskip("jax", reason="JAX is not here: pip install '.[jax]'")
    from semiring_mm.jax import distances as there

    rng = np.random.default_rng(1)
    edges = random_edges(rng, 40, 90, directed=directed)
    net, some = sm.prepare(edges), rng.permutation(40)[:7]
    for dtype in (np.float32, np.float64):
        weight, g = edges.weight.astype(dtype), rng.normal(size=(7, 40)).astype(dtype)
        d, expected = gradient(net, weight, g, some)
        with jax.enable_x64(True):
            seen = np.isfinite(d)

            def loss(w, nodes, g=g, seen=seen):
                d = there(net, w, nodes)
                return (jax.numpy.where(seen, d, 0) * g).sum()

            for call in (jax.grad(loss), jax.jit(jax.grad(loss))):
                found = call(weight, some)
                assert found.dtype == dtype
                tolerance = 8 * np.finfo(dtype).eps  # sums in another order
                np.testing.assert_allclose(found, expected, tolerance, tolerance)


def refused():
    net, one = sm.prepare({"a": {"b": 1.0, "c": 1.0}, "b": {"c": 1.0}}), torch.ones(3)
    widest = sm.prepare({0: {1: 1.0}}, semiring="max_min")
    zero = torch.tensor([1.0, 0, 1], requires_grad=True)
    cycle = sm.prepare(EdgeList(range(3), np.array([0, 1, 0]), np.array([1, 2, 2]), np.ones(3),
                                False))  # fmt: skip
    return [
        (lambda: distances({0: {1: 1.0}}, one), TypeError, r"write sm.prepare\(graph\)"),
        (lambda: distances(widest, one), ValueError, "the graph is over max_min"),
        (lambda: distances(net, [1, 1, 1]), TypeError, "weights is a list"),
        (lambda: distances(net, one[:2]), ValueError, "has 3 edges, one weight each, got 2"),
        (lambda: distances(net, one[0]), ValueError, r"weights is of shape \(..., E\)"),
        (lambda: distances(net, -one), ValueError, "edge 0, from 'a' to 'b', is -1"),
        (lambda: distances(net, one * np.nan), ValueError, "edge 0, from 'a' to 'b', is NaN"),
        (lambda: distances(net, one, ["z"]), ValueError, "'z' is not a node"),
        (lambda: distances(cycle, one, torch.tensor([3])), ValueError, "there is no node 3"),
        (lambda: distances(cycle, zero).sum().backward(), ValueError, "length of the cycle"),
        (lambda: torch.autograd.functional.hessian(
            lambda w: distances(net, w, "a", "c").square().sum(), one),
         NotImplementedError, "second derivatives"),
    ]  # fmt: skip


@pytest.mark.parametrize("case", range(len(refused())))
def test_refusals(case):
    call, error, words = refused()[case]
    with pytest.raises(error, match=words):
        call()


def test_on_chicago():
    graph = sm.files.read_graph(real_file("ChicagoRegional_net.tntp"))
    net, rng = sm.prepare(graph), np.random.default_rng(0)
    weight = graph.weight * rng.uniform(1, 2, len(graph.weight))
    some = [graph.nodes[k] for k in rng.permutation(len(graph.nodes))[:64]]
    g = rng.uniform(0, 1, (64, 64))
    d, found = gradient(net, weight, g, some, some)
    np.testing.assert_allclose(weight @ found, (g * d).sum(), rtol=1e-12)


def test_arrays_of_a_device(there):
    net = sm.prepare({0: {1: 3.0, 2: 8.0}, 1: {2: 1.0}})
    weight, sources, g = (there.put(np.array(x)) for x in ([3.0, 8, 1], [0], [[5.0, 1, 2]]))
    (d,) = VERBS["network_distances"].compute(weight, sources, None, net.key)
    (loads,) = VERBS["network_loads"].compute(weight, sources, None, g, net.key)
    assert isinstance(d, there.kind)
    assert isinstance(loads, there.kind)
    assert there.get(d).tolist() == [[0, 3, 4]]
    assert there.get(loads).tolist() == [3, 0, 2]


@pytest.mark.gpu
def test_tensors_of_a_device():
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no CUDA device")
    net = sm.prepare(EdgeList(range(3), np.array([0, 0, 1]), np.array([1, 2, 2]), np.ones(3), True))
    weight = torch.tensor([3.0, 8.0, 1.0], device="cuda", requires_grad=True)
    d = distances(net, weight, [0], torch.tensor([2, 1], device="cuda"))
    d.sum().backward()
    assert d.device.type == weight.grad.device.type == "cuda"
    assert d.tolist() == [[4, 3]]
    assert weight.grad.tolist() == [2, 0, 1]


def test_results_that_do_not_fit():
    net = sm.prepare(EdgeList.of(1 << 20, np.array([0]), np.array([1]), np.ones(1)))
    with pytest.raises(MemoryError, match="1,048,576 x 1,048,576 entries"):
        distances(net, torch.ones(1))
