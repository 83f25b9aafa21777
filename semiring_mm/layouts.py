"""Layouts of the arrays that an engine's verbs take: one table, asserted where a verb is called.

A kernel trusts what it is given: a wrong dtype, stride or size would have it read or write foreign
memory. So each verb that :func:`semiring_mm.engine.named` gives out compares its arrays with the
table first. A layout that passed is kept, so a call costs a look-up by dtypes, shapes and strides.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

__all__ = ["LAYOUTS", "LayoutError", "asserted"]

Array = Any

_MODEL = """
    e: T[batch, steps, n] rows
    a: T[batch, max(steps - 1, 0), n, n]
    x: T[batch, n] rows
    end: T[batch, n] rows
    lengths: int64[batch] rows 0..steps
"""
_SYMBOLS = _MODEL.replace(
    "e: T[batch, steps, n] rows",
    """e unless symbols: T[batch, steps, n] rows
    e if symbols: T[letters, n] whole
    symbols: int64[batch, steps] whole 0..letters-1""",
)

#: The arguments of each verb, an array in each line: its name, dtype and axes, how they lie, and
#: the least and greatest of its entries.
#:
#: A letter in place of a dtype stands for one dtype of all arguments that have it: T and U for any,
#: N for any in either byte order, F for a float of 4 or 8 bytes, I for an integer of these. An axis
#: is a size, which a name stands for in all arguments that have it, a formula of such names, or
#: ``*`` for any; ``?``: the axis may be left out, by all arguments. Rows are contiguous where their
#: last axis is, matrices where the last two are, and the whole where it is in C's order; else any
#: strides will do. ``|``: one of several. An argument may be None where it is by default.
#: ``name if flag``: in calls with this flag, or argument; ``unless``: in others. ``less name``:
#: bounds are for the sum of the entries and those of another argument.
LAYOUTS = {
    "align": """
        table: F[letters, letters] whole
        x.entries if table: int32[entries] whole 0..letters-1
        x.entries unless table: F[entries, features] whole | int32[entries] whole
        y.entries if table: int32[others] whole 0..letters-1
        y.entries unless table: F[others, features] whole | int32[others] whole
        x.starts: int64[pairs] whole 0..entries
        y.starts: int64[pairs] whole 0..others
        x.lengths: int64[pairs] whole 0..entries less x.starts
        y.lengths: int64[pairs] whole 0..others less y.starts""",
    "apply": "x: F[rows, columns]\nother: F[rows, columns] | number",
    "best_outside": """
        group: int32[n] whole
        a: T[n, n] rows
        rows: int32[count] whole 0..n-1
        at: int32[count] whole
        value: T[count] whole""",
    "between": """
        place: int32[n] whole 0..n-1
        gaps: T[max(n - 1, 0)] whole
        rows: int32[count] whole 0..n-1
        out: T[count, n] rows""",
    "chains.best_path": f"""
        path: int32[batch, steps] whole
        score: T[batch] whole{_SYMBOLS}""",
    "chains.best_paths": f"""
        paths: int32[batch, k, steps] rows
        scores: T[batch, k]{_MODEL}""",
    "chains.carry": """
        a: T[batch, steps, n, n]
        y if every: T[batch, steps, rows, n] rows
        y unless every: T[batch, 1, rows, n] rows
        x: T[batch, rows, n] rows
        e: T[batch, steps, n] rows
        lengths: int64[batch] rows 0..steps""",
    "chains.draw": f"""
        paths: int32[samples, batch, steps] rows
        uniforms: *[samples, batch, steps] rows{_MODEL}""",
    "chains.first": "start: T[batch, n]\ne: T[batch, n]",
    "chains.posterior": f"""
        total: T[batch]
        out: T[batch, steps, n] whole
        pairs: T[batch, *, n, n] matrices{_SYMBOLS.replace("n, n]", "n, n] rows")}""",
    "closure_batch": """
        a: T[batch?, n, n]
        out: T[batch?, n, n]
        predecessors: int32[batch?, n, n]""",
    "closure_block": "a: T[n, n]\npredecessors: int32[n, n]",
    "copy": "x: N[...]\nto: N[...]",
    "csr_product": """
        c: T[m, columns]
        b: T[k, columns]
        indptr unless trans: I[m + 1]
        indptr if trans: I[k + 1]
        data: T[entries]
        indices: I[entries]""",
    "dia_product": """
        c: T[m, columns]
        b: T[k, columns]
        data: T[diagonals, *]
        offsets: I[diagonals]""",
    "doubtful": "d: T[rows, n]\np: int32[rows, n]",
    "facts": "x: T[...]",
    "facts_beside": "x: T[...]",
    "fill": "x: T[...] whole",
    "gemv": "y: T[batch?, m]\na: T[batch?, m, k]\nx: T[k]",
    "log_shares": """
        g: T[batch, m, n]
        c: T[batch, m, n]
        a: T[batch, m, k]
        b: T[batch, k, n]
        left: T[batch, m, k]
        right: T[batch, k, n]""",
    "mirror": "x: T[n, n]",
    "pack_bits": "x: bool[...]",
    "product": """
        c: T[batch?, m, n]
        a: T[batch?, m, k]
        b: T[batch?, k, n]
        arg: int32[batch?, m, n]
        gather: int32[k, n]""",
    "product_bits": """
        n: int
        c: uint8[batch?, m, -(-n // 8)] rows
        b: uint8[batch?, k, -(-n // 8)] rows
        a: uint8[batch?, m, -(-k // 8)] rows""",
    "reduce_bits": "rows: uint8[count, width]\ncolumns: int 0..8*width",
    "Screen": "x: T[m, width]\ny: T[n, width]",
    "select.finish": "value: T[rows, k] whole\nindex: int64[rows, k] whole",
    "select.put": """
        value: T[rows, k] whole
        index: int64[rows, k] whole
        tile: U[rows, columns] rows""",
    "Sieve": "x: T[m, width]\ny: T[n, width]",
    "symmetric": "x: T[n, n]",
    "towards": """
        forest.order: int32[n] whole 0..n-1
        forest.up: int32[n] whole -1..n-1
        forest.last: int32[n] whole 0..n
        rows: int32[count] whole 0..n-1
        out: int32[count, n] rows""",
    "trees.predecessors": """
        p: int32[batch?, n, n]
        weights: T[batch?, n, n]
        closed: T[batch?, n, n]""",
}

_FLOATS, _WHOLE = frozenset({"float32", "float64"}), frozenset({"int32", "int64"})
_DTYPES = {"T": None, "U": None, "N": None, "*": None, "F": _FLOATS, "I": _WHOLE}
_KEPT = 4096  # layouts of a verb


class LayoutError(ValueError):
    """An array that a verb of an engine was called with does not lie as the verb reads it."""


@dataclass(frozen=True)
class _Form:
    """One of the ways in which an argument may lie."""

    text: str
    dtype: str
    axes: tuple[str, ...]
    lies: str

    def takes(self, x: Any, sizes: dict[str, Any]) -> bool:
        """Whether an argument has this form; new names are added to the sizes."""
        if self.dtype == "int":  # as whose value the layout is kept
            return type(x) is int
        if self.dtype == "number":
            return isinstance(x, (int, float, np.generic))
        if not hasattr(x, "strides") or not self._has_dtype(x.dtype, sizes):
            return False
        axes, shape = self.axes, x.shape
        if axes == ("...",):
            return bool(sizes.setdefault("...", shape) == shape) and self._lies(x)
        if axes[0].endswith("?"):
            there = len(shape) == len(axes)
            if sizes.setdefault(axes[0], there) != there:
                return False
            axes = (axes[0][:-1], *axes[1:]) if there else axes[1:]
        return (
            len(shape) == len(axes)
            and all(_size(axis, size, sizes) for axis, size in zip(axes, shape, strict=True))
            and self._lies(x)
        )

    def _has_dtype(self, dtype: np.dtype[Any], sizes: dict[str, Any]) -> bool:
        name, accepted = dtype.name, _DTYPES.get(self.dtype, {self.dtype})
        if not (dtype.isnative or self.dtype == "N") or (accepted and name not in accepted):
            return False
        return self.dtype not in _DTYPES or bool(sizes.setdefault(self.dtype, name) == name)

    def _lies(self, x: Array) -> bool:
        counted = {"": 0, "rows": 1, "matrices": 2, "whole": x.ndim}[self.lies]
        step = x.dtype.itemsize
        for size, stride in list(zip(x.shape, x.strides, strict=True))[::-1][:counted]:
            if size > 1 and stride != step and 0 not in x.shape:
                return False
            step *= size
        return True


def _size(axis: str, size: int, sizes: dict[str, Any]) -> bool:
    """Whether an axis has its size, which a new name receives."""
    if axis.isidentifier():
        return bool(sizes.setdefault(axis, size) == size)
    return axis == "*" or bool(_value(axis, sizes) == size)


def _value(formula: str, sizes: Mapping[str, Any]) -> Any:
    return eval(_code(formula), {"max": max}, sizes)


@functools.cache
def _code(formula: str) -> Any:
    return compile(formula, "<layout>", "eval")


class _Row(NamedTuple):
    """A line of the table."""

    name: str
    flag: str  # it is for calls with it, or "not" with others; or empty
    forms: tuple[_Form, ...]
    bounds: tuple[str, str] | None


_LINE = re.compile(r"([\w.]+)(?: (if|unless) (\w+))?: (.*?)(?: (\S+)\.\.(\S.*))?")
_FORM = re.compile(r"([\w*]+)(?:\[(.*)\])? ?(\w*)")


def _rows(verb: str) -> list[_Row]:
    rows = []
    for line in LAYOUTS[verb].strip().splitlines():
        name, when, flag, text, *bounds = _LINE.fullmatch(line.strip()).groups()  # type: ignore[union-attr]
        forms = []
        for form in text.split(" | "):
            dtype, axes, lies = _FORM.fullmatch(form).groups()  # type: ignore[union-attr]
            forms.append(_Form(form, dtype, tuple(re.split(r", (?![^(]*\))", axes or "")), lies))
        flag = {"if": flag, "unless": f"not {flag}"}.get(when, "")
        rows.append(_Row(name, flag, tuple(forms), None if bounds[0] is None else tuple(bounds)))
    return rows


def asserted(verb: str, member: Any) -> Any:
    """A member of an engine whose verbs compare their arrays with the table.

    Parameters
    ----------
    verb : str
        The name by which an engine is asked for it.
    member : object
    """
    if member is None or isinstance(member, _Verbs) or hasattr(member, "layouts"):
        return member
    if verb in LAYOUTS:
        return _checked(verb, member)
    inner = [name for name in LAYOUTS if name.startswith(f"{verb}.")]
    return _Verbs(member, inner) if inner else member


class _Verbs:
    """Several verbs under one name; its own module calls them as they are."""

    def __init__(self, module: Any, names: list[str]) -> None:
        self._module = module
        for name in names:
            inner = name.partition(".")[2]
            setattr(self, inner, _checked(name, getattr(module, inner)))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)


def _checked(verb: str, member: Callable[..., Any]) -> Callable[..., Any]:
    parameters = list(inspect.signature(member).parameters)
    rows = _rows(verb)
    flags = {row.flag.removeprefix("not ") for row in rows if row.flag}
    names = list(dict.fromkeys([*(row.name for row in rows), *sorted(flags)]))
    places = []
    for name in names:
        argument, _, attribute = name.partition(".")
        places.append((parameters.index(argument), argument, attribute))
    kept: dict[Any, list[_Bound]] = {}

    @functools.wraps(member, updated=())  # of a class no members
    def call(*args: Any, **options: Any) -> Any:
        given: list[Any] = []
        layout: list[Any] = []
        for place, argument, attribute in places:
            x: Any = args[place] if place < len(args) else options.get(argument)
            if attribute:
                x = getattr(x, attribute)
            given.append(x)
            if x is None:
                layout.append(None)
            elif hasattr(x, "strides"):
                layout += x.dtype, x.shape, x.strides
            else:
                layout.append(x if type(x) in (int, bool) else type(x))
        key = tuple(layout)
        bounds = kept.get(key)
        if bounds is None:
            if len(kept) >= _KEPT:
                kept.clear()
            bounds = kept[key] = _compare(verb, rows, dict(zip(names, given, strict=True)))
        for bound in bounds:
            bound.check(verb, given)
        return member(*args, **options)

    vars(call)["layouts"] = verb
    return call


def _compare(verb: str, rows: list[_Row], given: dict[str, Any]) -> list[_Bound]:
    """What the entries of arguments are to be compared with; LayoutError for one that differs."""
    sizes: dict[str, Any] = {}
    bounds, names = [], list(given)
    for row in rows:
        x, flag = given[row.name], row.flag.removeprefix("not ")
        if x is None or (flag and _is_set(given[flag]) == (flag != row.flag)):
            continue
        for form in row.forms:
            trial = dict(sizes)
            if form.takes(x, trial):
                break
        else:
            accepted = " or ".join(form.text for form in row.forms)
            where = f", where {text}" if (text := _shown(sizes)) else ""
            came = f"a {type(x).__name__}"
            if hasattr(x, "strides"):
                came = f"{x.dtype} of shape {x.shape} with strides {x.strides}"
            raise LayoutError(f"engine.{verb}: {row.name} is {came}; accepted: {accepted}{where}")
        sizes = trial
        if form.dtype == "int":
            sizes[row.name] = x
        if row.bounds:
            low, (high, _, less) = row.bounds[0], row.bounds[1].partition(" less ")
            place = names.index(less) if less else None
            limits = int(_value(low, sizes)), int(_value(high, sizes))
            bounds.append(_Bound(row.name, names.index(row.name), *limits, place))
    return bounds


def _is_set(x: Any) -> bool:
    """Whether a flag is, or an argument was given."""
    return x is not None and x is not False


def _shown(sizes: dict[str, Any]) -> str:
    shown = ((k, v) for k, v in sizes.items() if k.isidentifier())
    return ", ".join(f"{name} = {value}" for name, value in shown)


class _Bound(NamedTuple):
    """The least and greatest of an argument's entries, less those of another one."""

    name: str
    place: int
    low: int
    high: int
    less: int | None

    def check(self, verb: str, given: list[Any]) -> None:
        x, high = given[self.place], self.high
        if not isinstance(x, (np.ndarray, int)) or not np.size(x):
            return  # what is on a device would have to be waited for
        ends = x if self.less is None else x + given[self.less]
        least, most = np.minimum.reduce(x, None), np.maximum.reduce(ends, None)
        if least < self.low or most > high:
            raise LayoutError(
                f"engine.{verb}: {self.name} has entries from {least} to {most}; accepted: "
                f"{self.low} to {high}"
            )
