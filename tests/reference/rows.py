"""The rows of the matrix: how each verb is called, and which arrays are put into it.

A row has the signature of :class:`semiring_mm.verb.Verb`, from which operands of every shape
follow, and a call. :func:`of_verb` makes one of each row of the package, so that a new verb needs
its plain counterpart in :mod:`naive` and nothing else.
"""

import functools
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import reference
import semiring_mm as sm
from semiring_mm.differentiable.rows import VERBS
from semiring_mm.verb import Verb

from . import naive

FLOATS, WHOLE = ("f8", "f4"), ("f8", "f4", "i4")


def small(rng, shape, dtype, options):
    """Small whole numbers, which no sum rounds; some are the zero of the semiring."""
    return reference.small(rng, options.get("semiring", "plus_times"), shape, np.dtype(dtype))


def scores(rng, shape, dtype, options):
    """Quarters: sums are exact, some are equal, and ⊗ = · distributes where none is below 0."""
    least = 0 if options.get("semiring") == "max_times" else -8
    return (rng.integers(least, 9, shape) / 4).astype(dtype)


def normal(rng, shape, dtype, options):
    """No two sums of which are equal."""
    return rng.normal(size=shape).astype(dtype)


def codes(rng, shape, dtype, options):
    return rng.integers(0, 3, shape)


def points(rng, shape, dtype, options):
    """Among few values, so that there are ties; never 0, for which some metrics are undefined."""
    return rng.integers(1, 5, shape).astype(dtype)


def bits(rng, shape, dtype, options):
    return rng.random(shape) < 0.4


def edges(rng, shape, dtype, options):
    """Matrices of a graph whose cycles do not improve anything."""
    name = options.get("semiring", "min_plus")
    least, most = {"max_plus": (-9, 0), "max_times": (0, 1)}.get(name, (0, 9))
    x = rng.integers(least, most + 1, shape).astype(dtype)
    zero = reference.stored(name, reference.ALGEBRAS[name].zero, np.dtype(dtype))
    return np.where(rng.random(shape) < 0.5, zero, x).astype(dtype)


