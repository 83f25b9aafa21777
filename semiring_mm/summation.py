"""Einstein sums over a semiring, as a sequence of pairwise contractions."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import numpy as np

from .arrays import Call, repeat
from .engine import Engine
from .expressions import Expr, evaluate
from .laws import SemiringLawError, check_laws
from .naming import integer, optional
from .plan import make_plan, overflow
from .products import check_out, common_dtype, flatten_leading, multiply
from .semirings import Semiring, as_semiring

__all__ = [
    "Steps", "commutes", "contracted", "einsum", "found_path", "need_laws", "parsed", "sum_of",
]  # fmt: skip

Array = Any  # NumPy or CuPy; results have the operands' library
#: A letter, the number of an axis, or the (negative) position of one in the ellipsis.
Label = str | int
Subscript = list[Any]  # an operand's labels, and ... for an ellipsis among them
Term = tuple[Array, list[Label]]  # an operand and the labels of its axes

_FORMS = "einsum takes 'ij,jk->ik', A, B or A, [0, 1], B, [1, 2], [0, 2]"
#: Dtypes in which many small scalar products are faster entry by entry, and as exact.
_ONE_BY_ONE = ("float32", "float64", "bool")
#: Rows from which a stack of matrices is summed without copying it into one matrix.
_TALL = 64


def einsum(
    subscripts: Any,
    *operands: Any,
    semiring: str | Semiring = "plus_times",
    out: Any = None,
    optimize: Any = True,
    device: str | None = None,
) -> Any:
    """Einstein sum over a semiring: ``"ij,jk->ik"`` gives ``C[i, k] = ⊕_j A[i, j] ⊗ B[j, k]``.

    Parameters
    ----------
    subscripts : str
        As for :func:`numpy.einsum`: a letter for each axis, an ellipsis for axes that broadcast;
        a letter twice in an operand takes its diagonal; without ``->`` the result has the letters
        that appear once, in the order of the alphabet. Axes of length 1 broadcast. NumPy's other
        form, ``einsum(A, [0, 1], B, [1, 2], [0, 2])``, is taken too, with numbers from 0 on.
    *operands : array_like
        Any number of them. Mixed dtypes follow NumPy's promotion.
    semiring : str or Semiring, default "plus_times"
        A name from :data:`semiring_mm.semirings` or your own.
    out : array, optional
        Where to put the result: of its shape and dtype, where the operands live.
    optimize : bool, str, list of tuple, or callable, default True
        The order in which three or more operands are joined. True asks opt_einsum (extra
        ``einsum``), False goes from left to right; "optimal", "greedy" and others, optimizers such
        as cotengra's, and paths are handed to opt_einsum's ``contract_path``.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to run; None: where the operands live.

    Returns
    -------
    ndarray
        Of the operands' library, on their device, with an axis for each letter of the output. A
        scalar if there is none.

    Raises
    ------
    ValueError
        For subscripts that do not fit the operands; for sums that need a law which the semiring
        does not have (see Notes).
    ImportError
        For three or more operands and ``optimize=True`` without opt_einsum.
    OverflowError
        If an integer, of the result or of what is computed on the way to it, does not fit.

    Notes
    -----
    Two operands at a time become a product of stacks of matrices (:func:`matmul`), without a copy
    where strides allow. An index that only one of them has is summed first: ⊗ distributes over ⊕.
    The cost is that of the path; see Smith and Gray (2018) for how it is found.

    A sum of three operands, or one in which an index is summed first, needs ⊗ to be associative and
    to distribute over ⊕; this is tested on samples of the semiring's domain, and refused where it
    does not hold (plus_min). Where ⊗ is not known to be commutative, operands are joined from left
    to right.

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> A = np.array([[0.0, 2.0], [5.0, 1.0]])
    >>> sm.einsum("ij,jk->ik", A, A, semiring="max_plus")
    array([[7., 3.],
           [6., 7.]])
    >>> sm.einsum("ij->i", A, semiring="min_plus")
    array([0., 1.])
    """
    head = None
    few = isinstance(subscripts, str) and 0 < len(operands) < 3
    if few and device is None and type(operands[0]) is not np.ndarray:
        head = ("einsum", subscripts, semiring)
        result = repeat(head, operands, out)
        if result is not None:
            return result
    s = as_semiring(semiring)
    inputs, output, operands = parsed(subscripts, *operands)
    names = [f"operand_{i}" for i in range(len(operands))]
    with Call(device, out, head, **dict(zip(names, operands, strict=True))) as call:
        arrays = common_dtype(s, *(call[name] for name in names))
        target = call.out

        def check(shape: tuple[int, ...]) -> None:
            if target is not None:
                check_out(target, shape, arrays[0].dtype)

        steps = _OnEngine(call.engine)
        result = contracted(steps, s, arrays, inputs, output, optimize, check)
        if call.out is not None:
            call.out[...] = result
            result = call.out
        elif len(arrays) == 1 and call.engine.xp.may_share_memory(result, arrays[0]):
            result = result.copy()
        return call.give(result if result.ndim or out is not None else result[()])


class Steps(Protocol):
    """What an Einstein sum is made of, of arrays of one library."""

    def product(self, s: Semiring, a: Array, b: Array) -> Array:
        """The product of two stacks of matrices."""

    def each(self, s: Semiring, a: Array, b: Array) -> Array:
        """A ⊗ B entry by entry, exact or an error as a product is."""

    def total(self, s: Semiring, x: Array) -> Array:
        """The sum of an array, of one axis at least, along the last one."""

    def transposed(self, x: Array, axes: Sequence[int]) -> Array:
        return x.transpose(axes)

    def path(self, subscripts: str, shapes: Any, optimize: Any) -> Sequence[tuple[int, ...]]:
        """The operands to contract at each step, of three and more; see :func:`found_path`."""
        return found_path(subscripts, shapes, optimize)

    def one_by_one(self, x: Array) -> bool:
        """Whether many small scalar products of a dtype are faster entry by entry."""
        return x.dtype.name in _ONE_BY_ONE

    def commutes(self, s: Semiring) -> bool:
        """Whether ⊗ is the same expression with its operands exchanged."""
        return commutes(s)

    def need_laws(self, s: Semiring, x: Array) -> None:
        """Refuse a semiring without the laws that sums of several operands need, in a dtype."""
        need_laws(s, x.dtype)


class _OnEngine(Steps):
    """The steps on an engine's arrays."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def product(self, s: Semiring, a: Array, b: Array) -> Array:
        return multiply(self._engine, s, a, b)

    def each(self, s: Semiring, a: Array, b: Array) -> Array:
        return _elementwise(self._engine, s, a, b)

    def total(self, s: Semiring, x: Array) -> Array:
        xp, (*shape, k) = self._engine.xp, x.shape
        flat = flatten_leading(xp, x, len(shape)) if shape and x.size else None
        if flat is None and (len(shape) < 2 or shape[-1] < _TALL):
            flat = x.reshape(math.prod(shape), k)
        x = x if flat is None else flat
        # the right operand is not used: a row, which lies as the rows do
        unused = x[(0,) * (x.ndim - 1)] if x.size else xp.zeros(k, x.dtype)
        return multiply(self._engine, sum_of(s), x, unused).reshape(shape)


