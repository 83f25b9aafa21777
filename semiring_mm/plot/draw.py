"""Figures of a result: the network with a path, the histogram of distances, the matrix."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import IO, TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from ..files import Graph
from ..naming import install
from ..text import NumberFormat
from .layout import neighbourhood
from .network import BLUE, INK, RED, Shades, View, draw_network, view_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from ..graphs.statistics import Statistics

__all__ = [
    "PANELS", "can_be_drawn", "draw", "draw_statistics", "draw_streets", "figure",
    "statistic_drawn", "statistics_figure", "style",
]  # fmt: skip

PANELS = ("map", "histogram", "matrix")
#: Statistics of which a network has the colours: the first that there is; and the power of those of
#: which few nodes or edges have most.
_DRAWN = ("edge_betweenness", "closeness", "betweenness", "stress")
_POWERS = {"edge_betweenness": 0.4, "betweenness": 0.4, "stress": 0.2}

_MATRIX_SIDE = 1024  # entries a side that a figure can still show
_WIDTH, _TITLE, _NOTE, _KEY, _BELOW = 8.0, 0.46, 0.26, 0.34, 3.2  # inches


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
        Gives the nodes' names and coordinates, the edges and the unit. Geographic coordinates are
        drawn on a map. Without coordinates nodes are laid out by the edges between them; of a large
        graph only the path and what is near to it is drawn then.
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
        The extension is none that Matplotlib writes, `what` names something else, or the graph has
        no nodes.

    Examples
    --------
    >>> import io
    >>> graph = Graph(["a", "b"], np.array([0]), np.array([1]), np.array([2.0]), directed=True)
    >>> draw(io.BytesIO(), np.array([[0, 2.0], [np.inf, 0]]), graph, what=["map", "matrix"])
    """
    unknown = [panel for panel in what if panel not in PANELS]
    if isinstance(what, str) or unknown or not len(what):
        raise ValueError(f"what: expected a list of some of {', '.join(PANELS)}, got {what!r}")
    if not len(graph.nodes):
        raise ValueError("the graph has no nodes to draw")
    with style():
        figure(result, graph, path, value, missing, title, what).savefig(file)


def draw_statistics(
    file: str | IO[bytes], found: Statistics, graph: Graph, *, title: str = ""
) -> None:
    """Draw the network in the colours of a statistic, and the histogram of distances below it.

    Parameters
    ----------
    file : str or binary file
        As for :func:`draw`.
    found : Statistics
        With betweenness of edges, of which they have the colours, or with closeness, betweenness or
        stress of nodes, or a histogram, or both; what it has not is not drawn.
    graph : Graph
        The graph; the nodes of the statistics are positions in it. Without coordinates a network is
        drawn if it is small.
    title : str
        Line above the figure.

    Raises
    ------
    ModuleNotFoundError, ValueError
        As :func:`draw`.
    """
    with style():
        statistics_figure(found, graph, title).savefig(file)


def draw_streets(
    file: str | IO[bytes], streets: Any, columns: Mapping[str, NDArray[Any]], *,
    places: Any = None, title: str = "",
) -> None:  # fmt: skip
    """Draw the streets of a map in the colours of their nodes' numbers, or places in theirs.

    Parameters
    ----------
    file : str or binary file
        As for :func:`draw`.
    streets : Streets
        Each is drawn once, in the colour of the mean of its ends.
    columns : dict of str to (nodes,) or (places,) array
        What is drawn beside each other, by its name.
    places : optional
        Points with x and y, which have the numbers in place of the nodes.
    title : str
        Line above the figure.
    """
    with style():
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.collections import LineCollection
        from matplotlib.figure import Figure

        first, points = streets.lines
        once = np.flatnonzero((streets.twin < 0) | (streets.twin > np.arange(len(streets.u))))
        lines = [points[first[e] : first[e + 1]] for e in once.tolist()]
        flat = 1 / np.cos(np.radians(points[:, 1].mean())) if streets.geographic else 1.0
        wide, tall = np.maximum(np.ptp(points, axis=0), 1e-12) * (1, flat)
        size = (5.0 * len(columns), float(np.clip(4 * tall / wide, 1.5, 12)) + 0.4)
        page = Figure(figsize=size, dpi=200, layout="constrained")
        FigureCanvasAgg(page)
        page.suptitle(title, fontsize=11, fontweight="bold")
        maps = page.subplots(1, len(columns), squeeze=False)[0]
        for axes, (name, values) in zip(maps, columns.items(), strict=True):
            drawn: Any = LineCollection(lines, linewidths=1.0, rasterized=True)
            axes.add_collection(drawn)
            if places is None:
                drawn.set_array(values[[streets.u[once], streets.v[once]]].mean(axis=0))
            else:
                drawn.set_color("#c4ccd2")
                drawn = axes.scatter(places.x, places.y, c=values, s=14, zorder=3)
            axes.autoscale()
            axes.set_aspect(flat)
            axes.set_axis_off()
            page.colorbar(drawn, ax=axes, shrink=0.7, label=name).outline.set_visible(False)
        page.savefig(file)


