"""Amounts of memory as people write them."""

from __future__ import annotations

import re

from ..naming import integer

__all__ = ["parse_size"]

_UNITS = {"": 1, "K": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15} | {
    f"{letter}I": 1 << 10 * power for power, letter in enumerate("KMGTP", 1)
}
_SIZE = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*([KMGTP]I?)?B?", re.ASCII | re.IGNORECASE)


def parse_size(size: str | int) -> int:
    """Bytes of an amount of memory.

    Parameters
    ----------
    size : str or int
        Bytes, or a number and a unit: ``"16GB"`` is 16·10⁹ bytes, ``"16GiB"`` 16·2³⁰. Case and a
        space between the two do not matter, nor does a missing B.

    Returns
    -------
    int
        Whole bytes, rounded down.

    Raises
    ------
    ValueError
        Not such a word, or less than one byte.
    TypeError
        Neither a string nor an integer.

    Examples
    --------
    >>> parse_size("16GB"), parse_size("1.5 GiB"), parse_size(4096)
    (16000000000, 1610612736, 4096)
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size.strip())
        count = 0
        if found:
            whole, _, part = found[1].partition(".")
            unit = _UNITS[(found[2] or "").upper()]
            count = int(f"{whole}{part}") * unit // 10 ** len(part)  # exact, as a float is not
    else:
        count = integer(size, "a size", " (bytes) or a word such as '16GB'")
    if count < 1:
        raise ValueError(f"expected a size such as '16GB', '500 MiB' or 4096 (bytes), got {size!r}")
    return count