@dataclass(frozen=True)
class Row:
    """A verb as the matrix sees it.

    Attributes
    ----------
    call, naive : callable
        Of operands and options by their names; `naive` of one item of a batch.
    options : sequence of dict
        Each is a case.
    dtypes : sequence, or callable of the options
    values : mapping
        How the entries of an operand are drawn, where not by `small`.
    sizes : callable
        Changes the sizes of axes that depend on others.
    leading : int
        How many leading dimensions there may be.
    near : float
        The relative error that is allowed, in units of the last place; 0: none.
    least : int
        The smallest size of an axis.
    large : sequence of int
        Sizes of the axes in a larger case, which is compared in one item.
    """

    name: str
    verb: Verb
    call: Callable[..., Any]
    naive: Callable[..., Any]
    options: Sequence[Mapping[str, Any]] = ({},)
    dtypes: Any = WHOLE
    values: Mapping[str, Callable[..., Any]] = field(default_factory=dict)
    sizes: Callable[[dict[str, int]], Any] = lambda sizes: None
    leading: int = 2
    near: float = 0
    least: int = 0
    large: Sequence[int] = ()
    whole_batch: Sequence[str] = ()  # operands that do not broadcast
    alone: Sequence[str] = ()  # operands without leading dimensions
    out: bool = False
    special: bool = False
    promotes: bool = True
    device: bool = False
    typed: bool = True  # whether the plain results have the dtype, too
    whole: bool = False  # whether integers that do not fit are errors
    libraries: Sequence[str] = ("lists", "torch", "jax", "strict")
    refuses: bool = True  # whether operands that do not fit are its own errors

    def of(self, options):
        return self.dtypes(options) if callable(self.dtypes) else self.dtypes

    def axes(self):
        return sorted({c for x in self.verb.operands for c in x.axes if c.isupper()})

    def all_sizes(self):
        """Distinct sizes; of each axis 1, and 0, alone; and larger ones."""
        letters = self.axes()
        usual = {c: 3 + i % 2 for i, c in enumerate(letters)}
        found = [usual] + [usual | {c: n} for n in (1, 0) if n >= self.least for c in letters]
        found += [dict(zip(letters, itertools.cycle(self.large), strict=False))] * bool(self.large)
        return [self.settled(sizes) for sizes in found]

    def settled(self, sizes):
        sizes = dict(sizes)
        self.sizes(sizes)
        return sizes

    def operands(self, rng, sizes, options, dtype, batches=((),), absent=()):
        """Operands of these leading dimensions, which take turns; optional ones may be absent."""
        found = {}
        batch = np.broadcast_shapes(*batches)
        turns = itertools.cycle(batches)
        for x in self.verb.operands:
            if x.name in absent:
                continue
            own = batch if x.name in self.whole_batch else ()
            own = own if x.name in (*self.whole_batch, *self.alone) else next(turns)
            shape = (*own, *(sizes[c] for c in x.axes))
            if x.name in self.values:
                found[x.name] = self.values[x.name](rng, shape, dtype, options)
            elif x.default in sizes:  # lengths
                first = self.verb.operands[0]  # which has one for each row of its own
                own = np.shape(found[first.name])[: -len(first.axes)]
                wide = own if first.axes.startswith("T") else batch
                found[x.name] = rng.integers(0, sizes[x.default] + 1, wide)
            elif x.dtype == "i8":
                found[x.name] = rng.integers(0, sizes.get("S", 2), shape)
            else:
                found[x.name] = small(rng, shape, dtype, options)
        return found

    def optional(self):
        """Sets of operands that may be absent: none, all, and each."""
        names = [x.name for x in self.verb.operands if x.default]
        return [(), *({(x,) for x in names} | {tuple(names)} - {()})]

    def run(self, operands, options):
        """The results of the package, which has left its operands as they were."""
        before = {n: x.copy() for n, x in operands.items() if isinstance(x, np.ndarray)}
        found = self.call(**operands, **options)
        for n, x in before.items():
            assert operands[n].tobytes() == x.tobytes(), f"{self.name} overwrote {n}"
        return found if isinstance(found, tuple) else (found,)

    def expected(self, operands, options):
        """The plain results of each item of the batch."""
        cut = {x.name: len(x.axes) for x in self.verb.operands}
        parts = {n: np.asarray(x) for n, x in operands.items() if x is not None}
        batch = np.broadcast_shapes(*(x.shape[: x.ndim - cut[n]] for n, x in parts.items()))
        wide = {n: np.broadcast_to(x, batch + x.shape[x.ndim - cut[n] :]) for n, x in parts.items()}
        items = []
        if 0 in batch:
            wide = {n: np.zeros((1, *x.shape[len(batch) :]), x.dtype) for n, x in wide.items()}
        for i in np.ndindex(batch if 0 not in batch else 1):
            with np.errstate(all="ignore"):
                one = self.naive(**{n: x[i] for n, x in wide.items()}, **options)
            items.append(one if isinstance(one, tuple) else (one,))
        results = (np.stack(x) for x in zip(*items, strict=True))
        return [x[: np.prod(batch, dtype=int)].reshape(batch + x.shape[1:]) for x in results]

    def compare(self, found, expected, options, what):
        """The same numbers, up to what the row may round."""
        with np.errstate(all="ignore"):
            for x, y in zip(found, expected, strict=True):
                x, y = np.asarray(x), np.asarray(y)
                assert x.shape == y.shape, f"{self.name} {what}: {x.shape} for {y.shape}"
                x, y = (reference.comparable(v) for v in (x, y))
                rounds = "log" in options.get("semiring", "log") and x.dtype.kind == "f"
                eps = rounds and self.near * float(np.finfo(x.dtype).eps)
                assert not self.typed or x.dtype == y.dtype, f"{self.name} {what}: {x.dtype}"
                if eps:
                    np.testing.assert_allclose(x, y, eps, eps, err_msg=f"{self.name} {what}")
                else:
                    np.testing.assert_array_equal(x, y, err_msg=f"{self.name} {what}")


def seed_of(*what):
    """A seed that does not change from run to run."""
    return np.random.default_rng(list(repr(what).encode()))


def row(name, signature, call, plain=None, **more):
    return Row(name, Verb(name, signature), call, plain or getattr(naive, name), **more)


# --- products -----------------------------------------------------------------------------------


