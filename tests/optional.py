"""Packages that tests compare with, loaded by the first attribute that a test asks for.

A test that uses one is skipped where it is not installed; a module that uses one at its top level
is skipped whole.
"""

import pytest


class Optional:
    """A module by its name, imported by the first access to an attribute."""

    def __init__(self, name):
        self._name = name

    def __getattr__(self, attribute):
        return getattr(pytest.importorskip(self._name), attribute)


csgraph, sp = Optional("scipy.sparse.csgraph"), Optional("scipy.sparse")
igraph, pd = Optional("igraph"), Optional("pandas")
nx, scipy = Optional("networkx"), Optional("scipy")
