"""Streets of a map: their files for all commands, and ``semiring-mm access`` and ``routes``."""

from __future__ import annotations

import argparse
import contextlib
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import semiring_mm as sm

from ..closures.edges import NumberLabels
from ..files import Graph
from ..files.columns import FROM, TO
from ..graphs.accessibility import DECAYS
from ..naming import optional
from ..plot import draw_streets
from ..storage import atomic_write
from .compute import refused, watched
from .graph import Finder, GivenGraph, read_nodes
from .options import KINDS, Refusal, refuse
from .report import finish_rows, graph_name, warn
from .tables import quoted

__all__ = ["access", "check", "has_points", "is_streets", "places_of", "read_streets", "routes"]

_FILES = (".gpkg", ".geojson", ".shp", ".fgb", ".pbf", ".osm", ".osm.bz2", ".osm.gz", ".opl")
_DRIVERS = {".gpkg": "GPKG", ".geojson": "GeoJSON"}
#: What a weight is in, and its units.
_UNITS = {"length": "m", "travel_time": "s"}
_SIZES = {
    "m": ("length", 1.0), "km": ("length", 1000.0),
    "s": ("travel_time", 1.0), "min": ("travel_time", 60.0), "h": ("travel_time", 3600.0),
}  # fmt: skip
_AXES = (("x", "y", None), ("lon", "lat", "EPSG:4326"), ("longitude", "latitude", "EPSG:4326"))


def is_streets(args: argparse.Namespace) -> bool:
    """Whether a graph is a map of streets: a file of GeoPandas or of OpenStreetMap."""
    name = str(args.graph[0]).lower()
    if getattr(args, "format", None):
        return False
    return name.endswith(_FILES) or (name.endswith(".parquet") and _has_geometry(args.graph[0]))


def _has_geometry(name: str) -> bool:
    try:
        from pyarrow import parquet
    except ImportError:
        return False
    return Path(name).is_file() and b"geo" in (parquet.read_schema(name).metadata or {})


def read_streets(args: argparse.Namespace) -> tuple[GivenGraph, Any]:
    """The graph of a map, and the network of :func:`semiring_mm.geo.network`."""
    name, *more = args.graph
    refuse({
        f"{name} is a map, and one file is read of it": more,
        "--nodes, --columns and --unweighted are for tables of edges, not for a map; choose "
        "--weight length or travel_time": args.weight is None or getattr(args, "nodes", None)
            or getattr(args, "columns", (None, None)) != (None, None),
        "--through is for a TNTP network with zone centroids": getattr(args, "through", False),
        f"distances in a map are sums: leave out --semiring {args.semiring}":
            args.semiring not in (None, "min_plus"),
    })  # fmt: skip
    args.semiring = "min_plus"
    weight = "length" if args.weight == "weight" else args.weight
    speed: Any = args.speed
    with contextlib.suppress(TypeError, ValueError):
        speed = float(args.speed)
    try:
        net = sm.geo.network(
            name, weight="length" if args.weights else weight, speed=speed, crs=args.crs,
            directed=args.directed, layer=args.layer, profile=args.profile or "driving",
            largest=args.largest,
        )  # fmt: skip
        if args.weights:
            net.customize(_new_weights(args.weights, net, weight), name=weight)
    except ValueError as error:
        raise Refusal(f"{name}: {_options(str(error))}") from None
    streets, edges = net.streets, net.graph.edges
    labels: Sequence[str] = [str(x) for x in net.nodes]
    if isinstance(net.nodes, range):
        labels = NumberLabels(0, len(net.nodes))
    graph = Graph(
        labels, edges.row, edges.col, edges.weight, True,
        coordinates=np.stack([streets.x, streets.y], axis=1), geographic=streets.geographic,
        unit=_UNITS.get(weight, ""), weight_source=weight, direction_source="of the map",
    )  # fmt: skip
    return GivenGraph(graph, None, KINDS["min_plus"], streets=net), net


