"""Arrays that do not lie as a verb of an engine reads them are refused, and named."""

import ast
import builtins
import functools
import inspect
from types import SimpleNamespace

import numpy as np
import plain_engine
import pytest

from semiring_mm import engine as engines
from semiring_mm import graph_kernels, layouts
from semiring_mm.cpu import engine as cpu
from semiring_mm.engine import AlignmentRule, Ragged, named
from semiring_mm.gpu import engine as gpu
from semiring_mm.layouts import LayoutError, asserted, signature_of

SIZES = dict.fromkeys(
    "columns count diagonals entries features k letters m rows samples width words".split(), 3
) | {"batch": 2, "n": 4, "steps": 5}
DTYPES = {"T": "f8", "U": "f4", "N": "i4", "F": "f4", "I": "i8"} | layouts.DTYPES
#: Arguments that layouts depend on, in a call without options and in one with all.
OPTIONS = [
    {"every": False, "trans": False, "plan": None},
    {"every": True, "trans": True, "plan": SimpleNamespace(computed_in="f4", storage="f2")},
]


def declarations():
    for name in vars(engines.Engine):
        declared = engines.declared(name)
        if inspect.isfunction(declared):
            yield name, declared
        elif inspect.isclass(declared):
            for inner, method in vars(declared).items():
                if inspect.isfunction(method):
                    yield f"{name}.{inner}", method


DECLARED = dict(declarations())
SIGNATURES = {verb: signature_of(f"engine.{verb}", x) for verb, x in DECLARED.items()}
SIGNATURES = {verb: x for verb, x in SIGNATURES.items() if x.layouts}
CASES = [(verb, full) for verb in SIGNATURES for full in (0, 1)]


def parsed(layout):
    return ast.parse(layout, mode="eval").body


def form_of(layout, given):
    """Elements, axes, contiguity and range of an array, the first of several."""
    match layout:
        case ast.IfExp(test=test, body=body, orelse=other):
            return form_of(body if value(test, given) else other, given)
        case ast.BinOp(left=left):
            return form_of(left, given)
        case ast.Compare(left=inner, ops=[_]) | ast.Compare(comparators=[inner, _]):
            return form_of(inner, given) | {"ranged": True}
        case ast.Call(func=ast.Name(id=word), args=[inner]):
            return form_of(inner, given) | {"contiguous": word}
        case ast.Subscript(value=elements, slice=axes):
            axes = axes.elts if isinstance(axes, ast.Tuple) else [axes]
            word = ast.unparse(elements)
            return {"elements": word, "axes": axes, "ranged": False, "contiguous": ""}
    return {"elements": "", "ranged": False, "contiguous": ""}  # a number


def value(node, given):
    return eval(ast.unparse(node), {"max": max} | SIZES | given)


def zeros(layout, given):
    form = form_of(layout, given)
    if not form["elements"]:
        return 4
    shape = []
    for axis in form["axes"]:
        match axis:
            case ast.Slice():
                shape.append(3)
            case ast.List(elts=[inner]):
                shape.append(value(inner, given))
            case ast.Constant():
                shape += [3, 4]
            case _:
                shape.append(value(axis, given))
    word = form["elements"]
    return np.zeros(shape, DTYPES[word] if word in DTYPES else eval(word, dict(given)))


def arguments(verb, full):
    """What a verb accepts, with all that is optional or without."""
    signature = SIGNATURES[verb]
    given = dict.fromkeys(inspect.signature(DECLARED[verb]).parameters) | OPTIONS[full]
    given |= {name: SIZES[name] for name in given.keys() & {"n"}}
    for name in sorted(signature.layouts, key=lambda x: " if " in signature.layouts[x]):
        outer, _, inner = name.partition(".")
        if full or name not in signature.optional:
            x = zeros(parsed(signature.layouts[name]), given)
            if inner:
                given[outer] = given[outer] or SimpleNamespace()
                setattr(given[outer], inner, x)
            else:
                given[name] = x
    return given


