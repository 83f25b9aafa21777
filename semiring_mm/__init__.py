"""Dense linear algebra over any semiring, and all-pairs shortest paths on top of it.

>>> import numpy as np
>>> import semiring_mm as sm
>>> inf = np.inf
>>> sm.apsp(np.array([[0, 3, 8], [inf, 0, 1], [2, inf, 0]]))
array([[0., 3., 4.],
       [3., 0., 1.],
       [2., 5., 0.]])
"""

from .blas import dgemm, dgemv, gemm, gemv, matmul, matrix_power, sgemm, sgemv
from .closures.labelled import LabelledArray, reconstruct_path
from .closures.paths import NegativeCycleError
from .config import show_config
from .cpu.threads import get_num_threads, set_num_threads
from .einsum import einsum
from .graphs.apsp import apsp, closure
from .graphs.inputs import adjacency
from .laws import SemiringLawError
from .semirings import Semiring, semirings
from .strassen import strassen
from .version import __version__

__all__ = [
    "LabelledArray",
    "NegativeCycleError",
    "Semiring",
    "SemiringLawError",
    "__version__",
    "adjacency",
    "apsp",
    "closure",
    "dgemm",
    "dgemv",
    "einsum",
    "gemm",
    "gemv",
    "get_num_threads",
    "matmul",
    "matrix_power",
    "reconstruct_path",
    "semirings",
    "set_num_threads",
    "sgemm",
    "sgemv",
    "show_config",
    "strassen",
]
