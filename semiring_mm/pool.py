"""A small pool of threads that run compiled code without the GIL."""

from __future__ import annotations

import contextlib
import functools
import os
import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

__all__ = [
    "busy", "configured", "default_threads", "get_num_threads", "hold_at_fork", "limited", "look",
    "run", "set_num_threads", "when_set",
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
_idle: list[_Helper] = []
_made = 0  # helpers that there are, idle or not
_inside = threading.local()


def get_num_threads() -> int:
    """Threads that a large product uses.

    Returns
    -------
    int
        What :func:`set_num_threads` or ``SEMIRING_MM_NUM_THREADS`` has set, else the cores that
        this process may use.
    """
    most: int | None = getattr(_inside, "most", None)
    return configured() if most is None else min(most, configured())


def configured() -> int:
    """The same whatever :func:`limited` says."""
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
    before = getattr(_inside, "most", None)
    _inside.most = most
    try:
        yield
    finally:
        _inside.most = before


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
    global _made, _threads
    if type(n) is not int or n < 1:
        raise ValueError(f"the number of threads must be a positive integer, got {n!r}")
    with _lock:
        _threads = n
        ended = _idle.copy()  # others are started when they are needed
        _idle.clear()
        _made -= len(ended)  # now, not when they wake: the next run may need as many new ones
    for helper in ended:
        helper.order(None)
    for end in _endings:
        end()


class _Helper:
    """A thread that waits for something to do: waking it costs a tenth of what an executor takes.

    An order is a list with one function, which the first to come takes out, and a lock to release
    when it has run.
    """

    def __init__(self) -> None:
        self._wake = threading.Lock()
        self._wake.acquire()
        self._order: tuple[list[Callable[[], None]], threading.Lock] | None = None
        threading.Thread(target=self._serve, name="semiring_mm", daemon=True).start()

    def order(self, order: tuple[list[Callable[[], None]], threading.Lock] | None) -> None:
        """Give it something to do, or (None) end it."""
        self._order = order
        self._wake.release()

    def _serve(self) -> None:
        global _made
        wanted = True
        while wanted:
            self._wake.acquire()
            order, self._order = self._order, None  # which refers to a caller's arrays
            if order is not None:
                with contextlib.suppress(IndexError):
                    order[0].pop()()
            with _lock:
                wanted = order is not None and _made < configured()
                if wanted:
                    _idle.append(self)
                elif order is not None:
                    _made -= 1
            if order is not None:
                order[1].release()
            del order


def _helpers(count: int) -> list[_Helper]:
    """Up to so many threads that have nothing to do; fewer where the system starts no more."""
    global _made
    found: list[_Helper] = []
    with _lock, contextlib.suppress(RuntimeError):
        while len(found) < count:
            if _idle:
                found.append(_idle.pop())
            elif _made < configured() - 1:
                found.append(_Helper())
                _made += 1
            else:
                break
    return found


def _forget() -> None:
    """Forget the helpers in a forked child, which has none of them."""
    global _made
    _idle.clear()
    _made = 0


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

_endings: list[Callable[[], None]] = []


def when_set(end: Callable[[], None]) -> None:
    """Call a function whenever :func:`set_num_threads` is: other helpers end then, too."""
    _endings.append(end)


def busy() -> bool:
    """Whether this is inside a task of :func:`run`, beside others."""
    return getattr(_inside, "busy", False)


class _GivenUp(BaseException):
    """Another task of the same run failed."""


def look() -> None:
    """End a task of :func:`run` if another one failed; tasks call this between compiled calls.

    These take a fraction of a second each: Ctrl-C is seen between them.
    """
    if getattr(_inside, "failed", None):
        raise _GivenUp


def run(tasks: Sequence[Callable[[], None]], on_done: Callable[[int], None] | None = None) -> None:
    """Run the tasks on all threads, the calling one included; return when all are done.

    `on_done` is called in the calling thread with the number of tasks finished. If it, or a task,
    raises (Ctrl-C included), tasks not yet begun are dropped, the running ones are waited for,
    since they write to the caller's memory (those that :func:`look` end soon), and the exception
    goes on.
    """
    helpers = min(get_num_threads(), len(tasks)) - 1
    if helpers < 1 or busy():
        for count, task in enumerate(tasks, 1):
            task()
            if on_done:
                on_done(count)
        return
    remaining = list(reversed(tasks))
    finished: list[None] = []
    failed: list[BaseException] = []

    def work() -> None:
        _inside.busy, _inside.failed = True, failed
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
            _inside.busy, _inside.failed = False, None

    def help_(ended: list[None]) -> None:
        work()
        ended.append(None)

    caller = threading.get_ident()
    orders: list[tuple[list[Callable[[], None]], threading.Lock, list[None]]] = []
    for helper in _helpers(helpers):
        done, ended = threading.Lock(), list[None]()
        done.acquire()
        orders.append(([functools.partial(help_, ended)], done, ended))
        helper.order(orders[-1][:2])
    try:
        work()
    except BaseException as error:  # Ctrl-C after the last task
        failed.append(error)
    remaining.clear()
    for order, done, ended in orders:
        if order:  # not begun: nothing is left to do
            with contextlib.suppress(IndexError):
                order.pop()
                continue
        while not ended:
            try:
                done.acquire()
            except BaseException as error:  # Ctrl-C: the others give up, and are waited for
                failed.append(error)
    if failed:
        raise failed[0]
    if on_done:
        on_done(len(tasks))
