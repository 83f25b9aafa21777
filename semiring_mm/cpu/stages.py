"""Work that threads share in stages, and programs of it that a crew follows without Python.

All threads run the same code. They share two counters: one from which each takes the next piece of
work, and one of the pieces done. A stage begins when all pieces of the stages before it are done.
Any number of threads may take part, and one that comes late finds less to do.

A program is a list of steps; each is a call of a compiled function, with stages of its own.
"""

from __future__ import annotations

import ctypes
import functools
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from . import crew
from .blocks import address
from .compiler import compile_functions, host_target
from .ir import I64, PTR, Function, Value
from .views import HEAD

__all__ = ["COUNTERS", "Stages", "follow", "follow_function", "stopped"]

Array = NDArray[Any]

#: Bytes of the counters, a cache line each; behind the second, what a program stopped at.
COUNTERS = 128
_STOPPED = 72
_BEGUN, _PIECE = 32, 40  # in a thread's flags
_NEVER = 1 << 62  # pieces


class Stages:
    """The stages that a thread passes, whose workspace begins with `flags`."""

    def __init__(self, f: Function, flags: Value, claimed: Value) -> None:
        self.f, self.flags, self.claimed = f, flags, claimed
        self.finished = claimed.at(COUNTERS // 2)
        # pieces of the stages passed, and the piece that is this thread's next
        self.begun, self.piece = (f.var(f.load(flags.at(x), I64, 8)) for x in (_BEGUN, _PIECE))

    @staticmethod
    def reset(f: Function, claimed: Value) -> None:
        """Nothing is done yet."""
        for counter in (claimed, claimed.at(COUNTERS // 2)):
            f.store(f.const(0, I64), counter, 8)

    @staticmethod
    def begin(f: Function, flags: Value, claimed: Value) -> None:
        """A thread begins to take part."""
        f.store(f.const(0, I64), flags.at(_BEGUN), 8)
        f.store(f.claim(claimed), flags.at(_PIECE), 8)

    def keep(self) -> None:
        """Keep the state for the next function."""
        for x, at in ((self.begun, _BEGUN), (self.piece, _PIECE)):
            self.f.store(x.get(), self.flags.at(at), 8)

    @contextmanager
    def stage(self, pieces: Value) -> Iterator[Value]:
        """Do the body for the pieces of a stage that this thread gets, after all stages before."""
        f, first = self.f, self.begun.get()
        last = first + pieces
        with f.if_(self.piece.get().cmp("<", last)):
            f.wait_until(self.finished, first)
            with f.while_() as done:
                f.break_if(self.piece.get().cmp(">=", last), done)
                yield self.piece.get() - first
                f.claim(self.finished)
                self.piece.set(f.claim(self.claimed))
        self.begun.set(last)

    def stop(self, what: Value, value: Value) -> None:
        """Let all threads pass the stages that follow; of several, the first one counts.

        Pieces that others have taken by now may still be done.
        """
        f = self.f
        place, word = self.claimed.at(_STOPPED), what + 1
        pair = f.emit(f"cmpxchg ptr {place.name}, i64 0, i64 {word.name} acq_rel acquire", I64)
        first = f.emit(f"extractvalue {{ i64, i1 }} {pair.name}, 0", I64).cmp("==", 0)
        with f.if_(first):
            f.store(value, place.at(8))
        for counter in (self.claimed, self.finished):
            f.emit(f"atomicrmw or ptr {counter.name}, i64 {_NEVER} acq_rel", I64)


def follow(
    program: NDArray[np.int64], arrays: Sequence[Array], own: int, shared: NDArray[np.uint8],
    helpers: Sequence[crew.Helper], buffer: NDArray[np.uint8],
) -> list[NDArray[np.uint8]]:  # fmt: skip
    """Follow a program on all helpers and this thread.

    Parameters
    ----------
    program : array (steps, words)
        Of each step the address of its function, whether it is given Q in place of P, and the
        function's parameters.
    arrays : A, B, C, K, P, Q
        A function is called with A, B, C, a thread's workspace, parameters, K and P.
    own : int
        Bytes of a thread's workspace.
    shared : array of uint8
        Begins with the counters.
    helpers, buffer
        Who takes part, and this thread's workspace.

    Returns
    -------
    list of arrays
        The workspaces, which begin with flags.
    """
    *given, k, p, q = arrays
    shared[: COUNTERS // 2].view(np.int64)[0] = 0
    shared[COUNTERS // 2 : COUNTERS] = 0
    words = [len(program), address(shared), id(q), address(program), program.strides[0]]
    header = np.array(words, np.int64)
    buffers = [buffer, *(helper.workspace(own) for helper in helpers)]
    rows = [(*given, x, address(header), k, p) for x in buffers]
    crew.run(_follow(), rows, helpers, every=False)
    return buffers


def stopped(shared: NDArray[np.uint8]) -> tuple[int, NDArray[np.uint8]] | None:
    """What a program stopped at, and the bytes of a value; None if it did not."""
    what = int(shared[_STOPPED : _STOPPED + 8].view(np.int64)[0])
    return (what - 1, shared[_STOPPED + 8 : _STOPPED + 16]) if what else None


@functools.cache
def _follow() -> Any:
    kinds = [*[ctypes.py_object] * 4, ctypes.c_void_p, *[ctypes.py_object] * 2]
    return compile_functions([follow_function()], host_target()).function("follow", *kinds)


def follow_function() -> Function:
    """Generate ``follow(A, B, C, workspace, header, K, P)``."""
    f = Function("follow", [PTR] * 7, opaque=False)
    *given, workspace, header, k, p = f.args
    count, claimed, q, steps, size = (
        f.load(header.at(8 * i), t, 8) for i, t in enumerate((I64, PTR, PTR, PTR, I64))
    )
    Stages.begin(f, f.load(workspace.at(HEAD), PTR, 8), claimed)
    with f.loop(0, count) as i:
        step = steps.at(i * size)
        table = f.select(f.load(step.at(8), I64, 8).cmp("!=", 0), q, p)
        f.invoke_at(f.load(step, PTR, 8), [*given, workspace, step.at(16), k, table])
    return f
