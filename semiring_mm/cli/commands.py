"""The commands, a row each: its purpose, its options as its help shows them, and what runs it."""

from __future__ import annotations

import argparse
import contextlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import semiring_mm as sm

from ..files.file import PACKINGS
from ..files.formats import FORMATS
from ..plot import PANELS
from . import apsp, flows, nearest, prepare, stats, streets, table
from .options import KINDS, MATRICES, PICTURES, TABLES, USUAL, WHAT

__all__ = ["COMMANDS", "Command"]


@dataclass(frozen=True)
class Command:
    """A command of the program."""

    summary: str
    description: str
    options: str  # rows as :func:`add_rows` takes them
    # takes the options and a stack of what is to be closed; returns the exit code
    run: Callable[[argparse.Namespace, contextlib.ExitStack], int]
    # the options that name files to be written, and which extensions they accept
    outputs: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # refuses options that exclude each other
    check: Callable[[argparse.Namespace], None] = lambda args: None


def _info(args: argparse.Namespace, _: contextlib.ExitStack) -> int:
    if args.json:
        from ..config import configuration

        print(json.dumps(configuration(), indent=2))
    else:
        sm.show_config()
    return 0


_PACKED = ", ".join(extension for extension, form in FORMATS.items() if form.packed)
_OTHERS = ", ".join(extension for extension, form in FORMATS.items() if not form.packed)
_PATHS = ", ".join(
    f"{name} ({kind.path}{', the default' if name == 'min_plus' else ''})"
    for name, kind in KINDS.items()
)
_PREPARED = "; or NET.npz of semiring-mm prepare"
_WEIGHTS = """
  --weights FILE       new weights for NET.npz: a file of the same edges, of which --weight and
                       --columns are the columns; or for a map, as semiring-mm access has them"""
_PLACES = "CSV with columns x and y, or lon and lat (and id or name), or a file of points"
_MAPS = ".gpkg, .geojson, .shp, .fgb or GeoParquet; .osm.pbf, .osm"
_STREETS = """
  --speed KMH          a number, or a column of km/h: gives the weight travel_time
  --profile {driving,cycling,walking}  for OpenStreetMap; default driving
  --crs CRS            of coordinates without one: EPSG:2154, or metres
  --layer NAME         of a file that has several
  --largest            leave out what is not connected with the largest part"""


def _graph(prepared: str = _PREPARED, weights: str = _WEIGHTS) -> str:
    return f"""
  GRAPH...             a file of the graph, several files of its edges, or - for standard input:
                       {_PACKED} (each also {", ".join(PACKINGS)}), {_OTHERS}{prepared}; or a map of
                       streets: {_MAPS}
the graph:
  --nodes FILE         table of nodes: order, names, coordinates
  --weight COLUMN      the column, by name or number, or the attribute with the weights; default the
                       first there is of weight, distance, length, cost, ...
  | --unweighted       count legs{weights}
  --columns FROM,TO    the columns of an edge list that hold the ends, by names or numbers
  --format EXT         read GRAPH as a file of this extension, such as csv
  --directed           edges lead one way
  | --undirected       edges lead both ways
  --through            paths may pass through the zone centroids of a TNTP network, the nodes below
                       its first through node
streets: of a map{_STREETS}"""


_SEMIRING = f"""
  --semiring NAME      what a best path is: {_PATHS}; or a word such as shortest, widest, reliable,
                       reachability"""
_PREPARING = f"""{_SEMIRING}
  --order {{auto,minimum_degree,nested_dissection}}  in which nodes are eliminated; default auto:
                       nested dissection by METIS where it is installed and the graph has more than
                       1000 nodes
  --dtype {{float64,float32,int64,int32}}  of the weights and results; default float64"""
_THREADS = """
  --threads N          default all cores"""
_EXPLAIN = """
  --explain            print which method would be taken, with the estimated time and memory of
                       each, and do nothing else"""
_DEVICES = """
  | --devices LIST     GPUs that share the work: all, or 0,1"""
_RESUME = """
  --checkpoint [STEPS]  keep a state in or beside the file of --output after so many steps, from
                       which --resume can go on; without STEPS as often as is worthwhile
  --resume             go on from the last such state of the same work; begin where there is none,
                       and do nothing where all is done"""


def _manner(force: str = "overwrite existing files") -> str:
    return f"""
  --json               print JSON
  --force              {force}
  --quiet              no progress and no remarks
  | --progress         progress though not on a terminal"""


