"""Amounts of memory as words."""

import numpy as np
import pytest

from semiring_mm.tiles import parse_size


@pytest.mark.parametrize(
    ("size", "count"),
    [
        ("16GB", 16 * 10**9),
        ("16GiB", 16 << 30),
        ("16 gb", 16 * 10**9),
        (" 1.5GiB ", 3 << 29),
        ("0.1TB", 10**11),
        (".5k", 500),
        ("2.", 2),
        ("512", 512),
        ("512B", 512),
        ("3Ki", 3072),
        ("9007199254740993", 2**53 + 1),
        ("1PB", 10**15),
        (4096, 4096),
        (np.int64(4096), 4096),
    ],
)
def test_bytes(size, count):
    assert parse_size(size) == count
    assert type(parse_size(size)) is int


@pytest.mark.parametrize("size", ["", "GB", "-1GB", "16XB", "1e9", "16 G B", "0", "0.5B", "٣GB", 0])
def test_refused(size):
    with pytest.raises(ValueError, match="expected a size such as '16GB'"):
        parse_size(size)


@pytest.mark.parametrize("size", [1.5, None, True])
def test_neither_words_nor_bytes(size):
    with pytest.raises(TypeError, match=r"a size must be an integer \(bytes\) or a word"):
        parse_size(size)
