"""A verb is a row: its operands and results by their axes, what computes it, and its gradient.

A signature such as ::

    emissions ...TS, transitions ...[U]SS, start ...S = 0, lengths ...:i8 = T; what: int
    -> total ..., states ...TS

names operands, what else a call takes, and results. A capital is an axis, of one size wherever it
stands; ``...`` are leading dimensions, which broadcast, if there may be such; an axis in brackets
may be left out. What has a default, after ``=``, may be absent. ``:i8`` is a dtype, else it is that
of the first operand.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol

import numpy as np

from .products import join_leading

__all__ = ["Backward", "Library", "Operand", "Verb", "check_lengths", "refuse_ragged", "sum_to"]

Array = Any  # of any array library
Shape = tuple[int, ...]
Join = Callable[..., Shape]


class Operand(NamedTuple):
    """An operand or a result."""

    name: str
    axes: str  # behind the leading dimensions
    shorter: str | None  # the axes that it may have instead
    stacked: bool  # whether there may be leading dimensions
    dtype: str | None
    default: str | None


class Library(Protocol):
    """An array library that differentiates: its functions, and verbs as operators of it."""

    ARRAY: str  # what its arrays are called in its documentation

    @property
    def xp(self) -> Any:
        """The namespace of exp, where, flip, broadcast_to, full_like, ..."""

    def run(self, name: str, /, *args: Any) -> tuple[Any, ...]:
        """The results of a verb, which are differentiable."""

    def fused(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """A function of this library and arrays, which may be compiled as one."""

    def take(self, x: Array, index: Array, axis: int) -> Array:
        """The entries of `x` at an index along one axis, broadcast along the others."""

    def add_at(self, shape: Sequence[int], axis: int, index: Array, values: Array) -> Array:
        """Zeros of a shape, to which each value is added at its index along one axis."""

    def count(self, n: int, like: Array) -> Array:
        """0, 1, ..., n - 1, where an array lives."""

    def wide(self, x: Array) -> Array:
        """An array of 16-bit floats in float32; others as they are."""

    def cast(self, x: Array, dtype: Any) -> Array: ...

    def broadcast_shapes(self, *shapes: Any) -> tuple[int, ...]: ...

    def arrays(self, verb: str, /, **operands: Any) -> list[Array]:
        """The operands as arrays of the library, or an error; None stays None."""

    def promoted(self, *arrays: Array) -> list[Array]:
        """Arrays of the dtype that the library promotes theirs to."""

    def real(self, verb: str, *arrays: Array) -> list[Array]:
        """Arrays of one dtype of floats, at least of 32 bits, or an error."""

    def lengths(self, lengths: Any, like: Array) -> Array:
        """Lengths as an array that lies where another does."""

    def concrete(self, x: Array) -> bool:
        """Whether an array has numbers, and nobody else looks at the call."""

    def differentiated(self, *arrays: Array) -> list[bool]:
        """Whose gradients are wanted, as far as it is known before a gradient is asked for."""

    def repeated(self, verb: str, *arguments: Any) -> Any:
        """The result of a call that is kept, or None."""


@dataclass(frozen=True)
class Backward:
    """What a gradient is computed from."""

    library: Library
    came: tuple[Any, ...]  # None or the gradients of the results
    given: Mapping[str, Any]  # operands, results and other arguments; arrays that are kept
    shapes: Mapping[str, Shape | None]  # of the operands
    needs: Mapping[str, bool]  # operands whose gradients are wanted

    def __getitem__(self, name: str) -> Any:
        """An argument or a result, None where it is not kept."""
        return self.given.get(name)


@dataclass(frozen=True, eq=False)
class Verb:
    """One operation, from which checks and the operators of each library follow."""

    name: str
    signature: str  # see :mod:`semiring_mm.verb`
    # Of all arguments in their order, with arrays of any library that broadcast. It returns all
    # results, None in the place of those that `axes` leaves out.
    compute: Callable[..., tuple[Any, ...]] = lambda *_: ()
    # From a :class:`Backward` the gradients of the operands, before what was broadcast is summed.
    # Where it is made of verbs and of differentiable functions, it is differentiated again. None:
    # there is no derivative.
    gradient: Callable[[Backward], Sequence[Array | None]] | None = None
    # The names of operands and results that `gradient` reads, from the other arguments and from the
    # operands whose gradients are wanted; None: all.
    keeps: Callable[[Mapping[str, Any], Mapping[str, bool]], Set[str]] | None = None
    # From the arguments, by their names, the axes of each result, or None for one that is not
    # computed. By default those of the signature.
    axes: Callable[[Mapping[str, Any]], Sequence[str | None]] | None = None
    # Adds to the sizes of axes those that follow, from the arguments by their names, where they are
    # known. It returns the name of an operand whose sizes are wrong.
    sizes: Callable[[dict[str, int], Mapping[str, Any]], str | None] | None = None
    # by the name of an operand, what it has to be, in words, from the sizes that are known
    wants: Mapping[str, Callable[[Mapping[str, Any]], str]] = field(default_factory=dict)
    # the arguments behind the operands with which the results for a gradient are computed
    prepared: Callable[..., tuple[Any, ...]] | None = None
    operands: tuple[Operand, ...] = field(init=False)
    options: tuple[tuple[str, str], ...] = field(init=False)
    results: tuple[Operand, ...] = field(init=False)
    names: tuple[str, ...] = field(init=False)  # of all arguments

    def __post_init__(self) -> None:
        left, _, right = self.signature.partition("->")
        given, _, more = left.partition(";")
        options = tuple(re.findall(r"(\w+): ([\w\[\]?]+)", more))
        operands = _operands(given)
        names = (*(x.name for x in operands), *(name for name, _ in options))
        parsed = {"operands": operands, "options": options, "results": _operands(right)}
        for key, value in {**parsed, "names": names}.items():
            object.__setattr__(self, key, value)

    def check(
        self, shapes: Iterable[Sequence[int] | None], join: Join = np.broadcast_shapes,
        verb: str = "",
    ) -> tuple[Shape, dict[str, int]]:  # fmt: skip
        """Return the shape of the batch and the sizes of the axes, or raise in words.

        `shapes` are those of the operands in their order, or None. `join` broadcasts shapes;
        PyTorch's takes symbols too. `verb` is the name in messages, if it is another.
        """
        verb = verb or self.name
        sizes: dict[str, int] = {}
        known: dict[str, Shape] = {}
        parts: list[Shape] = []
        for x, given in zip(self.operands, shapes, strict=True):
            if given is None:
                if x.default is None:
                    raise TypeError(f"{verb}: {x.name} must be an array of numbers, got None")
                continue
            shape = known[x.name] = tuple(given)
            if x.name == "lengths":
                continue
            axes = x.axes if x.shorter is None or len(shape) != len(x.shorter) else x.shorter
            cut = len(shape) - len(axes)
            if cut < 0 or (cut and not x.stacked):
                raise self._wrong(verb, x, known, sizes)
            for axis, size in zip(axes, shape[cut:], strict=True):
                if sizes.setdefault(axis, size) != size:
                    raise self._wrong(verb, x, known, sizes)
            if cut:
                parts.append(shape[:cut])
        wrong = self.sizes(sizes, known) if self.sizes is not None else None
        if wrong is not None:
            operand = next(x for x in self.operands if x.name == wrong)
            raise self._wrong(verb, operand, known, sizes)
        batch = join_leading(verb, parts, join) if parts else ()
        if "lengths" in known:
            # where the first operand has the steps, there is one length for each row of its own
            first = self.operands[0]
            own = known[first.name][: -len(first.axes)] if first.axes[:1] == "T" else batch
            check_lengths(verb, known["lengths"], own, sizes.get("T", 0), join)
        return batch, sizes

    def _wrong(
        self, verb: str, x: Operand, shapes: Mapping[str, Shape], sizes: Mapping[str, int]
    ) -> ValueError:
        if x.name in self.wants:
            wanted = self.wants[x.name]({**sizes, **shapes})
        else:
            before = self.operands[: self.operands.index(x)]
            origin = {c: y.name for y in before[::-1] if y.name in shapes for c in y.axes}
            fixed = [f"{c} = {sizes[c]} as in {origin[c]}" for c in dict.fromkeys(x.axes)
                     if c in origin and c in sizes]  # fmt: skip
            wanted = f"{x.name} is of shape ({'..., ' * x.stacked}{', '.join(x.axes)})"
            wanted += f" or ({', '.join(x.shorter)},)" if x.shorter and not x.stacked else ""
            wanted += f" with {' and '.join(fixed)}" if fixed else ""
        return ValueError(f"{verb}: {wanted}; got shape {shapes[x.name]}")

    def result_shapes(
        self, args: Sequence[Any], join: Join = np.broadcast_shapes
    ) -> list[Shape | None]:
        """The shapes of all results, of arguments that fit; None for those that are left out."""
        given = dict(zip(self.names, args, strict=True))
        sizes: dict[str, int] = {}
        parts = []
        for x in self.operands:
            if (array := given[x.name]) is not None:
                cut = len(array.shape) - len(x.axes)
                parts.append(array.shape[:cut])
                for axis, size in zip(x.axes, array.shape[cut:], strict=True):
                    sizes.setdefault(axis, size)
        if self.sizes is not None:
            self.sizes(sizes, given)
        batch = tuple(join(*parts))
        return [
            None if axes is None
            else (*batch, *(int(c) if c.isdigit() else sizes[c] for c in axes))
            for axes in self.present(given)
        ]  # fmt: skip

    def front(
        self, dims: Sequence[int | None], args: Sequence[Any], size: int, moved: Callable[..., Any],
        expand: Callable[..., Any],
    ) -> list[Any]:  # fmt: skip
        """Arguments of which an axis, that of `dims`, is mapped: it leads the leading dimensions.

        The first operand has it in any case, so that all results do.
        """
        arrays = list(args)
        present = [i for i, x in enumerate(self.operands) if args[i] is not None]
        mapped = {i: dims[i] is not None for i in present}
        ranks = {i: args[i].ndim - mapped[i] - len(self.operands[i].axes) for i in present}
        rank = max(ranks.values())
        for i in present:
            x = moved(args[i], dims[i], 0) if mapped[i] else args[i]
            if i == present[0] and not mapped[i]:
                x = expand(x, (size, *x.shape))
            elif not mapped[i]:
                continue
            arrays[i] = x.reshape(x.shape[0], *(1,) * (rank - ranks[i]), *x.shape[1:])
        return arrays

    def present(self, given: Mapping[str, Any]) -> Sequence[str | None]:
        """The axes of each result, None if it is not computed."""
        return [x.axes for x in self.results] if self.axes is None else self.axes(given)

    def backward(
        self, library: Library, came: tuple[Array | None, ...], given: Mapping[str, Any],
        shapes: Mapping[str, Shape | None], needs: Mapping[str, bool],
    ) -> list[Array | None]:  # fmt: skip
        """The gradient of each operand, of the operand's shape; None for those without."""
        if self.gradient is None:
            raise NotImplementedError(
                f"{library.__class__.__module__.rpartition('.')[0]} has second derivatives of "
                f"products whose ⊕ is min or max and over plus_times, and of what is made of them: "
                f"none of other products, and none of closures and distances of prepared graphs"
            )
        found = self.gradient(Backward(library, came, given, shapes, needs))
        return [
            None if g is None or (shape := shapes[x.name]) is None else sum_to(g, shape)
            for x, g in zip(self.operands, found, strict=True)
        ]


