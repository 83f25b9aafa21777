"""Layouts: how the arrays lie that verbs of an engine and kernels take, compared before each call.

Compiled code trusts what it is given: a wrong dtype, stride or size would have it read or write
foreign memory. So the annotation of each array, in a kernel, in a verb (:mod:`semiring_mm.engine`)
and of fields that they take, is its layout, and it is stated nowhere else:

``i32[m, n]``
    Elements, and the size of each axis. A size is a formula of arguments and of names; a name that
    is no argument stands for one size in all layouts of a call. ``:`` is any size, ``[batch]`` in
    front an axis that all arguments have or none, ``...`` in front any axes, the same in all.
    Elements are a dtype (``i64``, ``f32``, ``b1``, ...), an argument or field that is one, or a
    letter for one dtype in all layouts of a call: T, S and U for any, N for any in either byte
    order, F for a float of 4 or 8 bytes, I for an integer of these.
``rows(T[m, n])``
    The last axis is contiguous; ``matrices``: the last two are; ``whole``: all are, in C's order.
    Else any strides will do.
``i32[m] < n``
    Entries are from 0 to n - 1; ``<= n``: to n; ``-1 <= i32[m] < n``: from -1. The end may be an
    array, entry by entry. Entries on a device are not looked at: that would wait for it.
``T[m] if flag else T[n]``, ``F[m, n] | number``, ``T[m] | None``
    One of two, by a condition about arguments or by what it is. What is None is not compared.

In a kernel all arrays may be None, the last axis is always contiguous, and sizes are the least: it
may be given more memory than it uses. A signature becomes one Python function that compares all
arguments, written when it is called first, since most never are.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import numpy as np

__all__ = [
    "DTYPES", "LayoutError", "Signature", "assert_fields", "assert_lies", "asserted",
    "signature_of",
]  # fmt: skip

#: Words for elements, and their dtypes.
DTYPES = {
    "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16", "i32": "int32", "u32": "uint32",
    "i64": "int64", "u64": "uint64", "f32": "float32", "f64": "float64", "b1": "bool",
}  # fmt: skip
#: Letters, and what is asked of their dtype.
_LETTERS = {
    "T": "{0}.isnative", "S": "{0}.isnative", "U": "{0}.isnative", "N": "True",
    "F": "{0}.isnative and {0}.char in 'fd'", "I": "{0}.isnative and {0}.char in 'ilq'",
}  # fmt: skip
_ACCEPTED = {"F": "float32 or float64", "I": "int32 or int64"}
#: What only the annotation with a layout has.
_LAYOUT = re.compile(rf"\b({'|'.join([*DTYPES, *_LETTERS])})\[|\b(rows|matrices|whole)\(| <=? ")
#: What is asked of strides, for a word and in a kernel; ``_s`` is the shape.
_STRIDES = {
    "": "True", "rows": "(_s[-1] < 2 or {0}.strides[-1] == {0}.itemsize or 0 in _s)",
    "matrices": "_ends({0})", "whole": "{0}.flags.c_contiguous",
    "kernel": "({0}.flags.c_contiguous or _in_entries({0}))",
}  # fmt: skip
_SIGNS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<="}


class LayoutError(ValueError):
    """An array does not lie as a verb of an engine, or a kernel, reads it."""


class Condition(NamedTuple):
    """A condition about an argument, or about its ``entries``, as an expression in Python."""

    text: str
    name: str
    about: str


class _Tests(NamedTuple):
    """Conditions about one argument."""

    lies: list[str]  # dtype, number of axes, contiguity, and sizes that a name stands for
    sizes: list[str]  # that are formulas, whose names all have values by then
    entries: list[str]


class Signature:
    """Layouts of arguments, and the function that compares them.

    Parameters
    ----------
    what : str
        Begins each message.
    layouts : mapping of str
        Of each argument, or field of one (``x.starts``) that has a layout.
    parameters : str
        All of them, as a ``def`` has them.
    optional : iterable of str
        Arguments that may be None.
    known : mapping, optional
        Values of names in formulas that are no parameters.
    elements : mapping, optional
        Dtypes that letters stand for. It makes the signature a kernel's.
    """

    def __init__(
        self, what: str, layouts: Mapping[str, str], parameters: str, optional: Iterable[str],
        known: Mapping[str, Any] | None = None, elements: Mapping[str, Any] | None = None,
    ) -> None:  # fmt: skip
        self.what, self.layouts, self.parameters = what, layouts, parameters
        self.optional = frozenset(optional)
        self.known, self.elements, self.kernel = known or {}, elements or {}, elements is not None
        self._names: set[str] = set()  # that stand for sizes and dtypes
        self._certain: set[str] = set()  # those that have a value by then, whatever is None

    def conditions(self) -> list[Condition]:
        """What is asked of the arguments, in the order in which names get values."""
        first, then = list[Condition](), list[Condition]()
        self._names, self._certain = set(), set()
        varying = {
            name
            for name, layout in self.layouts.items()
            if name in self.optional or " if " in layout or " | " in layout
        }
        for name in sorted(self.layouts, key=varying.__contains__):
            tests = self._tests(ast.parse(self.layouts[name], mode="eval").body, name)
            if name not in varying:
                self._certain |= self._names
            absent = f"{name} is None or " if name in self.optional else ""
            for some, tested, about in (
                (first, tests.lies, "lies"), (then, tests.sizes, "lies"),
                (then, tests.entries, "entries"),
            ):  # fmt: skip
                if tested:
                    some.append(Condition(f"({absent}{_all(tested)})", name, about))
        return first + then

    def values(self) -> dict[str, Any]:
        """What names in the conditions stand for, but for arguments."""
        return {
            **self.known, **{word: np.dtype(name) for word, name in DTYPES.items()},
            **self.elements, "_ndarray": np.ndarray, "_generic": np.generic,
            "_ends": _ends, "_in_entries": _in_entries,
            "_least": np.minimum.reduce, "_most": np.maximum.reduce,
        }  # fmt: skip

    def compiled(self) -> Callable[..., None]:
        """A function of the arguments that raises LayoutError for one that differs."""
        tests = [
            f"    if not {x.text}: refuse_({x.name!r}, {x.about!r}, locals())"
            for x in self.conditions()
        ]
        names = [f"    {name} = None" for name in self._names]
        text = "\n".join([f"def check({self.parameters}):", *names, *tests, "    pass"])
        values = self.values() | {"refuse_": self._refuse}
        exec(compile(text, f"<layouts of {self.what}>", "exec"), values)
        check: Callable[..., None] = values["check"]
        return check

    def _tests(self, layout: ast.expr, x: str, contiguous: str = "") -> _Tests:
        match layout:
            case ast.IfExp(test=test, body=body, orelse=other):
                both = zip(self._tests(body, x), self._tests(other, x), strict=True)
                by = f"if {ast.unparse(test)} else"
                return _Tests(*([f"({_all(a)} {by} {_all(b)})"] if a or b else [] for a, b in both))
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                one, two = self._tests(left, x), self._tests(right, x)
                return _Tests([f"({_all(one.lies)} or {_all(two.lies)})"], [], [])
            case ast.Call(func=ast.Name(id=contiguous), args=[inner]):
                return self._tests(inner, x, contiguous)
            case ast.Compare(left=inner, ops=[sign], comparators=[end]):
                return self._ranged(inner, x, "0", _SIGNS[type(sign)], end)
            case ast.Compare(left=low, ops=[ast.LtE(), sign], comparators=[inner, end]):
                return self._ranged(inner, x, ast.unparse(low), _SIGNS[type(sign)], end)
            case ast.Name(id="int"):
                return _Tests([f"type({x}) is int"], [], [])
            case ast.Name(id="number"):
                return _Tests([f"isinstance({x}, (int, float, _generic))"], [], [])
            case ast.Subscript(value=elements, slice=axes):
                sizes = axes.elts if isinstance(axes, ast.Tuple) else [axes]
                return self._array(x, ast.unparse(elements), sizes, contiguous)
        raise SyntaxError(f"{self.what}: {x}: no layout is {ast.unparse(layout)}")

    def _ranged(self, inner: ast.expr, x: str, low: str, sign: str, end: ast.expr) -> _Tests:
        tests, high = self._tests(inner, x), ast.unparse(end)
        if isinstance(inner, ast.Name):
            tests.entries.append(f"{low} <= {x} {sign} {high}")
            return tests
        entries, above = x, f"_least({x}, None) >= {low} and "
        if low == "0":  # without a sign, what is below 0 is large
            entries, above = f"{x}.view(f'u{{{x}.itemsize}}')", ""
        both = {*map(ast.unparse, (end.left, end.right))} if isinstance(end, ast.BinOp) else set()
        below = f"_most({entries}, None) {sign} {high}"
        if both & self.layouts.keys():
            below = f"({entries} {sign} {high}).all()"
        here = "" if self.kernel else f"not isinstance({x}, _ndarray) or "
        alone = high  # a single entry takes a tenth of the time
        for name in both & self.layouts.keys():
            alone = re.sub(rf"\b{re.escape(name)}(?![\w.])", f"{name}.item()", alone)
        one = f"{low} <= {x}.item() {sign} {alone} if {x}.size == 1"
        tests.entries.append(f"({here}not {x}.size or ({one} else {above}{below}))")
        return tests

    def _array(self, x: str, elements: str, axes: list[ast.expr], contiguous: str) -> _Tests:
        here = "" if self.kernel else f" or hasattr({x}, 'strides')"
        tests = _Tests([f"(isinstance({x}, _ndarray){here})"], [], [])
        lies, sizes, _ = tests
        arguments = re.findall(r"\w+", self.parameters)
        if elements not in _LETTERS or elements in self.elements:
            lies.append(f"{x}.dtype == {elements}")
        elif self.kernel:  # each array of I has a dtype of its own; the plain T and S any
            lies.append(_LETTERS[elements].format(f"{x}.dtype"))
        else:
            if elements not in self._certain:
                lies.append(_LETTERS[elements].format(f"{x}.dtype"))
            native = ".newbyteorder('=')" * (elements == "N")
            lies.append(self._named(elements, f"{x}.dtype{native}"))
        match axes:
            case [ast.List(elts=[ast.Name(id=name)]), *axes]:
                lies.append(f"{len(axes)} <= len(_s := {x}.shape) <= {len(axes) + 1}")
                lies.append(self._named(name, f"_s[:{-len(axes)}]"))
            case [ast.Constant(value=value)] if value is ...:
                lies.append(self._named("shape", f"{x}.shape"))
                axes = []
            case _:
                lies.append(f"len(_s := {x}.shape) == {len(axes)}")
        for k, axis in enumerate(axes, -len(axes)):
            formula = ast.unparse(axis)
            if formula.isidentifier() and not self.kernel and formula not in arguments:
                lies.append(self._named(formula, f"_s[{k}]"))
            elif self.kernel and formula != ":":  # of arguments, which are known
                lies.append(f"_s[{k}] >= {formula}")
            elif formula != ":":
                sizes.append(f"{x}.shape[{k}] == {formula}")
        lies.append(_STRIDES["kernel" if self.kernel else contiguous].format(x))
        return tests

    def _named(self, name: str, value: str) -> str:
        """That a value is what a name stands for, or what it stands for from now on."""
        if name in self._certain:
            return f"{value} == {name}"
        self._names.add(name)
        return f"({name} := {value} if {name} is None else {name}) == {value}"

    def _refuse(self, name: str, about: str, values: dict[str, Any]) -> NoReturn:
        x = functools.reduce(getattr, name.split(".")[1:], values[name.partition(".")[0]])
        if about == "entries":
            is_ = f"has entries from {np.min(x)} to {np.max(x)}"
        elif hasattr(x, "strides"):
            is_ = f"is {x.dtype} of shape {x.shape} with strides {x.strides}"
        else:
            is_ = f"is a {type(x).__name__}"
        layout = self.layouts[name]
        used = dict.fromkeys(re.findall(r"\w+", layout)).keys()
        given = {**self.known, **self.elements, **values}
        shown = {k: given.get(k) for k in used} | {k: _ACCEPTED[k] for k in used & _ACCEPTED.keys()}
        where = ", ".join(
            f"{k} = {v}" for k, v in shown.items() if isinstance(v, (int, str, tuple, np.dtype))
        )
        raise LayoutError(
            f"{self.what}: {name} {is_}; accepted: {layout}{' or longer' * self.kernel}"
            + (f", where {where}" if where else "")
        )


def _all(conditions: list[str]) -> str:
    return f"({' and '.join(conditions or ['True'])})"


def _in_entries(x: Any) -> bool:
    """Whether the last axis is contiguous, and steps along the others are whole entries."""
    *strides, last = x.strides
    return (last == x.itemsize or x.shape[-1] < 2 or not x.size) and not any(
        stride % x.itemsize for stride in strides
    )


def _ends(x: Any) -> bool:
    """Whether the last two axes are contiguous."""
    rows, columns = x.shape[-2:]
    inner = columns < 2 or x.strides[-1] == x.itemsize
    return 0 in x.shape or (inner and (rows < 2 or x.strides[-2] == columns * x.itemsize))


# --- annotations ----------------------------------------------------------------------------------


def signature_of(what: str, declared: Callable[..., Any]) -> Signature:
    """The signature of a function that is annotated with layouts, or of the fields of a class.

    A name in place of a layout stands for that of the module's constant, and a named tuple for the
    layouts of its fields, in whose formulas names of fields are those of the same argument.
    """
    if isinstance(declared, type):
        parameters = ["*", *declared.__annotations__, "**_"]  # and those of a class derived from it
        known = vars(sys.modules[declared.__module__])
    else:
        code, known = declared.__code__, declared.__globals__
        names = [x for x in code.co_varnames[: code.co_argcount] if x != "self"]
        named = code.co_varnames[code.co_argcount :][: code.co_kwonlyargcount]
        parameters = [*names, *(["*", *named] if named else [])]
    layouts, optional = dict[str, str](), list[str]()
    for name, text in declared.__annotations__.items():
        if name == "return":
            continue
        kind = str(text).removesuffix(" | None")
        value = known.get(kind)
        if kind != text:
            optional.append(name)
        if hasattr(value, "_fields"):
            fields = value.__annotations__
            own = re.compile(rf"\b({'|'.join(fields)})\b")
            texts = {x: t.__forward_arg__ for x, t in fields.items()}
            layouts |= {
                f"{name}.{x}": own.sub(rf"{name}.\1", t)
                for x, t in texts.items()
                if _LAYOUT.search(t)
            }
        elif isinstance(value, str) or _LAYOUT.search(kind):
            layouts[name] = value if isinstance(value, str) else kind
    return Signature(what, layouts, ", ".join(parameters), optional, known)


def _has_layouts(declared: Callable[..., Any]) -> bool:
    return bool(signature_of("", declared).layouts)


def asserted(what: str, declared: Any, member: Any) -> Any:
    """A member of an engine whose arguments are compared with their layouts.

    `what` is the name by which an engine is asked for it, `declared` what the contract has for it:
    a method, or a protocol with several.
    """
    if member is None or hasattr(member, "declared"):
        return member
    if isinstance(declared, type):
        verbs = [x for x in vars(declared).values() if inspect.isfunction(x)]
        return _Verbs(what, declared, member) if any(map(_has_layouts, verbs)) else member
    if not inspect.isfunction(declared) or not _has_layouts(declared):
        return member
    check: Callable[..., None] | None = None

    @functools.wraps(member, updated=())  # of a class no members
    def call(*args: Any, **options: Any) -> Any:
        nonlocal check
        if check is None:
            check = signature_of(f"engine.{what}", declared).compiled()
            check.__defaults__ = declared.__defaults__
            check.__kwdefaults__ = declared.__kwdefaults__
        check(*args, **options)
        return member(*args, **options)

    vars(call)["declared"] = declared
    return call


class _Verbs:
    """Several verbs under one name; their own module calls them as they are."""

    def __init__(self, what: str, declared: type, module: Any) -> None:
        self._what, self.declared, self._module = what, declared, module

    def __getattr__(self, name: str) -> Any:
        member = getattr(self._module, name)
        called = asserted(f"{self._what}.{name}", vars(self.declared).get(name), member)
        if called is not member:
            setattr(self, name, called)
        return called


def assert_lies(name: str, x: Any, layout: str, **sizes: int) -> None:
    """Raise LayoutError for an array of another layout, in which names stand for sizes."""
    _one(name, layout, *sizes)(x, *sizes.values())


@functools.cache
def _one(name: str, layout: str, *sizes: str) -> Callable[..., None]:
    return Signature("engine", {name: layout}, ", ".join([name, *sizes]), ()).compiled()


def assert_fields(x: Any, kind: type) -> None:
    """Raise LayoutError where a field of a dataclass does not lie as its annotation says."""
    _of_fields(kind)(**vars(x))


@functools.cache
def _of_fields(kind: Callable[..., Any]) -> Callable[..., None]:
    return signature_of(kind.__name__, kind).compiled()
