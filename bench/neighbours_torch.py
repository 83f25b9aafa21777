"""Products and closures with their gradients, against the same by PyTorch's own operators.

``python -m bench.neighbours_torch`` measures and writes raw results below ``bench/results``;
``--device cuda`` does so on the current CUDA device; ``--table`` renews the tables of docs/torch.md
from the newest committed results. Contenders of a line take turns, as in ``python -m bench``; how
much memory a step needs at most on the CPU is taken from a process of its own for each.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from . import machine, report
from .measure import Brief, Contender, Line, sample

TARGET = machine.ROOT / "docs" / "torch.md"
Step = Callable[[], Any]  # forward, and backward too where the line says so


def main(words: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.neighbours_torch", description=__doc__)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--quick", action="store_true", help="tiny sizes, two samples")
    parser.add_argument(
        "--out", type=Path, help="default bench/results/torch-DEVICE-MACHINE-DATE.json"
    )
    parser.add_argument("--table", action="store_true", help="renew the tables of docs/torch.md")
    parser.add_argument("--memory", nargs=2, metavar=("LINE", "WHO"), help=argparse.SUPPRESS)
    args = parser.parse_args(words)
    if args.table:
        return report.renew_page(TARGET, ("torch-cpu", "torch-cuda"), table)
    if args.memory:
        print(_memory(*args.memory, args.device, args.quick))
        return 0
    result = _measure(args.device, args.quick)
    report.keep(result, f"torch-{args.device}", args.out, scratch=args.quick)
    return 0


def _measure(device: str, quick: bool) -> dict[str, Any]:
    import torch

    result = report.begin(torch.get_num_threads(), on_device=device == "cuda")
    result["versions"]["torch"] = torch.__version__
    for name, make in LINES.items():
        size, inputs, steps = make(device, quick)
        contenders = [Contender(who, step) for who, step in steps.items()]
        line = Line(name, size, "", result["threads"], contenders)
        for step in steps.values():  # compiles what it needs
            step()
        line.check = _like(inputs, steps["PyTorch"]())
        sample(line, quick=quick, clock=Brief())
        result["lines"].append(line.raw())
    contenders = [(line, one) for line in result["lines"] for one in line["contenders"]]
    with ThreadPoolExecutor(1 if device == "cuda" else machine.cores()) as pool:
        peaks = pool.map(
            lambda pair: 0 if quick else _peak(pair[0]["case"], pair[1]["name"], device), contenders
        )
        for (_, one), peak in zip(contenders, peaks, strict=True):
            one["memory"] = peak
    print("\n".join(map(row, result["lines"])))
    return result


def _like(inputs: list[Any], expected: list[Any]) -> Callable[[Any], None]:
    """The loss, and gradients times inputs: what paths equally long but for rounding agree in."""
    import torch

    def told(found: list[Any]) -> Any:
        products = ((g * x).sum() for g, x in zip(found[1:], inputs, strict=False))
        return torch.stack([found[0], *products]).detach()

    wanted = told(expected)
    return lambda found: torch.testing.assert_close(told(found), wanted, rtol=1e-3, atol=1e-2)


def _peak(name: str, who: str, device: str) -> int:
    """What :func:`_memory` says; on the CPU in a process of its own."""
    if device == "cuda":
        return _memory(name, who, device, quick=False)
    command = [sys.executable, "-m", "bench.neighbours_torch", "--device", device]
    command += ["--memory", name, who]
    done = subprocess.run(command, cwd=machine.ROOT, capture_output=True, text=True, check=True)
    return int(done.stdout)


def _memory(name: str, who: str, device: str, quick: bool) -> int:
    """Bytes that a step takes at most; it is run on tiny data before."""
    import torch

    LINES[name](device, True)[2][who]()
    step = LINES[name](device, quick)[2][who]
    if device == "cuda":
        import cupy

        pool = cupy.get_default_memory_pool()
        torch.cuda.empty_cache()
        pool.free_all_blocks()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_reserved() + pool.total_bytes()
        step()
        return int(torch.cuda.max_memory_reserved() + pool.total_bytes() - before)
    Path("/proc/self/clear_refs").write_text("5")  # the peak begins anew
    before = _resident("VmRSS")
    step()
    return _resident("VmHWM") - before


def _resident(what: str) -> int:
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found is not None
    return int(found[1]) * 1024


# --- the lines ----------------------------------------------------------------------------------


def _steps(device: str, inputs: list[Any], ours: Step, plain: Step, backward: bool = True) -> Any:
    """Both as functions without arguments that are over when they return."""
    import torch

    def step(function: Any) -> Step:
        def run() -> Any:
            loss = function(*inputs)
            found = [loss, *(torch.autograd.grad(loss, inputs) if backward else ())]
            if device == "cuda":
                torch.cuda.synchronize()
            return found

        return run

    return inputs, {"semiring_mm.torch": step(ours), "PyTorch": step(plain)}


def _product(semiring: str, backward: bool) -> Any:
    def make(device: str, quick: bool) -> Any:
        import torch

        from semiring_mm.torch import matmul

        n = 32 if quick else 1024 if device == "cuda" else 512
        torch.manual_seed(0)
        inputs = [torch.randn(n, n, device=device, requires_grad=True) for _ in "ab"]
        g = torch.randn(n, n, device=device)

        def plain(a: Any, b: Any) -> Any:
            terms = a[:, :, None] + b
            return ((terms.amin(1) if semiring == "min_plus" else terms.logsumexp(1)) * g).sum()

        def ours(a: Any, b: Any) -> Any:
            return (matmul(a, b, semiring) * g).sum()

        return str(n), *_steps(device, inputs, ours, plain, backward)

    return make


def _paths(device: str, quick: bool) -> Any:
    import torch

    from semiring_mm.torch import apsp

    n = 32 if quick else 1024 if device == "cuda" else 512
    torch.manual_seed(0)
    inputs = [torch.rand(n, n, device=device, requires_grad=True)]
    g = torch.rand(n, n, device=device)

    def plain(w: Any) -> Any:
        d = w.masked_fill(torch.eye(n, dtype=torch.bool, device=device), 0)
        for k in range(n):
            d = torch.minimum(d, d[:, k : k + 1] + d[k])
        return (d * g).sum()

    return str(n), *_steps(device, inputs, lambda w: (apsp(w) * g).sum(), plain)


def log_partition_loop(emissions: Any, transitions: Any) -> Any:
    """The log-sum over all paths, step by step in PyTorch."""
    state = emissions[:, 0]
    for emission in emissions[:, 1:].unbind(1):
        state = (state[:, :, None] + transitions).logsumexp(1) + emission
    return state.logsumexp(1)


def viterbi_loop(emissions: Any, transitions: Any) -> tuple[Any, Any]:
    """The best paths and their scores, step by step in PyTorch."""
    import torch

    with torch.no_grad():
        state, before = emissions[:, 0], []
        for emission in emissions[:, 1:].unbind(1):
            best, argbest = (state[:, :, None] + transitions).max(1)
            state = best + emission
            before.append(argbest)
        score, at = state.max(1)
        path = [at]
        for argbest in reversed(before):
            at = argbest.gather(1, at[:, None])[:, 0]
            path.append(at)
        return torch.stack(path[::-1], 1), score


def _chain(
    verb: str, on_host: tuple[int, int, int], on_device: tuple[int, int, int] | None = None
) -> Any:
    """A batch of sequences of some length and number of states, by a loop over their steps."""

    def make(device: str, quick: bool) -> Any:
        import torch

        from semiring_mm.torch import sequences

        on_cuda = on_device if device == "cuda" and on_device else on_host
        batch, length, tags = (2, 5, 7) if quick else on_cuda
        torch.manual_seed(0)
        inputs = [
            torch.randn(batch, length, tags, device=device, requires_grad=True),
            torch.randn(tags, tags, device=device, requires_grad=True),
        ]

        def ours(emissions: Any, transitions: Any) -> Any:
            if verb == "viterbi":
                return sequences.viterbi(emissions.detach(), transitions.detach())[1].sum()
            return sequences.log_partition(emissions, transitions).sum()

        def loop(emissions: Any, transitions: Any) -> Any:
            if verb == "viterbi":
                return viterbi_loop(emissions, transitions)[1].sum()
            return log_partition_loop(emissions, transitions).sum()

        size = f"{batch} × {length}, {tags} tags"
        return size, *_steps(device, inputs, ours, loop, verb != "viterbi")

    return make


LINES: dict[str, Any] = {
    "min-plus product": _product("min_plus", False),
    "min-plus product and gradients": _product("min_plus", True),
    "log-plus product": _product("log_plus", False),
    "log-plus product and gradients": _product("log_plus", True),
    "all shortest paths and gradient": _paths,
    "normalizer of a CRF and gradients": _chain("sum", (64, 64, 128)),
    "long normalizer of a CRF and gradients": _chain("sum", (16, 1000, 32), (256, 1000, 32)),
    "Viterbi with path": _chain("viterbi", (16, 1000, 32), (256, 1000, 32)),
}


# --- the table ----------------------------------------------------------------------------------


def _megabytes(count: int) -> str:
    return f"{report.three(count / 1e6)} MB"


def row(raw: dict[str, Any]) -> str:
    ours, plain = Line.from_raw(
        raw
        | {"contenders": [{k: v for k, v in c.items() if k != "memory"} for c in raw["contenders"]]}
    ).contenders
    memory = [_megabytes(c["memory"]) for c in raw["contenders"]]
    times = report.three(plain.median / ours.median)
    cells = [raw["case"], raw["size"], report.seconds(ours.median), memory[0]]
    return f"| {' | '.join([*cells, report.seconds(plain.median), memory[1], f'× {times}'])} |"


def table(result: dict[str, Any], source: str) -> str:
    note = "Medians; × says how many times slower PyTorch's operators are."
    return "\n".join(
        [
            "| step | n | semiring_mm.torch | memory | PyTorch's operators | memory | |",
            "| --- " * 7 + "|",
            *map(row, result["lines"]),
            "",
            report.provenance(result, source, note, ("torch",)),
        ]
    )


if __name__ == "__main__":
    sys.exit(main())
