"""A network as a picture: its nodes and edges on a map or in a plane, and a path with labels."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from ..files import Graph
from ..files.graph import EARTH_RADIUS_KM
from ..lazy import cached_property
from .labels import place
from .land import outlines
from .layout import layout
from .projections import Azimuthal, EqualEarth, Plane, Projection, choose

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.cm import ScalarMappable

__all__ = ["BLUE", "INK", "RED", "Shades", "View", "draw_network", "view_of"]

INK = "#22303c"
BLUE = "#7d97ab"
RED = "#d1362f"
_ROAD = "#54718a"
_SEA = "#e6eff5"
_LAND = "#f6f2e8"
_COAST = "#b9c1c4"

_MOST_EDGES = 300_000  # that are drawn; of more a sample
_MOST_DOTS = 500  # nodes that are drawn where edges have colours
_RASTER = 5000  # dots or lines from which they are pixels in a PDF, too
_SHADES, _JOINED = 64, 400  # colours, and edges that are drawn as one line
_MOST_LABELS = 14  # on a path; beyond that its ends only
_ALL_LABELS = 40  # nodes of a picture without coordinates that all have their labels
_LONGEST_LABEL = 28  # letters
_COARSE = 6.0  # degrees; outlines of a smaller extent would be wrong by what can be seen
_FLAT, _TALL = 0.45, 0.9  # height of a picture in widths


@dataclass(frozen=True)
class View:
    """The part of the plane to draw, and where the nodes are in it."""

    projection: Projection
    source: NDArray[np.float64]  # (n, 2), in degrees on a map; NaN where unknown
    places: NDArray[np.float64]  # (n, 2), in the plane
    path: list[int]
    left: float
    bottom: float
    width: float
    height: float
    notes: list[str]
    scale: tuple[float, str] | None = None  # a length, and what it is

    @property
    def known(self) -> NDArray[np.bool_]:
        """Which nodes have a place."""
        known: NDArray[np.bool_] = ~np.isnan(self.places[:, 0])
        return known

    def lines(self, row: NDArray[np.int64], col: NDArray[np.int64]) -> list[NDArray[np.float64]]:
        """Edges as lines in the plane."""
        both = self.known[row] & self.known[col]
        return self.projection.lines(self.source[row[both]], self.source[col[both]])


def view_of(graph: Graph, path: Sequence[int]) -> View:
    """Where to draw a graph: on a map, in the plane of its coordinates, or laid out."""
    notes = []
    path = list(path)
    n = len(graph.nodes)
    projection: Projection = Plane()
    if graph.coordinates is None or np.isnan(graph.coordinates).any(axis=1).all():
        source, path = layout(graph, path)
        shown = n - int(np.isnan(source[:, 0]).sum())
        if shown < n:
            part = "the path and its neighbourhood" if path else "around the node with most edges"
            notes.append(f"{part}: {shown:,} of {n:,} nodes")
    else:
        source = graph.coordinates.copy()
        absent = np.flatnonzero(np.isnan(source).any(axis=1))
        source[absent] = np.nan
        if len(absent):
            which = _name(graph, int(absent[0])) if len(absent) == 1 else f"{len(absent):,} nodes"
            notes.append(f"without coordinates, so not drawn: {which}")
        if graph.geographic:
            gone = set(absent.tolist())
            known = np.delete(source, absent, axis=0)
            projection = choose(known, source[[k for k in path if k not in gone]])
    on_map = projection.wrapped(source) if isinstance(projection, EqualEarth) else source
    view = View(projection, source, projection(on_map), path, 0, 0, 1, 1, notes)
    stops = np.array(path, dtype=np.int64)
    drawn = np.concatenate([view.places, *view.lines(stops[:-1], stops[1:])])
    low, high = np.nanmin(drawn, axis=0), np.nanmax(drawn, axis=0)
    low, high = _roomy(low, high)
    if isinstance(projection, EqualEarth):
        low, high = _world(projection, low, high)
    width, height = (high - low).tolist()
    view = replace(view, left=float(low[0]), bottom=float(low[1]), width=width, height=height)
    if isinstance(projection, Plane):
        return view
    if _has_land(view):
        view.notes.append("outlines: Natural Earth")
    return replace(view, scale=_scale(view))


def _roomy(
    low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """A box with a margin, and not too flat or too tall for a page."""
    middle, size = (low + high) / 2, high - low
    size = size + 0.14 * (size.max() or 1.0)
    size[1] = max(size[1], _FLAT * size[0])
    size[0] = max(size[0], size[1] / _TALL)
    return middle - size / 2, middle + size / 2


def _world(
    projection: EqualEarth, low: NDArray[np.float64], high: NDArray[np.float64]
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The part of a world map: all around where the box is most of it."""
    edge = projection.edge()
    first, last = edge.min(axis=0), edge.max(axis=0)
    if high[0] - low[0] > 0.7 * (last - first)[0]:
        south = projection(np.array([projection.longitude, -57.0]))[1]
        low = np.array([first[0], min(low[1], south)])
        high = last.copy()
    # A little more than the north, for labels of what is near the pole.
    return np.maximum(low, first), np.minimum(high, last) + np.array([0.0, 0.06])


