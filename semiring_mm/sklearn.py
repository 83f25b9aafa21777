"""Nearest neighbours with the interface of scikit-learn: only the import changes.

>>> from semiring_mm.sklearn import NearestNeighbors  # was: from sklearn.neighbors import ...
>>> near = NearestNeighbors(n_neighbors=2, metric="l1").fit([[0.0], [1.0], [5.0]])
>>> distances, indices = near.kneighbors([[1.5]])
>>> indices
array([[1, 0]])
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from . import pool
from .metrics import BuiltIn, Metric
from .naming import integer, listing
from .neighbours import cdist, check_radius, k_least, knn, limit_of, radius_count, without_itself

try:
    from scipy.sparse import csr_matrix
    from sklearn.base import BaseEstimator, ClassNamePrefixFeaturesOutMixin, TransformerMixin
    from sklearn.utils.validation import check_is_fitted, validate_data
except ImportError as error:
    raise ImportError(
        "semiring_mm.sklearn works with scikit-learn (scikit-learn>=1.6 and scipy): "
        'python -m pip install "semiring-mm[sklearn]"'
    ) from error

__all__ = ["KNeighborsTransformer", "NearestNeighbors"]
__dir__ = listing(__all__)

Array = NDArray[Any]

_ENTRIES = 1 << 22  # distances that radius_neighbors looks at together
#: The metrics of which scikit-learn's definition is not SciPy's, which :func:`cdist` has.
_THEIRS = {
    "braycurtis": BuiltIn(
        "braycurtis", "abs(a - b)", final="a / (b + (b == 0))", over="abs(a) + abs(b)",
        rising=False,
    ),
    "cosine": BuiltIn(
        "cosine", "b * a", final="min(max(1 - (a if a == a else 0), 0), 2)", unit=True,
        rising=False,
    ),
}  # fmt: skip


class NearestNeighbors(BaseEstimator):  # type: ignore[misc]
    """Nearest neighbours by brute force, in place of :class:`sklearn.neighbors.NearestNeighbors`.

    Parameters
    ----------
    n_neighbors : int, default 5
        How many :meth:`kneighbors` finds.
    radius : float, default 1.0
        The largest distance of :meth:`radius_neighbors` and :meth:`radius_counts`, at least 0.
    algorithm : {"brute", "auto"}, default "brute"
        The same: the results of brute force.
    metric : str or Metric, default "minkowski"
        As for :func:`semiring_mm.neighbours.cdist`, but for two that are scikit-learn's:
        ``"braycurtis"`` is ``sum(abs(x - y)) / sum(abs(x) + abs(y))``, and 0 of two zero vectors
        (scikit-learn itself takes SciPy's for integers); ``"cosine"`` of a zero vector is 1.
        ``"precomputed"``: a row has the distances to all fitted points, which are a square then.
    p : float, default 2
        Of Minkowski's metric.
    metric_params : dict, optional
        ``{"w": weights}``, of the columns.
    leaf_size : int, default 30
        Not read.
    n_jobs : int, optional
        Threads; None and -1: as many as :func:`semiring_mm.get_num_threads` says; -2: one less.

    Attributes
    ----------
    n_features_in_ : int
        Columns of the fitted points.
    n_samples_fit_ : int
        Their number.

    Notes
    -----
    Of equally near points the one of lower index comes first. Distances of float32 points are
    float32.

    Examples
    --------
    >>> from semiring_mm.sklearn import NearestNeighbors
    >>> near = NearestNeighbors(n_neighbors=1).fit([[0.0, 0.0], [3.0, 4.0]])
    >>> near.kneighbors()  # of the points themselves, each without itself
    (array([[5.],
           [5.]]), array([[1],
           [0]]))
    """

    def __init__(
        self, *, n_neighbors: int = 5, radius: float = 1.0, algorithm: str = "brute",
        metric: str | Metric = "minkowski", p: float = 2,
        metric_params: dict[str, Any] | None = None, leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        self.n_neighbors = n_neighbors
        self.radius: float | None = radius
        self.algorithm = algorithm
        self.metric = metric
        self.p = p
        self.metric_params = metric_params
        self.leaf_size = leaf_size
        self.n_jobs = n_jobs

    def fit(self, X: ArrayLike, y: Any = None) -> NearestNeighbors:
        """Keep the points.

        Parameters
        ----------
        X : array_like, shape (n, columns)
            A point in each row: finite numbers.
        y : object, optional
            Not read.

        Returns
        -------
        NearestNeighbors
            The estimator itself.
        """
        if self.algorithm not in ("auto", "brute"):
            raise ValueError(
                f"algorithm is 'brute' or 'auto', which is the same here, got {self.algorithm!r}"
            )
        self._threads()
        if self.radius is not None:
            _check_radius("radius", self.radius)
        points = validate_data(self, X, dtype="numeric")
        if not self._precomputed:
            cdist(points[:1], points[:1], **self._options())  # refuses what it cannot compute with
        elif points.shape[0] != points.shape[1]:
            raise ValueError(f"Precomputed distances to fit must be square, got {points.shape}")
        self._points, self.n_samples_fit_ = points, len(points)
        return self

    def kneighbors(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None,
        return_distance: bool = True,
    ) -> Any:  # fmt: skip
        """The nearest points of each query.

        Parameters
        ----------
        X : array_like, shape (m, columns), optional
            The queries. Absent: the points themselves, none of which is its own neighbour.
        n_neighbors : int, optional
            Default: that of the estimator.
        return_distance : bool, default True
            Whether distances are returned, too.

        Returns
        -------
        distances : ndarray, shape (m, n_neighbors)
            Only with `return_distance`.
        indices : ndarray of int64, shape (m, n_neighbors)
            Rows of the fitted points, the nearest first.
        """
        queries, own = self._queries(X)
        k = integer(self.n_neighbors if n_neighbors is None else n_neighbors, "n_neighbors")
        n = self.n_samples_fit_
        if not 0 < k <= n - own:
            raise ValueError(
                f"Expected 0 < n_neighbors <= n_samples_fit{' - 1' * own}, but n_neighbors = {k}, "
                f"n_samples_fit = {n}, n_samples = {len(queries)}"
            )
        with self._threads():
            if self._precomputed:
                found = k_least(_checked(queries), k + own)
            else:
                found = knn(queries, self._points, k + own, **self._options())
        if own:
            found = without_itself(np, *found)
        return found if return_distance else found[1]

    def kneighbors_graph(
        self, X: ArrayLike | None = None, n_neighbors: int | None = None,
        mode: str = "connectivity",
    ) -> Any:  # fmt: skip
        """The graph that leads from each query to its nearest points.

        Parameters
        ----------
        X, n_neighbors
            As for :meth:`kneighbors`.
        mode : {"connectivity", "distance"}
            Whether entries are 1 or the distances.

        Returns
        -------
        scipy.sparse.csr_matrix, shape (m, n)
        """
        _check_mode(mode)
        distances, indices = self.kneighbors(X, n_neighbors)
        m, k = indices.shape
        data = distances if mode == "distance" else np.ones((m, k))
        shape = m, self.n_samples_fit_
        return csr_matrix((data.ravel(), indices.ravel(), np.arange(0, m * k + 1, k)), shape)

    def radius_neighbors(
        self, X: ArrayLike | None = None, radius: float | None = None,
        return_distance: bool = True, sort_results: bool = False,
    ) -> Any:  # fmt: skip
        """All points within a distance of each query.

        Parameters
        ----------
        X : array_like, shape (m, columns), optional
            As for :meth:`kneighbors`.
        radius : float, optional
            Default: that of the estimator.
        return_distance : bool, default True
            Whether distances are returned, too.
        sort_results : bool, default False
            By distance; else they are in the order of the points.

        Returns
        -------
        distances : ndarray of ndarray, shape (m,)
            Only with `return_distance`.
        indices : ndarray of ndarray, shape (m,)
        """
        queries, own = self._queries(X)
        r = _check_radius("radius_neighbors", self.radius if radius is None else radius)
        if sort_results and not return_distance:
            raise ValueError("return_distance must be True if sort_results is True.")
        distances, indices = (np.empty(len(queries), object) for _ in range(2))
        step = max(1, _ENTRIES // self.n_samples_fit_)
        for first in range(0, len(queries), step):
            with self._threads():
                block = self._distances(queries[first : first + step])
            limit = limit_of(r, block.dtype)
            for i, row in enumerate(block, first):
                near = row <= limit
                near[i : i + own] = False
                at = np.flatnonzero(near)
                if sort_results:
                    at = at[np.argsort(row[at], kind="stable")]
                distances[i], indices[i] = row[at], at
        return (distances, indices) if return_distance else indices

    def radius_neighbors_graph(
        self, X: ArrayLike | None = None, radius: float | None = None,
        mode: str = "connectivity", sort_results: bool = False,
    ) -> Any:  # fmt: skip
        """The graph that leads from each query to all points within a distance.

        Parameters
        ----------
        X, radius
            As for :meth:`radius_neighbors`.
        mode : {"connectivity", "distance"}
            Whether entries are 1 or the distances.
        sort_results : bool, default False
            Whether entries of a row are ordered by distance; else by the points. Only of distances.

        Returns
        -------
        scipy.sparse.csr_matrix, shape (m, n)
        """
        _check_mode(mode)
        found, indices = self.radius_neighbors(X, radius, sort_results=sort_results)
        ends = np.cumsum([0, *map(len, indices)])
        distances, indices = (np.concatenate(x) for x in (found, indices))
        data = distances if mode == "distance" else np.ones(len(indices))
        return csr_matrix((data, indices, ends), (len(ends) - 1, self.n_samples_fit_))

    def radius_counts(self, X: ArrayLike | None = None, radius: float | None = None) -> Array:
        """How many points lie within a distance of each query.

        Parameters
        ----------
        X, radius
            As for :meth:`radius_neighbors`.

        Returns
        -------
        ndarray of int64, shape (m,)
        """
        queries, own = self._queries(X)
        if own:  # a point need not be at 0 from itself, by a rounding or by the metric
            found = self.radius_neighbors(None, radius, return_distance=False)
            return np.array([len(row) for row in found], np.int64)
        r = _check_radius("radius_counts", self.radius if radius is None else radius)
        with self._threads():
            if self._precomputed:
                near: Array = (_checked(queries) <= r).sum(1)
                return near
            counts: Array = radius_count(queries, self._points, r, **self._options())
        return counts

    def _queries(self, X: ArrayLike | None) -> tuple[Array, bool]:
        """The queries, and whether they are the points themselves."""
        check_is_fitted(self)
        if X is None:
            return self._points, True
        return validate_data(self, X, dtype="numeric", reset=False), False

    @property
    def _precomputed(self) -> bool:
        return isinstance(self.metric, str) and self.metric == "precomputed"

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.pairwise = self._precomputed
        return tags

    def _distances(self, queries: Array) -> Array:
        if self._precomputed:
            return _checked(queries)
        found: Array = cdist(queries, self._points, **self._options())
        return found

    def _options(self) -> dict[str, Any]:
        given = dict(self.metric_params or {})
        if unknown := given.keys() - {"w"}:
            raise ValueError(f"metric_params has {min(unknown)!r}; only 'w', weights, is accepted")
        name = self.metric.lower() if isinstance(self.metric, str) else ""
        return {"metric": _THEIRS.get(name, self.metric), "p": self.p, **given}

    def _threads(self) -> Any:
        jobs = -1 if self.n_jobs is None else integer(self.n_jobs, "n_jobs", " or None")
        most = pool.get_num_threads()
        if jobs == 0:
            raise ValueError(f"n_jobs must be an integer other than 0, or None, got {jobs!r}")
        return pool.limited(max(1, jobs if jobs > 0 else most + 1 + jobs))


class KNeighborsTransformer(
    ClassNamePrefixFeaturesOutMixin,  # type: ignore[misc]
    TransformerMixin,  # type: ignore[misc]
    NearestNeighbors,
):
    """The graph of the nearest points, for estimators that take ``metric="precomputed"``.

    In place of ``sklearn.neighbors.KNeighborsTransformer``.

    Parameters
    ----------
    mode : {"distance", "connectivity"}, default "distance"
        Whether entries are distances, of one neighbour more, since a point is its own; or 1.
    n_neighbors, algorithm, metric, p, metric_params, leaf_size, n_jobs
        As for :class:`NearestNeighbors`.

    Examples
    --------
    >>> from semiring_mm.sklearn import KNeighborsTransformer
    >>> points = [[0.0], [1.0], [5.0]]
    >>> KNeighborsTransformer(n_neighbors=1).fit_transform(points).toarray()
    array([[0., 1., 0.],
           [1., 0., 0.],
           [0., 4., 0.]])
    """

    def __init__(
        self, *, mode: str = "distance", n_neighbors: int = 5, algorithm: str = "brute",
        metric: str | Metric = "minkowski", p: float = 2,
        metric_params: dict[str, Any] | None = None, leaf_size: int = 30,
        n_jobs: int | None = None,
    ) -> None:  # fmt: skip
        super().__init__(
            n_neighbors=n_neighbors, algorithm=algorithm, metric=metric, p=p,
            metric_params=metric_params, leaf_size=leaf_size, n_jobs=n_jobs,
        )  # fmt: skip
        self.mode, self.radius = mode, None

    def fit(self, X: ArrayLike, y: Any = None) -> KNeighborsTransformer:
        """Keep the points, as :meth:`NearestNeighbors.fit` does.

        Parameters
        ----------
        X : array_like, shape (n, columns)
        y : object, optional
            Not read.

        Returns
        -------
        KNeighborsTransformer
            The estimator itself.
        """
        _check_mode(self.mode)
        super().fit(X)
        self._n_features_out = self.n_samples_fit_
        return self

    def transform(self, X: ArrayLike) -> Any:
        """The graph that leads from each query to its nearest points.

        Parameters
        ----------
        X : array_like, shape (m, columns)

        Returns
        -------
        scipy.sparse.csr_matrix, shape (m, n)
        """
        check_is_fitted(self)
        return self.kneighbors_graph(X, self.n_neighbors + (self.mode == "distance"), self.mode)


def _checked(distances: Array) -> Array:
    """Distances as floats, if none is negative."""
    if (distances < 0).any():
        raise ValueError("Negative values in data passed as precomputed distances.")
    return distances if distances.dtype.char in "fd" else distances.astype(np.float64)


def _check_radius(verb: str, r: Any) -> float:
    """A radius, if it is a number of at least 0."""
    if (radius := check_radius(verb, r)) < 0:
        raise ValueError(f"{verb}: the radius is a distance, at least 0, got {r!r}")
    return radius


def _check_mode(mode: str) -> None:
    if mode not in ("connectivity", "distance"):
        raise ValueError(f'mode is "connectivity" or "distance", got {mode!r}')
