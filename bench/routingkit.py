"""RoutingKit's customizable contraction hierarchies, from Python.

``ROUTINGKIT`` names a folder with its sources, github.com/RoutingKit/RoutingKit; they are compiled
as its makefile does.
"""

from __future__ import annotations

import ctypes
import functools
import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .measure import Skip

__all__ = ["Net"]

Words = NDArray[np.uint32]

_SOURCES = """customizable_contraction_hierarchy contraction_hierarchy bit_vector bit_select
    id_mapper graph_util timer""".split()
_FLAGS = "-O3 -march=native -ffast-math -DNDEBUG -std=c++17 -fopenmp -shared -fPIC".split()


@functools.cache
def library() -> Any:
    """The functions of routingkit.cpp."""
    root = os.environ.get("ROUTINGKIT")
    if not root:
        raise Skip("ROUTINGKIT does not name a folder with its sources")
    folder = tempfile.TemporaryDirectory()
    own = Path(__file__).with_suffix(".cpp")
    sources = [own, *(Path(root, "src", name + ".cpp") for name in _SOURCES)]
    made = Path(folder.name, "routingkit.so")
    subprocess.run(
        ["g++", *_FLAGS, f"-I{root}/include", *map(str, sources), "-o", str(made)], check=True
    )
    found = ctypes.CDLL(str(made))
    folder.cleanup()  # it is loaded
    found.prepare.restype = ctypes.c_void_p
    return found


def _at(x: Words) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.ctypes.data)


class Net:
    """A hierarchy of arcs, in an order of its nodes."""

    def __init__(self, order: Any, tail: Any, head: Any) -> None:
        order, tail, head = (np.ascontiguousarray(x, np.uint32) for x in (order, tail, head))
        self.n, self.m = len(order), len(tail)
        found = library().prepare(self.n, self.m, _at(order), _at(tail), _at(head))
        self._net = ctypes.c_void_p(found)

    def __del__(self) -> None:
        if hasattr(self, "_net"):
            library().release(self._net)

    def customize(self, weight: Words, threads: int) -> None:
        library().customize(self._net, self.m, _at(weight), threads)

    def distance(self, source: int, target: int) -> int:
        return int(library().distance(self._net, source, target))

    def path(self, source: int, target: int) -> list[int]:
        nodes = np.empty(self.n, np.uint32)
        return nodes[: library().path(self._net, source, target, _at(nodes))].tolist()

    def table(self, sources: Any, targets: Any) -> Words:
        sources, targets = (np.ascontiguousarray(x, np.uint32) for x in (sources, targets))
        out = np.empty((len(sources), len(targets)), np.uint32)
        ends = len(sources), _at(sources), len(targets), _at(targets)
        library().table(self._net, *ends, _at(out))
        return out
