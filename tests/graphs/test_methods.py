"""Which method is taken for some 2,000 requests: a table, held letter by letter.

Each line of :data:`TAKEN` is a family of graphs, how it is given, and dtypes or semirings. Its
letters are methods (:data:`METHODS`) for paths from all nodes, from one, from twenty and from n
named nodes: first distances, then with predecessors; in float64 then with little free memory, and
undirected. Nothing is computed: the method is noted where it begins to report its progress.
``python tests/graphs/test_methods.py`` prints the table anew; a change of it needs a measurement.
"""

import contextlib
import functools
import importlib
import pkgutil
import sys

import host_device
import numpy as np
import pytest
from metrics import grid

import semiring_mm as sm
from semiring_mm import memory, pool, progress
from semiring_mm.closures.edges import EdgeList
from semiring_mm.gpu import device
from semiring_mm.gpu import engine as gpu

sp = pytest.importorskip("scipy.sparse")
from semiring_mm.csgraph import shortest_path  # noqa: E402

#: What a method reports as its name, and its letter.
METHODS = {
    "sparse elimination": "e",
    "a search from each source": "s",
    "breadth-first searches": "b",
    "a spanning tree": "t",
    "elimination in blocks": "d",
    "rounds of products": "r",
    "rounds over the edges": "R",
    "products by repeated squaring": "p",
    "repeated squaring": "q",
    "elimination in tiles": "T",
    "elimination over devices": "D",
    "a batch": "B",
    "closures": "1",
    "sweeps": "w",
    "sweeps on CUDA": "W",
    "MemoryError": "m",
    "NegativeCycleError": "-",
    "ValueError": "v",
    "TypeError": "v",
    "": "0",  # at once: nothing is reported
}
#: Methods that may still leave the work to another one after they have reported.
_MAY_LEAVE = {"a spanning tree", "closures"}
#: What is told of parts of a method, or of an argument that is checked.
_PARTS = {"", "order", "the nearest facilities", "weights"}
_LITTLE = 400_000  # bytes


class Taken(BaseException):
    """The method has begun; raised through whatever would handle errors."""


def _grid(side):
    n, row, col = grid(side)
    return n, np.append(col, row), np.append(row, col)


