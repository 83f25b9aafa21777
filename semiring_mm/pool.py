"""Threads of this package: how many there are, and running tasks on them.

Most of a task is compiled code, which runs without the GIL. :mod:`semiring_mm.cpu.team` has the
workers wait in compiled code, and runs jobs on them without Python.
"""

from __future__ import annotations

import contextlib
import functools
import itertools
import os
import queue
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = [
    "Order", "Worker", "default_threads", "get_num_threads", "hold_at_fork", "lease",
    "limited", "look", "run", "run_on", "run_parts", "set_num_threads", "start_with", "this_thread",
]  # fmt: skip


def hold_at_fork(lock: Any) -> Any:
    """The lock, taken around every fork: no other thread is inside when the memory is copied.

    A child has the forking thread only, so a lock that another thread held would never be released
    there, and what it protects would stay half-changed.
    """
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(
            before=lock.acquire, after_in_parent=lock.release, after_in_child=lock.release
        )
    return lock


_lock = hold_at_fork(threading.Lock())
_threads: int | None = None


class _Here(threading.local):
    """What each thread has of its own."""

    worker: Worker | None = None  # that it is
    busy = False  # whether it runs a task
    failed: Sequence[BaseException] = ()  # tasks of the same run
    news: queue.SimpleQueue[None] | None = None  # for the caller of the same run
    most: int | None = None  # threads that it may use


_here = _Here()


def get_num_threads() -> int:
    """Threads that a large product uses.

    Returns
    -------
    int
        What :func:`set_num_threads` or ``SEMIRING_MM_NUM_THREADS`` has set, else the cores that
        this process may use.
    """
    threads, most = _threads or configured(), _here.most
    return threads if most is None else min(most, threads)


def configured() -> int:
    """Threads of this process, whatever :func:`limited` says."""
    global _threads
    if _threads is None:
        text = os.environ.get("SEMIRING_MM_NUM_THREADS", "")
        if text and not (text.isdigit() and int(text) > 0):
            raise ValueError(f"SEMIRING_MM_NUM_THREADS must be a positive integer, got {text!r}")
        _threads = int(text) if text else default_threads()
    return _threads


@contextlib.contextmanager
def limited(most: int) -> Iterator[None]:
    """Cap the threads that calls of this thread use; other callers compute beside it."""
    before, _here.most = _here.most, most
    try:
        yield
    finally:
        _here.most = before


