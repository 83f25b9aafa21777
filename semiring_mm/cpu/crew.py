"""Compiled functions on several threads at once, which wait for work in compiled code.

A thread of :mod:`semiring_mm.pool` needs Python's lock (the GIL) to take a task and to
report it, one after the other: ten microseconds each, which sixteen threads wait for as long as for
a product of 512 x 512. These helpers stay in compiled code. A leader orders some of them, and those
that are awake order others with it; each calls one function with its own arguments. A helper looks
for its next order for a while, then sleeps on a futex (Drepper, 2011). Systems without futexes call
:func:`semiring_mm.pool.run`.
"""

from __future__ import annotations

import ctypes
import functools
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..memory import new_workspace
from .blocks import address
from .compiler import Library, compile_functions, host_target
from .ir import I1, I32, I64, PTR, Function, Value

__all__ = ["Helper", "crew_functions", "helpers", "run"]

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_SLEEP, _WAKE = 128, 129  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
_SPINS = 1000  # looks for an order before a helper sleeps: some ten microseconds

# A helper's slot: its state, on a line of its own; the order and its number in it.
_IDLE, _ORDERED, _TAKEN, _ASLEEP = range(4)
_ORDER, _NUMBER = 64, 72
# An order: counters of helpers ordered and done, on lines of their own, and the function to call.
_NEXT, _DONE, _COUNT, _CALL, _ROWS, _SLOTS = 0, 64, 128, 136, 144, 152
_ARGUMENTS = 7  # addresses in a row; functions that take fewer do not see the rest


