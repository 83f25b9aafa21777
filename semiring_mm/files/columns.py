"""Tables: rows and columns of delimited text or Parquet, and what columns mean by their names."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import itertools
import math
import re
from array import array
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from ..graphs.packages import UNITS, WEIGHT
from ..memory import free_memory
from ..naming import named, optional
from .file import File, GraphFileError, quote, real

__all__ = [
    "CITY", "FROM", "LATITUDE", "LONGITUDE", "NODE", "SAMPLE", "TO", "Columns", "Numbers",
    "Origin", "check_header", "column_unit", "decimal", "directions", "find_column", "is_missing",
    "is_real", "named_column", "numbered_column", "other_numbers", "rows", "weight_column",
]  # fmt: skip

FROM = """from source src u tail origin start from_node fromnode fromnodeid init_node bus0 from_id
    source_id src_id""".split()
TO = """to target dst v head destination dest end to_node tonode tonodeid term_node bus1 to_id
    target_id dst_id""".split()
NODE = "id iata node code label name".split()
CITY = "city name label".split()
LONGITUDE = "longitude lon lng long".split()
LATITUDE = "latitude lat".split()
_TRUTH = {"true": 1, "false": 0, "yes": 1, "no": 0, "1": 1, "0": 0}
_GEPHI = {"directed": 1, "undirected": 0}
_OSM = _TRUTH | {"-1": -1, "reverse": -1, "": 0}  # where nothing is said, a street leads both ways
#: How edges lead, by the name of the column and its words: 1 one way, 0 both ways, -1 backwards.
_WAYS = {"directed": _TRUTH | _GEPHI, "type": _GEPHI, "oneway": _OSM, "one_way": _OSM}
_COMMENT = ("#", "%")
_DECIMAL_COMMA = re.compile(r"[+-]?\d+,\d+(e[+-]?\d+)?", re.I | re.A)
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2},\d{3}", re.A)
SAMPLE = 1000  # rows by which a column is one of numbers
_NO_LITERAL = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
_ATTRIBUTES = re.compile(r"([^\s,]+)(?:\s*,\s*|\s+)([^\s,]+)(?:\s*,\s*|\s+)(\{.*\})\s*")


class Origin(Protocol):
    """A file, or a table in memory, that names its lines in messages."""

    @property
    def path(self) -> Any: ...

    def error(self, line: int | None, message: str) -> Exception:
        """The exception to raise for a line, or for the whole."""


@dataclass(frozen=True)
class Columns:
    """Where the ends, the weight and the direction are in each row."""

    names: list[str]
    first: int | None  # the line that is first, where it has no names of columns
    source: int
    target: int
    weight: int | None
    ways: tuple[int, ...] = ()  # what tells how edges lead, for :func:`directions`

    @classmethod
    def of(
        cls, origin: Origin, number: int | None, names: list[str], ends: tuple[int, int],
        weight: int | None, header: bool = True,
    ) -> Columns:  # fmt: skip
        """The columns of these ends and weights, and of the direction, by their names."""
        if len({*ends, weight}) < 3:
            last = "" if weight is None else f", weight {names[weight]}"
            raise origin.error(
                number,
                f"one column twice: from {names[ends[0]]}, to {names[ends[1]]}{last}; choose "
                "others",
            )
        kinds = (("directed", "type"), ("oneway", "one_way")) if header else ()
        ways = (find_column(origin, number, names, kind) for kind in kinds)
        return cls(
            names, None if header else number, *ends, weight,
            tuple(k for k in ways if k is not None and k not in {*ends, weight}),
        )  # fmt: skip

    @property
    def header(self) -> bool:
        """Whether the names are those of the table."""
        return self.first is None

    @property
    def unit(self) -> str:
        return "" if self.weight is None else column_unit(self.names[self.weight])

    @property
    def weight_source(self) -> str:
        """The name and number of the column of weights."""
        if self.weight is None:
            return ""
        place = f"column {self.weight + 1}"
        return f"{self.names[self.weight]} ({place})" if self.header else place


class Numbers:
    """The numbers of a column, as they are read; they may have a comma before their decimals.

    A column that has commas has no points, and a comma that may be one between thousands in all of
    its numbers is refused.
    """

    def __init__(self, file: File, what: str) -> None:
        self._file, self._what = file, what
        self.values = array("d")
        self._comma = self._sure = False
        self._doubtful: tuple[int, str] | None = None  # the first that may have thousands

    def add(self, number: int, word: str, first: bool = False) -> None:
        """Append a finite number of a line, which may be the `first` of a file without a header."""
        try:
            value = real(word)
        except ValueError:
            value = self._with_comma(number, word)
        else:
            if self._comma and "." in word:
                raise self._mixed(number, word)
        if not math.isfinite(value):
            advice = (
                "; if the line has names of columns, call the ends from and to, or choose them as "
                f"{named('source and target')}"
            )
            raise self._file.error(
                number,
                f"expected a finite number as {self._what}, got {quote(word)}{advice * first}",
            )
        self.values.append(value)

    def _with_comma(self, number: int, word: str) -> float:
        if not _DECIMAL_COMMA.fullmatch(word):
            return math.nan
        if not self._comma and any(not value.is_integer() for value in self.values):
            raise self._mixed(number, word)
        self._comma = True
        if not _THOUSANDS.fullmatch(word):
            self._sure = True
        elif self._doubtful is None:
            self._doubtful = number, word
        return decimal(word)

    def _mixed(self, number: int, word: str) -> GraphFileError:
        return self._file.error(
            number, f"{quote(word)} as {self._what}, where others have points or commas: write all "
            "decimals with a point, and nothing between thousands",
        )  # fmt: skip

    def whole(self) -> NDArray[np.float64]:
        """All of them, after the last."""
        if self._doubtful and not self._sure:
            number, word = self._doubtful
            point, none = word.replace(",", "."), word.replace(",", "")
            raise self._file.error(
                number,
                f"{quote(word)} as {self._what} may be {point} or {none}: write one of these",
            )
        return np.array(self.values, np.float64)


def rows(
    file: File, comments: list[tuple[int, str]] | None = None
) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row of a table; comments and blank rows skipped.

    Parameters
    ----------
    file : File
        Text with any delimiter, where a row may also end in a dict as
        `networkx.write_edgelist` writes it; or Parquet, whose row 0 are the names of the columns.
    comments : list, optional
        Gets the lines of comment before the first row.
    """
    if file.kind == ".parquet":
        yield from _parquet(file)
        return
    lines = file.lines()
    number, skipped, delimiter = 0, 0, None
    for number, line in lines:
        if line.strip() and not line.startswith(_COMMENT):
            delimiter = _delimiter(line)
            lines = itertools.chain([(number, line)], lines)
            skipped = number - 1
            break
        if comments is not None and line.strip():
            comments.append((number, line))
    else:
        raise file.error(number, "only comments and blank lines in the file")
    if _ATTRIBUTES.fullmatch(line):
        yield from _with_attributes(file, lines)
        return
    if delimiter is None:
        for number, line in lines:
            if line.strip() and not line.startswith(_COMMENT):
                yield number, line.split()
        return
    # A comment may hold a quote, which would swallow the lines behind it.
    plain = ("" if line.startswith(_COMMENT) else line + "\n" for _, line in lines)
    reader = csv.reader(plain, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield skipped + reader.line_num, [field.strip() for field in fields]
    except csv.Error as error:
        raise file.error(skipped + reader.line_num, f"{error}") from None


def _delimiter(line: str) -> str | None:
    """What is between the fields of a first row; None for blanks."""
    words = line.split()
    if (
        "\t\t" not in line
        and all("," not in word for word in words[:2])
        and all(map(is_real, words))
    ):
        return None  # KONECT has numbers between blanks and tabs in one line
    return next((mark for mark in "\t;," if mark in line), None)


def _with_attributes(
    file: File, lines: Iterable[tuple[int, str]]
) -> Iterator[tuple[int, list[str]]]:
    """Rows of lines ``a b {'weight': 3}``, below a header of all attributes."""
    edges: list[tuple[int, str, str, dict[object, object]]] = []
    for number, line in lines:
        if not line.strip() or line.startswith(_COMMENT):
            continue
        match, known = _ATTRIBUTES.fullmatch(line), None
        if match and len(line) <= csv.field_size_limit():  # an object is many times its text
            with contextlib.suppress(*_NO_LITERAL):
                known = ast.literal_eval(match[3])
        if not match or not isinstance(known, dict):
            raise file.error(number, f"expected FROM, TO and {{'name': value}}, got {quote(line)}")
        edges.append((number, match[1], match[2], known))
    names = list(dict.fromkeys(name for *_, known in edges for name in known))
    yield 0, ["source", "target", *map(str, names)]
    for number, start, end, known in edges:
        yield number, [start, end, *(str(known.get(name, "")) for name in names)]


def _parquet(file: File) -> Iterator[tuple[int, list[str]]]:
    """Rows of a Parquet file, below the names of its columns."""
    parquet = optional("pyarrow.parquet", f"{file.path}: Parquet files are read with PyArrow", "io")
    data, free, number = file.read(), free_memory(), 0
    try:
        table = parquet.ParquetFile(io.BytesIO(data))
        if free is not None and 100 * table.metadata.num_rows > free:
            raise file.error(None, f"{table.metadata.num_rows:,} rows are too many for the memory")
        yield 0, list(table.schema_arrow.names)
        for batch in table.iter_batches():
            for row in zip(*(column.to_pylist() for column in batch), strict=True):
                number += 1
                yield number, ["" if x is None else str(x).strip() for x in row]
    except GraphFileError:
        raise
    except Exception as error:  # PyArrow's own, those of the system, and of Unicode
        raise file.error(None, f"not a Parquet file ({error})") from None


def check_header(origin: Origin, number: int | None, header: list[str]) -> None:
    """Raise an error for a name that two columns have."""
    for k, column in enumerate(header):
        if column and column in header[:k]:
            raise origin.error(number, f"two columns are named {column!r}")


def _name_and_unit(column: str) -> tuple[str, str]:
    """'Length (miles)' → ('length', 'miles'), 'distance_km' → ('distance', 'km')."""
    column = column.strip().casefold()
    if match := re.fullmatch(r"([^(\[]+?)\s*[(\[](.*)[)\]]", column):
        column, unit = match[1], match[2].strip()
    elif match := re.fullmatch(rf"(.+)[_ ]({'|'.join(UNITS)})", column):
        column, unit = match[1], match[2]
    else:
        unit = column if column in UNITS and len(column) > 1 else ""
    return re.sub(r"\s+", "_", column), unit


def column_unit(column: str) -> str:
    """The unit in a column's name, or ""."""
    return _name_and_unit(column)[1]


def find_column(
    origin: Origin, number: int | None, header: list[str], names: Iterable[str]
) -> int | None:
    """Position of the column that has the first of these names that any column has.

    A column of just that name goes before one with a unit: ``length`` before ``length_m``.
    """
    whole = [column.strip().casefold() for column in header]
    columns = [_name_and_unit(column)[0] for column in header]
    for name in names:
        for forms in (whole, columns):
            if at := [k for k, form in enumerate(forms) if form == name]:
                return _only(origin, number, header, at)
    return None


def named_column(
    origin: Origin, number: int | None, header: list[str], name: str, what: str = "column"
) -> int:
    """Position of the column, or `what` else it is, that the caller or the format names."""
    for form in (str.strip, str.casefold, lambda column: _name_and_unit(column)[0]):
        if at := [k for k, column in enumerate(header) if form(column) == form(name)]:
            return _only(origin, number, header, at)
    raise origin.error(number, f"no {what} {name!r}; {what}s: {', '.join(header) or 'none'}")


def numbered_column(origin: Origin, number: int | None, header: list[str], word: str) -> int:
    """Position of the column of that name or, where no column has it, of that number from 1 on."""
    if word.isascii() and word.isdigit() and word not in header:
        if not 1 <= int(word[:9]) <= len(header):
            raise origin.error(number, f"no column {word}; there are {len(header)}")
        return int(word) - 1
    return named_column(origin, number, header, word)


def weight_column(
    origin: Origin, number: int | None, header: list[str], weight: str | None
) -> int | None:
    """Position of the weights for what :func:`read_graph` takes as `weight`."""
    if weight is None:
        return None
    if weight == "weight":
        return find_column(origin, number, header, WEIGHT)
    return numbered_column(origin, number, header, weight)


def other_numbers(
    header: Sequence[str], table: Sequence[Sequence[str]], used: Iterable[int | None]
) -> list[str]:
    """Names of the columns of numbers that are not used and not those of identifiers."""
    skipped = {*used, *(k for k, name in enumerate(header) if _identifies(name))}
    return [
        name
        for k, name in enumerate(header)
        if k not in skipped
        and any(k < len(row) and row[k] for row in table)
        and all(is_real(row[k]) for row in table if k < len(row) and row[k])
    ]


def _identifies(column: str) -> bool:
    words = re.split(r"[\W_]+", re.sub(r"(?<=[a-z])Id$", "_id", column.strip()).casefold())
    last = words[-1] in ("", "id", "ids", "osmid", "key", "index", "fid")
    return last or words[0] == "unnamed" or words in ([name] for name in (*NODE, *CITY))


def is_real(word: str) -> bool:
    """Whether a word is a number."""
    try:
        decimal(word)
    except ValueError:
        return False
    return True


def decimal(word: str) -> float:
    """A number, which may have a comma before its decimals."""
    return real(word.replace(",", ".") if _DECIMAL_COMMA.fullmatch(word) else word)


def is_missing(value: Any) -> bool:
    """Whether there is nothing in a cell of a table in memory: None, NaN, NaT or pandas' NA."""
    if value is None or type(value).__name__ == "NAType":
        return True
    differs = value != value
    return isinstance(differs, (bool, np.bool_)) and bool(differs)


def directions(
    origin: Origin, columns: Columns, cells: Sequence[Sequence[Any]], lines: Sequence[int]
) -> tuple[NDArray[np.int8] | None, str]:
    """How each edge leads, and why: 1 one way, 0 both, -1 backwards; None where nothing tells.

    Parameters
    ----------
    cells : list of sequences
        What is in the columns `columns.ways`.
    lines : sequence of int
        The line of each row.
    """
    ways, why, before = None, "", [""]
    for column, values in zip(columns.ways, cells, strict=True):
        name = columns.names[column]
        words = ["" if is_missing(x) else str(x).strip() for x in values]
        meaning = _WAYS[_name_and_unit(name)[0]]
        known = [meaning.get(word.casefold().removesuffix(".0")) for word in words]
        if meaning is _GEPHI and all(way is None for way in known):
            continue  # a type of something else
        if None in known:
            k = known.index(None)
            *others, last = filter(None, meaning)
            raise origin.error(
                lines[k],
                f"column {name}: expected {', '.join(others)} or {last}, got {quote(words[k])}; if "
                "the column is about something else than directions, give it another name",
            )
        found = np.array(known, np.int8)
        if ways is not None and len(wrong := np.flatnonzero((ways == 0) != (found == 0))):
            k = int(wrong[0])
            raise origin.error(
                lines[k],
                f"{why} and column {name} contradict each other: {quote(before[k])} and "
                f"{quote(words[k])}; leave out one of the columns",
            )
        ways, why, before = found, f"column {name}", words
    if ways is None:
        return None, ""
    both, back = (int((ways == way).sum()) for way in (0, -1))
    empty = sum(not word for word in before)
    parts = {
        "lead both ways": both if both < len(ways) or empty else 0,
        "lead backwards": back,
        "have no word": empty,
    }
    told = [f"{count} of {len(ways)} edges {what}" for what, count in parts.items() if count]
    return ways, why + (f": {', '.join(told)}" if told else "")


def _only(origin: Origin, number: int | None, header: list[str], at: list[int]) -> int:
    if len(at) > 1:
        which = " and ".join(repr(header[k]) for k in at)
        raise origin.error(
            number, f"columns {which} go by the same name: rename one, or name the weights exactly"
        )
    return at[0]
