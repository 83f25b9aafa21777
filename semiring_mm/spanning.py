"""Closures from spanning forests: what both engines prepare on the host."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .expressions import evaluate
from .plan import Facts, Plan, bytewise, make_plan
from .semirings import Semiring

__all__ = ["in_line", "range_table", "spanning_plan"]

Array = NDArray[Any]
Index = NDArray[np.int32]


def spanning_plan(semiring: Semiring, dtype: np.dtype[Any]) -> Plan:
    """How numbers, none of them NaN, are compared in a dtype where ⊕ and ⊗ only do that."""
    known = Facts(-np.inf, np.inf, False)
    plan = make_plan(semiring, dtype, known, known, 1)
    return replace(bytewise(plan) if plan.codec == "bits" else plan, check=False)


def range_table(semiring: Semiring, gaps: Array) -> Array:
    """⊗ over ranges of gaps, from each place on: over none, 1, 2, 4, … of them.

    The first row is ``one``; two entries of a row then make up any range.
    """
    n = len(gaps) + 1
    one = semiring.identities(gaps.dtype)[1]
    table: Array = np.full(((n - 1).bit_length() + 1, n), one, gaps.dtype)
    table[1:2, : n - 1] = gaps
    for k in range(2, len(table)):
        half = 1 << (k - 2)
        count = n - 2 * half
        left, right = table[k - 1, :count], table[k - 1, half : half + count]
        table[k, :count] = evaluate(semiring.mul_expr, left, right)
    return table


def in_line(place: Index, rows: Index) -> tuple[Index, Index]:
    """The places of rows, ascending, and where each of them is among the rows."""
    lines = np.argsort(place[rows]).astype(np.int32)
    return place[rows][lines], lines
