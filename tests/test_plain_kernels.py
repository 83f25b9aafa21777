"""Kernels of graphs, compiled, against the same text in Python, as they are called."""

import numpy as np
import pytest

from semiring_mm.closures import spanning
from semiring_mm.cpu import codegen
from semiring_mm.cpu import engine as cpu
from semiring_mm.hierarchy import structure
from semiring_mm.semirings import semirings


class Checked:
    """A compiled kernel that runs in Python, too: the arrays are the same afterwards."""

    def __init__(self, kernel):
        self.kernel = kernel

    def __call__(self, **fields):
        copies = {k: x.copy() if isinstance(x, np.ndarray) else x for k, x in fields.items()}
        self.kernel.plain(**copies)
        codegen.compiled(self.kernel)(**fields)
        for name, x in fields.items():
            np.testing.assert_array_equal(x, copies[name], err_msg=f"{self.kernel.name}: {name}")

    def bind(self, **fields):
        return lambda: self(**fields)


@pytest.fixture
def edges():
    row, col = np.random.default_rng(0).integers(0, 70, (2, 150))
    return 70, row[row != col], col[row != col]


def test_eliminations(edges, monkeypatch):
    called = []
    monkeypatch.setattr(structure, "compiled", lambda k: called.append(k.name) or Checked(k))
    monkeypatch.setattr(structure, "_GRANT", 1000)
    n, row, col = edges
    x = structure.prepare_structure(n, row, col, "minimum_degree")
    structure.Structure.checked(x.fringe, x.node, x.parent, x.level, x.first, x.head)
    assert x.schedule[1][-1] == x.fringe
    assert x.above(np.array([3, 9])).max() == n - 1
    assert (x.slots(row, col) >= 0).all()
    assert structure.eliminate(n, row, col).core > 0
    assert called.count("minimum_degree") > 4  # in parts, and the pool of lists becomes full
    kernels = {k for k, x in vars(structure.kernels).items() if hasattr(x, "plain")}
    assert kernels - set(called) == {"append", "link", "unlink", "add_to_struct"}


def test_spanning_forests(edges, monkeypatch):
    called = []
    monkeypatch.setattr(spanning, "compiled", lambda k: called.append(k.name) or Checked(k))
    n, row, col = edges
    a = np.zeros((n, n))
    a[row, col] = a[col, row] = np.random.default_rng(1).integers(1, 30, len(row))
    found = spanning.of_matrix(cpu, semirings["max_min"], a)
    found.rooted()
    assert {*called} == {"grow", "kruskal", "adjacency", "preorder"}
