"""What rooms above provide to those below, by name: loaded by the first call that needs it.

As :mod:`semiring_mm.engine` knows engines, this module alone knows who works on tiles and who
reads files; verbs and graphs ask for that by its name.
"""

from __future__ import annotations

import importlib
from typing import Any

__all__ = ["HOMES", "provided"]

#: Names, and the modules that have them.
HOMES = {
    "close_tiles": "tiled.solve",  # a closure over tiles
    "multiply_tiles": "tiled.stored",  # a product over tiles
    "sparse_rows": "tiled.sparse",  # rows of a sparse graph's closure in files, or little memory
    "read_graph": "files.formats",  # the graph of a file, of several, or of a table
    "columns_of": "files.formats",  # what a table says of its edges, and their weights
    "Table": "files.tables",  # a table of any library by its columns
}


def provided(name: str) -> Any:
    """What stands under a name of :data:`HOMES`."""
    return getattr(importlib.import_module(f".{HOMES[name]}", __package__), name)
