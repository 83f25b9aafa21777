"""Products, closures and chains for JAX: with gradients, inside ``jit`` and ``vmap`` on the CPU.

Outside ``jit``, :func:`semiring_mm.matmul` takes JAX arrays as it takes all others, on the CPU and
on CUDA. What is here differentiates besides, and works on traced arrays.

>>> import jax, jax.numpy as jnp
>>> from semiring_mm.jax import matmul
>>> a = jnp.array([[0.0, 3.0], [1.0, 5.0]])
>>> jax.jit(jax.grad(lambda a: matmul(a, a.T, "min_plus").sum()))(a).tolist()
[[4.0, 0.0], [4.0, 0.0]]
"""

try:
    import jax  # noqa: F401
except ImportError as error:
    raise ImportError(
        "semiring_mm.jax works with JAX, which is not here: python -m pip install "
        '"semiring-mm[jax]"'
    ) from error

import semiring_mm as sm

from .. import differentiable
from . import sequences
from .operators import LIBRARY

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
