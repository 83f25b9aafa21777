"""Kernels: typed Python functions that are compiled for the processor, or run as plain Python.

    @kernel
    def total(n: i64, x: T[:], out: T[:]):
        s = zero
        for i in range(n):
            s = add(s, x[i])
        out[0] = s

A kernel takes numbers and arrays and returns nothing, or an integer (``-> i64``). Inside it
integers have 64 bits, whatever an array stores; those of ``u64`` have no sign, and ``u64(x)`` is
the lowest 64 bits of x. An array of ``I`` has int32 or int64. ``T`` is the type that a semiring is
computed in, and ``add, mul, better, zero, one`` are its operations; ``scale(x, y)`` is x ⊗ y
outside of inner loops. Arrays of ``S`` hold entries as they are stored: ``decode`` and ``encode``
lead to T and back. Statements are assignments, ``for`` over ``range``, ``while``, ``if``,
``break``, ``continue`` and ``return``. A call of another kernel is inlined: its parameters need no
annotations there, and it may return values. ``x[i:]`` is an array from entry i on, ``x[i]`` of an
array of two axes a row. A ``static`` parameter is known when the kernel is compiled, and so is
whether another is None: an ``if`` about them costs nothing. Everything else is an error that names
the line.

An array's annotation is its layout (:mod:`semiring_mm.layouts`), which a call is compared with: how
long it is (``first: i64[n + 1]``), and that its entries are indices (``head: i32[first[n]] < n``).
A module of kernels begins with ``from __future__ import annotations``.

``for j in lanes(n)`` computes entries j, j + 1, ... together in the lanes of a vector (with a
second argument of several vectors; with ``whole=True`` n is a multiple of what they hold, or a
lower power of two that is known when the kernel is compiled, and with ``times=k``, k known, it is
at most k times that). ``if`` about a condition in each lane has assignments only, which are made
where it holds. ``each(x)`` is a number in every lane, to begin a sum with; ``x[j]`` of a list with
an entry for each lane is a vector of these, also as a target. ``across(v)`` is ⊕ over the lanes,
``across(v, sum)``, min, max and any are other ways to join them, with ``ordered=True`` one lane
after the other. ``first(j, condition)`` is the first lane where a condition holds, else 2**62, and
``for c in where(j, condition)`` visits all of these, as numbers. Of ``x[j] if j < n else zero``
only lanes below n are loaded. Where an index other than the last differs from lane to lane, so does
the row: ``entries(row, n)`` loads the first n entries of each as a list, and ``pick(row, i)`` is
``row[i]`` of a row as long as a vector. ``stream(row, j, v)`` stores a whole vector past the
caches, to a multiple of its size: its line is not read first.

With ``numbers=True`` operations of a semiring meet no NaN. ``popcount(x)`` is the number of bits of
a word that are set, ``bit(x, j)`` whether bit j is, ``bits(x)`` a float's bits as an integer and
the reverse, and ``T(x)`` a number in the type T.

:func:`semiring_mm.cpu.codegen.compiled` compiles a kernel, :meth:`Kernel.plain` runs it in Python.
"""

from __future__ import annotations

import ast
import hashlib
import inspect
import math
import operator
import textwrap
import types
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from .layouts import Signature
from .lazy import cached_property

__all__ = [
    "TYPES", "I", "Kernel", "KernelError", "Operations", "Parameter", "S", "T", "across", "add",
    "add_exp", "better", "bit", "bit_length", "bits", "decode", "each", "encode", "entries",
    "exp_gap", "f32", "f64", "first", "fma", "i8", "i16", "i32", "i64", "kernel",
    "lanes", "log", "mul", "one", "overflows", "pick", "popcount", "prefetch", "same", "scale",
    "sqrt", "static", "stream", "u8", "u16", "u32", "u64", "unrolled", "where", "zero",
]  # fmt: skip

#: Types of parameters and of arrays. I is int32 or int64, as an array has it; T, the type computed
#: in, and S, that of stored entries, are a semiring's.
TYPES = "i8", "u8", "i16", "u16", "i32", "u32", "i64", "u64", "f32", "f64", "I", "T", "S"


class KernelError(SyntaxError):
    """A line that the language of kernels does not have."""


@dataclass(frozen=True)
class Parameter:
    """A parameter of a kernel."""

    name: str
    kind: str  # one of TYPES, or "static"
    axes: int  # of an array; 0: a number


