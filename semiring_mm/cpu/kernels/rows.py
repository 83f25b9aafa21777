"""Rows of labels, as sweeps over a factor leave them, written as rows of a matrix."""

from __future__ import annotations

from ...kernel import (
    S,
    T,
    encode,
    entries,
    i64,
    kernel,
    lanes,
    prefetch,
    static,
    stream,
    unrolled,
)

LINE = 64  #: bytes of a line of the caches
COLUMNS = 512  #: that are turned into rows at a time, in the second-level cache


@kernel
def copy(own, row, first, count, head, per, vectors):
    """Store converted entries; whole lines of `per` entries go past the caches."""
    head = min(head, count)
    tail = head + (count - head) // per * per
    for j in range(head):
        row[first + j] = encode(own[j])
    for begin in range(head, tail, per):
        for j in lanes(per, vectors, whole=True):
            stream(row, first + begin + j, encode(own[begin + j]))
    for j in range(tail, count):
        row[first + j] = encode(own[j])


@kernel
def write(
    n: i64, width: static, count: static, per: static, vectors: static, base: i64, pitch: i64,
    where: i64[n], lines: i64[width], label: T[:, width], rows: S[:, n], turned: T[width, COLUMNS],
):  # fmt: skip
    """Write ``rows[lines[i], j]`` ← ``label[where[j], i]``, some columns at a time by a cache.

    A vector has `count` labels; a line has `per` entries, in `vectors` vectors of labels. The rows
    begin `base` entries after an address that is a multiple of a line, and are `pitch` apart; base
    is -1 where no entry lies at such an address.
    """
    for first in range(0, n, COLUMNS):
        some = min(n - first, COLUMNS)
        whole = some // count * count
        for j in range(0, whole, count):
            for i in unrolled(count):  # labels are far from each other
                ahead = label[where[min(first + j + (2 * count + i), n - 1)]]
                for k in unrolled(0, width, per):
                    prefetch(ahead, k)
            for i in lanes(count, whole=True):
                for g in unrolled(0, width, count):
                    column = entries(label[where[first + j + i], g:], count)
                    for k in unrolled(count):
                        turned[g + k, j + i] = column[k]
        for j in range(whole, some):
            for i in range(width):
                turned[i, j] = label[where[first + j], i]
        for i in range(width):
            begin = lines[i] * pitch + first
            head = some if base < 0 else -(base + begin) & (per - 1)
            copy(turned[i], rows[lines[i]], first, some, head, per, vectors)
