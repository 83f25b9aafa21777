"""What an engine offers: the contract between the algorithms and the modules that compute.

An engine is a module (:mod:`semiring_mm.cpu.engine`, :mod:`semiring_mm.gpu.engine`) that has the
members of :class:`Engine`. Its verbs take checked arrays of its own namespace ``xp`` and write to
arrays that the caller has made; every check of a user's arguments is above. A verb that is reached
by an engine's name compares its arrays with the layouts that stand in its signature here
(:mod:`semiring_mm.layouts` has their grammar). The type checker holds both engines to the protocol,
and a test runs the algorithms on a third one, in NumPy.

Only this module knows which engines there are: all others ask :func:`named` or :func:`of` where
they call, never when they are imported.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, ExitStack
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from . import naming
from .expressions import Expr
from .graph_kernels import (
    Customizer,
    FactorRows,
    FactorSweeps,
    HopDependencies,
    HopSearches,
    ReverseSweeps,
)
from .kernel import Kernel
from .layouts import asserted
from .lazy import cached_property
from .plan import ALPHA, BETA, READ_C, Facts, Plan
from .semirings import Semiring

__all__ = [
    "JOIN", "PLAIN", "AlignmentRule", "BitRows", "Calls", "ChainModel", "Chains", "CloseStep",
    "CloseSteps", "Engine", "Forest", "Known", "Lines", "Ragged", "Scalar", "Scaling", "Screen",
    "Select", "Sieve", "compiled", "declared", "host_rows", "lazily", "loaded", "named", "of",
    "register", "registered", "why_not",
]  # fmt: skip

Array = Any  # of the engine's namespace
Result = TypeVar("Result")
Scalar = float | int | None
Known = tuple[Facts, Facts, Facts]  # ranges of A, B and C
Lines = tuple[int, int]  # of a matrix: the first, and the end
Final = tuple[Expr, float]  # in `a`, which is a result, and `b`, this number

#: Layouts that several verbs have; of chains those of a step, a vector and lengths.
NODES = "whole(i32[count]) < n"
MATRICES = "T[batch, max(steps - 1, 0), n, n]"
EMISSIONS = "rows(T[batch, steps, n]) if symbols is None else whole(T[letters, n])"
VECTORS = "rows(T[batch, n])"
LENGTHS = "rows(i64[batch]) <= steps"
SYMBOLS = "whole(i64[batch, steps]) < letters"


class Scaling(NamedTuple):
    """How a product joins what C holds: C ← ((α ⊗ A) ⊗ B) ⊕ (β ⊗ C)."""

    accumulate: bool = False  # whether C is read and joined; else it is overwritten
    alpha: Scalar = None  # scales the entries of A; None scales nothing
    beta: Scalar = None  # and those of C

    @property
    def mode(self) -> int:
        """The bits READ_C, ALPHA and BETA of a kernel's mode."""
        return (
            READ_C * self.accumulate
            | ALPHA * (self.alpha is not None)
            | BETA * (self.beta is not None)
        )


PLAIN = Scaling()  # C ← A ⊗ B
JOIN = Scaling(accumulate=True)  # C ← (A ⊗ B) ⊕ C


class Forest(NamedTuple):
    """Rooted trees, by the places of their nodes in a preorder; arrays of NumPy."""

    order: whole(i32[n]) < n  # the node at each place
    up: -1 <= whole(i32[n]) < n  # the place of its parent; -1: it is a root
    last: whole(i32[n]) <= n  # the first place behind its subtree


class Trees(Protocol):
    """What an engine may offer for predecessors."""

    def predecessors(
        self, semiring: Semiring, weights: T[[batch], n, n], closed: T[[batch], n, n],
        p: i32[[batch], n, n], known: Known | None,
    ) -> Array:  # fmt: skip
        """Predecessors P in a matrix, or each of a stack, from its closure.

        P[i, j] becomes the node before j on a best path from i, -9999 if there is none and on the
        diagonal.

        Returns
        -------
        open : array of uint8, shape (..., n)
            0 for the rows that are known to be trees.
        """

    def splits(self, semiring: Semiring, dtype: np.dtype[Any], n: int) -> bool:
        """Whether ``closure_batch`` of n rows gives predecessors soon, whatever edges are tight."""


