"""Files are replaced as a whole, and flushed before and after the rename."""

import json
import os
import stat
import threading

import numpy as np
import pytest

from semiring_mm.cpu import tuning
from semiring_mm.gpu import tiles
from semiring_mm.storage import atomic_write


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
