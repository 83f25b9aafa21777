"""Verbs with gradients: rows, and functions of them, once for all libraries that differentiate.

``semiring_mm.torch`` and ``semiring_mm.jax`` make an operator of each row of :data:`.rows.VERBS`,
and have the functions of :mod:`.functions` and :mod:`.sequences`, whose first argument is the
library.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import ModuleType
from typing import Any, Concatenate, ParamSpec, TypeVar, cast

import semiring_mm as public

from ..text import docstring
from ..verb import Library

__all__ = ["bind", "like"]

P = ParamSpec("P")
R = TypeVar("R")


def like(
    source: Callable[..., Any],
) -> Callable[[Callable[Concatenate[Any, P], R]], Callable[P, R]]:
    """A function of a library and of what `source`, the same for NumPy, takes.

    For type checkers it is what :func:`bind` makes of it, without the library.
    """

    def keep(function: Callable[Concatenate[Any, P], R]) -> Callable[P, R]:
        vars(function)["source"] = source
        return cast(Callable[P, R], function)

    return keep


def bind(home: str, library: Library, module: ModuleType) -> dict[str, Any]:
    """The public functions of a module for one library, with docstrings from those for NumPy.

    `home` is where users find them.
    """
    return {name: _bound(home, library, vars(module)[name]) for name in module.__all__}


def _bound(home: str, library: Library, function: Any) -> Callable[..., Any]:
    def call(*args: Any, **named: Any) -> Any:
        return function(library, *args, **named)

    signature, source = inspect.signature(function), function.source
    parameters = [x for name, x in signature.parameters.items() if name != "library"]
    owner = source.__qualname__.rpartition(".")[0]  # of a method
    theirs = "semiring_mm" if function.__name__ in public.__all__ else source.__module__
    theirs = f"semiring_mm.{owner}" if owner else theirs
    call.__doc__ = docstring(function, source, library.ARRAY, theirs)
    call.__name__ = call.__qualname__ = function.__name__
    call.__module__ = home
    vars(call)["__signature__"] = signature.replace(parameters=parameters)
    return call
