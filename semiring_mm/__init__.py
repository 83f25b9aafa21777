"""Dense linear algebra over any semiring, and all-pairs shortest paths on top of it.

>>> import numpy as np
>>> import semiring_mm as sm
>>> inf = np.inf
>>> sm.apsp(np.array([[0, 3, 8], [inf, 0, 1], [2, inf, 0]]))
array([[0., 3., 4.],
       [3., 0., 1.],
       [2., 5., 0.]])

The modules `alignment`, `csgraph`, `dask`, `eigenvalues`, `files`, `geo`, `gf2`, `jax`,
`neighbours`, `pandana`, `sequences`, `sklearn` and `torch` are imported when they are first used:
``sm.files.read_graph(path)``. What ``dir(sm)`` does not show is not for users.
"""

import importlib
from typing import TYPE_CHECKING, Any

from .semirings import Semiring, semirings
from .version import __version__

if TYPE_CHECKING:
    from .bits import BitMatrix
    from .blas import dgemm, dgemv, gemm, gemv, matmul, matrix_power, sgemm, sgemv
    from .chains import chain, scan
    from .closures.labelled import LabelledArray, reconstruct_path
    from .closures.paths import NegativeCycleError
    from .config import show_config
    from .graphs.accessibility import accessibility
    from .graphs.apsp import apsp, closure
    from .graphs.explain import Explanation, explain
    from .graphs.flows import Flows, Gravity, flows
    from .graphs.inputs import adjacency
    from .graphs.nearest import Nearest, nearest
    from .graphs.prepared import PreparedGraph, load, prepare
    from .graphs.routes import Paths
    from .graphs.statistics import Histogram, Statistics, statistics
    from .graphs.within import Within, within
    from .laws import SemiringLawError
    from .pool import get_num_threads, set_num_threads
    from .summation import einsum
    from .tiles import Tiles

__all__ = [
    "BitMatrix",
    "Explanation",
    "Flows",
    "Gravity",
    "Histogram",
    "LabelledArray",
    "Nearest",
    "NegativeCycleError",
    "Paths",
    "PreparedGraph",
    "Semiring",
    "SemiringLawError",
    "Statistics",
    "Tiles",
    "Within",
    "__version__",
    "accessibility",
    "adjacency",
    "apsp",
    "chain",
    "closure",
    "dgemm",
    "dgemv",
    "einsum",
    "explain",
    "flows",
    "gemm",
    "gemv",
    "get_num_threads",
    "load",
    "matmul",
    "matrix_power",
    "nearest",
    "prepare",
    "reconstruct_path",
    "scan",
    "semirings",
    "set_num_threads",
    "sgemm",
    "sgemv",
    "show_config",
    "statistics",
    "within",
]

#: Where names are that are imported when they are first used, as the block above says for readers
#: and type checkers. No module has a public name: its import would hide what is meant.
_HOMES = {
    "bits": "BitMatrix",
    "blas": "dgemm dgemv gemm gemv matmul matrix_power sgemm sgemv",
    "chains": "chain scan",
    "closures.labelled": "LabelledArray reconstruct_path",
    "closures.paths": "NegativeCycleError",
    "config": "show_config",
    "graphs.accessibility": "accessibility",
    "graphs.apsp": "apsp closure",
    "graphs.explain": "Explanation explain",
    "graphs.flows": "Flows Gravity flows",
    "graphs.inputs": "adjacency",
    "graphs.nearest": "Nearest nearest",
    "graphs.prepared": "PreparedGraph load prepare",
    "graphs.routes": "Paths",
    "graphs.statistics": "Histogram Statistics statistics",
    "graphs.within": "Within within",
    "laws": "SemiringLawError",
    "pool": "get_num_threads set_num_threads",
    "summation": "einsum",
    "tiles": "Tiles",
}
_HOME = {name: home for home, names in _HOMES.items() for name in names.split()}
#: Modules that are imported when they are first used, and the packages they are for.
_LATER = {
    "alignment": (), "csgraph": ("scipy",), "dask": ("dask", "distributed"), "eigenvalues": (),
    "files": (), "geo": ("geopandas",), "gf2": (), "jax": ("jax",), "neighbours": (),
    "pandana": ("pandas",), "sequences": (), "sklearn": ("sklearn",), "torch": ("torch",),
}  # fmt: skip
#: Deprecated names, and the modules that have them now.
_MOVED = {
    "Eigen": "eigenvalues", "eigen": "eigenvalues", "Metric": "neighbours",
    "argbest": "neighbours", "cdist": "neighbours", "knn": "neighbours",
    "radius_count": "neighbours",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    if name in _HOME:
        found = getattr(importlib.import_module(f".{_HOME[name]}", __name__), name)
        globals()[name] = found  # from now on without this function
        return found
    if name in _LATER:
        return importlib.import_module(f".{name}", __name__)
    if name in _MOVED:
        from .deprecated import deprecated

        deprecated(f"{__name__}.{name}", f"{__name__}.{_MOVED[name]}.{name}")
        return getattr(importlib.import_module(f".{_MOVED[name]}", __name__), name)
    if name == "strassen":
        raise AttributeError(
            "semiring_mm.strassen is a program to read and copy now: apps/strassen.py in the "
            "project's repository has the function"
        )
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    """What is for users; of the modules for other packages those whose package is installed."""
    from importlib.util import find_spec

    there = (name for name, packages in _LATER.items() if all(map(find_spec, packages)))
    return sorted([*__all__, *there])