def of_semiring(options):
    """The dtypes in which a semiring is computed, one of each size at least."""
    return reference.ALGEBRAS[options["semiring"]].dtypes


#: One dtype of each kind and size of words that kernels compute in.
KINDS = ("float32", "float64", "float16", "bfloat16", "int32", "uint16", "bool")


def of_scalars(options):
    kinds = (x for x in of_semiring(options) if x.name in KINDS)
    return [x for x in kinds if x.kind != "b" or "land" in options["semiring"]]


def cases(*options, **columns):
    """All combinations of the columns, after some dictionaries."""
    made = [dict(zip(columns, x, strict=True)) for x in itertools.product(*columns.values())]
    return [*options, *(made if columns or not options else ())]


SELECTIVE = ["min_plus", "max_plus", "max_min", "min_times", "max_times"]
FEW = ["plus_times", "min_plus", "max_min", "lor_land", "log_plus"]


def _gemm(a, b, c=None, *, alpha, beta, trans_a=False, trans_b=False, out=None, **options):
    c = {} if c is None else {"beta": beta, "c": c}
    return sm.gemm(alpha, a, b, **c, trans_a=trans_a, trans_b=trans_b, out=out, **options)


def _gemv(a, x, y=None, *, alpha, beta, out=None, **options):
    y = {} if y is None else {"beta": beta, "y": y}
    return sm.gemv(alpha, a, x, **y, out=out, **options)


SCALARS = cases(
    alpha=[None, 2], beta=[1, 3],
    semiring=["plus_times", "min_plus", "max_plus", "max_min", "max_times", "plus_min", "any_pair"],
) + cases(alpha=[True], beta=[True, False], semiring=["lor_land", "xor_land"])  # fmt: skip
PRODUCTS = [
    row(
        "matmul", "a ...MK, b ...KN -> c ...MN", sm.matmul,
        options=cases(semiring=reference.ALGEBRAS), dtypes=of_semiring, out=True, special=True,
        large=(33, 25, 65), near=8, device=True, whole=True,
    ),
    row(
        "matmul with return_arg", "a ...MK, b ...KN -> c ...MN, arg ...MN", sm.matmul,
        naive.matmul, options=cases(semiring=SELECTIVE, return_arg=[True]),
        dtypes=lambda options: [d for d in of_semiring(options) if d.name in KINDS], least=1,
        large=(33, 17, 70), special=True,
    ),
    row(
        "gemm", "a ...MK, b ...KN, c ...MN = none -> d ...MN", _gemm, options=SCALARS,
        dtypes=of_scalars, out=True,
        large=(35, 27, 40), device=True, whole=True, whole_batch="c",
    ),
    row(
        "gemm transposed", "a ...KM, b ...NK, c ...MN = none -> d ...MN", _gemm, naive.gemm,
        options=cases(semiring=["min_plus"], alpha=[2], beta=[3], trans_a=[True], trans_b=[True]),
        whole_batch="c",
    ),
    row(
        "gemv", "a ...MK, x ...K, y ...M = none -> d ...M", _gemv, options=SCALARS[1::3], leading=0,
        dtypes=of_scalars, large=(70, 37), whole=True, out=True,
    ),
    row(
        "gemv transposed", "a ...KM, x ...K, y ...M = none -> d ...M", _gemv, naive.gemv, leading=0,
        options=cases(semiring=["min_plus"], alpha=[2], beta=[3], trans=[True]),
    ),
    row(
        "matrix_power", "a ...NN -> c ...NN", sm.matrix_power,
        options=cases(semiring=["plus_times", "min_plus"], k=[0, 1, 2, 5, 6]), whole=True,
    ),
]  # fmt: skip

SUMS = ["ij,jk->ik", "ij->i", "ij,ij->", "i,j->ij", "ii->i", "ij,jk,kl->il", "ij,ij->ij", "ij->ji",
        "i->"]  # fmt: skip