def _has_land(view: View) -> bool:
    return view.width > float(np.radians(_COARSE))


def _scale(view: View) -> tuple[float, str] | None:
    """About a sixth of the width in a round number of kilometres; none for much of the Earth."""
    if isinstance(view.projection, EqualEarth) or view.width > 0.6:
        return None
    target = view.width * EARTH_RADIUS_KM / 6
    power = 10.0 ** np.floor(np.log10(target))
    length = power * max(k for k in (1, 2, 5) if k * power <= target)
    return length / EARTH_RADIUS_KM, f"{length:g} km" if length >= 1 else f"{1000 * length:g} m"


@dataclass(frozen=True)
class Shades:
    """A number of each node, NaN where there is none, or of each edge, as a colour."""

    values: NDArray[np.float64]  # (n,) or (edges,)
    name: str = "closeness"  # what they are
    of_edges: bool = False
    # Of the part of the limits of which colours are in proportion: less than 1 shows small numbers
    # apart.
    power: float = 1.0

    @cached_property
    def limits(self) -> tuple[float, float]:
        """The values of the first and the last colour: all but the odd ones lie between."""
        known = self.values[np.isfinite(self.values)]
        low, high = np.quantile(known, (0.01, 0.99)).tolist() if known.size else (0.0, 1.0)
        return (low, high) if low < high else (low - abs(low) / 2, low + (abs(low) / 2 or 1.0))

    @cached_property
    def colours(self) -> ScalarMappable:
        """The colour of a value: dark purple, red, orange."""
        from matplotlib import colormaps
        from matplotlib.cm import ScalarMappable
        from matplotlib.colors import ListedColormap, PowerNorm

        shades = ListedColormap(colormaps["plasma"](np.linspace(0.0, 0.93, _SHADES)))
        return ScalarMappable(PowerNorm(self.power, *self.limits, clip=True), shades)

    def level(self, values: NDArray[np.float64]) -> NDArray[np.int64]:
        """The numbers of the colours of some values."""
        low, high = self.limits
        part = np.clip((values - low) / (high - low), 0, 1) ** self.power
        return np.minimum((part * _SHADES).astype(np.int64), _SHADES - 1)


def draw_network(axes: Axes, graph: Graph, view: View, shades: Shades | None = None) -> None:
    """Draw the land, the edges, the nodes, and a path with its labels.

    The axes are empty, or have what is to be drawn over the nodes; nothing beside them is added
    afterwards, for labels are placed by the pixel. `shades`: the colours of edges and nodes.
    """
    from matplotlib.collections import LineCollection

    axes.set_xlim(view.left, view.left + view.width)
    axes.set_ylim(view.bottom, view.bottom + view.height)
    axes.set_aspect("equal")
    axes.set_xticks([])
    axes.set_yticks([])
    for side in axes.spines.values():
        side.set(color="#d8dee3", linewidth=0.6)
    figure = axes.get_figure()
    assert figure is not None
    figure.canvas.figure.draw_without_rendering()  # puts the axes where they stay
    if not isinstance(view.projection, Plane):
        _draw_land(axes, view, view.projection)
    edges = _draw_edges(axes, graph, view, shades)
    _draw_nodes(axes, view, shades)
    stops = np.array(view.path, dtype=np.int64)
    lines = view.lines(stops[:-1], stops[1:])
    for width, colour, zorder in ((3.6, "white", 4), (1.9, RED, 4.1)):
        axes.add_collection(
            LineCollection(lines, colors=colour, linewidths=width, capstyle="round", zorder=zorder)
        )
    _draw_labels(axes, graph, view, lines, edges if len(edges) < 200 else [])


