"""Every example in a docstring runs and prints what it shows."""

import doctest
import importlib
import importlib.util
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
    "semiring_mm.neighbours",
    "semiring_mm.semirings",
}
#: Modules and packages whose examples need another library.
NEEDS = {
    "torch": "torch", "jax": "jax", "dask": "dask", "csgraph": "scipy", "nx": "networkx",
    "sklearn": "sklearn", "geo": "geopandas", "pandana": "pandas",
    "graphs.inputs": "networkx", "graphs.nearest.nearest": "networkx",
    "graphs.prepared.prepare": "networkx", "graphs.statistics.statistics": "networkx",
    "closures.labelled": "pandas", "LabelledArray": "pandas",
    "plot": "matplotlib", "geo.osm": "osmium",
}  # fmt: skip
WITH_EXAMPLES |= {f"semiring_mm.{name}" for name in ("torch", "jax", "dask")}


@pytest.fixture(autouse=True)
def _as_a_reader_sees_it():
    threads = sm.get_num_threads()
    with np.printoptions(legacy=False):
        yield
    sm.set_num_threads(threads)


def absent(name):
    """The package that examples of a module or class need and that is not installed."""
    for part, package in NEEDS.items():
        needed = f"{name}.".startswith(f"semiring_mm.{part}.")
        if needed and importlib.util.find_spec(package) is None:
            return package
    return None


def examples(module):
    """Those of a module, also of classes that are defined elsewhere and carry its name."""
    finder, name = doctest.DocTestFinder(), module.__name__
    tests = {test.name: test for test in finder.find(module)}
    for value in vars(module).values():
        if isinstance(value, type) and value.__module__ == name:
            found = finder.find(value, f"{name}.{value.__qualname__}", False, vars(module))
            tests |= {test.name: test for test in found}
    return [test for test in tests.values() if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples(name):
    if package := absent(name):
        pytest.skip(f"{package} is not installed")
    tests, runner = examples(importlib.import_module(name)), doctest.DocTestRunner()
    for test in tests:
        if not absent(test.name):
            runner.run(test)
    assert runner.summarize().failed == 0
    if name in WITH_EXAMPLES:
        assert tests


def test_examples_of_classes_are_found():
    found = {test.name for test in examples(sm)}
    assert {"semiring_mm.Semiring", "semiring_mm.Semiring.identities"} <= found


def test_every_public_name_is_documented():
    modules = (sm, sm.alignment, sm.eigenvalues, sm.files, sm.gf2, sm.neighbours, sm.sequences)
    for value, name in ((getattr(x, name), name) for x in modules for name in x.__all__):
        assert value.__doc__, name
        if callable(value) and not isinstance(value, type):
            first = value.__doc__.strip().splitlines()[0]
            assert first.endswith("."), (name, first)
    for name in ("matmul", "gemm", "gemv", "sgemm", "dgemv", "matrix_power", "Semiring"):
        assert ">>>" in getattr(sm, name).__doc__, name
