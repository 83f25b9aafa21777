"""Sequences beside hmmlearn, pytorch-crf, torch-struct, dtaidistance, tslearn and RapidFuzz.

``python -m bench.neighbours_sequences`` measures on the CPU and writes raw results below
``bench/results``; ``--table`` renews the table of docs/sequences.md from the newest committed
results, and ``--only PACKAGE`` measures beside one package. Each package is called as its users
call it, and packages that are not installed are left out. Contenders of a line take turns, as in
``python -m bench``.
"""

from __future__ import annotations

import argparse
import functools
import importlib.util
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from semiring_mm import alignment, sequences

from . import machine, report
from .measure import Brief, Contender, Line, sample

TARGET = machine.ROOT / "docs" / "sequences.md"
#: Distributions by the name of their module.
PACKAGES = {
    "hmmlearn": "hmmlearn", "torchcrf": "pytorch-crf", "torch_struct": "torch-struct",
    "dtaidistance": "dtaidistance", "tslearn": "tslearn", "rapidfuzz": "rapidfuzz",
}  # fmt: skip
SYMBOLS = 50
Call = Callable[[], Any]


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m bench.neighbours_sequences", description=__doc__
    )
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument(
        "--out", type=Path, help="default bench/results/sequences-cpu-MACHINE-DATE.json"
    )
    parser.add_argument("--only", choices=[*PACKAGES], help="one of the packages")
    parser.add_argument("--table", action="store_true", help="renew the table of docs/sequences.md")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_pairs(
            TARGET,
            "sequences-cpu",
            "| | sequences | semiring_mm | beside it | |",
            list(PACKAGES.values()),
            "the other is",
        )
    result = report.begin(machine.cores())
    result["versions"] |= {
        PACKAGES[name]: version(PACKAGES[name]) for name in PACKAGES if has(name)
    }
    for line in _lines(args.quick, result["threads"], args.only):
        sample(line, quick=args.quick, clock=Brief())
        result["lines"].append(line.raw())
        print(report.pair_row(line, named=True), flush=True)
    report.keep(result, "sequences-cpu", args.out, scratch=args.quick)
    return 0


def has(module: str) -> bool:
    return importlib.util.find_spec(module) is not None


def _lines(quick: bool, threads: int, only: str | None) -> Iterator[Line]:
    hmm = ((2, 5, 3),) if quick else ((1, 100, 4), (64, 1000, 8), (64, 1000, 32))
    crf = (2, 5, 3) if quick else (64, 256, 32)
    series = (3, 10, 20) if quick else (64, 256, 2000)
    strings = (3, 8) if quick else (2000, 200)
    for module, lines, sizes, near in (
        ("hmmlearn", functools.partial(_hidden_markov, "log"), hmm, 1e-6),
        ("hmmlearn", functools.partial(_hidden_markov, "scaling"), hmm, 1e-6),
        ("torchcrf", _pytorch_crf, (crf,), 1e-3),  # in float32
        ("torch_struct", _torch_struct, (crf,), 1e-3),
        ("dtaidistance", _dtaidistance, (series,), 1e-9),
        ("tslearn", _tslearn, (series,), 1e-9),
        ("rapidfuzz", _rapidfuzz, (strings,), 0),
    ):
        for size in sizes if has(module) and only in (None, module) else ():
            for case, text, own, other, *mode in lines(*size):
                name = ", ".join(filter(None, [PACKAGES[module], *mode]))
                contenders = [Contender("semiring_mm", own), Contender(name, other)]
                line = Line(case, text, "", threads, contenders)
                line.check = _like_the_first(near)
                yield line


def _like_the_first(near: float) -> Callable[[Any], None]:
    """A check that all results are those of the first contender."""
    seen: list[Any] = []

    def check(found: Any) -> None:
        seen.append(found)
        np.testing.assert_allclose(found, seen[0], rtol=near, atol=near)

    return check


