"""The class Semiring (two expressions, two identities) and the table of built-in semirings."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from . import expressions as ex
from . import laws
from .lazy import cached_property

__all__ = ["Semiring", "as_semiring", "row_of", "semiring_of", "semirings"]


@dataclass(frozen=True, repr=False)
class Semiring:
    """A semiring (⊕, ⊗, zero, one), written as one row.

    Parameters
    ----------
    name : str
        A name in GraphBLAS style, ⊕ first: ``"min_plus"``.
    add : str
        ⊕ as an expression in ``a`` and ``b``: ``"min(a, b)"``. It must be associative and
        commutative; a product may add up in any order.
    mul : str
        ⊗ as an expression in ``a`` (the left operand) and ``b`` (the right one).
    zero : float
        Identity of ⊕ and annihilator of ⊗: "no edge". The product over an empty k.
    one : float
        Identity of ⊗: "the empty path".
    domain : {"any", "nonnegative", "positive", "binary"}
        The numbers on which the laws hold. Operands are not checked against it.
    use : str
        What it is good for, in a few words.

    Notes
    -----
    Expressions may use the names ``a`` and ``b``, numbers, ``inf``, ``+ - * / // % & | ^ ~``,
    comparisons, ``x if c else y``, and ``min max abs exp log log1p expm1 sqrt logaddexp``. They are
    parsed and checked, never evaluated as Python. Built-in and user-defined semirings take the
    same path through the compiler. ``a if a < b else b`` is read as ``min(a, b)``, which keeps
    NaN. An `alpha` equal to `one` is left out, so `one` must be neutral from the left too.

    Floats are computed with operation by operation, but where ⊕ is ``a + b``: there the product of
    ⊗ = ``x * y`` is not rounded before it is added up, nor that of ⊗ = ``x * y + z`` before z is
    added (one fused multiply-add). Of two products, as in ``a * a - b * b``, both are rounded.

    Infinite constants stand for themselves in floating point; an integer dtype has
    ``iinfo.max`` for +inf and ``iinfo.min`` for -inf (see :meth:`Semiring.identities`).

    Examples
    --------
    >>> import numpy as np
    >>> import semiring_mm as sm
    >>> chebyshev = sm.Semiring("min_maxabs", "min(a, b)", "max(abs(a), abs(b))", np.inf, 0)
    >>> sm.matmul(np.array([[1.0, -4.0]]), np.array([[3.0], [2.0]]), semiring=chebyshev)
    array([[3.]])
    """

    __module__ = "semiring_mm"  # where users import it from

    name: str
    add: str
    mul: str
    zero: float
    one: float
    domain: str = "any"
    use: str = ""

    def __post_init__(self) -> None:
        if not str(self.name).isidentifier() or type(self.name) is not str:
            raise ValueError(
                f"a semiring's name is an identifier such as 'min_plus', got {self.name!r}"
            )
        for what in ("add", "mul"):
            ex.parse(getattr(self, what))
        for what in ("zero", "one"):
            value: Any = getattr(self, what)
            if not isinstance(value, (int, float, np.integer, np.floating)):
                raise TypeError(f"{self.name}.{what} must be a real number, got {value!r}")
            try:
                number = float(value)
            except OverflowError:
                raise ValueError(f"{self.name}.{what} is larger than float64 holds") from None
            if math.isnan(number):
                raise ValueError(f"{self.name}.{what} must be a number, got nan")
            object.__setattr__(self, what, value.item() if hasattr(value, "item") else value)
        if self.domain not in ("any", "nonnegative", "positive", "binary"):
            raise ValueError(
                f"{self.name}.domain is 'any', 'nonnegative', 'positive' or 'binary', "
                f"got {self.domain!r}"
            )

        fields = (self.name, self.add, self.mul, self.zero, self.one, self.domain)
        object.__setattr__(self, "_hash", hash(fields))  # looked up at each product

    def __hash__(self) -> int:
        return self._hash  # type: ignore[attr-defined, no-any-return]

    def __repr__(self) -> str:
        parts = [f"{self.name!r}, add={self.add!r}, mul={self.mul!r}"]
        parts.append(f"zero={self.zero!r}, one={self.one!r}")
        for field, default in (("domain", "any"), ("use", "")):
            if (value := getattr(self, field)) != default:
                parts.append(f"{field}={value!r}")
        return f"Semiring({', '.join(parts)})"

    def _repr_html_(self) -> str:
        """Return its row of the table, for notebooks."""
        return _html_table([_HEAD, _row(self)])

    @cached_property
    def add_expr(self) -> ex.Expr:
        return ex.parse(self.add)

    @cached_property
    def mul_expr(self) -> ex.Expr:
        return ex.parse(self.mul)

    @cached_property
    def add_kind(self) -> str:
        """``"min"``, ``"max"``, ``"+"``, ``"|"``, ``"&"``, ``"^"``, or ``""`` for any other ⊕."""
        kind = ex.joins(self.add_expr)
        return kind if kind in _FOLDS else ""

    @cached_property
    def mul_kind(self) -> str:
        """The operation that ⊗ is, as :attr:`add_kind`; also ``"*"``."""
        return ex.joins(self.mul_expr)

    @cached_property
    def selective(self) -> bool:
        """Whether a ⊕ b is always a or b, so that one k attains a product's entry."""
        return self.add_kind in ("min", "max")

    @cached_property
    def idempotent(self) -> bool:
        """Whether a ⊕ a = a: what closures need."""
        if self.add_kind:
            return self.add_kind in ("min", "max", "|", "&")
        samples = np.array([0.0, 0.25, 0.5, 1.0, 2.0, 3.5])
        try:
            return bool(np.all(ex.evaluate(self.add_expr, samples, samples) == samples))
        except TypeError:  # a bitwise ⊕ that is no plain operation has no float form: integers
            whole = np.arange(8)
            return bool(np.all(ex.evaluate(self.add_expr, whole, whole) == whole))

    @cached_property
    def commutes(self) -> bool:
        """Whether ⊗ is known to be commutative."""
        return bool(self.mul_kind)

    @cached_property
    def bitwise(self) -> bool:
        """Whether ⊕ works on bits, of truth values or of integers."""
        return not {"|", "^"}.isdisjoint(self.add_expr.ops())

    @cached_property
    def order_only(self) -> bool:
        """Whether both operations only compare: any order-preserving code of the values serves."""
        return {self.add_expr.op, self.mul_expr.op} <= {"min", "max"} and (
            (self.add_expr.ops() | self.mul_expr.ops()) <= {"min", "max", "a", "b"}
        )

    def identities(self, dtype: Any) -> tuple[Any, Any]:
        """``(zero, one)`` as scalars of `dtype`.

        Floating-point dtypes hold ±inf. In an integer dtype +inf is ``iinfo.max`` and -inf is
        ``iinfo.min``; a value between them is never confused with either, because products that
        would reach them are computed in a wider type and refused if they do not fit. In bool, +inf
        is True and -inf is False.

        Parameters
        ----------
        dtype : dtype
            Of the arrays in which the two would stand.

        Returns
        -------
        tuple of two scalars
            zero and one, of that dtype.

        Raises
        ------
        TypeError
            If the dtype cannot hold them: -inf in an unsigned dtype under an arithmetic ⊗, a
            fraction in an integer dtype, anything in a complex dtype.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> sm.semirings["min_plus"].identities("int32")
        (np.int32(2147483647), np.int32(0))
        """
        return self._identities(np.dtype(dtype))

    @lru_cache(maxsize=256)  # noqa: B019  (semirings are few, and small)
    def _identities(self, dtype: np.dtype[Any]) -> tuple[Any, Any]:
        return self._constant("zero", dtype), self._constant("one", dtype)

    def _constant(self, which: str, dtype: np.dtype[Any]) -> Any:
        value: float = getattr(self, which)
        if dtype.kind == "b":
            if value in (0, -math.inf):
                return np.False_
            if value in (1, math.inf):
                return np.True_
        elif dtype.kind in "iu":
            info = np.iinfo(dtype)
            if value == math.inf:
                return dtype.type(info.max)
            if value == -math.inf:
                if dtype.kind == "i" or self.order_only:
                    return dtype.type(info.min)
                raise TypeError(
                    f"{self.name} needs -inf for its {which}, which {dtype} cannot stand for: "
                    f"use a signed integer or a floating-point dtype"
                )
            if value == int(value) and info.min <= value <= info.max:
                return dtype.type(int(value))
        elif dtype.kind == "f" or dtype.name == "bfloat16":
            with np.errstate(over="ignore"):
                stored = dtype.type(value)
            if math.isinf(stored) == math.isinf(value):
                return stored
        raise TypeError(
            f"{self.name} has {which} = {value:g}, which dtype {dtype} cannot hold: use float32 or "
            f"float64"
        )

    def check_laws(
        self,
        dtype: Any = np.float64,
        *,
        domain: str | None = None,
        samples: Iterable[float] | None = None,
    ) -> None:
        """Test the semiring laws on samples; raise at the first that fails.

        Associativity and commutativity of ⊕, associativity of ⊗, both identities, annihilation by
        zero, and distributivity on both sides, over all triples of the samples.

        Parameters
        ----------
        dtype : dtype, default float64
            Arithmetic to test in.
        domain : {"any", "nonnegative", "positive", "binary"}, optional
            Where the samples are taken from; default the semiring's own.
        samples : iterable of float, optional
            Your own samples instead; zero and one are added.

        Raises
        ------
        semiring_mm.SemiringLawError
            Names the law and gives the counter-example.

        Examples
        --------
        >>> import semiring_mm as sm
        >>> sm.semirings["max_min"].check_laws("int16")
        """
        laws.check_laws(self, dtype, domain or self.domain, samples)