class AlignmentRule(NamedTuple):
    """What a cell of an alignment's table is made of; costs are minimised."""

    dtype: str  # of costs: "f4" or "f8"
    # Of two entries: their distance, "absolute" or "squared", summed over features; "equal":
    # ``gaps[2]`` for equal codes and ``gaps[3]`` for others; or an entry of a "table".
    cost: str
    # A step along one sequence costs what a step along both does, else a gap: ``gaps[1]`` each and
    # ``gaps[0]`` to open one.
    warp: bool = False
    affine: bool = False  # whether gaps cost to open
    # Whether an alignment may begin and end anywhere, so that no cell is above 0 and the least one
    # counts.
    local: bool = False
    # What of a sequence is left out without a cost: 1 the start of the first one, 2 its end, 4 and
    # 8 those of the second. The least cell of the last column, or row, counts then.
    ends: int = 0


class CloseStep(NamedTuple):
    """A step of a closure of one matrix D in place; lines are (first, end)."""

    # "product": D[rows, columns] ← D[rows, columns] ⊕ D[rows, inner] ⊗ D[inner, columns]; or of a
    # block on the diagonal, whose lines all three are, "close": its closure, "mirror": copy what is
    # above the diagonal below it, "look": see that the diagonal is one.
    kind: str
    rows: Lines
    inner: Lines
    columns: Lines
    # Only blocks on and above the diagonal of D are kept, the others are their transposes. The
    # product computes the blocks with entries on or above the diagonal.
    triangle: bool = False

    @property
    def overlap(self) -> str:
        """The operand of a product that it overwrites."""
        return {self.rows: "b", self.columns: "a"}.get(self.inner, "")

    @property
    def turned(self) -> str:
        """The operand of a product that is kept as its transpose."""
        if not self.triangle:
            return ""
        return "a" if self.rows > self.inner else "b"

    @property
    def pairs(self) -> float:
        """Pairs (⊕, ⊗) of the step."""
        if self.kind not in ("product", "close"):
            return 0.0
        m, k, n = (float(end - first) for first, end in (self.rows, self.inner, self.columns))
        return m * k * n / (1 + self.triangle)


@dataclass(frozen=True, eq=False)  # so that what is made of it is found by identity
class CloseSteps:
    """All steps of a closure, and their pairs."""

    steps: tuple[CloseStep, ...]

    @cached_property
    def pairs(self) -> float:
        """Pairs (⊕, ⊗) of all steps."""
        return sum(step.pairs for step in self.steps)


class Ragged(NamedTuple):
    """Sequences of any lengths, as parts of one array of an engine."""

    # points of a rule's dtype, or codes, which are rows of the ``table`` where one is given
    entries: whole(F[:, features]) | whole(i32[:]) if table is None else whole(i32[:]) < len(table)
    # The first entry of each sequence, and how many it has; of NumPy, or, for sequences of codes,
    # of the engine's library.
    starts: whole(i64[count]) <= len(entries)
    lengths: whole(i64[count]) <= len(entries) - starts
    longest: int  # no sequence has more entries
    even: bool = False  # all have so many


