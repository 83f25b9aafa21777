"""Repeated small products: from the operands to compiled code in one look-up.

A call of a verb on small NumPy arrays costs more in Python than in arithmetic. So the verbs begin
with ``ways[semiring](...)``, a function compiled once for all semirings that finds everything else
itself. It tests the operands (types, dtype, shapes, strides, overlaps, what they hold), makes the
result, and calls the product that the general way has chosen for operands of this kind before. If
anything is not as in such a call, it has changed nothing and returns None, and the caller takes the
general way, which knows all cases and raises all errors.

The general way teaches it: :func:`learn_product` and :func:`learn_vector` note the plan and the
compiled code of a small call, the second time that it comes. Plans depend on what operands hold;
there is a table with one for each pair of classes (:func:`semiring_mm.cpu.facts.class_of`).
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ..engine import PLAIN, Scaling
from ..forks import hold_at_fork
from ..plan import ALPHA, BETA, READ_C, Plan, infinite_zero, needs_facts
from ..semirings import Semiring, as_semiring
from .compiler import KEPT, Library, compile_functions, host_target
from .facts import CLASSES, class_code
from .ir import F32, F64, I1, I32, I64, PTR, Function, Type, Value, Var
from .memory import workspace
from .product_code import PARAMS, ProductCode, params_of
from .views import HEAD, check_array_layout

__all__ = ["DEPTH", "VECTOR", "VECTOR_DEPTH", "Ways", "forget", "learn_product", "learn_vector"]

Array = NDArray[Any]

DEPTH = 512  # k of the largest products
VECTOR, VECTOR_DEPTH = 1 << 17, 1 << 14  # entries and columns of the largest matrix for a vector
_COLUMNS = 4096
_ALONE = 1 << 15  # pairs that are computed before another thread of Python's may run
_LONGEST = 1 << 15  # an axis
_LARGEST = 1 << 25  # pairs for which operands are scanned

# --- what is known ------------------------------------------------------------------------------

#: What is known of a semiring in one dtype, a word each: ``table`` is the address of the entries of
#: products by classes of the operands, ``scan`` that of the function that tells an operand's class;
#: ``scaled``, ``vector`` and ``vector_scaled`` are addresses of entries. 0: not known.
_ROW = (
    "dtype", "size", "floats", "wide", "one", "commutes", "scan", "table", "scaled", "vector",
    "vector_scaled",
)  # fmt: skip
#: An entry: the address of a compiled function, the bytes of workspace, the columns and the pairs
#: up to which it serves, and its parameters.
_ENTRY = ("call", "room", "columns", "pairs", *PARAMS)
_ROWS = 24


class _Row:
    """What is known of a semiring in one dtype: the words that compiled code reads."""

    def __init__(self, words: Array, semiring: Semiring, dtype: np.dtype[Any]) -> None:
        self.words = words
        self.table = np.zeros((CLASSES, CLASSES), np.int64)
        self.kept: list[Any] = [dtype]  # what the addresses belong to
        self.entries: dict[int, Array] = {}
        floats = dtype.kind not in "iub"
        self.set(
            size=dtype.itemsize, floats=floats, wide=dtype.itemsize == 8,
            commutes=semiring.commutes, table=self.table.ctypes.data,
        )  # fmt: skip
        if floats:
            one = float(semiring.identities(dtype)[1])
            self.set(one=int(np.array(one).view(np.int64)))
        if needs_facts(semiring, dtype):
            code = class_code(dtype.name, infinite_zero(semiring, dtype))
            self.kept.append(code)
            self.set(scan=code.address("class"))
        self.set(dtype=id(dtype))  # from now on the row is seen

    def set(self, **words: int) -> None:
        for name, value in words.items():
            self.words[_ROW.index(name)] = value

    def entry(self, call: Any, room: int, columns: int, pairs: int, params: bytes) -> int:
        """The address of a new entry."""
        head = [ctypes.cast(call, ctypes.c_void_p).value or 0, room, columns, pairs]
        words = np.array([*head, *np.frombuffer(params, np.int64)], np.int64)
        self.kept.append(call)
        entry = words.ctypes.data
        self.entries[entry] = words
        workspace(room)
        return entry


class _Known:
    """The rows of a semiring; one without a dtype is the end."""

    def __init__(self) -> None:
        self.words = np.zeros((_ROWS + 1, len(_ROW)), np.int64)
        self.rows: dict[np.dtype[Any], _Row] = {}


_lock = hold_at_fork(threading.Lock())
_known: dict[Semiring, _Known | None] = {}  # None: a small call came once
_ways: list[Ways] = []


def forget() -> None:
    """Let all calls be first ones again."""
    _known.clear()
    for ways in _ways:
        ways.clear()


def _row(semiring: Semiring, dtype: np.dtype[Any]) -> _Row | None:
    """The row of a semiring and a dtype, if small calls of that semiring came before."""
    if dtype is not np.dtype(dtype.type):  # of another byte order, or with metadata
        return None
    with _lock:
        known = _known.get(semiring)
        if known is None:
            if semiring not in _known:
                if len(_known) >= KEPT:
                    forget()
                _known[semiring] = None
                return None
            known = _known[semiring] = _Known()
        row = known.rows.get(dtype)
        if row is None and len(known.rows) < _ROWS:
            row = _Row(known.words[len(known.rows)], semiring, dtype)
            known.rows[dtype] = row
        return row


def learn_product(
    semiring: Semiring, dtype: np.dtype[Any], classes: tuple[int, int], scaling: Scaling,
    pairs: int, chosen: Callable[[], tuple[Plan, ProductCode] | None],
) -> None:  # fmt: skip
    """Note the code of a product of operands of these classes, of fewer than so many pairs.

    `chosen`: its plan and code, which are looked up or compiled if they are not known yet.
    """
    row = _row(semiring, dtype)
    if row is None:
        return
    plain = scaling == PLAIN
    entry = int(row.table[classes] if plain else row.words[_ROW.index("scaled")])
    if entry:
        words = row.entries[entry]
        workspace(int(words[_ENTRY.index("room")]))  # of this thread, which may be a new one
        at = _ENTRY.index("pairs")
        words[at] = max(int(words[at]), pairs)
        return
    found = chosen()
    if found is None:
        return
    plan, code = found
    nr, mc = code.shape.nr, code.shape.mc
    columns = min(code.n_slab // nr, -(-_COLUMNS // nr)) * nr
    room = code.shape.workspace(code.size, mc, DEPTH, columns, arg=False)
    wide = columns * 32 if plan.codec == "bits" else columns
    entry = row.entry(code.call, room, wide, pairs, code.params(mc, DEPTH, columns))
    if plain:
        row.table[classes] = entry
    else:
        row.set(scaled=entry)


def learn_vector(
    semiring: Semiring, dtype: np.dtype[Any], *, scaled: bool,
    chosen: Callable[[], tuple[Plan, Any, int] | None],
) -> None:  # fmt: skip
    """Note the code of a small matrix-vector product, one for whatever the operands hold.

    `scaled`: whether α scales A; `chosen`: its plan, code, and bytes of workspace for
    ``VECTOR_DEPTH`` columns.
    """
    row = _row(semiring, dtype)
    if row is None:
        return
    name = "vector_scaled" if scaled else "vector"
    entry = int(row.words[_ROW.index(name)])
    if entry:
        workspace(int(row.entries[entry][_ENTRY.index("room")]))
    elif found := chosen():
        plan, call, room = found
        row.set(**{name: row.entry(call, room, 1, VECTOR, params_of(plan, 0, 0, 0))})


class Ways(dict[Any, Any]):
    """The quick way of a verb, by the semiring as the caller names it.

    ``way(buffer, alpha, a, b, beta, c, trans_a, trans_b, out)`` is the verb's result, or None where
    the general way is to be taken; `buffer` is this thread's workspace. No way is known (KeyError)
    before small calls came twice.

    Parameters
    ----------
    ranks : iterable of (int, int)
        Numbers of axes of `a` and `b` that the verb takes.
    dtype : dtype, optional
        The only one that it takes.
    vectors : bool
        Whether products with one row or column are those of a matrix and a vector, which may add
        up in another order.
    """

    def __init__(
        self, ranks: Iterable[tuple[int, int]], dtype: str | None = None, *, vectors: bool = True
    ) -> None:
        super().__init__()
        self._vectors = vectors
        self._ranks = sum(1 << (4 * a + b) for a, b in ranks)
        self._dtype = 0 if dtype is None else id(np.dtype(dtype))
        _ways.append(self)

    def __missing__(self, semiring: Any) -> Any:
        s = as_semiring(semiring)
        with _lock:
            known = _known.get(s)
            if known is None:
                raise KeyError(semiring)
            if len(self) >= KEPT:
                self.clear()
            rows = known.words.ctypes.data
            words = np.array([self._ranks, rows, self._dtype, self._vectors], np.int64)
            own: Any = words.view(_Words)
            own.known = known
            way = self[semiring] = _new_function(ctypes.addressof(_door()[0]), own, None)
        return way


class _Words(np.ndarray[Any, Any]):
    """What a way knows, with a reference to what the addresses in it belong to."""

    known: _Known


class _MethodDef(ctypes.Structure):
    """``PyMethodDef`` of Python's C API."""

    _fields_ = (
        ("name", ctypes.c_char_p), ("call", ctypes.c_void_p), ("flags", ctypes.c_int),
        ("doc", ctypes.c_char_p),
    )  # fmt: skip