def _operands(text: str) -> tuple[Operand, ...]:
    found = re.findall(r"(\w+) (\.\.\.)?([A-Z0-9[\]]*)(?::(\w+))?(?: = (\w+))?(?:,|$|\s)", text)
    return tuple(
        Operand(
            name, re.sub(r"\W", "", axes), re.sub(r"\[.\]", "", axes) if "[" in axes else None,
            bool(stacked), dtype or None, default or None,
        )
        for name, stacked, axes, dtype, default in found
    )  # fmt: skip


def sum_to(x: Array, shape: Sequence[int]) -> Array:
    """The sum over all axes along which an operand of this shape was broadcast."""
    if x.shape == shape:
        return x
    rank = len(x.shape)
    wide = (1,) * (rank - len(shape)) + tuple(shape)
    axes = tuple(i for i in range(rank) if wide[i] == 1 and x.shape[i] != 1)
    return (x.sum(axes) if axes else x).reshape(tuple(shape))


# --- lengths of sequences -------------------------------------------------------------------------

#: How to stack sequences that lie one after the other in x.
_STACK = (
    "y = np.zeros((len(lengths), max(lengths), *x.shape[1:]), x.dtype); "
    "y[np.arange(max(lengths)) < np.c_[lengths]] = x; pass y and lengths"
)


def refuse_ragged(verb: str, **operands: Any) -> None:
    """Refuse lists of sequences of several lengths, in words."""
    for name, x in operands.items():
        sizes = {len(v) for v in x if hasattr(v, "__len__")} if type(x) in (list, tuple) else ()
        if len(sizes) > 1:
            raise ValueError(
                f"{verb}: {name} have {min(sizes)} to {max(sizes)} steps. Stack them: x = "
                f"np.concatenate({name}); lengths = [len(v) for v in {name}]; {_STACK}"
            )


def check_lengths(verb: str, lengths: Any, batch: Shape, steps: int, join: Join) -> None:
    """Refuse lengths that are not one for each sequence of a batch; both are shapes."""
    if lengths is None:
        return
    with contextlib.suppress(RuntimeError, ValueError):
        if tuple(join(lengths, batch)) == tuple(batch):
            return
    text = f"a batch of shape {tuple(batch)}: one for each"
    if not batch:
        text = f"one sequence of {steps} steps. Where x has several, one after the other: {_STACK}"
    raise ValueError(f"{verb}: lengths of shape {tuple(lengths)} for {text}")
