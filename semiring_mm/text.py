"""Numbers as text, and docstrings of functions that have another's."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Sequence
from typing import Any

__all__ = ["NumberFormat", "docstring"]


class NumberFormat:
    """Numbers of one table as text: whole ones, or about five digits of the largest."""

    def __init__(
        self, values: Sequence[float], unit: str = "", *, whole: bool | None = None
    ) -> None:
        finite = [abs(value) for value in values if math.isfinite(value)]
        top = max(finite, default=0.0)
        if whole is None:
            whole = all(value == int(value) for value in finite)
        self._large = top >= 1e15  # beyond what a float64 holds exactly
        self._digits = 0 if whole or not top else max(0, 4 - math.floor(math.log10(top)))
        self._unit = f" {unit}" if unit else ""

    def __call__(self, value: float) -> str:
        if not math.isfinite(value):
            return str(value)
        if self._large:
            return f"{value:.5g}{self._unit}"
        return f"{value:,.{self._digits}f}{self._unit}"


def docstring(
    function: Callable[..., Any], source: Callable[..., Any], array: str, home: str
) -> str:
    """The docstring of a function of a library of arrays, from that of the same for NumPy.

    Parameters
    ----------
    function : callable
        Its first line, and what sections it has, are taken from it.
    source : callable
        What its parameters and results, as far as `function` has them, are described by.
    array : str
        What arrays are called: "Tensor".
    home : str
        Where users find `source`.
    """
    own, theirs = _sections(function), _sections(source)
    described = _entries(theirs["Parameters"]) | _entries(own.pop("Parameters", ""))
    heads: dict[str, list[str]] = {}  # what is said of several at once is said once
    for x in inspect.signature(function).parameters.values():
        if x.name in described:
            star = "*" * (x.kind is inspect.Parameter.VAR_POSITIONAL)
            heads.setdefault(described[x.name], []).append(star + x.name)
    text = own.pop("")
    parameters = "".join(f"{', '.join(group)}{rest}" for rest, group in heads.items())
    elsewhere = f"{home}.{source.__name__} : {_ELSEWHERE}\n"
    found = {"Parameters": parameters, "Returns": theirs["Returns"], "See Also": elsewhere, **own}
    assert found.keys() <= set(_SECTIONS), found.keys()
    for name in filter(found.get, _SECTIONS):
        body = re.sub(r":class:`(\w+)`", rf":class:`~{home}.\1`", found[name])
        for word, other in (("array_like", array), ("ndarray", array), ("NumPy's p", "their p")):
            body = body.replace(word, other)
        text += f"\n{name}\n{'-' * len(name)}\n{body}"
    return text


_SECTIONS = "Parameters", "Returns", "Raises", "See Also", "Notes", "References", "Examples"
_ELSEWHERE = "For all libraries, without a gradient; with errors and examples."


def _sections(function: Callable[..., Any]) -> dict[str, str]:
    """What a docstring has under each heading, and before the first."""
    lines = inspect.cleandoc(function.__doc__ or "").splitlines()
    found, name = {"": ""}, ""
    for i, line in enumerate(lines):
        if i + 1 < len(lines) and set(lines[i + 1]) == {"-"}:
            name = line
            found[name] = ""
        elif set(line) != {"-"}:
            found[name] += line + "\n"
    return {name: body.rstrip("\n") + "\n" for name, body in found.items()}


def _entries(body: str) -> dict[str, str]:
    """What follows the name of each parameter."""
    found: dict[str, str] = {}
    for entry in re.split(r"\n(?=\S)", body.rstrip("\n")):
        names = re.match(r"[\w*, ]*\w", entry)
        if names is not None:
            heads = names[0].replace("*", "").split(", ")
            found |= dict.fromkeys(heads, entry[names.end() :] + "\n")
    return found
