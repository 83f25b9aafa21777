"""Convert operands to one engine's arrays, and results back to the library of the operands.

NumPy, CuPy, PyTorch and JAX arrays, and all that offer DLPack or ``__cuda_array_interface__``, are
used without a copy, as are host arrays of other libraries that follow the Python array API
standard. No library is imported to recognise an array: the caller's array proves that it is loaded.
"""

from __future__ import annotations

import contextlib
import functools
import importlib
import re
import sys
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import numpy as np

from . import engine as engines
from .engine import Engine
from .memory import too_large

__all__ = [
    "Call", "check_all_pairs", "check_memory", "device_index", "gpu_has", "joined", "masked",
    "repeat", "where",
]  # fmt: skip

Array = Any
_PLAIN = {np.ndarray, type(None)}  # types that need no conversion
_ANYWHERE = (list, tuple)  # types of operands that go where the arrays are
#: Bytes that are there: to ask what is free takes as long as a search of a small graph.
_UNASKED = 1 << 20
#: Memory for all pairs of a graph's nodes that is taken only where the user speaks of it.
_ALL_PAIRS = 4 << 30
#: What `semiring_mm.torch` and `semiring_mm.jax` have.
_DIFFERENTIABLE = "apsp, cdist, chain, closure, distances, dtw, einsum, matmul, scan and sequences"
_HOST, _CUDA = (1, 3), (2, 13)  # device types of DLPack: plain and pinned, plain and managed memory