def of_sum(subscripts):
    """A row of an Einstein sum; its operands have the axes that the letters name."""
    inputs = subscripts.partition("->")[0].split(",")
    names = [f"x{i}" for i in range(len(inputs))]
    signature = ", ".join(f"{n} ...{x.upper()}" for n, x in zip(names, inputs, strict=True))
    wide = ",".join(f"...{x}" for x in subscripts.replace("->", ",").split(","))
    wide = "->".join(wide.rsplit(",", 1))

    def call(semiring, out=None, **operands):
        return sm.einsum(wide, *operands.values(), semiring=semiring, out=out)

    def plain(semiring, **operands):
        return naive.einsum(*operands.values(), subscripts=subscripts, semiring=semiring)

    return row(
        f"einsum {subscripts}", f"{signature} -> y ...", call, plain, out=True, refuses=False,
        leading=1, device=True,
        options=cases(semiring=["plus_times", "min_plus", "max_min", "any_pair"]),
    )  # fmt: skip


PRODUCTS += map(of_sum, SUMS)

# --- chains and models of sequences -------------------------------------------------------------

STEPS = "a ...USS, emissions ...TS = none, x ...S = none, lengths ...:i8 = T"
MODEL = ("emissions ...TS, transitions ...{}, start ...S = 0, end ...S = 0, "
         "lengths ...:i8 = T -> y ...")  # fmt: skip
ENDS = {"emissions": scores, "transitions": scores, "start": scores, "end": scores}


def one_matrix_a_step(sizes):
    sizes["U"] = sizes["T"] if "T" in sizes else sizes["U"]


def one_less(sizes):
    sizes["U"] = max(0, sizes["T"] - 1)


def in_floats(function):
    """In the dtype that models of sequences are computed in."""

    @functools.wraps(function)
    def call(**named):
        found = function(**named)
        kind = np.float32 if named["emissions"].dtype.itemsize < 8 else np.float64
        kind = kind if named["emissions"].dtype.kind == "f" else np.float64
        made = found if isinstance(found, tuple) else (found,)
        made = tuple(np.asarray(x) if np.asarray(x).dtype == np.int32 else np.asarray(x, kind)
                     for x in made)  # fmt: skip
        return made if isinstance(found, tuple) else made[0]

    return call


def models(name, *, extra="", options=({},), absent=(), near=40, plain=None):
    """Rows of a function of a model: with one matrix for all steps, and with one for each."""
    function, plain = getattr(sm.sequences, name), plain or getattr(naive, name)
    for axes, sizes, kind in (("SS", lambda _: None, ""), ("USS", one_less, ", a matrix a step")):
        signature = MODEL.format(axes)
        for x in absent:
            signature = signature.replace(f"{x} ...S = 0, ", "")
        if extra:
            signature = signature.replace("lengths", f"{extra}, lengths")
        call = (lambda **named: function(**named).loss) if name == "crf_loss" else function
        yield row(
            f"{name}{kind}", signature, call, in_floats(plain), options=options, dtypes=FLOATS,
            alone=() if kind else ("transitions",), sizes=sizes,
            values=dict.fromkeys(ENDS, normal) if "k" in options[0] else ENDS, near=near, least=1,
            device=not options[0],
        )  # fmt: skip


CHAINED = ["plus_times", "min_plus", "max_plus", "log_plus", "lor_land"]
SEQUENCES = [
    row(
        "chain", STEPS + " -> y ...", sm.chain,
        options=cases(semiring=CHAINED, reverse=[False, True]), sizes=one_matrix_a_step, near=40,
        dtypes=lambda o: {"lor_land": ("?",), "log_plus": FLOATS}.get(o["semiring"], WHOLE),
        device=True,
    ),
    row(
        "chain of one matrix", STEPS.replace("TS = none", "TS") + " -> y ...", sm.chain,
        naive.chain, near=40, dtypes=FLOATS,
        options=cases(semiring=["max_plus", "log_plus"], reverse=[False, True]),
        sizes=lambda sizes: sizes.update(U=1), refuses=False,
    ),
    row(
        "scan", STEPS + " -> y ...", sm.scan, sizes=one_matrix_a_step, near=40,
        options=cases(semiring=CHAINED[:4], reverse=[False, True], inclusive=[True, False]),
        dtypes=lambda o: FLOATS if o["semiring"] == "log_plus" else WHOLE,
    ),
    *models("viterbi", options=[{}]), *models("viterbi", options=[{"k": 4}]),
    *models("log_partition"), *models("marginals", options=cases(pairs=[False, True])),
    *models("forward", absent=["end"]), *models("backward", absent=["start"]),
    *models("score", extra="tags ...T:i8"), *models("crf_loss", extra="tags ...T:i8"),
]  # fmt: skip

