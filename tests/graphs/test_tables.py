"""Tables of edges: columns mean the same in files and in memory, whatever made the table."""

import csv
import itertools
import warnings
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from optional import nx, pa, pd, pl, pq

import semiring_mm as sm
from semiring_mm import cli
from semiring_mm.files import formats, read_graph

inf = np.inf


def written(columns, path):
    with path.open("w", newline="") as file:
        rows = zip(*columns.values(), strict=True)
        csv.writer(file).writerows([[*columns], *rows])
    return path


def in_parquet(columns, path):
    pq.write_table(pa.table(columns), path)
    return path


#: What makes a table of named lists, given also a path where it can be.
MAKERS = {
    "CSV": lambda columns, folder: written(columns, folder / "a.csv"),
    "Parquet": lambda columns, folder: in_parquet(columns, folder / "a.parquet"),
    "pandas": lambda columns, folder: pd.DataFrame(columns),
    "pandas, its own types": lambda columns, _: pd.DataFrame(columns).convert_dtypes(),
    "pandas, other labels of rows": lambda columns, _: pd.DataFrame(columns).set_index(
        np.arange(len(columns[min(columns)]))[::-1] * 0.5
    ),
    "Polars": lambda columns, folder: pl.DataFrame(columns, strict=False),
    "Arrow": lambda columns, folder: pa.table(columns),
    "Arrow, a batch": lambda columns, folder: pa.record_batch(columns),
    "Arrow, in chunks": lambda columns, folder: pa.concat_tables(
        pa.table(columns)[part] for part in (slice(0, 2), slice(2, None))
    ),
}
makers = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)

#: Values of a column, and how an edge leads: 1 one way, 0 both, -1 backwards.
WAYS = {
    "oneway": [
        {"yes": 1, "no": 0, "true": 1, "False": 0, "1": 1, "0": 0, "-1": -1, "reverse": -1},
        {True: 1, False: 0}, {1: 1, 0: 0, -1: -1}, {"yes": 1, None: 0}, {1.0: 1, -1.0: -1, None: 0},
        {None: 0, True: 1},
    ],
    "directed": [
        {"true": 1, "False": 0, "yes": 1, "no": 0, "directed": 1, "Undirected": 0},
        {True: 1, False: 0}, {1: 1, 0: 0},
    ],
    "Type": [{"Directed": 1, "Undirected": 0}, {"Directed": 1}, {"road": 1, "ferry": 1}],
}  # fmt: skip
NAMES = [("from", "to"), ("source", "target"), ("Source", "Target"), ("u", "v"), ("id_1", "id_2")]


def drawn(seed):
    """Named columns of a random table, and its edges."""
    rng = np.random.default_rng(seed)
    m = int(rng.integers(3, 12))
    labels = [[*range(3, 9)], [*"abcdef"], ["x y", "é", "1", "-", "n o", "z"]][seed % 3]
    names = NAMES[rng.integers(len(NAMES))]
    ends = [[labels[k] for k in rng.integers(0, 6, m)] for _ in names]
    weights = [rng.integers(0, 9, m), rng.integers(0, 9, m) / 4, None][rng.integers(3)]
    ways = [1] * m
    columns = dict(zip(names, ends, strict=True)) | {"note": [f"n{k % 2}" for k in range(m)]}
    if weights is not None:
        columns[["weight", "km", "Length (miles)", "cost"][rng.integers(4)]] = weights.tolist()
    kind = ["oneway", "directed", "Type", ""][rng.integers(4)]
    if kind:
        words = WAYS[kind][rng.integers(len(WAYS[kind]))]
        chosen = [[*words][k] for k in rng.integers(0, len(words), m)]
        columns[kind], ways = chosen, [words[x] for x in chosen]
    order = rng.permutation(len(columns))
    columns = {name: columns[name] for name in (list(columns)[k] for k in order)}
    return columns, zip(*ends, np.ones(m) if weights is None else weights, ways, strict=True)


