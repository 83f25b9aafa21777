"""Rows of labels for many sources: how many of them the registers hold."""

from __future__ import annotations

from .compiler import host_target

__all__ = ["lanes", "vectors"]


def lanes(itemsize: int) -> int:
    """Labels of a vector."""
    return host_target().vector_bytes // itemsize


def vectors() -> int:
    """Vectors of labels that stay in registers."""
    return 8 if host_target().registers >= 32 else 4
