"""Signs such as → and ⊕ on a terminal or in a file that does not have them."""

from __future__ import annotations

import codecs
import contextlib
import sys
import unicodedata
from collections.abc import Iterator
from typing import TextIO

__all__ = ["exact", "fitting", "fitting_streams"]

# What stands in columns has forms of one character, so that they stay aligned.
_FORMS = {
    "×": "x", "⊗": "*", "⊕": "+", "·": "*", "–": "-", "—": "-", "−": "-", "÷": "/", "²": "^2",
    "³": "^3", "→": "->", "←": "<-", "…": "...", "≤": "<=", "≥": ">=", "≠": "!=", "±": "+-",
    "≈": "~", "∞": "inf", "‘": "'", "’": "'", "“": '"', "”": '"', "α": "alpha", "β": "beta",
}  # fmt: skip
_ERRORS = "semiring_mm.signs"


def _form(sign: str) -> str:
    """ASCII for one character: its form, its base letter, or a question mark."""
    found = _FORMS.get(sign) or unicodedata.normalize("NFKD", sign)
    return found if found.isascii() else (found[0] if found[0].isascii() else "?")


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_form, error.object[error.start : error.end])), error.end


codecs.register_error(_ERRORS, _replaced)


def fitting(text: str, stream: TextIO | None = None) -> str:
    """The text in characters that a stream (default standard output) can encode.

    Examples
    --------
    >>> import io
    >>> fitting("Málaga → Genève, n × n", io.TextIOWrapper(io.BytesIO(), "latin-1"))
    'Málaga -> Genève, n × n'
    """
    encoding = getattr(sys.stdout if stream is None else stream, "encoding", None) or "utf-8"
    return text.encode(encoding, _ERRORS).decode(encoding)


def exact(text: str) -> str:
    """The text, if standard output can encode it as it is: for data, not for reading.

    Raises
    ------
    ValueError
        If it cannot.
    """
    encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
    try:
        text.encode(encoding)
    except UnicodeEncodeError as error:
        raise ValueError(
            f"standard output is in {encoding}, which cannot hold {text[error.start]!a}: write to "
            f"a file with -o, or set PYTHONIOENCODING=utf-8"
        ) from None
    return text


@contextlib.contextmanager
def fitting_streams() -> Iterator[None]:
    """Within the block, standard output and error write every character in a form they have."""
    changed = []
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None and not codecs.lookup(stream.encoding).name.startswith("utf"):
            changed.append((reconfigure, stream.errors))
            reconfigure(errors=_ERRORS)
    try:
        yield
    finally:
        for reconfigure, errors in changed:
            with contextlib.suppress(ValueError):  # closed
                reconfigure(errors=errors)
