"""The ladder: its kernels on the host, its model, its measuring and its words."""

import io
import json
import math
import os
import stat
import sys
import time
import types
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from host_device import HostDevice, guarded, on_all_cores
from numpy.testing import assert_array_equal

import semiring_mm as sm
from apps.ladder import __main__ as command
from apps.ladder import draw, example, measure, page, profile, report, rungs
from apps.ladder.rungs import Grid, Loop, VectorLoop
from apps.ladder.steps import BLOCKS, ELEMENTS, LANES, PRODUCT, ROWS, STAGES, VECTOR
from bench import gpu_clock
from semiring_mm.gpu import device
from semiring_mm.gpu.tiles import Tile
from tests.gpu.test_cuda import OWN_LINES, SIBLINGS, needs_nvrtc

HOST = HostDevice()
needs_compiler = pytest.mark.usefixtures("gxx")
YOURS = sm.Semiring("yours", "min(a, b)", "max(abs(a), abs(b))", np.inf, 0)
CLIMBED = {rung.number: rung.loop for rung in PRODUCT if rung.loop}
SWEPT = {
    f"{name} {value}": loop
    for name, loops in (("block", BLOCKS), ("elements", ELEMENTS), ("stages", STAGES))
    for value, loop in loops.items()
}


@pytest.fixture
def host(monkeypatch):
    monkeypatch.setattr(device, "current", lambda: HOST)


# --- the kernels --------------------------------------------------------------------------------


