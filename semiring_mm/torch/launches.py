"""Models of sequences on a CUDA device in one launch, from PyTorch's tensors as they are.

An operator costs hundreds of microseconds of the host: its dispatch in Python, and conversions of
each tensor. Of the usual models, a batch of sequences with one matrix of transitions, the launch
is kept by shapes and strides, and gets the addresses of tensors; of many states those of
``semiring_mm.sequences`` are kept. All others take the operators, and so do compilation, tracing,
``vmap`` and second derivatives.
"""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

import numpy as np
import torch

from .. import sequences as host
from ..engine import ChainModel, named
from .operators import TENSORS, is_plain

__all__ = ["Sequences", "gradients", "sequences"]

Tensor = Any

_DTYPES: dict[Any, Any] = {torch.float32: np.dtype(np.float32), torch.float64: np.dtype(np.float64)}
_WHOLE = {torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64}
_KEPT = 1024  # models
_models: dict[Any, ChainModel | None] = {}


class _Cuda(threading.local):
    """What is asked of PyTorch's current device; of each thread."""

    def __init__(self) -> None:
        self._flag: Tensor = None
        self._stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)

    def has(self, x: Tensor) -> bool:
        return bool(x.is_cuda) and x.get_device() == torch.cuda.current_device()

    def stream(self, index: int) -> int:
        if self._stream is not None:  # PyTorch's own generated code takes it
            return int(self._stream(index))
        return int(torch.cuda.current_stream(index).cuda_stream)

    def captures(self) -> bool:
        return bool(torch.cuda.is_current_stream_capturing())

    def flag(self) -> Tensor:
        """A number of the host that kernels can write to."""
        if self._flag is None:
            self._flag = torch.zeros(1, dtype=torch.int32, pin_memory=True)
        return self._flag

    def wait(self, index: int) -> None:
        torch.cuda.current_stream(index).synchronize()


cuda = _Cuda()


class Sequences(NamedTuple):
    """A batch of sequences of a model, ready to be launched."""

    model: ChainModel
    e: Tensor  # (batch, steps, states), the last axis contiguous, as in all others
    a: Tensor  # (states, states), of any strides
    start: Tensor | None  # (states) or (batch, states)
    end: Tensor | None
    lengths: Tensor | None  # (batch), int64
    tags: Tensor | None  # (batch, steps), int64
    unknown: bool  # whether lengths or tags may be out of range, which waits for the device

    def posterior(self, wanted: int) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
        """Log-partitions less the scores of tags, and derivatives; None if out of range.

        With `wanted` 1 derivatives of the emissions are computed, with 2 of the transitions too,
        those for each sequence.
        """
        if self.model.wide:
            return self._many_states(wanted)
        e = self.e
        batch, steps, n = e.shape
        total = e.new_empty(batch)
        states = e.new_empty(batch, steps, n) if wanted else None
        pairs = e.new_empty(batch, n, n) if wanted > 1 else None
        offsets = e.new_empty(batch, steps, dtype=torch.float64) if wanted else None
        known = self._run(wanted, total=total, y=states, pairs=pairs, offsets=offsets)
        return (total, states, pairs) if known else None

    def best_path(self) -> tuple[Tensor, Tensor] | None:
        """Best paths and their scores; None if lengths are out of range."""
        if self.model.wide:
            return host.best_path(*self._operands(), known=True) if self._in_range() else None
        e = self.e
        score, path = e.new_empty(e.shape[0]), e.new_empty(e.shape[:2], dtype=torch.int32)
        pointers = e.new_empty(e.shape, dtype=torch.int16)
        return (path, score) if self._run(None, total=score, path=path, pointers=pointers) else None

    def _operands(self) -> tuple[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None]:
        e, a, start, end, lengths = (
            None if x is None else x.detach()
            for x in (self.e, self.a, self.start, self.end, self.lengths)
        )
        return e, a, start, end, lengths

    def _in_range(self) -> bool:
        """Whether lengths are; waits for the device where that is not known."""
        if not self.unknown or self.lengths is None:
            return True
        low, high = self.lengths.aminmax()
        return int(low) >= 0 and int(high) <= self.e.shape[1]

    def _many_states(self, wanted: int) -> tuple[Tensor, Tensor | None, Tensor | None] | None:
        if not self._in_range():
            return None
        found = host.posterior("log_partition", *self._operands(), wanted, known=True)
        total, states, pairs = found
        for x in (states, pairs)[:wanted]:  # 0 where no sequence is possible
            x.masked_fill_((total == -torch.inf)[:, None, None], 0)
        return total, states, pairs

    def _run(self, wanted: int | None, **results: Tensor | None) -> bool:
        tensors = results | {
            "a": self.a, "e": self.e, "x": self.start, "end": self.end, "lengths": self.lengths,
            "tags": self.tags,
        }  # fmt: skip
        stream = cuda.stream(self.e.get_device())
        waits = self.unknown
        if waits and cuda.captures():  # a graph waits for nothing: such sums are NaN
            tensors["errors"], waits = self.e.new_empty(1, dtype=torch.int32), False
        elif waits:
            flag = tensors["errors"] = cuda.flag()
            flag.zero_()
        given = map(tensors.get, named("cuda").chains.POINTERS)
        places = [0 if x is None else x.data_ptr() for x in given]
        self.model.launch(stream, places, wanted, self.tags is not None)
        if not waits:
            return True
        cuda.wait(self.e.get_device())
        return not flag.item()


