"""Graphs from files: the formats road, transport and matrix collections come in.

`read_graph` is the one entry. Each format is a module with a function `read`, registered in
`formats.py`. Text formats are parsed here, so that a malformed file is refused with its line
number; GraphML, GML and GEXF go through NetworkX, Parquet through PyArrow.
"""

from ..naming import listing
from .file import GraphFileError
from .formats import read_graph
from .graph import Graph, great_circle
from .npy import read_matrix

__all__ = ["Graph", "GraphFileError", "great_circle", "read_graph", "read_matrix"]
__dir__ = listing(__all__)
