"""Files are replaced as a whole, and flushed before and after the rename."""

import json
import os
import stat
import threading
import tracemalloc
import zipfile

import numpy as np
import pytest

from semiring_mm.cpu import tuning
from semiring_mm.gpu import tiles
from semiring_mm.storage import atomic_write, read_arrays


def test_a_failed_write_leaves_the_old_file_alone(tmp_path):
    path = tmp_path / "state.json"
    path.write_text("old")

    def interrupted():
        with atomic_write(path) as part:
            part.write_text("ne")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert path.read_text() == "old"
    assert [x.name for x in tmp_path.iterdir()] == ["state.json"]


def test_the_file_and_then_its_folder_are_flushed_around_the_rename(tmp_path, monkeypatch):
    path, done = tmp_path / "matrix.npy", []
    flush = os.fsync

    def fsync(handle):
        done.append("folder" if stat.S_ISDIR(os.fstat(handle).st_mode) else "file")
        flush(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    real = type(path).replace
    monkeypatch.setattr(
        type(path), "replace", lambda self, to: done.append("rename") or real(self, to)
    )
    with atomic_write(path) as part:
        assert part.parent == path.parent
        assert part.suffix == ".npy"
        np.save(part, np.arange(3))
        assert not path.exists()
    assert done == ["file", "rename", "folder"][: 2 if os.name == "nt" else 3]
    assert np.load(path).tolist() == [0, 1, 2]


def test_writers_of_one_file_do_not_mix(tmp_path):
    path, texts = tmp_path / "x.txt", [str(i) * 100_000 for i in range(8)]

    def write(text):
        with atomic_write(path) as part:
            part.write_text(text)

    writers = [threading.Thread(target=write, args=[x]) for x in texts]
    for x in writers:
        x.start()
    for x in writers:
        x.join()
    assert path.read_text() in texts
    assert len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("what", ["shares", "calibration"])
def test_measurements_are_kept_atomically(what, tmp_path, monkeypatch):
    """What was kept before stays whole if the disk is full in the middle of the new one."""
    monkeypatch.setenv("SEMIRING_MM_CACHE", str(tmp_path))
    monkeypatch.setattr(tuning, "_calibrate", lambda: {"fma": True, "keys": False})
    tile = next(iter(tiles.TILES["fma"]))

    def keep():
        if what == "shares":
            tiles.keep_shares("a chip", {("fma", tile): 0.5})
        else:
            tuning.calibration.__wrapped__()

    keep()
    (path,) = tmp_path.iterdir()
    whole = path.read_text()
    assert json.loads(whole)
    if what == "calibration":
        path.write_text("{")  # a damaged file is measured anew

    def full(self, *_, **__):
        self.touch()
        raise OSError("no space left on device")

    monkeypatch.setattr(type(path), "write_text", full)
    try:
        keep()
    except OSError:
        assert what == "shares"
    assert path.read_text() == (whole if what == "shares" else "{")
    assert list(tmp_path.iterdir()) == [path]


HEADER = b"\x93NUMPY\x01\x00\x76\x00"


def header(text):
    """That of an array in a file, whatever it declares."""
    return HEADER + text.ljust(117).encode() + b"\n"


PACKED = {
    "bomb": (np.zeros(1 << 27), None, "packed in"),
    "shape": (None, header("{'descr': '<f8', 'fortran_order': False, 'shape': (1 << 40,)}"),
              "malformed"),
    "size": (None, header("{'descr': '<f8', 'fortran_order': False, 'shape': (2000000000,)}"),
             "not of the size"),
    "negative": (None, header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}"),
                 "not of the size"),
    "objects": (None, header("{'descr': '|O', 'fortran_order': False, 'shape': (0,)}"),
                "objects of Python"),
    "nested": (None, header("(" * 110), "multi-line|nested"),
    "no array": (None, b"text", "magic"),
}  # fmt: skip


@pytest.mark.parametrize("case", PACKED)
def test_arrays_take_no_more_memory_than_their_file(case, tmp_path):
    array, data, message = PACKED[case]
    path = tmp_path / "x.npz"
    if data is None:
        np.savez_compressed(path, x=array)
        assert path.stat().st_size < 2 << 20
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr("x.npy", data)
    tracemalloc.start()
    with pytest.raises(ValueError, match=message) as caught:
        read_arrays(path)
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert most < 1 << 24
    assert len(str(caught.value)) < 250
    assert "\n" not in str(caught.value)


def test_arrays_of_all_kinds_are_read(tmp_path):
    arrays = {
        "x": np.arange(6.0).reshape(2, 3), "y": np.array("word"), "none": np.zeros((0, 4), bool),
        "columns": np.asfortranarray(np.arange(6).reshape(2, 3)),
    }  # fmt: skip
    np.savez(tmp_path / "x.npz", **arrays)
    found = read_arrays(tmp_path / "x.npz")
    assert found.keys() == arrays.keys()
    for name, x in arrays.items():
        np.testing.assert_array_equal(found[name], x)
        assert found[name].dtype == x.dtype
        assert found[name].flags.writeable