# --- graphs -------------------------------------------------------------------------------------

GRAPHS = [
    row(
        "closure", "a ...NN -> d ...NN", sm.closure, values={"a": edges}, leading=1,
        options=cases(semiring=["min_plus", "max_plus", "max_min", "min_max", "max_times"]),
        large=(37,), device=True,
        dtypes=lambda o: FLOATS if o["semiring"] == "max_times" else WHOLE,
    ),
    row("closure of truth values", "a ...NN -> d ...NN", sm.closure, naive.closure, leading=1,
        values={"a": bits}, options=[{"semiring": "lor_land"}], dtypes="?"),
    row(
        "apsp", "graph ...NN -> d ...NN", sm.apsp, values={"graph": edges}, leading=1,
        options=cases({}, method=["floyd_warshall", "squaring"]), large=(41,),
        dtypes=("f8", "f4", "i4", "i2"),
    ),
    row(
        "apsp from sources", "graph ...NN -> d ...RN", sm.apsp, naive.apsp, values={"graph": edges},
        leading=0, options=cases({"sources": [2, 0]}, {"sources": [1, 1]}), least=3,
    ),
    row(
        "apsp between nodes", "graph ...NN -> d ...RC", sm.apsp, naive.apsp, least=3, leading=0,
        values={"graph": edges}, libraries=("lists", "torch", "jax"),
        options=cases({"sources": [1, 1], "targets": [2, 0, 0]}, {"targets": [1]}),
    ),
]  # fmt: skip

# --- alignment, distances, truth values ---------------------------------------------------------

PAIR = "x ...N, y ...M -> d ..."
SCORES = cases(
    {}, {"match": 3, "mismatch": -2, "gap_open": -4}, {"band": 3},
    {"matrix": np.array([[3.0, -1, 0], [-1, 2, -2], [1, -2, 1]]), "gap": -2},
    {"gap_open": -1, "band": 4, "mismatch": -9},
)  # fmt: skip
CODES = {
    "device": True,
    "values": {"x": codes, "y": codes},
    "dtypes": ("i8",),
    "leading": 0,
    "refuses": False,
}
BITS = {"values": {"a": bits}, "dtypes": "?", "leading": 0}
METRICS = cases(metric=naive.METRICS) + cases(
    {"metric": "minkowski", "p": 3}, {"metric": "minkowski", "p": 0.5},
    {"metric": "cityblock", "w": [2.0, 0.0, 1.0]}, {"metric": "euclidean", "w": [1.0, 3.0, 0.5]},
)  # fmt: skip
POINTS = {"values": {"X": points, "Y": points}, "leading": 0, "dtypes": (*WHOLE, "i1")}


def three_columns(sizes):
    sizes["K"] = 3


#: Whose distances are exact, or sorted as exact ones are: ties are ties.
COUNTED = [x for x in METRICS if x["metric"] in ("cityblock", "sqeuclidean", "chebyshev")]


def of_metrics(name, plain, signature="X ...MK, Y ...NK -> d ...MN", metrics=METRICS, **options):
    """A function of metrics; its distances round, in float32 where the points are."""

    def typed(X, Y, **named):
        found = plain(X, Y, **named)
        kind = np.float32 if X.dtype == np.float32 else np.float64
        made = tuple(x.astype(kind) if x.dtype.kind == "f" else x
                     for x in (found if isinstance(found, tuple) else (found,)))  # fmt: skip
        return made if isinstance(found, tuple) else made[0]

    return row(
        name, signature, getattr(sm.neighbours, name), typed, near=60, sizes=three_columns,
        options=[x | options for x in metrics], out=name == "cdist", least=options.get("k", 1),
        **POINTS,
    )  # fmt: skip


