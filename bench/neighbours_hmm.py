"""Hidden Markov models beside hmmlearn, on the CPU, as their users call both.

``python -m bench.neighbours_hmm`` measures and writes raw results below ``bench/results``;
``--table`` renews the table of docs/sequences.md from the newest committed results. Contenders of
a line take turns, as in ``python -m bench``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from . import machine, report
from .measure import Contender, Line, sample

TARGET = machine.ROOT / "docs" / "sequences.md"
SYMBOLS = 50


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_hmm", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument("--out", type=Path, help="default bench/results/hmm-cpu-MACHINE-DATE.json")
    parser.add_argument("--table", action="store_true", help="renew the table of docs/sequences.md")
    args = parser.parse_args(words)
    if args.table:
        return report.renew_pairs(
            TARGET,
            "hmm-cpu",
            "| | sequences | semiring_mm | hmmlearn | |",
            "hmmlearn",
            "hmmlearn is",
        )
    import hmmlearn

    result = report.begin(machine.cores())
    result["versions"]["hmmlearn"] = hmmlearn.__version__
    for size in ((2, 5, 3),) if args.quick else ((64, 1000, 8), (64, 1000, 32)):
        for line in _lines(*size, result["threads"]):
            sample(line, quick=args.quick)
            result["lines"].append(line.raw())
            print(report.pair_row(line), flush=True)
    report.keep(result, "hmm-cpu", args.out, scratch=args.quick)
    return 0


def _lines(batch: int, steps: int, states: int, threads: int) -> Iterator[Line]:
    """A categorical model: its tables as they are, and what was seen as symbols."""
    from hmmlearn.hmm import CategoricalHMM

    from semiring_mm import sequences

    rng = np.random.default_rng(0)
    theirs = CategoricalHMM(n_components=states)
    theirs.startprob_ = rng.dirichlet(np.ones(states))
    theirs.transmat_ = rng.dirichlet(np.ones(states), states)
    theirs.emissionprob_ = rng.dirichlet(np.ones(SYMBOLS), states)
    theirs.n_features = SYMBOLS
    seen, lengths = rng.integers(SYMBOLS, size=(batch, steps)), [steps] * batch
    column = seen.reshape(-1, 1)

    def model() -> tuple[Any, ...]:
        table = np.log(theirs.emissionprob_.T)
        return table[seen], np.log(theirs.transmat_), np.log(theirs.startprob_)

    # of equally likely paths they may choose different ones: scores are compared
    for name, own, other in (
        ("Viterbi with path", lambda: sequences.viterbi(*model())[1].sum(),
         lambda: theirs.decode(column, lengths)[0]),
        ("log-likelihood", lambda: sequences.log_partition(*model()).sum(),
         lambda: theirs.score(column, lengths)),
        ("posterior probabilities", lambda: sequences.marginals(*model()).reshape(-1, states),
         lambda: theirs.predict_proba(column, lengths)),
    ):  # fmt: skip
        contenders = [Contender("semiring_mm", own), Contender("hmmlearn", other)]
        line = Line(name, f"{batch} × {steps}, {states} states", "", threads, contenders)
        wanted = other()
        line.check = lambda found, wanted=wanted: np.testing.assert_allclose(
            found, wanted, rtol=1e-6, atol=1e-6
        )
        yield line


if __name__ == "__main__":
    sys.exit(main())
