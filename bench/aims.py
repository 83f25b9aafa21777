"""The project's aims against what the newest committed results reach, for docs/performance.md.

An aim that is missed says what holds it. Rows without results are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from .headlines import find
from .measure import Line
from .report import newest, seconds, three

Value = Callable[[Line], float]


def rate(line: Line) -> float:
    """Pairs a second, in 10¹²."""
    return line.ours.rate / 1e12


def took(line: Line) -> float:
    return line.ours.median


def share(line: Line) -> float:
    """Percent of the ceiling."""
    return 100 * line.ours.rate / line.ceiling_rate


def against(*names: str) -> Value:
    """How many times the time of ours the fastest rival takes whose name begins so."""

    def value(line: Line) -> float:
        others = [c for c in line.contenders[1:] if c.samples and c.name.startswith(names)]
        if not others:
            raise LookupError(f"{line.case} {line.size} has no rival {names}")
        return min(c.median for c in others) / line.ours.median

    return value


def over(name: str) -> Value:
    """How many times as long as another call of ours."""
    return lambda line: 1 / against(name)(line)


def beyond_transfer(line: Line) -> float:
    """How many times as long as on the device, and a copy there and back at 55 GB/s."""
    copies = 2 * 4 * int(line.size) ** 2 / 55e9
    return line.ours.median / (line.ours.median * against("on the device")(line) + copies)


#: How values are written, by what they are.
FORMS: dict[str, Callable[[float], str]] = {
    "T/s": lambda x: f"{three(x)} T/s",
    "×": lambda x: f"× {three(x)}",
    "%": lambda x: f"{x:.0f} %",
    "s": seconds,
}


@dataclass(frozen=True)
class Aim:
    """What was aimed at, for a line of each size."""

    words: str
    case: str
    sizes: Sequence[str]
    value: Value
    form: str
    asked: float | Sequence[float]  # for all sizes, or for each
    held: str = ""  # what holds it, where it is missed
    most: bool = False  # a value is to be no larger; else no smaller
    kind: str = "gpu"

    def row(self, result: dict[str, Any]) -> str:
        """The row of the table; empty without results."""
        write, sign = FORMS[self.form], "≤" if self.most else "≥"
        asked, reached, missed = [], [], False
        for i, size in enumerate(self.sizes):
            try:
                value = self.value(find(result, self.case, size))
            except LookupError:
                continue
            bound = self.asked[i] if isinstance(self.asked, Sequence) else self.asked
            seen = float(f"{value:.3g}")
            good = seen <= bound if self.most else seen >= bound
            missed |= not good
            reached.append(f"{size}: {write(value)}" if good else f"{size}: **{write(value)}**")
            asked.append(f"{sign} {write(bound)}")
        if not reached:
            return ""
        words = ", ".join(asked if len(set(asked)) > 1 else asked[:1])
        cells = [self.words, words, "; ".join(reached), self.held if missed else ""]
        return f"| {' | '.join(cells)} |".replace("|  |", "| |")


def _sizes(*numbers: int) -> tuple[str, ...]:
    return tuple(map(str, numbers))


_CUBLAS = against("cuBLAS")
_CALLS = ("sgemm 64", "sgemm 256", "sgemm 512", "min_plus 64", "min_plus 256", "sgemv 256 × 256")
_VECTORS = ("sgemv 256 × 256", "sgemv 4096 × 4096", "sgemv 1000000 × 32", "sgemv 32 × 1000000",
            "sgemv 262144 × 128")  # fmt: skip
_CHAINS = ("256 × 1,000, 32 states", "64 × 1,000, 32 states")
_POINTS = ("32768 × 128 × 32768",)
_FEW, _MANY = ("20000 × 128 × 100000",), ("1000000 × 128 × 100000",)

_WAITS = "a step waits for the one before"
_TILE = (
    "with 128 columns, the start of a tile and the writing of its result take 8 %: with 6,144 the "
    "same loop reaches 14.7 T/s"
)
_SCREEN = "the screening product, whose result is tested entry by entry"
_SUMS = (
    "the sums, 13.2 T/s of them while candidates are kept; passes over the first 4,096 points and "
    "merging take 2 ms"
)
_NEAR = (
    "notes of changes, a seventh of the closure, and 0.1 ns for each entry to find the node on its "
    "way; at 4096 one launch (7.0 ms) where products take 5.8; at 8192 products that carry them"
)
_TENSOR = (
    "by the profiler tensor cores are busy in 94 % of the cycles at 4096 for both (97.9 % at 8192, "
    "96.9 % for cuBLAS); what remains there is the start of blocks, 4,400 of 277,000 cycles, and "
    "2,300 from tile to tile. The clock, 1.57 GHz of 1.98, follows the power limit"
)
_POWER = "the clock at the power limit, which differs from line to line for both"

AIMS: list[Aim] = [
    Aim("a repeated call, time of the host", "calls: time of the host", _CALLS, took, "s", 12e-6,
        "the driver's launch, CuPy's new array, and checks in Python: 3.3, 1.8 and 3.5 of 8.6 µs "
        "on a host whose CuPy calls take 15 to 20", most=True),
    Aim("sgemm, each call waited for, against CuPy", "calls: each waited for",
        ("sgemm 256", "sgemm 512", "sgemm 1024", "sgemm 2048"), against("CuPy"), "×", 0.95),
    Aim("sgemv, each call waited for, against CuPy", "calls: each waited for", _VECTORS,
        against("CuPy"), "×", 1.0),
    Aim("sgemm against cuBLAS", "sgemm", _sizes(4096, 8192, 12288, 16384), _CUBLAS, "×", 1.03,
        "the FMA pipe is busy in 84 % of cycles (cuBLAS: 79 %), by a profiler; register banks"),
    Aim("dgemm against cuBLAS", "dgemm", _sizes(2048, 4096, 8192), _CUBLAS, "×", 0.97, _POWER),
    Aim("float16 against cuBLAS", "gemm f16", _sizes(4096, 8192, 16384), _CUBLAS, "×", 1.0,
        _TENSOR),
    Aim("bfloat16 against cuBLAS", "gemm bf16", _sizes(4096, 8192, 16384), _CUBLAS, "×", 1.0,
        _TENSOR),
    Aim("emulated float32", "gemm f32, emulated", _sizes(4096, 8192, 16384), rate, "T/s",
        (70, 90, 90)),
    Aim("all shortest paths", "apsp f32", _sizes(1024, 2048, 4096, 8192, 16384), took, "s",
        (0.4e-3, 1.5e-3, 7e-3, 42e-3, 0.285), most=True),
    Aim("all shortest paths, 65,536 nodes", "apsp f32, the whole device", ("65536",), took, "s",
        16.5, "the arithmetic, at the ceiling of its inner loop", most=True),
    Aim("with predecessors, times as long", "apsp f32, predecessors",
        _sizes(1024, 2048, 4096, 8192, 16384), over("without predecessors"), "×", 1.6,
        "at 1,024 the kernels take × 1.40; the rest are the gaps between five launches", most=True),
    Aim("with predecessors, among points of a plane, times as long",
        "apsp f32, predecessors, near points", _sizes(512, 1024, 2048, 4096, 8192),
        over("without predecessors"), "×", 1.6, _NEAR, most=True),
    Aim("from the host and back, times the device's time and copies at 55 GB/s",
        "apsp f32, from the host", _sizes(1024, 2048, 4096, 16384), beyond_transfer, "×", 1.25,
        "the host's memory: a thread copies 10 GB/s, eight 30; new pages; starting the threads",
        most=True),
    Aim("or-and", "or-and bool", _sizes(8192, 32768), rate, "T/s", (3000, 4500)),
    Aim("xor-and", "xor-and bool", _sizes(8192, 32768), rate, "T/s", (3000, 4500)),
    Aim("min-plus of float16", "min-plus f16", _sizes(4096, 8192, 16384), rate, "T/s", 31),
    Aim("min-plus of bfloat16", "min-plus bf16", _sizes(8192), rate, "T/s", 31),
    Aim("Σ (a − b)² of a user's semiring", "Σ (a − b)² f32", _sizes(4096, 8192), rate, "T/s",
        13.9, "an addition and a multiply-add for each term"),
    *(
        Aim(f"{name}, × {'32 columns' if columns else 'a vector'}, against cuSPARSE",
            f"{name}, plus_times{columns}", ("1,000,000",), against("cuSPARSE", "CuPy"), "×", 1.0,
            "memory: each entry meets a number from elsewhere")
        for name in ("DIA, band", "CSR, band", "CSR, random", "CSR, power law")
        for columns in ("", ", 32 columns")
    ),
    Aim("Viterbi with path, against a PyTorch loop", "Viterbi with path", _CHAINS,
        against("PyTorch"), "×", 10, _WAITS),
    Aim("Viterbi with path, against pytorch-crf and torch-struct", "Viterbi with path", _CHAINS,
        against("pytorch-crf", "torch-struct"), "×", 5, _WAITS),
    Aim("log-partition with gradients, against a PyTorch loop", "log-partition with gradients",
        _CHAINS, against("PyTorch"), "×", 10, _WAITS),
    Aim("log-partition with gradients, of the size of apps/crf.py", "log-partition with gradients",
        ("64 × 20, 8 states",), against("PyTorch"), "×", 10,
        "the host's part of a backward pass: PyTorch's of a bare sum takes a third of this line"),
    Aim("the same in a CUDA graph, as the loop is",
        "log-partition with gradients, a CUDA graph", ("64 × 20, 8 states",),
        against("PyTorch, a loop"), "×", 10, _WAITS),
    Aim("a training step of apps/crf.py, in a CUDA graph as the loop's",
        "training step of a CRF, a CUDA graph", ("64 × 20, 8 states",), against("PyTorch, a loop"),
        "×", 10, "PyTorch's gradient of the embedding, a kernel as long as all others together"),
    Aim("log-partition with gradients, against torch-struct", "log-partition with gradients",
        _CHAINS, against("torch-struct"), "×", 5, _WAITS),
    Aim("CRF loss with gradients, against pytorch-crf", "CRF loss with gradients", _CHAINS,
        against("pytorch-crf"), "×", 5, _WAITS),
    Aim("cdist l1", "cdist l1, f32", _POINTS, rate, "T/s", 13.5, _TILE),
    Aim("cdist linf, of its loop", "cdist linf, f32", _POINTS, share, "%", 90, _TILE),
    Aim("cdist hamming, of its loop", "cdist hamming, f32", _POINTS, share, "%", 90, _TILE),
    Aim("l2 nearest 32, against PyTorch's cdist and topk", "knn l2, k = 32", _MANY,
        against("PyTorch"), "×", 10, _SCREEN),
    Aim("l1 nearest 32, against PyTorch's cdist and topk", "knn l1, k = 32", _FEW,
        against("PyTorch"), "×", 10, _SUMS),
    Aim("l2 nearest 32, against KeOps", "knn l2, k = 32", _FEW, against("KeOps"), "×", 3, _SCREEN,
        kind="keops"),
    Aim("l1 nearest 32, against KeOps", "knn l1, k = 32", _FEW, against("KeOps"), "×", 3, _SUMS,
        kind="keops"),
    Aim("CPU: min-plus, of its loop", "min-plus f32", _sizes(512, 1024, 2048, 4096), share, "%",
        88, "at 512 packing takes 6 % of a thread's time, writing C 3 %, the call 5 %", kind="cpu"),
    Aim("CPU: min-plus with argmin, of its loop", "min-plus f32 with argmin",
        _sizes(1024, 4096), share, "%", 75, "the search for the k reads both operands again",
        kind="cpu"),
    Aim("CPU: float32 product against NumPy's BLAS", "plus-times f32", _sizes(2048, 4096),
        against("NumPy"), "×", 1.0, "it is the same BLAS; what differs is noise", kind="cpu"),
    Aim("CPU: Viterbi against hmmlearn", "Viterbi with path",
        ("64 × 1000, 8 states", "64 × 1000, 32 states"), against("hmmlearn"), "×", 20,
        "the call, 0.1 ms, and the second thread's start", kind="sequences-cpu"),
    *(
        Aim(f"CPU: cdist {metric} against SciPy", metric,
            ("1,500 × 1,500 × 128, float64", "1,500 × 1,500 × 128, float32"), against("SciPy"),
            "×", 5, held, kind="cdist-cpu")
        for metric, held in (
            ("cityblock", ""), ("euclidean", ""), ("chebyshev", ""), ("hamming", ""),
            ("canberra", "eight divisions of float64 take 16 cycles, nine tenths of its time"),
            ("cosine", "writing the result to fresh memory, twice"),
        )
    ),
    *(
        Aim(f"CPU: nearest {metric} against scikit-learn", metric,
            ("1,000 × 20,000 × 16, float64, k = 10",), against("scikit-learn"), "×", 2,
            kind="knn-cpu")
        for metric in ("euclidean", "cityblock", "cosine")
    ),
]  # fmt: skip


def error_row(result: dict[str, Any]) -> str:
    """The row of the errors of emulated float32, from the results of ``bench.precision``."""
    worst = max(
        ours / cublas
        for line in result["lines"]
        for ours, cublas in zip(
            line["errors"]["emulated"], line["errors"]["cuBLAS float32"], strict=True
        )
    )
    value = FORMS["×"](worst)
    cells = ["emulated float32, errors times those of cuBLAS in float32", "≤ × 1.00"]
    return f"| {' | '.join(cells)} | at most {value if worst <= 1 else f'**{value}**'} | |"


def table() -> str:
    """The targets that are missed as Markdown, and how many there are in all."""
    results = {kind: newest(kind)[1] for kind in dict.fromkeys(aim.kind for aim in AIMS)}
    rows = []
    for aim in AIMS:
        result = results[aim.kind]
        if result is not None and (row := aim.row(result)):
            rows.append(row)
        if aim.case == "gemm f32, emulated" and (errors := newest("precision")[1]) is not None:
            rows.append(error_row(errors))
    missed = [row for row in rows if "**" in row]
    head = ["| measured | target | reached | bottleneck |", "| --- " * 4 + "|"]
    met = f"{len(rows) - len(missed)} of {len(rows)} targets are met at all sizes. The others:"
    return "\n".join([met, "", *head, *missed])
