"""Functions of the entries of matrices."""

from __future__ import annotations

from ...kernel import T, across, bits, each, fma, i64, kernel, lanes, mul, sqrt, static


@kernel
def apply(
    alone: static, rows: i64, columns: i64, x: T[rows, columns], other: T[1 if alone else rows, :]
):
    """x ← x ⊗ other, of a matrix or, `alone`, of one number."""
    for r in range(rows):
        own, second = x[r], other[0 if alone else r]
        factor = second[0] if alone else 0.0
        for j in lanes(columns):
            own[j] = mul(own[j], factor if alone else second[j])


@kernel
def unit_rows(
    mantissa: static, bias: static, rows: i64, columns: i64, x: T[rows, columns],
    unit: T[rows, columns],
):  # fmt: skip
    """The rows of x divided by their norms, which may take their place."""
    for r in range(rows):
        row, to = x[r], unit[r]
        greatest, squares = each(0.0), each(0.0)
        for j in lanes(columns):
            size = abs(row[j])
            greatest = size if size > greatest else greatest
        # a power of two, by which squares neither overflow nor vanish
        exponent = bits(across(greatest, max)) >> mantissa
        factor = bits(max(2 * bias - 1 - exponent, 1) << mantissa)
        for j in lanes(columns):
            v = row[j] * factor
            squares = fma(v, v, squares)
        norm = sqrt(across(squares, sum, ordered=True))
        for j in lanes(columns):
            to[j] = row[j] * factor / norm
