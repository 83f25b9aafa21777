"""Teams of threads in compiled code: one function on all of them, or programs of many steps.

A worker of :mod:`semiring_mm.pool` needs Python's lock (the GIL) to begin a task and to report it,
one after the other: ten microseconds each, which sixteen threads wait for as long as for a product
of 512 x 512. The workers here wait in compiled code. A leader gives some of them a job, and those
that are awake give it to others; each calls one function with its own arguments. A worker looks for
its next job for a while, then sleeps on a futex (Drepper, 2011). To run a Python task, it returns
from compiled code. Systems without futexes call :func:`semiring_mm.pool.run_on`.

A program is a list of steps that all threads of a team follow without Python. Each step is a call
of a compiled function, with parallel loops of its own.
"""

from __future__ import annotations

import ctypes
import functools
import platform
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import pool
from ..memory import workspace
from .compiler import Library, compile_functions, host_target
from .ir import I1, I32, I64, PTR, Function, Value
from .views import HEAD, address, function_of_arrays

__all__ = ["COUNTERS", "Team", "call_each", "lease", "run_program", "stopped"]

Array = NDArray[Any]

_FUTEX = {"x86_64": 202, "aarch64": 98}.get(platform.machine()) if sys.platform == "linux" else None
_SLEEP, _WAKE = 128, 129  # FUTEX_WAIT_PRIVATE, FUTEX_WAKE_PRIVATE
_SPINS = 1000  # looks for a job before a worker sleeps: some ten microseconds

# A worker's slot: its state, on a line of its own; the job and the number of its call in it.
_IDLE, _ASLEEP, _BUSY, _ORDERED, _CALLED = range(5)  # _ORDERED to a job, _CALLED to Python
_JOB, _NUMBER = 64, 72
# A job: counters of calls given out and done, on lines of their own, and the function to call.
_NEXT, _DONE, _COUNT, _FUNCTION, _ROWS, _SLOTS = 0, 64, 128, 136, 144, 152
_ARGUMENTS = 7  # addresses in a row; functions that take fewer do not see the rest


class _Worker(pool.Worker):
    """A worker that waits in compiled code, where it is given jobs at its `slot`."""

    def __init__(self) -> None:
        self._memory = np.zeros(32, np.int64)
        self.slot = self._memory.ctypes.data + -self._memory.ctypes.data % 64
        super().__init__()

    def wait(self) -> None:
        _compiled("serve")(self.slot)

    def wake(self) -> None:
        _compiled("wake", ctypes.PYFUNCTYPE)(self.slot)


def lease(count: int) -> AbstractContextManager[list[pool.Worker]]:
    """As :func:`semiring_mm.pool.lease`: workers for :func:`call_each` and programs."""
    if _FUTEX is not None and count > 0:
        _compiled("serve")
        pool.start_with(_Worker)
    return pool.lease(count)


