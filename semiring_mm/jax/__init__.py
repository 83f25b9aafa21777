"""Products, closures and chains for JAX: with gradients, inside ``jit`` and ``vmap`` on the CPU.

Outside ``jit``, :func:`semiring_mm.matmul` takes JAX arrays as it takes all others, on the CPU and
on CUDA. What is here differentiates besides, and works on traced arrays.

>>> import jax, jax.numpy as jnp
>>> from semiring_mm.jax import matmul
>>> a = jnp.array([[0.0, 3.0], [1.0, 5.0]])
>>> jax.jit(jax.grad(lambda a: matmul(a, a.T, "min_plus").sum()))(a).tolist()
[[4.0, 0.0], [4.0, 0.0]]

All of :mod:`semiring_mm.torch` is here, under the same names:

>>> from semiring_mm.jax import apsp, cdist, distances, dtw, einsum, scan
>>> softmax = jax.grad(lambda a: einsum("i->", a, semiring="log_plus"))
>>> softmax(jnp.zeros(2)).tolist()
[0.5, 0.5]
>>> weights = jnp.array([[0, 3, 8], [jnp.inf, 0, 1], [2, jnp.inf, 0]])
>>> jax.grad(lambda w: apsp(w)[0, 2])(weights).tolist()
[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0], [0.0, 0.0, 0.0]]
>>> import semiring_mm as sm
>>> net = sm.prepare({"a": {"b": 3, "c": 8}, "b": {"c": 1}})
>>> total = lambda w: distances(net, w, ["a"], ["b", "c"]).sum()
>>> jax.jit(jax.grad(total))(jnp.array([3.0, 8, 1])).tolist()
[2.0, 0.0, 1.0]
>>> jax.grad(lambda x: scan(x[:, None, None]).sum())(jnp.array([2.0, 3, 5])).tolist()
[19.0, 12.0, 6.0]
>>> jax.grad(lambda x: cdist(x, jnp.zeros((1, 1)))[0, 0])(jnp.array([[3.0]])).tolist()
[[1.0]]
>>> jax.jit(jax.grad(dtw))(jnp.array([0.0, 3, 4]), jnp.array([0.0, 0, 3, 5])).tolist()
[0.0, 0.0, -1.0]
"""

try:
    import jax  # noqa: F401
except ImportError as error:
    raise ImportError(
        "semiring_mm.jax works with JAX, which is not here: python -m pip install "
        '"semiring-mm[jax]"'
    ) from error

from ..differentiable import bind, functions
from ..differentiable.functions import *  # noqa: F403  (for type checkers)
from ..naming import listing
from . import sequences
from .operators import LIBRARY

__all__ = [*functions.__all__, "sequences"]
__dir__ = listing(__all__)
globals().update(bind(__name__, LIBRARY, functions))
