"""Properties that are computed when they are first used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

__all__ = ["cached_property"]

if TYPE_CHECKING:
    from functools import cached_property
else:

    class cached_property:
        """A property that is computed once, without the lock that Python's has before 3.12.

        That lock is one for all instances of a class. A child that is forked while another thread
        holds it waits forever; and threads compute the properties of several instances one by one.
        Threads that compute the same one at once get the value of the first that is done.
        """

        def __init__(self, function: Callable[[Any], Any]) -> None:
            self.function, self.__doc__ = function, function.__doc__

        def __set_name__(self, owner: type, name: str) -> None:
            self.name = name

        def __get__(self, instance: Any, owner: type | None = None) -> Any:
            if instance is None:
                return self
            return vars(instance).setdefault(self.name, self.function(instance))