def distances(edges):
    """By the book, between labels as text."""
    found = {}
    for u, v, w, way in edges:
        for a, b in [(u, v)][: way >= 0] + [(v, u)][: way <= 0]:
            found[str(a), str(b)] = min(w, found.get((str(a), str(b)), inf))
    nodes = {x for pair in found for x in pair}
    found |= {(x, x): 0 for x in nodes}
    for k, i, j in itertools.product(nodes, repeat=3):
        through = found.get((i, k), inf) + found.get((k, j), inf)
        found[i, j] = min(through, found.get((i, j), inf))
    return {pair: float(d) for pair, d in found.items()}


@pytest.mark.parametrize("seed", range(24))
@makers
def test_the_same_table_gives_the_same_distances(tmp_path, make, seed):
    columns, edges = drawn(seed)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        found = sm.apsp(make(columns, tmp_path))
    pairs = itertools.product(map(str, found.nodes), repeat=2)
    assert dict(zip(pairs, found.ravel().tolist(), strict=True)) == distances(edges)


ROADS = {"from": [*"ABC"], "to": [*"BCA"], "minutes": [5, 7, 1], "note": [*"xyz"]}


@makers
def test_what_is_understood_of_oneway_is_told(tmp_path, make):
    for words, told in (
        (["no", "yes", "-1"],
         "1 of 3 edges lead both ways, 1 of 3 edges lead backwards"),
        (["no", None, "yes"], "2 of 3 edges lead both ways, 1 of 3 edges have no word"),
        (["no", "no", "no"], ""),
        (["yes", "1", "true"], ""),
        (["-1", "1", "reverse"], "2 of 3 edges lead backwards"),
    ):  # fmt: skip
        graph = read_graph(make(ROADS | {"oneway": words}, tmp_path), weight="minutes")
        assert graph.direction_source == "column oneway" + (f": {told}" if told else "")
        assert graph.directed == (words != ["no"] * 3)
        every = read_graph(make(ROADS | {"oneway": words}, tmp_path), directed=False)
        assert (every.directed, every.direction_source) == (False, "directed=False")
        assert len(every.row) == 3


