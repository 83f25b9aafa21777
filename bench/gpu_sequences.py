"""Cases of chains and alignments on a CUDA device, beside PyTorch, pytorch-crf and torch-struct.

A step of a rival is many short kernels, which the host issues one by one. So every contender is
timed as a user waits for it: from the call until its result is there.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import numpy as np

import semiring_mm as sm

from . import gpu
from .cases import OURS, Case, Options
from .measure import Contender, Line, Skip
from .neighbours_torch import log_partition_loop, viterbi_loop

__all__ = ["CASES"]

TABLE, DEVICE = "sequences-gpu", "cuda"
Size = tuple[int, int, int]  # sequences, steps, states
Call = Callable[[], Any]
#: Sequences, steps, states; of more sequences torch-struct's tables do not fit in 140 GB.
LARGE, FITTING, MANY = (256, 1000, 32), (64, 1000, 32), (64, 100, 512)
APP = (64, 20, 8)  # of apps/crf.py
_SMALL = ((3, 6, 5),)
EDITED = (2000, 200), (20_000, 400), (1_000_000, 15)  # pairs, letters
SCORED = (20_000, 400), (100_000, 400), (4_000, 1500)
_FEW = 4  # sequences whose results are compared


def _module(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


def _torch() -> Any:
    """PyTorch with a CUDA device, or the line is skipped."""
    torch = _module("torch")
    if torch is None:
        raise Skip("PyTorch absent")
    if DEVICE == "cuda" and not torch.cuda.is_available():
        raise Skip("PyTorch without CUDA")
    return torch


def _line(size: str, ours: Call, others: dict[str, tuple[str, Call]]) -> Line:
    """A line of whole calls; others by name, each with the module that it needs."""
    contenders = [Contender(OURS, gpu.alone(ours, 0.1), own_clock=True)]
    for name, (module, call) in others.items():
        if _module(module) is None:
            contenders.append(Contender(name, None, skipped="absent"))
        else:
            contenders.append(Contender(name, gpu.alone(call, 0.1), own_clock=True))
    return Line("", size, "", 0, contenders, most=3)


def _close(found: Any, expected: Any, off: float = 1e-3) -> None:
    """Compare tensors, or tuples of them, by the norm of what they differ in."""
    pairs = zip(found, expected, strict=True) if isinstance(found, tuple) else [(found, expected)]
    for x, y in pairs:
        gap = (x.double() - y.double()).norm() / y.double().norm()
        assert gap < off, f"off by {float(gap):.2g}"


def _field(torch: Any, size: Size) -> tuple[Any, Any]:
    """Emissions and transitions, as leaves."""
    batch, steps, states = size
    torch.manual_seed(0)
    emissions = torch.randn(batch, steps, states, device=DEVICE, requires_grad=True)
    return emissions, torch.randn(states, states, device=DEVICE, requires_grad=True)


def _potentials(torch: Any, emissions: Any, transitions: Any) -> Any:
    """As torch-struct has them: the later state before the earlier one."""
    later = transitions.T + emissions[:, 1:, :, None]
    return torch.cat([later[:, :1] + emissions[:, :1, None], later[:, 1:]], 1)


def viterbi(size: Size, options: Options) -> Line:
    """The best paths, beside a loop, pytorch-crf, and torch-struct on as many as fit."""
    torch = _torch()
    from semiring_mm.torch import sequences

    e, a = (x.detach() for x in _field(torch, size))
    calls: dict[str, tuple[str, Call]] = {
        "PyTorch, a loop": ("torch", lambda: viterbi_loop(e, a)),
    }
    path, score = sequences.viterbi(e[:_FEW], a)
    theirs = viterbi_loop(e[:_FEW], a)
    assert (path == theirs[0]).all(), "the paths differ"
    _close(score, theirs[1])
    if (crf := _module("torchcrf")) and size in (LARGE, *_SMALL):
        model = _pytorch_crf(crf, a)
        assert model.decode(e[:_FEW, :50]) == sequences.viterbi(e[:_FEW, :50], a)[0].tolist()
        calls["pytorch-crf"] = ("torchcrf", lambda: model.decode(e))
    if (struct := _module("torch_struct")) and size in (FITTING, *_SMALL):

        def argmax() -> Any:
            return struct.LinearChainCRF(_potentials(torch, e, a)).argmax

        calls["torch-struct"] = ("torch_struct", argmax)
    return _line(_words(size), lambda: sequences.viterbi(e, a), calls)


def log_partition(size: Size, options: Options) -> Line:
    """The log-sum over all paths with its gradients, beside a loop and torch-struct."""
    torch = _torch()
    from semiring_mm.torch import sequences

    leaves = _field(torch, size)

    def step(function: Callable[..., Any], count: int | None = None) -> Any:
        e, a = leaves
        return torch.autograd.grad(function(e[:count], a).sum(), (e, a))

    def struct_partition(e: Any, a: Any) -> Any:
        struct = importlib.import_module("torch_struct")
        return struct.LinearChainCRF(_potentials(torch, e, a)).partition

    calls: dict[str, tuple[str, Call]] = {
        "PyTorch, a loop": ("torch", lambda: step(log_partition_loop)),
    }
    ours = step(sequences.log_partition, _FEW)
    _close(ours, step(log_partition_loop, _FEW))
    if _module("torch_struct") and size in (FITTING, *_SMALL):
        _close(ours, step(struct_partition, _FEW))
        calls["torch-struct"] = ("torch_struct", lambda: step(struct_partition))
    return _line(_words(size), lambda: step(sequences.log_partition), calls)


def captured(size: Size, options: Options) -> Line:
    """The log-sum over all paths with its gradients, each contender as one CUDA graph."""
    torch = _torch()
    from semiring_mm.torch import sequences

    leaves = _field(torch, size)

    def graph(function: Callable[..., Any]) -> Call:
        return _captured(torch, lambda: torch.autograd.grad(function(*leaves).sum(), leaves))

    ours, loop = graph(sequences.log_partition), graph(log_partition_loop)
    _close(ours(), loop())
    return _line(_words(size), ours, {"PyTorch, a loop": ("torch", loop)})


def training(in_graph: bool) -> Callable[[Size, Options], Line]:
    """A step of apps/crf.py: embedding, loss, gradients and optimizer; and without the loss."""

    def build(size: Size, options: Options) -> Line:
        torch = _torch()
        from semiring_mm.torch import sequences

        words = torch.randint(32, size[:2], device=DEVICE)
        tags = torch.randint(size[2], size[:2], device=DEVICE)

        def made(loss_of: Callable[..., Any]) -> Call:
            torch.manual_seed(0)
            emit = torch.nn.Embedding(32, size[2], device=DEVICE)
            a = torch.nn.Parameter(torch.zeros(size[2], size[2], device=DEVICE))
            adam = torch.optim.Adam([*emit.parameters(), a], 0.1, fused=True, capturable=in_graph)

            def step() -> Any:
                loss = loss_of(emit(words), a, tags).mean()
                adam.zero_grad()
                loss.backward()
                adam.step()
                return loss.detach()

            return _captured(torch, step) if in_graph else step

        def plain(e: Any, a: Any, tags: Any) -> Any:
            score = e.gather(2, tags[:, :, None])[:, :, 0].sum(1)
            score = score + a[tags[:, :-1], tags[:, 1:]].sum(1)
            return log_partition_loop(e, a) - score

        def none(e: Any, a: Any, tags: Any) -> Any:
            return e.sum((1, 2)) + a.sum()

        ours, loop, rest = made(sequences.crf_loss), made(plain), made(none)
        for _ in range(5):
            _close(ours(), loop())
        others = {"PyTorch, a loop": ("torch", loop), "PyTorch without the loss": ("torch", rest)}
        return _line(_words(size), ours, others)

    return build


def _captured(torch: Any, step: Call) -> Call:
    """A step as one CUDA graph; what it returns, it returns again and again, in one place."""
    if DEVICE != "cuda":
        return step
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):  # allocates, and compiles
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay(kept: Call = step) -> Any:  # a graph does not keep the model whose memory it uses
        graph.replay()
        return result

    return replay


def crf_loss(size: Size, options: Options) -> Line:
    """A CRF's loss with its gradients, beside pytorch-crf."""
    torch = _torch()
    from semiring_mm.torch import sequences

    e, a = _field(torch, size)
    tags = torch.randint(size[2], size[:2], device=DEVICE)
    if (crf := _module("torchcrf")) is None:
        raise Skip("pytorch-crf absent")
    model = _pytorch_crf(crf, a)

    def ours(count: int | None = None) -> Any:
        return torch.autograd.grad(sequences.crf_loss(e[:count], a, tags[:count]).sum(), (e, a))

    def theirs(count: int | None = None) -> Any:
        return torch.autograd.grad(-model(e[:count], tags[:count]), (e, model.transitions))

    _close(ours(_FEW), theirs(_FEW))
    return _line(_words(size), ours, {"pytorch-crf": ("torchcrf", theirs)})


