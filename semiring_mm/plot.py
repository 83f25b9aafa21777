"""Figures of a result: the network with a path, the histogram of distances, the matrix."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from .files import Graph
from .text import NumberFormat

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PANELS", "draw", "great_circle_arcs"]

PANELS = ("map", "histogram", "matrix")

_INK = "#22303c"
_FAINT = "#d8dee3"
_EDGE = "#7d97ab"
_PATH = "#d1362f"

_MATRIX_SIDE = 1024  # entries a side that a figure can still show
_MOST_LABELS = 14  # on a path; beyond that its ends only
_LONG_ARC = 2.0  # degrees; a shorter edge is drawn straight


def draw(
    file: str | IO[bytes],
    result: NDArray[Any],
    graph: Graph,
    *,
    path: Sequence[int] = (),
    value: str = "distance",
    missing: float = np.inf,
    title: str = "",
    what: Sequence[str] = ("map",),
) -> None:
    """Draw the network of a result, the histogram of its values, their matrix, or some of these.

    Parameters
    ----------
    file : str or binary file
        Where to write. The extension of a name chooses the format, PNG for a file object.
    result : (n, n) array
        One value for each ordered pair of nodes. Large matrices are sampled, never copied.
    graph : Graph
        Gives the nodes' names and coordinates, the edges and the unit.
    path : sequence of int
        Nodes, in order, of a path to draw on the network.
    value : str
        What an entry of the result is: "distance", "width", ...
    missing : float
        The entry of a pair without a path.
    title : str
        Line above the figure.
    what : sequence of str
        Which of "map", "histogram" and "matrix" to draw.

    Raises
    ------
    ModuleNotFoundError
        Matplotlib is not installed.
    ValueError
        The extension is none that Matplotlib writes, or `what` names something else.

    Examples
    --------
    >>> import io
    >>> graph = Graph(["a", "b"], np.array([0]), np.array([1]), np.array([2.0]), directed=True)
    >>> draw(io.BytesIO(), np.array([[0, 2.0], [np.inf, 0]]), graph)
    """
    unknown = [panel for panel in what if panel not in PANELS]
    if unknown or not what:
        raise ValueError(f"what: expected some of {', '.join(PANELS)}, got {list(what)}")
    try:
        from matplotlib import rc_context
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'plots are drawn with Matplotlib; write: pip install "semiring-mm[plot]"'
        ) from None
    unit = f" ({graph.unit})" if graph.unit else ""
    label = f"{value}{unit}"
    style = {
        "font.size": 9,
        "axes.edgecolor": _INK,
        "axes.labelcolor": _INK,
        "axes.linewidth": 0.6,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "text.color": _INK,
        "text.parse_math": False,  # a node may be called "$5"
        "xtick.color": _INK,
        "ytick.color": _INK,
    }
    with rc_context(style):
        figure = Figure(figsize=(11, 4.4), dpi=150, layout="constrained", facecolor="white")
        # Not the canvas of whatever back end the environment names: there may be no display.
        FigureCanvasAgg(figure)
        view = _view(graph, path) if "map" in what else None
        below = [panel for panel in PANELS[1:] if panel in what] or (
            ["histogram"] if view is None else []
        )
        tall = 0.0
        if view is not None:
            tall = float(np.clip(10.8 * view.height * view.stretch / view.width, 3, 9))
        figure.set_size_inches(11, tall + (3.9 if below else 0.6))
        grid = figure.add_gridspec(2, max(len(below), 1), height_ratios=(tall or 1e-3, 3.3))
        if view is not None:
            _network(figure.add_subplot(grid[0, :]), graph, view, path, title)
        elif title:
            figure.suptitle(title, x=0.01, ha="left", fontsize=12)
        for k, panel in enumerate(below):
            draw_panel = _histogram if panel == "histogram" else _matrix
            draw_panel(figure.add_subplot(grid[1, k]), result, label, missing)
        with warnings.catch_warnings():
            # A font without a script's glyphs draws boxes; the warning would not help.
            warnings.filterwarnings("ignore", "Glyph .* missing")
            figure.savefig(file)


def great_circle_arcs(
    start: NDArray[np.float64], end: NDArray[np.float64], points: int
) -> NDArray[np.float64]:
    """Points along great circles, evenly spaced.

    Parameters
    ----------
    start, end : (m, 2) float64
        Longitude and latitude in degrees.
    points : int
        How many on each arc, its ends among them.

    Returns
    -------
    (m, points, 2) float64
        Longitudes continue past ±180 rather than jump.

    Examples
    --------
    >>> arc = great_circle_arcs(np.array([[170.0, 0.0]]), np.array([[-170.0, 0.0]]), 3)
    >>> arc[0, :, 0].round(6).tolist()
    [170.0, 180.0, 190.0]
    """

    def vectors(degrees: NDArray[np.float64]) -> NDArray[np.float64]:
        lon, lat = np.moveaxis(np.radians(degrees), -1, 0)
        return np.stack([np.cos(lat) * np.cos(lon), np.cos(lat) * np.sin(lon), np.sin(lat)], -1)

    a, b = vectors(start)[:, None], vectors(end)[:, None]  # (m, 1, 3)
    angle = np.arccos(np.clip((a * b).sum(-1, keepdims=True), -1, 1))  # (m, 1, 1)
    t = np.linspace(0, 1, points)[None, :, None]
    sine = np.where(angle > 1e-9, np.sin(angle), 1.0)
    mix = np.where(angle > 1e-9, np.sin((1 - t) * angle) / sine, 1 - t) * a
    mix = mix + np.where(angle > 1e-9, np.sin(t * angle) / sine, t) * b  # (m, points, 3)
    lon = np.degrees(np.unwrap(np.arctan2(mix[..., 1], mix[..., 0]), axis=1))
    lat = np.degrees(np.arctan2(mix[..., 2], np.hypot(mix[..., 0], mix[..., 1])))
    return np.stack([lon, lat], axis=-1)


@dataclass(frozen=True)
class _View:
    """The part of the plane to draw, and where the nodes are in it."""

    places: NDArray[np.float64]  # (n, 2), NaN where unknown
    left: float
    bottom: float
    width: float
    height: float
    stretch: float  # length of a unit of y over that of one of x

    @property
    def world(self) -> bool:
        return self.width == 360.0


def _view(graph: Graph, path: Sequence[int]) -> _View | None:
    if graph.coordinates is None or np.isnan(graph.coordinates).all():
        return None
    places = graph.coordinates.copy()
    if graph.geographic:
        # Longitudes from −180 to 180, unless another cut keeps the path in one piece.
        left = -180.0
        lon = np.degrees(np.unwrap(np.radians(places[list(path), 0])))
        if lon.size and not (lon.min() >= -180 and lon.max() <= 180):
            left = (lon.min() + lon.max()) / 2 - 180
        places[:, 0] = (places[:, 0] - left) % 360 + left
    low, high = np.nanmin(places, axis=0), np.nanmax(places, axis=0)
    margin = np.maximum(0.06 * (high - low), 0.02 * (high - low).max() or 1.0)
    low, high = low - margin, high + margin
    stretch = 1.0
    if graph.geographic:
        low[1], high[1] = max(low[1], -90), min(high[1], 90)
        if high[0] - low[0] > 180:
            low[0], high[0] = left, left + 360
        else:
            # A region keeps its shape: a degree of longitude is shorter away from the equator.
            stretch = float(1 / np.cos(np.radians(np.clip((low[1] + high[1]) / 2, -75, 75))))
    width, height = (high - low).tolist()
    return _View(places, float(low[0]), float(low[1]), width, height, stretch)


def _lines(
    graph: Graph, view: _View, row: NDArray[np.int64], col: NDArray[np.int64]
) -> list[NDArray[np.float64]]:
    """Return edges as polylines; on a map as great-circle arcs, repeated where they leave it."""
    start, end = view.places[row], view.places[col]
    drawn = ~np.isnan(start + end).any(axis=1)
    start, end = start[drawn], end[drawn]
    if not graph.geographic:
        return list(np.stack([start, end], axis=1))
    far = np.abs(end - start).max(axis=1) > _LONG_ARC
    lines = list(np.stack([start[~far], end[~far]], axis=1))
    left = view.left if view.world else view.left + view.width / 2 - 180
    for arc in great_circle_arcs(start[far], end[far], 72):
        turns = np.floor((arc[:, 0] - left) / 360)
        for turn in np.unique(turns):
            inside = np.flatnonzero(turns == turn)
            # One point beyond the map's edge on each side; the axes cut the line there.
            piece = arc[max(inside[0] - 1, 0) : inside[-1] + 2] - (360 * turn, 0)
            lines.append(piece)
    return lines


def _network(axes: Axes, graph: Graph, view: _View, path: Sequence[int], title: str) -> None:
    from matplotlib.collections import LineCollection
    from matplotlib.patheffects import withStroke

    m, n = len(graph.row), len(graph.nodes)
    # Lines get thinner and fainter with their number, so that a dense network stays legible.
    edges = LineCollection(
        _lines(graph, view, graph.row, graph.col),
        colors=_EDGE,
        linewidths=float(np.clip(12 / m**0.5, 0.35, 1.2)) if m else 1.0,
        alpha=float(np.clip(9 / max(m, 1) ** 0.5, 0.35, 0.9)) if view.world else 0.8,
        zorder=1,
    )
    axes.add_collection(edges)
    axes.scatter(
        view.places[:, 0],
        view.places[:, 1],
        s=float(np.clip(900 / max(n, 1), 0.4, 16)),
        c=_INK,
        lw=0,
        zorder=2,
    )
    if len(path) > 1:
        stops = np.array(path)
        lines = _lines(graph, view, stops[:-1], stops[1:])
        for width, colour, zorder in ((4.2, "white", 3), (2.0, _PATH, 4)):
            axes.add_collection(
                LineCollection(
                    lines,
                    colors=colour,
                    linewidths=width,
                    capstyle="round",
                    zorder=zorder,
                )
            )
        marked = stops if len(stops) <= _MOST_LABELS else stops[[0, -1]]
        axes.scatter(
            view.places[marked, 0],
            view.places[marked, 1],
            s=26,
            c=_PATH,
            ec="white",
            lw=0.9,
            zorder=5,
        )
        for node, (x, y), right in _label_places(graph, view, marked, lines):
            axes.text(
                x, y, _name(graph, node), fontsize=9.5, fontweight="bold",
                ha="left" if right else "right", va="center", zorder=6,
                path_effects=[withStroke(linewidth=2.6, foreground="white")],
            )  # fmt: skip
    axes.set_xlim(view.left, view.left + view.width)
    axes.set_ylim(view.bottom, view.bottom + view.height)
    axes.set_aspect(view.stretch)
    axes.set_title(title, fontsize=13, fontweight="bold", pad=8)
    axes.tick_params(length=0, labelsize=7.5, labelcolor="#7b8791")
    if view.world:
        first = 30 * np.ceil(view.left / 30)
        meridians = np.arange(first, view.left + 360.1, 30)
        axes.set_xticks(meridians, [_degrees(lon, "EW") for lon in meridians])
        parallels = np.arange(-90, 91, 30)
        parallels = parallels[(parallels > view.bottom) & (parallels < view.bottom + view.height)]
        axes.set_yticks(parallels, [_degrees(lat, "NS") for lat in parallels])
        axes.grid(color=_FAINT, lw=0.5, zorder=0)
        axes.set_axisbelow(True)
        axes.set_facecolor("#f7f9fa")
    for side in axes.spines.values():
        side.set_color(_FAINT)


def _degrees(value: Any, signs: str) -> str:
    degrees = (round(value) + 180) % 360 - 180
    sign = "" if degrees in (0, -180) else signs[degrees < 0]
    return f"{abs(degrees)}°{sign}"


def _name(graph: Graph, node: int) -> str:
    return (graph.names[node] if graph.names else "") or graph.nodes[node]


def _label_places(
    graph: Graph, view: _View, nodes: NDArray[np.int64], lines: list[NDArray[np.float64]]
) -> list[tuple[int, tuple[float, float], bool]]:
    """Place each label where it covers least of the path, other labels and nodes."""
    inch = view.width / 10.4
    inks = [(np.concatenate(lines), 1.0), (view.places, 0.6), (view.places[nodes], 8.0)]
    texts: list[tuple[float, float, float, float]] = []
    chosen = []
    for node in nodes.tolist():
        x, y = view.places[node].tolist()
        if x != x:
            continue
        wide, high = 0.09 * inch * len(_name(graph, node)), 0.17 * inch / view.stretch
        options = []
        for shift in (0.0, 0.8, -0.8, 1.5, -1.5):
            for right in (True, False):
                gap = (0.1 if shift == 0 else 0.03) * inch
                start = x + gap if right else x - gap
                a, c = (start if right else start - wide), y + (shift - 0.5) * high
                b, d = a + wide, c + high
                cost = 0.1 * abs(shift) + 50.0 * (a < view.left or b > view.left + view.width)
                cost += 20.0 * sum(a < f and e < b and c < h and g < d for e, f, g, h in texts)
                for points, weight in inks:
                    inside = (points > (a, c)) & (points < (b, d))
                    cost += weight * np.count_nonzero(inside.all(axis=1))
                options.append((cost, (start, y + shift * high), right, (a, b, c, d)))
        _, place, right, box = min(options, key=lambda option: option[0])
        chosen.append((node, place, right))
        texts.append(box)
    return chosen


def _sampled(result: NDArray[Any]) -> NDArray[np.intp]:
    """Return evenly spaced rows and columns, without reading all pages of a memory map."""
    n = len(result)
    return np.linspace(0, n - 1, min(n, _MATRIX_SIDE)).round().astype(np.intp)


def _histogram(axes: Axes, result: NDArray[Any], label: str, missing: float) -> None:
    rows = _sampled(result)
    values = np.asarray(result[rows], dtype=np.float64)
    values[np.arange(len(rows)), rows] = missing
    values = values[(values != missing) & np.isfinite(values)]
    axes.set_xlabel(label)
    axes.set_ylabel("share of pairs" if len(rows) == len(result) else "share of pairs (sample)")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if not values.size:
        axes.text(0.5, 0.5, "no pair has a path", ha="center", transform=axes.transAxes)
        return
    bins = int(np.clip(values.size**0.4, 10, 80))
    weights = np.full(values.size, 100 / values.size)
    axes.hist(values, bins=bins, weights=weights, color=_EDGE, edgecolor="white", lw=0.4)
    axes.yaxis.set_major_formatter("{x:g} %")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    mean = float(values.mean())
    axes.axvline(mean, color=_PATH, lw=1.2)
    axes.annotate(
        f"mean {'' if len(rows) == len(result) else '≈ '}{NumberFormat([mean])(mean)}",
        (mean, 1), xycoords=("data", "axes fraction"), xytext=(5, -10),
        textcoords="offset points", color=_PATH,
    )  # fmt: skip


def _matrix(axes: Axes, result: NDArray[Any], label: str, missing: float) -> None:
    from matplotlib import colormaps

    n = len(result)
    nodes = _sampled(result)
    values = np.asarray(result[nodes][:, nodes], dtype=np.float64)
    shown = np.ma.masked_where((values == missing) | ~np.isfinite(values), values)
    image = axes.imshow(
        shown, cmap=colormaps["viridis_r"].with_extremes(bad="#eceff1"),
        extent=(-0.5, n - 0.5, n - 0.5, -0.5), interpolation="nearest",
    )  # fmt: skip
    axes.set_xlabel("to (nodes in file order)")
    axes.set_ylabel("from")
    for side in axes.spines.values():
        side.set_visible(False)
    figure = axes.get_figure()
    assert figure is not None
    if shown.count():
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, label=label)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
