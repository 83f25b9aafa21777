"""Graph files as they are found in public collections, each read whole or refused in one line."""

import random
import time

import numpy as np
import pytest
from test_files import edges, write
from test_files_fuzz import damaged

from semiring_mm.files import GraphFileError, bulk, dimacs, matrix_market, read_graph


def outcome(path):
    """All that is known of a graph, or the message that refuses it."""
    try:
        graph = read_graph(path)
    except GraphFileError as error:
        return str(error)
    return list(graph.nodes), edges(graph), graph.directed, graph.weight_source


# --- lines of numbers, read a block at a time --------------------------------------------------

PLAIN = [
    ("a.gr", b"c x\np sp 4 4\nc y\na 1 2 5\na 2 3 0\na 1 2 25\na 4 1 7\n"),
    ("b.gr", b"p sp 4 3\r\na 1 2 5.25\r\na 2 3 1e-3\r\nc z\r\na 4 1 -7\r\n"),
    ("c.gr", b"c x\np tw 4 3\n1 2\n2 3\nc y\n4 1\n"),
    ("a.mtx", b"%%MatrixMarket matrix coordinate real general\n%\n3 3 3\n1 2 0.5\n3 3 0\n2 1 -4\n"),
    ("b.mtx", b"%%MatrixMarket matrix coordinate pattern symmetric\n3 3 2\n2 1\n  3 1\n\n"),
]


@pytest.mark.parametrize(("name", "data"), PLAIN, ids=[name for name, _ in PLAIN])
@pytest.mark.parametrize("block", [1, 12, 1 << 20])
def test_blocks_and_lines_agree_on_damaged_files(tmp_path, monkeypatch, name, data, block):
    """NumPy takes a file only where the loop, which words the errors, reads the same graph."""
    monkeypatch.setattr(bulk, "_BLOCK", block)
    path, taken = write(tmp_path, name, data), []

    def at_once(module, at_once):
        def watched(*given, **known):
            taken.append(graph := at_once(*given, **known))
            return graph

        monkeypatch.setattr(module, "plain_edges", watched)

    for module in (dimacs, matrix_market):
        at_once(module, bulk.plain_edges)
    for k in range(100):
        path.write_bytes(damaged(random.Random(f"{name} {k}"), data) if k else data)
        found = outcome(path)
        with monkeypatch.context() as patch:
            for module in (dimacs, matrix_market):
                patch.setattr(module, "plain_edges", lambda *given, **known: None)
            assert found == outcome(path)
        assert k or taken[0] is not None, "the whole file is not plain"
    assert sum(graph is not None for graph in taken) > 1


@pytest.mark.parametrize(
    "line",
    ["a 1 2 1-2\na 1 2", "a 1 2 3 1\na 2 3", "a 1.0 2 3", "a +1 2 3", "a 1 2 1e", "a 1 2 -",
     "a 1 2 99999999999999999999", "a 1 9999999999999999999 1", "a\t1 2 3", " a 1 2 3", "a 1 2 3 ",
     "a 1 2 nan", "a 1 2 1e999", "a 1 2 9007199254740993", "a 1 2 0.1", "a 1 2 1_0", "c \0",
     "c \xe9", "c x\ra 1 2 3", "c\ra 1 2 3", "a 1 2 3\x0c", "a 1 2 3\x00", "aa 1 2", "a a 1 2"],
)  # fmt: skip
def test_blocks_and_lines_agree_on_odd_lines(tmp_path, monkeypatch, line):
    for m in (1, 2, 3):
        path = write(tmp_path, "a.gr", f"p sp 3 {m}\na 1 3 2\n{line}\n".encode("latin-1"))
        found = outcome(path)
        with monkeypatch.context() as patch:
            patch.setattr(dimacs, "plain_edges", lambda *given, **known: None)
            assert found == outcome(path)


def test_many_arcs_are_read_at_numpy_s_speed(tmp_path, monkeypatch):
    m = 100_000
    ends = np.random.default_rng(1).integers(1, 1000, (m, 3))
    lines = "".join(f"a {u} {v} {w}\n" for u, v, w in ends.tolist())
    path = write(tmp_path, "a.gr", f"c\np sp 1000 {m}\n{lines}")
    start = time.process_time()
    graph = read_graph(path)
    taken = time.process_time() - start
    np.testing.assert_array_equal(np.stack([graph.row + 1, graph.col + 1, graph.weight], 1), ends)
    monkeypatch.setattr(dimacs, "plain_edges", lambda *given, **known: None)
    start = time.process_time()
    read_graph(path)
    assert taken < (time.process_time() - start) / 2