@functools.cache
def nothing(verb):
    """A verb that does nothing, with the parameters of the contract."""
    return asserted(verb, DECLARED[verb], lambda *_, **__: "called")


def call(verb, given, changed=None, x=None):
    """Call a verb, with another array in place of one."""
    if changed:
        outer, _, inner = changed.partition(".")
        x = SimpleNamespace(**vars(given[outer]) | {inner: x}) if inner else x
        given = given | {outer: x}
    names = inspect.signature(DECLARED[verb]).parameters
    return nothing(verb)(
        *(given[name] for name, p in names.items() if p.kind != p.KEYWORD_ONLY and name != "self"),
        **{name: given[name] for name, p in names.items() if p.kind == p.KEYWORD_ONLY},
    )


@pytest.mark.parametrize(("verb", "full"), CASES)
def test_what_a_layout_says_is_accepted(verb, full):
    assert call(verb, arguments(verb, full)) == "called"


@pytest.mark.parametrize(("verb", "full"), CASES)
def test_all_else_is_refused(verb, full):
    given, signature = arguments(verb, full), SIGNATURES[verb]
    forms = {name: form_of(parsed(x), given) for name, x in signature.layouts.items()}
    there = {name for name in forms if full or name not in signature.optional}
    letters = [forms[name]["elements"] for name in there]
    for name in there:
        outer, *fields = name.split(".")
        form, good = forms[name], functools.reduce(getattr, fields, given[outer])
        bad = [] if "number" in signature.layouts[name] else ["abc"]
        if isinstance(good, np.ndarray):
            if letters.count(form["elements"]) > 1 or form["elements"] not in "TUN":
                bad.append(good.astype("c16"))
            if form["elements"] != "N" and good.itemsize > 1:
                bad.append(good.astype(good.dtype.newbyteorder()))
            if not isinstance(form["axes"][0], ast.Constant):
                bad.append(good[np.newaxis, np.newaxis])
            if form["contiguous"] and good.shape[-1] > 1:
                bad += [np.broadcast_to(good[..., :1], good.shape), good[..., ::-1]]
        if form["ranged"]:
            bad += [good + 100, good - 100]
        for x in bad:
            with pytest.raises(LayoutError, match=rf"engine\.{verb}: "):
                call(verb, given, name, x)


@pytest.mark.parametrize("module", [engines, graph_kernels], ids=["engine", "graph_kernels"])
def test_an_annotation_is_a_layout_or_a_type(module):
    """The type checker takes a name that it does not know for part of a layout."""
    own = [x for x in vars(module).values() if getattr(x, "__module__", "") == module.__name__]
    inner = [x for kind in own if inspect.isclass(kind) for x in vars(kind).values()]
    inner += [x.fget for x in inner if isinstance(x, property)]
    annotated = [x for x in own + inner if inspect.isfunction(x) or inspect.isclass(x)]
    assert len(annotated) > 20
    for x in annotated:
        if inspect.get_annotations(x) and not hasattr(x, "_fields"):
            laid_out = {name.partition(".")[0] for name in signature_of("", x).layouts}
            for name in inspect.get_annotations(x).keys() - laid_out:
                eval(str(x.__annotations__[name]), vars(builtins) | vars(module))


@pytest.mark.parametrize("verb", SIGNATURES)
@pytest.mark.parametrize("engine", [cpu, gpu, plain_engine], ids=["cpu", "gpu", "plain"])
def test_every_engine_has_the_arguments(engine, verb):
    member = getattr(engine, verb.partition(".")[0])
    if member is not None:  # not every engine has all verbs
        member = functools.reduce(getattr, verb.split("."), engine)
        names = {name.partition(".")[0] for name in SIGNATURES[verb].layouts}
        assert names <= set(inspect.signature(member).parameters)


