"""Every example in a docstring runs and prints what it shows."""

import doctest
import importlib
import pkgutil

import numpy as np
import pytest

import semiring_mm as sm

MODULES = ["semiring_mm"] + [
    info.name
    for info in pkgutil.walk_packages(sm.__path__, "semiring_mm.")
    if not info.name.endswith("__main__")
]
#: Where a reader would miss an example.
WITH_EXAMPLES = {
    "semiring_mm",
    "semiring_mm.blas",
    "semiring_mm.expressions",
    "semiring_mm.semirings",
}
#: Modules and packages whose examples need another library.
NEEDS = {
    "torch": "torch", "jax": "jax", "dask": "dask", "csgraph": "scipy", "nx": "networkx",
    "graphs.inputs": "networkx", "closures.labelled": "pandas", "plot": "matplotlib",
}  # fmt: skip
WITH_EXAMPLES |= {f"semiring_mm.{name}" for name in ("torch", "jax", "dask")}


@pytest.fixture(autouse=True)
def _as_a_reader_sees_it():
    threads = sm.get_num_threads()
    with np.printoptions(legacy=False):
        yield
    sm.set_num_threads(threads)


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    for part, package in NEEDS.items():
        if f"{name}.".startswith(f"semiring_mm.{part}."):
            pytest.importorskip(package)
    module = importlib.import_module(name)
    found = doctest.testmod(module)
    assert found.failed == 0
    if name in WITH_EXAMPLES:
        assert found.attempted > 0


def test_every_public_name_is_documented():
    for name in sm.__all__:
        value = getattr(sm, name)
        assert value.__doc__, name
        if callable(value) and not isinstance(value, type):
            first = value.__doc__.strip().splitlines()[0]
            assert first.endswith("."), (name, first)
    for name in ("matmul", "gemm", "gemv", "sgemm", "dgemv", "matrix_power", "Semiring"):
        assert ">>>" in getattr(sm, name).__doc__, name