def _pytorch_crf(module: Any, transitions: Any) -> Any:
    import torch

    model = module.CRF(len(transitions), batch_first=True).to(DEVICE)
    with torch.no_grad():
        model.transitions.copy_(transitions)
        model.start_transitions.zero_()
        model.end_transitions.zero_()
    return model


def chain(semiring: str) -> Callable[[Size, Options], Line]:
    """The product of all matrices of each chain, beside a loop over the steps."""

    def build(size: Size, options: Options) -> Line:
        torch = _torch()
        batch, steps, states = size
        a = gpu.random((batch, steps, states, states), "f4", "normal")
        t = torch.from_dlpack(a)

        def loop(count: int | None = None) -> Any:
            state = t[:, 0]
            for step in t[:, 1:count].unbind(1):
                terms = state[..., None] + step[:, None]
                state = terms.amax(2) if semiring == "max_plus" else terms.logsumexp(2)
            return state

        few = 50
        _close(torch.from_dlpack(sm.chain(a[:, :few], semiring=semiring)), loop(few))
        calls: dict[str, tuple[str, Call]] = {"PyTorch, a loop": ("torch", loop)}
        return _line(_words(size), lambda: sm.chain(a, semiring=semiring), calls)

    return build


def _words(size: Size) -> str:
    batch, steps, states = size
    return f"{batch} × {steps:,}, {states} states"