class Chains(Protocol):
    """What an engine may offer for chains: many small products, one after the other, in one call.

    Chain b has ``lengths[b]`` steps; `lengths` are of NumPy, those of best paths and probabilities
    also in the engine's memory. A stride of 0 repeats matrices for all steps, or chains.

    Attributes
    ----------
    POINTERS : tuple of str
        Arrays of a :class:`ChainModel`.
    Model : callable, optional
        ``Model(dtype, batch, steps, states, strides)``, the launches for models of one shape in
        float32 or float64; strides, by name, are in elements: a_row, a_col, e_batch, e_step, and
        where there are such operands x_batch, end_batch and tags_batch. NotImplementedError where
        one launch is not the best, for few long chains. None on an engine that launches nothing.
    """

    POINTERS: tuple[str, ...]

    @property
    def Model(
        self,
    ) -> Callable[[np.dtype[Any], int, int, int, dict[str, int]], ChainModel] | None: ...

    def carry(
        self, semiring: Semiring, a: T[batch, steps, n, n], e: rows(T[batch, steps, n]) | None,
        x: rows(T[batch, rows, n]) | None, y: rows(T[batch, steps if every else 1, rows, n]),
        lengths: LENGTHS, *, every: bool, reverse: bool, exclusive: bool,
    ) -> None:  # fmt: skip
        """y ← x ⊗ A₁ ⊗ diag(e₁) ⊗ A₂ ⊗ diag(e₂) ⊗ …, from left to right.

        Parameters
        ----------
        e : array, optional
            Emissions: the columns of a step's matrix are multiplied by them.
        x : array, optional
            The rows that are carried. Without it the first matrix is what is carried.
        y : array
            Receives the rows after each step with `every`, else those after the last.
        reverse : bool
            From right to left instead: A₁ ⊗ diag(e₁) ⊗ … ⊗ xᵀ, so that rows are columns of the
            products. With `every`, the product from step t on is at t.
        exclusive : bool
            One step less, and what is before each step instead: the first (reversed: the last) one
            is left to the caller.
        """

    def first(self, start: T[batch, n], e: T[batch, n]) -> Array:
        """The first row of a model, start + e, for the call alone."""

    def best_path(
        self, semiring: Semiring, a: MATRICES, e: EMISSIONS, x: VECTORS, end: VECTORS,
        path: whole(i32[batch, steps]), score: whole(T[batch]), lengths: LENGTHS, *,
        symbols: SYMBOLS | None = None,
    ) -> None:  # fmt: skip
        """The best sequence of states, and its score; ⊕ is min or max, arrays are of floats.

        Parameters
        ----------
        e : array
            Emissions; those of the first step are not read.
        x, end : array
            The first row, with its emissions, and what the last one is multiplied by.
        path, score : array
            Both are left as they are where a length is 0. Of equals the lowest state.
        symbols : array, optional
            `e` is then a table of which each step has the row ``e[symbols]``. Rows of steps after
            the end of a sequence may be read, too, so that all symbols are to be rows of the table.
        """

    def best_paths(
        self, semiring: Semiring, a: MATRICES, e: rows(T[batch, steps, n]), x: VECTORS,
        end: VECTORS, paths: rows(i32[batch, k, steps]), scores: T[batch, k], lengths: LENGTHS,
    ) -> None:  # fmt: skip
        """The k best sequences of states, best first, and their scores over max_plus.

        Arguments are as in :meth:`best_path`. Scores where fewer are possible, and their paths, are
        left as they are, or -inf.
        """

    def draw(
        self, a: MATRICES, e: rows(T[batch, steps, n]), x: VECTORS, end: VECTORS,
        uniforms: rows(U[samples, batch, steps]), paths: rows(i32[samples, batch, steps]),
        lengths: LENGTHS,
    ) -> None:  # fmt: skip
        """Sequences of states by their probabilities, over log_plus; see :meth:`best_path`."""

    def posterior(
        self, a: rows(T[batch, max(steps - 1, 0), n, n]), e: EMISSIONS, x: VECTORS, end: VECTORS,
        total: T[batch], out: whole(T[batch, steps, n]) | None,
        pairs: matrices(T[batch, :, n, n]) | None, lengths: LENGTHS, *,
        symbols: SYMBOLS | None = None,
    ) -> None:  # fmt: skip
        """Probabilities of the states at each step, and of pairs of states, over log_plus.

        Other arguments are as in :meth:`best_path`.

        Parameters
        ----------
        total : array
            Receives the logarithm of the sum over all sequences; an empty chain is left as it is.
        out : array, optional
            Up to each chain's length; NaN where the total is infinite or NaN.
        pairs : array, optional
            They are added to it: for each of steps - 1 steps, or to one matrix for each chain.
        """


class Calls(Protocol):
    """Prepared calls: one look-up from operands to what was compiled or launched for such ones.

    A call is known by its head, a tuple of the verb and all its arguments that are no arrays, and
    by dtypes, shapes, strides and the like of its operands.
    """

    def repeat(
        self, head: tuple[Any, ...], operands: tuple[Any, ...], out: Any = None, dtype: str = ""
    ) -> Any:
        """The result of a call that was prepared, or None where the general way is to be taken.

        Parameters
        ----------
        head : tuple
        operands : tuple
            As the user gave them, of a library that the engine shares memory with. With three of
            them, the last is joined to the product, and may be `out` itself; not where `head`
            begins with "sparse".
        out : array, optional
        dtype : str, optional
            That of all operands, where the verb accepts no other.
        """

    def prepared(
        self, head: tuple[Any, ...], semiring: Semiring, a: Array, b: Array, out: Any = None,
        scaling: Scaling = PLAIN, final: Expr | None = None,
    ) -> Any:  # fmt: skip
        """:meth:`repeat` of A ⊗ B, which is prepared if that takes its layout alone.

        `a` and `b` have one dtype, which the semiring has a meaning in. None where `out` is joined:
        then later calls alone are repeated. `final` is a function of the entries alone, as of
        :meth:`Engine.product`.
        """

    def recorded(self) -> AbstractContextManager[list[Any] | None]:
        """What is launched inside, for :meth:`learn`; None where nothing is learned from it."""

    def learn(
        self, notes: Sequence[Any], head: tuple[Any, ...], operands: Sequence[Any], out: Any,
        given: Any, arrays: Sequence[Array], result: Array,
        holds: Sequence[Callable[[Any], bool]] = (),
    ) -> None:  # fmt: skip
        """Prepare a call that was recorded, if it can be repeated.

        Parameters
        ----------
        notes : sequence
            What was recorded of it.
        head, operands, out
            As of :meth:`repeat`.
        given : array, or several
            What the call returned.
        arrays, result : arrays
            Operands and the result, or several, as the engine had them.
        holds : sequence of callables
            Of a call that has read what the device found (facts of its operand, small arrays):
            for each time, whether with something else it is the same call. No other one that reads
            is prepared.
        """