OTHERS = [
    row(
        "dtw", "x ...ND, y ...MD -> d ...", sm.alignment.dtw, near=4, leading=0, dtypes=FLOATS,
        values={"x": scores, "y": scores}, least=1, large=(2, 33, 36), device=True,
        options=cases(cost=["absolute", "squared"], band=[None, 0, 1, 3]),
        libraries=("torch", "jax", "strict"),
    ),
    row("edit_distance", PAIR, sm.alignment.edit_distance, options=cases(band=[None, 0, 3]),
        large=(33, 36), **CODES),
    row("needleman_wunsch", PAIR, sm.alignment.needleman_wunsch, options=SCORES, large=(33, 36),
        **CODES),
    row("smith_waterman", PAIR, sm.alignment.smith_waterman, options=SCORES, large=(33, 36),
        **CODES),
    of_metrics("cdist", naive.cdist),
    of_metrics("knn", naive.knn, "X ...MK, Y ...NK -> d ...MR, i ...MR", COUNTED, k=2),
    of_metrics("argbest", naive.argbest, "X ...MK, Y ...NK -> d ...M, i ...M", COUNTED),
    of_metrics("radius_count", naive.radius_count, "X ...MK, Y ...NK -> n ...M", COUNTED, r=3),
    row("row_reduce", "a ...MN -> r ...MN", sm.gf2.row_reduce, large=(70, 90), **BITS),
    row("rank", "a ...MN -> r ...", sm.gf2.rank, large=(70, 90), **BITS),
    row("det", "a ...NN -> r ...", sm.gf2.det, large=(20,), **BITS),
]  # fmt: skip

PUBLIC = [*PRODUCTS, *SEQUENCES, *GRAPHS, *OTHERS]

# --- the rows of the package --------------------------------------------------------------------

#: Of an option by its name, what is tried; of a bool both, of a number or nothing, too.
ASKED = {
    "semiring": ["min_plus", "max_times", "plus_times", "log_plus"], "metric": list(naive.METRICS),
    "cost": ["absolute", "squared"], "what": [0, 1, 2], "verb": ["log_partition"], "p": [2.0],
    "sources": [None], "wanted": [False], "trees": [False], "paths": [False],
}  # fmt: skip
OF_KIND = {"bool": [False, True], "int?": [None, 1], "int": [1], "float": [2.0]}


#: Rows that are named otherwise in :mod:`naive`, or give more than one of its verbs.
PLAIN = {
    "product": lambda a, b, semiring, wanted: naive.matmul(a, b, semiring=semiring),
    "closure": lambda a, semiring, sources, trees: naive.closure(a, semiring=semiring),
    "chain": lambda every, **named: (naive.scan if every else naive.chain)(**named),
    "posterior": lambda what, verb, **model: (
        naive.log_partition(**model), *naive.marginals(**model, pairs=True))[: 1 + what],
    "best_path": lambda **model: naive.viterbi(**model)[::-1],
    "path_score": lambda verb, **model: naive.score(**model),
    "cdist": lambda X, Y, metric, p: naive.cdist(X, Y, metric=metric, p=p),
    "dtw": lambda paths, **named: naive.dtw(**named),
}  # fmt: skip
#: Rows that are the gradients of others, which are compared with differences.
SHARES = {"product_shares", "closure_trees"}
SETTLED = {"chain": one_matrix_a_step}


def of_verb(verb):
    """A row of the matrix from one of the package."""
    asked = {name: ASKED.get(name) or OF_KIND[kind] for name, kind in verb.options}
    if verb.name == "product":
        asked["semiring"] = [*asked["semiring"], "plus_min", "max_min", "min_max"]
    if verb.name == "closure":
        asked["semiring"] = ["min_plus", "max_times", "max_min", "min_max"]
    plain = PLAIN.get(verb.name) or getattr(naive, verb.name, None)
    assert plain, f"write {verb.name} in {naive.__file__}: 5 to 20 lines of NumPy"
    floats = {x.name: edges if verb.name == "closure" else scores for x in verb.operands
              if x.dtype is None}  # fmt: skip

    def call(**named):
        found = verb.compute(*(named.get(name) for name in verb.names))
        return tuple(x for x in found if x is not None)

    return Row(
        f"row {verb.name}", verb, call, plain, options=cases(**asked), dtypes=("f8",), near=200,
        least=1, sizes=SETTLED.get(verb.name, lambda sizes: sizes.update(U=1)), values=floats,
        refuses=False, libraries=("torch", "jax"),
    )  # fmt: skip


def verbs():
    """A row of each verb of the package."""
    return [of_verb(verb) for name, verb in VERBS.items() if name not in SHARES]
