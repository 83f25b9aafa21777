"""Products, closures and chains as operators of PyTorch: with gradients, also in ``torch.compile``.

>>> import torch
>>> from semiring_mm.torch import matmul
>>> a = torch.tensor([[0.0, 3.0], [1.0, 5.0]], requires_grad=True)
>>> c = matmul(a, a.T, "min_plus")
>>> c.detach()
tensor([[0., 1.],
        [1., 2.]])
>>> c.sum().backward()
>>> a.grad
tensor([[4., 0.],
        [4., 0.]])
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "semiring_mm.torch works with PyTorch, which is not here: python -m pip install "
        '"semiring-mm[torch]"'
    ) from error

from ..naming import listing
from . import sequences
from .chains import chain, scan
from .products import apsp, closure, matmul

__all__ = ["apsp", "chain", "closure", "matmul", "scan", "sequences"]
__dir__ = listing(__all__)
