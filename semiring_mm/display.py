"""Tables of a few rows and columns, as text and as HTML, for the display of results."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

__all__ = ["Shown", "cell", "chosen", "html_table", "text_table"]

#: The names of columns, how many rows there are, and what is in a row.
Table = tuple[Sequence[str], int, Callable[[int], Iterable[Any]]]

_LABEL = 24  # signs of a label that are shown
_WIDTH = 80  # of a line
_HEAD = "<th>{}</th>"


class Shown:
    """A result that is shown by its title, and in notebooks as a table: first and last rows."""

    def __repr__(self) -> str:
        return f"<{self._title()}>"

    def _title(self) -> str:
        raise NotImplementedError

    def _table(self) -> Table:
        raise NotImplementedError

    def _repr_html_(self) -> str:
        head, count, row = self._table()
        rows = [["..."] * len(head) if i is None else [*map(cell, row(i))] for i in chosen(count)]
        return html_table(self._title(), head, rows)


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
