"""Arrays that do not lie as a verb of an engine reads them are refused, and named."""

import functools
import inspect
from types import SimpleNamespace

import numpy as np
import plain_engine
import pytest

from semiring_mm import layouts
from semiring_mm.cpu import engine as cpu
from semiring_mm.engine import named
from semiring_mm.gpu import engine as gpu
from semiring_mm.layouts import LAYOUTS, LayoutError, asserted

SIZES = dict.fromkeys(
    "columns count diagonals entries features k letters m others pairs rows samples".split(), 3
) | {"batch": 2, "n": 4, "steps": 5, "width": 1}
DTYPES = {"T": "f8", "U": "f4", "N": "i4", "F": "f4", "I": "i8", "*": "f8"}


def member(engine, verb):
    return functools.reduce(getattr, verb.split("."), engine)


def zeros(form):
    """An array of a form of the table."""
    if form.dtype in ("int", "number"):
        return 4
    axes = ("m", "n") if form.axes == ("...",) else form.axes
    shape = [3 if axis == "*" else layouts._value(axis.removesuffix("?"), SIZES) for axis in axes]
    return np.zeros(shape, DTYPES.get(form.dtype, form.dtype))


def flags_of(verb):
    return {row.flag.removeprefix("not ") for row in layouts._rows(verb) if row.flag}


def rows_of(verb, flags):
    """The lines of the table for calls with these flags."""
    for row in layouts._rows(verb):
        flag = row.flag.removeprefix("not ")
        there = row.name in flags or row.name not in flags_of(verb)
        if there and (not flag or (flag in flags) == (flag == row.flag)):
            yield row


def arguments(verb, flags):
    """What a verb accepts, in calls with these flags."""
    given = {flag: True if flag in flags else None for flag in flags_of(verb)}
    return given | {row.name: zeros(row.forms[0]) for row in rows_of(verb, flags)}


@functools.cache
def nothing(verb):
    """A verb that does nothing, with an engine's parameters."""

    def called(**options):
        return "called"

    called.__signature__ = inspect.signature(member(plain_engine, verb))
    return asserted(verb, called)


def call(verb, given):
    made = {name: x for name, x in given.items() if "." not in name}
    for name, x in given.items():
        outer, _, inner = name.partition(".")
        if inner:
            setattr(made.setdefault(outer, SimpleNamespace()), inner, x)
    return nothing(verb)(**made)


CASES = [(verb, flags) for verb in LAYOUTS for flags in dict.fromkeys([(), tuple(flags_of(verb))])]


@pytest.mark.parametrize(("verb", "flags"), CASES, ids=str)
def test_what_the_table_says_is_accepted(verb, flags):
    given = arguments(verb, flags)
    assert call(verb, given) == "called"


@pytest.mark.parametrize(("verb", "flags"), CASES, ids=str)
def test_all_else_is_refused(verb, flags):
    given, rows = arguments(verb, flags), list(rows_of(verb, flags))
    letters = [row.forms[0].dtype for row in rows]
    for row in rows:
        good, form = given[row.name], row.forms[0]
        bad = [] if row.forms[-1].dtype == "number" else ["abc"]
        if isinstance(good, np.ndarray):
            if letters.count(form.dtype) > 1 or form.dtype not in "TUN*":
                bad.append(good.astype("c16"))
            if form.dtype != "N" and good.itemsize > 1:
                bad.append(good.astype(good.dtype.newbyteorder()))
            if form.axes != ("...",):
                bad.append(good[np.newaxis, np.newaxis])
            if form.lies and good.shape[-1] > 1:
                bad += [np.broadcast_to(good[..., :1], good.shape), good[..., ::-1]]
        if row.bounds:
            bad += [good + 100, good - 100]
        for x in bad:
            with pytest.raises(LayoutError, match=rf"engine\.{verb}: "):
                call(verb, given | {row.name: x})


@pytest.mark.parametrize("verb", LAYOUTS)
@pytest.mark.parametrize("engine", [cpu, gpu, plain_engine], ids=["cpu", "gpu", "plain"])
def test_every_engine_has_the_arguments(engine, verb):
    found = getattr(engine, verb.partition(".")[0])
    if found is not None:  # not every engine has all verbs
        rows = layouts._rows(verb)
        names = {row.name.partition(".")[0] for row in rows}
        assert names <= set(inspect.signature(member(engine, verb)).parameters)


def model(**other):
    """The arguments of ``chains.posterior``, of two chains of five steps and three states."""
    shapes = {"a": (2, 4, 3, 3), "e": (2, 5, 3), "x": (2, 3), "end": (2, 3), "total": (2,)}
    given = {name: np.zeros(shape) for name, shape in shapes.items()}
    return given | {"out": None, "pairs": None, "lengths": np.full(2, 5)} | other


def test_a_message_names_verb_and_argument_and_what_is_accepted():
    """A kernel would read what is not there, and the process would end."""
    spread = np.broadcast_to(np.zeros((2, 5, 1)), (2, 5, 3))
    with pytest.raises(LayoutError) as caught:
        named("cpu").chains.posterior(**model(e=spread))
    assert str(caught.value) == (
        "engine.chains.posterior: e is float64 of shape (2, 5, 3) with strides (40, 8, 0); "
        "accepted: T[batch, steps, n] rows, where T = float64, batch = 2"
    )
    with pytest.raises(LayoutError, match="lengths has entries from 6 to 6; accepted: 0 to 5"):
        named("cpu").chains.posterior(**model(lengths=np.full(2, 6)))
    with pytest.raises(LayoutError, match=r"a is float64 of shape .*; accepted: .* rows"):
        named("cpu").chains.posterior(**model(a=np.zeros((2, 4, 3, 3)).swapaxes(2, 3)))


def test_a_layout_is_compared_once(monkeypatch):
    """But entries in each call."""
    verb, given = named("cpu").chains.posterior, model()
    verb(**given)
    monkeypatch.setattr(layouts, "_compare", None)
    verb(**given)
    with pytest.raises(LayoutError):
        verb(**given | {"lengths": np.full(2, 6)})


class Elsewhere:
    """An array on a device, whose entries would have to be waited for."""

    dtype, shape, strides, ndim = np.dtype(np.int64), (2,), (8,), 1


def test_entries_on_a_device_are_not_looked_at():
    given = arguments("chains.best_path", ())
    for lengths in (given["lengths"], Elsewhere(), given["lengths"], Elsewhere()):
        assert call("chains.best_path", given | {"lengths": lengths}) == "called"
