"""Code generation: kernels (:mod:`semiring_mm.kernel`) as functions in LLVM IR, and their calls.

A compiled kernel takes the address of a block of 64-bit words, one for each parameter: numbers, and
the addresses of array objects, where it finds the entries and the strides of all axes but the last.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import marshal
import operator
import struct
import sys
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..cache import cached
from ..kernel import Kernel, KernelError, _Word
from ..layouts import LayoutError
from ..lazy import cached_property
from ..plan import Plan
from . import vmath
from .algebra import Algebra
from .compiler import KEPT, compile_kept, host_target, writers
from .ir import F64, I1, I64, PTR, Function, Type, Value, Var, module_text, transposed
from .views import ArrayView, check_array_layout

__all__ = ["Call", "Compiled", "compiled", "function_of"]

Array = NDArray[Any]

U64 = Type("u", 64)
_NEVER = 1 << 62  # the first of no lanes
_PARTS = 4  # independent sums of join(): an addition and a comparison take some four cycles
_NUMBERS: dict[type[ast.AST], Callable[[Any, Any], Any]] = {
    ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.BitAnd: operator.and_,
    ast.BitOr: operator.or_, ast.BitXor: operator.xor, ast.LShift: operator.lshift,
    ast.RShift: operator.rshift, ast.Div: operator.truediv, ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}  # fmt: skip
_REAL = {ast.Add, ast.Sub, ast.Mult, ast.Div}
_WHOLE = _NUMBERS.keys() - {ast.Div}
_ORDER: dict[type[ast.AST], tuple[str, Callable[[Any, Any], bool]]] = {
    ast.Lt: ("<", operator.lt), ast.LtE: ("<=", operator.le), ast.Gt: (">", operator.gt),
    ast.GtE: (">=", operator.ge), ast.Eq: ("==", operator.eq), ast.NotEq: ("!=", operator.ne),
}  # fmt: skip


# --- calls ----------------------------------------------------------------------------------------


@functools.lru_cache(maxsize=KEPT)
def compiled(
    kernel: Kernel, plan: Plan | str | None = None, zero: float | int = 0, one: float | int = 0
) -> Compiled:
    """Compile a kernel, for the operations of a plan if it names any.

    `zero` and `one` are those of the type that the plan computes in. A dtype, such as ``"f4"``, or
    those of T and S, ``"f8 f4"``, stand for a plan where a kernel has none of the operations.
    """
    check_array_layout()
    own = _Variants(kernel, plan, zero, one)
    call: Any = own.caller("code_(words_)")  # a class with __call__ would take 0.6 us more
    call.dtypes, call.bind, call.function_of = own.dtypes, own.bind, own.function_of
    made: Compiled = call
    return made


class Compiled(Protocol):
    """A kernel to be called with its parameters by name.

    Each set of static parameters, of others that are None and of types of indices is compiled when
    it is met first.

    Attributes
    ----------
    dtypes : dict
        Of its parameters.
    """

    dtypes: dict[str, np.dtype[Any]]

    def __call__(self, **fields: Any) -> Any: ...

    def bind(self, **fields: Any) -> Call:
        """Check and pack the parameters: the call, to be made as often as one likes.

        It keeps the arrays.
        """

    def function_of(self, name: str, **fields: Any) -> Callable[[Array], Any]:
        """Check and pack the parameters: the call for arrays that lie as one of these does."""


class _Variants:
    """The compiled code of a kernel by static parameters, those that are None, and types of I."""

    def __init__(
        self, kernel: Kernel, plan: Plan | str | None, zero: float | int, one: float | int
    ) -> None:
        self.kernel, self._algebra = kernel, (plan, zero, one)
        self.dtypes = {p.name: _dtype_of(p.kind, plan) for p in kernel.parameters}
        semiring = {p.kind: self.dtypes[p.name] for p in kernel.parameters if p.kind in ("T", "S")}
        self._signature = kernel.signature(**semiring)
        self._variants: dict[tuple[Any, ...], Any] = {}

    def bind(self, **fields: Any) -> Call:
        return Call(*self._packed(**fields), fields)

    def function_of(self, name: str, **fields: Any) -> Callable[[Array], Any]:
        code, words = self._packed(**fields)
        names = [p.name for p in self.kernel.parameters if p.kind != "static"]
        at = 8 * names.index(name)
        before, rest = words[:at], words[at + 8 :]
        del fields[name]

        def call(x: Array, _: Any = fields) -> Any:  # the arrays whose addresses are in the words
            return code(before + id(x).to_bytes(8, sys.byteorder) + rest)

        return call

    @cached_property
    def _packed(self) -> Callable[..., tuple[Any, bytes]]:
        return self.caller("code_, words_")

    def caller(self, result: str) -> Callable[..., Any]:
        """Compile a function that checks and packs parameters, with a result of code_ and words_.

        Since a call may take less time than its checks, these are a single expression.
        """
        words = [p for p in self.kernel.parameters if p.kind != "static"]
        codes = "".join("q" if p.axes else _code(self.dtypes[p.name])[1:] for p in words)
        names = self._signature.values() | {
            "pack_": struct.Struct(f"={codes}").pack, "error_": struct.error,
            "variants_": self._variants, "variant_": self._variant, "refusal_": self._refusal,
        }  # fmt: skip
        return types.FunctionType(_caller_code(self.kernel, result), names)

    def _refusal(self, fields: dict[str, Any]) -> Exception:
        """The error for parameters that do not fit."""
        for p in self.kernel.parameters:
            x = fields[p.name]
            if not p.axes and p.kind != "static" and x is not None:
                try:
                    struct.pack(_code(self.dtypes[p.name]), x)
                except struct.error as error:
                    what = f"{self.kernel.name}: {p.name} is a number of type {p.kind}"
                    return TypeError(f"{what}, got {x!r}: {error}")
        try:
            self._signature.compiled()(**{p.name: fields[p.name] for p in self.kernel.parameters})
        except LayoutError as error:
            return error
        return AssertionError(f"{self.kernel.name}: parameters that fit were refused")

    def _variant(self, key: tuple[Any, ...], fields: dict[str, Any]) -> Any:
        found = self._variants.get(key)
        if found is None:
            known: dict[str, Any] = {}
            for p in self.kernel.parameters:
                x = fields[p.name]
                if p.kind == "static" or x is None:
                    known[p.name] = x
                elif p.kind == "I":
                    known[p.name] = Type("i", 8 * x.itemsize)
            what = repr((self._algebra, known))
            library = compile_kept(
                [self.kernel.name], (writers("codegen"), self.kernel.digest, what),
                lambda: module_text([function_of(self.kernel, *self._algebra, known)]),
                host_target(),
            )  # fmt: skip
            result = ctypes.c_int64 if self.kernel.returns else None
            found = library.function(self.kernel.name, ctypes.c_void_p, result=result)
            self._variants[key] = found
        return found


class Call:
    """One call of a compiled kernel: ``code`` with the address of a ``block`` of parameters."""

    def __init__(self, code: Any, words: bytes, kept: Any) -> None:
        self.code, self._words = code, words
        self._kept = kept  # the arrays: the block has only their addresses

    @property
    def block(self) -> int:
        return id(self._words) + bytes.__basicsize__ - 1  # but for the byte that ends them

    def __call__(self) -> Any:
        return self.code(self._words)


def _type_of(kind: str, plan: Plan | str | None) -> Type:
    if kind in ("T", "S"):
        if isinstance(plan, str):
            dtype = plan.split()[0 if kind == "T" else -1]
            return Type(dtype[0], 8 * int(dtype[1:]))
        if plan is None:
            raise TypeError(f"a kernel with parameters of type {kind} is compiled for a plan")
        own = Algebra(Function("", []), plan)
        return own.compute if kind == "T" else own.storage
    return Type(kind[0], int(kind[1:]))


def _dtype_of(kind: str, plan: Plan | str | None) -> np.dtype[Any]:
    if kind == "S" and isinstance(plan, Plan):
        return np.dtype(plan.storage)  # bool, for one
    if kind == "static":
        return np.dtype(object)
    if kind == "I":
        return np.dtype(np.int64)
    t = _type_of(kind, plan)
    return np.dtype(f"{t.kind}{t.size}")


def _code(dtype: np.dtype[Any]) -> str:
    """How :mod:`struct` packs a number as a word."""
    return {"f4": "=f4x", "f8": "=d", "u8": "=Q"}.get(dtype.str[1:], "=q")


@functools.cache
def _caller_code(kernel: Kernel, result: str) -> types.CodeType:
    """Of what :meth:`_Variants.caller` returns."""
    key, words = list[str](), list[str]()
    for p in kernel.parameters:
        x = p.name
        if p.kind == "static":
            key.append(x)
            continue
        key.append(f"{x} is None" if p.kind != "I" else f"{x} is None or {x}.itemsize")
        words.append(f"(0 if {x} is None else {f'id({x})' if p.axes else x})")
    signature = kernel.signature(T=np.dtype(object), S=np.dtype(object))
    tests = ["True", *(condition.text for condition in signature.conditions())]
    text = f"""