@functools.cache
def default_threads() -> int:
    """The cores that this process may use, when it is first asked."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def set_num_threads(n: int) -> None:
    """Use `n` threads for large products from now on (default: all cores this process may use).

    The environment variable ``SEMIRING_MM_NUM_THREADS`` sets the number at the first use.

    Parameters
    ----------
    n : int
        At least 1.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> sm.set_num_threads(2)
    """
    global _threads
    if type(n) is not int or n < 1:
        raise ValueError(f"the number of threads must be a positive integer, got {n!r}")
    with _lock:
        _threads = n
        _end_idle()


# --- workers -------------------------------------------------------------------------------------

#: A list with one function, which the first to pop it calls; None: the thread is to end.
Order = list[Callable[[], None] | None]


class Worker:
    """A thread that waits for a task: waking it costs a tenth of what an executor takes.

    A subclass may wait in another way (:func:`start_with`), and take orders of its own there.
    """

    def __init__(self) -> None:
        self._bell: queue.SimpleQueue[None] = queue.SimpleQueue()
        self._order: Order = []
        threading.Thread(target=self._serve, name="semiring_mm", daemon=True).start()

    def order(self, order: Order) -> None:
        """Have a function called, which must not raise.

        The caller may take it out of the list again. The worker has nothing to do then, at once,
        though it may wake later.
        """
        self._order = order
        self.wake()

    def wait(self) -> None:
        """Wait until :meth:`wake` is called. It may return too often, never too seldom."""
        self._bell.get()

    def wake(self) -> None:
        """End :meth:`wait`, also one that begins later."""
        self._bell.put(None)

    def _serve(self) -> None:
        _here.worker = self
        while True:
            self.wait()
            try:
                task = self._order.pop()
            except IndexError:
                continue
            if task is None:
                return
            task()
            del task  # which refers to a caller's arrays


_kind: type[Worker] = Worker
_workers: set[Worker] = set()  # that are not to end
_idle: list[Worker] = []  # those in no lease


def start_with(kind: type[Worker]) -> None:
    """Start workers of a subclass from now on; those of another kind end."""
    global _kind
    if kind is not _kind:
        with _lock:
            _kind = kind
            _end_idle()
            _workers.clear()  # leased ones end when they are given back


def _end_idle() -> None:
    """End all that wait: others are started when they are needed."""
    _workers.difference_update(_idle)  # now, not when they wake: the next call may need as many
    while _idle:
        _idle.pop().order([None])


@contextlib.contextmanager
def lease(count: int) -> Iterator[list[Worker]]:
    """Up to so many workers that have nothing to do, nor have at the end.

    There are none inside a task of :func:`run`.
    """
    workers: list[Worker] = []
    if count > 0 and not _here.busy:
        with _lock, contextlib.suppress(RuntimeError):  # the system starts no more threads
            while len(workers) < count and (_idle or len(_workers) < configured() - 1):
                workers.append(_idle.pop() if _idle else _kind())
                _workers.add(workers[-1])
    try:
        yield workers
    finally:
        with _lock:
            for worker in reversed(workers):
                if worker in _workers and len(_workers) < configured():
                    _idle.append(worker)
                else:
                    _workers.discard(worker)
                    worker.order([None])


def _forget() -> None:
    """Forget the workers in a forked child, which has none of them."""
    _idle.clear()
    _workers.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)


def this_thread() -> Any:
    """An object to keep attributes of this thread in: its :class:`Worker`, if it has one."""
    return _here.worker or _here


# --- tasks ---------------------------------------------------------------------------------------


class _GivenUp(BaseException):
    """Another task of the same run failed."""


def look() -> None:
    """End a task of :func:`run` if another one failed; tasks call this between compiled calls.

    These take a fraction of a second each: Ctrl-C is seen between them.
    """
    if _here.failed:
        raise _GivenUp
    if _here.news is not None:
        _here.news.put(None)


def run(tasks: Sequence[Callable[[], None]], on_done: Callable[[int], None] | None = None) -> None:
    """Run the tasks on all threads, the calling one included; return when all are done.

    `on_done` is called in the calling thread with the number of tasks finished, and while that has
    nothing left to do but wait, each time that another one calls :func:`look`, too. If it, or a
    task, raises (Ctrl-C included), tasks not yet begun are dropped, the running ones are waited
    for, since they write to the caller's memory (those that :func:`look` end soon), and the
    exception goes on.
    """
    if len(tasks) < 2 or get_num_threads() < 2:
        run_on((), tasks, on_done)
        return
    with lease(min(get_num_threads(), len(tasks)) - 1) as workers:
        run_on(workers, tasks, on_done)


def run_parts(
    part: Callable[[int, int], None], count: int, pieces: int,
    on_done: Callable[[int], None] | None = None,
) -> None:  # fmt: skip
    """:func:`run` a function of the first and the last of nearly equal parts of a range.

    `on_done` is told how much of the range is done.
    """
    pieces = min(pieces, count)
    cuts = [count * i // max(pieces, 1) for i in range(pieces + 1)]
    run(
        [functools.partial(part, *ends) for ends in itertools.pairwise(cuts)],
        (lambda done: on_done(cuts[done])) if on_done else None,
    )


def run_on(
    workers: Sequence[Worker], tasks: Sequence[Callable[[], None]],
    on_done: Callable[[int], None] | None = None,
) -> None:  # fmt: skip
    """As :func:`run`, on workers that the caller has leased and this thread."""
    if not workers:
        for done, task in enumerate(tasks, 1):
            task()
            if on_done:
                on_done(done)
        return
    caller = threading.get_ident()
    remaining = list(reversed(tasks))
    finished: list[None] = []
    failed: list[BaseException] = []
    ended: list[None] = []
    news: queue.SimpleQueue[None] = queue.SimpleQueue()

    def work() -> None:
        _here.busy, _here.failed, _here.news = True, failed, news
        try:
            while remaining:
                try:
                    task = remaining.pop()
                except IndexError:
                    return
                task()
                finished.append(None)
                if on_done and threading.get_ident() == caller:
                    on_done(len(finished))
        except BaseException as error:
            failed.append(error)
            remaining.clear()
        finally:
            _here.busy, _here.failed, _here.news = False, (), None

    def help_() -> None:
        work()
        ended.append(None)
        news.put(None)

    orders: list[Order] = [[help_] for _ in workers]
    try:
        for worker, order in zip(workers, orders, strict=True):
            worker.order(order)
        work()
    except BaseException as error:  # Ctrl-C before the first task or after the last one
        failed.append(error)
    remaining.clear()
    begun = len(orders)
    for order in orders:
        with contextlib.suppress(IndexError):
            order.pop()  # not begun: nothing is left to do
            begun -= 1
    while len(ended) < begun:
        try:
            news.get()
            while not news.empty():  # others are not told of again
                news.get()
            if on_done and not failed and len(ended) < begun:
                on_done(len(finished))
        except BaseException as error:  # Ctrl-C: the others give up, and are waited for
            failed.append(error)
    if failed:
        raise failed[0]
    if on_done:
        on_done(len(tasks))