def sequences(
    e: Tensor, a: Tensor, start: Tensor | None, end: Tensor | None, lengths: Any,
    tags: Tensor | None = None,
) -> Sequences | None:  # fmt: skip
    """Models that one launch is kept for; None for all others, and where there is an error."""
    if not isinstance(e, torch.Tensor) or not is_plain(e):
        return None
    if not cuda.has(e) or e.dim() != 3 or e.dtype not in _DTYPES or not e.numel():
        return None
    batch, steps, n = e.shape
    if not (_fits(e, e, e.shape) and _fits(e, a, (n, n))):
        return None
    for x in (start, end):
        if x is not None and not (_fits(e, x, (n,)) or _fits(e, x, (batch, n))):
            return None
    if tags is not None:
        kind = getattr(tags, "dtype", None)
        if kind not in _WHOLE or not _fits(e, tags, (batch, steps), kind):
            return None
        tags = tags.to(torch.int64)
    unknown = tags is not None
    if lengths is not None:
        try:
            given = torch.as_tensor(lengths)
        except (TypeError, ValueError, RuntimeError):
            return None
        if given.shape != (batch,) or given.dtype not in _WHOLE or given.is_neg():
            return None
        if given.device != e.device:
            if given.is_cuda or not 0 <= int(given.min()) <= int(given.max()) <= steps:
                return None
        else:
            unknown = True
        lengths = given.to(e.device, torch.int64).contiguous()
    e, start, end, tags = map(_dense, (e, start, end, tags))
    model = _model(e, a, start, end, tags)
    return None if model is None else Sequences(model, e, a, start, end, lengths, tags, unknown)


def gradients(
    model: ChainModel, g: Tensor, states: Tensor, pairs: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """Gradients of emissions and, if there are derivatives by pairs, of transitions.

    Given those of log-partitions, (batch,), and what :meth:`Sequences.posterior` found.
    """
    if not is_plain(g) or g.is_neg():
        by_pairs = None if pairs is None else torch.tensordot(g, pairs, 1)
        return states * g[:, None, None], by_pairs
    by_states = torch.empty_like(states)
    by_pairs = None if pairs is None else pairs.new_empty(pairs.shape[1:])
    tensors = (g, states, pairs, by_states, by_pairs)
    places = [0 if x is None else x.data_ptr() for x in tensors]
    model.gradients(cuda.stream(states.get_device()), places, g.stride(0))
    return by_states, by_pairs


def _fits(e: Tensor, x: Tensor, shape: tuple[int, ...], dtype: Any = None) -> bool:
    """Whether a tensor lies where the emissions do, of a shape, and of their dtype or this one."""
    return (
        type(x) in TENSORS and x.shape == shape and x.dtype == (dtype or e.dtype)
        and x.device == e.device and not x.is_neg()
    )  # fmt: skip


def _dense(x: Tensor | None) -> Tensor | None:
    return x if x is None or x.stride(-1) == 1 else x.detach().contiguous()


def _model(
    e: Tensor, a: Tensor, start: Tensor | None, end: Tensor | None, tags: Tensor | None
) -> ChainModel | None:
    key: Any = (
        e.get_device(), e.dtype, e.shape, e.stride(), a.stride(),
        start is not None and start.stride(), end is not None and end.stride(),
        tags is not None and tags.stride(0),
    )  # fmt: skip
    try:
        return _models[key]
    except KeyError:
        pass
    strides = {"a_row": a.stride(0), "a_col": a.stride(1), "tags_batch": int(key[-1])}
    strides |= {"e_batch": e.stride(0), "e_step": e.stride(1)}
    for name, x in (("x_batch", start), ("end_batch", end)):
        strides[name] = x.stride(0) if x is not None and x.dim() > 1 else 0
    if len(_models) >= _KEPT:
        _models.clear()
    make = named("cuda").chains.Model
    assert make is not None  # on an engine that launches
    try:
        batch, steps, n = e.shape
        model: ChainModel | None = make(_DTYPES[e.dtype], batch, steps, n, strides)
    except NotImplementedError:
        model = None
    _models[key] = model
    return model
