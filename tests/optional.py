"""Packages and files that tests compare with; packages are loaded by their first attribute.

A test that uses one is skipped where it is not installed; a module that uses one at its top level
is skipped whole.
"""

import os
from pathlib import Path

import pytest

DATA = Path(os.environ.get("SEMIRING_MM_DATA", Path(__file__).parents[2] / "shared" / "data"))


class Optional:
    """A module by its name, imported by the first access to an attribute."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(pytest.importorskip(self._name), attribute)


csgraph, sp = Optional("scipy.sparse.csgraph"), Optional("scipy.sparse")
igraph, pd = Optional("igraph"), Optional("pandas")
nx, scipy = Optional("networkx"), Optional("scipy")
pa, pl, pq = Optional("pyarrow"), Optional("polars"), Optional("pyarrow.parquet")


def real_file(name):
    """The path of a file of real networks; the test is skipped where it is absent."""
    path = DATA / name
    if not path.exists():
        pytest.skip(f"{name} is not there; set SEMIRING_MM_DATA to the folder that has it")
    return path