class ChainModel(Protocol):
    """Launches for models of one shape, from the addresses of a user's arrays.

    All steps share one matrix; results are contiguous.
    """

    wide: bool  # whether there are so many states that the verbs of :class:`Chains` are to be taken

    def launch(
        self, stream: int, addresses: Sequence[int], wanted: int | None, tagged: bool = False
    ) -> None:
        """Launch posterior probabilities, or the best path if nothing is wanted of the former.

        Parameters
        ----------
        stream : int
        addresses : sequence of int
            Of the arrays of :attr:`Chains.POINTERS`; 0 for none.
        wanted : int, optional
            The total (0), also probabilities of the states (1) and of pairs of states (2).
        tagged : bool
            Less the scores of tags.
        """

    def gradients(self, stream: int, addresses: Sequence[int], step: int) -> None:
        """Launch the gradients of totals, on what the launch before computed.

        Parameters
        ----------
        stream : int
        addresses : sequence of int
            Of the gradients of totals, what they are to be multiplied by, of states and of pairs of
            states, and both results; 0 where pairs are not wanted.
        step : int
            Elements from one gradient of a total to the next.
        """


class Select(Protocol):
    """The k least of each row of a matrix that comes tile by tile, with their columns."""

    MOST: int  # the largest k
    FEW: int  # rows that threads share by their columns; 0: they share none

    def empty(self, rows: int, k: int, dtype: np.dtype[Any]) -> tuple[Array, Array]:
        """Values and columns of rows that have none yet; every value is better."""

    def room_of(self, m: int, n: int, k: int, dtype: np.dtype[Any]) -> tuple[int, int]:
        """Rows and columns of the tiles of an m × n matrix."""

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Call functions, each of which has rows of its own."""

    def put(
        self, value: whole(T[rows, k]), index: whole(i64[rows, k]), tile: rows(U[rows, columns]),
        base: int,
    ) -> None:  # fmt: skip
        """Take a tile into account whose first column is number `base`; bases ascend.

        Rows of the tile begin at multiples of 16 bytes.
        """

    def finish(self, value: whole(T[rows, k]), index: whole(i64[rows, k])) -> None:
        """Put the k least in order: by value, then by column; NaN last."""


class BitRows(Protocol):
    """Distances between rows of bits, in words whose bits past the last column are 0.

    `metric` is one of :data:`.metrics.BIT_METRICS`; rows have at least a word.
    """

    MOST: int  # the largest k

    def distances(
        self, metric: str, columns: int, x: whole(u64[m, words]), y: whole(u64[n, words]),
        out: rows(f64[m, n]),
    ) -> None:  # fmt: skip
        """All distances."""

    def nearest(
        self, metric: str, columns: int, x: whole(u64[m, words]), y: whole(u64[n, words]), k: int
    ) -> tuple[Array, Array]:
        """Distances and rows of the k nearest rows of Y to each row of X, (m, k), in order."""

    def within(
        self, metric: str, columns: int, x: whole(u64[m, words]), y: whole(u64[n, words]),
        radius: float, itself: bool, lists: bool,
    ) -> tuple[Array, list[tuple[Array, ...]]]:  # fmt: skip
        """The pairs that are at most `radius` apart.

        Their numbers by rows of X, and, if `lists`, their rows of X, rows of Y and distances in
        several pieces, in any order. `itself`: Y is X, each pair of different rows is there once,
        and the numbers mean nothing.
        """


class Screen(Protocol):
    """Euclidean distances of two sets of points, of which a fast product excludes most.

    Attributes
    ----------
    dtype : dtype
        Of tiles of that product.
    """

    @property
    def dtype(self) -> np.dtype[Any]: ...

    def put(self, rows: slice, columns: slice, tile: Array, value: Array, index: Array) -> int:
        """As :meth:`Select.put` for squared distances; all rows have k values.

        `tile` is scratch space. Returns how many distances were summed up, or 0 for
        few or unknown.
        """

    def search(
        self, value: Array, index: Array, fill: Callable[[Array, Array, Array], None]
    ) -> Array | None:
        """Find the nearest of all rows of X without tiles of the product, if this engine can.

        Returns the rows that it did not find, or None where tiles are to be put. `fill` takes rows
        of X, rows of Y and an array for their squared distances.
        """


class Sieve(Protocol):
    """Distances of two sets of points that are compared with the best before they are stored."""

    def search(self, value: Array, index: Array) -> Array:
        """Find the nearest of all rows of X, for empty lists; returns the rows that it did not."""


class Sieves(Protocol):
    """Makes a sieve for an algebra, two sets of finite points, and what becomes of a sum."""

    def __call__(
        self, semiring: Semiring, x: T[m, width], y: T[n, width], final: Final | None, /
    ) -> Sieve: ...


class LogShares(Protocol):
    """The gradients of C = A ⊗ B over log_plus, where G came to C.

    ``left[i, k]`` becomes Σ_j g[i, j] exp(a[i, k] + b[k, j] - c[i, j]), and ``right[k, j]`` the
    same sum over i; None is not wanted. Floats have 4 bytes or more, and no size is 0.
    """

    def __call__(
        self, g: T[batch, m, n], a: T[batch, m, k], b: T[batch, k, n], c: T[batch, m, n],
        left: T[batch, m, k] | None, right: T[batch, k, n] | None, /,
    ) -> None: ...  # fmt: skip


class Engine(Protocol):
    """The members of an engine."""

    xp: Any  # the array namespace: NumPy's functions for the engine's arrays
    HOST: bool  # whether its memory is the host's
    WHERE: str  # where its memory is, in messages: " on the device", or nothing for the host's
    TILE: int  # side of the squares in which algorithms walk over a matrix
    BASE: int  # matrices are divided after multiples of so many rows
    LEAF: int  # rows of the largest matrix that :meth:`closure_block` takes
    LOOK: int  # rows of the smallest block whose diagonal an elimination looks at as it goes
    BATCH: int  # rows of the largest matrices that :meth:`closure_batch` may take; 0: none
    PANEL: int  # columns of the largest matrix that :meth:`reduce_bits` takes; a multiple of 8
    ROWS: int  # and its rows
    SPARSE: bool  # whether graphs of few edges may be solved by sparse elimination in its memory

    def compiled(
        self, kernel: Kernel, plan: Plan | str | None, zero: float | int, one: float | int
    ) -> Any:
        """A kernel, called with its parameters by name, for the operations of a plan.

        `zero` and `one` are those of the type that the plan computes in. A dtype, such as
        ``"f4"``, stands for a plan where a kernel uses none of the operations. ``bind(**fields)``
        is the call itself, to be repeated.
        """

    @property
    def edit_rows(self) -> Callable[..., bool] | None:
        """``edit_rows(x, y, cutoff, take, tick)``: edit distances of all from all in blocks.

        Or nothing: False. See :func:`semiring_mm.cpu.alignment.edit_rows`. None on an engine that
        computes them as pairs.
        """

    def align(
        self, rule: AlignmentRule, x: Ragged, y: Ragged, band: int | None, gaps: Sequence[float],
        table: whole(F[letters, letters]) | None, *, keep: bool,
        tick: Callable[[float], None] | None = None,
    ) -> tuple[Array, Array | None]:  # fmt: skip
        """The least costs of aligning pairs of sequences.

        Parameters
        ----------
        x, y : Ragged
            As many first as second sequences, at least one.
        band : int, optional
            Only cells with ``|i - j| <= band``.
        gaps : four numbers
        table : ndarray, optional
            On the host, of the rule's dtype.
        keep : bool
            Also find a path, of a single pair.
        tick : callable, optional
            Told by this thread which part of the work is done, from 0 to 1.

        Returns
        -------
        costs : array of the rule's dtype
        path : ndarray of int64, shape (steps, 2), or None
        """

    @property
    def calls(self) -> Calls: ...
    @property
    def chains(self) -> Chains: ...
    @property
    def trees(self) -> Trees | None:
        """None on an engine that is faster at carrying predecessors along."""

    @property
    def select(self) -> Select: ...
    @property
    def bit_rows(self) -> BitRows: ...
    @property
    def rows(self) -> FactorRows | None:
        """None on a device."""

    @property
    def HopSearches(self) -> type[HopSearches] | None: ...
    @property
    def HopDependencies(self) -> type[HopDependencies] | None: ...
    @property
    def FactorSweeps(self) -> Callable[..., FactorSweeps] | None: ...
    @property
    def ReverseSweeps(self) -> Callable[..., ReverseSweeps] | None: ...
    @property
    def Customizer(self) -> Callable[..., Customizer] | None: ...

    def Screen(self, x: T[m, width], y: T[n, width], range_: float) -> Screen:
        """For two sets of finite points.

        `range_` is their greatest less their least, from 1e-150 to 1e150.
        """

    @property
    def Sieve(self) -> Sieves | None:
        """None on an engine that is faster by tiles."""

    @property
    def log_shares(self) -> LogShares | None:
        """None on an engine that computes them by products."""

    def facts(self, semiring: Semiring, x: T[...]) -> Facts:
        """Range of an array's entries, and whether it holds NaN or an integer "no edge"."""

    def facts_later(self, semiring: Semiring, x: T[...]) -> Callable[[], Facts]:
        """The search for :meth:`facts`, begun: a call waits for it, not for later launches."""

    def product(
        self, semiring: Semiring, a: T[[batch], m, k], b: T[[batch], k, n], c: T[[batch], m, n],
        scaling: Scaling = PLAIN, *, arg: i32[[batch], m, n] | None = None,
        gather: i32[k, n] | None = None, known: Known | None = None, overlap: str = "",
        triangle: bool = False, precision: str | None = None, final: Final | None = None,
        on_done: Callable[[float], None] | None = None,
    ) -> None:  # fmt: skip
        """C ← ((α ⊗ A) ⊗ B) ⊕ (β ⊗ C), one matrix or a stack of them.

        A batch stride of 0 repeats an operand.

        Parameters
        ----------
        arg : array, optional
            Receives the smallest k that attains each entry. With `gather` and accumulation it
            receives ``gather[k, j]`` instead, only where C strictly improves.
        known : Known, optional
            Ranges of A, B and C; they are scanned where this is needed and not given.
        overlap : {"", "a", "b"}
            The operand that C coincides with, for an in-place product with a square matrix on the
            other side. The result is as if that operand had been copied first.
        triangle : bool
            Compute only blocks that touch the upper triangle (C is symmetric).
        precision : {None, "ieee", "tf32", "float32_emulated"}
            The least precise arithmetic that will do, as of :func:`semiring_mm.gemm`.
        final : (Expr, float), optional
            A function of the entries of C, and a number: see :meth:`apply`, without another pass
            over memory. Only of floats, and of A ⊗ B alone.
        on_done : callable, optional
            Called with the fraction done, from the calling thread.
        """

    def product_bits(
        self, semiring: Semiring, a: rows(u8[[batch], m, -(-k // 8)]),
        b: rows(u8[[batch], k, -(-n // 8)]), c: rows(u8[[batch], m, -(-n // 8)]), n: int,
        accumulate: bool = False,
    ) -> None:  # fmt: skip
        """C ← A ⊗ B, or C ← C ⊕ (A ⊗ B), of truth values packed as by :meth:`pack_bits`.

        ⊗ is "and", ⊕ is "or" or "xor". C shares no memory with A and B, and has n columns, as B;
        k and n are at least 1.
        """

    def pack_bits(self, x: b1[...]) -> Array:
        """Bool (..., m, n) as uint8 (..., m, ceil(n / 8)), in the order of ``numpy.packbits``."""

    def reduce_bits(
        self, rows: u8[count, width], columns: int <= 8 * width
    ) -> tuple[Array, NDArray[np.int32]]:
        """Gauss-Jordan elimination over GF(2) of at most ``ROWS`` rows of ``PANEL`` packed columns.

        Parameters
        ----------
        columns : int
            How many may have a pivot, from the first one on.

        Returns
        -------
        sums : array of uint8 (columns, ceil(count / 8))
            Packed: the rows whose sum is the reduced row with the pivot of a column; none if it has
            no pivot. Only rows that have pivots are summed.
        pivots : ndarray of int32 (columns,), of NumPy
            The row that had the pivot of a column, or -1.
        """

    def gemv(
        self, semiring: Semiring, a: T[[batch], m, k], x: T[k], y: T[[batch], m],
        scaling: Scaling = PLAIN, *, scale_x: bool = False,
    ) -> None:  # fmt: skip
        """y ← ((α ⊗ A) ⊗ x) ⊕ (β ⊗ y), of one matrix or a stack of them.

        With `scale_x` A ⊗ (α ⊗ x): a row times a matrix, where x is the left operand. A sum of
        floats that is no product (⊕ is +, and ⊗ leaves x out) is compensated: its error does not
        grow with k.
        """

    def csr_product(
        self, semiring: Semiring, data: T[entries], indices: I[entries],
        indptr: I[(k if trans else m) + 1], b: T[k, columns], c: T[m, columns],
        scaling: Scaling = PLAIN, *, trans: bool = False,
    ) -> None:  # fmt: skip
        """C ← ((α ⊗ op(A)) ⊗ B) ⊕ (β ⊗ C) for A in compressed rows.

        Raises ValueError for column indices out of range and for row pointers that do not ascend.
        """

    def dia_product(
        self, semiring: Semiring, data: T[diagonals, :], offsets: I[diagonals], b: T[k, columns],
        c: T[m, columns], scaling: Scaling = PLAIN, *, trans: bool = False,
    ) -> None:  # fmt: skip
        """The same for A stored by diagonals."""

    def apply(self, expr: Expr, x: F[rows, columns], other: F[rows, columns] | number) -> None:
        """x ← expr(x, other), entry by entry."""

    def unit_rows(self, x: Array) -> Array:
        """The rows of a matrix in float32 or float64 divided by their norms; NaN for zero rows."""

    def closure_block(
        self, semiring: Semiring, a: T[n, n], known: Known | None,
        predecessors: i32[n, n] | None = None,
    ) -> None:  # fmt: skip
        """A ← A* in place for a matrix of at most ``LEAF`` rows with one on its diagonal.

        With predecessors (and a selective ⊕) P[i, j] takes P[k, j] where an entry improves.
        """

    @property
    def eliminate(self) -> Callable[..., bool] | None:
        """``eliminate(semiring, d, p, steps, known, one, improves, tick)``: steps of a closure.

        It does all of them, or nothing: False. ``improves(node, value)`` raises where an entry of
        the diagonal is not one; ``tick(pairs)``, or None, is told how many are done. None on an
        engine that does the steps one by one.
        """

    def closure_batch(
        self, semiring: Semiring, a: T[[batch], n, n], known: Known | None, out: T[[batch], n, n],
        predecessors: i32[[batch], n, n] | None = None,
    ) -> Array | bool:  # fmt: skip
        """Out ← (I ⊕ A)* for a stack of matrices at once; False, and nothing done, if it cannot.

        Predecessors may come with what :meth:`Trees.predecessors` returns, in place of True.
        """

    def doubtful(self, semiring: Semiring, d: T[rows, n], p: i32[rows, n]) -> NDArray[np.int64]:
        """Rows of predecessors in which one is not strictly nearer than its node; below 0: none."""

    def best_outside(
        self, semiring: Semiring, a: rows(T[n, n]), group: whole(i32[n]), rows: NODES,
        at: whole(i32[count]), value: whole(T[count]),
    ) -> None:  # fmt: skip
        """The best entries of rows of a square matrix in columns of other groups.

        ⊕ and ⊗ are minimum and maximum, there is no NaN, and no entry is worse than zero.

        Parameters
        ----------
        group, rows : array
            The group of each row and column; the rows that are wanted.
        at, value : array
            Receive the first column that has the best entry, and that entry; -1 and zero where
            every entry in another group is zero.
        """

    def between(
        self, semiring: Semiring, gaps: whole(T[max(n - 1, 0)]), place: whole(i32[n]) < n,
        rows: NODES, out: rows(T[count, n]),
    ) -> None:  # fmt: skip
        """``out[i, j]`` ← ⊗ of the gaps between the places of nodes ``rows[i]`` and j on a line.

        ⊕ and ⊗ are minimum and maximum. A node is at ``one`` from itself. All arrays but `out` are
        of NumPy: the gaps behind each place but the last, the place of each node, and the nodes
        that are wanted.
        """

    def towards(self, forest: Forest, rows: NODES, out: rows(i32[count, n])) -> None:
        """``out[i, j]`` ← the neighbour of node j towards node ``rows[i]`` in their tree.

        Where they are the same, or in different trees, it is -9999. `rows` is of NumPy.
        """

    def why_not(self) -> str:
        """Empty where the engine can run; else what is missing and how to get it."""

    def count(self) -> int:
        """How many devices there are: the numbers that :meth:`on` takes are below."""

    def describe(self) -> dict[str, Any]:
        """What the engine runs on, as JSON holds it."""

    def symmetric(self, x: T[n, n]) -> bool:
        """Whether a square matrix equals its transpose."""

    def mirror(self, x: T[n, n]) -> None:
        """Copy what is above the diagonal of a square matrix below it."""

    def from_host(self, x: Array) -> Array:
        """A NumPy array in the engine's memory."""

    def to_host(self, x: Array) -> Array:
        """An array of the engine as one of NumPy."""

    def free_memory(self) -> int | None:
        """Bytes of memory that can be had, or None if that is not known."""

    def scratch(self, shape: int | tuple[int, ...], dtype: Any) -> Array:
        """A new array for the call alone, which holds anything."""

    def fill(self, x: whole(T[...]), byte: int) -> Array:
        """An array, of which all bytes are set."""

    def copy(self, x: N[...], to: N[...]) -> None:
        """Copy an array to another one."""

    def on(
        self, index: int, stream: int | None = None, allocate: Callable[[int], Any] | None = None
    ) -> ExitStack:
        """Work on a device (-1: the current one), and on another library's stream and memory.

        Until the context ends, to which its caller may add what ends with it.

        `allocate` makes an array of that library, of so many bytes.
        """

    def current(self) -> int:
        """The number of the current device, as :meth:`on` takes it; the host's is -1."""

    def capturing(self) -> bool:
        """Whether what is launched now goes into a graph of launches, to be run later."""

    def wait(self) -> None:
        """Return when all that was launched is done."""


# --- which engines there are ---------------------------------------------------------------------

#: The module of each engine, imported by the first call that needs it.
_modules = {"cpu": "semiring_mm.cpu.engine", "cuda": "semiring_mm.gpu.engine"}
_engines: dict[str, Engine] = {}


def registered() -> dict[str, str]:
    """Names of engines, and the modules that they are."""
    return dict(_modules)


def register(name: str, module: str) -> None:
    """Let `name` stand for the engine in a module, in place of the one that it stood for."""
    _modules[name] = module
    _engines.pop(name, None)


def loaded(name: str) -> Engine | None:
    """The engine of a name, if any call has needed it."""
    return _engines.get(name)


def declared(name: str) -> Any:
    """What the contract has for a member of an engine: a function, or a class of several."""
    member: Any = vars(Engine).get(name)
    if isinstance(member, property):
        member = globals().get(member.fget.__annotations__["return"].removesuffix(" | None"))
        return vars(member or object).get("__call__", member)
    return member


def _load(name: str) -> Engine:
    module = importlib.import_module(_modules[name])
    for member in vars(Engine).keys() & vars(module).keys():
        setattr(module, member, asserted(member, declared(member), getattr(module, member)))
    _engines[name] = cast(Engine, module)
    return _engines[name]


def lazily(package: str, homes: dict[str, str]) -> Callable[[str], Any]:
    """The ``__getattr__`` of an engine, whose members are loaded when they are used first.

    Parameters
    ----------
    package : str
        Of the engine.
    homes : dict
        Modules in it, and their members; what is no member of a module is the module itself.
    """
    homes = {name: module for module, names in homes.items() for name in names.split()}

    def member(name: str) -> Any:
        if name not in homes:
            raise AttributeError(f"module {package + '.engine'!r} has no attribute {name!r}")
        module = importlib.import_module(f".{homes[name]}", package)
        found = asserted(name, declared(name), getattr(module, name, module))
        vars(importlib.import_module(".engine", package))[name] = found  # the next time at once
        return found

    return member


def named(name: str, argument: str = "") -> Engine:
    """The engine of a name, "cpu" or "cuda", whether or not it was loaded before.

    `argument` is the one that asks for it, if that is not `device`.

    Raises
    ------
    ValueError
        If it cannot run here: what is missing and how to get it.
    """
    engine = _engines.get(name) or _load(name)
    if not engine.HOST and (reason := engine.why_not()):  # on the host nothing can be missing
        asked = naming.named(argument) if argument else naming.named("device", name)
        raise ValueError(f"{asked}: {reason}")
    return engine


def why_not(name: str) -> str:
    """:meth:`Engine.why_not` of the engine of a name."""
    return (_engines.get(name) or _load(name)).why_not()


def of(array: Array) -> Engine:
    """The engine in whose memory an engine's array lies."""
    return named("cpu" if isinstance(array, np.ndarray) else "cuda")


@functools.lru_cache(maxsize=1024)
def compiled(
    kernel: Kernel, plan: Plan | str | None = None, zero: float | int = 0, one: float | int = 0
) -> Any:
    """A kernel as the host's engine runs it: :meth:`Engine.compiled`."""
    return named("cpu").compiled(kernel, plan, zero, one)


def host_rows() -> FactorRows:
    """Rows of labels over a factor on the host's engine: :attr:`Engine.rows`."""
    rows = named("cpu").rows
    if rows is None:
        raise NotImplementedError("the engine of the host has no rows of labels over a factor")
    return rows