_APSP = f"""{_graph()}
the computation:{_SEMIRING}
  --dtype {{float64,float32}}  default float64
  --method {{auto,floyd_warshall,sparse,squaring}}
  --max-hops H         paths of at most H edges
  --device DEVICE      cpu, cuda or cuda:N; default a GPU for big dense graphs if there is one{
    _DEVICES
}
  | --scheduler ADDRESS  workers of Dask share the work: the scheduler's address, such as
                       tcp://HOST:8786{_THREADS}{_EXPLAIN}
  --memory-limit SIZE  memory to work in, such as 16GB; the matrix stays in the file of --output{
    _RESUME
}
the output:
  -o --output FILE     D.npy or D.zarr: the matrix, rows in the order of D.nodes.txt, which is
                       written beside it where nodes are not 0, 1, 2, ...; D.zarr is worked on in
                       the file. D.csv, D.csv.gz or D.parquet: a row for each pair with a path
                       (from, to, distance, legs), or for those of --pairs
  --predecessors FILE  P.npy or P.zarr: int32, -9999 for none
  --pairs PAIRS        a CSV file of pairs of nodes, or 'A,B;C,D'; prints CSV
  --routes             with --pairs: the nodes of each path, too
  --from A             print the best path from A ...
  --to B               ... to B, leg by leg
  --summary            size, reach, diameter, average, time
  --plot FILE          draw the network with the path, or --plot-what
  --plot-what LIST     what to draw, of {",".join(PANELS)}; default map
{
    _manner(
        "overwrite existing output, and take more than 4 GiB of memory for what was not said to be "
        "so large"
    )
}"""
_TABLE = f"""{_graph()}
the nodes: sources and targets; by default all
  --from-file FILE     CSV of the nodes from which paths lead, one a row
  | --from A...        such a node; again for more
  --to-file FILE       CSV of the nodes to which paths lead, one a row
  | --to A...          such a node; again for more
the computation:{_PREPARING}
  --device DEVICE      cpu, cuda or cuda:N; default cpu{_THREADS}{_EXPLAIN}
the output:
  -o --output FILE     T.csv, T.csv.gz or T.parquet: a row for each node paths lead from, a column
                       for each they lead to, with their labels; T.npy: the numbers, and the labels
                       in T.from.txt and T.to.txt. Default: CSV is printed{_manner()}"""
_NEAREST = f"""{_graph()}
the facilities:
  --facilities NODES!  a CSV file of nodes, one a row, or 'A,B,C'; of equally near ones the first
                       counts. On a map also {_PLACES}
  --limit METRES       places farther from any street are off the network
  -k K                 how many; default 1
  --outward            distances from the facilities, not to them
the computation:{_THREADS}{_EXPLAIN}
the output:
  -o --output FILE     N.csv, N.csv.gz or N.parquet: a row for each node and facility (node, rank,
                       facility, distance). Default: CSV is printed{_manner()}"""
_FLOWS = f"""{_graph()}
the demand:
  --demand FILE!       trips between nodes: a table with columns from (or origin), to (or
                       destination) and trips, in any form of GRAPH, or _trips.tntp
  --trips COLUMN       the column of the demand with the trips, by name or number; default trips
  --ties {{share,one}}   whether shortest paths of equal length share trips evenly, which is the
                       default, or one of them carries all
the computation:{_THREADS}{_EXPLAIN}
the output:
  -o --output FILE     F.csv, F.csv.gz or F.parquet: a row for each edge (from, to, weight, load).
                       Default: CSV is printed{_manner()}"""
_STATS = f"""{_graph()}
the statistics:
  --what LIST          some of {",".join(USUAL)}, which
                       is the default, and {",".join(WHAT[len(USUAL) :])}
  --sources NODES      only of these nodes: a CSV file with one a row, or 'A,B,C'
  --bins N             of the histogram: about how many, of a round width, or their edges
                       0,5,10,20; default 50
  --within R           how many nodes there are within a distance of each, or within several:
                       500,1000
  --attribute COLUMN   the column of --nodes, such as inhabitants, that is added up --within R in
                       place of counting nodes
the computation:
  --device DEVICE      cpu, cuda or cuda:N; default a GPU if there is one and the work is large
{_DEVICES}{_THREADS}{_EXPLAIN}{_RESUME}
the output:
  -o --output FILE     S.csv, S.csv.gz or S.parquet: a row for each node, or for each edge where
                       only edge_betweenness is asked for (with others: S.edges.csv); S.npz: the
                       same as arrays, and the histogram
  --plot FILE          draw the network coloured by edge_betweenness, closeness, betweenness or
                       stress, if nodes have coordinates or are few, and the histogram{_manner()}"""
