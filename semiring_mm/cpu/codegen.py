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
from .algebra import Algebra, absolute, compute_type, storage_type
from .compiler import KEPT, compile_kept, host_target, writers
from .ir import F64, I1, I64, PTR, Function, Type, Value, Var, module_text, transposed
from .views import ArrayView, check_array_layout

__all__ = ["Call", "Compiled", "compiled", "function_of"]

Array = NDArray[Any]

U64 = Type("u", 64)
_NEVER = 1 << 62  # the first of no lanes
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
    """

    dtypes: dict[str, np.dtype[Any]]  # of its parameters

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


def _types_of(plan: Plan | str | None) -> dict[str, Type]:
    """T and S; where there are none, numbers have 64 bits."""
    if isinstance(plan, Plan):
        return {"T": compute_type(plan), "S": storage_type(plan.storage)}
    types_ = [Type(x[0], 8 * int(x[1:])) for x in (plan or "i8").split()]
    return {"T": types_[0], "S": types_[-1]}


def _type_of(kind: str, plan: Plan | str | None) -> Type:
    if kind not in ("T", "S"):
        return Type(kind[0], int(kind[1:]))
    if plan is None:
        raise TypeError(f"a kernel with parameters of type {kind} is compiled for a plan")
    return _types_of(plan)[kind]


def _dtype_of(kind: str, plan: Plan | str | None) -> np.dtype[Any]:
    if kind == "S" and isinstance(plan, Plan):
        return np.dtype(plan.storage)  # bool, for one
    if kind in ("static", "I"):
        return np.dtype(object if kind == "static" else np.int64)
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


@dataclass(frozen=True)
class _Lanes:
    """Neighbouring indices, one in each lane; `mask` has those below the end, None: all are."""

    base: Value
    count: int
    mask: Value | None


@dataclass(frozen=True)
class _Entry:
    """An entry of an array, or one in each lane: of neighbours, or each at a place of its own."""

    places: list[Value]
    lanes: _Lanes | None
    type: Type


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
    writer = _Writer(f, kernel, algebra, {"zero": zero, "one": one}, _types_of(plan))
    found = writer.inline(kernel, names)
    if writer.streams:
        f.fence()
    if kernel.returns:
        f.result.set(writer.as_type(found, I64, kernel.tree))
    return f


class _Writer:
    """Writes the syntax trees of kernels as IR."""

    def __init__(
        self, f: Function, kernel: Kernel, algebra: Algebra | None,
        identities: dict[str, float | int], types: dict[str, Type],
    ) -> None:  # fmt: skip
        self.f, self._algebra, self._identities, self._types = f, algebra, identities, types
        self._scopes, self.streams = [_Scope(kernel, {})], False
        self._count = host_target().vector_bytes // types["T"].size

    @property
    def scope(self) -> _Scope:
        return self._scopes[-1]

    def inline(self, kernel: Kernel, names: dict[str, Any]) -> Any:
        """Write a kernel's body; what it returns."""
        if len(self._scopes) > 21:
            raise kernel.error(kernel.tree, "a kernel cannot call itself")
        written = {
            x.id for x in ast.walk(kernel.tree)
            if isinstance(x, ast.Name) and isinstance(x.ctx, ast.Store)
        }  # fmt: skip
        names = {k: self._variable(v) if k in written else v for k, v in names.items()}
        scope = _Scope(kernel, names, masked=self.scope.masked, only=self.scope.only)
        self._scopes.append(scope)
        *body, last = kernel.tree.body
        returns = [x for s in body for x in ast.walk(s) if isinstance(x, ast.Return)]
        found: Any = None
        if isinstance(last, ast.Return) and not returns:
            self._block(body)
            found = last.value and self._expr(last.value)
        else:
            scope.leave = self.f.fresh("return")
            self._block(kernel.tree.body)
            self.f.place(scope.leave)
            if scope.results is not None:
                values = [r.get() for r in scope.results]
                found = values[0] if len(values) == 1 else tuple(values)
        self._scopes.pop()
        return found

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
        self._expr(s.value)

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
        match target:
            case ast.Tuple(elts=targets):
                if not isinstance(value, tuple) or len(value) != len(targets):
                    raise self._error(target, "as many values as targets")
                copies = [self._variable(v) if isinstance(v, _View) else v for v in value]
                for t, v in zip(targets, copies, strict=True):
                    self._assign(t, v)
            case ast.Name(id=name):
                self._name(name, value, target)
            case ast.Subscript():
                self._store(self._expr(target.value), target, value)
            case _:
                raise self._error(target, "a target is a name or an entry of an array")

    def _name(self, name: str, value: Any, node: ast.AST) -> None:
        """Let a name stand for a value: a new one, or another of its kind."""
        known = self.scope.names.get(name)
        if isinstance(known, Var) and isinstance(value, (Value, int, float)):
            lanes = self.scope.masked if name in self.scope.outer else None
            self._set(known, value, node, None if lanes is None else lanes.mask)
            if known.type.lanes == 1 and name in self.scope.above:
                raise self._error(node, f"{name} is one number, of lanes that differ")
        elif isinstance(known, _View) and isinstance(value, _View):
            if (known.type, known.strides) != (value.type, value.strides):
                raise self._error(node, "an array of other strides")
            known.base.set(value.base.get())
        elif known is None or isinstance(value, (list, str, _Lanes)):
            self.scope.names[name] = self._variable(value)
        else:
            raise self._error(node, f"{name} is something else before")

    def _set(self, var: Var, value: Any, node: ast.AST, mask: Value | None = None) -> None:
        value = self.as_type(value, var.type, node)
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
        if isinstance(value, (Value, bool, int, float)):
            return self.f.var(self._constant(value))
        return value

    # --- loops: a schedule writes what is around a body, which is written at each of its yields

    def _do_For(self, s: ast.For) -> None:
        match s:
            case ast.For(target=ast.Name(id=name), iter=ast.Call() as call, orelse=[]):
                schedule = getattr(self, f"_in_{self._word(call.func)}", None)
            case _:
                schedule = None
        if schedule is None:
            raise self._error(s, "a loop is: for NAME in range(), lanes(), where() or unrolled()")
        scope, opaque = self.scope, self.f.opaque
        before = scope.masked, scope.outer
        for scope.names[name] in schedule(call, s.body):
            self._block(s.body)
        (scope.masked, scope.outer), self.f.opaque = before, opaque
        scope.names.pop(name, None)

    def _in_unrolled(self, call: ast.Call, _: Any = None) -> Iterator[int]:
        yield from range(*map(self._static, call.args))

    def _in_range(self, call: ast.Call, body: list[ast.stmt]) -> Iterator[Value]:
        bounds = [ast.Constant(0)] * (len(call.args) == 1) + call.args
        first, last, by = (*map(self._expr, bounds), 1)[:3]
        lo, hi = (self.as_type(x, I64, call) for x in (first, last))
        if not isinstance(by, int):
            raise self._error(call, "the step of a range is known when the kernel is compiled")
        labels = self.f.fresh("next"), self.f.fresh("past")
        self.f.opaque = not self._straight(body)
        with self.f.loop(*((lo, hi, by) if by > 0 else (0, lo - hi, -by))) as i:
            self.scope.loops.append(labels)
            yield i if by > 0 else lo - i
            self.scope.loops.pop()
            self.f.place(labels[0])
        self.f.place(labels[1])

    def _straight(self, body: Sequence[ast.stmt]) -> bool:
        """Whether a loop has neither loops nor branches, so that addresses are much of its work."""
        for x in (x for s in body for x in ast.walk(s)):
            if isinstance(x, (ast.While, ast.If, ast.BoolOp)):
                return False
            if isinstance(x, ast.Call):
                inner = self._kernel(x.func)
                if inner is not None and not self._straight(inner.tree.body):
                    return False
                if self._word(x.func) in ("range", "lanes"):
                    return False
        return True

    def _in_lanes(self, call: ast.Call, _: Any) -> Iterator[_Lanes]:
        self.scope.outer = frozenset(self.scope.names)
        for j in self._vectors(call):
            self.scope.masked = j
            yield j

    def _vectors(self, call: ast.Call) -> Iterator[_Lanes]:
        """The whole vectors of a range, and what is left; each writes the body once more."""
        f, n = self.f, self._expr(call.args[0])
        count = self._count * (self._static(call.args[1]) if len(call.args) > 1 else 1)
        options = self._options(call)
        whole, times = options.get("whole", False), options.get("times", 0)
        if whole and isinstance(n, int) and n <= count and not n & (n - 1):  # one, and no loop
            yield _Lanes(f.const(0, I64), n, None)
            return
        n = self.as_type(n, I64, call)
        for k in range(times - (not whole)):
            yield _Lanes(f.const(k * count, I64), count, None)
        end = f.const((times - 1) * count, I64) if times else n if whole else n & -count
        if not times:
            with f.loop(0, end, count) as j:
                yield _Lanes(j, count, None)
        if whole:
            return
        rest = n - end
        if times:
            with f.if_(rest.cmp("==", count)):
                yield _Lanes(end, count, None)
        with f.if_(rest.cmp("<", count) & rest.cmp(">", 0)):
            yield _Lanes(end, count, f.below(rest, count))

    def _in_where(self, call: ast.Call, _: Any) -> Iterator[Value]:
        """The lanes for which a condition holds, one after the other."""
        f, (j, condition) = self.f, map(self._expr, call.args)
        left = f.var(self._word_of(j, condition, call))
        self.scope.masked = None
        with self._repeated("") as done:
            f.break_if(left.get().cmp("==", 0), done)
            lane = f.call("llvm.cttz.i64", U64, [left.get(), f.const(0, I1)])
            left.set(left.get() & (left.get() - 1))
            yield j.base + lane.to(I64)

    def _do_While(self, s: ast.While) -> None:
        go = self.f.fresh("go")
        with self._repeated() as done:
            self._branch(s.test, go, done)
            self.f.label(go)
            self._block(s.body)

    @contextmanager
    def _repeated(self, past: str | None = None) -> Iterator[str]:
        """A loop to be left by a jump to the label; `past` is where ``break`` leads."""
        with self.f.while_() as done:
            self.scope.loops.append((done.replace("done", "again"), done if past is None else past))
            yield done
            self.scope.loops.pop()

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
        if s.value is not None:
            value = self._expr(s.value)
            values = value if isinstance(value, tuple) else (value,)
            if self.scope.results is None:
                self.scope.results = [self._variable(v) for v in values]
            for var, v in zip(self.scope.results, values, strict=True):
                self._set(var, v, s)
        self.f.jump(self.scope.leave)
        self.f.label(self.f.fresh("never"))

    # --- conditions

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

    def _either(self, test: ast.expr, value: Any, *sides: Callable[[], None]) -> None:
        """Write two sides, of which one is run: by a condition, or its `value` if there is one."""
        yes, no, end = (self.f.fresh(x) for x in ("then", "else", "end"))
        if value is None:
            self._branch(test, yes, no)
        else:
            self.f.branch(self._truth(value, test), yes, no)
        for label, side in zip((yes, no), sides, strict=True):
            self.f.label(label)
            side()
            self.f.jump(end)
        self.f.label(end)

    def _do_If(self, s: ast.If) -> None:
        known = self._known(s.test)
        if known is not None:  # the other one is not compiled
            self._block(s.body if known else s.orelse)
            return
        some = None if isinstance(s.test, (ast.BoolOp, ast.UnaryOp)) else self._expr(s.test)
        if isinstance(some, Value) and some.type.lanes > 1:
            self._some_lanes(s.body, some)
            self._some_lanes(s.orelse, some ^ 1)
        else:
            sides = (functools.partial(self._block, x) for x in (s.body, s.orelse))
            self._either(s.test, some, *sides)

    def _some_lanes(self, body: list[ast.stmt], condition: Value) -> None:
        """Assignments in the lanes of a condition."""
        for s in body:
            if not isinstance(s, (ast.Assign, ast.AugAssign, ast.If)):
                raise self._error(s, "where a condition is one of each lane, there are assignments")
        before, self.scope.above = self.scope.above, frozenset(self.scope.names)
        with self._only(condition):
            self._block(body)
        self.scope.above = before

    @contextmanager
    def _only(self, condition: Value | None) -> Iterator[None]:
        """Load and store what the lanes of a condition have, and no others."""
        before, self.scope.only = self.scope.only, self._masks(self.scope.only, condition)
        yield
        self.scope.only = before

    def _masks(self, *masks: Value | None) -> Value | None:
        some = [m for m in masks if m is not None]
        return functools.reduce(operator.and_, some) if some else None

    def _of_BoolOp(self, e: ast.BoolOp) -> Any:
        known = self._known(e)
        if known is not None:
            return known
        return self._chosen(e, None, ast.Constant(True), ast.Constant(False))

    def _of_IfExp(self, e: ast.IfExp) -> Any:
        known = self._known(e.test)
        if known is not None:
            return self._expr(e.body if known else e.orelse)
        some = None if isinstance(e.test, ast.BoolOp) else self._expr(e.test)
        costly = [self._costly(side) for side in (e.body, e.orelse)]
        if some is None or (some.type.lanes == 1 and any(costly)):
            return self._chosen(e.test, some, e.body, e.orelse)
        condition = some if some.type.bits == 1 else some.cmp("!=", 0)
        values = []
        for side, loads, other in zip((e.body, e.orelse), costly, (0, 1), strict=True):
            lanes = condition.type.lanes > 1 and loads
            with self._only((condition ^ 1 if other else condition) if lanes else None):
                values.append(self._expr(side))
        x, y = map(self._constant, self._pair(values[0], values[1], e))
        lanes = condition.type.lanes
        if x.type.lanes < lanes:
            x, y = x.splat(lanes), y.splat(lanes)
        elif lanes < x.type.lanes:
            condition = condition.splat(x.type.lanes)
        return self.f.select(condition, x, y)

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

    def _chosen(self, test: ast.expr, value: Any, body: ast.expr, orelse: ast.expr) -> Any:
        """One of two values, or arrays, of which the other is not computed."""
        found = list[Any]()

        def first() -> None:
            found.append(self._variable(self._expr(body)))

        def second() -> None:
            other = self._expr(orelse)
            if isinstance(found[0], _View):
                found[0].base.set(other.base.get())
            else:
                found[0].set(self.as_type(other, found[0].type, orelse))

        self._either(test, value, first, second)
        return found[0] if isinstance(found[0], _View) else found[0].get()

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
                if isinstance(value, (Value, Var, _View, _Lanes)) or (
                    self._word(x) in self._identities
                ):
                    return None
        return bool(self._expr(test))

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
        if isinstance(x, _Word) and x.name in self._identities:
            t = self.algebra(e).compute
            count = self.scope.masked.count if self.scope.masked else 1
            return self.f.const(self._identities[x.name], t.vector(count))
        if isinstance(x, (bool, int, float, tuple)):
            return x
        raise self._error(e, f"{e.id} has no value here")

    def _of_Tuple(self, e: ast.Tuple) -> Any:
        return tuple(self._expr(x) for x in e.elts)

    def _of_List(self, e: ast.List) -> Any:
        return [self._variable(self._expr(x)) for x in e.elts]

    def _of_ListComp(self, e: ast.ListComp) -> Any:
        """A list that is known when the kernel is compiled: [... for k in unrolled(n)]."""
        match e.generators:
            case [ast.comprehension(target=ast.Name(id=name), iter=ast.Call() as call)] if (
                self._word(call.func) == "unrolled"
            ):
                found = []
                for k in self._in_unrolled(call):
                    self.scope.names[name] = k
                    found.append(self._variable(self._expr(e.elt)))
                self.scope.names.pop(name, None)
                return found
        raise self._error(e, "a list is: [... for NAME in unrolled(...)]")

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
            return replace(x, base=_NUMBERS[kind](x.base, y))
        if isinstance(y, _Lanes) and kind is ast.Add and _is_index(x):
            return replace(y, base=y.base + x)
        x, y = self._pair(x, y, e)
        if not isinstance(x, Value):
            return _NUMBERS[kind](x, y)
        real = x.type.kind == "f"
        if kind not in (_REAL if real else _WHOLE):
            raise self._error(e, f"no such operation of {x.type} (/ is of floats: f64(x); // not)")
        if x.type.bits == 1 and kind not in (ast.BitAnd, ast.BitOr, ast.BitXor):
            x, y = x.to(I64), y.to(I64)
        found = _NUMBERS[kind](x, y)
        if kind not in (ast.FloorDiv, ast.Mod):
            return found
        # rounded down, and the remainder of that, as Python has them
        rest = found if kind is ast.Mod else x % y
        off = rest.cmp("!=", 0) & (rest ^ y).cmp("<", 0)
        return self.f.select(off, rest + y if kind is ast.Mod else found - 1, found)

    def _of_Compare(self, e: ast.Compare) -> Any:
        found: Any = None
        left = self._expr(e.left)
        for op, node in zip(e.ops, e.comparators, strict=True):
            right = self._expr(node)
            if isinstance(op, (ast.Is, ast.IsNot)):
                one: Any = (left is right) is isinstance(op, ast.Is)
            elif isinstance(left, _Lanes) and isinstance(op, ast.Lt) and _is_index(right):
                one = self.f.below(self.as_type(right, I64, e) - left.base, left.count)
            else:
                x, y = self._pair(left, right, e)
                sign, compare = _ORDER[type(op)]
                one = x.cmp(sign, y) if isinstance(x, Value) else compare(x, y)
            found = one if found is None else operator.and_(*self._pair(found, one, e))
            left = right
        return found

    # --- arrays

    def _of_Subscript(self, e: ast.Subscript) -> Any:
        array = self._expr(e.value)
        if isinstance(array, (list, tuple)):
            found = [x.get() if isinstance(x, Var) else x for x in self._of_list(array, e)]
            return found[0] if len(found) == 1 else self.f.stack(found)
        entry = self._entry(array, e)
        if isinstance(entry, _View):
            return entry
        value = self._load(entry)
        narrow = value.type.kind in "iu" and value.type.bits < 64 and array.wide
        return value.to(I64) if narrow else value

    def _of_list(self, array: Sequence[Any], e: ast.Subscript) -> Sequence[Any]:
        """The entry of a list at an index that is known, or all of them: one for each lane."""
        index = self._expr(e.slice)
        if isinstance(index, _Lanes) and len(array) == index.count:
            return array
        return [array[self._static(e.slice)]]

    def _entry(self, array: Any, e: ast.Subscript) -> _Entry | _View:
        """Where an entry lies; or the array that is left."""
        if not isinstance(array, _View):
            raise self._error(e, "this is no array")
        indices = e.slice.elts if isinstance(e.slice, ast.Tuple) else [e.slice]
        strides, left, lanes = (*array.strides, 1), list[Any](), None
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
                lanes, x = x, x.base
            x = self._number(x, e)
            if isinstance(x, Value) and x.type.lanes > 1:  # a place of its own for each lane
                skipped = [x[k].to(I64) * stride for k in range(x.type.lanes)]
                apart = list(map(operator.add, apart, skipped)) if apart else skipped
            else:
                offset = self.as_type(x, I64, e) * stride + offset
        left += strides[len(indices) :]
        place = array.base.get().at(offset * array.type.size)
        if left:
            own = tuple(map(self.f.var, apart))
            return _View(self.f.var(place), array.type, tuple(left[:-1]), array.wide, own)
        if apart:
            return _Entry(self._apart(place, apart, array.type), None, array.type)
        return _Entry([place], lanes, array.type)

    def _apart(self, place: Value, skipped: Sequence[Value], t: Type) -> list[Value]:
        """Where the entry of each lane lies."""
        if self.scope.only is not None or (self.scope.masked and self.scope.masked.mask):
            raise TypeError("lanes with places of their own are whole vectors: whole=True")
        return [place.at(x * t.size) for x in skipped]

    def _mask(self, entry: _Entry) -> Value | None:
        return self._masks(entry.lanes.mask, self.scope.only) if entry.lanes else None

    def _load(self, entry: _Entry) -> Value:
        t, mask = entry.type, self._mask(entry)
        vector = t.vector(entry.lanes.count) if entry.lanes else t
        if mask is not None:
            return self.f.load_masked(entry.places[0], vector, mask, t.size)
        found = [self.f.load(place, vector, t.size) for place in entry.places]
        return found[0] if len(found) == 1 else self.f.stack(found)

    def _store(self, array: Any, target: ast.Subscript, value: Any) -> None:
        if isinstance(array, list):
            variables = self._of_list(array, target)
            for k, var in enumerate(variables):
                self._set(var, value if len(variables) == 1 else value[k], target)
            return
        entry = self._entry(array, target)
        if isinstance(entry, _View):
            raise self._error(target, "one entry is stored at a time")
        t, mask, places = entry.type, self._mask(entry), entry.places
        value, count = self.as_type(value, t, target), len(places)
        if entry.lanes:
            count = entry.lanes.count
        elif count == 1 and (value.type.lanes > 1 or self.scope.only is not None):
            raise self._error(target, "lanes are stored at an index of lanes")
        value = value.splat(count) if value.type.lanes == 1 else value
        if mask is not None:
            self.f.store_masked(value, places[0], mask, t.size)
            return
        for k, place in enumerate(places):
            self.f.store(value if len(places) == 1 else value[k], place, t.size)

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

    def _options(self, e: ast.Call) -> dict[str, Any]:
        return {str(k.arg): self._static(k.value) for k in e.keywords}

    def _of_Call(self, e: ast.Call) -> Any:
        inner, word = self._kernel(e.func), self._word(e.func)
        write = getattr(self, f"_call_{word}", None)
        if inner is None and write is not None:
            return write(e)
        args = [self._expr(x) for x in e.args]
        if inner is not None:
            names = [a.arg for a in inner.tree.args.args]
            given = {str(k.arg): self._expr(k.value) for k in e.keywords}
            given |= dict(zip(names, args, strict=False))
            if len(args) > len(names) or given.keys() != set(names):
                raise self._error(e, f"{inner.name} takes {', '.join(names)}")
            return self.inline(inner, given)
        match word, args:
            case "add" | "mul" | "better" | "same" | "scale", [x, y]:
                algebra = self.algebra(e)
                if self._options(e).get("numbers"):
                    algebra = Algebra(self.f, replace(algebra.plan, keep_nan=False))
                x, y = (self.as_type(v, algebra.compute, e) for v in args)
                return getattr(algebra, str(word))(*self._pair(x, y, e))
            case "each", [x, *vectors]:
                count = self._count * (vectors or [1])[0]
                if self.scope.masked is not None and not vectors:
                    count = self.scope.masked.count
                x = self._value(x, e)
                return x.splat(count) if x.type.lanes == 1 else x
            case "decode" | "encode", [x]:
                x = self._number(x, e)
                if self._algebra is None:
                    return x.to(self._types["T" if word == "decode" else "S"])
                return self._algebra.decode(x) if word == "decode" else self._algebra.encode(x)[0]
            case "overflows", [x]:
                found = self.algebra(e).encode(x)[1]
                return self.f.const(0, I1.vector(x.type.lanes)) if found is None else found
            case "fma", [x, y, z]:
                x, y = self._pair(x, y, e)
                x, z = self._pair(x, z, e)
                return self.f.fma(x, y.splat(x.type.lanes) if y.type.lanes == 1 else y, z)
            case "add_exp", [x, y]:
                return vmath.add_exp(self.f, *self._pair(self._value(x, e), y, e))
            case "log", [x]:
                return vmath.log(self.f, self._value(x, e))
            case "exp_gap", [x, lift, least]:
                return vmath.lifted_exp(self.f, self._value(x, e), lift, least)
            case "abs", [x]:
                return absolute(self.f, self._number(x, e))
            case "min" | "max", [found, *others]:
                for x in others:
                    x, y = self._pair(found, x, e)
                    if isinstance(x, Value):
                        found = self.f.select(y.cmp("<" if word == "min" else ">", x), y, x)
                    else:
                        found = min(x, y) if word == "min" else max(x, y)
                return found
            case "i32" | "i64" | "f64" | "f32" | "u64" | "T", [x]:
                t = self._types["T"] if word == "T" else Type(word[0], int(word[1:]))
                return self._constant(self._number(x, e)).to(t)
            case "bits", [x]:
                x = self._number(x, e)
                return x.bits_as(
                    Type("f" if x.type.kind == "i" else "i", x.type.bits, x.type.lanes)
                )
            case "popcount" | "sqrt", [x]:
                name = "ctpop" if word == "popcount" else "sqrt"
                return self.f.intrinsic(name, self._number(x, e))
            case "bit_length", [x]:
                zeros = [self.as_type(x, I64, e), self.f.const(0, I1)]
                return self.f.const(64, I64) - self.f.call("llvm.ctlz.i64", I64, zeros)
            case "bit", [x, _Lanes(base=base, count=count)] if count <= 64:
                some = self.as_type(x, U64, e) >> base.to(U64)
                return some.to(Type("u", count)).bits_as(I1.vector(count))
            case "first", [j, condition]:
                bits = self._word_of(j, condition, e)
                place = self.f.call("llvm.cttz.i64", bits.type, [bits, self.f.const(0, I1)])
                never = self.f.const(_NEVER, I64)
                return self.f.select(bits.cmp("!=", 0), place.to(I64) + j.base, never)
            case "entries", [_View(strides=()) as row, int() as n]:
                return [self.f.var(x) for x in self._entries(row, n)]
            case "pick", [_View(strides=()) as row, Value() as index] if index.type.lanes > 1:
                return self._pick(row, index)
            case "prefetch", [_View() as x, i]:
                self.f.prefetch(x.base.get().at(self.as_type(i, I64, e) * x.type.size))
                return None
        raise self._error(e, "a kernel cannot call this")

    def _call_stream(self, e: ast.Call) -> None:
        """Store a vector past the caches; all threads see it from the kernel's end on."""
        array, j, value = map(self._expr, e.args)
        entry = self._entry(array, ast.Subscript(e.args[0], e.args[1]))
        if not isinstance(j, _Lanes) or isinstance(entry, _View) or j.mask or self.scope.only:
            raise self._error(e, "stream(row, j, value) of whole vectors")
        self.f.store_past_caches(
            self.as_type(value, entry.type.vector(j.count), e), entry.places[0]
        )
        self.streams = True

    def _call_across(self, e: ast.Call) -> Value:
        """All lanes joined: by ⊕, or by sum, min, max or any; `ordered`: one after the other."""
        by = "".join(str(self._word(a)) for a in e.args[1:])
        x: Value = self._expr(e.args[0])
        if x.type.lanes == 1:
            return x
        if by == "any":
            return x.bits_as(Type("u", x.type.lanes)).cmp("!=", 0)
        joined: Callable[[Value, Value], Value] | None = {
            "": lambda x, y: self.algebra(e).add(x, y),
            "sum": operator.add,
            "min": self.f.low,
            "max": lambda x, y: self.f.select(x.cmp(">", y), x, y),
        }.get(by)
        if joined is None:
            raise self._error(e, "across(x), or with sum, min, max or any")
        lanes = 1 if self._options(e).get("ordered") else min(x.type.lanes, self._count)
        while True:
            parts = [
                self.f.shuffle(x, x, range(k, k + lanes)) if lanes > 1 else x[k]
                for k in range(0, x.type.lanes, lanes)
            ]
            x = functools.reduce(joined, parts)
            if lanes == 1:
                return x
            lanes //= 2

    def _word_of(self, j: Any, condition: Any, node: ast.AST) -> Value:
        """The lanes, below the end, for which a condition holds, as bits of a word."""
        if not isinstance(j, _Lanes) or j.count > 64:
            raise self._error(node, "(j, condition) with j of lanes, at most 64")
        there: Value = condition if j.mask is None else condition & j.mask
        return there.bits_as(Type("u", j.count)).to(U64)

    def _entries(self, row: _View, n: int) -> list[Value]:
        """The first n entries of a row, or of the row of each lane: there by transposing."""
        f, t, base = self.f, row.type, row.base.get()
        if not row.apart:
            return [f.load(base.at(k * t.size), t, t.size) for k in range(n)]
        places, found = self._apart(base, [x.get() for x in row.apart], t), []
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

    def _pick(self, row: _View, index: Value) -> Value:
        """Entries of a row, which a vector holds, by an index in each lane."""
        t, lanes, base = row.type, index.type.lanes, row.base.get()
        if host_target().vector_bytes == t.size * lanes == 64:  # it permutes a vector's lanes
            name = f"llvm.x86.avx512.permvar.{'sf' if t.bits == 32 else 'df'}.512"
            vector = self.f.load(base, t.vector(lanes), t.size)
            return self.f.call(name, vector.type, [vector, index.to(Type("i", t.bits))])
        index = index & (lanes - 1)  # what other lanes have may be anything
        places = [base.at(index[k].to(I64) * t.size) for k in range(lanes)]
        return self._load(_Entry(places, None, t))

    # --- types

    def _number(self, x: Any, node: ast.AST) -> Any:
        """A number, or one in each lane."""
        if isinstance(x, _Lanes):
            return x.base.splat(x.count) + self.f.iota(I64.vector(x.count))
        if isinstance(x, (Value, bool, int, float)):
            return x
        raise self._error(node, "this is no number")

    def _pair(self, x: Any, y: Any, node: ast.AST) -> tuple[Any, Any]:
        """Two numbers as operands: of one type, and with as many lanes."""
        x, y = self._number(x, node), self._number(y, node)
        if not isinstance(x, Value) and not isinstance(y, Value):
            return x, y
        x = x if isinstance(x, Value) else self.as_type(x, y.type.scalar, node)
        y = y if isinstance(y, Value) else self.as_type(y, x.type.scalar, node)
        if x.type.bits != y.type.bits and 1 in (x.type.bits, y.type.bits):
            x, y = x.to(I64), y.to(I64)
        kinds = {x.type.kind, y.type.kind}
        if x.type.bits != y.type.bits or (len(kinds) > 1 and ("f" in kinds or x.type.bits == 64)):
            names = (f"{v.type.kind}{v.type.bits}" for v in (x, y))
            raise self._error(node, f"{' and '.join(names)} do not go together: convert one")
        lanes = max(x.type.lanes, y.type.lanes)
        x, y = (v.splat(lanes) if v.type.lanes == 1 else v for v in (x, y))
        return x, y

    def as_type(self, x: Any, t: Type, node: ast.AST) -> Value:
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
        return self.f.const(x, self._types["T"]) if isinstance(x, float) else self._constant(x)

    def _constant(self, x: Value | float) -> Value:
        if isinstance(x, Value):
            return x
        return self.f.const(x, I1 if isinstance(x, bool) else I64 if isinstance(x, int) else F64)

    def _static(self, e: ast.expr) -> Any:
        x = self._expr(e)
        if isinstance(x, (Value, _View, _Lanes)):
            raise self._error(e, "this has to be known when the kernel is compiled")
        return x


def _is_index(x: Any) -> bool:
    return isinstance(x, int) or (isinstance(x, Value) and x.type == I64)
