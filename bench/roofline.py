"""The roofline of a device: what operations reach, over what they compute for each byte."""

from __future__ import annotations

from typing import Any

from . import report
from .gpu_ceilings import COPY
from .measure import UNITS, Line

#: How an operation is drawn: by what its name begins with, the last that fits.
MARKS = {
    "": ("o", "product"),
    "plus-times f32 A": ("s", "matrix-vector product"),
    "min-plus f32 A": ("s", "matrix-vector product"),
    "apsp": ("^", "shortest paths"),
}


def points(lines: list[Line]) -> list[tuple[Line, float, float]]:
    """The lines that a roofline shows, each with its pairs a byte and its pairs a second."""
    return [
        (line, line.pairs / line.bytes, line.pairs / line.ours.median)
        for line in lines
        if line.ceiling_rate and line.bytes and line.ours.samples
    ]


def ceilings(lines: list[Line]) -> dict[str, float]:
    """The ceilings that the lines are held against, the highest first."""
    found = {line.ceiling: line.ceiling_rate for line in lines if line.ceiling_rate}
    return dict(sorted(found.items(), key=lambda row: -row[1]))


def mark(case: str) -> tuple[str, str]:
    """Marker and meaning of an operation."""
    return [value for name, value in MARKS.items() if case.startswith(name)][-1]


def draw(result: dict[str, Any], lines: list[Line]) -> bool:
    """Ceilings as lines, the largest sizes of the operations as points."""
    try:
        import matplotlib
    except ImportError:
        return False
    matplotlib.use("svg")
    matplotlib.rcParams |= report.STYLE
    from matplotlib import pyplot as plt

    shown = points(lines)
    roofs = ceilings(lines)
    copy = roofs.pop(COPY, 0.0)
    shades = plt.get_cmap("tab20").colors
    colors = dict(zip(roofs, shades[::2] + shades[1::2], strict=False))
    figure, axes = plt.subplots(figsize=(9, 5), layout="constrained")
    axes.set(xscale="log", yscale="log", xlabel="pairs (⊗, ⊕) for each byte moved at least")
    axes.set(ylabel="10¹² pairs/s", title=result["machine"]["gpu"])
    right = 3 * max((x for _, x, _ in shown), default=1.0)
    left = min((x for _, x, _ in shown), default=1.0) / 2
    if copy and roofs:
        top = max(roofs.values()) / copy
        axes.plot([left, top], [left * copy / 1e12, top * copy / 1e12], color="gray", lw=1.2)
        axes.text(
            1.15, copy / 1e12, f"copy {report.three(copy / 1e12)} TB/s", color="gray", va="top",
            fontsize=8,
        )  # fmt: skip
    last = 0.0
    for name, rate in reversed(roofs.items()):
        start = rate / copy if copy else left
        axes.plot([start, right], [rate / 1e12] * 2, color=colors[name], lw=1.2)
        last = max(rate / 1e12, 1.22 * last)  # labels keep apart
        axes.annotate(
            f"{name}  {report.three(rate / UNITS['T/s'])}", (right, rate / 1e12),
            (1.1 * right, last), color=colors[name], va="center", fontsize=7,
            annotation_clip=False,
        )  # fmt: skip
    named = set()
    for line, x, y in shown:
        shape, meaning = mark(line.case)
        axes.plot(
            x, y / 1e12, shape, color=colors.get(line.ceiling, "gray"), ms=5, mec="white", mew=0.5,
            label=None if meaning in named else meaning,
        )  # fmt: skip
        named.add(meaning)
    axes.set_xlim(left, right)
    axes.grid(color="#dddddd", lw=0.6)
    legend = axes.legend(frameon=False, fontsize=8, loc="lower right")
    for handle in legend.legend_handles:
        handle.set_color("gray")
    report.ROOFLINE.parent.mkdir(exist_ok=True)
    figure.savefig(report.ROOFLINE, metadata={"Date": None})
    plt.close(figure)
    return True
