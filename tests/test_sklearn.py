"""The estimator in place of scikit-learn's NearestNeighbors, beside it."""

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

pytest.importorskip("sklearn", "1.6")

from sklearn.base import clone
from sklearn.neighbors import NearestNeighbors as Theirs
from sklearn.utils.estimator_checks import check_estimator

import semiring_mm as sm
from semiring_mm.sklearn import NearestNeighbors

RNG = np.random.default_rng(0)
POINTS, QUERIES = RNG.random((200, 5)), RNG.random((30, 5))


@pytest.mark.filterwarnings("ignore")  # of checks that scikit-learn skips itself
def test_scikit_learns_checks():
    results = check_estimator(NearestNeighbors(), on_fail=None)
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
    near = [x.radius_neighbors(queries, sort_results=True) for x in (ours, theirs)]
    for found, expected in zip(*near, strict=True):
        for row, other in zip(found, expected, strict=True):
            assert_allclose(row, other, 1e-12)
    counts = [len(row) for row in near[1][1]]
    assert_array_equal(ours.radius_counts(queries), counts)
    assert [len(x) for x in ours.radius_neighbors(queries, return_distance=False)] == counts


def test_equal_points_are_neighbours_of_each_other():
    near = NearestNeighbors(n_neighbors=2).fit(np.zeros((5, 1)))
    assert_array_equal(near.kneighbors()[1], [[1, 2], [0, 2], [0, 1], [0, 1], [0, 1]])
    assert_array_equal(near.radius_counts(radius=0), [4] * 5)
    cosine = NearestNeighbors(metric="cosine").fit(POINTS)
    assert_array_equal(cosine.radius_counts(radius=0), [0] * 200)


def test_a_metric_of_ones_own_on_one_thread():
    metric = sm.Metric("least", "abs(a - b)", "min(a, b)")
    near = clone(NearestNeighbors(metric=metric, n_neighbors=1, n_jobs=1)).fit(POINTS)
    expected = abs(QUERIES[:, None] - POINTS).min(2).argmin(1)
    assert_array_equal(near.kneighbors(QUERIES)[1][:, 0], expected)


@pytest.mark.parametrize(("message", "call"), [
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