# Alignments


def wave_loop(torch: Any, x: Any, y: Any, cost: Callable[[Any, Any], Any], gap: Any = None) -> Any:
    """Least costs of aligning rows of x and y, by a loop over the antidiagonals of their tables.

    A gap costs `gap`; without it, as in dynamic time warping, what the points that meet there cost.
    """
    (batch, n), m = x.shape, y.shape[1]
    rows = torch.arange(1, n + 1, device=x.device)
    before = torch.full((batch, n + 1), float("inf"), device=x.device)
    last = before.clone()
    last[:, 0] = 0
    for k in range(1, n + m + 1):
        columns = k - rows
        meet = cost(x, y[:, (columns - 1).clamp(0, m - 1)])
        step = meet if gap is None else gap
        best = torch.minimum(torch.minimum(last[:, :-1], last[:, 1:]) + step, before[:, :-1] + meet)
        new = torch.full_like(last, float("inf"))
        new[:, 1:] = torch.where((columns >= 1) & (columns <= m), best, float("inf"))
        if gap is not None and k <= m:
            new[:, 0] = k * gap
        if gap is not None and k <= n:
            new[:, k] = k * gap
        before, last = last, new
    return last[:, n]


def warping(size: tuple[int, int], options: Options) -> Line:
    """Dynamic time warping of pairs of series."""
    torch = _torch()
    pairs, length = size
    x, y = (gpu.random((pairs, length), "f4", "normal", seed) for seed in (1, 2))
    own = x[..., None], y[..., None]
    given = torch.from_dlpack(x), torch.from_dlpack(y)

    def loop(count: int | None = None) -> Any:
        rows = (v[:count] for v in given)
        return wave_loop(torch, *rows, lambda u, v: (u - v).abs())

    few = sm.alignment.dtw(own[0][:_FEW], own[1][:_FEW])
    _close(torch.from_dlpack(few), loop(_FEW))
    calls: dict[str, tuple[str, Call]] = {"PyTorch, a loop": ("torch", loop)}
    return _line(f"{pairs:,} pairs of {length:,}", lambda: sm.alignment.dtw(*own), calls)