class Call:
    """One call: where it runs, its operands as arrays of that engine, and the way back.

    It is a context: inside, the operands' device (and PyTorch's stream) is the current one, and
    ``call[name]`` is an operand.

    Parameters
    ----------
    device : {None, "cpu", "cuda", "cuda:N"}
        None: where the operands live. "cuda" takes host arrays to the current CUDA device.
    out : array, optional
        The caller's array for the result.
    head : tuple, optional
        The verb and all its arguments that are no arrays, where the same call on a device may come
        again: it is prepared (:class:`.engine.Calls`). The operands are then those of
        :func:`repeat`, in the same order.
    **operands : array_like
        Operands by their names in messages; None stays None. Lists go where the arrays are.

    Attributes
    ----------
    engine : module
    out : array, optional
        Where the engine puts the result: `out` itself, or memory of the engine's own where `out`
        lies elsewhere or in another byte order.
    moved : bool
        Whether host arrays are computed on the device; the operands are copies then.
    holds : sequence of callables
        For what else, of each thing that it reads on the device, the call is the same one, where it
        comes again: see :meth:`.engine.Calls.learn`.
    """

    engine: Engine
    moved = False
    holds: Sequence[Callable[[Any], bool]] = ()
    _aside = False  # whether the result is copied to `out` at the end
    _index: int | None = None  # of the device; -1 is the current one
    _library = "numpy"
    _like: Any = None  # the operand whose library, and device in it, the results are of
    _plain = True  # whether NumPy's arrays are used as they are
    _context: contextlib.ExitStack | None = None
    _notes: list[Any] | None = None  # of what is launched

    def __init__(
        self, device: str | None = None, out: Any = None, head: tuple[Any, ...] | None = None,
        **operands: Any,
    ) -> None:  # fmt: skip
        self.engine = engines.named("cpu")
        self._given = self._arrays = operands
        self._head = head
        self._out = self.out = out
        if (
            device not in (None, "cpu")  # where NumPy's arrays are
            or not _PLAIN.issuperset(map(type, operands.values()))
            or type(out) not in _PLAIN
            or not (out is None or out.dtype.isnative)
        ):
            self._find(device)

    def _find(self, device: str | None) -> None:
        places: dict[str, int | None] = {}
        for name, x in {**self._given, "out": self._out}.items():
            if x is not None and not isinstance(x, _ANYWHERE):
                places[name] = where(x, name)
                if self._library == "numpy" and type(x) is not np.ndarray:
                    self._library = _library(x, places[name])
                    self._like = x
        self._index = _one_place(
            places, lambda x: "the host" if x is None else f"CUDA device {x}",
            "cupy.asarray(x) or x.get(), in PyTorch x.to(device), in JAX jax.device_put(x, device)",
        )  # fmt: skip
        if self._library == "api":
            given = {**self._given, "out": self._out}
            theirs = {k: x.device for k, x in given.items() if _library(x, None) == "api"}
            _one_place(theirs, str, "x.to_device(device)")
        index = device_index(device)
        if self._index is None:
            self.moved, self._index = index is not None, index
        elif device is not None and index not in (-1, self._index):
            raise ValueError(
                f"device={device!r}, but {next(iter(places))} lives on CUDA device {self._index}: "
                f"leave device out, or copy the array first"
            )
        if self._index is not None:
            self.engine = engines.named("cuda")
        self._plain = False

    def __enter__(self) -> Call:
        if self._plain:
            return self
        if self._index is None:
            self._take_all()
            return self
        theirs: tuple[Any, ...] = ()
        if self._library == "torch" and not self.moved:
            torch = sys.modules["torch"]
            stream = torch.cuda.current_stream(self._index).cuda_stream
            here = torch.device("cuda", self._index)
            theirs = stream, functools.partial(torch.empty, dtype=torch.uint8, device=here)
        with self.engine.on(self._index, *theirs) as context:
            if self._out is None and not theirs and self.engine.capturing():
                raise RuntimeError(
                    "a CUDA graph is being captured, and would not keep the memory of this "
                    "call's result: say by out= where it goes, or use a call that has out="
                )
            lists = any(isinstance(x, _ANYWHERE) for x in self._given.values())
            if self._head is not None and not self.moved and not lists:
                self._notes = context.enter_context(self.engine.calls.recorded())
            if self._library == "jax":
                # JAX may give the operands' memory to other work, on its own stream, once they
                # are dropped.
                context.callback(self.engine.wait)
            self._take_all()
            self._context = context.pop_all()
        return self

    def _take_all(self) -> None:
        self._arrays = {
            name: None if x is None else self._take(x, name) for name, x in self._given.items()
        }
        if self._out is not None:
            self.out = self._take_out(self._out)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        if self._context is not None:
            self._context.close()

    def __getitem__(self, name: str) -> Array:
        return self._arrays[name]

    def give(self, result: Any) -> Any:
        """Convert a result, or a tuple of them, to the library and device of the operands."""
        given: Any
        if isinstance(result, tuple):
            given = tuple(map(self._given_back, result))
        else:
            given = self._given_back(result)
        if self._notes is not None:
            there = [name for name, x in self._given.items() if x is not None]
            self.engine.calls.learn(
                self._notes, self._head or (), [self._given[name] for name in there], self._out,
                given, [self._arrays[name] for name in there], result, self.holds,
            )  # fmt: skip
        return given

    def _given_back(self, result: Array) -> Any:
        if self._out is not None and result is self.out:
            if self._aside:
                _writable(self._out)[...] = self.engine.to_host(result)
            return self._out
        if self.moved:
            if type(result) is not np.ndarray:  # rows are fetched while others are computed
                result = self.engine.to_host(result)
            result = result if result.ndim else result[()]
        if self._library == "api":
            return _to_api(result, self._like)
        return _BACK[self._library](result, self._index is None or self.moved)

    def _take(self, x: Any, name: str) -> Array:
        if self._index is None:
            return x if type(x) is np.ndarray else _on_host(x, name)
        if self.moved or isinstance(x, _ANYWHERE):
            array = _on_host(x, name)
            return self.engine.from_host(array.astype(array.dtype.newbyteorder("="), copy=False))
        return _on_device(self.engine.xp, x, name)

    def _take_out(self, out: Any) -> Array:
        if self._library == "jax":
            raise TypeError("JAX arrays cannot be written to: leave out= or overwrite= away")
        if self._index is not None and not self.moved:
            return _on_device(self.engine.xp, out, "out")
        target = _writable(out)
        if not self.moved and target.dtype.isnative:
            return target
        if not target.flags.writeable:
            raise ValueError("out is read-only")
        self._aside = True
        native = target.dtype.newbyteorder("=")
        operands = (self._arrays[name] for name, x in self._given.items() if x is out)
        if (operand := next(operands, None)) is not None:  # it is to be overwritten
            return operand if self.moved else operand.astype(native)
        return self.engine.xp.empty(target.shape, native)


def repeat(
    head: tuple[Any, ...], operands: tuple[Any, ...], out: Any = None, dtype: str = ""
) -> Any:
    """:meth:`.engine.Calls.repeat`: the result of a call that was prepared, or None."""
    engine = engines.loaded("cpu" if type(operands[0]) is np.ndarray else "cuda")
    return None if engine is None else engine.calls.repeat(head, operands, out, dtype)