def model(**other):
    """The arguments of ``chains.posterior``, of two chains of five steps and three states."""
    shapes = {"a": (2, 4, 3, 3), "e": (2, 5, 3), "x": (2, 3), "end": (2, 3), "total": (2,)}
    given = {name: np.zeros(shape) for name, shape in shapes.items()}
    return given | {"out": None, "pairs": None, "lengths": np.full(2, 5)} | other


def test_a_message_names_verb_and_argument_and_what_is_accepted():
    """A kernel would read what is not there, and the process would end."""
    posterior = named("cpu").chains.posterior
    spread = np.broadcast_to(np.zeros((2, 5, 1)), (2, 5, 3))
    with pytest.raises(LayoutError) as caught:
        posterior(**model(e=spread))
    assert str(caught.value) == (
        "engine.chains.posterior: e is float64 of shape (2, 5, 3) with strides (40, 8, 0); "
        "accepted: rows(T[batch, steps, n]) if symbols is None else whole(T[letters, n]), where "
        "T = float64, batch = 2, steps = 5, n = 3"
    )
    with pytest.raises(
        LayoutError, match=r"lengths has entries from 6 to 6; .* <= steps, where .*5"
    ):
        posterior(**model(lengths=np.full(2, 6)))
    with pytest.raises(LayoutError, match=r"a is float64 of shape .*; accepted: rows"):
        posterior(**model(a=np.zeros((2, 4, 3, 3)).swapaxes(2, 3)))


def test_symbols_are_rows_behind_the_ends_of_sequences_too():
    """A kernel may read the row of a step that no sequence has."""
    table, symbols = np.zeros((4, 3)), np.zeros((2, 5), "i8")
    lengths = np.array([2, 5])
    posterior = named("cpu").chains.posterior
    posterior(**model(e=table, symbols=symbols, lengths=lengths))
    symbols[0, 3] = 4
    with pytest.raises(LayoutError, match=r"symbols has entries from 0 to 4; .*letters = 4"):
        posterior(**model(e=table, symbols=symbols, lengths=lengths))


def test_a_signature_is_read_once(monkeypatch):
    """But arrays are compared in each call."""
    verb, given = named("cpu").chains.posterior, model()
    verb(**given)
    monkeypatch.setattr(layouts, "Signature", None)
    verb(**given)
    with pytest.raises(LayoutError):
        verb(**given | {"lengths": np.full(2, 6)})


def test_copies_may_change_the_order_of_bytes():
    x, to = np.arange(6.0).reshape(2, 3), np.zeros((2, 3), ">f8")
    named("cpu").copy(x, to)
    assert to.tolist() == x.tolist()
    with pytest.raises(LayoutError, match="to is float32"):
        named("cpu").copy(x, to.astype("f4"))


class Elsewhere:
    """An array on a device, whose entries would have to be waited for."""

    dtype, shape, strides, itemsize = np.dtype(np.int64), (2,), (8,), 8


def test_entries_on_a_device_are_not_looked_at():
    given = arguments("chains.best_path", 0)
    for lengths in (given["lengths"], Elsewhere(), given["lengths"], Elsewhere()):
        assert call("chains.best_path", given, "lengths", lengths) == "called"


@pytest.mark.parametrize("count", [1, 2])
def test_sequences_end_within_their_entries(count):
    """Of one as of several, whose bounds are compared in another way."""
    entries, rule = np.zeros((9, 1)), AlignmentRule("f8", "absolute", warp=True)
    align, right = named("cpu").align, Ragged(entries, np.full(count, 3), np.full(count, 6), 6)
    assert align(rule, right, right, None, [0.0] * 4, None, keep=False)[0].tolist() == [0] * count
    for starts, lengths, name in ((3, 7, "lengths"), (3, -1, "lengths"), (-1, 2, "starts"),
                                  (10, 0, "starts")):  # fmt: skip
        wrong = Ragged(entries, np.r_[0 * right.starts[1:], starts], np.full(count, lengths), 6)
        with pytest.raises(LayoutError, match=rf"engine.align: y.{name} has entries from"):
            align(rule, right, wrong, None, [0.0] * 4, None, keep=False)