def _hidden_markov(
    mode: str, batch: int, steps: int, states: int
) -> Iterator[tuple[str, str, Call, Call, str]]:
    """A categorical model: its tables as they are, and what was seen as symbols.

    In hmmlearn's `mode`: "log", its default, or "scaling", which is faster; Viterbi has but one.
    """
    from hmmlearn.hmm import CategoricalHMM

    rng = np.random.default_rng(0)
    theirs = CategoricalHMM(n_components=states, implementation=mode)
    theirs.startprob_ = rng.dirichlet(np.ones(states))
    theirs.transmat_ = rng.dirichlet(np.ones(states), states)
    theirs.emissionprob_ = rng.dirichlet(np.ones(SYMBOLS), states)
    theirs.n_features = SYMBOLS
    seen, lengths = rng.integers(SYMBOLS, size=(batch, steps)), [steps] * batch
    column = seen.reshape(-1, 1)

    def model() -> dict[str, Any]:
        tables = theirs.emissionprob_, theirs.transmat_, theirs.startprob_
        names = "emissions", "transitions", "start"
        scores = {name: np.log(table) for name, table in zip(names, tables, strict=True)}
        return scores | {"observations": seen}

    size = f"{batch} × {steps}, {states} states"
    if mode == "log":
        # of equally likely paths they may choose different ones: scores are compared
        yield (
            "Viterbi with path", size, lambda: sequences.viterbi(**model())[1].sum(),
            lambda: theirs.decode(column, lengths)[0], "",
        )  # fmt: skip
    yield (
        "log-likelihood", size, lambda: sequences.log_partition(**model()).sum(),
        lambda: theirs.score(column, lengths), mode,
    )  # fmt: skip
    yield (
        "posterior probabilities", size,
        lambda: sequences.marginals(**model()).reshape(-1, states),
        lambda: theirs.predict_proba(column, lengths), mode,
    )  # fmt: skip


def _field(batch: int, steps: int, tags: int) -> tuple[Any, Any, Any, str]:
    """Emissions and transitions as leaves, and tags."""
    import torch

    generator = torch.Generator().manual_seed(0)
    emissions = torch.randn(batch, steps, tags, generator=generator).requires_grad_()
    transitions = torch.randn(tags, tags, generator=generator).requires_grad_()
    states = torch.randint(tags, (batch, steps), generator=generator)
    return emissions, transitions, states, f"{batch} × {steps}, {tags} tags"


def _with_gradient(loss: Callable[[], Any], *leaves: Any) -> Call:
    """A step's loss and the sizes of its gradients."""

    def call() -> Any:
        for leaf in leaves:
            leaf.grad = None
        value = loss()
        value.backward()
        return np.array([value.item(), *(float(leaf.grad.norm()) for leaf in leaves)])

    return call


def _pytorch_crf(batch: int, steps: int, tags: int) -> Iterator[tuple[str, str, Call, Call]]:
    import torch
    from torchcrf import CRF

    from semiring_mm.torch import sequences as learn

    emissions, transitions, states, size = _field(batch, steps, tags)
    theirs = CRF(tags, batch_first=True)
    start, end = theirs.start_transitions, theirs.end_transitions
    with torch.no_grad():
        theirs.transitions.copy_(transitions)
    yield (
        "CRF loss with gradient", size,
        _with_gradient(
            lambda: learn.crf_loss(emissions, transitions, states, start, end).sum(),
            emissions, transitions, start, end,
        ),
        _with_gradient(lambda: -theirs(emissions, states), emissions, theirs.transitions, start,
                       end),
    )  # fmt: skip
    fixed = [v.detach() for v in (emissions, transitions, start, end)]
    yield (
        "CRF Viterbi with path", size,
        lambda: learn.viterbi(*fixed)[0].numpy(), lambda: np.array(theirs.decode(fixed[0])),
    )  # fmt: skip


def _torch_struct(batch: int, steps: int, tags: int) -> Iterator[tuple[str, str, Call, Call]]:
    import torch
    from torch_struct import LinearChainCRF

    from semiring_mm.torch import sequences as learn

    emissions, transitions, _, size = _field(batch, steps, tags)

    def theirs() -> Any:
        """Its potentials have the later tag before the earlier one."""
        later = transitions.T + emissions[:, 1:, :, None]
        first = later[:, :1] + emissions[:, :1, None]
        return LinearChainCRF(torch.cat([first, later[:, 1:]], 1))

    leaves = emissions, transitions
    yield (
        "log-partition with gradient", size,
        _with_gradient(lambda: learn.log_partition(*leaves).sum(), *leaves),
        _with_gradient(lambda: theirs().partition.sum(), *leaves),
    )  # fmt: skip


