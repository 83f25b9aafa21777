"""Arguments, as Python or the command line writes them in messages, and what to install."""

from __future__ import annotations

import contextlib
import importlib
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

__all__ = ["install", "integer", "listing", "named", "naming_options", "optional"]

_options: dict[str, str] = {}


def named(argument: str, *value: object) -> str:
    """An argument, or what to write for a value of it.

    Examples
    --------
    >>> def message():
    ...     return f"use a larger {named('tiles.memory')}, or {named('device', 'cpu')}"
    >>> message()
    "use a larger tiles.memory, or device='cpu'"
    >>> with naming_options({"tiles.memory": "--memory-limit", "device": "--device"}):
    ...     message()
    'use a larger --memory-limit, or --device cpu'
    """
    if not value:
        return _options.get(argument, argument)
    written = f"{argument}={value[0]!r}"
    option = _options.get(argument)
    return _options.get(written) or (f"{option} {value[0]}" if option else written)


def integer(value: Any, argument: str, other: str = "") -> int:
    """An argument that is an integer, or, as `other` says in the message, something else.

    Raises
    ------
    TypeError
        For all others, truth values included.

    Examples
    --------
    >>> integer(True, "k", " or None")
    Traceback (most recent call last):
    TypeError: k must be an integer or None, got True
    """
    try:
        if isinstance(value, bool) or str(getattr(value, "dtype", "")).endswith("bool"):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{argument} must be an integer{other}, got {value!r}") from None


def install(extra: str) -> str:
    """The command that installs this package with an extra.

    Examples
    --------
    >>> install("plot")
    'python -m pip install "semiring-mm[plot]"'
    """
    return f'python -m pip install "semiring-mm[{extra}]"'


def optional(module: str, use: str, extra: str, instead: str = "") -> Any:
    """A module of a package that an extra installs; else an error that says what is its use.

    Raises
    ------
    ImportError
        With the command that installs it, and what to do `instead`.
    """
    try:
        return importlib.import_module(module)
    except ImportError as error:
        raise type(error)(f"{use}: {install(extra)}{instead}") from None


def listing(names: Iterable[str]) -> Callable[[], list[str]]:
    """The ``__dir__`` of a public module or class, which shows these names and no others."""
    return sorted(names).copy


@contextlib.contextmanager
def naming_options(options: Mapping[str, str]) -> Iterator[None]:
    """Let messages name options in place of arguments, in all threads of the process.

    Keys are arguments, or such with a value: ``"tiles.resume=True"``.
    """
    before = dict(_options)
    _options.update(options)
    try:
        yield
    finally:
        _options.clear()
        _options.update(before)