def _draw_land(axes: Axes, view: View, projection: Azimuthal | EqualEarth) -> None:
    """Sea and land; of the whole world within the map's edge, with meridians and parallels."""
    from matplotlib.collections import LineCollection
    from matplotlib.patches import PathPatch
    from matplotlib.path import Path

    if not _has_land(view):
        return
    edge = None
    if isinstance(projection, EqualEarth):
        edge = PathPatch(Path(projection.edge()), fc=_SEA, ec="none", zorder=0)
        axes.add_patch(edge)
        axes.set_frame_on(False)
        lines = [projection(line) for line in _graticule(projection.longitude)]
        axes.add_collection(
            LineCollection(lines, colors="white", linewidths=0.6, zorder=0.1), autolim=False
        )
    else:
        axes.set_facecolor(_SEA)
    low, high = (np.array(corner) for corner in zip(axes.get_xlim(), axes.get_ylim(), strict=True))
    rings = [
        Path(np.concatenate([ring, ring[:1]]), closed=True)
        for ring in outlines(projection)
        if (ring.max(axis=0) > low).all() and (ring.min(axis=0) < high).all()
    ]
    if rings:
        land = PathPatch(
            Path.make_compound_path(*rings), fc=_LAND, ec=_COAST, lw=0.35 if edge else 0.6,
            joinstyle="round", zorder=0.5,
        )  # fmt: skip
        axes.add_patch(land)
        if edge is not None:
            land.set_clip_path(edge)


def _graticule(middle: float) -> list[NDArray[np.float64]]:
    """Every 30th meridian and parallel of a map of the world."""
    lon, lat = np.linspace(-180, 180, 181) + middle, np.linspace(-90, 90, 91)
    meridians = 30 * np.arange(np.ceil(lon[0] / 30), np.floor(lon[-1] / 30) + 1)
    return [
        *(np.stack([np.full(91, x), lat], axis=1) for x in meridians),
        *(np.stack([lon, np.full(181, y)], axis=1) for y in (-60.0, -30.0, 0.0, 30.0, 60.0)),
    ]


def _draw_nodes(axes: Axes, view: View, shades: Shades | None) -> None:
    shown, colours = view.known, None
    if shades is not None and shades.of_edges:
        if np.count_nonzero(shown) > _MOST_DOTS:
            return
    elif shades is not None:
        shown = shown & np.isfinite(shades.values)
        colours = shades.colours.to_rgba(shades.values[shown])
        if np.count_nonzero(shown) > _RASTER and shown.sum() == view.known.sum():
            return  # the edges show their colours
    places = view.places[shown]
    # A dot is smaller the more there are, so that a dense network stays legible.
    size = float(np.clip(900 / max(len(places), 1), 0.02, 14)) * (1 if colours is None else 2)
    axes.scatter(
        places[:, 0], places[:, 1], s=size, c=INK if colours is None else colours, lw=0, zorder=3,
        rasterized=len(places) > _RASTER,
    )  # fmt: skip