def _waves(many: int, length: int, long: int) -> tuple[Any, Any, Any]:
    """Noisy waves as rows, which pairs of them there are, and two long ones."""
    rng = np.random.default_rng(0)
    rows = np.sin(np.linspace(0, 20, length) + rng.uniform(0, 6, (many, 1)))
    rows += 0.1 * rng.standard_normal(rows.shape)
    two = np.sin(np.linspace(0, 50, long) + np.array([[0], [0.5]])) + np.linspace(0, 1, long)
    return rows, np.triu_indices(many, 1), two


def _warped(rows: Any, pairs: Any, **options: Any) -> Any:
    i, j = pairs
    return alignment.dtw(list(rows[i]), list(rows[j]), cost="squared", **options) ** 0.5


def _dtaidistance(many: int, length: int, long: int) -> Iterator[tuple[str, str, Call, Call]]:
    from dtaidistance import dtw

    rows, pairs, two = _waves(many, length, long)
    size, band = f"all pairs of {many} × {length}", length // 10
    yield (
        "DTW", size,
        lambda: _warped(rows, pairs), lambda: dtw.distance_matrix_fast(rows)[pairs],
    )  # fmt: skip
    yield (
        f"DTW, band {band}", size,
        lambda: _warped(rows, pairs, band=band),
        lambda: dtw.distance_matrix_fast(rows, window=band + 1)[pairs],
    )  # fmt: skip
    yield (
        "DTW with path", f"1 pair of {long}",
        lambda: _length(alignment.dtw(*two, cost="squared", return_path=True)[1], two),
        lambda: _length(dtw.warping_path_fast(*two), two),
    )  # fmt: skip


def _length(path: Any, two: Any) -> Any:
    """The distance along a path: of several best ones packages may choose different ones."""
    i, j = np.asarray(path).T
    return np.sqrt(((two[0][i] - two[1][j]) ** 2).sum())


def _tslearn(many: int, length: int, long: int) -> Iterator[tuple[str, str, Call, Call]]:
    from tslearn.metrics import cdist_dtw, dtw_path

    rows, pairs, two = _waves(many, length, long)
    cdist_dtw(rows[:2]), dtw_path(*rows[:2])  # a first call compiles, which takes seconds
    yield (
        "DTW", f"all pairs of {many} × {length}",
        lambda: _warped(rows, pairs), lambda: cdist_dtw(rows)[pairs],
    )  # fmt: skip
    yield (
        "DTW with path", f"1 pair of {long}",
        lambda: _length(alignment.dtw(*two, cost="squared", return_path=True)[1], two),
        lambda: _length(dtw_path(*two)[0], two),
    )  # fmt: skip


def _rapidfuzz(many: int, length: int) -> Iterator[tuple[str, str, Call, Call]]:
    from rapidfuzz import process
    from rapidfuzz.distance import Levenshtein

    rng = np.random.default_rng(0)
    first, second = (
        ["".join(row) for row in rng.choice(list("ACGT"), (many, length))] for _ in range(2)
    )
    yield (
        "edit distance", f"{many} pairs of {length}",
        lambda: alignment.edit_distance(first, second),
        lambda: process.cpdist(first, second, scorer=Levenshtein.distance, workers=-1),
    )  # fmt: skip
    for least, most in ((8, 16), (15, 15), (8, 60), (60, 60)):
        sizes = rng.integers(least, most + 1, many)
        words = ["".join(rng.choice([*"ACDEFGHI"], n)) for n in sizes]
        every = functools.partial(
            process.cdist, words, words, scorer=Levenshtein.distance, dtype=np.int32, workers=-1
        )
        size = f"{many:,} of {least}" + (f" to {most}" if most > least else "") + " letters"
        yield (
            "edit distance, all pairs", size, functools.partial(alignment.cdist, words), every
        )  # fmt: skip
        yield (
            "pairs within edit distance 2", size,
            lambda words=words: alignment.within(words, cutoff=2).indices,
            lambda every=every: np.nonzero(every(score_cutoff=2) + 9 * np.eye(many) <= 2)[1],
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
