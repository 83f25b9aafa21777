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

import semiring_mm as sm

from .. import differentiable
from . import sequences
from .operators import LIBRARY
from .products import shares  # noqa: F401  (defines the operators)

__all__ = [
    "apsp", "cdist", "chain", "closure", "dtw", "einsum", "matmul", "scan", "sequences",
]  # fmt: skip

apsp = differentiable.bound(LIBRARY, differentiable.apsp, sm.apsp)
cdist = differentiable.bound(LIBRARY, differentiable.cdist, sm.cdist)
chain = differentiable.bound(LIBRARY, differentiable.chain, sm.chain)
closure = differentiable.bound(LIBRARY, differentiable.closure, sm.closure)
dtw = differentiable.bound(LIBRARY, differentiable.dtw, sm.alignment.dtw)
einsum = differentiable.bound(LIBRARY, differentiable.einsum, sm.einsum)
matmul = differentiable.bound(LIBRARY, differentiable.matmul, sm.matmul)
scan = differentiable.bound(LIBRARY, differentiable.scan, sm.scan)
