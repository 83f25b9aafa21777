"""Every verb against its plain counterpart, by every property, engine and library.

Rows are made in :mod:`reference.rows`, a test is a property, and a failure names row, options and
operands.
"""

import functools
import itertools
import re
from contextlib import nullcontext

import numpy as np
import pytest
import reference
from engines import on_plain
from reference import naive, rows
from reference.rows import PUBLIC, seed_of

import semiring_mm as sm
from semiring_mm.verb import Verb

ROWS = PUBLIC + rows.verbs()
every = pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)


def drawn(row, *what, sizes=None, dtype=None, options=None, **more):
    """Operands of a row, the first dtype and options unless others are asked for."""
    options = row.options[0] if options is None else options
    dtype = row.of(options)[0] if dtype is None else dtype
    sizes = row.all_sizes()[0] if sizes is None else sizes
    return row.operands(seed_of(row.name, *what), sizes, options, dtype, **more)


def right(row, operands, options, what):
    """The result of the package, and it is that of the plain verb."""
    found = row.run(operands, options)
    row.compare(found, row.expected(operands, options), options, what)
    return found


@every
def test_results_of_every_size(row):
    """Empty and size-1 axes among them, and operands that may be left out."""
    for options in row.options:
        for absent in row.optional():
            for sizes in row.all_sizes() if not absent else row.all_sizes()[:1]:
                operands = drawn(row, options, sizes, sizes=sizes, options=options, absent=absent)
                right(row, operands, options, f"{options} {sizes} without {absent}")


@every
def test_calls_that_come_again(row):
    """With the shapes and dtypes of the ones before, and other entries."""
    for options in row.options:
        for i in range(3):
            operands = drawn(row, options, i, options=options)
            right(row, operands, options, f"{options} the {i}th")


@every
def test_results_of_every_dtype(row):
    for options in row.options:
        for dtype in row.of(options):
            operands = drawn(row, options, dtype, dtype=dtype, options=options)
            right(row, operands, options, f"{options} {dtype}")


BATCHES = [((2, 1), (3,), ()), ((), (2,)), ((0,), ()), ((1,), (2,)), ((2, 0), (2, 1))]


@every
def test_leading_dimensions_broadcast(row):
    for options in row.options:
        for batches in BATCHES:
            if max(map(len, batches)) <= row.leading and (row.leading > 1 or batches[0]):
                only = batches if row.leading > 1 else batches[:1]
                operands = drawn(row, options, batches, options=options, batches=only)
                right(row, operands, options, f"{options} {batches}")


def layouts(x):
    """Arrays equal to `x` that lie in memory in other ways."""
    x = x.copy()
    if not x.ndim:
        yield "a scalar", x
        return
    yield "F", np.asfortranarray(x)
    wide = np.zeros([3 * n for n in x.shape], x.dtype)[(slice(None, None, 3),) * x.ndim]
    wide[...] = x
    yield "strided", wide
    turned = (slice(None, None, -1),) * x.ndim
    yield "reversed", np.ascontiguousarray(x[turned])[turned]
    raw = np.zeros(x.nbytes + 1, np.uint8)[1:].view(x.dtype).reshape(x.shape)
    raw[...] = x
    yield "unaligned", raw
    fixed = x.copy()
    fixed.flags.writeable = False
    yield "read-only", fixed
    if x.dtype.kind in "iuf" and x.dtype.itemsize > 1:
        yield "big-endian", x.astype(x.dtype.newbyteorder(">"))


@every
def test_operands_lie_in_memory_in_any_way(row):
    for options in row.options:
        batches = ((2,), (1,)) if row.leading > 1 else ((2,) * row.leading,)
        usual = drawn(row, options, "layouts", options=options, batches=batches)
        expected = row.run(usual, options)
        for name, x in usual.items():
            for how, y in layouts(x):
                row.compare(row.run(usual | {name: y}, options), expected, options, f"{name} {how}")
        for name, x in usual.items():
            if x.ndim and x.size:
                flat = np.broadcast_to(x[..., :1], x.shape)
                expected = row.run(usual | {name: flat.copy()}, options)
                found = row.run(usual | {name: flat}, options)
                row.compare(found, expected, options, f"{name} of stride 0")


