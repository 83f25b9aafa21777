"""Tables: rows and columns of delimited text or Parquet, and the names that columns go by."""

from __future__ import annotations

import ast
import contextlib
import csv
import io
import itertools
import re
from collections.abc import Iterable, Iterator, Sequence

from ..cpu.memory import free_memory
from ..naming import install
from .file import File, GraphFileError, quote, real

__all__ = [
    "CITY", "FROM", "LATITUDE", "LONGITUDE", "NODE", "SAMPLE", "TO", "WEIGHT", "check_header",
    "column_unit", "find_column", "is_real", "named_column", "numbered_column", "other_numbers",
    "rows", "weight_column",
]  # fmt: skip

_UNITS = "km m mi miles s min h".split()
FROM = """from source src u tail origin start from_node fromnode fromnodeid init_node bus0 from_id
    source_id src_id""".split()
TO = """to target dst v head destination dest end to_node tonode tonodeid term_node bus1 to_id
    target_id dst_id""".split()
#: What adds up along a path. A capacity or a probability does not, and is chosen by its name.
WEIGHT = "weight distance dist length cost w time duration".split() + _UNITS
NODE = "id iata node code label name".split()
CITY = "city name label".split()
LONGITUDE = "longitude lon lng long".split()
LATITUDE = "latitude lat".split()
_COMMENT = ("#", "%")
SAMPLE = 1000  # rows by which a column is one of numbers
_NO_LITERAL = (ValueError, SyntaxError, TypeError, RecursionError, MemoryError)
_ATTRIBUTES = re.compile(r"([^\s,]+)(?:\s*,\s*|\s+)([^\s,]+)(?:\s*,\s*|\s+)(\{.*\})\s*")


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
    if "\t\t" not in line and all(is_real(word) for word in line.split()):
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
            with contextlib.suppress(
                ValueError, SyntaxError, TypeError, RecursionError, MemoryError
            ):
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
    try:
        from pyarrow import parquet
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            f"{file.path}: Parquet files are read with PyArrow: {install('io')}"
        ) from None
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


def check_header(file: File, number: int, header: list[str]) -> None:
    """Raise an error for a name that two columns have."""
    for k, column in enumerate(header):
        if column and column in header[:k]:
            raise file.error(number, f"two columns are named {column!r}")


def _name_and_unit(column: str) -> tuple[str, str]:
    """'Length (miles)' → ('length', 'miles'), 'distance_km' → ('distance', 'km')."""
    column = column.strip().casefold()
    if match := re.fullmatch(r"([^(\[]+?)\s*[(\[](.*)[)\]]", column):
        column, unit = match[1], match[2].strip()
    elif match := re.fullmatch(rf"(.+)[_ ]({'|'.join(_UNITS)})", column):
        column, unit = match[1], match[2]
    else:
        unit = column if column in _UNITS and len(column) > 1 else ""
    return re.sub(r"\s+", "_", column), unit


def column_unit(column: str) -> str:
    """The unit in a column's name, or ""."""
    return _name_and_unit(column)[1]


def find_column(
    file: File, number: int | None, header: list[str], names: Iterable[str]
) -> int | None:
    """Position of the column that has the first of these names that any column has.

    A column of just that name goes before one with a unit: ``length`` before ``length_m``.
    """
    whole = [column.strip().casefold() for column in header]
    columns = [_name_and_unit(column)[0] for column in header]
    for name in names:
        for forms in (whole, columns):
            if at := [k for k, form in enumerate(forms) if form == name]:
                return _only(file, number, header, at)
    return None


def named_column(file: File, number: int | None, header: list[str], name: str) -> int:
    """Position of the column that the caller or the format names."""
    for form in (str.strip, str.casefold, lambda column: _name_and_unit(column)[0]):
        if at := [k for k, column in enumerate(header) if form(column) == form(name)]:
            return _only(file, number, header, at)
    raise file.error(number, f"no column {name!r}; columns: {', '.join(header)}")


def numbered_column(file: File, number: int | None, header: list[str], word: str) -> int:
    """Position of the column of that name or, where no column has it, of that number from 1 on."""
    if word.isascii() and word.isdigit() and word not in header:
        if not 1 <= int(word[:9]) <= len(header):
            raise file.error(number, f"no column {word}; there are {len(header)}")
        return int(word) - 1
    return named_column(file, number, header, word)


def weight_column(
    file: File, number: int | None, header: list[str], weight: str | None
) -> int | None:
    """Position of the weights for what :func:`read_graph` takes as `weight`."""
    if weight is None:
        return None
    if weight == "weight":
        return find_column(file, number, header, WEIGHT)
    return numbered_column(file, number, header, weight)


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
        real(word)
    except ValueError:
        return False
    return True


def _only(file: File, number: int | None, header: list[str], at: list[int]) -> int:
    if len(at) > 1:
        which = " and ".join(repr(header[k]) for k in at)
        raise file.error(
            number, f"columns {which} go by the same name: rename one, or name the weights exactly"
        )
    return at[0]
