"""Hidden Markov models and linear-chain conditional random fields in JAX, with gradients.

The functions of ``semiring_mm.sequences``, on arrays of JAX. A model is trained by its loss:

>>> import jax, jax.numpy as jnp
>>> from semiring_mm.jax import sequences
>>> seen, tags = jnp.zeros((2, 5, 3)), jnp.array([[0, 1, 2, 0, 1], [1, 1, 1, 0, 0]])
>>> loss = lambda a: sequences.crf_loss(seen, a, tags, lengths=jnp.array([5, 3])).sum()
>>> jax.jit(jax.grad(loss))(jnp.zeros((3, 3))).round(4)[0].tolist()
[0.666700005531311, -1.333299994468689, 0.666700005531311]
"""

from __future__ import annotations

from ..differentiable import bind
from ..differentiable import sequences as functions
from ..differentiable.sequences import *  # noqa: F403  (for type checkers)
from ..naming import listing
from .operators import LIBRARY

__all__ = [*functions.__all__]
__dir__ = listing(__all__)
globals().update(bind(__name__, LIBRARY, functions))