_FASTCALL = 0x0080  # METH_FASTCALL: called with an array of arguments
_new_function = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.py_object, ctypes.py_object
)(("PyCFunction_NewEx", ctypes.pythonapi))


@functools.cache
def _door() -> tuple[_MethodDef, Library]:
    """The compiled way, as Python's C API takes a function of a module."""
    check_array_layout()
    library = compile_functions([door_function()], host_target())
    return _MethodDef(b"way", library.address("door"), _FASTCALL, None), library


# --- the compiled way ---------------------------------------------------------------------------

_NEW, _RETURN = 94, 76  # PyArray_NewFromDescr and PyArray_Return in NumPy's C API (a stable ABI)
_WRITEABLE = 0x0400
_ARGUMENTS = ("buffer", "alpha", "a", "b", "beta", "c", "trans_a", "trans_b", "out")
_DATA, _NDIM, _DIMS, _STRIDES, _DTYPE, _FLAGS = (HEAD + x for x in (0, 8, 16, 24, 40, 48))


def door_function() -> Function:
    """Generate ``door(self, arguments, count)``: see :class:`Ways`."""
    f = Function("door", [PTR, PTR, I64], result=PTR)
    door = _Door(f)
    with f.while_() as leave:
        door.leave = leave
        door.run()
        f.break_if(f.const(1, I1), leave)
    door.end()
    return f


