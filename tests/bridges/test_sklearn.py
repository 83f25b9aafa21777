"""The estimator in place of scikit-learn's NearestNeighbors, beside it."""

import functools

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("sklearn", "1.6")

from scipy.spatial.distance import cdist
from sklearn.base import clone
from sklearn.cluster import DBSCAN
from sklearn.neighbors import KNeighborsTransformer as TheirTransformer
from sklearn.neighbors import NearestNeighbors as Theirs
from sklearn.utils.estimator_checks import check_estimator

import semiring_mm as sm
from semiring_mm import sklearn
from semiring_mm.sklearn import KNeighborsTransformer, NearestNeighbors

RNG = np.random.default_rng(0)
POINTS, QUERIES = RNG.random((200, 5)), RNG.random((30, 5))


@pytest.mark.filterwarnings("ignore")  # of checks that scikit-learn skips itself
@pytest.mark.parametrize("kind", [
    NearestNeighbors, KNeighborsTransformer,
    functools.partial(NearestNeighbors, metric="precomputed"),
])  # fmt: skip
def test_scikit_learns_checks(kind):
    results = check_estimator(kind(), on_fail=None)
    assert len(results) > 30
    assert not [x["check_name"] for x in results if x["status"] == "failed"]


@pytest.mark.parametrize("queries", [None, QUERIES])
@pytest.mark.parametrize("options", [
    {}, {"metric": "l1"}, {"metric": "chebyshev"}, {"p": 3},
    {"metric_params": {"w": np.arange(5.0)}},
])  # fmt: skip
def test_results_are_scikit_learns(options, queries):
    options = {"n_neighbors": 4, "radius": 0.5, "algorithm": "brute"} | options
    ours, theirs = (kind(**options).fit(POINTS) for kind in (NearestNeighbors, Theirs))
    for found, expected in zip(ours.kneighbors(queries), theirs.kneighbors(queries), strict=True):
        assert_allclose(found, expected, 1e-12)
    assert_array_equal(ours.kneighbors(queries, 2, False), theirs.kneighbors(queries, 2, False))
    for mode in ("connectivity", "distance"):
        graphs = (x.kneighbors_graph(queries, mode=mode) for x in (ours, theirs))
        assert_allclose(*(graph.toarray() for graph in graphs), 1e-12)
        graphs = (x.radius_neighbors_graph(queries, mode=mode) for x in (ours, theirs))
        assert_allclose(*(graph.toarray() for graph in graphs), 1e-12)
    near = [x.radius_neighbors(queries, sort_results=True) for x in (ours, theirs)]
    for found, expected in zip(*near, strict=True):
        for row, other in zip(found, expected, strict=True):
            assert_allclose(row, other, 1e-12)
    counts = [len(row) for row in near[1][1]]
    assert_array_equal(ours.radius_counts(queries), counts)
    assert [len(x) for x in ours.radius_neighbors(queries, return_distance=False)] == counts


@pytest.mark.parametrize("metric", ["braycurtis", "cosine"])
@pytest.mark.parametrize("dtype", ["f4", "f8"])
def test_metrics_that_scikit_learn_defines_otherwise_than_scipy(metric, dtype):
    """Of numbers of both signs, and of zero vectors."""
    points = RNG.integers(-2, 3, (60, 3)).astype(dtype)
    points[::7] = 0
    options = {"n_neighbors": 60, "radius": 0.4, "metric": metric, "algorithm": "brute"}
    ours, theirs = (kind(**options).fit(points) for kind in (NearestNeighbors, Theirs))
    queries = points[::-1].copy()  # of the same array a point is at 0 from itself, by definition
    found, expected = (x.kneighbors_graph(queries, mode="distance") for x in (ours, theirs))
    assert_allclose(found.toarray(), expected.toarray(), 1e-6, 1e-6)
    counts = [len(row) for row in theirs.radius_neighbors(queries, return_distance=False)]
    assert_array_equal(ours.radius_counts(queries), counts)


def test_equal_points_are_neighbours_of_each_other():
    near = NearestNeighbors(n_neighbors=2).fit(np.zeros((5, 1)))
    assert_array_equal(near.kneighbors()[1], [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]])
    assert_array_equal(near.radius_counts(radius=0), [4] * 5)
    cosine = NearestNeighbors(metric="cosine").fit(POINTS)
    assert_array_equal(cosine.radius_counts(radius=0), [0] * 200)