#: The kinds of ⊕ (see :attr:`Semiring.add_kind`): single operations that need no expression.
_FOLDS = ("min", "max", "+", "|", "&", "^")


def fold_start(semiring: Semiring) -> float:
    """Return the value that a product's accumulators start from.

    The identity of ⊕ over all numbers, which is not always ``zero``: max_times has zero = 0,
    but the largest of negative products must still come out negative.
    """
    starts = {"min": math.inf, "max": -math.inf, "+": 0.0, "|": 0.0, "^": 0.0}
    return starts.get(semiring.add_kind, semiring.zero)


class Semirings(Mapping[str, Semiring]):
    """The built-in semirings by name; prints as a table.

    ``semirings["min_plus"]`` and ``semirings.min_plus`` are the same. A name may be written in
    capitals and with other separators (``"MIN-PLUS"``), and the words in the column "also" stand
    for it (``"tropical"``). Iteration has each semiring once, under its GraphBLAS name.

    Examples
    --------
    >>> import semiring_mm as sm
    >>> sm.semirings["min_plus"].mul
    'a + b'
    >>> sm.semirings["widest"].name
    'max_min'
    """

    def __init__(self, rows: Iterable[Semiring], words: Mapping[str, str]) -> None:
        self._rows = {row.name: row for row in rows}
        self._words = dict(words)
        self._spelled = {_key(name): name for name in (*self._rows, *self._words)}

    def __getitem__(self, name: str) -> Semiring:
        row = self._rows.get(name)  # the usual case, looked up at each product
        if row is None:
            known = self._spelled.get(_key(str(name)))
            if known is None:
                raise KeyError(self._unknown(name))
            row = self._rows[self._words.get(known, known)]
        return row

    def __getattr__(self, name: str) -> Semiring:
        if not name.startswith("_"):
            try:
                return self[name]
            except KeyError as error:
                raise AttributeError(error.args[0], name=name, obj=self) from None
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __iter__(self) -> Iterator[str]:
        return iter(self._rows)

    def __len__(self) -> int:
        return len(self._rows)

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self._rows, *self._words]

    def _ipython_key_completions_(self) -> list[str]:
        return [*self._rows, *self._words]

    def _unknown(self, name: object) -> str:
        """Return the message for a name that stands for no semiring."""
        import difflib  # imported lazily: for messages only

        close = difflib.get_close_matches(_key(str(name)), self._spelled, n=2)
        guess = " or ".join(repr(self._spelled[key]) for key in close)
        advice = (
            f"did you mean {guess}? All are in semiring_mm.semirings"
            if guess
            else f"choose one of {', '.join(self)}, or pass a semiring_mm.Semiring"
        )
        return f"there is no built-in semiring {name!r:.60}: {advice}"

    def _cells(self) -> list[tuple[str, ...]]:
        words = [
            ", ".join(word for word, name in self._words.items() if name == row) for row in self
        ]
        rows = map(_row, self._rows.values())
        return [
            (*cells[:-1], also, cells[-1])
            for cells, also in zip((_HEAD, *rows), ("also", *words), strict=True)
        ]

    def __repr__(self) -> str:
        head, *rows = self._cells()
        # In ASCII: a terminal that cannot show ⊕ and ⊗ shows the table all the same.
        cells = [(head[0], "add", "mul", *head[3:]), *rows]
        widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
        lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) for row in cells]
        return "\n".join(line.rstrip() for line in lines)

    def _repr_html_(self) -> str:
        """Return the table for notebooks."""
        return _html_table(self._cells())

    def _repr_markdown_(self) -> str:
        """Return the table in Markdown, for docs/semirings.md."""
        head, *rows = self._cells()
        lines = [head, ("---",) * len(head)]
        for row in rows:
            code = (f"`{cell}`".replace("|", "\\|") for cell in row[:3])
            lines.append((*code, *row[3:]))
        return "\n".join(f"| {' | '.join(line)} |" for line in lines)