def warping_of_features(size: tuple[int, int], options: Options) -> Line:
    """Dynamic time warping of two long series of many features."""
    torch = _torch()
    length, features = size
    x, y = (gpu.random((length, features), "f4", "normal", seed) for seed in (1, 2))
    given = torch.from_dlpack(x), torch.from_dlpack(y)
    point = torch.arange(length, device=DEVICE)[None]

    def loop() -> Any:
        costs = torch.cdist(*given, p=1)
        return wave_loop(torch, point, point, lambda i, j: costs[i, j])

    _close(torch.tensor(float(sm.alignment.dtw([x], [y])[0])), loop()[0].cpu())
    calls: dict[str, tuple[str, Call]] = {"PyTorch, cdist and a loop": ("torch", loop)}
    words = f"{length:,} steps of {features} features"
    return _line(words, lambda: sm.alignment.dtw([x], [y]), calls)


def edits(size: tuple[int, int], options: Options) -> Line:
    """Edit distances of pairs of sequences over four letters."""
    torch = _torch()
    pairs, length = size
    x, y = (gpu.random((pairs, length), "f4", "uniform", seed) * 4 for seed in (1, 2))
    x, y = x.astype("i4"), y.astype("i4")
    own = x, y
    given = torch.from_dlpack(x), torch.from_dlpack(y)

    def loop(count: int | None = None) -> Any:
        rows = (v[:count] for v in given)
        return wave_loop(torch, *rows, lambda u, v: (u != v).float(), 1.0)

    few = sm.alignment.edit_distance(own[0][:_FEW], own[1][:_FEW])
    _close(torch.from_dlpack(few), loop(_FEW))
    calls: dict[str, tuple[str, Call]] = {"PyTorch, a loop": ("torch", loop)}
    return _line(f"{pairs:,} pairs of {length:,}", lambda: sm.alignment.edit_distance(x, y), calls)


def scores(verb: str, *, proteins: bool) -> Callable[[tuple[int, int], Options], Line]:
    """Scores of pairs that are alike; of proteins by a matrix and with affine gaps."""

    def build(size: tuple[int, int], options: Options) -> Line:
        pairs, length = size
        x, other, change = (gpu.random(size, "f4", "uniform", seed) for seed in (1, 2, 3))
        x, other = ((20 * v).astype("i4") for v in (x, other))
        y = x.copy()
        y[:, 2:] = x[:, :-2]
        y[change < 0.3] = other[change < 0.3]
        align: Callable[..., Any] = getattr(sm.alignment, verb)
        scored: dict[str, Any] = {}
        if proteins:
            matrix = np.random.default_rng(0).integers(-4, 3, (20, 20))
            scored = {"matrix": np.minimum(matrix, matrix.T) + 10 * np.eye(20), "gap_open": -10}
        few = (v[-_FEW:].tolist() for v in (x, y))  # on the host
        assert align(x, y, **scored)[-_FEW:].tolist() == align(*few, **scored).tolist()
        return _line(f"{pairs:,} pairs of {length:,}", lambda: align(x, y, **scored), {})

    return build