def _draw_edges(
    axes: Axes, graph: Graph, view: View, shades: Shades | None
) -> list[NDArray[np.float64]]:
    from matplotlib.collections import LineCollection

    row, col = np.minimum(graph.row, graph.col), np.maximum(graph.row, graph.col)
    known = view.known
    kept = (row != col) & known[row] & known[col]
    row, col = row[kept], col[kept]
    # Both directions of a pair and parallel edges are one line.
    pair, place = np.unique(row * len(graph.nodes) + col, return_inverse=True)
    m = len(pair)
    if not m:
        return []
    if shades is not None and np.isfinite(shades.values).all():
        ends = np.divmod(pair, len(graph.nodes))
        given = shades.values
        if shades.of_edges:
            values = np.bincount(place, given[kept]).astype(np.float64, copy=False)
        else:
            values = (given[ends[0]] + given[ends[1]]) / 2
        return _draw_shaded(axes, view, shades, *ends, values)
    if m > _MOST_EDGES:
        view.notes.append(f"{_MOST_EDGES:,} of {m:,} edges, a random sample")
        pair = np.random.default_rng(0).choice(pair, _MOST_EDGES, replace=False)
    row, col = np.divmod(pair, len(graph.nodes))
    width = float(np.clip(10 / m**0.5, 0.4, 1.1))  # points
    # The more of the picture the edges would cover side by side, the fainter they are.
    length = np.hypot(*(view.places[row] - view.places[col]).T)
    ink = np.minimum(length, view.width / 2).sum() * width / 570 / view.height
    lines = view.lines(row, col)
    axes.add_collection(
        LineCollection(
            lines, colors=_ROAD, linewidths=width,
            alpha=float(np.clip(0.06 / max(ink, 1e-9), 0.03, 0.8)), zorder=2,
            rasterized=m > _RASTER,
        ),
        autolim=False,
    )  # fmt: skip
    return lines


def _draw_shaded(
    axes: Axes, view: View, shades: Shades, row: NDArray[np.int64], col: NDArray[np.int64],
    values: NDArray[np.float64],
) -> list[NDArray[np.float64]]:  # fmt: skip
    """All edges in the colours of their numbers, the least below; of those of edges, wider, too.

    Some hundred lines of one colour are one line with gaps, which is drawn several times as fast.
    """
    from matplotlib.collections import LineCollection

    m = len(row)
    level = shades.level(values)
    order = np.argsort(level, kind="stable")
    all_lines, joined, numbers = [], [], list[int]()
    gap = np.full((1, 2), np.nan)
    for some in np.split(order, np.flatnonzero(np.diff(level[order])) + 1):
        lines = view.lines(row[some], col[some])
        all_lines += lines
        for first in range(0, len(lines), _JOINED):
            part = itertools.chain.from_iterable((x, gap) for x in lines[first : first + _JOINED])
            joined.append(np.concatenate(list(part)))
            numbers.append(int(level[some[0]]))
    width = float(np.clip(60 / m**0.5, 0.3, 1.1))
    wider = 1 + 2 * np.array(numbers) / _SHADES if shades.of_edges else np.ones(len(numbers))
    axes.add_collection(
        LineCollection(
            joined, colors=shades.colours.cmap(numbers), linewidths=width * wider, capstyle="round",
            alpha=0.7 if m < _RASTER else None, zorder=2, rasterized=m > _RASTER,
        ),
        autolim=False,
    )  # fmt: skip
    return all_lines


def _draw_labels(
    axes: Axes,
    graph: Graph,
    view: View,
    path: list[NDArray[np.float64]],
    edges: list[NDArray[np.float64]],
) -> None:
    from matplotlib.patheffects import withStroke

    known = view.known
    ends = [*view.path[:1], *view.path[1:][-1:]]
    between = view.path[1:-1] if len(view.path) <= _MOST_LABELS else []
    marked = [k for k in [*ends, *between] if known[k]]
    axes.scatter(
        view.places[marked, 0], view.places[marked, 1], s=22, c=RED, ec="white", lw=0.8, zorder=5
    )
    others: list[int] = []
    if isinstance(view.projection, Plane) and np.count_nonzero(known) <= _ALL_LABELS:
        others = [k for k in np.flatnonzero(known).tolist() if k not in set(marked)]
    nodes = [*marked, *others]
    place(
        axes, view.places[nodes], [_name(graph, k) for k in nodes], path, edges, view.places[known],
        must=len(marked), zorder=6,
        path_effects=[withStroke(linewidth=2.2, foreground="white")],
    )  # fmt: skip


def _name(graph: Graph, node: int) -> str:
    name = (graph.names[node] if graph.names else "") or graph.nodes[node]
    return name if len(name) <= _LONGEST_LABEL else name[: _LONGEST_LABEL - 1] + "…"
