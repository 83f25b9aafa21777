"""Tables of a few rows and columns, as text and as HTML, for the display of results."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

__all__ = ["cell", "chosen", "html_table", "text_table"]

_LABEL = 24  # signs of a label that are shown
_WIDTH = 80  # of a line
_HEAD = "<th>{}</th>"


def chosen(count: int, most: int = 10) -> list[int | None]:
    """The first and last of many indices, and None for those between; of a few all."""
    if count <= most:
        return [*range(count)]
    return [*range(most // 2), None, *range(count - most // 2, count)]


def cell(value: Any) -> str:
    """A number in at most eight digits, or a label in one line."""
    if hasattr(value, "dtype") and value.dtype.kind == "f":
        return f"{value:.8g}"
    text = " ".join(str(value).split())
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 3]}..."


def text_table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lines with aligned columns, the first one to the left; middle columns are left out."""
    table = [head, *rows]
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    shown: list[int | None] = [*range(len(head))]
    while len(shown) > 4 and sum(2 + (3 if k is None else widths[k]) for k in shown) > _WIDTH:
        kept = [k for k in shown if k is not None]
        middle = len(kept) // 2
        shown = [*kept[:middle], None, *kept[middle + 1 :]]
    lines = []
    for row in table:
        words = ["..." if k is None else row[k].rjust(widths[k]) for k in shown]
        words[0] = row[0].ljust(widths[0])
        lines.append("  ".join(words).rstrip())
    return "\n".join(lines)


def html_table(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], first: Sequence[str] = (_HEAD,)
) -> str:
    """A table for notebooks, with a title above it; the `first` cells of each row are so."""
    import html

    def line(words: Sequence[str], forms: Sequence[str]) -> str:
        every = itertools.chain(forms, itertools.repeat("<td>{}</td>"))
        cells = (form.format(html.escape(word)) for word, form in zip(words, every, strict=False))
        return f"<tr>{''.join(cells)}</tr>"

    caption = f"<caption>{html.escape(title)}</caption>" if title else ""
    top, body = line(head, [_HEAD] * len(head)), "".join(line(row, first) for row in rows)
    return f"<table>{caption}<thead>{top}</thead><tbody>{body}</tbody></table>"