def _options(text: str) -> str:
    """A message of the library's, with options in place of its arguments."""
    return re.sub(r"\b(speed|crs|layer|directed|oneway)=", r"--\1 ", text)


def _table(name: str) -> Any:
    """A table of pandas or GeoPandas."""
    geopandas = optional("geopandas", f"{name}: maps need GeoPandas", "geo")
    import pandas as pd

    if not Path(name).is_file():
        raise Refusal(f"{name}: there is no such file")
    kind = name.lower()
    if kind.endswith(".parquet"):
        return geopandas.read_parquet(name) if _has_geometry(name) else pd.read_parquet(name)
    if kind.endswith((".csv", ".csv.gz", ".tsv", ".txt")):
        return pd.read_csv(
            name, sep=None if kind.endswith(".txt") else "\t" if ".tsv" in kind else ","
        )
    return geopandas.read_file(name)


def _new_weights(name: str, net: Any, weight: str) -> NDArray[np.float64]:
    """A weight for each edge from a table, by its columns u and v, or its first column."""
    table, streets = _table(name), net.streets
    if weight not in table:
        raise Refusal(f"{name}: no column {weight!r}: choose --weight of {', '.join(table)}")
    first = str(table.columns[0])
    if {"u", "v"} <= {*table}:
        keys = ["u", "v", "key"] if "key" in table else ["u", "v"]
        own: Any = [tuple(map(str, streets.edge_id(e)[: len(keys)])) for e in range(len(streets.u))]
        given: Any = list(zip(*(table[x].astype(str) for x in keys), strict=True))
    elif first in streets.columns and first != weight:
        own, given = map(str, streets.columns[first].tolist()), map(str, table[first].tolist())
    else:
        raise Refusal(
            f"{name}: the first column is one of the streets', to tell them by, or there are u and "
            f"v, the ends; streets have {', '.join(streets.columns)}"
        )
    known: dict[Any, float] = {}
    for at, value in zip(given, table[weight].astype(float), strict=True):
        if known.setdefault(at, value) != value:
            raise Refusal(f"{name}: street {at!r} has two weights, {known[at]:g} and {value:g}")
    own = [*own]
    if without := [x for x in own if x not in known]:
        raise Refusal(
            f"{name}: {len(without):,} of {len(own):,} edges have no weight in it, such as "
            f"{without[0]!r}"
        )
    return np.array([known[x] for x in own], np.float64)


def has_points(name: str) -> bool:
    """Whether a file tells where places are, in place of naming nodes."""
    if name.lower().endswith((*_FILES, ".parquet")):
        return True
    with contextlib.suppress(OSError, UnicodeDecodeError):
        with open(name, encoding="utf-8-sig") as file:
            head = {x.strip().strip('"').lower() for x in re.split("[,\t;]", file.readline())}
        pairs = [{before + x, before + y} for x, y, _ in _AXES for before in ("", "from_")]
        return any(pair <= head for pair in pairs)
    return False


def places_of(args: argparse.Namespace, name: str, net: Any, prefix: str = "") -> tuple[Any, Any]:
    """Places on the streets, and the table they are from."""
    table = _table(name)
    words = {str(x).strip().lower(): x for x in table}
    label = next((words[x] for x in ("id", "name") if x in words), None)
    ids = [str(x) for x in (range(1, len(table) + 1) if label is None else table[label])]
    options: dict[str, Any] = {"ids": ids, "limit": args.limit}
    with _of_file(name):
        if hasattr(table, "geometry") and not prefix:
            return net.snap(table.geometry, **options), table
        for x, y, crs in _AXES:
            if {prefix + x, prefix + y} <= {*words}:
                at = (table[words[prefix + axis]].to_numpy(float) for axis in (x, y))
                return net.snap(*at, crs=crs, **options), table
    wanted = " or ".join(f"{prefix}{x} and {prefix}{y}" for x, y, _ in _AXES[:2])
    raise Refusal(f"{name}: places have columns {wanted}, got {', '.join(map(str, table))}")