def lay(x, wide):
    """A matrix with NaN around it and no memory behind: rows begin at 16 bytes, or do not."""
    m, n = x.shape
    y = guarded((m, (n + 7) // 4 * 4 + (not wide)), x.dtype, np.nan)[:, :n]
    y[...] = x
    return y


def multiply(semiring, loop, m, k, n, wide):
    rng = np.random.default_rng(m)
    a, b = (rng.integers(-9, 9, shape).astype("f4") for shape in ((m, k), (k, n)))
    c = lay(np.full((m, n), np.nan, "f4"), wide)
    around = c.base
    while around.base is not None and isinstance(around.base, np.ndarray):
        around = around.base
    rungs.product(semiring, loop, lay(a, wide), lay(b, wide), c)
    values, error = measure.expected(semiring, a, b)
    assert error == 0
    assert_array_equal(c, values)
    c[...] = np.nan
    assert np.isnan(around.view("f4")).all()  # nothing is written around the result


@needs_compiler
@pytest.mark.parametrize("semiring", [sm.semirings["min_plus"], YOURS], ids=lambda s: s.name)
@pytest.mark.usefixtures("host")
def test_every_rung_computes_the_product(semiring):
    """Edges in every direction, whole tiles in a row, and k shorter than a tile."""

    def run(loop):
        for m, k, n in ((5, 7, 3), (133, 69, 137), (1, 1, 1)):
            multiply(semiring, loop, m, k, n, wide=False)
        multiply(semiring, loop, 36, 100, 40, wide=True)

    loops = CLIMBED.values() if semiring is not YOURS else [CLIMBED["2"], CLIMBED["8"]]
    on_all_cores(run, loops)


FEW = ("block 1", "block 8", "elements 2", "elements 32", "stages 2", "stages 4")
ALONG = {
    *(rung.loop for rung in VECTOR if rung.loop), LANES[2], LANES[256], ROWS[8],
}  # fmt: skip
EVERY = [pytest.param(False, id="few"), pytest.param(True, id="all", marks=pytest.mark.slow)]


@needs_compiler
@pytest.mark.parametrize("all_of_them", EVERY)
@pytest.mark.usefixtures("host")
def test_every_swept_loop_computes_the_product(all_of_them):
    def run(loop):
        multiply(sm.semirings["plus_times"], loop, 19, 35, 21, wide=False)

    on_all_cores(run, [SWEPT[name] for name in (SWEPT if all_of_them else FEW)])


@needs_compiler
@pytest.mark.parametrize("all_of_them", EVERY)
@pytest.mark.usefixtures("host")
def test_every_loop_along_a_vector_computes_the_product(all_of_them):
    semiring = sm.semirings["plus_times"]

    def run(loop):
        for m, k in ((5, 3), (67, 261)):
            rng = np.random.default_rng(k)
            a, x = (rng.integers(-9, 9, shape).astype("f4") for shape in ((m, k), (k,)))
            y = guarded((m,), np.dtype("f4"), np.nan)
            for wide in (False, True):
                laid = lay(a, wide) if loop.by_rows else lay(a.T, wide).T
                place = guarded((-(-k // 4) * 4,), np.dtype("f4"), np.nan)[:k]
                place[:] = x
                rungs.gemv(semiring, loop, laid, place, y)
                assert_array_equal(y, a @ x)

    loops = {*ALONG, *LANES.values(), *ROWS.values()} if all_of_them else ALONG
    on_all_cores(run, loops)


def source_of(loop, name="plus_times"):
    return rungs.product_source(rungs.plan_of(sm.semirings[name]), loop, rungs.reach_of(loop, True))


@needs_nvrtc
@pytest.mark.parametrize("arch", [*OWN_LINES, *SIBLINGS])
def test_the_rungs_compile_for_every_architecture(arch):
    """With fewer elements a thread than they are measured with, which compile faster."""
    small = [
        CLIMBED["1"],
        Loop(Grid(8, 8, 8, 4, 4, spread=True, pad=4), wide=True),
        Loop(Tile(32, 32, 16, 4, 2, 8), ahead=True, wide=True),
        Loop(Tile(32, 32, 16, 4, 2, 8), stages=3, ahead=True, wide=True, async_=True),
    ]
    for loop in small:
        cubin, said = device.compile_source(source_of(loop, "min_plus"), arch)
        assert cubin[:4] == b"\x7fELF"
        assert "warning" not in said


@needs_nvrtc
def test_a_rung_is_what_its_name_says():
    """Only rung 8 copies without registers, and no rung loses much to local memory."""
    import re

    with ThreadPoolExecutor() as pool:
        found = list(pool.map(lambda loop: device.compile_source(source_of(loop), 90),
                              CLIMBED.values()))  # fmt: skip
    for number, (_, said) in zip(CLIMBED, found, strict=True):
        # how much differs between versions of the compiler: 60 and 76 bytes of rung 6 were seen
        registers, spilled = (
            int(re.search(text, said)[1])
            for text in (r"Used (\d+) reg", r"(\d+) bytes spill stores")
        )
        assert spilled <= registers * 4 / 4, number  # a quarter of what the registers hold
    asynchronous = {n for n in CLIMBED if "sr::Staged<" not in source_of(CLIMBED[n])}
    assert asynchronous == {"8"}


# --- the model ----------------------------------------------------------------------------------


def test_what_blocks_ask_for_is_counted_in_sectors():
    n = 64
    pairs = n**3
    naive, coalesced = (
        rungs.traffic(CLIMBED[k].tile, CLIMBED[k].stages, n, n, n) for k in ("1", "2")
    )
    assert naive.read == pairs * (32 * 32 + 32) / 32  # 32 rows of A, a word of B
    assert coalesced.read == pairs * (32 + 128) / 32  # a word of A, 32 words of B
    for side in (8, 16, 32):
        blocked = rungs.traffic(BLOCKS[side].tile, 1, n, n, n)
        assert blocked.read == pairs * 4 * (1 / side + 1 / side)
    assert rungs.traffic(BLOCKS[2].tile, 1, n, n, n).read == pairs * 16  # 8 bytes of each sector
    assert naive.written == 4 * n * n
    thread = rungs.traffic(ELEMENTS[64].tile, 1, 128, 128, 128)
    assert thread.shared == 128**3 * 4 * 16 / 64


def test_vectors_are_counted_too():
    m = k = 256
    by_rows, by_columns, warp = (
        rungs.vector_traffic(loop, m, k).read
        for loop in (VectorLoop(True), VectorLoop(False), VectorLoop(True, lanes=32))
    )
    assert by_rows == m * k / 32 * (32 * 32 + 32)
    assert by_columns == 4 * m * k + m * k / 32 * 32
    assert warp == 2 * 4 * m * k


def test_a_launch_has_the_shared_memory_that_the_kernel_uses():
    assert CLIMBED["8"].shared == 3 * 16 * (128 + 128 + 8) * 4
    assert CLIMBED["1"].shared == 0
    assert "static_assert(Rung::BYTES == 50688" in source_of(CLIMBED["8"])


def test_long_functions_are_not_copied_into_every_turn():
    assert "true, 4>;" in " ".join(source_of(CLIMBED["6"]).split())
    assert "true, 1>;" in " ".join(source_of(CLIMBED["6"], "log_plus").split())
    assert "true, 2>;" in " ".join(source_of(CLIMBED["7"], "log_plus").split())


def test_the_rungs_of_a_semiring():
    def names(name, verb="product"):
        return [rung.name for rung in measure.rungs_of(sm.semirings[name], verb, 90)[0]]

    assert names("min_plus")[-1] == "fused step"
    assert names("max_min")[-1] == "tuned tile"  # whose step is fused for every operand
    assert "fused step" not in names("plus_times")
    chain, notes = measure.rungs_of(sm.semirings["plus_times"], "product", 90)
    assert ("tensor cores" in chain[-1].name) != bool(notes)
    assert len(names("min_plus", "gemv")) == 10


# --- measuring ----------------------------------------------------------------------------------


def test_the_reference_is_numpys():
    a = measure.whole(sm.semirings["min_plus"], np.random.default_rng(1), (7, 11))
    b = measure.whole(sm.semirings["min_plus"], np.random.default_rng(2), (11, 5))
    values, error = measure.expected(sm.semirings["min_plus"], a, b)
    assert_array_equal(values, (a[:, :, None] + b).min(1))
    assert error == 0
    values, error = measure.expected(sm.semirings["log_plus"], a, b)
    assert error > 0
    a, b = a.astype("f8"), b.astype("f8")
    np.testing.assert_allclose(values, np.logaddexp.reduce(a[:, :, None] + b, axis=1), rtol=1e-12)
    for name, low in (("min_times", 1), ("max_times", 0), ("any_pair", 0)):
        entries = measure.whole(sm.semirings[name], np.random.default_rng(1), (99,))
        assert entries.min() == low


class Device(np.ndarray):
    """An array of the stand-in for CuPy."""

    def get(self):
        return np.asarray(self)


def stand_in():
    """As much of CuPy as the ladder uses, on NumPy's arrays."""

    class Random:
        def __init__(self, seed):
            self.rng = np.random.default_rng(seed)

        def __getattr__(self, name):
            return lambda *args, **options: getattr(self.rng, name)(*args, **options).view(Device)

    class Event:
        def record(self):
            self.at = time.perf_counter()

        def synchronize(self):
            pass

    def matmul(a, b, out=None):
        result = np.matmul(np.asarray(a), np.asarray(b)).view(Device)
        return result if out is None else np.copyto(out, result) or out

    cupy = types.ModuleType("cupy")
    cupy.float32, cupy.matmul = np.float32, matmul
    cupy.random = types.SimpleNamespace(default_rng=Random)
    cupy.empty = lambda *args: np.empty(*args).view(Device)
    cupy.asfortranarray = lambda x: np.asfortranarray(x).view(Device)
    cupy.cuda = types.SimpleNamespace(
        Event=Event, get_elapsed_time=lambda a, b: 1e3 * (b.at - a.at)
    )
    pool = types.SimpleNamespace(free_all_blocks=lambda: None)
    cupy.get_default_memory_pool = lambda: pool
    return cupy


@pytest.fixture
def climb(monkeypatch, host, capsys):
    """Run the command on the host; gives exit code, standard output and errors."""
    monkeypatch.setitem(sys.modules, "cupy", stand_in())
    monkeypatch.setattr(device, "why_not", lambda: "")
    monkeypatch.setattr(device, "compiled", lambda source, arch: b"")
    monkeypatch.setattr(measure, "timed", lambda call, repeats: gpu_clock.elapsed(call))
    monkeypatch.setattr(measure, "_SECONDS", 0)
    monkeypatch.setattr(measure.gpu_ceilings, "rates", lambda *_, **__: [1e12])
    monkeypatch.setattr(measure.gpu_ceilings, "copies", lambda *_: [1e12])
    monkeypatch.setattr(measure.machine, "describe_device", lambda: {
        "gpu": "a host", "arch": "sm_90", "multiprocessors": 4,
    })  # fmt: skip
    monkeypatch.setattr(measure.machine, "device_versions", lambda _: {"numpy": np.__version__})
    monkeypatch.setattr(measure, "_kernel", lambda *_: {
        "registers": 32, "spilled": 0, "shared_bytes": 0, "threads": 32, "blocks_per_sm": 2,
    })  # fmt: skip

    def run(*arguments):
        return command.main(arguments), *capsys.readouterr()

    return run


@needs_compiler
def test_climbing(climb, tmp_path):
    pytest.importorskip("matplotlib")
    out, plot = tmp_path / "r.json", tmp_path / "r.svg"
    code, text, err = climb(
        "--sizes", "20,12", "--rungs", "1,3,9,10", "--no-sweeps", "--out", str(out), "--plot",
        str(plot),
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert "min_plus (⊕ is min(a, b), ⊗ is a + b), C = A ⊗ B, float32" in text
    result = json.loads(out.read_text())
    assert [(line["n"], line["rung"]) for line in result["lines"]] == [
        (n, rung) for n in (12, 20) for rung in ("1", "3", "9", "10", "")
    ]
    assert all(line["seconds"] and min(line["seconds"]) > 0 for line in result["lines"])
    assert result["ceilings"] == {"general": 1e12, "fused": 1e12}
    assert "<svg" in plot.read_text()
    rows = report.steps(result, 20)
    assert [row[1] for row in rows[1:]] == [
        "naive", "shared memory", "tuned tile", "fused step", "cuBLAS",
    ]  # fmt: skip
    first, second = (report.median(line) for line in result["lines"][5:7])
    assert rows[2][4] == f"{first / second:.2f}"
    assert [row[4] == "" for row in rows[1:]] == [True, False, False, False, True]


@needs_compiler
def test_climbing_along_a_vector(climb, tmp_path):
    pytest.importorskip("matplotlib")
    out = tmp_path / "r.json"
    code, text, err = climb("--gemv", "--semiring", "plus_times", "--sizes", "20", "--out",
                            str(out))  # fmt: skip
    assert (code, err) == (0, "")
    result = json.loads(out.read_text())
    assert {name: len(lines) for name, lines in result["sweeps"].items()} == {"lanes": 9, "rows": 4}
    assert "rung 3, by threads per row" in text
    compared = [row[4].partition(" ")[2] for row in report.steps(result, 20)[1:]]
    assert compared[:6] == ["", "", "(rung 1)", "(rung 2)", "(rung 1)", "(rung 2)"]
    draw.draw(io.BytesIO(), result)


@needs_compiler
def test_climbing_to_tensor_cores(climb, monkeypatch, tmp_path):
    """By public calls."""
    asked = []

    def gemm(alpha, a, b, *, semiring, precision=None):
        asked.append((precision, a.dtype.name))
        return np.matmul(a, b).view(Device)

    monkeypatch.setattr(sm, "gemm", gemm)
    out = tmp_path / "r.json"
    code, _, err = climb("--semiring", "plus_times", "--sizes", "20", "--rungs", "9,10",
                            "--no-sweeps", "--out", str(out))  # fmt: skip
    assert (code, err) == (0, "")
    assert set(asked) == {
        ("tf32", "float32"), (None, "float16"), ("float32_emulated", "float32"),
    }  # fmt: skip
    rows = report.steps(json.loads(out.read_text()), 20)
    assert [row[0] for row in rows[1:]] == ["9", "10a", "10b", "10c", ""]
    assert [row[4].partition(" ")[2] for row in rows[2:5]] == ["", "(rung 9)", "(rung 9)"]
    assert "TF32 needs sm_80" in measure.rungs_of(sm.semirings["plus_times"], "product", 75)[1][0]


@needs_compiler
def test_a_wrong_rung_is_found(climb, monkeypatch):
    right = rungs.product

    def wrong(semiring, loop, a, b, c):
        kernel = right(semiring, loop, a, b, c)
        c[-1, -1] += 1
        return kernel

    monkeypatch.setattr(rungs, "product", wrong)
    code, _, err = climb("--sizes", "20", "--rungs", "3", "--no-sweeps")
    assert code == 2
    assert "rung 3, shared memory, n = 20 is wrong" in err


# --- the profiler -------------------------------------------------------------------------------

COUNTED = """==PROF== Connected to process 7
"ID","Kernel Name","gpu__time_duration.sum","dram__bytes_read.sum"
"","","ms","Mbyte"
"0","ladder_mark_0","0.01","0"
"1","kernel","2.5","1,204.25"
"2","kernel","0.5","1.5"
"3","ladder_mark_1__float","0.01","0"
"4","ampere_sgemm_128x64_nn","1.25","n/a"
"""


def test_counters_are_those_of_the_longest_kernel_of_a_rung():
    found = profile.parse(COUNTED, {"duration": "gpu__time_duration.sum",
                                    "dram_read": "dram__bytes_read.sum"})  # fmt: skip
    assert found[0] == {"duration": pytest.approx(2.5e-3), "dram_read": pytest.approx(1204.25e6)}
    assert found[1]["duration"] == pytest.approx(1.25e-3)
    assert math.isnan(found[1]["dram_read"])
    assert profile.parse("==ERROR== nothing") == {}


def profiler(folder, script):
    """A stand-in for Nsight Compute, first on the path."""
    path = folder / "ncu"
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def test_a_counter_that_a_chip_lacks_is_left_out(tmp_path, monkeypatch):
    table = tmp_path / "table"
    table.write_text(COUNTED)
    monkeypatch.setenv("PATH", profiler(
        tmp_path,
        'case "$*" in *lts__t_bytes*) echo "==ERROR== Failed to find metric lts__t_bytes.sum";'
        f" exit 1;; esac\ncat {table}",
    ))  # fmt: skip
    found, why_not = profile.counters([])
    assert (found[0]["duration"], why_not) == (pytest.approx(2.5e-3), "")


def test_without_counters_it_is_said_why(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert profile.counters([]) == ({}, "Nsight Compute (ncu) is not on the path")
    refuse = 'echo "==ERROR== ERR_NVGPUCTRPERM - no permission"; exit 1'
    monkeypatch.setenv("PATH", profiler(tmp_path, refuse))
    found, why_not = profile.counters([])
    assert found == {}
    assert "no permission" in why_not


# --- the command and the page -------------------------------------------------------------------


@pytest.fixture
def run(capsys):
    return lambda *arguments: (command.main(arguments), *capsys.readouterr())


def test_without_a_gpu_it_is_said_what_is_needed(run, monkeypatch):
    monkeypatch.setattr(device, "why_not", lambda: "CuPy is not installed")
    code, out, err = run()
    assert (code, out) == (2, "")
    assert "CuPy is not installed" in err
    assert "--show" in err


@pytest.mark.parametrize("semiring", ["min_plus", "plus_times", "min(a, b); a + b; inf; 0"])
def test_it_shows_the_rungs_without_a_gpu(run, semiring):
    code, out, err = run("--show", "--semiring", semiring, "--sizes", "2048,4096")
    assert (code, err) == (0, "")
    assert out.count("sr::Tile<32, 32, 4, 1, 1, 32>, 0 stages") == 2
    assert "0.0303" in out  # pairs a byte of the plain loop
    assert "column-major, 8 threads a row" in run("--show", "--gemv")[1]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sizes", "12,x"), "expected sizes such as 256,512, got '12,x'"),
        (("--sizes", "0"), "sizes are at least 1"),
        (("--semiring", "min_pulse"), "there is no built-in semiring 'min_pulse'"),
        (("--semiring", "a + b; a * b"), "expected four parts"),
        (("--semiring", "lor_land"), "has no float32 form"),
        (("--rungs", "2,12"), "there is no rung 12"),
    ],
)
def test_bad_options(run, arguments, words):
    code, _, err = run(*arguments)
    assert code == 2
    assert words in err


def test_the_lectures_example(run):
    weights = example.five_nodes()
    expected = [[0, 3, 8, 4, 4], [3, 0, 6, 1, 7], [7, 4, 0, 5, 11], [2, 5, 5, 0, 6],
                [8, 11, 11, 6, 0]]  # fmt: skip
    by_powers, by_nodes = list(example.powers(weights)), list(example.through(weights))
    assert (len(by_powers), len(by_nodes)) == (4, 6)
    assert_array_equal(by_powers[-1], expected)
    assert_array_equal(by_nodes[-1], expected)
    assert_array_equal(by_powers[1], (weights[:, :, None] + weights).min(1))
    assert by_powers[1][2, 4] == 11  # 3 → 2 → 5
    assert by_nodes[1][3, 4] == 6  # 4 → 1 → 5
    assert np.isinf(by_nodes[3][1, 0])
    assert_array_equal(sm.apsp(weights), expected)
    code, out, err = run("--example")
    assert (code, err) == (0, "")
    assert all(f"D^{k} =" in out for k in (1, 2, 3, 4))
    assert all(f"D^({k}) =" in out for k in range(6))


def test_the_page_is_made_from_the_results():
    text = page.PAGE.read_text(encoding="utf-8")
    results = {
        path.stem: json.loads(path.read_text(encoding="utf-8"))
        for path in page.RESULTS.glob("*.json")
    }
    assert page.renew(text, results) == text  # python -m apps.ladder.page was run
    line = {
        "seconds": [1.0], "pairs": 8.0, "n": 2, "rung": "3", "name": "shared memory", "after": "",
    }  # fmt: skip
    tiny = {
        "verb": "product", "semiring": {"name": "min_plus", "add": "min(a, b)", "mul": "a + b"},
        "machine": {"gpu": "g"}, "versions": {}, "date": "2000-01-01", "commit": "c", "notes": [],
        "ceilings": {"general": 16.0}, "copy": 1.0,
        "lines": [line, line | {"rung": "", "name": "cuBLAS"}],
        "sweeps": {},
    }  # fmt: skip
    for name, (_, make) in page.BLOCKS.items():
        begin = f"<!-- ladder {name}:begin -->"
        assert begin in text, name
        if name in ("min_plus", "plus_times"):
            assert make(tiny) in page.put(text, name, make(tiny))
    assert "| 3 | shared memory | 1.00 s | 8.00 /s | | 50 % | 1.00 |" in page.rungs(tiny)
    for file in page.FIGURES.values():
        assert file in text