class Kernel:
    """A function in the language of kernels; see the module's docstring."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function, self.name = function, function.__name__
        self.__doc__, self.__module__ = function.__doc__, function.__module__

    def __repr__(self) -> str:
        return f"<kernel {self.name} of {self.__module__}>"

    def __call__(self, *args: Any, **fields: Any) -> Any:
        raise TypeError(f"{self!r} is called in kernels; run it by cpu.codegen.compiled or plain()")

    @cached_property
    def tree(self) -> ast.FunctionDef:
        """The function's syntax tree, with the line numbers of its file."""
        lines, first = inspect.getsourcelines(self.function)
        tree = ast.parse(textwrap.dedent("".join(lines)))
        ast.increment_lineno(tree, first - 1)
        found = tree.body[0]
        assert isinstance(found, ast.FunctionDef)
        return found

    def error(self, node: ast.AST, message: str) -> KernelError:
        """An error at a node of the function."""
        text = ast.unparse(node).splitlines()[0]
        file, line = inspect.getsourcefile(self.function), getattr(node, "lineno", 0)
        return KernelError(f"{self.name}: {message}", (file, line, None, text))

    @cached_property
    def parameters(self) -> tuple[Parameter, ...]:
        code, types_ = self.function.__code__, self.function.__annotations__
        return tuple(
            self._parameter(k, str(types_.get(k))) for k in code.co_varnames[: code.co_argcount]
        )

    def _parameter(self, name: str, annotation: str) -> Parameter:
        layout = ast.parse(annotation, mode="eval").body
        ranged = [layout.left, *layout.comparators] if isinstance(layout, ast.Compare) else []
        for part in ranged or [layout]:
            match part:
                case ast.Name(id=word) if word in ("static", *TYPES) and not ranged:
                    return Parameter(name, word, 0)
                case ast.Subscript(value=ast.Name(id=word), slice=axes) if word in TYPES:
                    return Parameter(name, word, len(getattr(axes, "elts", [axes])))
        raise self.error(
            next(x for x in self.tree.args.args if x.arg == name),
            f"a parameter is static, a number ({', '.join(TYPES)}) or an array (i64[:], "
            f"T[rows, n], i32[n] < m)",
        )

    def signature(self, **elements: np.dtype[Any]) -> Signature:
        """The layouts of its arrays; `elements` are the dtypes of T and S, where they are known."""
        arrays = [p.name for p in self.parameters if p.axes]
        layouts = {name: str(self.function.__annotations__[name]) for name in arrays}
        parameters = ", ".join(p.name for p in self.parameters)
        known = self.function.__globals__
        return Signature(self.name, layouts, parameters, arrays, known, elements)

    @property
    def returns(self) -> bool:
        """Whether it returns an integer when it is called from Python."""
        return "return" in self.function.__annotations__

    @cached_property
    def digest(self) -> str:
        """Of what its compiled code depends on: the function, and what its names stand for."""
        codes, found = [(self, self.function.__code__)], [self.name]  # which is a symbol's
        for one, code in codes:
            values = [one.function.__globals__.get(name) for name in code.co_names]
            inner = [(one, c) for c in code.co_consts if isinstance(c, types.CodeType)]
            inner += [(x, x.function.__code__) for x in values if isinstance(x, Kernel)]
            codes += [x for x in inner if x not in codes]
            found += [str(x) for x in one.function.__annotations__.values()]
            found += [code.co_code.hex(), str(code.co_varnames), str(code.co_names)]
            found += [str(x) for x in code.co_consts if not isinstance(x, types.CodeType)]
            found += ["kernel" if isinstance(x, Kernel) else str(x) for x in values]
        return hashlib.sha256("\n".join(found).encode()).hexdigest()

    def plain(self, operations: Operations | None = None, **fields: Any) -> Any:
        """Run in Python, on NumPy arrays, with a check of every index."""
        self.signature().compiled()(**fields)
        names = {}
        if operations is not None:
            add, mul = operations.add, operations.mul
            names = vars(operations) | {
                "add": lambda x, y, **_: add(x, y), "mul": lambda x, y, **_: mul(x, y),
                "scale": mul,
            }  # fmt: skip
        arrays = {
            k: x.view(_Checked) if isinstance(x, np.ndarray) else x for k, x in fields.items()
        }
        with np.errstate(divide="ignore", invalid="ignore"):  # in lanes that are not taken
            return self._python(_PLAIN | names)(**arrays)

    def _python(self, names: dict[str, Any]) -> Callable[..., Any]:
        given = self.function.__globals__ | names
        codes = [self.function.__code__]
        for code in codes:
            codes += [x for x in code.co_consts if isinstance(x, types.CodeType)]
            for name in code.co_names:
                if isinstance(inner := given.get(name), Kernel):
                    given[name] = inner._python(names)
        return types.FunctionType(self.function.__code__, given)