def {kernel.name}({signature.parameters}):
    try:
        words_ = pack_({", ".join(words)}) if {" and ".join(tests)} else None
    except (IndexError, TypeError, error_):
        words_ = None
    if words_ is None:
        raise refusal_(locals())
    key_ = ({"".join(f"{k}, " for k in key)})
    code_ = variants_.get(key_) or variant_(key_, locals())
    return {result}
"""

    def compile_() -> bytes:
        return marshal.dumps(compile(text, f"<parameters of {kernel.name}>", "exec").co_consts[0])

    code = marshal.loads(cached("callers", (text, sys.version), compile_))
    assert isinstance(code, types.CodeType)
    return code


# --- values ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _View:
    """An array, or the rest of one: where it begins and the strides, in entries, of its axes."""

    base: Var
    type: Type
    strides: tuple[Any, ...]  # of all axes but the last one
    wide: bool = True  # integers are 64 bits wide once they are loaded
    apart: tuple[Var, ...] = ()  # entries to skip, of each lane, where lanes have rows of their own

    @property
    def axes(self) -> int:
        return len(self.strides) + 1


@dataclass(frozen=True)
class _Lanes:
    """Neighbouring indices, one in each lane; `mask` has those below the end, None: all are."""

    base: Value
    count: int
    mask: Value | None


@dataclass
class _Scope:
    """A kernel, or one that is inlined into it, while its body is written."""

    kernel: Kernel
    names: dict[str, Any]
    loops: list[tuple[str, str]] = field(default_factory=list)  # where continue and break lead
    leave: str = ""  # where return leads
    results: list[Var] | None = None
    masked: _Lanes | None = None  # of the loop over lanes that this is in
    only: Value | None = None  # lanes for which something is computed or stored
    above: frozenset[str] = frozenset()  # names from before an `if` about lanes
    outer: frozenset[str] = frozenset()  # names from before it, whose masked lanes do not change


def function_of(
    kernel: Kernel,
    plan: Plan | str | None,
    zero: float | int,
    one: float | int,
    known: dict[str, Any],
) -> Function:
    """The function of a kernel; `known` has static ones, those that are None, and types of I."""
    f = Function(kernel.name, [PTR], result=I64 if kernel.returns else None)
    names, at = dict[str, Any](), 0
    for p in kernel.parameters:
        own = known.get(p.name)
        if p.name in known and not isinstance(own, Type):
            names[p.name] = own
            at += 8 * (p.kind != "static")
            continue
        t, word = own or _type_of(p.kind, plan), f.args[0].at(at)
        at += 8
        if p.axes:
            array = ArrayView(f, f.load(word, PTR, 8))
            shift = t.size.bit_length() - 1
            strides = (f.load(array.strides.at(8 * k), I64, 8) >> shift for k in range(p.axes - 1))
            wide = p.kind not in ("T", "S")
            names[p.name] = _View(f.var(array.data), t, tuple(strides), wide)
        else:
            names[p.name] = f.load(word, t if t.kind == "f" or p.kind == "T" else I64, 8)
    algebra = Algebra(f, plan) if isinstance(plan, Plan) else None
    both = (I64, I64) if plan is None else (_type_of("T", plan), _type_of("S", plan))
    writer = _Writer(f, algebra, zero, one, both)
    found = writer.inline(kernel, names)
    if kernel.returns:
        f.result.set(writer.number(found, kernel))
    return f


class _Writer:
    """Writes the syntax trees of kernels as IR."""

    def __init__(
        self, f: Function, algebra: Algebra | None, zero: float | int, one: float | int,
        types: tuple[Type, Type],
    ) -> None:  # fmt: skip
        self.f, self._algebra, self._zero, self._one, self._types = f, algebra, zero, one, types
        self.scope: _Scope
        self._count = host_target().vector_bytes // types[0].size
        self._depth, self._streams = 0, False

    def inline(self, kernel: Kernel, names: dict[str, Any]) -> Any:
        """Write a kernel's body; what it returns."""
        outer = getattr(self, "scope", None)
        if self._depth > 20:
            raise kernel.error(kernel.tree, "a kernel cannot call itself")
        own = {a.arg for a in kernel.tree.args.args}
        written = {
            x.id for x in ast.walk(kernel.tree)
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
        }  # fmt: skip
        names = {k: self._variable(v) if k in own & written else v for k, v in names.items()}
        self.scope = _Scope(kernel, names)
        if outer is not None:
            self.scope.masked, self.scope.only = outer.masked, outer.only
        self._depth += 1
        *body, last = kernel.tree.body
        direct = isinstance(last, ast.Return) and not any(
            isinstance(x, ast.Return) for s in body for x in ast.walk(s)
        )
        found: Any = None
        if direct:
            self._block(body)
            assert isinstance(last, ast.Return)
            found = None if last.value is None else self._expr(last.value)
        else:
            self.scope.leave = self.f.fresh("return")
            self._block([*body, last])
            self.f.place(self.scope.leave)
            if self.scope.results is not None:
                values = [r.get() for r in self.scope.results]
                found = values[0] if len(values) == 1 else tuple(values)
        self._depth -= 1
        if outer is not None:
            self.scope = outer
        elif self._streams:
            self.f.fence()
        return found

    def number(self, x: Any, kernel: Kernel) -> Value:
        """What a kernel returns, as an integer."""
        self.scope = _Scope(kernel, {})
        return self._as(x, I64, kernel.tree)

    def _error(self, node: ast.AST, message: str) -> KernelError:
        return self.scope.kernel.error(node, message)

    def algebra(self, node: ast.AST) -> Algebra:
        if self._algebra is None:
            raise self._error(node, "operations of a semiring in a kernel compiled without one")
        return self._algebra

    # --- statements

    def _block(self, body: Sequence[ast.stmt]) -> None:
        for s in body:
            write = getattr(self, f"_do_{type(s).__name__}", None)
            if write is None:
                raise self._error(s, f"a kernel has no statement {type(s).__name__.lower()}")
            try:
                write(s)
            except TypeError as error:  # of two types that do not go together
                raise self._error(s, str(error)) from error
            if self._leaves(s):
                break

    def _leaves(self, s: ast.stmt) -> bool:
        """Whether what follows a statement is never run, and not compiled."""
        if isinstance(s, ast.If) and (known := self._known(s.test)) is not None:
            return any(map(self._leaves, (s.body if known else s.orelse)[-1:]))
        return isinstance(s, (ast.Continue, ast.Break, ast.Return))

    def _do_Expr(self, s: ast.Expr) -> None:
        if not isinstance(s.value, ast.Constant):
            self._expr(s.value)

    def _do_Pass(self, s: ast.Pass) -> None:
        pass

    def _do_Assign(self, s: ast.Assign) -> None:
        if len(s.targets) > 1:
            raise self._error(s, "one assignment has one target")
        self._assign(s.targets[0], self._expr(s.value))

    def _do_AugAssign(self, s: ast.AugAssign) -> None:
        assert not isinstance(s.target, ast.Attribute)
        t = s.target
        load = ast.Name(t.id) if isinstance(t, ast.Name) else ast.Subscript(t.value, t.slice)
        both = ast.BinOp(ast.copy_location(load, t), s.op, s.value)
        self._assign(t, self._expr(ast.copy_location(both, s)))

    def _assign(self, target: ast.expr, value: Any) -> None:
        if isinstance(target, ast.Tuple):
            if not isinstance(value, tuple) or len(value) != len(target.elts):
                raise self._error(target, "as many values as targets")
            copies = [self._variable(v) if isinstance(v, _View) else v for v in value]
            for t, v in zip(target.elts, copies, strict=True):
                self._assign(t, v)
        elif isinstance(target, ast.Name):
            known = self.scope.names.get(target.id)
            if isinstance(known, Var) and isinstance(value, (Value, int, float)):
                lanes = self.scope.masked if target.id in self.scope.outer else None
                self._set(known, value, target, None if lanes is None else lanes.mask)
                if known.type.lanes == 1 and target.id in self.scope.above:
                    raise self._error(target, f"{target.id} is one number, of lanes that differ")
            elif isinstance(known, _View) and isinstance(value, _View):
                if (known.type, known.strides) != (value.type, value.strides):
                    raise self._error(target, "an array of other strides")
                known.base.set(value.base.get())
            elif known is None or isinstance(value, (list, str, _Lanes)):
                self.scope.names[target.id] = self._variable(value)
            else:
                raise self._error(target, f"{target.id} is something else before")
        elif isinstance(target, ast.Subscript):
            array = self._expr(target.value)
            if isinstance(array, list):
                index = self._expr(target.slice)
                if isinstance(index, _Lanes) and len(array) == index.count == value.type.lanes:
                    for k, var in enumerate(array):
                        self._set(var, value[k], target)
                    return
                self._set(array[self._static(target.slice)], value, target)
            else:
                self._store(array, target, value)
        else:
            raise self._error(target, "a target is a name or an entry of an array")

    def _set(self, var: Var, value: Any, node: ast.AST, mask: Value | None = None) -> None:
        value = self._as(value, var.type, node)
        if value.type.lanes > var.type.lanes:
            raise self._error(node, f"{value.type} where there is {var.type}: begin with each(x)")
        mask = self._masks(mask, self.scope.only)
        if mask is not None and var.type.lanes > 1:
            value = self.f.select(mask, value, var.get())
        var.set(value)

    def _variable(self, value: Any) -> Any:
        if isinstance(value, _View):
            base, *apart = (self.f.var(x.get()) for x in (value.base, *value.apart))
            return replace(value, base=base, apart=tuple(apart))
        if isinstance(value, (bool, int, float)):
            return self.f.var(self._constant(value))
        return self.f.var(value) if isinstance(value, Value) else value

    def _do_For(self, s: ast.For) -> None:
        match s:
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, orelse=[]):
                word = self._word(call.func)
            case _:
                name, word = "", None
        if word == "unrolled":
            for k in range(*(self._static(x) for x in call.args)):
                self.scope.names[name] = k
                self._block(s.body)
        elif word == "lanes":
            before = self.scope.masked, self.scope.outer
            self.scope.outer = frozenset(self.scope.names)
            for j in self._vectors(call):
                self.scope.masked = self.scope.names[name] = j
                self._block(s.body)
            self.scope.masked, self.scope.outer = before
        elif word == "range":
            labels = self.f.fresh("next"), self.f.fresh("past")
            opaque, self.f.opaque = self.f.opaque, not self._straight(s.body)
            with self._range(call) as self.scope.names[name]:
                self.scope.loops.append(labels)
                self._block(s.body)
                self.scope.loops.pop()
                self.f.place(labels[0])
            self.f.place(labels[1])
            self.f.opaque = opaque
        elif word == "where":
            self._visit(name, *map(self._expr, call.args), s=s)
        else:
            raise self._error(s, "a loop is: for NAME in range(), lanes(), where() or unrolled()")
        self.scope.names.pop(name, None)

    def _straight(self, body: Sequence[ast.stmt]) -> bool:
        """Whether a loop has neither loops nor branches, so that addresses are much of its work."""
        for x in (x for s in body for x in ast.walk(s)):
            if isinstance(x, (ast.While, ast.If, ast.BoolOp)):
                return False
            if isinstance(x, ast.Call):
                inner = self._kernel(x.func)
                if inner is not None and not self._straight(inner.tree.body):
                    return False
                if self._word(x.func) in ("range", "lanes", "join"):
                    return False
        return True

    @contextmanager
    def _range(self, call: ast.Call) -> Iterator[Value]:
        first, last, *step = (
            self._expr(x) for x in [ast.Constant(0)] * (len(call.args) == 1) + call.args
        )
        lo, hi = (self._as(x, I64, call) for x in (first, last))
        by = step[0] if step else 1
        if not isinstance(by, int):
            raise self._error(call, "the step of a range is known when the kernel is compiled")
        if by > 0:
            with self.f.loop(lo, hi, by) as i:
                yield i
        else:
            with self.f.loop(0, lo - hi, -by) as i:
                yield lo - i

    def _vectors(self, call: ast.Call) -> Iterator[_Lanes]:
        """The whole vectors of a range, and what is left; each writes the body once more."""
        f, n = self.f, self._expr(call.args[0])
        count = self._count * (self._static(call.args[1]) if len(call.args) > 1 else 1)
        options = {k.arg: self._static(k.value) for k in call.keywords}
        whole, times = options.get("whole", False), options.get("times", 0)
        if whole and isinstance(n, int) and n <= count and not n & (n - 1):  # one, and no loop
            yield _Lanes(f.const(0, I64), n, None)
            return
        n = self._as(n, I64, call)
        if times:
            for k in range(times - (not whole)):
                yield _Lanes(f.const(k * count, I64), count, None)
            end = f.const((times - 1) * count, I64)
            rest = n - end
        else:
            end = n if whole else n & -count
            with f.loop(0, end, count) as j:
                yield _Lanes(j, count, None)
            rest = n - end
        if whole:
            return
        if times:
            with f.if_(rest.cmp("==", count)):
                yield _Lanes(end, count, None)
        with f.if_(rest.cmp("<", count) & rest.cmp(">", 0)):
            yield _Lanes(end, count, f.below(rest, count))

    def _visit(self, name: str, j: Any, condition: Any, *, s: ast.For) -> None:
        """A loop over the lanes for which a condition holds."""
        f, masked = self.f, self.scope.masked
        left = f.var(self._word_of(j, condition, s))
        with f.while_() as done:
            f.break_if(left.get().cmp("==", 0), done)
            lane = f.call("llvm.cttz.i64", U64, [left.get(), f.const(0, I1)])
            left.set(left.get() & (left.get() - 1))
            self.scope.names[name], self.scope.masked = j.base + lane.to(I64), None
            self.scope.loops.append((done.replace("done", "again"), ""))
            self._block(s.body)
            self.scope.loops.pop()
        self.scope.masked = masked

    def _do_While(self, s: ast.While) -> None:
        with self.f.while_() as done:
            self._branch_unless(s.test, done)
            self.scope.loops.append((done.replace("done", "again"), done))
            self._block(s.body)
            self.scope.loops.pop()

    def _branch_unless(self, test: ast.expr, label: str) -> None:
        go = self.f.fresh("go")
        self._branch(test, go, label)
        self.f.label(go)

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Go to one of two labels; what is right of ``and`` and ``or`` is computed if need be."""
        f, known = self.f, self._known(test)
        if known is not None:
            f.jump(yes if known else no)
        elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._branch(test.operand, no, yes)
        elif isinstance(test, ast.BoolOp):
            both = isinstance(test.op, ast.And)
            *parts, last = (x for x in test.values if self._known(x) is None)
            for x in parts:
                following = f.fresh("also")
                self._branch(x, following if both else yes, no if both else following)
                f.label(following)
            self._branch(last, yes, no)
        else:
            f.branch(self._truth(self._expr(test), test), yes, no)

    def _truth(self, x: Any, node: ast.AST) -> Value:
        if not isinstance(x, Value) or x.type.lanes > 1:
            raise self._error(node, "a condition is one number or comparison: of vectors, IF else")
        return x if x.type.bits == 1 else x.cmp("!=", 0)

    def _do_If(self, s: ast.If) -> None:
        known = self._known(s.test)
        if known is not None:  # the other one is not compiled
            self._block(s.body if known else s.orelse)
            return
        yes, no, end = (self.f.fresh(x) for x in ("then", "else", "end"))
        if isinstance(s.test, (ast.BoolOp, ast.UnaryOp)):
            self._branch(s.test, yes, no)
        else:
            condition = self._expr(s.test)
            if isinstance(condition, Value) and condition.type.lanes > 1:
                self._some_lanes(s.body, condition)
                self._some_lanes(s.orelse, condition ^ 1)
                return
            self.f.branch(self._truth(condition, s.test), yes, no)
        self.f.label(yes)
        self._block(s.body)
        self.f.jump(end)
        self.f.label(no)
        self._block(s.orelse)
        self.f.place(end)

    def _some_lanes(self, body: list[ast.stmt], condition: Value) -> None:
        """Assignments in the lanes of a condition."""
        for s in body:
            if not isinstance(s, (ast.Assign, ast.AugAssign, ast.If)):
                raise self._error(s, "where a condition is one of each lane, there are assignments")
        before = self.scope.only, self.scope.above
        self.scope.only = self._masks(self.scope.only, condition)
        self.scope.above = frozenset(self.scope.names)
        self._block(body)
        self.scope.only, self.scope.above = before

    def _do_Break(self, s: ast.Break) -> None:
        self._leave(s, 1)

    def _do_Continue(self, s: ast.Continue) -> None:
        self._leave(s, 0)

    def _leave(self, s: ast.stmt, which: int) -> None:
        if not self.scope.loops or not self.scope.loops[-1][which]:
            raise self._error(
                s, "there is no loop to leave here: neither lanes, where nor unrolled"
            )
        self.f.jump(self.scope.loops[-1][which])
        self.f.label(self.f.fresh("never"))

    def _do_Return(self, s: ast.Return) -> None:
        value = None if s.value is None else self._expr(s.value)
        if value is not None:
            values = value if isinstance(value, tuple) else (value,)
            if self.scope.results is None:
                self.scope.results = [self._variable(v) for v in values]
            for var, v in zip(self.scope.results, values, strict=True):
                self._set(var, v, s)
        self.f.jump(self.scope.leave)
        self.f.label(self.f.fresh("never"))

    # --- expressions: Python's values where they are known, else IR's, arrays, lanes and tuples

    def _expr(self, e: ast.expr) -> Any:
        write = getattr(self, f"_of_{type(e).__name__}", None)
        if write is None:
            raise self._error(e, f"a kernel has no {type(e).__name__.lower()}")
        return write(e)

    def _of_Constant(self, e: ast.Constant) -> Any:
        return e.value

    def _of_Name(self, e: ast.Name) -> Any:
        if e.id in self.scope.names:
            x = self.scope.names[e.id]
            return x.get() if isinstance(x, Var) else x
        x = self.scope.kernel.function.__globals__.get(e.id)
        if isinstance(x, _Word) and x.name in ("zero", "one"):
            t = self.algebra(e).compute
            count = self.scope.masked.count if self.scope.masked else 1
            return self.f.const(self._zero if x.name == "zero" else self._one, t.vector(count))
        if isinstance(x, (bool, int, float, tuple)):
            return x
        raise self._error(e, f"{e.id} has no value here")

    def _of_Tuple(self, e: ast.Tuple) -> Any:
        return tuple(self._expr(x) for x in e.elts)

    def _of_List(self, e: ast.List) -> Any:
        return [self._variable(self._expr(x)) for x in e.elts]

    def _of_ListComp(self, e: ast.ListComp) -> Any:
        """A list that is known when the kernel is compiled: [... for k in unrolled(n)]."""
        (loop,) = e.generators
        if not isinstance(loop.iter, ast.Call) or self._word(loop.iter.func) != "unrolled":
            raise self._error(e, "a list is: [... for NAME in unrolled(...)]")
        found, name = [], getattr(loop.target, "id", "")
        for k in range(*(self._static(x) for x in loop.iter.args)):
            self.scope.names[name] = k
            found.append(self._variable(self._expr(e.elt)))
        self.scope.names.pop(name, None)
        return found

    def _of_UnaryOp(self, e: ast.UnaryOp) -> Any:
        x = self._number(self._expr(e.operand), e)
        match e.op:
            case ast.USub():
                return -x
            case ast.Invert():
                return x ^ -1 if isinstance(x, Value) else ~x
            case ast.Not():
                if isinstance(x, Value) and x.type.lanes > 1 and x.type.bits == 1:
                    return x ^ 1
                return self._truth(x, e) ^ 1 if isinstance(x, Value) else not x
        return x

    def _of_BinOp(self, e: ast.BinOp) -> Any:
        x, y = self._expr(e.left), self._expr(e.right)
        kind = type(e.op)
        if kind in (ast.LShift, ast.RShift) and isinstance(x, Value) and isinstance(y, Value):
            y = y.to(x.type)
        if isinstance(x, _Lanes) and kind in (ast.Add, ast.Sub) and _is_index(y):
            return _Lanes(_NUMBERS[kind](x.base, y), x.count, x.mask)
        if isinstance(y, _Lanes) and kind is ast.Add and _is_index(x):
            return _Lanes(y.base + x, y.count, y.mask)
        x, y = self._pair(x, y, e)
        if not isinstance(x, Value):
            return _NUMBERS[kind](x, y)
        real = x.type.kind == "f"
        if kind not in (_REAL if real else _WHOLE):
            raise self._error(e, f"no such operation of {x.type} (/ is of floats: f64(x); // not)")
        if kind in (ast.FloorDiv, ast.Mod):
            return self._divided(x, y, kind)
        if x.type.bits == 1 and kind not in (ast.BitAnd, ast.BitOr, ast.BitXor):
            x, y = x.to(I64), y.to(I64)
        return _NUMBERS[kind](x, y)

    def _divided(self, x: Value, y: Value, kind: type[ast.AST]) -> Value:
        """Division rounded down, and its remainder, as Python has them."""
        quotient, rest = x // y, x % y
        off = rest.cmp("!=", 0) & (rest ^ y).cmp("<", 0)
        if kind is ast.Mod:
            return self.f.select(off, rest + y, rest)
        return self.f.select(off, quotient - 1, quotient)

    def _of_Compare(self, e: ast.Compare) -> Any:
        found: Any = None
        left = self._expr(e.left)
        for op, node in zip(e.ops, e.comparators, strict=True):
            right = self._expr(node)
            if isinstance(op, (ast.Is, ast.IsNot)):
                one: Any = (left is right) is isinstance(op, ast.Is)
            elif isinstance(left, _Lanes) and isinstance(op, ast.Lt) and _is_index(right):
                one = self.f.below(self._as(right, I64, e) - left.base, left.count)
            else:
                x, y = self._pair(left, right, e)
                sign, compare = _ORDER[type(op)]
                one = x.cmp(sign, y) if isinstance(x, Value) else compare(x, y)
            found = one if found is None else self._both(found, one)
            left = right
        return found

    @staticmethod
    def _both(x: Any, y: Any) -> Any:
        if isinstance(x, Value) and isinstance(y, Value):
            return x & y
        known, other = (y, x) if isinstance(x, Value) else (x, y)
        return other if known else False

    def _of_BoolOp(self, e: ast.BoolOp) -> Any:
        known = self._known(e)
        return (
            known if known is not None else self._chosen(e, ast.Constant(True), ast.Constant(False))
        )

    def _of_IfExp(self, e: ast.IfExp) -> Any:
        known = self._known(e.test)
        if known is not None:
            return self._expr(e.body if known else e.orelse)
        if isinstance(e.test, ast.BoolOp):
            return self._chosen(e.test, e.body, e.orelse)
        condition = self._expr(e.test)
        if condition.type.lanes == 1 and any(map(self._costly, (e.body, e.orelse))):
            return self._chosen(condition, e.body, e.orelse)
        if condition.type.bits != 1:
            condition = condition.cmp("!=", 0)
        x, y = (
            self._only(side, condition ^ other if other else condition)
            if condition.type.lanes > 1 and self._costly(side)
            else self._expr(side)
            for side, other in ((e.body, 0), (e.orelse, 1))
        )
        x, y = self._pair(x, y, e)
        x, y = (v if isinstance(v, Value) else self._constant(v) for v in (x, y))
        lanes = condition.type.lanes
        if x.type.lanes < lanes:
            x, y = x.splat(lanes), y.splat(lanes)
        elif lanes < x.type.lanes:
            condition = condition.splat(x.type.lanes)
        return self.f.select(condition, x, y)

    def _only(self, e: ast.expr, condition: Value) -> Any:
        """A value of which the lanes of a condition are loaded, and no others."""
        before, self.scope.only = self.scope.only, self._masks(self.scope.only, condition)
        value = self._expr(e)
        self.scope.only = before
        return value

    def _costly(self, e: ast.expr) -> bool:
        """Whether a value is not to be computed in vain: it is loaded, or that of a kernel."""
        names = self.scope.names
        return any(
            (isinstance(x, ast.Call) and self._kernel(x.func) is not None)
            or (isinstance(x, ast.Name) and isinstance(names.get(x.id), _View))
            or (isinstance(x, ast.Subscript) and not (
                isinstance(x.value, ast.Name) and isinstance(names.get(x.value.id), list)
            ))
            for x in ast.walk(e)
        )  # fmt: skip

    def _chosen(self, test: ast.expr | Value, body: ast.expr, orelse: ast.expr) -> Any:
        """One of two values, or arrays, of which the other is not computed."""
        yes, no, end = (self.f.fresh(x) for x in ("then", "else", "end"))
        if isinstance(test, Value):
            self.f.branch(self._truth(test, body), yes, no)
        else:
            self._branch(test, yes, no)
        self.f.label(yes)
        chosen = self._variable(self._expr(body))
        self.f.jump(end)
        self.f.label(no)
        other = self._expr(orelse)
        if isinstance(chosen, _View):
            chosen.base.set(other.base.get())
        else:
            chosen.set(self._as(other, chosen.type, orelse))
        self.f.place(end)
        return chosen if isinstance(chosen, _View) else chosen.get()

    def _of_Subscript(self, e: ast.Subscript) -> Any:
        array = self._expr(e.value)
        if isinstance(array, (list, tuple)):
            index = self._expr(e.slice)
            if isinstance(index, _Lanes) and len(array) == index.count:
                entries = [x.get() for x in array]
                return self.f.stack(entries) if index.count > 1 else entries[0]
            x = array[self._static(e.slice)]
            return x.get() if isinstance(x, Var) else x
        where, view = self._place(array, e)
        if isinstance(view, _View):
            return view
        value = self._load(where, view)
        return (
            value.to(I64.vector(value.type.lanes))
            if value.type.kind in "iu" and value.type.bits < 64 and array.wide
            else value
        )

    def _place(self, array: Any, e: ast.Subscript) -> tuple[Value, Any]:
        """Where an entry lies, and the lanes or None; or the array that is left."""
        if not isinstance(array, _View):
            raise self._error(e, "this is no array")
        indices = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        strides, left, last = (*array.strides, 1), list[Any](), None
        offset: Any = 0
        apart = [x.get() for x in array.apart]
        if len(indices) > len(strides):
            raise self._error(e, f"an array of {len(strides)} axes")
        for stride, i in zip(strides, indices, strict=False):
            if isinstance(i, ast.Slice):
                if i.upper is not None or i.step is not None:
                    raise self._error(e, "a part of an array is x[begin:]")
                left.append(stride)
                x = 0 if i.lower is None else self._expr(i.lower)
            else:
                x = self._expr(i)
            if isinstance(x, _Lanes) and stride == 1 and not apart:
                last, x = x, x.base
            x = self._number(x, e)
            if isinstance(x, Value) and x.type.lanes > 1:  # a place of its own for each lane
                skipped = [x[k].to(I64) * stride for k in range(x.type.lanes)]
                apart = list(map(operator.add, apart, skipped)) if apart else skipped
            else:
                offset = self._as(x, I64, e) * stride + offset
        left += strides[len(indices) :]
        place = array.base.get().at(offset * array.type.size)
        if not left:
            return place, (apart or last, array.type)
        own = tuple(map(self.f.var, apart))
        return place, _View(self.f.var(place), array.type, tuple(left[:-1]), array.wide, own)

    def _load(self, place: Value, entry: tuple[_Lanes | list[Value] | None, Type]) -> Value:
        lanes, t = entry
        if lanes is None:
            return self.f.load(place, t, t.size)
        if isinstance(lanes, list):
            places = self._places(place, lanes, t)
            return self.f.stack([self.f.load(at, t, t.size) for at in places])
        mask = self._masks(lanes.mask, self.scope.only)
        if mask is None:
            return self.f.load(place, t.vector(lanes.count), t.size)
        return self.f.load_masked(place, t.vector(lanes.count), mask, t.size)

    def _masks(self, *masks: Value | None) -> Value | None:
        some = [m for m in masks if m is not None]
        return functools.reduce(operator.and_, some) if some else None

    def _places(self, place: Value, apart: list[Value], t: Type) -> list[Value]:
        """Where the entry of each lane lies."""
        if self.scope.only is not None or (self.scope.masked and self.scope.masked.mask):
            raise TypeError("lanes with places of their own are whole vectors: whole=True")
        return [place.at(x * t.size) for x in apart]

    def _store(self, array: Any, target: ast.Subscript, value: Any) -> None:
        place, entry = self._place(array, target)
        if isinstance(entry, _View):
            raise self._error(target, "one entry is stored at a time")
        lanes, t = entry
        value = self._as(value, t, target)
        if isinstance(lanes, list):
            value = value.splat(len(lanes)) if value.type.lanes == 1 else value
            for k, at in enumerate(self._places(place, lanes, t)):
                self.f.store(value[k], at, t.size)
            return
        if lanes is None:
            if value.type.lanes > 1 or self.scope.only is not None:
                raise self._error(target, "lanes are stored at an index of lanes")
            self.f.store(value, place, t.size)
            return
        value = value.splat(lanes.count) if value.type.lanes == 1 else value
        mask = self._masks(lanes.mask, self.scope.only)
        if mask is None:
            self.f.store(value, place, t.size)
        else:
            self.f.store_masked(value, place, mask, t.size)

    # --- calls

    def _word(self, e: ast.expr) -> str | None:
        """What a name means in the language: one of its words, or a function of Python's."""
        if not isinstance(e, ast.Name):
            return None
        x = self.scope.kernel.function.__globals__.get(e.id)
        return x.name if isinstance(x, _Word) else e.id if x is None else None

    def _kernel(self, e: ast.expr) -> Kernel | None:
        x = self.scope.kernel.function.__globals__.get(getattr(e, "id", ""))
        return x if isinstance(x, Kernel) else None

    def _of_Call(self, e: ast.Call) -> Any:
        inner, word = self._kernel(e.func), self._word(e.func)
        if word == "join":
            return self._join(e)
        args = [self._expr(x) for x in (e.args[:1] if word == "across" else e.args)]
        if inner is not None:
            names = [a.arg for a in inner.tree.args.args]
            given = {str(k.arg): self._expr(k.value) for k in e.keywords}
            given |= dict(zip(names, args, strict=False))
            if len(args) > len(names) or given.keys() != set(names):
                raise self._error(e, f"{inner.name} takes {', '.join(names)}")
            return self.inline(inner, given)
        if word in ("add", "mul", "better", "same", "scale"):
            algebra = self.algebra(e)
            x, y = (self._as(v, algebra.compute, e) for v in args)
            return getattr(algebra, word)(*self._pair(x, y, e))
        if word == "each":
            count = self._count * (args[1] if len(args) > 1 else 1)
            if self.scope.masked is not None and len(args) == 1:
                count = self.scope.masked.count
            x = self._value(args[0], e)
            return x.splat(count) if x.type.lanes == 1 else x
        if word in ("decode", "encode"):
            x = self._number(args[0], e)
            if self._algebra is None:
                return x.to(self._types[word == "encode"])
            return self._algebra.decode(x) if word == "decode" else self._algebra.encode(x)[0]
        if word == "fma":
            x, y = self._pair(args[0], args[1], e)
            x, z = self._pair(x, args[2], e)
            return self.f.fma(x, y.splat(x.type.lanes) if y.type.lanes == 1 else y, z)
        if word == "bits":
            x = self._number(args[0], e)
            return x.bits_as(Type("f" if x.type.kind == "i" else "i", x.type.bits, x.type.lanes))
        if word in ("exp", "log"):
            return getattr(vmath, word)(self.f, self._value(args[0], e))
        if word == "exp_gap":
            return vmath.lifted_exp(self.f, self._value(args[0], e), *args[1:])
        if word == "add_exp":
            return vmath.add_exp(self.f, *self._pair(self._value(args[0], e), args[1], e))
        if word == "overflows":
            found = self.algebra(e).encode(args[0])[1]
            return self.f.const(0, I1.vector(args[0].type.lanes)) if found is None else found
        if word in ("min", "max"):
            found = args[0]
            for x in args[1:]:
                x, y = self._pair(found, x, e)
                if isinstance(x, Value):
                    found = self.f.select(y.cmp("<" if word == "min" else ">", x), y, x)
                else:
                    found = min(x, y) if word == "min" else max(x, y)
            return found
        if word in ("i32", "i64", "f64", "f32", "u64", "T"):
            x = self._number(args[0], e)
            t = self._types[0] if word == "T" else Type(word[0], int(word[1:]))
            return (x if isinstance(x, Value) else self._constant(x)).to(t)
        if word == "popcount":
            return self.f.intrinsic("ctpop", self._number(args[0], e))
        if word == "bit_length":
            x = self._as(args[0], I64, e)
            return self.f.const(64, I64) - self.f.call(
                "llvm.ctlz.i64", I64, [x, self.f.const(0, I1)]
            )
        if word == "bit":
            return self._bit(*args, node=e)
        if word == "sqrt":
            return vmath.sqrt(self.f, self._number(args[0], e))
        if word == "abs":
            x = self._number(args[0], e)
            return (
                vmath.absolute(self.f, x)
                if x.type.kind == "f"
                else self.f.select(x.cmp("<", 0), -x, x)
            )
        if word == "prefetch":
            x, i = args
            self.f.prefetch(x.base.get().at(self._as(i, I64, e) * x.type.size))
            return None
        if word == "stream":
            return self._stream(e, *args[1:])
        if word == "across":
            ordered = any(k.arg == "ordered" for k in e.keywords)
            return self._across(args[0], *map(self._word, e.args[1:]), ordered=ordered, node=e)
        if word == "first":
            return self._first(*args, node=e)
        if word == "entries":
            return [self.f.var(x) for x in self._entries(*args, node=e)]
        if word == "pick":
            return self._pick(*args, node=e)
        raise self._error(e, "a kernel cannot call this")

    def _stream(self, e: ast.Call, j: Any, value: Any) -> None:
        """Store a vector past the caches; all threads see it from the kernel's end on."""
        place, entry = self._place(self._expr(e.args[0]), ast.Subscript(e.args[0], e.args[1]))
        if not isinstance(j, _Lanes) or isinstance(entry, _View) or j.mask or self.scope.only:
            raise self._error(e, "stream(row, j, value) of whole vectors")
        self.f.store_past_caches(self._as(value, entry[1].vector(j.count), e), place)
        self._streams = True

    def _across(
        self, x: Value, by: str | None = None, *, ordered: bool = False, node: ast.AST
    ) -> Value:
        """All lanes joined: by ⊕, or by sum, min, max or any."""
        if x.type.lanes == 1:
            return x
        if by == "any":
            return x.bits_as(Type("u", x.type.lanes)).cmp("!=", 0)
        joined = {
            None: lambda x, y: self.algebra(node).add(x, y),
            "sum": operator.add,
            "min": self.f.low,
            "max": lambda x, y: self.f.select(x.cmp(">", y), x, y),
        }.get(by)
        if joined is None:
            raise self._error(node, "across(x), or with sum, min, max or any")
        lanes = 1 if ordered else min(x.type.lanes, self._count)
        while True:
            parts = [
                self.f.shuffle(x, x, range(k, k + lanes)) if lanes > 1 else x[k]
                for k in range(0, x.type.lanes, lanes)
            ]
            x = functools.reduce(joined, parts)
            if lanes == 1:
                return x
            lanes //= 2

    def _bit(self, x: Any, j: Any, *, node: ast.AST) -> Value:
        """Whether bits j, j + 1, ... of a word are set."""
        if not isinstance(j, _Lanes) or j.count > 64:
            raise self._error(node, "bit(x, j) with j of lanes, at most 64")
        some = self._as(x, U64, node) >> j.base.to(U64)
        return some.to(Type("u", j.count)).bits_as(I1.vector(j.count))

    def _first(self, j: Any, condition: Any, *, node: ast.AST) -> Value:
        """The first of some lanes for which a condition holds."""
        bits = self._word_of(j, condition, node)
        place = self.f.call("llvm.cttz.i64", bits.type, [bits, self.f.const(0, I1)])
        return self.f.select(bits.cmp("!=", 0), place.to(I64) + j.base, self.f.const(_NEVER, I64))

    def _word_of(self, j: Any, condition: Any, node: ast.AST) -> Value:
        """The lanes, below the end, for which a condition holds, as bits of a word."""
        if not isinstance(j, _Lanes) or j.count > 64:
            raise self._error(node, "(j, condition) with j of lanes, at most 64")
        there: Value = condition if j.mask is None else condition & j.mask
        return there.bits_as(Type("u", j.count)).to(U64)

    def _entries(self, row: Any, n: Any, *, node: ast.AST) -> list[Value]:
        """The first n entries of a row, or of the row of each lane: there by transposing."""
        if not isinstance(row, _View) or row.axes > 1 or not isinstance(n, int):
            raise self._error(node, "entries(row, n) with n known when the kernel is compiled")
        f, t, base = self.f, row.type, row.base.get()
        if not row.apart:
            return [f.load(base.at(k * t.size), t, t.size) for k in range(n)]
        places, found = self._places(base, [x.get() for x in row.apart], t), []
        vector = t.vector(len(places))
        for k in range(0, n, vector.lanes):
            some = min(vector.lanes, n - k)
            mask = f.below(f.const(some, I64), vector.lanes)
            rows = [
                f.load(at, vector, t.size) if some == vector.lanes
                else f.load_masked(at, vector, mask, t.size)
                for at in (place.at(k * t.size) for place in places)
            ]  # fmt: skip
            found += transposed(f, rows)[:some]
        return found

    def _pick(self, row: Any, index: Any, *, node: ast.AST) -> Value:
        """Entries of a row, which a vector holds, by an index in each lane."""
        if not isinstance(row, _View) or row.axes > 1 or index.type.lanes == 1:
            raise self._error(node, "pick(row, index) with an index in each lane")
        t, lanes = row.type, index.type.lanes
        if host_target().vector_bytes == t.size * lanes == 64:  # it permutes a vector's lanes
            name = f"llvm.x86.avx512.permvar.{'sf' if t.bits == 32 else 'df'}.512"
            vector = self.f.load(row.base.get(), t.vector(lanes), t.size)
            return self.f.call(name, vector.type, [vector, index.to(Type("i", t.bits))])
        index = index & (lanes - 1)  # what other lanes have may be anything
        places = (row.base.get().at(index[k].to(I64) * t.size) for k in range(lanes))
        return self.f.stack([self.f.load(at, t, t.size) for at in places])

    def _join(self, e: ast.Call) -> Any:
        """⊕ over a range, in independent parts; of lists, of their entries."""
        algebra, f = self.algebra(e), self.f
        match e.args:
            case [
                ast.GeneratorExp(
                    elt=elt,
                    generators=[
                        ast.comprehension(
                            target=ast.Name(id=name), iter=ast.Call(args=bounds) as call, ifs=[]
                        )
                    ],
                ),
                *rest,
            ] if (word := self._word(call.func)) in ("range", "unrolled") and len(bounds) < 3:
                pass
            case _:
                raise self._error(e, "join(... for NAME in range(...))")
        if any(k.arg == "numbers" and self._static(k.value) for k in e.keywords):
            own, self._algebra = algebra, Algebra(f, replace(algebra.plan, keep_nan=False))
            found = self._join(ast.copy_location(ast.Call(e.func, e.args, []), e))
            self._algebra = own
            return found
        count = 1 if self.scope.masked is None else self.scope.masked.count
        several = isinstance(elt, (ast.List, ast.ListComp))

        def terms(i: Value | int) -> list[Value]:
            self.scope.names[name] = i
            found = self._expr(elt)
            values = (x.get() for x in found) if several else [found]
            return [self._as(x, algebra.compute.vector(count), e) for x in values]

        def added(x: list[Value], y: list[Value]) -> list[Value]:
            return [algebra.add(*pair) for pair in zip(x, y, strict=True)]

        if word == "unrolled":
            found = [terms(k) for k in range(*map(self._static, bounds))]
            total = functools.reduce(added, found)
            self.scope.names.pop(name)
            return [f.var(x) for x in total] if several else total[0]
        many = 1
        if isinstance(elt, ast.List):
            many = len(elt.elts)
        elif isinstance(elt, ast.ListComp) and isinstance(elt.generators[0].iter, ast.Call):
            many = len(range(*map(self._static, elt.generators[0].iter.args)))
        by = self._static(rest[0]) if rest else _PARTS
        lo, hi = (
            self._as(self._expr(x), I64, e) for x in [ast.Constant(0)] * (len(bounds) == 1) + bounds
        )
        parts = [[f.var(algebra.start(count)) for _ in range(many)] for _ in range(by)]

        def take(i: Value, part: list[Var]) -> None:
            for var, x in zip(part, terms(i), strict=True):
                var.set(algebra.add(var.get(), x))

        whole = lo + (hi - lo) // by * by
        before, f.opaque = f.opaque, False
        with f.loop(lo, whole, by) as i:
            for k, part in enumerate(parts):
                take(i + k, part)
        with f.loop(whole, hi) as i:
            take(i, parts[0])
        f.opaque = before
        self.scope.names.pop(name)
        found = [[var.get() for var in part] for part in parts]
        while len(found) > 1:
            found = [added(x, y) for x, y in zip(found[::2], found[1::2], strict=True)]
        return [f.var(x) for x in found[0]] if several else found[0][0]

    # --- types

    def _number(self, x: Any, node: ast.AST) -> Any:
        """A number, or one in each lane."""
        if isinstance(x, _Lanes):
            t = I64.vector(x.count)
            return x.base.splat(x.count) + self.f.iota(t)
        if isinstance(x, (Value, bool, int, float)):
            return x
        raise self._error(node, "this is no number")

    def _pair(self, x: Any, y: Any, node: ast.AST) -> tuple[Any, Any]:
        """Two numbers as operands: of one type, and with as many lanes."""
        x, y = self._number(x, node), self._number(y, node)
        if not isinstance(x, Value) and not isinstance(y, Value):
            return x, y
        x = x if isinstance(x, Value) else self._as(x, y.type.scalar, node)
        y = y if isinstance(y, Value) else self._as(y, x.type.scalar, node)
        if x.type.bits != y.type.bits and 1 in (x.type.bits, y.type.bits):
            x, y = x.to(I64), y.to(I64)
        kinds = {x.type.kind, y.type.kind}
        if x.type.bits != y.type.bits or (len(kinds) > 1 and ("f" in kinds or x.type.bits == 64)):
            names = (f"{v.type.kind}{v.type.bits}" for v in (x, y))
            raise self._error(node, f"{' and '.join(names)} do not go together: convert one")
        lanes = max(x.type.lanes, y.type.lanes)
        x, y = (v.splat(lanes) if v.type.lanes == 1 else v for v in (x, y))
        return x, y

    def _as(self, x: Any, t: Type, node: ast.AST) -> Value:
        """A value of a type; integers are cut to it, floats are not converted unasked."""
        x = self._number(x, node)
        if not isinstance(x, Value):
            if isinstance(x, float) and t.kind != "f":
                raise self._error(node, f"{x} where there is an integer")
            return self.f.const(x, t)
        if (x.type.kind == "f") != (t.kind == "f") or (t.kind == "f" and x.type.bits != t.bits):
            raise self._error(node, f"{x.type} where there is {t}: convert it")
        if x.type.bits != t.bits:
            x = x.to(t.scalar)
        value: Value = x.splat(t.lanes) if x.type.lanes == 1 else x
        return value

    def _value(self, x: Any, node: ast.AST) -> Value:
        """A number; a float that is known is one of the type computed in."""
        x = self._number(x, node)
        if isinstance(x, float):
            return self.f.const(x, self._types[0])
        return x if isinstance(x, Value) else self._constant(x)

    def _constant(self, x: float) -> Value:
        return self.f.const(x, I1 if isinstance(x, bool) else I64 if isinstance(x, int) else F64)

    def _static(self, e: ast.expr) -> Any:
        x = self._expr(e)
        if isinstance(x, (Value, _View, _Lanes)):
            raise self._error(e, "this has to be known when the kernel is compiled")
        return x

    def _known(self, test: ast.expr) -> bool | None:
        """What a condition is, where that is known when the kernel is compiled."""
        if isinstance(test, ast.BoolOp):
            parts = [self._known(x) for x in test.values]
            ends = isinstance(test.op, ast.Or)  # what one part decides
            return ends if ends in parts else None if None in parts else not ends
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            known = self._known(test.operand)
            return None if known is None else not known
        about = isinstance(test, ast.Compare) and isinstance(test.ops[0], (ast.Is, ast.IsNot))
        for x in ast.walk(test):
            if isinstance(x, (ast.Call, ast.Subscript)):
                return None
            if isinstance(x, ast.Name) and not about:
                value = self.scope.names.get(x.id, 0)
                if isinstance(value, (Value, Var, _View, _Lanes)) or self._word(x) in (
                    "zero",
                    "one",
                ):
                    return None
        return bool(self._expr(test))


def _is_index(x: Any) -> bool:
    return isinstance(x, int) or (isinstance(x, Value) and x.type == I64)