def _python(name: str) -> int:
    return ctypes.cast(getattr(ctypes.pythonapi, name), ctypes.c_void_p).value or 0


def _numpy(slot: int) -> int:
    capsule = importlib.import_module("numpy._core._multiarray_umath")._ARRAY_API
    pointer = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
        ("PyCapsule_GetPointer", ctypes.pythonapi)
    )
    table = ctypes.POINTER(ctypes.c_void_p)
    return ctypes.cast(pointer(capsule, None), table)[slot] or 0


class _Array:
    """The fields of an array object."""

    def __init__(self, f: Function, x: Value) -> None:
        self.f, self.object = f, x
        self.data = f.load(x.at(_DATA), PTR, 8)
        self.ndim = f.load(x.at(_NDIM), I32, 4).to(I64)
        self.dims = f.load(x.at(_DIMS), PTR, 8)
        self.strides = f.load(x.at(_STRIDES), PTR, 8)
        self.dtype = f.load(x.at(_DTYPE), I64, 8)
        self.flags = f.load(x.at(_FLAGS), I32, 4)

    def ends(self, size: Value) -> tuple[Value, Value]:
        """The first byte, and that behind the last one, as numbers; no axis is empty."""
        f = self.f
        start = f.emit(f"ptrtoint ptr {self.data.name} to i64", I64)
        low, high = f.var(start), f.var(start + size)
        with f.loop(0, self.ndim) as i:
            stride = f.load(self.strides.at(i * 8), I64, 8)
            reach = (f.load(self.dims.at(i * 8), I64, 8) - 1) * stride
            back = reach.cmp("<", 0)
            low.set(f.select(back, low.get() + reach, low.get()))
            high.set(f.select(back, high.get(), high.get() + reach))
        return low.get(), high.get()