@contextmanager
def style() -> Iterator[None]:
    """Matplotlib's settings for a figure and for writing it, whatever the user's are."""
    try:
        from matplotlib import rc_context
    except ModuleNotFoundError:
        raise ModuleNotFoundError(f"plots are drawn with Matplotlib: {install('plot')}") from None

    settings = {
        "font.size": 8,
        "axes.edgecolor": INK,
        "axes.labelcolor": INK,
        "axes.linewidth": 0.6,
        "text.color": INK,
        "text.parse_math": False,  # a node may be called "$5"
        "xtick.color": INK,
        "ytick.color": INK,
    }
    with rc_context(settings), warnings.catch_warnings():
        # A font without a script's glyphs draws boxes; the warning would not help.
        warnings.filterwarnings("ignore", "Glyph .* missing")
        yield


def figure(
    result: NDArray[Any],
    graph: Graph,
    path: Sequence[int],
    value: str,
    missing: float,
    title: str,
    what: Sequence[str],
) -> Figure:
    """The figure that :func:`draw` writes."""
    view = view_of(graph, path) if "map" in what else None
    below = [panel for panel in PANELS[1:] if panel in what]
    height = _BELOW if len(below) == 2 or below == ["histogram"] else 5.6
    page, panels = _page(title, view, len(below), height)
    label = _with_unit(value, graph.unit)
    for axes, panel in zip(panels, below, strict=True):
        if panel == "histogram":
            _histogram_of(axes, result, label, graph.unit, missing)
        else:
            _matrix(axes, result, label, missing)
    if view is not None:
        _map(page, graph, view)
    return page


def statistics_figure(found: Statistics, graph: Graph, title: str) -> Figure:
    """The figure that :func:`draw_statistics` writes."""
    shades, bins = None, found.histogram
    name = statistic_drawn(found)
    if name and can_be_drawn(graph):
        of_edges, power = name == "edge_betweenness", _POWERS.get(name, 1.0)
        values = np.full(len(graph.row if of_edges else graph.nodes), np.nan)
        values[... if of_edges else list(found.nodes)] = getattr(found, name)
        shades = Shades(values, name.replace("_", " "), of_edges, power)
    if shades is None and bins is None:
        raise ValueError(
            f"there is nothing to draw: no {', '.join(_DRAWN)} of a network whose nodes have "
            f"coordinates or are few, and no histogram; coordinates are columns of a table of nodes"
        )
    view = None if shades is None else view_of(graph, [])
    page, panels = _page(title, view, 1 if bins else 0, _BELOW, _KEY)
    for axes in panels:
        assert bins is not None
        label = _with_unit("distance", graph.unit)
        _histogram(axes, bins.edges, bins.counts, found.mean_distance, label, graph.unit)
    if view is not None and shades is not None:
        _map(page, graph, view, shades)
    return page


def statistic_drawn(found: Statistics) -> str:
    """The statistic of which a network has the colours; "" if there is none."""
    return next((name for name in _DRAWN if getattr(found, name) is not None), "")


def can_be_drawn(graph: Graph) -> bool:
    """Whether nodes have coordinates, or are few enough for a layout."""
    known = graph.coordinates is not None and not np.isnan(graph.coordinates).any(axis=1).all()
    return known or len(neighbourhood(graph, [])) == len(graph.nodes)


def _with_unit(value: str, unit: str) -> str:
    return f"{value} ({unit})" if unit else value