def gpu_has(memory: int) -> bool:
    """Whether there is a GPU with at least `memory` bytes free."""
    if engines.why_not("cuda"):
        return False
    free = engines.named("cuda").free_memory()
    return free is None or free >= memory


# --- where an array lives -----------------------------------------------------------------------


def where(x: Any, name: str) -> int | None:
    """The CUDA device that an array lives on, or None for the host."""
    if isinstance(x, np.ndarray):
        return None
    if "jax" in sys.modules and isinstance(x, sys.modules["jax"].core.Tracer):
        raise TypeError(
            f"{name} is traced by JAX (inside jit, vmap or grad) and has no numbers yet: "
            f"semiring_mm.jax has {_DIFFERENTIABLE} for that; call others outside"
        )
    if hasattr(x, "__dlpack_device__"):
        try:
            kind, index = x.__dlpack_device__()
        except Exception as error:  # whatever the library raises: sharded, traced, without memory
            raise TypeError(
                f"{name}, a {type(x).__name__}, has no memory to use: {error}"
            ) from None
        if kind in _CUDA:
            return int(index)
        if kind not in _HOST:
            raise TypeError(
                f"{name} lives on a device that is neither the host nor CUDA (DLPack's type "
                f"{int(kind)}): copy it to one of these first"
            )
    elif hasattr(x, "__cuda_array_interface__"):
        return int(engines.named("cuda").xp.asarray(x).device.id)
    return None


def masked(x: Any) -> bool:
    """Whether it is a masked array; only who has one has loaded ``numpy.ma``."""
    ma = sys.modules.get("numpy.ma")
    return ma is not None and isinstance(x, ma.MaskedArray)


def _one_place(places: dict[str, Any], written: Callable[[Any], str], instead: str) -> Any:
    """The one place where all arrays live; TypeError where there are several."""
    (first, place), *others = places.items() or [("", None)]
    for name, other in others:
        if other != place:
            raise TypeError(
                f"{first} lives on {written(place)} and {name} on {written(other)}: bring them "
                f"together first, with {instead}"
            )
    return place


def device_index(device: str | None) -> int | None:
    """The CUDA device that a word names: None for None and "cpu", -1 for "cuda", the current one.

    Raises
    ------
    ValueError
        For any other word than "cpu", "cuda" and "cuda:N".
    """
    if device is None or device == "cpu":
        return None
    match = re.fullmatch(r"cuda(?::(\d+))?", str(device))
    if match is None:
        raise ValueError(f"device must be None, 'cpu', 'cuda' or 'cuda:N', got {device!r}")
    return -1 if match[1] is None else int(match[1])


def _library(x: Any, place: int | None) -> str:
    for base in type(x).__mro__:
        root = base.__module__.partition(".")[0]
        if root in ("torch", "jax", "jaxlib"):
            return "torch" if root == "torch" else "jax"
    if place is None and _follows_standard(x):
        return "api"
    return "numpy" if place is None else "cupy"


def _follows_standard(x: Any) -> bool:
    """Whether an array on the host, of another library, is one of the Python array API."""
    own = isinstance(x, (np.ndarray, np.generic))
    return not own and hasattr(x, "__array_namespace__") and hasattr(x, "__dlpack__")


# --- in -----------------------------------------------------------------------------------------


def _on_host(x: Any, name: str) -> Array:
    if masked(x):
        raise TypeError(
            f"{name} is a masked array, whose mask would be lost: use {name}.filled(...)"
        )
    if hasattr(x, "tocsr") or hasattr(x, "toarray"):
        raise TypeError(
            f"{name} is a sparse {type(x).__name__}: use {name}.toarray() (and put the semiring's "
            f"zero where nothing is stored), or semiring_mm.adjacency for graphs"
        )
    if type(x).__name__ == "BitMatrix":
        raise TypeError(
            f"{name} is a BitMatrix, which matmul, matrix_power, closure and the functions of gf2 "
            f"take: use {name}.unpack()"
        )
    library = _library(x, None)
    if library == "torch":
        return _of_torch(x, name)
    array = np.from_dlpack(x) if library == "api" else np.asarray(x)
    if array.dtype.kind in "OUSVmM" and array.dtype.name != "bfloat16":
        raise TypeError(
            f"{name} has dtype {array.dtype}; numbers are accepted: use an array of a numeric dtype"
        )
    return array