@pytest.mark.parametrize("row", [r for r in ROWS if r.promotes], ids=lambda row: row.name)
def test_dtypes_promote_as_in_numpy(row):
    """And integers, truth values and floats go together."""
    for options in row.options:
        kinds = [np.dtype(x) for x in row.of(options)]
        kinds = [x for x in kinds if x.kind != "V" and x != reference.BFLOAT16]
        usual = drawn(row, options, "dtypes", options=options, dtype=kinds[0])
        names = [n for n, x in usual.items() if x.dtype == kinds[0]]
        for n in names:  # what all of them hold
            usual[n] = seed_of(row.name, n).integers(1, 4, usual[n].shape).astype(kinds[0])
        for kind in kinds[1:]:
            for name in names if len(names) > 1 else ():
                mixed = {n: x.astype(kind if n == name else kinds[0]) for n, x in usual.items()
                         if n in names}  # fmt: skip
                common = np.result_type(*mixed.values())
                same = {n: x.astype(common) for n, x in mixed.items()}
                found, expected = (row.run(usual | x, options) for x in (mixed, same))
                row.compare(found, expected, options, f"{options} {name} of {kind}")


# --- out ----------------------------------------------------------------------------------------

OUT = [r for r in ROWS if r.out]
with_out = pytest.mark.parametrize("row", OUT, ids=lambda row: row.name)


def outs(like):
    """Targets of other layouts, and what lies around each of them."""
    for how, x in layouts(like):
        if how != "read-only":
            base = x if x.base is None else x.base
            yield how, x, base


@with_out
def test_results_go_into_out(row):
    for options in row.options:
        for sizes in row.all_sizes():
            operands = drawn(row, options, sizes, options=options, sizes=sizes)
            (expected,) = row.run(operands, options)
            expected = np.asarray(expected)
            for how, out, base in outs(expected):
                around = base.copy()
                given = row.call(**operands, **options, out=out)
                assert given is out, f"{row.name} {options} {how}"
                np.testing.assert_array_equal(out, expected, f"{row.name} {options} {sizes} {how}")
                if base is not out:  # what lies between the entries is as it was
                    np.testing.assert_array_equal(base.view(np.uint8), around.view(np.uint8))


@with_out
def test_an_out_that_does_not_fit_is_refused(row):
    options = row.options[0]
    operands = drawn(row, "refused")
    (expected,) = row.run(operands, options)
    expected = np.asarray(expected)
    fixed = expected.copy()
    fixed.flags.writeable = False
    other = "f4" if expected.dtype == "f8" else "f8"
    wrong = [
        (np.zeros((*expected.shape, 2), expected.dtype), ValueError, "out has shape"),
        (expected.astype(other), ValueError, "dtype"),
        (fixed, ValueError, "read-only"),
        (expected.tolist(), TypeError, "out must be"),
    ]
    if expected.ndim:
        shared = np.lib.stride_tricks.as_strided(expected.copy(), strides=(0,) * expected.ndim)
        wrong.append((shared, ValueError, "share memory"))
    for out, error, words in wrong:
        with pytest.raises(error, match=words):
            row.call(**operands, **options, out=out)


@with_out
def test_out_may_be_an_operand(row):
    """Or overlap one that lies the other way round, or is shifted."""
    for options in row.options:
        square = row.settled(dict.fromkeys(row.axes(), 70))  # more than a tile of a product
        kinds = [x for x in row.of(options) if np.dtype(x) == "f8"]  # which no product packs
        operands = drawn(row, options, "itself", *kinds, options=options, sizes=square,
                         dtype=kinds[0] if kinds else None)  # fmt: skip
        expected = np.asarray(row.run(operands, options)[0])
        for name, x in operands.items():
            if (x.shape, x.dtype) != (expected.shape, expected.dtype) or not x.ndim:
                continue
            room = np.zeros((x.shape[0] + 1, *x.shape[1:]), x.dtype)
            for at, target in ((room[1:], room[1:]), (room[1:], room[:-1]), (room[1:].T,) * 2,
                               (room[1:].T, room[1:]), (room[1:], room[:0:-1])):  # fmt: skip
                at[...] = x
                out = row.call(**operands | {name: at}, **options, out=target)
                np.testing.assert_array_equal(out, expected, f"{row.name} {options} into {name}")