def test_a_metric_of_ones_own_on_one_thread():
    metric = sm.neighbours.Metric("least", "abs(a - b)", "min(a, b)")
    near = clone(NearestNeighbors(metric=metric, n_neighbors=1, n_jobs=1)).fit(POINTS)
    expected = abs(QUERIES[:, None] - POINTS).min(2).argmin(1)
    assert_array_equal(near.kneighbors(QUERIES)[1][:, 0], expected)


def test_a_metric_as_scikit_learns_callable():
    """Theirs calls it for each pair; SciPy does, too."""
    metrics = [
        sm.neighbours.Metric("rms", "(a - b) * (a - b)", final="sqrt(a / b)"),
        sm.neighbours.Metric("widest", "abs(a - b)", "max(a, b)"),
        sm.neighbours.Metric("same", "a == b", final="-a"),
    ]
    for metric in metrics:
        theirs = Theirs(n_neighbors=3, algorithm="brute", metric=metric).fit(POINTS)
        ours = NearestNeighbors(n_neighbors=3, metric=metric).fit(POINTS)
        for found, expected in zip(
            theirs.kneighbors(QUERIES), ours.kneighbors(QUERIES), strict=True
        ):
            assert_allclose(found, expected, 1e-12)
        assert_allclose(
            cdist(QUERIES, POINTS, metric), sm.neighbours.cdist(QUERIES, POINTS, metric), 1e-12
        )
    assert (
        metrics[1]([], [])
        == sm.neighbours.cdist(np.empty((1, 0)), np.empty((1, 0)), metrics[1])[0, 0]
    )
    with pytest.raises(ValueError, match=r"two rows of the same length, got shapes \(2,\) and"):
        metrics[0]([1, 2], [1, 2, 3])
    with pytest.raises(TypeError, match="rows are of real numbers, got complex128"):
        metrics[0]([1j], [1])


def test_tables_keep_the_names_of_their_columns():
    pd = pytest.importorskip("pandas")
    points, queries = (pd.DataFrame(x, columns=list("abcde")) for x in (POINTS, QUERIES))
    near = NearestNeighbors(n_neighbors=2).fit(points)
    assert list(near.feature_names_in_) == list("abcde")
    assert_array_equal(near.kneighbors(queries)[1], sm.neighbours.knn(QUERIES, POINTS, 2)[1])
    with pytest.raises(ValueError, match="feature names should match"):
        near.kneighbors(queries[list("bacde")])
    with pytest.warns(UserWarning, match="valid feature names"):
        near.kneighbors(QUERIES)


@pytest.mark.parametrize(("jobs", "most"), [(None, 5), (-1, 5), (-2, 4), (-9, 1), (3, 3), (7, 5)])
def test_jobs_are_threads(jobs, most, monkeypatch):
    seen = []
    near = NearestNeighbors(n_neighbors=1, n_jobs=jobs).fit(POINTS)
    monkeypatch.setattr(
        sklearn,
        "knn",
        lambda *args, **_: seen.append(sm.get_num_threads()) or sm.neighbours.knn(*args),
    )
    sm.set_num_threads(5)
    near.kneighbors(QUERIES)
    assert seen == [most]


