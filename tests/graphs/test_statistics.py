"""Statistics of all distances against NumPy on the whole matrix, and against NetworkX."""

import io

import numpy as np
import pytest
from metrics import leave_core
from optional import pd

import semiring_mm as sm
from semiring_mm.closures.edges import EdgeList
from semiring_mm.hierarchy.statistics import SweepCollector
from semiring_mm.tiles import TileOptions


def edges_of(kind, rng, n):
    """Ends of edges of one family."""
    if kind == "tree":
        return np.arange(1, n), (rng.random(n - 1) * np.arange(1, n)).astype(int)
    if kind == "grid":
        side = int(n**0.5)
        i = np.arange(side * side).reshape(side, side)
        return (
            np.concatenate([i[:, 1:].ravel(), i[1:].ravel()]),
            np.concatenate([i[:, :-1].ravel(), i[:-1].ravel()]),
        )
    if kind == "islands":
        u, v = edges_of("grid", rng, n // 2)
        return np.concatenate([u, u + n // 2]), np.concatenate([v, v + n // 2])
    if kind == "star":
        return np.zeros(n - 1, int), np.arange(1, n)
    if kind == "parts":
        u, v = rng.integers(0, n // 3, (2, n))
        return u * 2, v * 2
    return rng.integers(0, n, (2, {"sparse": n, "dense": 12 * n}[kind]))


def graph(kind, *, directed, whole, seed=0, n=150):
    rng = np.random.default_rng(seed)
    u, v = edges_of(kind, rng, n)
    weight = rng.integers(0, 40, len(u)) if whole else rng.random(len(u))
    return EdgeList(range(n), u, v, weight, directed)


def expected(d, edges, radii, mass):
    """All statistics from the matrix of distances."""
    there, n = np.isfinite(d), len(d)
    z = np.where(there, d, 0)
    far = z.max(axis=1)
    reached = there.sum(axis=1)
    other = there & ~np.eye(n, dtype=bool)
    with np.errstate(all="ignore"):
        into = there.sum(axis=0) - 1
        closeness = np.nan_to_num(into / z.sum(axis=0) * into / max(n - 1, 1), posinf=0)
        found = {
            "reached": reached, "eccentricity": far, "closeness": closeness,
            "mean": z.sum(axis=1) / (reached - 1),
            "harmonic": np.where(there & (d > 0), 1 / d, 0).sum(axis=0),
            "within": np.array([((d <= r) * mass).sum(axis=1) for r in radii]).T,
            "diameter": far.max(), "radius": far[reached == reached.max()].min(),
            "mean_distance": z.sum() / other.sum() if other.any() else np.nan,
        }  # fmt: skip
    return found, np.histogram(d[other], edges)[0]


KINDS = ["tree", "grid", "islands", "star", "parts", "sparse", "dense"]


@pytest.mark.parametrize("prepared", [False, True])
@pytest.mark.parametrize("directed", [False, True])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("whole", [True, False])
def test_each_statistic_is_that_of_the_matrix(kind, directed, whole, prepared, monkeypatch):
    """The fastest way, or sweeps over a prepared graph with a dense core."""
    leave_core(monkeypatch)
    for seed in range(3):
        given = graph(kind, directed=directed, whole=whole, seed=seed)
        rng = np.random.default_rng(seed)
        mass = rng.integers(-3, 9, given.n) if seed else rng.random(given.n)
        unit = 1 if whole else 0.02
        radii = [0, 20 * unit, 77.7 * unit]
        edges = [np.arange(3, 300, 9) * unit, np.array([0, 1, 5, 7, 80]) * unit, np.arange(4) * 9.5]
        d = np.asarray(sm.apsp(given))
        values, counts = expected(d, edges[seed], radii, mass)
        asked = sm.prepare(given) if prepared else given
        found = sm.statistics(asked, radius=radii, attribute=mass, bins=edges[seed])
        for name, value in values.items():
            np.testing.assert_allclose(getattr(found, name), value, rtol=1e-12, err_msg=name)
        np.testing.assert_array_equal(found.histogram.counts, counts)
        assert d[found.ends] == pytest.approx(found.diameter)
        assert found.connected == np.isfinite(d).all()


@pytest.mark.parametrize("dtype", ["float32", "float64", "int16", "int64", "bool"])
def test_types_of_weights(dtype):
    given = graph("grid", directed=False, whole=True)
    given = sm.files.Graph(range(given.n), given.row, given.col, given.weight.astype(dtype), False)
    found = sm.statistics(given)
    d = np.asarray(sm.apsp(given))
    np.testing.assert_array_equal(
        found.eccentricity, d.max(axis=1, where=np.isfinite(d), initial=0)
    )
    assert found.eccentricity.dtype == (dtype if dtype[0] == "f" else np.int64)


def inverses(d):
    """Harmonic closeness, of negative distances, too."""
    return np.divide(1, d, out=np.zeros_like(d), where=d != 0).sum(axis=0)


def test_negative_weights():
    weights = {"a": {"b": -2.5, "c": 4}, "b": {"c": 3}, "c": {"a": 1}}
    found = sm.statistics(weights, bins=[-3, 0, 1, 5])
    d = np.asarray(sm.apsp(weights))
    values, counts = expected(d, [-3, 0, 1, 5], [], 0)
    np.testing.assert_array_equal(found.eccentricity, values["eccentricity"])
    np.testing.assert_array_equal(found.histogram.counts, counts)
    whole = {u: {v: int(2 * w) for v, w in x.items()} for u, x in weights.items()}
    assert sm.statistics(whole, "mean").mean_distance == 2 * values["mean_distance"]
    for given in (whole, sm.prepare(whole, dtype="int64"), sm.prepare(whole)):
        doubled = sm.statistics(given, "harmonic").harmonic
        np.testing.assert_allclose(2 * doubled, found.harmonic, rtol=1e-15)
    np.testing.assert_allclose(found.harmonic, inverses(d), rtol=1e-15)
    with pytest.raises(ValueError, match="negative"):
        sm.statistics(weights)
    with pytest.raises(sm.NegativeCycleError):
        sm.statistics({0: {1: 1}, 1: {0: -2}})


@pytest.mark.parametrize("dtype", ["int32", "int64", "float64"])
def test_negative_whole_weights_one_way(dtype, monkeypatch):
    """No path plus a negative weight is none, also through a dense core."""
    leave_core(monkeypatch)
    rng, n = np.random.default_rng(6), 100
    u, v = edges_of("grid", rng, n)
    u, v = np.concatenate([u, v]), np.concatenate([v, u])
    kept = (u % 10 < 5) | (v % 10 >= 5)  # from the left half to the right one only
    u, v, h = u[kept], v[kept], rng.integers(0, 99, n)
    weight = (rng.integers(0, 9, len(u)) + h[v] - h[u]).astype(dtype)
    given = EdgeList(range(n), u, v, weight, True)
    edges = [-90, -20, 0, 5, 60, 200]
    found = sm.statistics(sm.prepare(given, dtype=dtype), bins=edges)
    values, counts = expected(np.asarray(sm.apsp(given)), edges, [], 0)
    for name in ("reached", "mean", "mean_distance"):
        np.testing.assert_allclose(getattr(found, name), values[name], rtol=1e-12, err_msg=name)
    np.testing.assert_array_equal(found.histogram.counts, counts)


def test_the_bin_of_distance_0():
    """Of a node to itself, which does not count; the last bin has both of its edges."""
    weights = {"a": {"b": -2, "c": -1}, "b": {"c": 3}, "c": {"a": 2}}
    d = np.asarray(sm.apsp(weights))
    for edges in ([-3, -1, 0], [-2, 0], [0, 1], [0, 4], [-5, -1], [1, 3]):
        found = sm.statistics(sm.prepare(weights), "histogram", bins=edges)
        np.testing.assert_array_equal(found.histogram.counts, expected(d, edges, [], 0)[1])
        found = sm.statistics(weights, "histogram", bins=edges)
        np.testing.assert_array_equal(found.histogram.counts, expected(d, edges, [], 0)[1])


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_distances_at_the_edges_of_bins(dtype):
    """A quotient that rounds may be in the bin before, or after."""
    for edges in (np.arange(60) * 0.1, np.arange(8, 80) / 7, np.linspace(-0.3, 9.1, 50)):
        near = edges.astype(dtype)
        ends = [np.nextafter(near, np.array(x, dtype)) for x in (-np.inf, np.inf)]
        weight = np.unique(np.concatenate([near, *ends]))
        weight = weight[weight > 0]
        star = EdgeList(range(len(weight) + 1), 0 * np.arange(len(weight)),
                        1 + np.arange(len(weight)), weight, True)  # fmt: skip
        found = sm.statistics(sm.prepare(star), "histogram", bins=edges.astype(dtype))
        expected = np.histogram(weight, edges.astype(dtype))[0]
        np.testing.assert_array_equal(found.histogram.counts, expected)


def test_inverses_are_rounded_once_or_twice():
    """Newton's method goes on until it has all digits."""
    weight = np.random.default_rng(0).integers(1, 1 << 20, 200)
    pairs = EdgeList(range(400), 2 * np.arange(200), 2 * np.arange(200) + 1, weight, False)
    found = sm.statistics(sm.prepare(pairs), "harmonic").harmonic
    np.testing.assert_allclose(found[::2] * weight, 1, rtol=0, atol=2.3e-16)


def test_sums_that_may_not_fit():
    n = 100

    def path(weight):
        given = {i: {i + 1: weight} for i in range(n - 1)}
        return sm.prepare(given, directed=False, dtype="int64")

    net = path(1 << 51)
    with pytest.raises(
        OverflowError, match=r"100 distances of up to .* may add up to more than 64"
    ):
        sm.statistics(net, "mean")
    found = sm.statistics(path(1 << 48), "mean")  # the sum of all is more than 2**63
    assert found.mean_distance == n * (n**2 - 1) // 3 * (1 << 48) / (n * (n - 1))
    with pytest.raises(OverflowError, match="attribute: its sum does not fit 64 bits"):
        sm.statistics(net, "within", radius=1, attribute=[1 << 57] * n)


def test_sums_in_32_bits_are_carried():
    """Where each distance fits, and those of a source do not fit together."""
    n, w = 400, 100_000
    found = sm.statistics(
        sm.prepare({i: {i + 1: w} for i in range(n - 1)}, directed=False), ["mean", "closeness"]
    )
    i = np.arange(n)
    np.testing.assert_array_equal(found.mean, w * (i * (i + 1) + (n - 1 - i) * (n - i)) / 2 / 399)


def test_whole_numbers_of_all_sizes():
    """What 32 bits hold is computed in them; sums of what they do not hold are exact."""
    for scale in (1, 1 << 20, 1 << 40):
        given = {i: {i + 1: scale, i + 2: 3 * scale} for i in range(100)}
        found = sm.statistics(given, ["mean", "eccentricity"], directed=False)
        # from 0 to 99 by 99 short edges, and then by a long one
        assert found.eccentricity[0] == 102 * scale
        assert found.mean[0] == (100 * 101 // 2 + 102) * scale / 101


def test_no_sum_wraps():
    big = 1 << 54
    found = sm.statistics(sm.files.Graph(range(9), *_path(9), np.full(8, big), False), "mean")
    total = 2 * sum(k * (9 - k) for k in range(1, 9)) * big
    assert found.mean_distance == total / 72
    with pytest.raises(OverflowError, match="floating-point"):
        sm.statistics(sm.files.Graph(range(128), *_path(128), np.full(127, 1 << 51), False), "mean")


def _path(n):
    return np.arange(n - 1), np.arange(1, n)


def test_sums_of_floats_are_compensated():
    """A weight of 2^-30 beside one of 2^20 is not lost, however many there are."""
    n = 3000
    weight = np.full(n - 1, 2.0**-30)
    weight[0] = 2.0**20 + 2.0**-31
    net = sm.prepare(sm.files.Graph(range(n), *_path(n), weight, False))
    exact = (n - 1) * (2**51 + 1) + 2 * (n - 1) * (n - 2) // 2
    assert sm.statistics(net, "mean", sources=[0]).mean[0] == exact / 2**31 / (n - 1)


@pytest.mark.parametrize("n", [0, 1, 2])
def test_least_graphs(n):
    found = sm.statistics(np.full((n, n), np.inf), radius=3)
    assert found.eccentricity.tolist() == [0] * n
    assert found.closeness.tolist() == found.harmonic.tolist() == [0] * n
    assert found.histogram.counts.sum() == 0
    assert found.within.shape == (n, 1)
    assert np.isnan(found.mean_distance)
    assert (found.diameter, found.ends) == ((0, (0, 0)) if n else (None, None))


def test_sources_have_the_entries_of_all():
    given = graph("sparse", directed=True, whole=False)
    every, some = sm.statistics(given), sm.statistics(given, sources=[7, 3, 3, 140])
    assert some.nodes == [7, 3, 3, 140]
    for name in ("eccentricity", "closeness", "harmonic", "mean", "reached"):
        # another core is left for few sources: sums of weights have other brackets
        np.testing.assert_allclose(
            getattr(some, name), getattr(every, name)[[7, 3, 3, 140]], rtol=1e-14
        )
    none = sm.statistics(given, sources=[])
    assert len(none.closeness) == 0
    assert none.diameter is None


def test_a_prepared_graph_and_its_new_weights():
    given = graph("grid", directed=False, whole=True)
    net = sm.prepare(given)
    np.testing.assert_array_equal(sm.statistics(net).closeness, sm.statistics(given).closeness)
    net.customize(np.ones(len(given.row)))
    assert sm.statistics(net, "eccentricity").diameter == 22
    with pytest.raises(ValueError, match="min_plus"):
        sm.statistics(sm.prepare(given, semiring="max_min"))


def test_the_automatic_bins_are_round_and_hold_all_pairs():
    for whole in (False, True):
        for directed in (False, True):
            given = graph("sparse", directed=directed, whole=whole)
            found = sm.statistics(given, ["histogram", "eccentricity"], bins=20)
            d = np.asarray(sm.apsp(given))
            other = np.isfinite(d) & ~np.eye(len(d), dtype=bool)
            counts, edges = found.histogram.counts, found.histogram.edges
            np.testing.assert_array_equal(np.histogram(d[other], edges)[0], counts)
            assert counts.sum() == other.sum()
            assert 5 <= len(counts) <= 21
            assert f"{edges[1]:.0e}"[0] in "125"


class Stop(Exception):
    pass


@pytest.mark.parametrize("directed", [False, True])
def test_a_stopped_run_goes_on(tmp_path, monkeypatch, directed):
    from semiring_mm import pool
    from semiring_mm.graphs import statistics as module

    monkeypatch.setattr(pool, "get_num_threads", lambda: 2)  # the more, the larger a batch
    monkeypatch.setattr(module, "_EVERY", 0.0)
    always = property(lambda self: 40, lambda self, batch: None)
    monkeypatch.setattr(SweepCollector, "batch", always, raising=False)
    given, path = graph("sparse", directed=directed, whole=False), tmp_path / "state.npz"
    seen = []

    def stop(done, total):
        seen.append(done)
        if len(seen) == 3:
            raise Stop

    with pytest.raises(Stop):
        sm.statistics(given, tiles=sm.Tiles(out=path, resume=True), progress=stop)
    assert path.exists()
    with pytest.raises(ValueError, match="other work"):
        sm.statistics(given, "mean", tiles=sm.Tiles(out=path, resume=True))
    again = []
    found = sm.statistics(
        given,
        tiles=sm.Tiles(out=path, resume=True),
        progress=lambda done, total: again.append(done),
    )
    assert again[0] > seen[-1]
    assert not path.exists()
    whole = sm.statistics(given)
    for name in ("eccentricity", "closeness", "harmonic", "mean"):
        np.testing.assert_array_equal(getattr(found, name), getattr(whole, name))
    np.testing.assert_array_equal(found.histogram.counts, whole.histogram.counts)


def damaged_states(path):
    """A file's contents with something wrong in them; that is of account, if True."""
    text = path.read_bytes()
    with np.load(path) as file:
        arrays = dict(file)
    for at in np.random.default_rng(1).integers(30, len(text), 40):
        yield text[:at], True
    for at in range(40, len(text), 97):
        yield text[:at] + bytes([text[at] ^ 1]) + text[at + 1 :], False
    for name in ("state", *arrays):
        for x in (np.zeros(3), np.zeros((), object), np.array("[" * 10_000), np.array(b"x")):
            room = io.BytesIO()
            np.savez(room, **(arrays | {name: x}))
            yield room.getvalue(), True
    room = io.BytesIO()
    np.savez_compressed(room, x=np.zeros(1 << 24))
    yield from ((x, True) for x in (b"", b"PK", b"text", room.getvalue()))


def test_a_damaged_state_is_refused(tmp_path, monkeypatch):
    from semiring_mm.graphs import statistics as module

    monkeypatch.setattr(module, "_EVERY", 0.0)
    monkeypatch.setattr(module._State, "remove", lambda self: None)
    given, path = graph("tree", directed=False, whole=True), tmp_path / "state.npz"
    sm.statistics(given, tiles=sm.Tiles(out=path, resume=True))
    text = path.read_bytes()
    for other, must in damaged_states(path):
        path.write_bytes(other)
        error = None
        try:
            module._State(path, state_of(given), TileOptions(out="state.npz", resume=True))
        except ValueError as caught:
            error = str(caught)
        assert error or not must
        assert error is None or ("has changed since" in error and "\n" not in error)
    path.write_bytes(text)
    module._State(path, state_of(given), TileOptions(out="state.npz", resume=True))


def state_of(given):
    """The work whose state the run of a test keeps."""
    from semiring_mm.graphs import statistics as module

    rows = np.arange(given.n)
    asked = module._asked(None, None)
    return module._Work(given, rows, asked, *module._wanted(asked, given.n, 50, None, None))


def test_a_state_of_other_types_is_begun_again(tmp_path, monkeypatch):
    """A seal does not tell who made it: arrays that would not fit are not filled."""
    from semiring_mm.graphs import statistics as module

    monkeypatch.setattr(module, "_EVERY", 0.0)
    monkeypatch.setattr(module._State, "remove", lambda self: None)
    given, path = graph("tree", directed=False, whole=True), tmp_path / "state.npz"
    expected = sm.statistics(given, tiles=sm.Tiles(out=path, resume=True))
    state = module._State(path, state_of(given), TileOptions(out="state.npz", resume=True))
    for change in (
        lambda done, x: (-3, x), lambda done, x: (10**9, x),
        lambda done, x: (done, {name: a.astype(np.int8) for name, a in x.items()}),
    ):  # fmt: skip
        for name, (done, found) in module._State(
            path, state_of(given), TileOptions(out="state.npz", resume=True)
        ).passes.items():
            count, arrays = change(done, found)
            state.keep(name, count, arrays, last=True)
        found = sm.statistics(given, tiles=sm.Tiles(out=path, resume=True))
        np.testing.assert_array_equal(found.closeness, expected.closeness)
        np.testing.assert_array_equal(found.histogram.counts, expected.histogram.counts)


def test_memory_is_not_of_all_pairs(tmp_path):
    import tracemalloc

    n = 20_000
    given = graph("tree", directed=False, whole=True, n=n)
    sm.statistics(graph("tree", directed=False, whole=True, n=50))  # compiles
    tracemalloc.start()
    found = sm.statistics(given, ["eccentricity", "mean", "histogram"])
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.connected
    assert most < 2000 * n  # all pairs in int32 are 80,000 bytes a node


def test_the_table_of_the_nodes():
    found = sm.statistics({"a": {"b": 3}, "b": {"a": 3}}, radius=[1, 5])
    table = found.to_frame()
    assert isinstance(table, pd.DataFrame)
    assert table.loc["b", "closeness"] == pytest.approx(1 / 3)
    assert table["within 5"].tolist() == [2, 2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"what": "pagerank"}, "statistics are eccentricity"),
        ({"what": "within"}, "takes a radius"),
        ({"what": "mean", "radius": 3}, "takes a radius"),
        ({"bins": 0}, "a number from 1"),
        ({"bins": [3, 2]}, "ascending"),
        ({"bins": [1, 1, 2]}, "ascending"),
        ({"bins": [1]}, "ascending"),
        ({"radius": "near"}, "radius"),
        ({"attribute": [1, 2]}, "radius"),
        ({"radius": 1, "attribute": [1, 2, 3]}, "each of the 2 nodes"),
        ({"sources": [5]}, "no node 5"),
        ({"tiles": sm.Tiles(out="state.json")}, r"\.npz"),
        ({"tiles": sm.Tiles(memory="1GB")}, "tiles has no memory here"),
    ],
)
def test_errors(options, message):
    with pytest.raises(ValueError, match=message):
        sm.statistics(np.array([[0.0, 1], [1, 0]]), **options)