_PREPARE = f"""{_graph("", "")}
the computation:{_PREPARING}{_THREADS}{_EXPLAIN}
the output:
  -o --output NET.npz!   the prepared graph: sm.load(path){_manner()}"""

_MAP = f"""
  GRAPH...             a map of streets: {_MAPS}
the streets:
  --weight COLUMN      what is short: length, in metres; travel_time, in seconds; or another column
  --weights FILE       new weights, a column called as --weight: a table with the columns u and v
                       (and key), the ends of the edges, or whose first column is one of the map's
  --directed           a line leads one way
  | --undirected       lines lead both ways; default: what the column oneway says
  --limit METRES       places farther from any street are off the network{_STREETS}"""
_ACCESS = f"""{_MAP}
the places:
  --places FILE!       what is to be reached: {_PLACES}
  --attribute COLUMN   of --places, which is added up; default weight where there is one, else each
                       place counts 1
  --origins FILE       from where, such places; default all nodes
  --radius LIST        up to which distance places count: 15min, 2km, or a number; or several:
                       5min,10min. Times are of --weight travel_time, and choose it
  --decay DECAY        exponential:D (exp(-d / D)), gaussian:D (exp(-d² / 2D²)), linear:D
                       (1 - d / D), without :D that of the radius; logistic:MIDDLE,SCALE;
                       power:EXPONENT,LEAST; or an expression in d, such as 'exp(-d / 500)'
  --inward             distances from the places, not to them
the computation:{_THREADS}
the output:
  -o --output FILE     A.csv, A.csv.gz, A.parquet: a row for each node, or origin, with x, y and
                       access; A.gpkg or A.geojson: points. Default: CSV is printed
  --plot FILE          draw the streets coloured by access, or the origins{_manner()}"""
_ROUTES = f"""{_MAP}
the trips:
  --pairs FILE!        CSV with columns from_x, from_y, to_x, to_y, or from_lon, ..., (and id); or
                       from and to, nodes
the computation:{_THREADS}
the output:
  -o --output FILE     R.geojson, R.gpkg or R.parquet (GeoParquet): lines; R.csv, R.csv.gz: with the
                       nodes of each route. Default: CSV is printed{_manner()}"""

COMMANDS = {
    "apsp": Command(
        "best paths between all pairs of nodes",
        "Best paths between all pairs of nodes of a graph. Prints a summary unless asked for "
        "something else.",
        _APSP, apsp.run,
        {"--output": MATRICES + TABLES, "--predecessors": MATRICES, "--plot": PICTURES}, apsp.check,
    ),
    "prepare": Command(
        "prepare a large sparse graph for many questions",
        "Prepare a sparse graph once, for tables and statistics of it: a customizable contraction "
        "hierarchy in a file. Prints its sizes.",
        _PREPARE, prepare.run, {"--output": (".npz",)},
    ),
    "table": Command(
        "a table of distances between chosen nodes",
        "A table of what best paths between chosen nodes are worth, of a graph or of what "
        "semiring-mm prepare made of it.",
        _TABLE, table.run, {"--output": (*TABLES, ".npy")}, table.check,
    ),
    "nearest": Command(
        "the nearest facilities of every node",
        "The k nearest of some facilities to every node, and their distances, of a graph or of "
        "what semiring-mm prepare made of it.",
        _NEAREST, nearest.run, {"--output": TABLES},
    ),
    "access": Command(
        "what each node of a street network reaches",
        "Accessibility of places on a map of streets: of each node or origin, the sum of what it "
        "reaches within a radius, or by a decay with distance.",
        _ACCESS, streets.access,
        {"--output": (*TABLES, ".gpkg", ".geojson"), "--plot": PICTURES}, streets.check,
    ),
    "routes": Command(
        "routes of trips on a map of streets",
        "The best routes of many trips between places on a map of streets, as lines or as lists "
        "of nodes.",
        _ROUTES, streets.routes, {"--output": (*TABLES, ".gpkg", ".geojson")}, streets.check,
    ),
    "flows": Command(
        "what each edge carries if all trips take shortest paths",
        "What each edge of a graph, or of what semiring-mm prepare made of it, carries if every "
        "trip of a demand takes a shortest path: an all-or-nothing assignment.",
        _FLOWS, flows.run, {"--output": TABLES},
    ),
    "stats": Command(
        "statistics of all distances",
        "Statistics of the distances between all nodes, without their matrix: eccentricity, "
        "radius, diameter, closeness, betweenness, means, and a histogram.",
        _STATS, stats.run, {"--output": (*TABLES, ".npz"), "--plot": PICTURES}, stats.check,
    ),
    "info": Command("engines, devices, versions, caches", "", "  --json  print JSON", _info),
}  # fmt: skip