class _Door:
    """Generates the way; each step leaves if anything is not as it has to be."""

    def __init__(self, f: Function) -> None:
        self.f, self.leave = f, ""
        self.own, self.arguments, self.count = f.args
        self.null = f.emit("inttoptr i64 0 to ptr", PTR)
        f.result.set(self.null)
        self.failed = f.var(f.const(0, I64))  # whether an exception is set
        self.none = f.pointer(id(None))

    def need(self, condition: Value) -> None:
        self.f.break_if(condition ^ 1, self.leave)

    def end(self) -> None:
        """Return None if there is no result and no exception."""
        f = self.f
        nothing = f.result.get().cmp("==", self.null) & self.failed.get().cmp("==", 0)
        with f.if_(nothing):
            self.call("Py_IncRef", self.none)
            f.result.set(self.none)

    def call(self, name: str, *args: Value) -> None:
        """Call a function of Python's C API that returns nothing."""
        self.f.invoke_at(self.f.pointer(_python(name)), args)

    def is_a(self, x: Value, kind: type) -> Value:
        """Whether an object is of a type, and of no subclass."""
        return self.f.load(x.at(HEAD - 8), PTR, 8).cmp("==", self.f.pointer(id(kind)))

    def word(self, name: str) -> Value:
        return self.f.load(self.row.at(8 * _ROW.index(name)), I64, 8)

    def run(self) -> None:
        f, need = self.f, self.need
        need(self.count.cmp("==", len(_ARGUMENTS)))
        given = {x: f.load(self.arguments.at(8 * i), PTR, 8) for i, x in enumerate(_ARGUMENTS)}
        arrays = [given[name] for name in ("a", "b", "buffer")]
        need(functools.reduce(Value.__and__, (self.is_a(x, np.ndarray) for x in arrays)))
        a, b, buffer = (_Array(f, x) for x in arrays)
        self.find_row(a, b)
        self.measure(a, b, given["trans_a"], given["trans_b"])
        self.scales(given)
        self.choose(a, b, buffer)
        self.check_joined(given["c"], a)
        self.check_out(given["out"], given["c"], a, b)
        result = self.make(given["out"], given["c"], a)
        self.compute(a, b, result, buffer)
        self.finish(result, given["out"], buffer)

    def find_row(self, a: _Array, b: _Array) -> None:
        f = self.f
        words = f.load(self.own.at(_DATA), PTR, 8)
        only, self.vectors = (f.load(words.at(8 * i), I64, 8) for i in (2, 3))
        self.need(a.dtype.cmp("==", b.dtype))
        self.need(only.cmp("==", 0) | only.cmp("==", a.dtype))
        row = f.var(f.load(words.at(8), PTR, 8))
        with f.while_() as found:
            dtype = f.load(row.get(), I64, 8)
            f.break_if(dtype.cmp("==", a.dtype) | dtype.cmp("==", 0), found)
            row.set(row.get().at(8 * len(_ROW)))
        self.row = row.get()
        self.need(self.word("dtype").cmp("==", a.dtype))
        self.need(a.ndim.cmp("<=", 3) & b.ndim.cmp("<=", 3))
        ranks = f.load(words, I64, 8)
        self.need(((ranks >> (a.ndim * 4 + b.ndim)) & 1).cmp("!=", 0))

    def measure(self, a: _Array, b: _Array, trans_a: Value, trans_b: Value) -> None:
        """Sizes and strides: op(A) is (m, k), op(B) (k, n), each repeated or `batch` of them."""
        f, need = self.f, self.need
        one, zero = f.const(1, I64), f.const(0, I64)

        def axis(x: _Array, back: int) -> list[Value]:
            """Size and stride of an axis counted from the end, or of the only one."""
            i = f.select(x.ndim.cmp("<", back), zero, (x.ndim - back) * 8)
            return [f.load(fields.at(i), I64, 8) for fields in (x.dims, x.strides)]

        def sides(x: _Array, flag: Value) -> list[list[Value]]:
            flip = flag.cmp("==", f.pointer(id(True)))
            need(flip | flag.cmp("==", f.pointer(id(False))))
            pairs = [*zip(axis(x, 2), axis(x, 1), strict=True)]
            return [
                [f.select(flip, q, p) for p, q in pairs],
                [f.select(flip, p, q) for p, q in pairs],
            ]

        def first(x: _Array) -> list[Value]:
            """Size and stride of the axis of matrices."""
            stacked = x.ndim.cmp("==", 3)
            got = (f.load(fields, I64, 8) for fields in (x.dims, x.strides))
            return [f.select(stacked, y, z) for y, z in zip(got, (one, zero), strict=True)]

        (self.m, self.a_row), (self.k, self.a_column) = sides(a, trans_a)
        (inner, self.b_row), (self.n, self.b_column) = sides(b, trans_b)
        self.a_vector, self.b_vector = a.ndim.cmp("==", 1), b.ndim.cmp("==", 1)
        self.m, self.n = f.select(self.a_vector, one, self.m), f.select(self.b_vector, one, self.n)
        self.a_row = f.select(self.a_vector, zero, self.a_row)
        self.b_column = f.select(self.b_vector, zero, self.b_column)
        (a_batch, self.a_step), (b_batch, self.b_step) = first(a), first(b)
        self.batch = f.select(a.ndim.cmp("==", 3), a_batch, b_batch)
        self.stack = a.ndim.cmp("==", 3) | b.ndim.cmp("==", 3)
        need(inner.cmp("==", self.k))
        need(a.ndim.cmp("<", 3) | b.ndim.cmp("<", 3) | a_batch.cmp("==", b_batch))
        for size in (self.m, self.n, self.k, self.batch):
            need(size.cmp(">", 0) & size.cmp("<=", _LONGEST))
        self.pairs = self.m * self.n * self.k * self.batch
        self.column = self.n.cmp("==", 1)  # a matrix times a vector
        need((self.stack & self.column) ^ 1)
        thin = self.column | (self.m.cmp("==", 1) & (self.stack ^ 1))
        self.vector = thin & self.vectors.cmp("!=", 0)
        self.rank = f.select(self.stack, f.const(3, I64), a.ndim + b.ndim - 2)
        self.shape = f.alloca(I64, 4)
        ahead = f.select(self.stack, one, zero)
        f.store(self.batch, self.shape, 8)
        f.store(self.m, self.shape.at(ahead * 8), 8)
        self.columns_at = ahead + f.select(self.a_vector, zero, one)
        self.rows_at = ahead
        f.store(self.n, self.shape.at(self.columns_at * 8), 8)

    def scales(self, given: dict[str, Value]) -> None:
        """α and β: whether they are there, and their values; an α of one is none."""
        f, need = self.f, self.need
        good = f.var(f.const(1, I1))

        def scalar(x: Value) -> tuple[Value, Value]:
            there = x.cmp("!=", self.none)
            real, whole = self.is_a(x, float), self.is_a(x, int)
            need((there ^ 1) | ((real | whole) & self.word("floats").cmp("!=", 0)))
            value = f.var(f.const(0.0, F64))
            with f.if_(real):
                value.set(f.load(x.at(HEAD), F64, 8))
            with f.if_(whole):
                value.set(f.call_at(f.pointer(_python("PyLong_AsDouble")), F64, [x]))
                with f.if_(value.get().cmp("==", -1.0)):
                    error = f.call_at(f.pointer(_python("PyErr_Occurred")), PTR, [])
                    with f.if_(error.cmp("!=", self.null)):
                        self.call("PyErr_Clear")
                        good.set(0)
            return there, value.get()

        there, self.alpha = scalar(given["alpha"])
        self.scaled = there & self.alpha.cmp("!=", self.word("one").bits_as(F64))
        self.joined, self.beta = scalar(given["beta"])
        need(good.get())
        need((self.joined ^ given["c"].cmp("!=", self.none)) ^ 1)

    def choose(self, a: _Array, b: _Array, buffer: _Array) -> None:
        """Find the entry: the code of such a product."""
        f, need = self.f, self.need
        address = f.var(f.const(0, I64))
        with f.if_else(self.vector) as otherwise:
            need(self.k.cmp("<=", VECTOR_DEPTH))
            need(self.column | self.word("commutes").cmp("!=", 0))
            times = self.column & self.scaled
            address.set(f.select(times, self.word("vector_scaled"), self.word("vector")))
            with otherwise():
                need(self.k.cmp("<=", DEPTH))
                need(self.pairs.cmp("<=", _LARGEST))
                with f.if_else(self.scaled | self.joined) as plain:
                    address.set(self.word("scaled"))
                    with plain():
                        self.look(a, b, address)
        need(address.get().cmp("!=", 0))
        self.entry = f.emit(f"inttoptr i64 {address.get().name} to ptr", PTR)
        room, columns, pairs = (f.load(self.entry.at(8 * i), I64, 8) for i in (1, 2, 3))
        need(self.pairs.cmp("<", pairs) & (self.vector | self.n.cmp("<=", columns)))
        need(f.load(buffer.dims, I64, 8).cmp(">=", room))

    def look(self, a: _Array, b: _Array, address: Var) -> None:
        """The entry for what the operands hold."""
        f = self.f
        place, scan = f.var(f.const(0, I64)), self.word("scan")
        with f.if_(scan.cmp("!=", 0)):
            class_of = f.emit(f"inttoptr i64 {scan.name} to ptr", PTR)
            for x, step, sizes, strides in (
                (a, self.a_step, (self.m, self.k), (self.a_row, self.a_column)),
                (b, self.b_step, (self.k, self.n), (self.b_row, self.b_column)),
            ):
                # a stack as one matrix of all rows
                stacked, whole = x.ndim.cmp("==", 3), sizes[0] * self.batch
                self.need((stacked ^ 1) | step.cmp("==", sizes[0] * strides[0]))
                rows = f.select(stacked, whole, sizes[0])
                view = self.view(x.data, (rows, sizes[1]), strides)
                place.set(place.get() * CLASSES + f.call_at(class_of, I64, [view]))
        table = f.emit(f"inttoptr i64 {self.word('table').name} to ptr", PTR)
        address.set(f.load(table.at(place.get() * 8), I64, 8))

    def check_joined(self, c: Value, a: _Array) -> None:
        with self.f.if_(self.joined):
            self.need(self.is_a(c, np.ndarray))
            self.fits(_Array(self.f, c), a)

    def fits(self, x: _Array, a: _Array) -> None:
        """The dtype of A and the shape of the result."""
        f = self.f
        self.need(x.dtype.cmp("==", a.dtype) & x.ndim.cmp("==", self.rank))
        with f.loop(0, self.rank) as i:
            size = f.load(x.dims.at(i * 8), I64, 8)
            self.need(size.cmp("==", f.load(self.shape.at(i * 8), I64, 8)))

    def check_out(self, out: Value, c: Value, a: _Array, b: _Array) -> None:
        """Apart from the operands, but it may be C itself."""
        f, need = self.f, self.need
        with f.if_(out.cmp("!=", self.none)):
            need(self.is_a(out, np.ndarray))
            x = _Array(f, out)
            self.fits(x, a)
            need((x.flags & _WRITEABLE).cmp("!=", 0))
            with f.loop(0, self.rank) as i:
                step, size = (f.load(y.at(i * 8), I64, 8) for y in (x.strides, x.dims))
                need(step.cmp("!=", 0) | size.cmp("==", 1))
            size = self.word("size")
            low, high = x.ends(size)

            def apart(y: _Array) -> Value:
                first, last = y.ends(size)
                return high.cmp("<=", first) | last.cmp("<=", low)

            need(apart(a) & apart(b))
            with f.if_(self.joined):
                y = _Array(f, c)
                with f.if_(apart(y) ^ 1):
                    need(x.data.cmp("==", y.data))
                    with f.loop(0, self.rank) as i:
                        steps = [f.load(z.strides.at(i * 8), I64, 8) for z in (x, y)]
                        need(steps[0].cmp("==", steps[1]))

    def make(self, out: Value, c: Value, a: _Array) -> _Array:
        """The array of the result, which holds C where that is joined."""
        f = self.f
        target = f.var(out)
        self.made = out.cmp("==", self.none)
        with f.if_(self.made):
            dtype = f.load(a.object.at(_DTYPE), PTR, 8)
            self.call("Py_IncRef", dtype)  # the new array's reference
            none, rank = f.const(0, I32), self.rank.to(I32)
            new = f.call_at(f.pointer(_numpy(_NEW)), PTR, [
                f.pointer(id(np.ndarray)), dtype, rank, self.shape, self.null, self.null, none,
                self.null,
            ])  # fmt: skip
            target.set(new)
            failed = new.cmp("==", self.null)
            with f.if_(failed):
                self.failed.set(1)
            self.need(failed ^ 1)
        x = _Array(f, target.get())
        nowhere = f.alloca(I64)  # an array of no axes has no strides
        f.store(f.const(0, I64), nowhere, 8)

        def stride(x: _Array, there: Value, i: Value) -> Value:
            return f.load(f.select(there, x.strides.at(i * 8), nowhere), I64, 8)

        def strides(x: _Array) -> list[Value]:
            places = (
                (self.stack, f.const(0, I64)), (self.a_vector ^ 1, self.rows_at),
                (self.b_vector ^ 1, self.columns_at),
            )  # fmt: skip
            return [stride(x, *place) for place in places]

        self.c_step, self.c_row, self.c_column = strides(x)
        with f.if_(self.joined):
            y = _Array(f, c)
            with f.if_(y.data.cmp("!=", x.data)):
                self.copy(y.data, strides(y), x.data)
        return x

    def copy(self, source: Value, strides: list[Value], to: Value) -> None:
        f = self.f
        sizes = (self.batch, self.m, self.n)
        for size in (2, 4, 8):
            kind = Type("i", 8 * size)
            with (
                f.if_(self.word("size").cmp("==", size)),
                f.loop(0, sizes[0]) as h, f.loop(0, sizes[1]) as i, f.loop(0, sizes[2]) as j,
            ):  # fmt: skip
                old = h * strides[0] + i * strides[1] + j * strides[2]
                new = h * self.c_step + i * self.c_row + j * self.c_column
                f.store(f.load(source.at(old), kind), to.at(new))

    def view(self, data: Value, dims: Sequence[Value], strides: Sequence[Value]) -> Value:
        """The fields of an array object that compiled code reads; see :class:`.views.ArrayView`."""
        f, n = self.f, len(dims)
        block = f.alloca(I64, (_STRIDES + 8) // 8 + 2 * n)
        at_dims, at_strides = block.at(_STRIDES + 8), block.at(_STRIDES + 8 * (n + 1))
        f.store(f.const(n, I32), block.at(_NDIM), 8)
        for value, place in ((data, _DATA), (at_dims, _DIMS), (at_strides, _STRIDES)):
            f.store(value, block.at(place), 8)
        for i, (size, stride) in enumerate(zip(dims, strides, strict=True)):
            f.store(size, at_dims.at(8 * i), 8)
            f.store(stride, at_strides.at(8 * i), 8)
        return block

    def bits(self, x: Value) -> Value:
        """A scalar as a parameter; see :func:`semiring_mm.plan.scalar_bits`."""
        narrow = x.to(F32).bits_as(Type("u", 32)).to(Type("u", 64)).bits_as(I64)
        return self.f.select(self.word("wide").cmp("!=", 0), x.bits_as(I64), narrow)

    def parameters(self) -> Value:
        f, zero = self.f, self.f.const(0, I64)
        block = f.alloca(I64, len(PARAMS))
        mode = f.select(self.joined, f.const(READ_C | BETA, I64), zero)
        on_the_way = self.scaled & ((self.vector & self.column) ^ 1)  # else the code scales A
        fields = {
            "mode": mode | f.select(on_the_way, f.const(ALPHA, I64), zero),
            "alpha": self.bits(self.alpha), "beta": self.bits(self.beta), "batch": self.batch,
            "a_batch": self.a_step, "b_batch": self.b_step, "c_batch": self.c_step,
        }  # fmt: skip
        for i, name in enumerate(PARAMS):
            kept = f.load(self.entry.at(8 * (4 + i)), I64, 8)
            f.store(fields.get(name, kept), block.at(8 * i), 8)
        return block

    def compute(self, a: _Array, b: _Array, c: _Array, buffer: _Array) -> None:
        f, params = self.f, self.parameters()
        call = f.load(self.entry, PTR, 8)
        state, long = f.var(self.null), self.pairs.cmp(">", _ALONE)
        with f.if_(long):
            state.set(f.call_at(f.pointer(_python("PyEval_SaveThread")), PTR, []))
        with f.if_else(self.vector) as otherwise:

            def either(yes: Value, no: Value) -> Value:
                return f.select(self.column, yes, no)

            rows = either(self.m, self.n)
            steps = either(self.a_row, self.b_column), either(self.a_column, self.b_row)
            matrix = self.view(either(a.data, b.data), (rows, self.k), steps)
            x = self.view(either(b.data, a.data), (self.k,), (either(self.b_row, self.a_column),))
            y = self.view(c.data, (rows,), (either(self.c_row, self.c_column),))
            f.invoke_at(call, [matrix, x, y, buffer.object, params])
            with otherwise():
                left = self.view(a.data, (self.m, self.k), (self.a_row, self.a_column))
                right = self.view(b.data, (self.k, self.n), (self.b_row, self.b_column))
                to = self.view(c.data, (self.m, self.n), (self.c_row, self.c_column))
                f.invoke_at(call, [left, right, to, buffer.object, params, to, to])
        with f.if_(long):
            self.call("PyEval_RestoreThread", state.get())

    def finish(self, result: _Array, out: Value, buffer: _Array) -> None:
        f, byte = self.f, Type("i", 8)
        over = f.load(buffer.data, byte).cmp("!=", 0)  # an integer does not fit
        with f.if_(over):
            f.store(f.const(0, byte), buffer.data)
            with f.if_(self.made):
                self.call("Py_DecRef", result.object)
        self.need(over ^ 1)
        with f.if_else(self.made & self.rank.cmp("==", 0)) as otherwise:
            number = f.call_at(f.pointer(_numpy(_RETURN)), PTR, [result.object])
            with f.if_(number.cmp("==", self.null)):
                self.failed.set(1)
            f.result.set(number)
            with otherwise():
                with f.if_(self.made ^ 1):
                    self.call("Py_IncRef", out)
                f.result.set(result.object)
