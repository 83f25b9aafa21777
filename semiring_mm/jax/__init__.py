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

from ..naming import listing
from . import sequences
from .chains import chain, scan
from .products import apsp, closure, matmul

__all__ = ["apsp", "chain", "closure", "matmul", "scan", "sequences"]
__dir__ = listing(__all__)