_HEAD = ("name", "⊕", "⊗", "zero", "one", "on", "good for")


def _row(s: Semiring) -> tuple[str, ...]:
    return s.name, s.add, s.mul, f"{s.zero:g}", f"{s.one:g}", s.domain, s.use


def _html_table(cells: Iterable[tuple[str, ...]]) -> str:
    from .display import html_table  # imported lazily: for notebooks only

    head, *rows = cells
    return html_table("", head, rows, ["<td><code>{}</code></td>"] * 3)


def _key(name: str) -> str:
    """What is left of a name without case and separators: "minplus" of "MIN-PLUS"."""
    return "".join(c for c in name.casefold() if c.isalnum())


_INF = math.inf

semirings = Semirings(
    [
        Semiring("plus_times", "a + b", "a * b", 0, 1, "any", "linear algebra, counting paths"),
        Semiring("min_plus", "min(a, b)", "a + b", _INF, 0, "any", "shortest paths"),
        Semiring(
            "max_plus", "max(a, b)", "a + b", -_INF, 0, "any",
            "critical paths, Viterbi on log-probabilities",
        ),
        Semiring(
            "min_times", "min(a, b)", "a * b", _INF, 1, "positive", "least product of factors"
        ),
        Semiring(
            "max_times", "max(a, b)", "a * b", 0, 1, "nonnegative",
            "most reliable paths, Viterbi on probabilities",
        ),
        Semiring("min_max", "min(a, b)", "max(a, b)", _INF, -_INF, "any", "minimax paths"),
        Semiring("max_min", "max(a, b)", "min(a, b)", -_INF, _INF, "any", "widest paths"),
        Semiring("lor_land", "a | b", "a & b", 0, 1, "binary", "reachability"),
        Semiring("xor_land", "a ^ b", "a & b", 0, 1, "binary", "linear algebra over GF(2)"),
        Semiring(
            "any_pair", "max(a, b)", "(a != 0) & (b != 0)", 0, 1, "binary",
            "whether any path of two edges exists, in any dtype",
        ),
        Semiring(
            "plus_min", "a + b", "min(a, b)", 0, _INF, "nonnegative",
            "overlap of histograms (not distributive: products only)",
        ),
        Semiring(
            "log_plus", "logaddexp(a, b)", "a + b", -_INF, 0, "any",
            "sums of probabilities given as logarithms",
        ),
    ],
    {
        "counting": "plus_times", "shortest": "min_plus", "tropical": "min_plus",
        "longest": "max_plus", "critical": "max_plus", "reliable": "max_times",
        "viterbi": "max_times", "minimax": "min_max", "widest": "max_min", "bottleneck": "max_min",
        "reachability": "lor_land", "boolean": "lor_land", "gf2": "xor_land", "log": "log_plus",
    },
)  # fmt: skip


def as_semiring(semiring: str | Semiring) -> Semiring:
    """Look a semiring up by a name or word for it; a :class:`Semiring` passes through."""
    if isinstance(semiring, Semiring):
        return semiring
    if isinstance(semiring, str):
        try:
            return semirings[semiring]
        except KeyError as error:
            raise ValueError(error.args[0]) from None
    raise TypeError(
        f"semiring must be a name such as 'min_plus' or a semiring_mm.Semiring, got "
        f"{type(semiring).__name__}"
    )


def row_of(semiring: str | Semiring) -> str:
    """A semiring as text, as operators of other libraries take it; a name is one already."""
    if isinstance(semiring, str):
        return semiring
    s = as_semiring(semiring)
    return f"{s.name}; {s.add}; {s.mul}; {s.zero!r}; {s.one!r}; {s.domain}; {s.use}"


@lru_cache(maxsize=256)
def semiring_of(row: str) -> Semiring:
    """The semiring of a text by :func:`row_of`."""
    if ";" not in row:
        return as_semiring(row)
    name, add, mul, zero, one, domain, use = row.split("; ", 6)
    s = Semiring(name, add, mul, float(zero), float(one), domain, use)
    return semirings[name] if semirings.get(name) == s else s