@pytest.mark.parametrize(("message", "call"), [
    ("no metric 'euclid'", lambda: NearestNeighbors(metric="euclid").fit(POINTS)),
    ("p must be a number above 0", lambda: NearestNeighbors(p=-1).fit(POINTS)),
    ("a number for each of 5 columns",
     lambda: NearestNeighbors(metric_params={"w": [1, 2]}).fit(POINTS)),
    ("n_jobs must be an integer other than 0", lambda: NearestNeighbors(n_jobs=0).fit(POINTS)),
    ("radius_neighbors: the radius is a number",
     lambda: NearestNeighbors().fit(POINTS).radius_neighbors(QUERIES, "wide")),
    ("radius: the radius is a distance, at least 0, got -1",
     lambda: NearestNeighbors(radius=-1).fit(POINTS)),
    ("radius_neighbors: the radius is a distance, at least 0, got -1",
     lambda: NearestNeighbors().fit(POINTS).radius_neighbors(QUERIES, -1)),
    ("radius_counts: the radius is a distance, at least 0, got -1e-09",
     lambda: NearestNeighbors().fit(POINTS).radius_counts(QUERIES, -1e-9)),
    ("algorithm is 'brute'", lambda: NearestNeighbors(algorithm="kd_tree").fit(POINTS)),
    ("has 'V'; only 'w'", lambda: NearestNeighbors(metric_params={"V": 1}).fit(POINTS)),
    ("n_neighbors <= n_samples_fit, but n_neighbors = 201",
     lambda: NearestNeighbors().fit(POINTS).kneighbors(QUERIES, 201)),
    ("n_samples_fit - 1, but n_neighbors = 200",
     lambda: NearestNeighbors().fit(POINTS).kneighbors(n_neighbors=200)),
    ('mode is "connectivity"', lambda: NearestNeighbors().fit(POINTS).kneighbors_graph(mode="x")),
    ("4 features", lambda: NearestNeighbors().fit(POINTS).kneighbors(QUERIES[:, :4])),
])  # fmt: skip
def test_what_is_refused(message, call):
    with pytest.raises(ValueError, match=message):
        call()


def test_a_number_of_neighbours_is_an_integer():
    with pytest.raises(TypeError, match=r"n_neighbors must be an integer, got 1\.5"):
        NearestNeighbors().fit(POINTS).kneighbors(QUERIES, 1.5)


@pytest.mark.parametrize(("radius", "found"), [(1e300, [0, 1]), (10**40, [0, 1])])
@pytest.mark.filterwarnings("error")
def test_a_radius_beyond_the_dtype_of_the_points(radius, found):
    points = np.array([[0, 1], [1e30, 2]], "f4")
    near = NearestNeighbors(radius=radius, metric="l1").fit(points)
    indices = near.radius_neighbors(points[:1], return_distance=False)
    assert indices[0].tolist() == found
    assert near.radius_counts(points[:1]).tolist() == [len(found)]


@pytest.mark.parametrize("queries", [None, QUERIES])
def test_distances_that_are_known(queries):
    """Results are those from the points, by scikit-learn's estimator and by this one."""
    square = cdist(POINTS, POINTS)
    given = None if queries is None else cdist(queries, POINTS)
    options = {"n_neighbors": 4, "radius": 0.5}
    ours = NearestNeighbors(metric="precomputed", **options).fit(square)
    theirs = Theirs(metric="precomputed", **options).fit(square)
    for found, expected in zip(ours.kneighbors(given), theirs.kneighbors(given), strict=True):
        assert_array_equal(found, expected)
    graphs = (x.radius_neighbors_graph(given, mode="distance") for x in (ours, theirs))
    assert_array_equal(*(graph.toarray() for graph in graphs))
    near = NearestNeighbors(**options).fit(POINTS)
    assert_array_equal(ours.radius_counts(given), near.radius_counts(queries))
    with pytest.raises(ValueError, match="must be square"):
        NearestNeighbors(metric="precomputed").fit(POINTS)
    with pytest.raises(ValueError, match="Negative values"):
        ours.kneighbors(-square)


@pytest.mark.parametrize("mode", ["distance", "connectivity"])
@pytest.mark.parametrize("metric", ["l1", "precomputed"])
def test_graphs_for_other_estimators(mode, metric):
    options = {"mode": mode, "metric": metric, "n_neighbors": 6}
    points = cdist(POINTS, POINTS) if metric == "precomputed" else POINTS
    ours, theirs = KNeighborsTransformer(**options), TheirTransformer(**options)
    graphs = ours.fit_transform(points), theirs.fit_transform(points)
    assert_allclose(*(graph.toarray() for graph in graphs), 1e-12)
    names = ours.get_feature_names_out(), theirs.get_feature_names_out()
    assert_array_equal(*names)
    if mode == "distance":
        labels = (DBSCAN(eps=0.3, metric="precomputed").fit(graph).labels_ for graph in graphs)
        assert_array_equal(*labels)
    with pytest.raises(ValueError, match="mode is"):
        KNeighborsTransformer(mode="near").fit(points)