def call_each(
    call: Any, arguments: Sequence[tuple[Any, ...]], workers: Sequence[pool.Worker]
) -> None:
    """Call a compiled function at once with each of some tuples of arguments.

    `call` is a function of :meth:`semiring_mm.cpu.compiler.Library.function` that takes at most
    seven arrays, or addresses. There is at most one tuple more than `workers`, which :func:`lease`
    gave. This thread makes the calls of workers that come too late.
    """
    if not workers:
        for row in arguments:
            call(*row)
        return
    workers = workers[: len(arguments) - 1]
    slots = [x.slot for x in workers if isinstance(x, _Worker)]
    if not slots:
        pool.run_on(workers, [functools.partial(call, *row) for row in arguments])
        return
    rows = np.zeros((len(arguments), _ARGUMENTS), np.int64)
    words = [[x if type(x) is int else id(x) for x in row] for row in arguments]
    rows[:, : len(words[0])] = words
    places = np.array(slots, np.int64)
    job = np.zeros(_SLOTS // 8 + 9, np.int64)
    job = job[-job.ctypes.data % 64 // 8 :]
    function = ctypes.cast(call, ctypes.c_void_p).value or 0
    job[_COUNT // 8 :][:4] = len(slots), function, address(rows), address(places)
    _compiled("lead")(address(job))


@functools.cache
def _library() -> Library:
    return compile_functions([_lead(), _serve(), _wake()], host_target())


@functools.cache
def _compiled(name: str, type_: Any = ctypes.CFUNCTYPE) -> Any:
    """A function of one address; of ``PYFUNCTYPE`` it keeps the GIL, as short ones had better."""
    return type_(None, ctypes.c_void_p)(_library().address(name))


def _futex(f: Function, slot: Value, operation: int, value: int) -> None:
    number, *words = [f.const(x or 0, I64) for x in (_FUTEX, operation, value)]
    f.call("syscall", I64, [number, slot, *words, f.pointer(0)])


def _swap(f: Function, slot: Value, old: int, new: int) -> Value:
    """Compare and swap a slot's state; whether it was `old`."""
    pair = f.emit(f"cmpxchg ptr {slot.name}, i32 {old}, i32 {new} acq_rel acquire", I32)
    return f.emit(f"extractvalue {{ i32, i1 }} {pair.name}, 1", I1)


def _set(f: Function, slot: Value, state: int) -> None:
    """Set the state of a slot, and wake a worker that sleeps."""
    before = f.emit(f"atomicrmw xchg ptr {slot.name}, i32 {state} acq_rel", I32)
    with f.if_(before.cmp("==", _ASLEEP)):
        _futex(f, slot, _WAKE, 1)


def _spread(f: Function, job: Value) -> None:
    """Give the job to workers until all have it."""
    count, slots = f.load(job.at(_COUNT), I64, 8), f.load(job.at(_SLOTS), PTR, 8)
    with f.while_() as done:
        k = f.claim(job.at(_NEXT))
        f.break_if(k.cmp(">=", count), done)
        slot = f.load(slots.at(k * 8), PTR, 8)
        f.store(job, slot.at(_JOB), 8)
        f.store(k + 1, slot.at(_NUMBER), 8)
        _set(f, slot, _ORDERED)


def _make(f: Function, job: Value, number: Value) -> None:
    """Make the call of a number."""
    row = f.load(job.at(_ROWS), PTR, 8).at(number * (8 * _ARGUMENTS))
    words = [f.load(row.at(8 * i), PTR, 8) for i in range(_ARGUMENTS)]
    f.invoke_at(f.load(job.at(_FUNCTION), PTR, 8), words)


def _lead() -> Function:
    """Generate ``lead(job)``: give it to the workers, and take part until all is done."""
    f = Function("lead", [PTR], opaque=False)
    (job,) = f.args
    _spread(f, job)
    _make(f, job, f.const(0, I64))
    count, slots = f.load(job.at(_COUNT), I64, 8), f.load(job.at(_SLOTS), PTR, 8)
    with f.loop(0, count) as k:
        late = _swap(f, f.load(slots.at(k * 8), PTR, 8), _ORDERED, _IDLE)
        with f.if_(late):
            _make(f, job, k + 1)
            f.claim(job.at(_DONE))
    f.wait_until(job.at(_DONE), count)
    return f


def _serve() -> Function:
    """Generate ``serve(slot)``: do jobs until the worker is called to a Python task."""
    f = Function("serve", [PTR], opaque=False)
    (slot,) = f.args
    with f.while_() as called:
        looks = f.var(f.const(0, I64))
        with f.while_() as ordered:
            state = f.emit(f"load atomic i32, ptr {slot.name} acquire, align 4", I32)
            f.break_if(state.cmp(">=", _ORDERED), ordered)
            f.pause()
            looks.set(looks.get() + 1)
            with f.if_(looks.get().cmp(">", _SPINS)):
                _swap(f, slot, _IDLE, _ASLEEP)
                _futex(f, slot, _SLEEP, _ASLEEP)  # returns at once where the state is another
        f.break_if(_swap(f, slot, _CALLED, _IDLE), called)
        with f.if_(_swap(f, slot, _ORDERED, _BUSY)):  # else the leader has taken it back
            job = f.load(slot.at(_JOB), PTR, 8)
            _spread(f, job)
            _make(f, job, f.load(slot.at(_NUMBER), I64, 8))
            # another leader may order it as soon as this one sees that it is done
            f.emit(f"atomicrmw xchg ptr {slot.name}, i32 {_IDLE} acq_rel", I32)
            f.claim(job.at(_DONE))
    return f


def _wake() -> Function:
    """Generate ``wake(slot)``: call a worker to Python.

    That is a state of its own, not a job of no function: a worker that was called to a task, which
    was withdrawn, may hear of it while a leader writes its next job.
    """
    f = Function("wake", [PTR])
    _set(f, f.args[0], _CALLED)
    return f


# --- programs ------------------------------------------------------------------------------------

#: Bytes of the counters that a team shares, a cache line each: from the first, each thread takes
#: the next piece of work; the second counts those done; after it, why a program stopped.
COUNTERS = 128
_STOPPED = 72
_PASSED, _PIECE = 32, 40  # in a thread's flags: pieces of the loops passed, and its next one
_NEVER = 1 << 62  # pieces


class Team:
    """Parallel loops of all threads of a team, with a barrier before each.

    All threads run the same code. Any number may take part, and one that comes late finds less to
    do. A thread's workspace begins with `flags`; `claimed` are the shared counters.
    """

    def __init__(self, f: Function, flags: Value, claimed: Value) -> None:
        self.f, self.claimed, self.finished = f, claimed, claimed.at(COUNTERS // 2)
        self._passed, self._piece = flags.at(_PASSED), flags.at(_PIECE)

    def reset(self) -> None:
        """Nothing is done yet."""
        for counter in (self.claimed, self.finished):
            self.f.store(self.f.const(0, I64), counter, 8)

    def join(self) -> None:
        """This thread begins to take part."""
        self.f.store(self.f.const(0, I64), self._passed, 8)
        self.f.store(self.f.claim(self.claimed), self._piece, 8)

    @contextmanager
    def loop(self, pieces: Value) -> Iterator[Value]:
        """Do the body for the pieces that this thread gets, after all of the loops before."""
        f = self.f
        first, piece = f.load(self._passed, I64, 8), f.var(f.load(self._piece, I64, 8))
        last = first + pieces
        with f.if_(piece.get().cmp("<", last)):
            f.wait_until(self.finished, first)
            with f.while_() as done:
                yield piece.get() - first
                f.claim(self.finished)
                piece.set(f.claim(self.claimed))
                f.break_if(piece.get().cmp(">=", last), done)
            f.store(piece.get(), self._piece, 8)
        f.store(last, self._passed, 8)

    def stop(self, what: Value, value: Value) -> None:
        """Let all threads pass the loops that follow; of several calls, the first one counts.

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


def run_program(
    program: NDArray[np.int64], arrays: Sequence[Array], own: int, shared: NDArray[np.uint8],
    workers: Sequence[pool.Worker], buffer: NDArray[np.uint8],
) -> list[NDArray[np.uint8]]:  # fmt: skip
    """Follow a program on the workers and this thread; return each thread's workspace.

    Of each step, `program` has the address of its function, whether it is given Q in place of P,
    and the function's parameters. `arrays` are A, B, C, K, P and Q; a function is called with A, B,
    C, a thread's workspace, parameters, K and P. A workspace has `own` bytes and begins with flags;
    `buffer` is this thread's. `shared` begins with the counters.
    """
    *given, k, p, q = arrays
    shared[: COUNTERS // 2].view(np.int64)[0] = 0
    shared[COUNTERS // 2 : COUNTERS] = 0
    words = [len(program), address(shared), id(q), address(program), program.strides[0]]
    header = np.array(words, np.int64)
    buffers = [buffer, *map(functools.partial(workspace, own), workers)]
    rows = [(*given, x, address(header), k, p) for x in buffers]
    call_each(_program(), rows, workers)
    return buffers


def stopped(shared: NDArray[np.uint8]) -> tuple[int, NDArray[np.uint8]] | None:
    """What a program stopped at, and the bytes of a value; None if it did not."""
    what = int(shared[_STOPPED : _STOPPED + 8].view(np.int64)[0])
    return (what - 1, shared[_STOPPED + 8 : _STOPPED + 16]) if what else None


@functools.cache
def _program() -> Any:
    library = compile_functions([_program_function()], host_target())
    return function_of_arrays(library, "program", ctypes.c_void_p)


def _program_function() -> Function:
    """Generate ``program(A, B, C, workspace, header, K, P)``."""
    f = Function("program", [PTR] * 7, opaque=False)
    *given, workspace, header, k, p = f.args
    count, claimed, q, steps, size = (
        f.load(header.at(8 * i), t, 8) for i, t in enumerate((I64, PTR, PTR, PTR, I64))
    )
    Team(f, f.load(workspace.at(HEAD), PTR, 8), claimed).join()
    with f.loop(0, count) as i:
        step = steps.at(i * size)
        table = f.select(f.load(step.at(8), I64, 8).cmp("!=", 0), q, p)
        f.invoke_at(f.load(step, PTR, 8), [*given, workspace, step.at(16), k, table])
    return f