def _roads(side):
    """A grid of which a third of the streets are missing."""
    n, row, col = _grid(side)
    kept = np.random.default_rng(1).random(len(row) // 2) < 0.68
    kept = np.append(kept, kept)
    return n, row[kept], col[kept]


def _random(n, degree):
    rng = np.random.default_rng(n + degree)
    row, col = rng.integers(0, n, (2, n * degree))
    return n, row[row != col], col[row != col]


def _scale_free(n, each):
    rng, ends, row, col = np.random.default_rng(2), [0, 1], [], []
    for v in range(2, n):
        for u in {ends[k] for k in rng.integers(0, len(ends), each)}:
            row, col, ends = [*row, u, v], [*col, v, u], [*ends, u, v]
    return n, np.array(row), np.array(col)


def _acyclic(n, degree):
    n, row, col = _random(n, degree)
    return n, np.minimum(row, col), np.maximum(row, col)


def _full(n):
    row, col = np.nonzero(~np.eye(n, dtype=bool))
    return n, row, col


#: Nodes and arcs, the least and the largest weight, and whether weights are the same both ways.
FAMILIES = {
    "tiny": (_random(9, 2), 1, 9, False),
    "grid": (_grid(20), 1, 99, True),
    "large grid": (_grid(45), 1, 99, False),
    "roads": (_roads(30), 1, 99, True),
    "unit grid": (_grid(24), 1, 1, True),
    "unit random": (_random(500, 6), 1, 1, False),
    "random 1": (_random(600, 1), 1, 99, False),
    "random 3": (_random(500, 3), 1, 99, False),
    "large random 4": (_random(1500, 4), 1, 99, False),
    "random 12": (_random(300, 12), 1, 99, False),
    "random 40": (_random(200, 40), 1, 99, False),
    "scale-free": (_scale_free(500, 2), 1, 99, True),
    "acyclic": (_acyclic(300, 3), 1, 9, False),
    "negative": (_acyclic(300, 3), -9, 9, False),
    "zeros": (_grid(15), 0, 3, True),
    "dense": (_full(150), 1, 99, False),
    "dense 60": (_full(60), 1, 99, True),
}
#: How graphs are given, and with which dtypes; large ones only as edges.
KINDS = {"edges": "f8 f4 i8", "array": "f8 f4 f2 i4"}
_LARGE = 600
OTHERS = "max_min max_times lor_land max_plus plus_times own"
HOST = host_device.HostDevice()
OWN = sm.Semiring("own", "max(a, b)", "a + b if a < 0 else min(a, b)", -np.inf, np.inf)


@functools.cache
def graph(family, dtype):
    """Nodes, and arcs with their weights."""
    (n, row, col), least, most, same = FAMILIES[family]
    rng = np.random.default_rng(3)
    weight = rng.integers(least, most + 1, len(row))
    if same:
        low, high = np.minimum(row, col), np.maximum(row, col)
        weight = least + (low * 31 + high * 17) % (most - least + 1)
    return n, row, col, weight.astype(dtype)


@functools.lru_cache(4)
def given(family, kind, dtype, s):
    """The graph over a semiring; over max_times weights are at most 1."""
    n, row, col, weight = graph(family, dtype)
    if s.name == "max_times" and weight.size:
        weight = weight / weight.max()
    if kind == "edges":
        return EdgeList(range(n), row, col, weight, True)
    if s.name == "lor_land":
        matrix = np.zeros((n, n), bool)
        matrix[row, col] = True
        return matrix
    matrix = np.full((n, n), s.identities(np.dtype(dtype))[0], dtype)
    matrix[row, col] = weight
    return matrix


@contextlib.contextmanager
def noted(patch, free=1 << 33):
    """Give the list of methods that begin, the last of which raises :class:`Taken`."""
    begun = []

    def reporter(given, total, method="", unit="pairs"):
        if method not in _PARTS:
            begun.append(method)
            if method not in _MAY_LEAVE:
                raise Taken
        return None

    before = {"reporter": progress.reporter, "free_memory": memory.free_memory}
    after = {"reporter": reporter, "free_memory": lambda: free}
    for module in [x for name, x in sys.modules.items() if name.startswith("semiring_mm.")]:
        for name, function in before.items():
            if vars(module).get(name) is function:
                patch.setattr(module, name, after[name])
    patch.setattr("semiring_mm.arrays._UNASKED", 0)
    patch.setattr("semiring_mm.graphs.methods._UNASKED", 1 << 18)
    yield begun


def letter(begun, call):
    begun.clear()
    try:
        call()
    except Taken:
        pass
    except (MemoryError, ValueError, TypeError, sm.NegativeCycleError) as error:
        begun.append(type(error).__name__)
    return METHODS[begun[-1] if begun else ""]


def load_all():
    """All modules of graphs and tiles, so that their reporters can be replaced."""
    for room in ("graphs", "closures", "tiled", "hierarchy"):
        package = importlib.import_module(f"semiring_mm.{room}")
        for x in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(x.name)
    for name in ("csgraph", "cpu.engine"):  # which have names of their own for free memory
        importlib.import_module(f"semiring_mm.{name}")


def on_host(patch):
    """Take the host for a CUDA device."""
    host_device.need_compiler()
    patch.setattr(device, "current", lambda: HOST)
    patch.setattr(device, "why_not", lambda: "")
    patch.setattr(gpu, "on", lambda *_: contextlib.ExitStack())
    patch.setattr(gpu, "free_memory", lambda: 1 << 33)


def _semiring(name):
    return OWN if name == "own" else sm.semirings[name]


def sources_of(n):
    return None, [n // 2], list(range(0, n, -(-n // 20))), list(range(n))


def letters(family, kind, dtype, name, *, trees=False, free=1 << 33, every=True, directed=None):
    """Letters of `apsp`, or of `closure`."""
    s, n, found = _semiring(name), FAMILIES[family][0][0], ""
    x = given(family, kind, dtype, s)
    run = functools.partial(*([sm.apsp, x] if name == "min_plus" else [sm.closure, x, s]))
    with pytest.MonkeyPatch.context() as patch, noted(patch, free) as begun:
        for sources in sources_of(n)[:: 1 if every else 2]:
            found += letter(
                begun,
                functools.partial(
                    run, sources=sources, return_predecessors=trees, directed=directed
                ),
            )
    return found


def closures(family):
    """Lines of a family: by kind and dtype for min_plus, then by semiring."""
    large = FAMILIES[family][0][0] > _LARGE
    for kind, dtypes in KINDS.items():
        if large and kind == "array":
            continue
        rows = {}
        for dtype in dtypes.split():
            found = [letters(family, kind, dtype, "min_plus", trees=x) for x in (False, True)]
            if dtype == "f8":
                found.append(letters(family, kind, dtype, "min_plus", free=_LITTLE))
                found.append(letters(family, kind, dtype, "min_plus", directed=False))
            rows.setdefault(" ".join(found), []).append(dtype)
        for found, names in rows.items():
            yield f"{kind} {' '.join(names)}: {found}"
        rows = {}
        for name in OTHERS.split():
            found = [letters(family, kind, "f8", name, trees=x, every=False) for x in (False, True)]
            rows.setdefault(" ".join(found), []).append(name)
        yield f"{kind}: " + ", ".join(f"{' '.join(names)} {x}" for x, names in rows.items())


def doors(family):
    """Lines of a family at other doors, in float64."""
    edges, n = given(family, "edges", "f8", sm.semirings["min_plus"]), FAMILIES[family][0][0]
    _, one, some, every = sources_of(n)
    csr = sp.csr_array((edges.weight, (edges.row, edges.col)), shape=(n, n))
    limited = [{"tiles": sm.Tiles(memory="100MB")}]
    limited.append(limited[0] | {"sources": some})
    calls = {
        "csgraph": [functools.partial(shortest_path, csr, indices=x) for x in (None, one, some)],
        "statistics": [functools.partial(sm.statistics, edges, "mean", sources=x, bins=[0, 1])
                       for x in (None, one, some)],
        "betweenness": [functools.partial(sm.statistics, edges, "betweenness", sources=x)
                        for x in (None, one, some)],
        "nearest": [functools.partial(sm.nearest, edges, x) for x in (one, some, every)],
        "memory_limit": [functools.partial(sm.apsp, edges, **x) for x in limited],
    }  # fmt: skip
    for word in ("squaring", "floyd_warshall", "sparse"):
        calls[word] = [
            functools.partial(sm.apsp, edges, method=word, sources=x) for x in (None, one, some)
        ]
    calls["max_hops"] = [
        functools.partial(sm.apsp, edges, max_hops=3, sources=x) for x in (None, one, some, every)
    ]
    if n <= _LARGE:
        s = sm.semirings["min_plus"]
        array, widths = (given(family, "array", "f8", x) for x in (s, sm.semirings["max_min"]))
        calls["array, memory_limit"] = [
            *(functools.partial(sm.apsp, array, **x) for x in limited),
            functools.partial(sm.closure, widths, "max_min", **limited[0]),
        ]
        calls["array, max_hops"] = [
            functools.partial(sm.apsp, array, max_hops=3, sources=x) for x in (None, one)
        ]
        calls["array, sparse"] = [
            functools.partial(sm.apsp, array, method="sparse", sources=x) for x in (None, some)
        ]
        calls["batch"] = [functools.partial(sm.apsp, np.stack([array, array]))]
    with pytest.MonkeyPatch.context() as patch, noted(patch) as begun:
        found = {name: "".join(letter(begun, x) for x in some) for name, some in calls.items()}
    return ", ".join(f"{name} {x}" for name, x in found.items())


def on_device(family):
    """A line of a family on a CUDA device: edges, edges as a sparse graph, and an array."""
    s, n = sm.semirings["min_plus"], FAMILIES[family][0][0]
    edges, (_, _, some, _) = given(family, "edges", "f4", s), sources_of(n)
    calls = {"edges": [{}, {"sources": some}, {"return_predecessors": True}]}
    calls["sparse"] = [{"method": "sparse"}, {"method": "sparse", "sources": some}]
    if n <= _LARGE:
        calls["array"] = [{}, {"sources": some}, {"max_hops": 3}]
    found = []
    with pytest.MonkeyPatch.context() as patch, noted(patch) as begun:
        for name, options in calls.items():
            x = given(family, "array", "f4", s) if name == "array" else edges
            taken = [
                letter(begun, functools.partial(sm.apsp, x, device="cuda", **y)) for y in options
            ]
            found.append(f"{name} {''.join(taken)}")
    return ", ".join(found)


def lines():
    """The table, line by line."""
    for family in FAMILIES:
        yield from (f"{family}, {line}" for line in closures(family))
        yield f"{family}, {doors(family)}"


def device_lines():
    """The table of a CUDA device."""
    yield from (f"{family}, {on_device(family)}" for family in FAMILIES)


TAKEN = """\
[tiny]
edges f8: dsss dsss dsss dsss
edges f4 i8: dsss dsss
edges: max_min max_times lor_land own ds ds, max_plus dr dr, plus_times vv vv
array f8: drrr drrr drrr drrr
array f4 f2 i4: drrr drrr
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph sss, statistics sss, betweenness sss, nearest sss, memory_limit Ts, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRrr, array, memory_limit TsT, array, max_hops pr,
  array, sparse ee, batch B
[grid]
edges f8: esse esse mssm dsse
edges f4: dssr esse
edges i8: esse esse
edges: max_min lor_land tt tt, max_times own es es, max_plus plus_times vv vv
array f8: esse esse mmmm esse
array f4 f2 i4: dssr esse
array: max_min lor_land tt tt, max_times max_plus own dr dr, plus_times vv vv
csgraph ess, statistics wss, betweenness wss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit est, array, max_hops pr,
  array, sparse ee, batch B
[large grid]
edges f8: esse esse mssm esse
edges f4 i8: esse esse
edges: max_min max_times own es es, lor_land ts ts, max_plus plus_times vv vv
csgraph ess, statistics wss, betweenness wss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr
[roads]
edges f8: esse esse mssm esse
edges f4 i8: esse esse
edges: max_min lor_land tt tt, max_times own es es, max_plus plus_times vv vv
csgraph ess, statistics wss, betweenness wss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr
[unit grid]
edges f8: bssb ssss mssm bssb
edges f4 i8: bssb ssss
edges: max_min lor_land tt tt, max_times own ss ss, max_plus plus_times vv vv
array f8: bssb ssss mmmm bssb
array f4 f2 i4: bssb ssss
array: max_min lor_land tt tt, max_times max_plus own dr dr, plus_times vv vv
csgraph bss, statistics bbs, betweenness sss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit est, array, max_hops pr,
  array, sparse ee, batch B
[unit random]
edges f8: bsbb ssss bsbb bsbb
edges f4 i8: bsbb ssss
edges: max_min max_times own ss ss, lor_land ds ds, max_plus plus_times vv vv
array f8: bsbb ssss mmmm bsbb
array f4 f2 i4: bsbb ssss
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph ess, statistics bbb, betweenness sss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit ese, array, max_hops pr,
  array, sparse ee, batch B
[random 1]
edges f8: esse esse mssm esse
edges f4 i8: esse esse
edges: max_min max_times own es es, lor_land ds ds, max_plus plus_times vv vv
array f8: esse esse mmmm esse
array f4 f2 i4: esse esse
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph ess, statistics wss, betweenness wss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit ese, array, max_hops pr,
  array, sparse ee, batch B
[random 3]
edges f8: esse esse mssm dsse
edges f4 i8: esse esse
edges: max_min max_times own es es, lor_land ds ds, max_plus plus_times vv vv
array f8: esse esse mmmm esse
array f4 f2 i4: esse esse
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph ess, statistics wss, betweenness sss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit ese, array, max_hops pr,
  array, sparse ee, batch B
[large random 4]
edges f8: esse esse mssm esse
edges f4 i8: esse esse
edges: max_min max_times own es es, lor_land ds ds, max_plus plus_times vv vv
csgraph ess, statistics wss, betweenness sss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr
[random 12]
edges f8: dssr dssr mssm dssr
edges f4: dssr dsse
edges i8: dssr dssr
edges: max_min max_times lor_land own ds ds, max_plus dr dr, plus_times vv vv
array f8: dssr dssr mmmm dssr
array f4 f2 i4: dssr dsse
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph dss, statistics wss, betweenness sss, nearest ss0, memory_limit Ts, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit TsT, array, max_hops pr,
  array, sparse ee, batch B
[random 40]
edges f8: dssr dssr dssr dssr
edges f4 i8: dssr dssr
edges: max_min max_times lor_land own ds ds, max_plus dr dr, plus_times vv vv
array f8: drrr drrr drrr drrr
array f4 f2 i4: drrr drrr
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph dss, statistics wss, betweenness sss, nearest ss0, memory_limit Ts, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit TsT, array, max_hops pr,
  array, sparse ee, batch B
[scale-free]
edges f8: esse esse mssm esse
edges f4 i8: esse esse
edges: max_min lor_land tt tt, max_times own es es, max_plus plus_times vv vv
array f8: esse esse mmmm esse
array f4 f2 i4: esse esse
array: max_min lor_land tt tt, max_times max_plus own dr dr, plus_times vv vv
csgraph ess, statistics wss, betweenness wss, nearest ss0, memory_limit es, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit est, array, max_hops pr,
  array, sparse ee, batch B
[acyclic]
edges f8: dssr ssss mssm dssr
edges f4 i8: dssr ssss
edges: max_min max_times own ds ss, lor_land ds ds, max_plus dr ee, plus_times vv vv
array f8: dssr ssss mmmm dssr
array f4 f2 i4: dssr ssss
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph dss, statistics sss, betweenness sss, nearest sss, memory_limit Ts, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit TsT, array, max_hops pr,
  array, sparse ee, batch B
[negative]
edges f8: dssr esse mssm d--r
edges f4 i8: dssr esse
edges: max_min own ds ss, max_times max_plus dr ee, lor_land ds ds, plus_times vv vv
array f8: dssr esse mmmm d--r
array f4 f2 i4: dssr esse
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph dss, statistics www, betweenness www, nearest 000, memory_limit Te, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit TeT, array, max_hops pr,
  array, sparse ee, batch B
[zeros]
edges f8: dsss ssss mssm dssr
edges f4: dssr ssss
edges i8: dsss ssss
edges: max_min lor_land tt tt, max_times own ds ss, max_plus dr dr, plus_times vv vv
array f8: dsss ssss mmmm dsss
array f4 f2 i4: dssr ssss
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph sss, statistics sss, betweenness sss, nearest sss, memory_limit ss, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit sst, array, max_hops pr,
  array, sparse ee, batch B
[dense]
edges f8: dsrr dsrr dsrr dsrr
edges f4 i8: dsrr dsrr
edges: max_min max_times max_plus own dr dr, lor_land ds ds, plus_times vv vv
array f8: drrr drrr drrr drrr
array f4 f2 i4: drrr drrr
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph dsr, statistics wss, betweenness sss, nearest ss0, memory_limit Ts, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRRr, array, memory_limit TsT, array, max_hops pr,
  array, sparse ee, batch B
[dense 60]
edges f8: dssr dssr dssr dssr
edges f4 i8: dssr dssr
edges: max_min lor_land tt tt, max_times own ds ds, max_plus dr dr, plus_times vv vv
array f8: drrr drrr drrr drrr
array f4 f2 i4: drrr drrr
array: max_min max_times lor_land max_plus own dr dr, plus_times vv vv
csgraph dss, statistics sss, betweenness sss, nearest sss, memory_limit Ts, squaring qrr,
  floyd_warshall drr, sparse eee, max_hops pRrr, array, memory_limit Tst, array, max_hops pr,
  array, sparse ee, batch B
"""
ON_DEVICE = """\
tiny, edges drd, sparse ee, array 1rp
grid, edges dre, sparse ee, array 1rp
large grid, edges eee, sparse ee
roads, edges eee, sparse ee
unit grid, edges bbe, sparse ee, array 1bp
unit random, edges drd, sparse ee, array 1rp
random 1, edges eee, sparse ee, array 1ep
random 3, edges eee, sparse ee, array 1ep
large random 4, edges eee, sparse ee
random 12, edges drd, sparse ee, array 1rp
random 40, edges drd, sparse ee, array 1rp
scale-free, edges eee, sparse ee, array 1ep
acyclic, edges dre, sparse ee, array 1rp
negative, edges dre, sparse ee, array 1rp
zeros, edges drd, sparse ee, array 1rp
dense, edges drd, sparse ee, array 1rp
dense 60, edges drd, sparse ee, array 1rp
"""


def table(text):
    """Lines by family; one that goes on is indented."""
    parts = text.replace("\n  ", " ").strip("[").split("\n[")
    return {x.partition("]")[0]: x.splitlines()[1:] for x in parts}


@pytest.fixture
def everything(two_threads):
    load_all()


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("family", FAMILIES)
def test_the_methods_of_a_family(family):
    assert [*closures(family), doors(family)] == table(TAKEN)[family]


@pytest.mark.usefixtures("everything")
def test_the_methods_on_a_device(monkeypatch):
    on_host(monkeypatch)
    assert [*device_lines()] == ON_DEVICE.splitlines()


def test_the_table_is_of_some_2000_requests(monkeypatch):
    """Counted by how often the recorder is asked."""
    assert sum(len(taken) * kinds for taken, kinds in cells(TAKEN + ON_DEVICE)) > 1900


def cells(text):
    """Groups of letters, each with the number of dtypes or semirings that it is of."""
    for line in text.replace("\n  ", " ").splitlines():
        names, _, rest = line.rpartition(": ")
        for part in rest.split(", "):
            words = part.split()
            taken = [x for x in words if set(x) <= {*METHODS.values()} and x != "sparse"]
            yield "".join(taken), max(1, len(names.split()) - 1, len(words) - len(taken))


@pytest.mark.usefixtures("everything")
@pytest.mark.parametrize("family", ["tiny", "grid", "unit random", "random 12", "negative"])
def test_what_is_explained_is_what_is_taken(family):
    """The method named is the one that begins, and each other one has a cost or a reason."""
    edges = given(family, "edges", "f8", sm.semirings["min_plus"])
    _, one, some, _ = sources_of(edges.n)
    for options in ({}, {"sources": some}, {"sources": one, "return_predecessors": True}):
        found = sm.explain(edges, **options)
        with pytest.MonkeyPatch.context() as patch, noted(patch) as begun:
            assert (
                letter(begun, functools.partial(sm.apsp, edges, **options)) == LETTERS[found.taken]
            )
        best = next(x for x in found.methods if x.method == found.taken)
        for x in found.methods:
            assert (x.seconds is None) == bool(x.why)
            assert x.seconds is None or x.seconds >= best.seconds
    with pytest.MonkeyPatch.context() as patch, noted(patch) as begun:
        taken = letter(begun, functools.partial(sm.statistics, edges, "betweenness", sources=some))
    found = sm.explain(edges, "betweenness", sources=some)
    assert LETTERS[found.taken] == taken
    assert all(x.memory and x.seconds for x in found.methods if not x.why)
    assert str(sm.explain(edges, "flows", sources=some)) == str(found)
    words = str(sm.explain(edges, use="statistics"))
    assert words.count(" taken") == 1
    assert len({line.split("  ")[0] for line in words.splitlines()}) > 10


LETTERS = {
    "sparse elimination": "e",
    "a search from each source": "s",
    "potentials and searches": "s",
    "breadth-first searches": "b",
    "elimination in blocks": "d",
    "rounds of products": "r",
    "searches and back": "s",
    "reverse sweeps": "w",
}


def test_what_explain_refuses():
    edges = given("tiny", "edges", "f8", sm.semirings["min_plus"])
    with pytest.raises(ValueError, match=r"use is one of 'apsp', .*, 'stress', got 'table'"):
        sm.explain(edges, use="table")
    with pytest.raises(ValueError, match="method and max_hops are for min_plus"):
        sm.explain(edges, semiring="max_min", max_hops=2)
    with pytest.raises(ValueError, match="max_hops needs method='squaring'"):
        sm.explain(edges, method="sparse", max_hops=2)


def test_memory_to_prepare_is_told_before():
    n, row, col = grid(50)
    graph = sp.coo_array((np.ones(len(row)), (row, col)), shape=(n, n))
    (method,) = sm.explain(graph, "prepare").methods
    assert 100 * n < method.memory < 250 * n


def test_explain_of_a_prepared_graph_is_what_was_prepared():
    net = sm.prepare(given("grid", "edges", "f8", sm.semirings["min_plus"]))
    found = sm.explain(net, use="nearest")
    assert found.taken == "sparse elimination"
    assert f"a tree {net.depth} deep" in str(found)
    assert net.fill > 0 == net.core


def test_paths_of_few_edges_that_all_count_1():
    """Breadth-first searches know of no limit."""
    x = given("unit grid", "array", "f8", sm.semirings["min_plus"])
    few = sm.apsp(x, max_hops=3, sources=[0, 5])
    assert np.isfinite(few).sum(axis=1).tolist() == [10, 16]
    np.testing.assert_array_equal(few, sm.apsp(x, max_hops=3)[[0, 5]])


def test_large_matrices_are_told_of(monkeypatch):
    """All pairs of a graph that has no matrix, above a quarter of the free memory."""
    edges = given("large grid", "edges", "f8", sm.semirings["min_plus"])
    monkeypatch.setattr("semiring_mm.graphs.choice._TOLD", 1 << 20)
    monkeypatch.setattr("semiring_mm.graphs.choice.free_memory", lambda: 4 * 8 * edges.n**2 - 1)
    with pytest.warns(UserWarning, match="a matrix of all pairs of 2,025 nodes"):
        sm.explain(edges)
    monkeypatch.setattr("semiring_mm.graphs.choice.free_memory", lambda: 4 * 8 * edges.n**2)
    sm.explain(edges)


if __name__ == "__main__":
    load_all()
    pool.set_num_threads(2)
    print(*lines(), sep="\n")
    with pytest.MonkeyPatch.context() as patch:
        on_host(patch)
        print(*device_lines(), sep="\n")