def test_the_command_line_reads_oneway(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    written({"from": [*"AB"], "to": [*"BC"], "min": [5, 7], "oneway": ["no", "yes"]}, Path("a.csv"))
    assert cli.main("table a.csv --from B --to A".split()) == 0
    out, err = capsys.readouterr()
    assert out == "from,A\nB,5\n"
    assert "edges: 3, directed (column oneway: 1 of 2 edges lead both ways)" in err
    for words, code, told in (
        ("apsp a.csv --undirected --from C --to A", 0, ""),
        ("apsp . --from C --to A", 2, ".: it is a directory: give a file, or several"),
    ):
        assert cli.main(words.split()) == code
        assert told in capsys.readouterr().err


def at(row):
    """How a file, and how a table in memory, names a row of three."""
    return rf"(a.csv:{row + 2}|a.parquet:{row + 1}|row ({row}|{1 - row / 2}) of the table): "


@makers
@pytest.mark.parametrize(
    ("column", "words", "row", "message"),
    [
        ("oneway", ["yes", "maybe", "no"], 1, "column oneway: expected true, false, yes, no, 1, 0, "
         "-1 or reverse, got 'maybe'; if the column is about something else"),
        ("oneway", ["yes", "no", "reversible"], 2, ".* got 'reversible'"),
        ("directed", ["1", None, "0"], 1, "column directed: expected .* or undirected, got ''"),
        ("directed", ["1", "0", "-1"], 2, "column directed: expected .* got '-1'"),
        ("Type", ["Directed", "road", "road"], 1, "column Type: expected directed or undirected"),
    ],
)  # fmt: skip
def test_other_words_are_refused_with_their_row(tmp_path, make, column, words, row, message):
    table = make(ROADS | {column: words}, tmp_path)
    with pytest.raises(ValueError, match=at(row) + message):
        sm.apsp(table)


@makers
def test_two_columns_that_contradict_each_other(tmp_path, make):
    columns = ROADS | {"oneway": ["no", "yes", "-1"], "directed": [False, True, True]}
    assert len(read_graph(make(columns, tmp_path)).row) == 4
    columns["directed"] = [False, False, True]
    words = "column directed and column oneway contradict each other: 'False' and 'yes'; leave out"
    with pytest.raises(ValueError, match=at(1) + words):
        sm.apsp(make(columns, tmp_path))


@pytest.mark.parametrize("kind", [x for x in MAKERS if x not in ("CSV", "Parquet")])
def test_tables_as_large_as_wide_are_no_matrices(kind, tmp_path):
    columns = {"from": [0, 1, 2], "to": [1, 2, 0], "weight": [1.0, 2.0, 3.0]}
    found = sm.apsp(MAKERS[kind](columns, tmp_path))
    assert_array_equal(found, [[0, 1, 3], [5, 0, 2], [3, 4, 0]])
    assert found.nodes == [0, 1, 2]
    for x in (found, sm.adjacency(MAKERS[kind](columns, tmp_path), source="to", target="from")[0]):
        assert x.shape == (3, 3)


def test_types_of_weights_and_nodes_stay():
    for table in (pl.DataFrame, pa.table, pd.DataFrame):
        columns = {"from": [1, 2], "to": [2, 3], "weight": np.float32([1, 2])}
        d = sm.apsp(table(columns))
        assert d.dtype == np.float32
        assert d.nodes == [1, 2, 3]
        assert d.path(1, 3) == [1, 2, 3] if d.predecessors else True
    days = pd.to_datetime(["2024-01-01", "2024-01-02"])
    assert sm.apsp(pd.DataFrame({"from": days[:1], "to": days[1:]})).nodes == list(days)


def test_a_source_makes_a_matrix_a_table():
    table = pd.DataFrame([[0, 1, 5.0], [1, 2, 7.0], [2, 0, 1.0]])
    assert_array_equal(sm.adjacency(table)[0], table)
    matrix = sm.adjacency(table, source=0, target=1, weight=2)[0]
    assert_array_equal(matrix, [[inf, 5, inf], [inf, inf, 7], [1, inf, inf]])


def test_tables_that_are_not_there_yet():
    with pytest.raises(TypeError, match=r"the table is not computed yet: give table.collect\(\)"):
        sm.apsp(pl.DataFrame(ROADS).lazy())
    dask = pytest.importorskip("dask.dataframe")
    with pytest.raises(TypeError, match=r"not computed yet: give table.compute\(\)"):
        sm.apsp(dask.from_pandas(pd.DataFrame(ROADS), npartitions=1))


@makers
def test_other_numbers_are_warned_of_where_there_is_no_weight(tmp_path, make):
    table = make({"from": [*"ab"], "to": [*"bc"], "price": [3, 4], "note": [*"xy"]}, tmp_path)
    with pytest.warns(UserWarning, match="numbers of the edges that are not used: price; choose"):
        assert sm.apsp(table)[0, 2] == 2
    assert sm.apsp(table, weight="price")[0, 2] == sm.apsp(table, weight=3)[0, 2] == 7
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert sm.apsp(table, weight=None)[0, 2] == 2


# --- new weights for the rows of a table ---------------------------------------------------------

STREETS = {
    "from": [*"ABCD"], "to": [*"BCDD"], "oneway": ["no", "yes", "-1", "no"],
    "minutes": [5, 7, 1, 2], "rush": [10, 20, 30, 40], "note": [*"wxyz"],
}  # fmt: skip


@makers
def test_new_weights_for_the_rows_of_a_table(tmp_path, make):
    table = make(STREETS, tmp_path)
    net = sm.prepare(table, weight="minutes")
    net.save(tmp_path / "net.npz")
    expected = sm.apsp(table, weight="rush")
    column = pd.DataFrame(STREETS)["rush"]
    for new in (column, STREETS["rush"], column.to_frame(), pl.DataFrame(STREETS)["rush"],
                pa.table(STREETS)["rush"], column.astype(object)):  # fmt: skip
        for x in (net, sm.load(tmp_path / "net.npz")):
            x.customize(new)
            assert_array_equal(x.distances(), expected)
    for words in ({"weight": "rush"}, {"weight": "RUSH"}):
        net.customize(STREETS["minutes"])
        net.customize(table, **words)
        assert_array_equal(net.distances(), expected)
    net.customize("minutes")
    assert_array_equal(net.distances(), sm.apsp(table, weight="minutes"))
    net.customize([1, 2, 3, 4, 5])  # the edges themselves
    assert net.distance("B", "A") == 5
    with pytest.raises(ValueError, match=r"has 5 edges, .* a table of 4 rows, got 3"):
        net.customize([1, 2, 3])
    with pytest.raises(ValueError, match="the weight of edge 1, from 'B' to 'C', is NaN"):
        net.customize([1, np.nan, 3, 4])
    with pytest.raises(
        ValueError, match="no column 'rash'; columns: from, to, oneway, minutes, ru"
    ):
        net.customize("rash")
    with pytest.raises(ValueError, match=r"weight='rush' is a column of a table .* leave it out"):
        net.customize(STREETS["rush"], weight="rush")


@pytest.mark.parametrize("directed", [None, True, False])
@pytest.mark.parametrize("word", ["no", "mixed"])
def test_rows_are_edges_or_two(directed, word):
    table = pd.DataFrame(STREETS)
    if word != "mixed":
        table["oneway"] = word
    net = sm.prepare(table, weight="minutes", directed=directed)
    expected = sm.apsp(table, weight="rush", directed=directed)
    for new in (table["rush"], "rush", table.assign(minutes=table["rush"])):
        net.customize(table["minutes"])
        net.customize(new)
        assert_array_equal(net.distances(), expected)


def test_a_table_is_read_again_if_its_edges_have_changed(monkeypatch):
    reads = []
    real = formats.read_graph
    monkeypatch.setattr(formats, "read_graph", lambda *a, **k: reads.append(1) or real(*a, **k))
    for kind in (str, object, "category"):
        table = pd.DataFrame(STREETS).astype({"from": kind})
        net = sm.prepare(table, weight="minutes")
        before = len(reads)
        table["rush"] *= 2
        net.customize("rush")
        assert_array_equal(net.distances(), sm.apsp(table.copy(), weight="rush"))
        assert len(reads) == before + 1  # that of apsp
        table.loc[:, :] = table.iloc[::-1].to_numpy()  # in place, in another order
        net.customize("minutes")
        assert len(reads) == before + 2
        for u, v in ("BA", "AB", "CB", "AD"):
            expected = sm.prepare(pd.DataFrame(STREETS), weight="minutes").distance(u, v)
            assert net.distance(u, v) == expected
        table.loc[1, "oneway"] = "yes"
        with pytest.raises(ValueError, match="the weights are of another graph"):
            net.customize("rush")
        table.loc[1, "oneway"], table.loc[0, "to"] = "-1", "A"
        with pytest.raises(ValueError, match="the weights are of another graph"):
            net.customize("rush")


def test_a_string_is_a_column_before_it_is_a_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    written(STREETS, tmp_path / "streets.csv")
    written(STREETS | {"minutes": [1, 1, 1, 1]}, tmp_path / "rush")
    written(STREETS | {"minutes": [1, 1, 1, 1]}, tmp_path / "ones.csv")
    net = sm.prepare("streets.csv", weight="minutes")
    net.save("net.npz")
    net.customize("rush")
    assert net.distance("A", "C") == 30
    net.customize("ones.csv")
    assert net.distance("A", "C") == 2
    net.customize("ones.csv", weight="rush")
    assert net.distance("A", "C") == 30
    saved = sm.load("net.npz")
    saved.customize("ones.csv")
    assert saved.distance("A", "C") == 2
    with pytest.raises(
        ValueError, match=r"'fast' is no file, .* write customize\(table, weight='f"
    ):
        saved.customize("fast")
    graph = nx.Graph([("a", "b", {"km": 3, "min": 2})])
    net = sm.prepare(graph, weight="km")
    with pytest.raises(ValueError, match=r"'min' is no file, .* write customize\(table, weight='m"):
        net.customize("min")
    net.customize(graph, weight="min")
    assert net.distance("b", "a") == 2


@makers
def test_numbers_of_nodes_are_words_in_files(tmp_path, make):
    streets = STREETS | {"from": [1, 2, 3, 4], "to": [2, 3, 4, 4]}
    table, path = make(streets, tmp_path), written(streets, tmp_path / "b.csv")
    for before, after in ((table, path), (path, table)):
        net = sm.prepare(before, weight="minutes")
        net.customize(after, weight="rush")
        assert_array_equal(net.distances(), sm.apsp(path, weight="rush"))


def test_rows_of_several_files(tmp_path):
    paths = [tmp_path / "one.csv", tmp_path / "two.csv"]
    written(STREETS, paths[0])
    written(STREETS | {"from": [*"DEFG"], "to": [*"EFGA"]}, paths[1])
    net = sm.prepare(paths, weight="minutes")
    net.customize(STREETS["rush"] * 2)
    assert_array_equal(net.distances(), sm.apsp(paths, weight="rush"))
    with pytest.raises(ValueError, match="the weight of edge 6, from 'E' to 'F', is NaN"):
        net.customize([1, 1, 1, 1, 1, np.nan, 1, 1])


# --- numbers with a comma, and directories --------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "weights"),
    [
        ("from;to;km\na;b;3,5\nb;c;1,250\n", [3.5, 1.25]),
        ("a;b;3,5\nb;c;7\n", [3.5, 7]),
        ("a\tb\t-0,125\n", [-0.125]),
        ("1 2 3,5\n2 3 4,25\n", [3.5, 4.25]),
        ("from to km\na b 3,5e1\n", [35]),
        ('from,to,km\na,b,"3,5"\n', [3.5]),
        ("1,2,3\n", [3]),
    ],
)
def test_decimal_commas(tmp_path, text, weights):
    path = tmp_path / "a.csv"
    path.write_text(text)
    assert read_graph(path).weight.tolist() == weights


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a;b;1,500\nb;c;2,250\n", "a.csv:1: '1,500' as weight may be 1.500 or 1500: write one of"),
        ("a;b;1,500\nb;c;2\n", "a.csv:1: '1,500' as weight may be 1.500 or 1500: write one of"),
        ("a;b;1,5\nb;c;2.5\n", "a.csv:2: '2.5' as weight, where others have points or commas"),
        ("a;b;2.5\nb;c;1,5\n", "a.csv:2: '1,5' as weight, where others have points or commas"),
        ("a;b;1,500,000\n", "a.csv:1: expected a finite number as weight, got '1,500,000'"),
        ("a;b;1.500,5\n", "a.csv:1: expected a finite number as weight, got '1.500,5'"),
    ],
)
def test_commas_that_are_refused(tmp_path, text, words):
    path = tmp_path / "a.csv"
    path.write_text(text)
    with pytest.raises(ValueError, match=words):
        read_graph(path)


def test_decimal_commas_of_nodes_and_of_what_is_not_used(tmp_path):
    (tmp_path / "nodes.csv").write_text("id;lat;lon\na;52,520;13,405\nb;48,137;11,575\n")
    (tmp_path / "a.csv").write_text("from;to;toll\na;b;3,5\n")
    graph = read_graph(tmp_path / "a.csv", nodes=tmp_path / "nodes.csv")
    assert graph.weight[0] == pytest.approx(504, abs=1)
    assert "toll" in graph.warnings[0]
    assert read_graph(tmp_path / "a.csv", weight="toll").weight.tolist() == [3.5]


def test_a_directory_is_no_graph(tmp_path):
    for call in (sm.apsp, sm.prepare, read_graph, lambda x: read_graph("a.csv", nodes=x)):
        with pytest.raises(ValueError, match="it is a directory: give a file, or several, which"):
            call(tmp_path)