@contextlib.contextmanager
def _of_file(name: str) -> Iterator[None]:
    """Errors of places name their file."""
    try:
        yield
    except ValueError as error:
        raise Refusal(f"{name}: {error}") from None


def _measures(option: str, words: str, weight: str | None) -> list[tuple[float, str]]:
    """Distances and times, and the weight that each is in: "15min", "2km", or "" of any.

    `weight` is what is short, if that is said; a unit of another is refused.
    """
    found = []
    for word in words.split(","):
        match = re.fullmatch(r"\s*(\d+\.?\d*(?:[eE][+-]?\d+)?|\.\d+)\s*([a-z]*)\s*", word)
        if match is None or (match[2] and match[2] not in _SIZES):
            raise Refusal(
                f"{option}: expected a distance or a time such as 2km, 500m, 15min, 900s or 900, "
                f"got {word!r}"
            )
        kind, size = _SIZES.get(match[2], ("", 1.0))
        if kind and weight not in (None, kind):
            unit = f"in {_UNITS[weight]}" if weight in _UNITS else "of no known unit"
            what = "time" if kind == "travel_time" else "length"
            raise Refusal(
                f"{option} {word.strip()} is a {what}, and --weight {weight} is {unit}: write "
                f"--weight {kind}, or a number"
            )
        found.append((float(match[1]) * size, kind))
    return found


def _decay(text: str, radii: Sequence[float], weight: str | None) -> tuple[Any, set[str]]:
    """A decay as the library takes it, and the weights that its units are of."""
    name, _, rest = text.partition(":")
    if name not in DECAYS:
        return text, set()
    rule, values = DECAYS[name], _measures("--decay", rest, weight) if rest else []
    if not values and len(radii) == 1 and len(rule.parameters) == 1:
        values = [(radii[0], "")]
    if len(values) != len(rule.parameters):
        shown = {"logistic": "logistic:15min,3min", "power": "power:1,1min"}.get(
            name, f"{name}:5min"
        )
        raise Refusal(f"--decay {text}: give its parameters, such as {shown}")
    numbers = [x for x, _ in values]
    if name == "exponential":  # by its distance, as the others
        if not numbers[0]:
            raise Refusal(f"--decay {text}: its distance is positive")
        numbers[0] = 1 / numbers[0]
    return (name, *numbers), {kind for _, kind in values if kind}


def check(args: argparse.Namespace) -> None:
    """Refuse what is no map, and find out by which weight distances are."""
    if not is_streets(args):
        raise Refusal(
            f"{args.graph[0]}: expected a map of streets, in {', '.join(_FILES[:5])} or GeoParquet"
        )
    args.semiring = None
    if args.command == "access":
        if args.radius is None and args.decay is None:
            raise Refusal("say what counts: --radius 15min, --decay exponential:5min, or both")
        weight = None if args.weight == "weight" else args.weight
        radii = _measures("--radius", args.radius, weight) if args.radius else []
        units: set[str] = set()
        args.rule = None
        if args.decay:
            args.rule, units = _decay(args.decay, [x for x, _ in radii], weight)
        units |= {kind for _, kind in radii if kind}
        if len(units) > 1:
            raise Refusal("--radius and --decay are both times, or both lengths")
        args.radii = [x for x, _ in radii]
        if weight is None and units:
            (args.weight,) = units


