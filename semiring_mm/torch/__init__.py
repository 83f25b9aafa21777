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

Sums, distances, chains and alignments have gradients, too:

>>> from semiring_mm.torch import apsp, cdist, chain, closure, distances, dtw, einsum, scan
>>> log_a = torch.tensor([[0.0, -1.0]], requires_grad=True)
>>> einsum("ij,jk->", log_a, torch.zeros(2, 1), semiring="log_plus").backward()
>>> log_a.grad  # the softmax
tensor([[0.7311, 0.2689]])
>>> weights = torch.tensor([[0, 3, 8], [torch.inf, 0, 1], [2, torch.inf, 0]], requires_grad=True)
>>> apsp(weights).sum().backward()
>>> weights.grad  # how many shortest paths use an edge
tensor([[0., 3., 0.],
        [0., 0., 3.],
        [3., 0., 0.]])
>>> import semiring_mm as sm
>>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
>>> lengths = torch.tensor([3.0, 8.0, 1.0], requires_grad=True)
>>> distances(net, lengths, ["a"], ["b", "c"]).sum().backward()
>>> lengths.grad  # how many shortest paths use an edge of a sparse network
tensor([2., 0., 1.])
>>> width = torch.tensor([[0.0, 5, 1], [0, 0, 3], [0, 0, 0]], requires_grad=True)
>>> closure(width, "max_min")[0, 2].backward()
>>> width.grad.nonzero()  # the narrowest edge of the widest path
tensor([[1, 2]])
>>> steps = torch.tensor([[[2.0, 0.0], [1.0, 3.0]]] * 3, requires_grad=True)
>>> chain(steps, torch.tensor([0.0, 0.0]), "max_plus")[1].backward()
>>> steps.grad[:, 1, 1]  # the longest way stays at 1
tensor([1., 1., 1.])
>>> factors = torch.tensor([2.0, 3.0, 5.0], requires_grad=True)
>>> scan(factors[:, None, None]).sum().backward()  # 2 + 2 · 3 + 2 · 3 · 5
>>> factors.grad
tensor([19., 12.,  6.])
>>> point = torch.tensor([[3.0, 4.0]], requires_grad=True)
>>> cdist(point, torch.zeros(1, 2)).backward()
>>> point.grad
tensor([[0.6000, 0.8000]])
>>> series = torch.tensor([0.0, 3.0, 4.0], requires_grad=True)
>>> dtw(series, torch.tensor([0.0, 0.0, 3.0, 5.0])).backward()
>>> series.grad  # only the last points differ
tensor([ 0.,  0., -1.])
"""

try:
    import torch  # noqa: F401
except ImportError as error:
    raise ImportError(
        "semiring_mm.torch works with PyTorch, which is not here: python -m pip install "
        '"semiring-mm[torch]"'
    ) from error

from ..differentiable import bind, functions
from ..differentiable.functions import *  # noqa: F403  (for type checkers)
from ..naming import listing
from . import sequences
from .operators import LIBRARY

__all__ = [*functions.__all__, "sequences"]
__dir__ = listing(__all__)
globals().update(bind(__name__, LIBRARY, functions))