def _of_torch(x: Any, name: str) -> Array:
    _refuse_grad(x, name)
    x = _resolved(x, name)
    torch = sys.modules["torch"]
    if x.dtype == torch.bfloat16:
        try:
            from ml_dtypes import bfloat16
        except ImportError:
            raise ImportError(
                f"{name} is of bfloat16, which NumPy has by the package ml_dtypes: python -m pip "
                f"install ml_dtypes, or use {name}.float()"
            ) from None
        return x.view(torch.int16).numpy().view(bfloat16)
    return x.numpy()


def _refuse_grad(x: Any, name: str) -> None:
    if getattr(x, "requires_grad", False):
        raise TypeError(
            f"{name} is a tensor that requires a gradient, and none is computed here: "
            f"semiring_mm.torch has {_DIFFERENTIABLE} with gradients; give others {name}.detach()"
        )


def _resolved(x: Any, name: str) -> Any:
    """An array whose memory holds its numbers; a conjugate's may hold the negative ones."""
    if not getattr(x, "is_neg", bool)():
        return x
    if name == "out":
        raise TypeError(
            "out is the imaginary part of a conjugate, whose memory holds the negative numbers: "
            "use out.resolve_neg()"
        )
    return x.resolve_neg()


def _on_device(xp: Any, x: Any, name: str) -> Array:
    if isinstance(x, xp.ndarray):
        return x
    _refuse_grad(x, name)
    x = _resolved(x, name)
    if hasattr(x, "__dlpack__"):
        return xp.from_dlpack(x)
    return xp.asarray(x)


def _writable(out: Any) -> Array:
    """The host array `out` as one of NumPy that shares its memory."""
    if isinstance(out, np.ndarray):
        return out
    if _library(out, None) == "torch":
        return _of_torch(out, "out")
    if _library(out, None) == "api":
        return np.from_dlpack(out)
    raise TypeError(f"out must be a NumPy array, got {type(out).__name__}")


def joined(arrays: Sequence[Any]) -> Any:
    """Arrays one after the other, by their own library; None where that cannot be done at once.

    It can for arrays of NumPy, CuPy or PyTorch of one type, on one device, that have the same shape
    but for the first axis.
    """
    kind, *others = set(map(type, arrays))
    library = kind.__module__.partition(".")[0]
    try:
        if others:
            return None
        if kind is np.ndarray:
            return np.concatenate(arrays)
        if library == "torch":
            return sys.modules["torch"].cat(tuple(arrays))
        if library == "cupy" and len({x.device.id for x in arrays}) == 1:
            with arrays[0].device:
                return sys.modules["cupy"].concatenate(arrays)
    except (TypeError, ValueError, RuntimeError):  # shapes or dtypes that do not match
        pass
    return None


# --- out ----------------------------------------------------------------------------------------


def _to_torch(x: Array, host: bool) -> Any:
    torch: Any = sys.modules["torch"]
    if not host:
        return torch.from_dlpack(x)
    array = np.asarray(x)
    if array.dtype.name == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


def _to_jax(x: Array, host: bool) -> Any:
    if host:
        return importlib.import_module("jax.numpy").asarray(x)
    return importlib.import_module("jax.dlpack").from_dlpack(x)


def _to_api(x: Array, like: Any) -> Any:
    return like.__array_namespace__().from_dlpack(np.asarray(x), device=like.device)


_BACK = {
    "numpy": lambda x, host: x,
    "cupy": lambda x, host: x,
    "torch": _to_torch,
    "jax": _to_jax,
}


def check_all_pairs(n: int, needed: int, instead: str) -> None:
    """Raise MemoryError before all pairs of n nodes take `needed` bytes without the user's word.

    `instead` is what to write.
    """
    if needed > _ALL_PAIRS:
        what = f"a matrix of all pairs of {n:,} nodes"
        raise too_large(what, needed, engines.named("cpu").free_memory(), instead)


def check_memory(
    needed: int, what: str, engine: Engine | None = None, less: str = "take less at a time",
    *, halves: bool = True,
) -> None:  # fmt: skip
    """Raise MemoryError before the work if an engine, or the host, has not `needed` bytes free.

    `less` is what to do where float32 in place of float64 does not help, or (`halves`) cannot.
    """
    engine = engine or engines.named("cpu")
    free = engine.free_memory() if needed > _UNASKED else None
    if free is not None and needed > free:
        hint = "use float32 (half of float64)" if halves and needed < 4 * free else less
        raise too_large(what, needed, free, f"{hint} or a larger machine", where=engine.WHERE)