def access(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run ``semiring-mm access`` and return its exit code."""
    given, net = read_streets(args)
    places, table = places_of(args, args.places, net)
    column = args.attribute or ("weight" if "weight" in table else None)
    if column is not None and column not in table:
        raise Refusal(f"{args.places}: no column {column!r}, but {', '.join(map(str, table))}")
    try:
        weights = None if column is None else table[column].to_numpy(float)
    except (TypeError, ValueError):
        raise Refusal(f"{args.places}: column {column!r} holds numbers") from None
    if weights is not None and (weights == np.rint(weights)).all():
        weights = weights.astype(np.int64)
    origins = None if args.origins is None else places_of(args, args.origins, net)[0]
    warnings = warn(given, chosen=True)
    radius = args.radii if len(args.radii) > 1 else next(iter(args.radii), None)
    with refused(given):
        found = net.accessibility(
            places, weights, sources=origins, radius=radius, decay=args.rule,
            outward=not args.inward, progress=watched(args, stack),
        )  # fmt: skip
    words = args.radius.replace(" ", "").split(",") if len(args.radii) > 1 else [""]
    names = [f"access_{word}".rstrip("_") for word in words]
    columns: dict[str, Any] = dict(zip(names, found.reshape(len(found), -1).T, strict=True))
    if origins is None:
        x, y, at = net.streets.x, net.streets.y, {"node": [*given.graph.nodes]}
    else:
        x, y, at = origins.x, origins.y, {"place": [*origins.ids]}
    given.notes.append(f"{len(places):,} places" + (f", weighed by {column}" if column else ""))
    if args.plot:
        title = f"{graph_name(args)}: access to {Path(args.places).name}"
        with atomic_write(args.plot) as part:
            draw_streets(str(part), net.streets, columns, places=origins, title=title)
    columns = at | {"x": x, "y": y} | columns
    return _out(args, given, warnings, columns, lambda: _points(net, x, y), drawn=args.plot)


def _points(net: Any, x: Any, y: Any) -> Any:
    import geopandas

    return geopandas.points_from_xy(x, y, crs=net.streets.crs)


def routes(args: argparse.Namespace, stack: contextlib.ExitStack) -> int:
    """Run ``semiring-mm routes`` and return its exit code."""
    given, net = read_streets(args)
    warnings = warn(given, chosen=True)
    columns: dict[str, Any]
    if has_points(args.pairs):
        ends = [places_of(args, args.pairs, net, word)[0] for word in ("from_", "to_")]
        columns = {"trip": [*ends[0].ids]}
    else:
        pairs = read_nodes("--pairs", args.pairs, Finder(given.graph), given.notes, (FROM, TO))
        labels = given.graph.nodes
        columns = {word: [labels[p[i]] for p in pairs] for i, word in enumerate(("from", "to"))}
        ends = [[net.nodes[p[i]] for p in pairs] for i in (0, 1)]
    found = net.paths(*ends, progress=watched(args, stack))
    columns |= {
        net.weight: np.array([x.weight for x in found]),
        "edges": np.array([len(x.edges) for x in found], np.int64),
    }
    if without := sum(not np.isfinite(x.weight) for x in found):
        given.notes.append(f"{without:,} of {len(found):,} trips have no route")
    drawn = args.output and args.output.lower().endswith((*_DRIVERS, ".parquet"))
    if not drawn:
        columns["route"] = [quoted(*map(str, x.nodes), between=";") for x in found]
    return _out(
        args, given, warnings, columns, lambda: [x.to_linestring() for x in found],
        geometry=bool(drawn),
    )  # fmt: skip


def _out(
    args: argparse.Namespace, given: GivenGraph, warnings: Sequence[str], columns: dict[str, Any],
    shapes: Any, *, geometry: bool = False, drawn: str | None = None,
) -> int:  # fmt: skip
    """Write a table, with shapes where the format has them, or print it if it is not drawn."""
    suffix = Path(args.output or "").suffix.lower()

    def write() -> int:
        import geopandas

        crs = given.streets.streets.crs
        frame = geopandas.GeoDataFrame(columns, geometry=shapes(), crs=crs)
        with atomic_write(args.output) as part:
            if suffix == ".parquet":
                frame.to_parquet(part)
            else:
                if suffix == ".geojson" and crs is not None:
                    frame = frame.to_crs("EPSG:4326")
                frame.to_file(part, driver=_DRIVERS[suffix], layer=args.command)
        return len(frame)

    shaped = write if geometry or suffix in _DRIVERS else None
    return finish_rows(args, given, warnings, columns, write=shaped, drawn=drawn)