# --- special values and the ends of integers ----------------------------------------------------

SPECIAL = [np.nan, np.inf, -np.inf, -0.0, 0.0, 1.0, -2.0, 3.0]


@pytest.mark.parametrize("row", [r for r in ROWS if r.special], ids=lambda row: row.name)
@pytest.mark.parametrize("first", [0, 1], ids=["nan", "inf"])
def test_special_values(row, first):
    """As NumPy's functions have them: inf - inf and 0 · inf are NaN, and min and max keep a NaN."""
    sizes = row.all_sizes()[-1] | {"K": 3}
    for options in row.options:
        for dtype in row.of(options):
            if np.dtype(dtype).kind in "iub":
                continue
            rng = seed_of(row.name, options, dtype)
            operands = drawn(row, options, dtype=dtype, options=options, sizes=sizes)
            for n, x in operands.items():
                values = rng.choice(SPECIAL[first:], x.shape)
                values[(..., slice(None, None, 3)) if n == "b" else slice(None, None, 3)] = 2
                operands[n] = values.astype(dtype)
            right(row, operands, options, f"{options} {dtype}")


@pytest.mark.parametrize("row", [r for r in ROWS if r.whole], ids=lambda row: row.name)
def test_integers_are_exact_or_refused(row):
    """Of 8 and 16 bits, from small ones to those of the whole range."""
    outcomes = set()
    for options in row.options:
        for dtype in ("i1", "u1", "i2"):
            if np.dtype(dtype) not in reference.ALGEBRAS[options["semiring"]].dtypes:
                continue
            info = np.iinfo(dtype)
            for most in (3, 5, 9, 13, info.max // 2, info.max):
                operands = drawn(row, options, dtype, most, options=options, dtype=dtype)
                rng = seed_of(row.name, dtype, most)
                for n, x in operands.items():
                    if x.dtype == dtype:
                        low = max(info.min, -most - (most == info.max))
                        operands[n] = rng.integers(low, most, x.shape, endpoint=True, dtype=dtype)
                try:
                    expected = row.expected(operands, options)
                except AssertionError:  # of a plain result that does not fit
                    expected = None
                what = f"{options} {dtype} up to {most}"
                outcomes.add(expected is None)
                if expected is None:
                    with pytest.raises(OverflowError):
                        print(row.name, what, row.run(operands, options))
                else:
                    row.compare(row.run(operands, options), expected, options, what)
    assert outcomes == {True, False}


# --- errors -------------------------------------------------------------------------------------

REFUSING = pytest.mark.parametrize("row", [r for r in ROWS if r.refuses], ids=lambda row: row.name)


def refusal(row, operands, error):
    """What a call says at the door, not from within an engine."""
    with pytest.raises(error) as caught:
        row.call(**operands, **row.options[0])
    assert type(caught.value) is error
    return str(caught.value)


def resized(x, axis):
    """One more along an axis."""
    return np.concatenate([x, np.take(x, [0], axis)], axis)


@REFUSING
def test_sizes_that_do_not_match_are_named(row):
    usual = drawn(row, "sizes")
    for x in row.verb.operands:
        others = [c for y in row.verb.operands if y is not x for c in y.axes]
        for i, axis in enumerate(x.axes):
            if (axis in others or x.axes.count(axis) > 1) and "U" not in (axis, *x.axes):
                given = usual[x.name]
                wrong = resized(given, i - len(x.axes))
                message = refusal(row, usual | {x.name: wrong}, ValueError)
                sizes = {str(given.shape[i - len(x.axes)]), str(wrong.shape[i - len(x.axes)])}
                assert sizes <= set(re.findall(r"\d+", message)), message
                named = (x.name, "graph", re.split("[ ,]", row.name)[0])
                assert any(name in message for name in named), message


@REFUSING
def test_entries_that_are_no_real_numbers_are_named(row):
    usual = drawn(row, "entries")
    for name, x in usual.items():
        if x.dtype.kind in "fb":
            for wrong, word in (
                (x.astype(complex), "complex|real"), (x.astype(object), "object"),
                (x.astype(str), "<U|str"), (np.ma.masked_array(x), "masked"),
            ):  # fmt: skip
                message = refusal(row, usual | {name: wrong}, TypeError)
                assert re.search(word, message), message


# --- libraries ----------------------------------------------------------------------------------


def to_torch(x):
    torch = pytest.importorskip("torch")
    return torch.from_numpy(np.array(x))


def to_jax(x):
    jnp = pytest.importorskip("jax").numpy
    return jnp.asarray(x)


def to_strict(x):
    xp = pytest.importorskip("array_api_strict")
    return xp.asarray(np.array(x), device=xp.Device("device1"))


LIBRARIES = {"lists": np.ndarray.tolist, "torch": to_torch, "jax": to_jax, "strict": to_strict}


@pytest.mark.parametrize("library", LIBRARIES)
@every
def test_arrays_of_every_library(row, library):
    """Results are of the library of the operands, on their device; of lists, of NumPy."""
    if library not in row.libraries:
        pytest.skip("its lists are something else, or it is called with arrays alone")
    to = LIBRARIES[library]
    with pytest.importorskip("jax").enable_x64(True) if library == "jax" else nullcontext():
        for options in row.options:
            dtypes = [x for x in row.of(options) if np.dtype(x).name in NATIVE]
            if library == "lists":  # which are of float64, int64 or bool
                dtypes = [x for x in dtypes if np.dtype(x).itemsize in (1, 8)]
            for dtype in dtypes:
                usual = drawn(row, options, library, dtype=dtype, options=options)
                expected = row.run(usual, options)
                given = {n: x if x.dtype == "i8" and library == "strict" else to(x)
                         for n, x in usual.items()}  # fmt: skip
                found = row.call(**given, **options)
                found = found if isinstance(found, tuple) else (found,)
                like = next(iter(given.values()))
                for x in found:
                    if np.ndim(x) and library != "lists":
                        assert type(x) is type(like), f"{row.name} {options}: {type(x)}"
                        assert getattr(x, "device", None) == getattr(like, "device", None)
                found = [np.from_dlpack(x) if library == "strict" and type(x) is type(like) else
                         np.asarray(x) for x in found]  # fmt: skip
                row.compare(found, expected, options, f"{options} {dtype} of {library}")


NATIVE = ("float64", "float32", "int64", "int32", "bool")


# --- engines ------------------------------------------------------------------------------------


@every
def test_the_plain_engine_gives_the_same(row):
    """The contract of engines is enough: every row runs on one of NumPy that has nothing else."""
    for options in row.options:
        if "w" in options:  # expressions with a weight are an engine's own
            continue
        dtypes = [x for x in row.of(options) if np.dtype(x).name in NATIVE][:2]
        for dtype, absent in itertools.product(dtypes, row.optional()[:2]):
            usual = drawn(row, options, "plain", dtype=dtype, options=options, absent=absent)
            expected = row.run(usual, options)
            with on_plain():
                found = row.run(usual, options)
            row.compare(found, expected, options, f"{options} {dtype} without {absent}")


@pytest.mark.parametrize("row", [r for r in ROWS if r.device], ids=lambda row: row.name)
def test_a_device_gives_the_same(row, there):
    """Its kernels on the host, and on a device where there is one."""
    kinds = [np.dtype(x) for x in ("f4", "f8", "f2", "i4", "u1")] + [reference.BFLOAT16]
    for options in row.options[:2]:
        dtypes = [x for x in kinds if x in map(np.dtype, row.of(options))]
        for dtype, sizes in itertools.product(dtypes, row.all_sizes()[:: len(row.all_sizes()) - 1]):
            operands = drawn(row, options, "device", dtype=dtype, options=options, sizes=sizes)
            expected = row.expected(operands, options)
            given = {n: x if x.dtype == "i8" else there.put(x) for n, x in operands.items()}
            found = row.call(**given, **options)
            found = found if isinstance(found, tuple) else (found,)
            assert all(isinstance(x, there.kind) for x in found if np.ndim(x))
            row.compare([there.get(x) for x in found], expected, options,
                        f"{options} {dtype} {sizes}")  # fmt: skip


# --- gradients ----------------------------------------------------------------------------------

VERBS_WITH = [row for row in ROWS if row.verb.gradient is not None]
learning = pytest.mark.parametrize("row", VERBS_WITH, ids=lambda row: row.name)
#: Rows whose gradients have none: those of products whose ⊕ adds logarithms, and of closures.
NO_SECOND = {("product", "log_plus"), ("product", "plus_min")}
NO_SECOND |= {("closure", name) for name in ("min_plus", "max_times", "max_min", "min_max")}
NO_SECOND |= {("network_distances", None)}
WITH_SECOND = "chebyshev", "correlation", "cosine"
NO_SECOND |= {("cdist", name) for name in naive.METRICS if name not in WITH_SECOND}


def smooth(row, *what):
    """Operands without ties, as tensors that require gradients where they are numbers."""
    torch = pytest.importorskip("torch")
    operands = drawn(row, *what)
    rng = seed_of(row.name, *what)
    made = []
    for x in row.verb.operands:
        given = operands[x.name]
        if given.dtype.kind == "f":
            given = rng.uniform(0.2, 1, given.shape)
        made.append(torch.tensor(given, requires_grad=given.dtype.kind == "f"))
    return made


def results(library, row, operands, options):
    """The results that have gradients; -inf, behind an end, has none.

    Flags with which a row computes what its gradient reads are set.
    """
    verb, given = row.verb, tuple(options.values())
    if verb.prepared is not None:
        wide = verb.prepared([tuple(x.shape) for x in operands], *given)
        given = [y if kind == "bool" else x
                 for x, y, (_, kind) in zip(given, wide, verb.options, strict=True)]  # fmt: skip
    options = dict(zip(options, given, strict=True))
    found = library.run(row.verb.name, *operands, *(options[n] for n, _ in row.verb.options))
    there = row.verb.present(dict(zip(row.verb.names, (*operands, *options.values()), strict=True)))
    return [library.xp.nan_to_num(x, nan=np.nan, posinf=0, neginf=0)
            for x, axes, like in zip(found, there, row.verb.results, strict=True)
            if axes is not None and like.dtype is None]  # fmt: skip


@learning
def test_gradients_are_differences(row):
    torch = pytest.importorskip("torch")
    from semiring_mm.torch.operators import LIBRARY

    for options in row.options:
        operands = smooth(row, options)

        def call(*operands, options=options):
            return tuple(results(LIBRARY, row, operands, options))

        assert torch.autograd.gradcheck(call, operands, fast_mode=True), f"{row.name} {options}"
        second = functools.partial(torch.autograd.gradgradcheck, call, operands, fast_mode=True)
        if (row.verb.name, options.get("semiring") or options.get("metric")) in NO_SECOND:
            with pytest.raises(NotImplementedError, match="second derivatives"):
                second()
        else:
            assert second(), f"{row.name} {options}"


@learning
def test_operators_of_pytorch(row):
    """Their schemas, shapes without numbers, and vmap."""
    torch = pytest.importorskip("torch")
    from semiring_mm.torch.operators import LIBRARY

    for options in row.options:
        operands = smooth(row, "operators", options)
        op = getattr(torch.ops.semiring_mm, row.verb.name).default
        torch.library.opcheck(
            op, (*operands, *options.values()),
            test_utils=("test_schema", "test_autograd_registration", "test_faketensor"),
        )  # fmt: skip
        stacks = [torch.stack([x, x / 2 if x.is_floating_point() else x]) for x in operands]
        stacks = [x.detach() for x in stacks]
        call = functools.partial(results, LIBRARY, row, options=options)
        mapped = torch.vmap(lambda *x, call=call: tuple(call(x)))(*stacks)
        for i in range(2):
            one = results(LIBRARY, row, [x[i] for x in stacks], options)
            for x, y in zip(mapped, one, strict=True):
                torch.testing.assert_close(x[i], y)


@learning
def test_jax_has_the_gradients_of_pytorch(row):
    """Inside jit and vmap."""
    torch, jax = pytest.importorskip("torch"), pytest.importorskip("jax")
    from semiring_mm.jax.operators import LIBRARY as THERE
    from semiring_mm.torch.operators import LIBRARY

    for options in row.options[:: -(-len(row.options) // 4)]:  # compiled for seconds each
        operands = smooth(row, "jax", options)
        own = [i for i, x in enumerate(operands) if x.is_floating_point()]
        total = sum((x**2).sum() for x in results(LIBRARY, row, operands, options))
        expected = torch.autograd.grad(total, [operands[i] for i in own])

        def loss(*arrays, options=options):
            return sum((x**2).sum() for x in results(THERE, row, arrays, options))

        with jax.enable_x64(True):
            arrays = [jax.numpy.asarray(x.detach().numpy()) for x in operands]
            grad = jax.grad(loss, own)
            stacks = [jax.numpy.stack([x, x]) for x in arrays]
            for found in (jax.jit(grad)(*arrays), [x[1] for x in jax.vmap(grad)(*stacks)]):
                for x, y in zip(found, expected, strict=True):
                    np.testing.assert_allclose(x, y, atol=1e-10, err_msg=f"{row.name} {options}")


# --- a new row ----------------------------------------------------------------------------------


def spread(x, w, reverse, broken=False):
    """Each row of x by its weight, summed; the weight of the first, too, if it is broken."""
    w = 1.0 if w is None else w[..., None]
    y = (x * w)[..., ::-1] if reverse and not broken else x * w
    return (np.ascontiguousarray(y),)


def slope(at):
    g = at.came[0].flip(-1) if at["reverse"] else at.came[0]
    return g * at["w"][..., None], (g * at["x"]).sum(-1)


def toy(compute):
    return Verb("spread", "x ...NK, w ...N = 1; reverse: bool -> y ...NK", compute, slope)


def test_a_new_row_needs_its_plain_verb_and_no_test(monkeypatch):
    """Every property is asked of it; a mistake is noticed."""
    pytest.importorskip("torch")
    from semiring_mm.torch import operators

    verb = toy(lambda x, w, reverse: spread(np.asarray(x), None if w is None else np.asarray(w),
                                            reverse))  # fmt: skip
    monkeypatch.setitem(rows.VERBS, "spread", verb)
    with pytest.raises(AssertionError, match=r"write spread in .*naive\.py: 5 to 20 lines"):
        rows.verbs()
    plain = lambda x, w=None, reverse=False: spread(x, w, reverse)[0].copy()  # noqa: E731
    monkeypatch.setattr(naive, "spread", plain, raising=False)
    (row,) = (x for x in rows.verbs() if x.verb is verb)
    operators._define(verb, verb.compute)
    for test in (
        test_results_of_every_size, test_results_of_every_dtype, test_leading_dimensions_broadcast,
        test_operands_lie_in_memory_in_any_way, test_gradients_are_differences,
        test_operators_of_pytorch,
    ):  # fmt: skip
        test(row)
    wrong = rows.of_verb(toy(lambda x, w, reverse: spread(x, w, reverse, broken=True)))
    with pytest.raises(AssertionError, match=r"row spread \{'reverse': True\}"):
        test_results_of_every_size(wrong)


def test_every_public_function_is_here():
    """Or has tests of its own, since it takes or gives no arrays of a signature."""
    others = set(
        """BitMatrix Explanation Flows Gravity Histogram LabelledArray Nearest NegativeCycleError
        Paths PreparedGraph Semiring SemiringLawError Statistics Tiles __version__ accessibility
        adjacency explain flows get_num_threads load nearest prepare reconstruct_path semirings
        set_num_threads show_config statistics
        sgemm dgemm sgemv dgemv CRFLoss sample Alignment Metric Within inv null_space solve
        within""".split()
    )  # fmt: skip
    modules = (sm, sm.sequences, sm.alignment, sm.neighbours, sm.gf2)
    names = {name for module in modules for name in module.__all__}
    assert {re.split("[ ,]", row.name)[0] for row in PUBLIC} == names - others
