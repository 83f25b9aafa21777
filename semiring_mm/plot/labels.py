"""Labels of points in a picture that touch neither each other nor, if they can, what is drawn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["place"]

# Where a label may be, as directions from its point, the best first.
_DIRECTIONS = [(1, 0), (-1, 0), (1, 1), (-1, 1), (1, -1), (-1, -1), (0, 1), (0, -1)]
_GAPS = (5.0, 10.0, 18.0, 30.0, 45.0, 65.0, 90.0)  # points from the dot to the label
_LEADER = 12.0  # points; a label that is farther away gets a line to its dot


def place(
    axes: Axes,
    points: NDArray[np.float64],
    texts: Sequence[str],
    lines: Sequence[NDArray[np.float64]],
    faint: Sequence[NDArray[np.float64]],
    dots: NDArray[np.float64],
    *,
    must: int,
    **style: Any,
) -> None:
    """Write labels beside points, the first ones where they stand best; no two of them touch.

    The limits of the axes and their place in the figure are final, and points are in the
    coordinates of their data. Labels should not cover `lines` and `dots`, and rather cover `faint`
    lines. The first `must` labels are bold and larger, and may cover a line or a dot where there is
    no other place; the others are left out there. `style` is that of the text.
    """
    from matplotlib.transforms import Bbox

    figure = axes.get_figure()
    assert figure is not None
    point = figure.dpi / 72  # pixels
    frame = axes.get_window_extent()
    to_pixels = axes.transData.transform
    marks = to_pixels(points)
    strokes = _spread([to_pixels(line) for line in lines], 2 * point)
    threads = _spread([to_pixels(line) for line in faint], 4 * point)
    spots = to_pixels(dots)
    spots = spots[(spots > frame.min).all(axis=1) & (spots < frame.max).all(axis=1)]
    taken: list[Bbox] = []
    for rank, (mark, text) in enumerate(zip(marks, texts, strict=True)):
        weight, size = ("bold", 8.5) if rank < must else ("normal", 6.5)
        label = axes.annotate(
            text, points[rank], (0, 0), textcoords="offset points", ha="center", va="center",
            fontweight=weight, fontsize=size, annotation_clip=False, **style,
        )  # fmt: skip
        extent = label.get_window_extent()
        half = np.array([extent.width, extent.height]) / 2 + 1.5 * point
        others = np.delete(marks, rank, axis=0)
        best, found = 1e6 if rank < must else 25.0, None
        for step, gap in enumerate(_GAPS):
            for turn, direction in enumerate(_DIRECTIONS):
                away = np.array(direction) / np.hypot(*direction)
                # The label's nearest corner or side is `gap` away from the dot.
                middle = mark + away * gap * point + np.sign(direction) * half
                low, high = middle - half, middle + half
                if (low < frame.min).any() or (high > frame.max).any():
                    continue
                box = Bbox([low, high])
                if box.count_overlaps(taken):
                    continue
                cost = 0.4 * turn + 4 * step
                for obstacles, each in ((strokes, 3.0), (threads, 0.4), (spots, 2.0)):
                    inside = (obstacles > low) & (obstacles < high)
                    cost += each * np.count_nonzero(inside.all(axis=1))
                # A label that is nearer to another labelled point would be read as that one's.
                beside = np.hypot(*np.maximum(np.maximum(low - others, others - high), 0).T)
                cost += 12.0 * np.count_nonzero(beside < 1.5 * gap * point)
                if cost < best:
                    best, found = cost, (middle, gap, away, box)
        if found is None:
            label.remove()
            continue
        middle, gap, away, box = found
        label.set_position(tuple((middle - mark) / point))
        taken.append(box)
        if gap > _LEADER:
            end = axes.transData.inverted().transform(mark + away * (gap - 2) * point)
            start = axes.transData.inverted().transform(mark)
            axes.plot(*zip(start, end, strict=True), color=label.get_color(), lw=0.6, zorder=5.5)


def _spread(lines: Sequence[NDArray[np.float64]], step: float) -> NDArray[np.float64]:
    """Points along lines, about `step` apart."""
    parts = [np.zeros((0, 2))]
    for line in lines:
        along = np.append(0, np.cumsum(np.hypot(*np.diff(line, axis=0).T)))
        at = np.arange(0, along[-1] + step, step)
        parts.append(np.stack([np.interp(at, along, line[:, k]) for k in (0, 1)], axis=1))
    return np.concatenate(parts)