# --- labels and operands --------------------------------------------------------------------------


def parsed(
    subscripts: Any, *operands: Any
) -> tuple[list[Subscript], Subscript | None, tuple[Any, ...]]:
    """The axes of each operand and, if they are given, of the result; and the operands."""
    if not isinstance(subscripts, str):
        arguments = (subscripts, *operands)
        operands, lists = arguments[: len(arguments) // 2 * 2 : 2], arguments[1::2]
        if not operands:
            raise TypeError(f"{_FORMS}; got one operand and no axes")
        inputs = [_numbered(axes) for axes in lists]
        return inputs, _numbered(arguments[-1]) if len(arguments) % 2 else None, operands
    text, arrow, result = subscripts.replace(" ", "").partition("->")
    texts = text.split(",")
    if not operands or len(texts) != len(operands):
        raise ValueError(
            f"einsum: {subscripts!r} describes {len(texts)} operands, and {len(operands)} came"
        )
    return [_lettered(x) for x in texts], _lettered(result) if arrow else None, operands


def _lettered(text: str) -> Subscript:
    """The axes in a part of a string."""
    before, dots, after = text.partition("...")
    if wrong := [c for c in before + after if not c.isalpha()]:
        raise ValueError(
            f"einsum: {wrong[0]!r} in {text!r}: an axis is a letter, and an operand has at most "
            f"one ellipsis"
        )
    return [*before, *([...] if dots else ()), *after]


def _numbered(axes: Any) -> Subscript:
    """The axes in a list of numbers, or in an array of them."""
    if isinstance(axes, str) or not (isinstance(axes, Sequence) or np.ndim(axes) == 1):
        shape = np.shape(axes)
        what = f"an array of shape {shape}" if shape else f"{axes!r:.60}"
        raise TypeError(f"{_FORMS}; got {what} where a list of axes belongs")
    parts: Subscript = [x if x is ... else _number(x) for x in axes]
    if parts.count(...) > 1:
        raise ValueError(f"einsum: an operand has at most one ellipsis, got {_shown(parts)}")
    return parts


def _number(axis: Any) -> int:
    """The number of an axis, of a type that NumPy takes; networks have more than its 52 axes."""
    number = integer(axis, "einsum: an axis", " or ...")
    if number < 0:
        raise ValueError(f"einsum: axes are numbered from 0 on, got {number}")
    return number


def _labels(
    inputs: Sequence[Subscript], output: Subscript | None, dimensions: Sequence[int]
) -> tuple[list[list[Label]], list[Label]]:
    """Return the labels of each operand's axes and of the result's."""

    def split(subscript: Subscript, rest: int) -> list[Label]:
        """The labels, of which `rest` are the ellipsis's."""
        parts = (range(-rest, 0) if part is ... else (part,) for part in subscript)
        return list(itertools.chain.from_iterable(parts))

    labels = []
    for i, (subscript, axes) in enumerate(zip(inputs, dimensions, strict=True)):
        named = len(subscript) - subscript.count(...)
        if axes < named or (axes > named and ... not in subscript):
            raise ValueError(
                f"einsum: {_shown(subscript)} names {named} axes, and operand {i} has {axes}"
            )
        labels.append(split(subscript, axes - named))
    every = list(itertools.chain.from_iterable(labels))
    order = {c: ord(c) if isinstance(c, str) else c for c in every}  # an ellipsis's are negative
    broadcast = sum(n < 0 for n in order.values())
    if output is None:
        once = [c for c, n in order.items() if n < 0 or every.count(c) == 1]
        return labels, sorted(once, key=order.__getitem__)
    wanted = split(output, broadcast)
    if len(set(wanted)) < len(wanted):
        raise ValueError(f"einsum: the result {_shown(output)} has an axis twice")
    if broadcast and ... not in output:
        raise ValueError(
            f"einsum: operands have axes under an ellipsis, and the result {_shown(output)} has "
            f"none: write {_shown([..., *output])} to keep them, or name them to sum over them"
        )
    return labels, wanted


def _shown(subscript: Subscript) -> str:
    """Axes as they were given: letters, or a list of numbers."""
    words = ["..." if part is ... else str(part) for part in subscript]
    numbers = any(isinstance(part, int) for part in subscript)
    return f"[{', '.join(words)}]" if numbers else repr("".join(words))


def _plain_terms(
    arrays: Sequence[Array], labels: Sequence[list[Label]]
) -> tuple[list[Term], dict[Label, int]]:
    """Operands in which each label appears once and has its full length, and these lengths."""
    terms: list[Term] = []
    for x, axes in zip(arrays, labels, strict=True):
        for label in dict.fromkeys(axes):
            if len({n for n, c in zip(x.shape, axes, strict=True) if c == label}) > 1:
                raise ValueError(
                    f"einsum: {label!r} is twice in an operand of shape {x.shape}, on axes of "
                    f"different lengths"
                )
            while axes.count(label) > 1:
                i = axes.index(label)
                j = axes.index(label, i + 1)
                x = x.diagonal(0, i, j)  # becomes the last axis
                axes = [*axes[:i], *axes[i + 1 : j], *axes[j + 1 :], label]
        terms.append((x, axes))
    sizes: dict[Label, int] = {}
    for x, axes in terms:
        for label, size in zip(axes, x.shape, strict=True):
            known = sizes.setdefault(label, size)
            if known == 1:
                sizes[label] = size
            elif size not in (1, known):
                what = _shown([... if label in range(-len(axes), 0) else label])
                raise ValueError(
                    f"einsum: axis {what} has length {known} in one operand and {size} in another"
                )
    for i, (x, axes) in enumerate(terms):  # drop broadcast axes
        short = [j for j, c in enumerate(axes) if x.shape[j] != sizes[c]]
        if short:
            terms[i] = x.squeeze(tuple(short)), [c for j, c in enumerate(axes) if j not in short]
    return terms, sizes


# --- the sum --------------------------------------------------------------------------------------


def contracted(
    steps: Steps, s: Semiring, arrays: Sequence[Array], inputs: Sequence[Subscript],
    output: Subscript | None, optimize: Any, check: Callable[[tuple[int, ...]], None] | None = None,
) -> Array:  # fmt: skip
    """The sum of arrays of one dtype, whose labels are :func:`parsed`.

    `check` looks at the shape of the result before the work.
    """
    labels, wanted = _labels(inputs, output, [x.ndim for x in arrays])
    terms, sizes = _plain_terms(arrays, labels)
    missing = [c for c in wanted if c not in sizes]
    if missing:
        raise ValueError(f"einsum: the result has {missing[0]!r}, which no operand has")
    if check is not None:
        check(tuple(sizes[c] for c in wanted))
    counts: dict[Label, int] = {}
    for _, axes in terms:
        for c in axes:
            counts[c] = counts.get(c, 0) + 1
    single = any(n == 1 and c not in wanted for c, n in counts.items())
    if len(terms) > 2 or (len(terms) == 2 and single):
        steps.need_laws(s, terms[0][0])
    for pair in _path(steps, s, terms, wanted, sizes, optimize):
        first, *others = [terms[i] for i in sorted(pair)]
        terms = [term for i, term in enumerate(terms) if i not in pair]
        for i, other in enumerate(others, 1):
            rest = (axes for _, axes in (*terms, *others[i:]))
            keep = {*wanted, *itertools.chain.from_iterable(rest)}
            first = _join(steps, s, first, other, keep)
        terms = [*terms, first] if steps.commutes(s) else [first, *terms]
    x, axes = _reduced(steps, s, *terms[0], set(wanted))
    return steps.transposed(x, [axes.index(c) for c in wanted])


def _path(
    steps: Steps,
    s: Semiring,
    terms: list[Term],
    wanted: list[Label],
    sizes: dict[Label, int],
    optimize: Any,
) -> Sequence[tuple[int, ...]]:
    """Return the operands to contract at each step; each result is appended to the rest."""
    if len(terms) < 3:
        return [(0, 1)] * (len(terms) - 1)
    if not steps.commutes(s):
        if not isinstance(optimize, bool):
            raise ValueError(
                f"einsum: ⊗ = {s.mul} of {s.name} is not known to be commutative, so operands are "
                f"joined from left to right: leave optimize out"
            )
        return [(0, 1)] * (len(terms) - 1)
    if optimize is False:
        return [(0, 1)] + [(0, n) for n in range(len(terms) - 2, 0, -1)]
    letters = {c: chr(0x4E00 + i) for i, c in enumerate(sizes)}
    texts = ["".join(letters[c] for c in axes) for axes in (*(t[1] for t in terms), wanted)]
    subscripts, shapes = f"{','.join(texts[:-1])}->{texts[-1]}", tuple(x.shape for x, _ in terms)
    found: Sequence[tuple[int, ...]] = steps.path(
        subscripts, shapes, "auto" if optimize is True else optimize
    )
    return found


def found_path(
    subscripts: str, shapes: tuple[tuple[int, ...], ...], optimize: Any
) -> Sequence[tuple[int, ...]]:
    """The path of opt_einsum, which is kept where its name says how it is found."""
    find = _found_path if isinstance(optimize, str) else _found_path.__wrapped__
    result: Sequence[tuple[int, ...]] = find(subscripts, shapes, optimize)
    return result


@functools.lru_cache(maxsize=1024)
def _found_path(
    subscripts: str, shapes: tuple[tuple[int, ...], ...], optimize: Any
) -> Sequence[tuple[int, ...]]:
    opt_einsum = optional(
        "opt_einsum", "einsum of three or more operands asks opt_einsum for their order", "einsum",
        ", or pass optimize=False to go from left to right",
    )  # fmt: skip
    path, _ = opt_einsum.contract_path(subscripts, *shapes, shapes=True, optimize=optimize)
    return list(path)


@functools.lru_cache(maxsize=256)
def commutes(s: Semiring) -> bool:
    """Whether ⊗ is the same expression with its operands exchanged."""

    def sides(expr: Expr, names: dict[str, str]) -> tuple[Any, ...]:
        args = [sides(arg, names) for arg in expr.args]
        if expr.op in ("+", "*", "min", "max", "&", "|", "^", "==", "!=", "logaddexp"):
            args.sort(key=repr)
        return names.get(expr.op, expr.op), expr.value, *args

    return sides(s.mul_expr, {}) == sides(s.mul_expr, {"a": "b", "b": "a"})


@functools.lru_cache(maxsize=256)
def need_laws(s: Semiring, dtype: np.dtype[Any]) -> None:
    try:
        check_laws(s, dtype, s.domain, None, only=("⊗ is associative", "⊗ distributes"))
    except SemiringLawError as error:
        raise ValueError(
            f"einsum: {error}. Such a sum is defined over a semiring only; over {s.name} take two "
            f"operands, and sum over indices that both have"
        ) from error


def _join(steps: Steps, s: Semiring, x: Term, y: Term, keep: Collection[Label]) -> Term:
    """The product of two operands, summed over all labels but those to keep."""
    a, left = _reduced(steps, s, *x, {*keep, *y[1]})
    b, right = _reduced(steps, s, *y, {*keep, *x[1]})
    batch = [c for c in left if c in right and c in keep]
    inner = [c for c in left if c in right and c not in keep]
    rows = [c for c in left if c not in right]
    columns = [c for c in right if c not in left]
    a = steps.transposed(a, [left.index(c) for c in (*batch, *rows, *inner)])
    b = steps.transposed(b, [right.index(c) for c in (*batch, *inner, *columns)])
    outer, split = a.shape[: len(batch)], len(batch) + len(rows)
    shape = (*a.shape[:split], *b.shape[len(batch) + len(inner) :])
    if batch and inner and not rows and not columns and steps.one_by_one(a):
        return _reduced(steps, s, steps.each(s, a, b), [*batch, *inner], keep)
    if batch and not inner:
        a = a.reshape(*a.shape, *[1] * len(columns))
        b = b.reshape(*outer, *[1] * len(rows), *b.shape[len(batch) :])
        c = steps.each(s, a, b)
    else:
        k = math.prod(a.shape[split:])
        a = a.reshape(*outer, math.prod(a.shape[len(batch) : split]), k)
        b = b.reshape(*outer, k, math.prod(b.shape[len(batch) + len(inner) :]))
        c = steps.product(s, a, b)
    return c.reshape(shape), [*batch, *rows, *columns]


def _reduced(
    steps: Steps, s: Semiring, x: Array, labels: list[Label], keep: Collection[Label]
) -> Term:
    """An operand, summed by ⊕ over all labels but those to keep."""
    kept, gone = [c for c in labels if c in keep], [c for c in labels if c not in keep]
    if not gone:
        return x, labels
    x = steps.transposed(x, [labels.index(c) for c in (*kept, *gone)])
    shape, k = x.shape[: len(kept)], math.prod(x.shape[len(kept) :])
    if k != 1:
        x = steps.total(s, x.reshape(*shape, k))
    return x.reshape(shape), kept


@functools.lru_cache(maxsize=256)
def sum_of(s: Semiring) -> Semiring:
    """Return the semiring with ⊗ = its left operand, so that A ⊗ x sums the rows of A by ⊕.

    Exact, and checked in integers, as every product is. With `one` for x it would need ``one`` to
    be neutral on all values, as it is not in any_pair.
    """
    mul = "min(a, a)" if s.order_only else "a"  # also order-only: same plan
    return Semiring(s.name, s.add, mul, s.zero, s.one, s.domain)


def _elementwise(engine: Engine, s: Semiring, a: Array, b: Array) -> Array:
    """A ⊗ B entry by entry, exact or an error as a product is."""
    dtype, xp = a.dtype, engine.xp
    if a.size == 0 or b.size == 0:
        return xp.empty(np.broadcast_shapes(a.shape, b.shape), dtype)
    plan = make_plan(s, dtype, engine.facts(s, a), engine.facts(s, b), 1)
    if dtype.kind == "b":
        return evaluate(plan.mul, a, b)
    compute = plan.computed_in
    c = evaluate(s.mul_expr, a.astype(compute, copy=False), b.astype(compute, copy=False))
    if dtype.kind in "iu":
        info = np.iinfo(dtype)
        wrong: Any = False
        if plan.check:
            wrong = (c < info.min + (s.zero == -math.inf)) | (c > info.max - (s.zero == math.inf))
        if plan.missing is not None:
            missing = (a == plan.missing) | (b == plan.missing)
            c, wrong = xp.where(missing, compute.type(plan.missing), c), wrong & ~missing
        if plan.check and bool(wrong.any()):
            raise overflow(s, dtype)
    return c.astype(dtype, copy=False)
