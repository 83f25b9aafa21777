"""Old names that work for one release, with a DeprecationWarning that says what to write."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from os import PathLike
from typing import Any, TypeVar

from .warn import warn

__all__ = ["apart", "deprecated", "renamed"]

F = TypeVar("F", bound=Callable[..., Any])


def deprecated(old: str, new: str) -> None:
    """Warn of an old name."""
    warn(
        f"{old} is deprecated and will be removed in the next release: write {new}",
        DeprecationWarning,
    )


def renamed(**names: str) -> Callable[[F], F]:
    """Accept old keywords, too: ``renamed(start="source")`` is for `start`, now `source`."""

    def change(given: dict[str, Any]) -> dict[str, Any]:
        for old, new in names.items():
            if old in given:
                if new in given:
                    raise TypeError(f"{old} is the old name of {new}: leave it out")
                deprecated(f"{old}=", f"{new}=")
                given[new] = given.pop(old)
        return given

    return _changed(frozenset(names), change)


def apart(**always: Any) -> Callable[[F], F]:
    """Accept the arguments that :class:`semiring_mm.Tiles` has replaced, too.

    `always` are arguments of Tiles that the old ones stand for in any case.
    """

    def decorate(f: F) -> F:
        arrays = "out" in inspect.signature(f).parameters  # an array to write into is no file

        def change(given: dict[str, Any]) -> dict[str, Any]:
            out = given.get("out")
            names = _OLD if not arrays or type(out) is str or hasattr(out, "__fspath__") else _APART
            if names.isdisjoint(given):
                return given
            old = {name: given.pop(name) for name in names & given.keys()}
            if given.get("tiles") is not None:
                raise TypeError(f"{', '.join(sorted(old))}: write them in tiles=sm.Tiles(...)")
            tiles = _tiles(old, always)
            given["tiles"] = tiles or None
            deprecated(
                ", ".join(f"{name}=" for name in sorted(old)) + f" of {f.__name__}",
                f"tiles=sm.{tiles!r}",
            )
            return given

        return _changed(_OLD, change)(f)

    return decorate


_APART = frozenset({"devices", "memory_limit", "checkpoint", "resume"})
_OLD = _APART | {"out"}


def _tiles(old: dict[str, Any], always: dict[str, Any]) -> Any:
    from .tiles import Tiles  # imported lazily: most calls have none

    fields = {"memory" if name == "memory_limit" else name: x for name, x in old.items()}
    place = fields.get("checkpoint")
    if isinstance(place, tuple):
        fields["out"], fields["checkpoint"] = place
    elif isinstance(place, (str, PathLike)):
        fields["out"] = fields.pop("checkpoint")
    if fields.get("out") is not None:
        fields |= always
    else:
        fields.pop("checkpoint", None)  # had no meaning without a file
    return Tiles(**fields)


def _changed(
    old: frozenset[str], change: Callable[[dict[str, Any]], dict[str, Any]]
) -> Callable[[F], F]:
    """A function whose keywords are changed if some of the old ones are among them."""

    def decorate(f: F) -> F:
        @functools.wraps(f)
        def call(*args: Any, **given: Any) -> Any:
            if not old.isdisjoint(given):
                given = change(given)
            return f(*args, **given)

        return call  # type: ignore[return-value]

    return decorate