def near(size: tuple[int, int], options: Options) -> Line:
    """Pairs within an edit distance of 2, of strings over 20 letters; a third are edited others."""
    count, length = size
    x = (gpu.random((count, length), "f4", "uniform", 1) * 20).astype("i4")
    third = count // 3
    x[:third, : length - 2] = x[third : 2 * third, : length - 2]
    found = sm.alignment.within(x, cutoff=2)
    for i in range(_FEW):
        d = sm.alignment.edit_distance(x[i : i + 1].repeat(count, axis=0), x)
        own = found.indices[int(found.indptr[i]) : int(found.indptr[i + 1])]
        assert own.tolist() == [j for j in (d <= 2).nonzero()[0].tolist() if j != i]
    words = f"{count:,} of {length}: {len(found.indices) // 2:,} pairs"
    return _line(words, lambda: sm.alignment.within(x, cutoff=2), {})


def alike(count: int, options: Options) -> Line:
    """The same of strings like the regions of T cell receptors that bind: most have many near."""
    rng = np.random.default_rng(3)
    letters = np.frombuffer(b"ACDEFGHIKLM", np.uint8)
    strings = [
        b"CASS" + row[:size].tobytes() + (b"QYF", b"EQYF", b"AFF", b"TQYF")[end]
        for row, size, end in zip(
            letters[rng.integers(0, 11, (count, 9))], rng.integers(5, 10, count),
            rng.integers(0, 4, count), strict=True,
        )
    ]  # fmt: skip
    found = sm.alignment.within(strings, cutoff=2, device=DEVICE)
    for i in range(_FEW):
        d = sm.alignment.cdist(strings[i : i + 1], strings)[0]
        own = found.indices[int(found.indptr[i]) : int(found.indptr[i + 1])]
        assert own.tolist() == [j for j in (d <= 2).nonzero()[0].tolist() if j != i]
    words = f"{count:,} of 12 to 17: {len(found.indices) // 2:,} pairs"
    return _line(words, lambda: sm.alignment.within(strings, cutoff=2, device=DEVICE), {})


CASES = [
    Case(
        "Viterbi with path",
        viterbi,
        (LARGE, FITTING, (32, 500, 128), (16, 100, 512), APP),
        _SMALL,
        table=TABLE,
    ),
    Case(
        "log-partition with gradients",
        log_partition,
        (LARGE, FITTING, MANY, APP),
        _SMALL,
        table=TABLE,
    ),
    Case("log-partition with gradients, a CUDA graph", captured, (APP,), _SMALL, table=TABLE),
    Case("training step of a CRF", training(False), (APP,), _SMALL, table=TABLE),
    Case("training step of a CRF, a CUDA graph", training(True), (APP,), _SMALL, table=TABLE),
    Case("CRF loss with gradients", crf_loss, (LARGE, APP), _SMALL, table=TABLE),
    Case("chain, max_plus", chain("max_plus"), (FITTING, (1, 10_000, 32)), _SMALL, table=TABLE),
    Case("chain, log_plus", chain("log_plus"), (FITTING, (1, 10_000, 32)), _SMALL, table=TABLE),
    Case("DTW", warping, ((1000, 1000), (64, 1000)), ((3, 9),), table=TABLE),
    Case("DTW of features", warping_of_features, ((4096, 512),), ((9, 5),), table=TABLE),
    Case(
        "edit distance",
        edits,
        EDITED,
        ((3, 9),),
        table=TABLE,
    ),
    *(
        Case(f"{words}{extra}", scores(verb, proteins=bool(extra)), SCORED, ((3, 9),), table=TABLE)
        for extra in ("", ", a matrix, affine gaps")
        for words, verb in (
            ("Smith–Waterman", "smith_waterman"),
            ("Needleman–Wunsch", "needleman_wunsch"),
        )
    ),
    Case("pairs within edit distance 2", near, ((1_000_000, 15),), ((40, 9),), table=TABLE),
    Case("pairs within edit distance 2", alike, (1_000_000,), (50,), table=TABLE),
]
