"""Tables: rows and columns of delimited text, and the names that columns go by."""

from __future__ import annotations

import csv
import itertools
import re
from collections.abc import Iterable, Iterator

from .file import File

__all__ = [
    "CITY", "FROM", "LATITUDE", "LONGITUDE", "NODE", "TO", "WEIGHT", "check_header", "column_unit",
    "find_column", "named_column", "rows",
]  # fmt: skip

_UNITS = "km m mi miles s min h".split()
FROM = "from source src u tail origin start from_node fromnode fromnodeid init_node bus0".split()
TO = "to target dst v head destination dest end to_node tonode tonodeid term_node bus1".split()
WEIGHT = "weight distance dist length cost w time duration capacity probability".split() + _UNITS
NODE = "id iata node code label name".split()
CITY = "city name".split()
LONGITUDE = "longitude lon lng long".split()
LATITUDE = "latitude lat".split()


def rows(file: File) -> Iterator[tuple[int, list[str]]]:
    """Line number and fields of each row, for any delimiter; comments and blank rows skipped."""
    lines = file.lines()
    number, skipped, delimiter = 0, 0, None
    for number, line in lines:
        if line.strip() and not line.startswith(("#", "%")):
            delimiter = next((mark for mark in "\t;," if mark in line), None)
            lines = itertools.chain([(number, line)], lines)
            skipped = number - 1
            break
    else:
        raise file.error(number, "only comments and blank lines in the file")
    if delimiter is None:
        for number, line in lines:
            if line.strip() and not line.startswith(("#", "%")):
                yield number, line.split()
        return
    # A comment may hold a quote, which would swallow the lines behind it.
    plain = ("" if line.startswith(("#", "%")) else line + "\n" for _, line in lines)
    reader = csv.reader(plain, delimiter=delimiter, strict=True)
    try:
        for fields in reader:
            if any(field.strip() for field in fields):
                yield skipped + reader.line_num, [field.strip() for field in fields]
    except csv.Error as error:
        raise file.error(skipped + reader.line_num, f"{error}") from None


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


def _only(file: File, number: int | None, header: list[str], at: list[int]) -> int:
    if len(at) > 1:
        which = " and ".join(repr(header[k]) for k in at)
        raise file.error(
            number, f"columns {which} go by the same name: rename one, or name the weights exactly"
        )
    return at[0]