def run(
    call: Any, arguments: Sequence[tuple[Any, ...]], found: Sequence[Helper], *, every: bool
) -> None:
    """Call a compiled function at once with each of some tuples of arguments.

    Parameters
    ----------
    call : callable
        A function of :meth:`semiring_mm.cpu.compiler.Library.function` that takes at most seven
        arrays, or bytes.
    arguments : sequence of tuples
        At most one more than helpers.
    found : sequence of Helper
        From :func:`helpers`.
    every : bool
        Whether all calls are to be made; else those of helpers that come too late are left out.
    """
    if _FUTEX is None or len(arguments) < 2:
        pool.run([functools.partial(call, *row) for row in arguments])
        return
    rows = np.zeros((len(arguments), _ARGUMENTS), np.int64)
    rows[:, : len(arguments[0])] = [[_word(x) for x in row] for row in arguments]
    slots = np.array([helper.slot for helper in found[: len(arguments) - 1]], np.int64)
    order = np.zeros(_SLOTS // 8 + 9, np.int64)
    order = order[-order.ctypes.data % 64 // 8 :]
    function = ctypes.cast(call, ctypes.c_void_p).value or 0
    order[_COUNT // 8 :][:4] = len(slots), function, address(rows), address(slots)
    _code().lead(address(order), every)


def _word(x: Any) -> int:
    """The address of an array object, or of bytes, or one that is given."""
    if type(x) is int:
        return x
    if type(x) is not bytes:
        return id(x)
    return ctypes.cast(ctypes.c_char_p(x), ctypes.c_void_p).value or 0


# --- helpers -------------------------------------------------------------------------------------


class Helper:
    """A thread that waits for orders, and memory of its own.

    Attributes
    ----------
    slot : int
        The address at which it is ordered.
    """

    def __init__(self) -> None:
        self._memory = np.zeros(32, np.int64)
        self.slot = self._memory.ctypes.data + -self._memory.ctypes.data % 64
        self._buffer = np.empty(0, np.uint8)
        if _FUTEX is not None:
            threading.Thread(target=self._serve, name="semiring_mm", daemon=True).start()

    def _serve(self) -> None:
        _code().serve(self.slot)

    def workspace(self, size: int) -> NDArray[np.uint8]:
        """As :func:`semiring_mm.memory.workspace`, of this thread."""
        if self._buffer.nbytes < size:
            self._buffer = new_workspace(size)
        return self._buffer

    def end(self) -> None:
        """End the thread, which has no order."""
        if _FUTEX is not None:
            _code().end(self.slot)


_lock = pool.hold_at_fork(threading.Lock())
_idle: list[Helper] = []
_made = 0  # helpers that there are, idle or not


@contextmanager
def helpers(count: int) -> Iterator[list[Helper]]:
    """Up to so many helpers that have nothing to do; none inside a task of ``pool.run``."""
    global _made
    found: list[Helper] = []
    if count > 0 and not pool.busy():
        with _lock:
            while len(found) < count:
                if _idle:
                    found.append(_idle.pop())
                elif _made < pool.configured() - 1:
                    try:
                        found.append(Helper())
                    except RuntimeError:  # the system starts no more
                        break
                    _made += 1
                else:
                    break
    try:
        yield found
    finally:
        with _lock:
            for helper in reversed(found):
                if _made < pool.configured():
                    _idle.append(helper)
                else:
                    helper.end()
                    _made -= 1


def _end_idle() -> None:
    """End all that wait: others are started when they are needed."""
    global _made
    with _lock:
        while _idle:
            _idle.pop().end()
            _made -= 1


def _forget() -> None:
    """Forget the helpers in a forked child, which has none of them."""
    global _made
    _idle.clear()
    _made = 0


pool.when_set(_end_idle)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


# --- compiled ------------------------------------------------------------------------------------


class _Code:
    """The compiled functions; ``serve`` is left only when a helper ends."""

    def __init__(self, library: Library) -> None:
        self.lead = library.function("lead", ctypes.c_void_p, ctypes.c_int64)
        self.serve: Callable[[int], None] = library.function("serve", ctypes.c_void_p)
        self.end: Callable[[int], None] = library.function("end", ctypes.c_void_p)


@functools.cache
def _code() -> _Code:
    return _Code(compile_functions(crew_functions(), host_target()))


def crew_functions() -> list[Function]:
    """Generate ``lead(order, every)``, ``serve(slot)`` and ``end(slot)``."""
    return [_lead(), _serve(), _end()]


def _futex(f: Function, slot: Value, operation: int, value: int) -> None:
    null = f.pointer(0)
    words = [f.const(x or 0, I64) for x in (_FUTEX, operation, value)]
    f.call("syscall", I64, [words[0], slot, words[1], words[2], null])


def _swap(f: Function, slot: Value, old: int, new: int) -> Value:
    """Whether a slot was in the first state; it is in the second one then."""
    pair = f.emit(f"cmpxchg ptr {slot.name}, i32 {old}, i32 {new} acq_rel acquire", I32)
    return f.emit(f"extractvalue {{ i32, i1 }} {pair.name}, 1", I1)


def _command(f: Function, slot: Value, order: Value, number: Value) -> None:
    f.store(order, slot.at(_ORDER), 8)
    f.store(number, slot.at(_NUMBER), 8)
    before = f.emit(f"atomicrmw xchg ptr {slot.name}, i32 {_ORDERED} acq_rel", I32)
    with f.if_(before.cmp("==", _ASLEEP)):
        _futex(f, slot, _WAKE, 1)


def _spread(f: Function, order: Value) -> None:
    """Order helpers until all are."""
    count, slots = f.load(order.at(_COUNT), I64, 8), f.load(order.at(_SLOTS), PTR, 8)
    with f.while_() as done:
        k = f.claim(order.at(_NEXT))
        f.break_if(k.cmp(">=", count), done)
        _command(f, f.load(slots.at(k * 8), PTR, 8), order, k + 1)


def _make(f: Function, order: Value, number: Value) -> None:
    """Make the call of a number."""
    row = f.load(order.at(_ROWS), PTR, 8).at(number * (8 * _ARGUMENTS))
    words = [f.load(row.at(8 * i), PTR, 8) for i in range(_ARGUMENTS)]
    f.invoke_at(f.load(order.at(_CALL), PTR, 8), words)


def _lead() -> Function:
    f = Function("lead", [PTR, I64], opaque=False)
    order, every = f.args
    _spread(f, order)
    _make(f, order, f.const(0, I64))
    count, slots = f.load(order.at(_COUNT), I64, 8), f.load(order.at(_SLOTS), PTR, 8)
    taken = f.var(count)
    with f.loop(0, count) as k:
        late = _swap(f, f.load(slots.at(k * 8), PTR, 8), _ORDERED, _IDLE)
        with f.if_(late):
            taken.set(taken.get() - 1)
            with f.if_(every.cmp("!=", 0)):
                _make(f, order, k + 1)
    f.wait_until(order.at(_DONE), taken.get())
    return f


def _serve() -> Function:
    f = Function("serve", [PTR], opaque=False)
    (slot,) = f.args
    with f.while_() as ended:
        looks = f.var(f.const(0, I64))
        with f.while_() as ordered:
            state = f.emit(f"load atomic i32, ptr {slot.name} acquire, align 4", I32)
            f.break_if(state.cmp("==", _ORDERED), ordered)
            f.pause()
            looks.set(looks.get() + 1)
            with f.if_(looks.get().cmp(">", _SPINS)):
                _swap(f, slot, _IDLE, _ASLEEP)
                _futex(f, slot, _SLEEP, _ASLEEP)  # returns at once where the state is another
        with f.if_(_swap(f, slot, _ORDERED, _TAKEN)):
            order = f.load(slot.at(_ORDER), PTR, 8)
            f.break_if(order.cmp("==", f.pointer(0)), ended)
            _spread(f, order)
            _make(f, order, f.load(slot.at(_NUMBER), I64, 8))
            # another leader may order it as soon as this one sees that it is done
            f.emit(f"atomicrmw xchg ptr {slot.name}, i32 {_IDLE} acq_rel", I32)
            f.claim(order.at(_DONE))
    return f


def _end() -> Function:
    f = Function("end", [PTR])
    _command(f, f.args[0], f.pointer(0), f.const(0, I64))
    return f