def _page(
    title: str, view: View | None, panels: int, height: float, key: float = 0.0
) -> tuple[Figure, list[Axes]]:
    """A page with its title, and panels of that height below the place of a map and its key."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    parts = (
        _TITLE if title else 0.06,
        (_WIDTH - 0.12) * view.height / view.width + _NOTE + key if view else 0.0,
        height if panels else 0.0,
    )
    tall = sum(parts)
    page = Figure(
        figsize=(_WIDTH, tall),
        dpi=200,
        facecolor="white",
        layout="constrained" if panels else None,
    )
    # Not the canvas of whatever back end the environment names: there may be no display.
    FigureCanvasAgg(page)
    if title:
        _write_title(page, title, 1 - 0.27 / tall)
    if not panels:
        return page, []
    engine = page.get_layout_engine()
    assert engine is not None
    engine.set(rect=(0.01, 0, 0.98, parts[2] / tall))  # type: ignore[call-arg]
    grid = page.add_gridspec(1, panels, width_ratios=(1.45, 1)[:panels])
    return page, [page.add_subplot(grid[k]) for k in range(panels)]


def _map(page: Figure, graph: Graph, view: View, shades: Shades | None = None) -> None:
    """The network below the title, with notes and the key of its colours."""
    tall = page.get_figheight()
    top = 1 - (_TITLE if page.texts else 0.06) / tall
    size = (_WIDTH - 0.12) * view.height / view.width / tall
    left = 0.06 / _WIDTH
    axes = page.add_axes((left, top - size, 1 - 2 * left, size))
    draw_network(axes, graph, view, shades)
    _write_notes(page, view, top - size - 0.07 / tall)
    if shades is not None:
        _write_key(page, shades, top - size - (_NOTE + 0.1) / tall, graph.unit)


def _write_key(page: Figure, shades: Shades, y: float, unit: str) -> None:
    """What the colours stand for."""
    tall = page.get_figheight()
    axes = page.add_axes((0.3, y, 0.4, 0.09 / tall))
    bar = page.colorbar(shades.colours, cax=axes, orientation="horizontal", extend="both")
    bar.outline.set_visible(False)
    axes.tick_params(labelsize=6.5, length=2, pad=1.5)
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:.4g}")
    axes.locator_params(axis="x", nbins=5 if shades.power == 1 else 3)
    closeness = shades.name == "closeness"
    label = _with_unit(shades.name, f"1/{unit}" if unit and closeness else "")
    page.text(0.285, y + 0.045 / tall, label, fontsize=7.5, ha="right", va="center")


def _write_title(page: Figure, title: str, y: float) -> None:
    """One line over the whole figure, as large as fits."""
    text = page.text(0.06 / _WIDTH, y, title, fontsize=13, fontweight="bold", va="center")
    room = page.bbox.width - 0.12 * page.dpi
    text.set_fontsize(13 * min(1.0, room / text.get_window_extent().width))


def _write_notes(page: Figure, view: View, y: float) -> None:
    """Below the map: its scale, what is not drawn, where the outlines are from."""
    small: dict[str, Any] = {"fontsize": 6.5, "color": "#7b8791", "va": "top"}
    page.text(1 - 0.06 / _WIDTH, y, " · ".join(view.notes), ha="right", **small)
    if view.scale:
        length, text = view.scale
        x = 0.08 / _WIDTH
        end = x + length / view.width * (1 - 0.12 / _WIDTH)
        from matplotlib.lines import Line2D

        middle = y - 0.045 / page.get_figheight()
        for line in ([x, end], [middle, middle]), ([x, x], [y, 2 * middle - y]), (
            [end, end], [y, 2 * middle - y]
        ):  # fmt: skip
            page.add_artist(Line2D(*line, color="#7b8791", lw=0.8))
        page.text(end + 0.05 / _WIDTH, y, text, **small)


def _sampled(result: NDArray[Any]) -> NDArray[np.intp]:
    """Return evenly spaced rows and columns, without reading all pages of a memory map."""
    n = len(result)
    return np.linspace(0, n - 1, min(n, _MATRIX_SIDE)).round().astype(np.intp)


def _histogram_of(axes: Axes, result: NDArray[Any], label: str, unit: str, missing: float) -> None:
    rows = _sampled(result)
    values = np.asarray(result[rows], dtype=np.float64)
    values[np.arange(len(rows)), rows] = missing
    values = values[(values != missing) & np.isfinite(values)]
    counts, edges = np.histogram(values, int(np.clip(values.size**0.4, 10, 80)))
    mean = float(values.mean()) if values.size else None
    _histogram(axes, edges, counts, mean, label, unit, sample=len(rows) < len(result))


def _histogram(
    axes: Axes, edges: NDArray[np.float64], counts: NDArray[np.int64], mean: float | None,
    label: str, unit: str, *, sample: bool = False,
) -> None:  # fmt: skip
    """Bars of shares of all pairs, or of a `sample`, and their mean."""
    axes.set_xlabel(label)
    axes.set_ylabel(f"share of pairs{' (sample)' if sample else ''}")
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    if not counts.sum():
        axes.set_xticks([])
        axes.set_yticks([])
        axes.text(0.5, 0.5, "no pair has a path", ha="center", transform=axes.transAxes)
        return
    axes.hist(
        edges[:-1], bins=edges.tolist(), weights=100 * counts / counts.sum(), color=BLUE,
        edgecolor="white", lw=0.4, histtype="bar" if len(counts) < 500 else "stepfilled",
    )  # fmt: skip
    axes.set_xlim(left=float(edges[0]))
    axes.yaxis.set_major_formatter("{x:g} %")
    axes.xaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
    if mean is not None:
        axes.axvline(mean, color=RED, lw=1.2)
        axes.annotate(
            f"average {'≈ ' if sample else ''}{NumberFormat([mean], unit)(mean)}",
            (mean, 1), xycoords=("data", "axes fraction"), xytext=(5, -10),
            textcoords="offset points", color=RED,
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
    axes.locator_params(integer=True)
    for side in axes.spines.values():
        side.set_visible(False)
    figure = axes.get_figure()
    assert figure is not None
    if shown.count() and shown.min() < shown.max():  # of reachability all are 1
        bar = figure.colorbar(image, ax=axes, fraction=0.046, pad=0.03, label=label)
        bar.outline.set_visible(False)
        bar.ax.yaxis.set_major_formatter(lambda x, _: f"{x:,.10g}")
