"""Old names work for one release, with a warning that says what to write."""

import re
from contextlib import contextmanager

import numpy as np
import pytest
from optional import nx

import semiring_mm as sm
from semiring_mm.deprecated import apart, renamed

W = np.array([[0.0, 3, 8], [np.inf, 0, 1], [2, np.inf, 0]])
CLOSED = [[0, 3, 4], [3, 0, 1], [2, 5, 0]]


@contextmanager
def warned(old, new):
    """One warning, at the line of the user."""
    text = f"{old} is deprecated and will be removed in the next release: write {new}"
    with pytest.warns(DeprecationWarning, match=f"^{re.escape(text)}$") as seen:
        yield
    assert [x.filename for x in seen] == [__file__]


def test_tiles_stand_for_five_arguments(tmp_path):
    out = str(tmp_path / "d.npy")
    tiles = f"tiles=sm.Tiles(out={out!r}, memory='1GB', checkpoint=2, resume=True)"
    with warned("checkpoint=, memory_limit=, out=, resume= of apsp", tiles):
        d = sm.apsp(W, out=out, memory_limit="1GB", checkpoint=2, resume=True)
    np.testing.assert_array_equal(d, CLOSED)
    assert type(d) is np.memmap
    with warned("memory_limit= of closure", "tiles=sm.Tiles(memory=4096000)"):
        np.testing.assert_array_equal(sm.closure(W, "min_plus", memory_limit=4096000), CLOSED)
    with warned("devices= of apsp", "tiles=sm.Tiles()"):
        np.testing.assert_array_equal(sm.apsp(W, devices=None), CLOSED)
    with pytest.raises(TypeError, match=r"^out: write them in tiles=sm.Tiles\(\.\.\.\)"):
        sm.apsp(W, out="d.npy", tiles=sm.Tiles(memory="1GB"))


def test_an_array_to_write_into_is_no_file(tmp_path):
    out = np.empty_like(W)
    assert sm.matmul(W, W, "min_plus", out=out) is out
    path = str(tmp_path / "c.npy")
    with warned("out= of matmul", f"tiles=sm.Tiles(out={path!r})"):
        np.testing.assert_array_equal(sm.matmul(W, W, "min_plus", out=path), out)


def test_a_checkpoint_was_a_file_of_statistics(tmp_path):
    path = str(tmp_path / "state.npz")
    expected = sm.statistics(nx.path_graph(5))
    with warned("checkpoint= of statistics", f"tiles=sm.Tiles(out={path!r}, resume=True)"):
        found = sm.statistics(nx.path_graph(5), checkpoint=path)
    assert found.ends == expected.ends


def test_a_checkpoint_was_a_folder_of_workers():
    @apart()
    def apsp(tiles=None):
        return tiles

    with warned("checkpoint= of apsp", "tiles=sm.Tiles(out='run', checkpoint=4)"):
        assert apsp(checkpoint=("run", 4)) == sm.Tiles(out="run", checkpoint=4)
    with warned("checkpoint=, resume= of apsp", "tiles=sm.Tiles(out='run', resume=True)"):
        assert apsp(checkpoint="run", resume=True) == sm.Tiles(out="run", resume=True)
    with warned("checkpoint= of apsp", "tiles=sm.Tiles()"):
        assert apsp(checkpoint=3) is None  # without a file it had no meaning


def test_renamed():
    @renamed(start="source")
    def path(graph, source=None):
        return graph, source

    with warned("start=", "source="):
        assert path(1, start=2) == (1, 2)
    assert path(1, 2) == path(1, source=2) == (1, 2)
    with pytest.raises(TypeError, match="start is the old name of source: leave it out"):
        path(1, start=2, source=3)
