"""Locks that do not stay held in a child when the process forks."""

from __future__ import annotations

import os
from typing import Any

__all__ = ["hold_at_fork"]


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
