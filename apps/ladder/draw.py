"""Figure of the ladder: roofline with the rungs, rates over n, and sweeps."""

from __future__ import annotations

import math
from typing import IO, TYPE_CHECKING, Any

from semiring_mm.naming import install

from .measure import CUBLAS
from .report import median, rate

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw"]

_STYLE = {
    "svg.hashsalt": "ladder", "font.size": 9, "axes.spines.top": False, "axes.spines.right": False,
    "axes.titlelocation": "left", "axes.titlesize": 10,
}  # fmt: skip
_T = 1e12
_TITLES = {
    "block": "rung 3: side of a block", "elements": "rung 5: elements per thread",
    "stages": "rung 8: stages", "lanes": "rung 3: threads per row",
    "rows": "rung 7: rows per thread",
}  # fmt: skip


def draw(file: str | IO[bytes], result: dict[str, Any]) -> None:
    """Draw a result of :func:`.measure.ladder`.

    Parameters
    ----------
    file : str or binary file
        Where to write. The extension of a name chooses the format, PNG for a file object.
    result : dict

    Raises
    ------
    ModuleNotFoundError
        Matplotlib is not installed.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"plots are drawn with Matplotlib: {install('plot')}") from None
    sweeps = {name: lines for name, lines in result["sweeps"].items() if name in _TITLES}
    with rc_context(_STYLE):
        figure = Figure(figsize=(10, 4.2 + 2.6 * bool(sweeps)), layout="constrained")
        FigureCanvasAgg(figure)
        grid = figure.add_gridspec(1 + bool(sweeps), 6, height_ratios=[1.6, 1][: 1 + bool(sweeps)])
        _roofline(figure.add_subplot(grid[0, :3]), result)
        _sizes(figure.add_subplot(grid[0, 3:]), result)
        span = 6 // max(1, len(sweeps))
        for i, (name, lines) in enumerate(sweeps.items()):
            below = figure.add_subplot(grid[1, i * span : (i + 1) * span])
            _sweep(below, name, lines)
            below.set_ylabel("" if i else "10¹² pairs a second")
        row = result["semiring"]
        verb = "matrix-vector product" if result["verb"] == "gemv" else "product"
        figure.suptitle(
            f"{row['name']} {verb}, float32, {result['machine']['gpu']}", x=0.01, ha="left"
        )
        figure.savefig(file, metadata={"Date": None} if str(file).endswith(".svg") else None)


def _label(line: dict[str, Any]) -> str:
    return f"{line['rung']} {line['name']}".strip()


def _roofline(axes: Axes, result: dict[str, Any]) -> None:
    """Pairs a second over pairs a byte: what the largest size asks of global memory."""
    n = max(line["n"] for line in result["lines"])
    lines = [line for line in result["lines"] if line["n"] == n and line.get("read")]
    axes.set(xscale="log", yscale="log", title=f"roofline, n = {n}", ylabel="10¹² pairs a second")
    axes.set_xlabel("pairs for each byte asked of global memory")
    copy = result["copy"]
    roofs = (
        result["ceilings"] if result["verb"] == "product" else {}
    )  # matrix-vector products are far below
    points = [(line["pairs"] / (line["read"] + line["written"]), rate(line)) for line in lines]
    left, right = min(x for x, _ in points) / 2, max(x for x, _ in points) * 6
    top = max(roofs.values(), default=copy * right)
    knee = min(right, top / copy)
    axes.plot([left, knee], [left * copy / _T, knee * copy / _T], color="gray", lw=1)
    axes.text(left, left * copy / _T, " copying memory", color="gray", va="bottom", fontsize=7)
    for name, roof in roofs.items():
        axes.plot([roof / copy, right], [roof / _T] * 2, color="gray", lw=1)
        label = "inner loop alone" if name == "general" else "fused inner loop alone"
        axes.text(
            roof / copy, roof / _T, f"{label} ", color="gray", va="center", ha="right", fontsize=7
        )
    groups: list[
        tuple[float, float, list[str]]
    ] = []  # rungs at almost the same point share a label
    for line, (x, y) in zip(lines, points, strict=True):
        axes.plot(x, y / _T, "o", ms=5, color="C0")
        name = line["rung"] or line["name"]
        for i, (u, v, names) in enumerate(groups):
            if abs(math.log(x / u)) < 0.45 and abs(math.log(y / v)) < 0.15:
                groups[i] = (max(x, u), v, [*names, name])
                break
        else:
            groups.append((x, y, [name]))
    for x, y, names in groups:
        axes.annotate(
            ", ".join(names), (x, y / _T), (6, -3), textcoords="offset points", fontsize=8
        )
    axes.set_xlim(left, right)
    axes.grid(color="#dddddd", lw=0.6)


def _sizes(axes: Axes, result: dict[str, Any]) -> None:
    names = dict.fromkeys(_label(line) for line in result["lines"])
    gemv = result["verb"] == "gemv"
    axes.set(xscale="log", yscale="log", xlabel="n", title="rate over n")
    axes.set_ylabel("TB/s, A read once" if gemv else "10¹² pairs a second")
    for i, name in enumerate(names):
        lines = [line for line in result["lines"] if _label(line) == name]
        color, dash = ("black", "--") if name == CUBLAS else (f"C{i % 10}", "-")
        rates = [(4 if gemv else 1) * line["pairs"] / median(line) / _T for line in lines]
        sizes = [line["n"] for line in lines]
        axes.plot(sizes, rates, dash, color=color, marker="o", ms=3, lw=1.2, label=name)
    sizes = sorted({int(line["n"]) for line in result["lines"]})
    axes.set_xticks(sizes, [str(n) for n in sizes])
    axes.minorticks_off()
    axes.grid(color="#dddddd", lw=0.6)
    axes.legend(frameon=False, fontsize=7, loc="center left", bbox_to_anchor=(1.0, 0.5))


def _sweep(axes: Axes, name: str, lines: list[dict[str, Any]]) -> None:
    axes.set(xscale="log", yscale="log", title=_TITLES[name])
    for n in sorted({line["n"] for line in lines}):
        own = [line for line in lines if line["n"] == n]
        axes.plot([line["value"] for line in own], [rate(line) / _T for line in own], marker="o",
                  ms=3, lw=1.2, label=f"n = {n}")  # fmt: skip
    values = sorted({line["value"] for line in lines})
    axes.set_xticks(values, [str(v) for v in values])
    axes.minorticks_off()
    axes.grid(color="#dddddd", lw=0.6)
    axes.legend(frameon=False, fontsize=7)
