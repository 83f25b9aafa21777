"""Compiled code on the disk: made once, and never loaded where it is not what was stored."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from processes import script

import semiring_mm as sm
from semiring_mm import cache
from semiring_mm.cpu import compiler

PRODUCT = """
import numpy as np, semiring_mm as sm
from semiring_mm.cpu import compiler
made, make = [], compiler._object
compiler._object = lambda *of: made.append(of) or make(*of)
print(sm.matmul(np.eye(5), np.eye(5), "min_plus").sum(), len(made) > 0)
"""


@pytest.fixture
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("SEMIRING_MM_CACHE", str(tmp_path))
    return tmp_path / "objects"


def stored(name="of", code=b"code"):
    """What `cached` gives, and whether it had to be made."""
    made = []
    return cache.cached("objects", (name,), lambda: made.append(0) or code), bool(made)


def test_code_is_made_once_for_its_parts(folder):
    assert stored() == (b"code", True)
    assert stored(code=b"other") == (b"code", False)
    assert stored("another", b"other") == (b"other", True)
    joined = cache.cached("objects", ("a", "b"), lambda: b"two")
    assert cache.cached("objects", ("ab",), lambda: b"one") != joined


@pytest.mark.parametrize(
    "damage",
    [
        lambda x: b"",
        lambda x: x[:20],
        lambda x: x[:-1],
        lambda x: x[:-1] + b"!",
        lambda x: x + b"!",
    ],
    ids=["empty", "no content", "truncated", "changed", "longer"],
)
def test_damaged_files_are_made_again(folder, damage):
    stored()
    (file,) = folder.iterdir()
    file.write_bytes(damage(file.read_bytes()))
    assert stored() == (b"code", True)
    assert stored() == (b"code", False)


def test_files_under_another_name_are_made_again(folder):
    stored("first", b"first")
    (file,) = folder.iterdir()
    stored("second", b"second")
    (other,) = set(folder.iterdir()) - {file}
    file.replace(other)
    assert stored("second", b"second") == (b"second", True)


def test_a_directory_that_cannot_be_written_costs_only_the_compilation(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("SEMIRING_MM_CACHE", str(tmp_path / "file" / "folder"))
    assert stored() == stored() == (b"code", True)


def test_the_oldest_files_make_room(folder, monkeypatch):
    monkeypatch.setattr(cache, "_LIMIT", 1000)
    for i in range(10):
        before = set(folder.iterdir()) if i else set()
        stored(str(i), bytes(168))  # 200 with the digest
        for file in set(folder.iterdir()) - before:
            os.utime(file, (i, i))
    assert sum(file.stat().st_size for file in folder.iterdir()) <= 1000
    assert stored("9", bytes(168)) == (bytes(168), False)
    assert stored("0", bytes(168)) == (bytes(168), True)


def test_files_in_use_are_marked_as_new(folder):
    stored()
    (file,) = folder.iterdir()
    os.utime(file, (0, 0))
    stored()
    assert time.time() - file.stat().st_mtime < 60


def test_processes_share_compiled_products(folder):
    def run():
        return subprocess.Popen([sys.executable, "-c", PRODUCT], stdout=subprocess.PIPE, text=True)

    together = [run() for _ in range(3)]
    outputs = [process.communicate()[0].split() for process in together]
    assert [x[0] for x in outputs] == ["0.0"] * 3
    assert run().communicate()[0].split() == ["0.0", "False"]


def test_the_processor_and_the_compiler_are_part_of_the_name(monkeypatch):
    target = compiler.host_target()
    names = compiler._environment(target)
    assert target.cpu in names
    assert target.features in names
    monkeypatch.setattr(compiler, "__version__", "another")
    assert compiler._environment(target) != names


def test_damaged_machine_code_is_never_run(folder):
    a = np.arange(9.0).reshape(3, 3)
    expected = sm.matmul(a, a, "max_plus")
    code = f"""
import numpy as np, semiring_mm as sm
a = np.arange(9.0).reshape(3, 3)
print(sm.matmul(a, a, "max_plus").tolist() == {expected.tolist()})
"""
    for _ in range(2):
        assert script(code).strip() == "True"
        for file in folder.iterdir():
            data = bytearray(file.read_bytes())
            data[len(data) // 2] ^= 255
            file.write_bytes(data)
