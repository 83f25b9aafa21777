"""Numbers as text."""

from __future__ import annotations

import math
from collections.abc import Sequence

__all__ = ["NumberFormat"]


class NumberFormat:
    """Numbers of one table as text: whole ones, or about five digits of the largest."""

    def __init__(
        self, values: Sequence[float], unit: str = "", *, whole: bool | None = None
    ) -> None:
        finite = [abs(value) for value in values if math.isfinite(value)]
        top = max(finite, default=0.0)
        if whole is None:
            whole = all(value == int(value) for value in finite)
        self._large = top >= 1e15  # beyond what a float64 holds exactly
        self._digits = 0 if whole or not top else max(0, 4 - math.floor(math.log10(top)))
        self._unit = f" {unit}" if unit else ""

    def __call__(self, value: float) -> str:
        if not math.isfinite(value):
            return str(value)
        if self._large:
            return f"{value:.5g}{self._unit}"
        return f"{value:,.{self._digits}f}{self._unit}"
