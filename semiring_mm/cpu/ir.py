"""A small builder for LLVM IR text.

Values carry their type and overload Python's operators, loops and conditions are ``with`` blocks,
and variables are stack slots that the optimiser turns into registers:

    f = Function("sum", [I64, PTR])
    n, x = f.args
    total = f.var(f.const(0.0, F32))
    with f.loop(0, n) as i:
        total.set(total.get() + f.load(x.at(i * 4), F32))
"""

from __future__ import annotations

import os
import platform
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

__all__ = [
    "F32", "F64", "I1", "I8", "I32", "I64", "PTR", "Function", "Type", "Value", "Var", "transposed",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Type:
    """A scalar or vector type: kind ``f`` (float), ``i`` (signed), ``u`` (unsigned), ``p``."""

    kind: str
    bits: int
    lanes: int = 1

    @property
    def scalar(self) -> Type:
        return replace(self, lanes=1)

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return self.bits * self.lanes // 8

    def vector(self, lanes: int) -> Type:
        return replace(self, lanes=lanes)

    @property
    def element(self) -> str:
        if self.kind == "p":
            return "ptr"
        if self.kind == "f":
            return {16: "half", 32: "float", 64: "double"}[self.bits]
        return f"i{self.bits}"

    def __str__(self) -> str:
        return f"<{self.lanes} x {self.element}>" if self.lanes > 1 else self.element

    def suffix(self) -> str:
        """The mangled name in an intrinsic: ``v16f32``."""
        letter = "f" if self.kind == "f" else "i"
        return (f"v{self.lanes}" if self.lanes > 1 else "") + f"{letter}{self.bits}"


F32, F64 = Type("f", 32), Type("f", 64)
I1, I8, I32, I64 = Type("i", 1), Type("i", 8), Type("i", 32), Type("i", 64)
PTR = Type("p", 64)


def _operator(f_op: str, i_op: str, u_op: str | None = None) -> Callable[[Value, Operand], Value]:
    """A binary operator: what it is called of floats, and of integers with and without sign."""

    def emit(x: Value, y: Operand) -> Value:
        return x._binary(y, f_op, i_op, u_op)

    return emit


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or constant of a function."""

    fn: Function
    name: str
    type: Type

    def _binary(self, other: Operand, f_op: str, i_op: str, u_op: str | None = None) -> Value:
        rhs = self.fn.const(other, self.type) if isinstance(other, (int, float)) else other
        if rhs.type.lanes != self.type.lanes or rhs.type.bits != self.type.bits:
            raise TypeError(f"{i_op} of {self.type} and {rhs.type}")
        op = {"f": f_op, "i": i_op, "u": u_op or i_op}[self.type.kind]
        return self.fn.emit(f"{op} {self.type} {self.name}, {rhs.name}", self.type)

    def __add__(self, other: Operand) -> Value:
        if isinstance(other, int) and other == 0 and self.type.kind == "i":
            return self
        return self._binary(other, "fadd", "add")

    def __mul__(self, other: Operand) -> Value:
        if isinstance(other, int) and other == 1 and self.type.kind == "i":
            return self
        return self._binary(other, "fmul", "mul")

    __sub__ = _operator("fsub", "sub")
    __and__ = _operator("", "and")
    __or__ = _operator("", "or")
    __xor__ = _operator("", "xor")
    __lshift__ = _operator("", "shl")
    __rshift__ = _operator("", "ashr", "lshr")
    __truediv__ = _operator("fdiv", "sdiv", "udiv")
    __floordiv__ = _operator("", "sdiv", "udiv")  # of integers, truncating
    __mod__ = _operator("frem", "srem", "urem")  # of truncating division

    def __neg__(self) -> Value:
        if self.type.kind == "f":
            return self.fn.emit(f"fneg {self.type} {self.name}", self.type)
        return self.fn.const(0, self.type) - self

    def cmp(self, op: str, other: Operand) -> Value:
        """Compare: ``< <= > >= == !=``, ordered for floats but ``!=``; ``uno``: either is NaN."""
        rhs = self.fn.const(other, self.type) if isinstance(other, (int, float)) else other
        kind = self.type.kind
        if kind == "f":
            names = {"<": "olt", "<=": "ole", ">": "ogt", ">=": "oge", "==": "oeq", "!=": "une"}
            code = f"fcmp {names.get(op, op)}"
        else:
            names = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
            sign = "u" if kind in "up" else "s"
            code = (
                f"icmp {sign}{names[op]}" if op in names else f"icmp {'eq' if op == '==' else 'ne'}"
            )
        out = I1.vector(self.type.lanes)
        return self.fn.emit(f"{code} {self.type} {self.name}, {rhs.name}", out)

    def at(self, offset: Value | int) -> Value:
        """Advance a pointer by a number of bytes."""
        if isinstance(offset, int):
            if offset == 0:
                return self
            offset = self.fn.const(offset, I64)
        return self.fn.emit(f"getelementptr i8, ptr {self.name}, i64 {offset.name}", PTR)

    def to(self, target: Type) -> Value:
        """Convert to another type of the same lanes (``bitcast`` is :meth:`bits_as`)."""
        source = self.type
        target = target.vector(source.lanes)
        if (source.kind, source.bits) == (target.kind, target.bits):
            return self
        if source.kind == "f" and target.kind == "f":
            op = "fpext" if target.bits > source.bits else "fptrunc"
        elif source.kind == "f":
            op = "fptosi" if target.kind == "i" else "fptoui"
        elif target.kind == "f":
            op = "sitofp" if source.kind == "i" and source.bits > 1 else "uitofp"
        elif source.bits == target.bits:
            return Value(self.fn, self.name, target)
        elif source.bits > target.bits:
            op = "trunc"
        else:
            op = "sext" if source.kind == "i" and source.bits > 1 else "zext"
        return self.fn.emit(f"{op} {source} {self.name} to {target}", target)

    def bits_as(self, target: Type) -> Value:
        """Reinterpret the bits."""
        if str(self.type) == str(target):
            return Value(self.fn, self.name, target)
        return self.fn.emit(f"bitcast {self.type} {self.name} to {target}", target)

    def splat(self, lanes: int) -> Value:
        """The scalar in every lane."""
        if lanes == 1:
            return self
        out = self.type.vector(lanes)
        one = self.fn.emit(f"insertelement {out} poison, {self.type} {self.name}, i64 0", out)
        return self.fn.emit(
            f"shufflevector {out} {one.name}, {out} poison, <{lanes} x i32> zeroinitializer", out
        )

    def __getitem__(self, lane: int) -> Value:
        return self.fn.emit(f"extractelement {self.type} {self.name}, i64 {lane}", self.type.scalar)


Operand = Value | int | float


class Var:
    """A mutable variable."""

    def __init__(self, fn: Function, type_: Type) -> None:
        self.fn, self.type = fn, type_
        self.slot = fn.alloca(type_)

    def get(self) -> Value:
        return self.fn.load(self.slot, self.type)

    def set(self, value: Operand) -> None:
        if isinstance(value, (int, float)):
            value = self.fn.const(value, self.type)
        self.fn.store(value, self.slot)


class Function:
    """One function with external linkage, or an internal one when ``private``.

    It returns nothing, or with `result` a type what the variable ``result`` holds at the end.

    With ``opaque`` loop counters the code generator does not reason about addresses that depend on
    them. That takes a third off its time, and a loop that is not the innermost one loses nothing.
    """

    def __init__(
        self, name: str, args: Sequence[Type], *, private: bool = False, opaque: bool = True,
        result: Type | None = None,
    ) -> None:  # fmt: skip
        self.name = name
        self.opaque = opaque
        self.private = private
        self.args = [Value(self, f"%arg{i}", t) for i, t in enumerate(args)]
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._count = 0
        self.declarations: dict[str, str] = {}
        self._result = None if result is None else Var(self, result)

    @property
    def result(self) -> Var:
        """What a function with a result returns."""
        assert self._result is not None, f"{self.name} returns nothing"
        return self._result

    # --- emission

    def emit(self, code: str, type_: Type) -> Value:
        name = f"%v{self._next()}"
        self._lines.append(f"  {name} = {code}")
        return Value(self, name, type_)

    def _next(self) -> int:
        self._count += 1
        return self._count

    def alloca(self, type_: Type, count: int = 1) -> Value:
        name = f"%s{self._next()}"
        align = max(type_.size & -type_.size, 1)
        self._entry.append(f"  {name} = alloca {type_}, i64 {count}, align {align}")
        return Value(self, name, PTR)

    def const(self, value: float | int, type_: Type) -> Value:
        if type_.kind == "f":
            number = float(value)
            if type_.bits == 32:  # LLVM wants the double that the float is
                number = struct.unpack("f", struct.pack("f", number))[0]
            if type_.bits == 16:
                text = f"0xH{struct.unpack('H', struct.pack('e', number))[0]:04X}"
            else:
                text = f"0x{struct.unpack('Q', struct.pack('d', number))[0]:016X}"
        elif type_.bits == 1:
            text = "true" if value else "false"
        else:
            text = str(int(value))
        if type_.lanes > 1:
            text = "<" + ", ".join([f"{type_.element} {text}"] * type_.lanes) + ">"
        return Value(self, text, type_)

    def iota(self, type_: Type) -> Value:
        """0, 1, 2, ... in the lanes of an integer type."""
        lanes = ", ".join(f"{type_.element} {i}" for i in range(type_.lanes))
        return Value(self, f"<{lanes}>" if type_.lanes > 1 else "0", type_)

    def var(self, init: Value) -> Var:
        variable = Var(self, init.type)
        variable.set(init)
        return variable

    def below(self, count: Value, lanes: int) -> Value:
        """A mask of the first `count` (int64) of so many lanes."""
        index = I32.vector(lanes)
        some = self.low(count, lanes).to(I32).splat(lanes)
        return self.iota(index).cmp("<", some)

    # --- memory; nothing is assumed of alignment beyond the element's, unless said

    def load(self, pointer: Value, type_: Type, align: int = 1) -> Value:
        if type_.lanes == 1 and type_.bits == 1:
            return self.emit(f"load i1, ptr {pointer.name}", type_)
        return self.emit(f"load {type_}, ptr {pointer.name}, align {align}", type_)

    def load_apart(self, pointer: Value, type_: Type, align: int = 1) -> Value:
        """A load that stays one.

        What is selected between it and another value, and stored to where it came from, would be
        stored by a mask else, which takes some processors ten times as long.
        """
        return self.emit(f"load volatile {type_}, ptr {pointer.name}, align {align}", type_)

    def store(self, value: Value, pointer: Value, align: int = 1) -> None:
        self._lines.append(f"  store {value.type} {value.name}, ptr {pointer.name}, align {align}")

    def store_past_caches(self, value: Value, pointer: Value) -> None:
        """Store a vector to an address that is a multiple of its size; see :meth:`fence`.

        The line is not read first, which would take as long again as writing it.
        """
        self.declarations["!0"] = "!0 = !{i32 1}"
        self._lines.append(
            f"  store {value.type} {value.name}, ptr {pointer.name}, align {value.type.size}, "
            f"!nontemporal !0"
        )

    def fence(self) -> None:
        """What was stored past the caches is seen by all threads from here on."""
        self._lines.append("  fence seq_cst")

    def claim(self, counter: Value) -> Value:
        """Add 1 to a 64-bit counter that threads share; what it was before."""
        return self.emit(f"atomicrmw add ptr {counter.name}, i64 1 acq_rel", I64)

    def wait_until(self, counter: Value, least: Value) -> None:
        """Wait for a shared counter; what the others wrote before they added to it is seen."""
        with self.while_() as done:
            seen = self.emit(f"load atomic i64, ptr {counter.name} acquire, align 8", I64)
            self.break_if(seen.cmp(">=", least), done)
            if hasattr(os, "sched_yield"):
                self.call("sched_yield", I32, [])

    def pause(self) -> None:
        """Tell the core that this loop waits for memory."""
        if platform.machine() in ("x86_64", "AMD64"):
            self.declarations["pause"] = "declare void @llvm.x86.sse2.pause()"
            self._lines.append("  call void @llvm.x86.sse2.pause()")
        elif platform.machine() in ("aarch64", "arm64"):
            self.call("llvm.aarch64.isb", None, [self.const(15, I32)])

    def load_masked(self, pointer: Value, type_: Type, mask: Value, align: int = 1) -> Value:
        """The lanes that `mask` has; zero in the others, whose memory is not touched."""
        name = f"llvm.masked.load.{type_.suffix()}.p0"
        return self.call(name, type_, [pointer, self.const(align, I32), mask, self.const(0, type_)])

    def store_masked(self, value: Value, pointer: Value, mask: Value, align: int = 1) -> None:
        name = f"llvm.masked.store.{value.type.suffix()}.p0"
        self.call(name, None, [value, pointer, self.const(align, I32), mask])

    def prefetch(self, pointer: Value, *, write: bool = False) -> None:
        self.call("llvm.prefetch.p0", None, [pointer, *(self.const(x, I32) for x in (write, 3, 1))])

    # --- operations

    def select(self, condition: Value, yes: Value, no: Value) -> Value:
        return self.emit(
            f"select {condition.type} {condition.name}, {yes.type} {yes.name}, {no.type} {no.name}",
            yes.type,
        )

    def stack(self, values: Sequence[Value]) -> Value:
        """Scalars as the lanes of a vector."""
        out = values[0].type.vector(len(values))
        stacked = "poison"
        for lane, x in enumerate(values):
            code = f"insertelement {out} {stacked}, {x.type} {x.name}, i64 {lane}"
            stacked = self.emit(code, out).name
        return Value(self, stacked, out)

    def shuffle(self, x: Value, y: Value, lanes: Iterable[int]) -> Value:
        """Pick lanes of `x` and, counted on from them, of `y`."""
        mask = list(lanes)
        out = x.type.vector(len(mask))
        text = ", ".join(f"i32 {lane}" for lane in mask)
        return self.emit(
            f"shufflevector {x.type} {x.name}, {y.type} {y.name}, <{len(mask)} x i32> <{text}>", out
        )

    def strided(self, parts: Sequence[Value], first: int) -> Value:
        """Each n-th lane of n vectors that follow one another, from `first` on."""
        count, lanes = len(parts), parts[0].type.lanes
        found = parts[0]
        for i, x in enumerate(parts):
            places = (k * count + first - i * lanes for k in range(lanes))
            picked = [lanes + at if 0 <= at < lanes else k for k, at in enumerate(places)]
            found = self.shuffle(found, x, picked)
        return found

    def call(self, name: str, result: Type | None, args: Sequence[Value]) -> Value:
        types = ", ".join(str(a.type) for a in args)
        self.declarations[name] = f"declare {result or 'void'} @{name}({types})"
        text = f"call {result or 'void'} @{name}({', '.join(f'{a.type} {a.name}' for a in args)})"
        if result is None:
            self._lines.append(f"  {text}")
            return args[0]
        return self.emit(text, result)

    def intrinsic(self, name: str, *args: Value) -> Value:
        """Call ``llvm.NAME`` on values of one type."""
        type_ = args[0].type
        return self.call(f"llvm.{name}.{type_.suffix()}", type_, args)

    def invoke(self, other: Function, args: Sequence[Value]) -> None:
        """Call another function of the module."""
        text = ", ".join(f"{a.type} {a.name}" for a in args)
        self._lines.append(f"  call void @{other.name}({text})")

    def invoke_at(self, pointer: Value, args: Sequence[Value]) -> None:
        """Call a function at an address."""
        text = ", ".join(f"{a.type} {a.name}" for a in args)
        self._lines.append(f"  call void {pointer.name}({text})")

    def pointer(self, address: int) -> Value:
        """An address of this process."""
        return self.emit(f"inttoptr i64 {address} to ptr", PTR)

    def fma(self, x: Value, y: Value, z: Value) -> Value:
        return self.intrinsic("fma", x, y, z)

    def low(self, x: Value, y: Operand) -> Value:
        """The smaller of two integers."""
        rhs = self.const(y, x.type) if isinstance(y, (int, float)) else y
        return self.select(x.cmp("<", rhs), x, rhs)

    def ceil_div(self, x: Value, y: int) -> Value:
        return (x + (y - 1)) // y

    # --- control flow

    def fresh(self, name: str) -> str:
        """A label that is not used yet."""
        return f"{name}.{self._next()}"

    def label(self, label: str) -> None:
        """Begin a block, after a jump or a branch."""
        self._lines.append(f"{label}:")

    def jump(self, label: str) -> None:
        """End a block."""
        self._lines.append(f"  br label %{label}")

    def place(self, label: str) -> None:
        """Begin a block that the one before leads to."""
        self.jump(label)
        self.label(label)

    def branch(self, condition: Value, yes: str, no: str) -> None:
        """End a block."""
        self._lines.append(f"  br i1 {condition.name}, label %{yes}, label %{no}")

    @contextmanager
    def loop(self, lo: Operand, hi: Operand, step: Operand = 1) -> Iterator[Value]:
        """For ``i`` from `lo` while below `hi`, in steps of `step` (> 0)."""
        first, last, by = (
            self.const(x, I64) if isinstance(x, (int, float)) else x for x in (lo, hi, step)
        )
        slot = self.var(first)
        n = self._next()
        self.place(f"guard{n}")
        self.branch(first.cmp("<", last), f"body{n}", f"exit{n}")
        self.label(f"body{n}")
        i = slot.get()
        yield self.emit(f'call i64 asm "", "=r,0"(i64 {i.name})', I64) if self.opaque else i
        following = self.emit(f"add nsw i64 {i.name}, {by.name}", I64)
        slot.set(following)
        self.branch(following.cmp("<", last), f"body{n}", f"exit{n}")
        self.label(f"exit{n}")

    @contextmanager
    def while_(self) -> Iterator[str]:
        """Repeat until :meth:`break_if` on the yielded label."""
        n = self._next()
        self.place(f"again{n}")
        yield f"done{n}"
        self.jump(f"again{n}")
        self.label(f"done{n}")

    def break_if(self, condition: Value, label: str) -> None:
        go = f"go{self._next()}"
        self.branch(condition, label, go)
        self.label(go)

    @contextmanager
    def if_(self, condition: Value) -> Iterator[None]:
        n = self._next()
        self.branch(condition, f"then{n}", f"end{n}")
        self.label(f"then{n}")
        yield
        self.place(f"end{n}")

    @contextmanager
    def if_else(self, condition: Value) -> Iterator[Callable[[], AbstractContextManager[None]]]:
        """``with f.if_else(c) as otherwise: ...; with otherwise(): ...``."""
        n = self._next()

        @contextmanager
        def otherwise() -> Iterator[None]:
            self.jump(f"end{n}")
            self.label(f"else{n}")
            yield

        self.branch(condition, f"then{n}", f"else{n}")
        self.label(f"then{n}")
        yield otherwise
        self.place(f"end{n}")

    def text(self) -> str:
        params = ", ".join(f"{a.type} {a.name}" for a in self.args)
        linkage = "internal " if self.private else ""
        last, kind = ["  ret void"], "void"
        if self._result is not None:
            kind, slot = str(self.result.type), self.result.slot.name
            last = [f"  %result = load {kind}, ptr {slot}", f"  ret {kind} %result"]
        body = "\n".join(["entry:", *self._entry, *self._lines, *last])
        return f"define {linkage}{kind} @{self.name}({params}) #0 {{\n{body}\n}}\n"


def transposed(f: Function, rows: list[Value]) -> list[Value]:
    """Rows (a power of two of them, at most as many as lanes) to columns, by zipping halves."""
    lanes, n = rows[0].type.lanes, len(rows)
    assert n <= lanes, f"{n} rows of {lanes} elements: a column would not fit a vector"
    low = [x // 2 + lanes * (x % 2) for x in range(lanes)]
    high = [x + lanes // 2 for x in low]
    count = 1
    while count < n:
        half = n // 2
        rows = [
            f.shuffle(rows[i], rows[i + half], mask) for i in range(half) for mask in (low, high)
        ]
        count *= 2
    per = lanes // n  # columns in each vector now
    if per == 1:
        return rows
    return [f.shuffle(x, x, range(c * n, (c + 1) * n)) for x in rows for c in range(per)]


def module_text(functions: Sequence[Function]) -> str:
    """The text of a module of these functions."""
    declarations = sorted({d for f in functions for d in f.declarations.values()})
    parts = [*declarations, *(f.text() for f in functions), "attributes #0 = { nounwind }"]
    return "\n".join(parts) + "\n"