def kernel(function: Callable[..., Any]) -> Kernel:
    """Decorate a function as a kernel; see the module's docstring."""
    return Kernel(function)


# --- names of the language ------------------------------------------------------------------------


class _Word:
    """A name that means something inside of kernels only."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __str__(self) -> str:
        return self.name

    def __getitem__(self, axes: Any) -> _Word:
        count = len(axes) if isinstance(axes, tuple) else 1
        return _Word(f"{self.name}[{', '.join(':' * count)}]")

    def __call__(self, *_: Any, **__: Any) -> Any:
        raise TypeError(f"{self.name} is for kernels (semiring_mm.kernel)")


i8, u8, i16, u16, i32, u32, i64, u64, f32, f64, I, T, S, static = (  # noqa: E741
    _Word(name) for name in (*TYPES, "static")
)
add, mul, better, zero, one, decode, encode, each, across, first, lanes, unrolled, entries, \
    pick, prefetch, popcount, bit, bit_length, fma, bits, exp_gap, add_exp, log, same, \
    stream, where, sqrt, overflows, scale = map(_Word, (
        "add mul better zero one decode encode each across first lanes unrolled entries "
        "pick prefetch popcount bit bit_length fma bits exp_gap add_exp log same stream "
        "where sqrt overflows scale"
    ).split())  # fmt: skip


@dataclass(frozen=True)
class Operations:
    """A semiring's operations on numbers, for kernels that run in Python."""

    add: Callable[[Any, Any], Any]
    mul: Callable[[Any, Any], Any]
    better: Callable[[Any, Any], bool]
    zero: Any
    one: Any
    decode: Callable[[Any], Any] = lambda x: x
    encode: Callable[[Any], Any] = lambda x: x


def _fma(x: float, y: float, z: float) -> float:
    """x y + z, rounded once."""
    from fractions import Fraction  # which takes 2 ms

    if math.isfinite(x) and math.isfinite(y) and math.isfinite(z):
        return type(x)(Fraction(float(x)) * Fraction(float(y)) + Fraction(float(z)))
    return x * y + z


_PLAIN: dict[str, Any] = {
    "lanes": lambda n, *_, **__: range(n), "unrolled": range, "across": lambda v, *_, **__: v,
    "first": lambda j, condition: j if condition else 1 << 62, "i32": int,
    "where": lambda j, condition: [j] if condition else [],
    "entries": lambda row, n: [row[k] for k in range(n)], "pick": lambda row, i: row[i],
    "prefetch": lambda *_: None, "stream": operator.setitem, "i64": int,
    "f32": np.float32, "f64": np.float64,
    "u64": lambda x: int(x) & (1 << 64) - 1, "popcount": int.bit_count, "T": lambda x: x,
    "bit": lambda x, j: x >> j & 1, "bit_length": int.bit_length, "decode": lambda x: x,
    "encode": lambda x: x, "fma": _fma, "log": np.errstate(divide="ignore")(np.log),
    "add_exp": lambda total, x: total + np.exp(min(x, 0.0)), "overflows": lambda _: False,
    "same": lambda x, y: x == y or (x != x and y != y),
    "bits": lambda x: np.asarray(x).view("i8" if np.asarray(x).dtype.kind == "f" else "f8").item(),
    "exp_gap": lambda x, lift, least: (x >= (least - lift) * math.log(2)) * np.exp(x) * 2.0**lift,
    "each": lambda x, *_: x, "sqrt": np.sqrt,
}  # fmt: skip


class _Checked(np.ndarray[Any, Any]):
    """An array that refuses negative indices, and whose integers do not wrap."""

    def __getitem__(self, index: Any) -> Any:
        found = super().__getitem__(self._checked(index))
        return found.item() if isinstance(found, np.integer) else found

    def __setitem__(self, index: Any, value: Any) -> None:
        super().__setitem__(self._checked(index), value)

    def _checked(self, index: Any) -> Any:
        for i in index if isinstance(index, tuple) else (index,):
            if (i.start or 0 if isinstance(i, slice) else i) < 0:
                raise IndexError(f"index {index} of an array of shape {self.shape}")
        return index
