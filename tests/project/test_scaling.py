"""The benchmark of several devices: its graph, its check, its model, its tables and figures."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

import semiring_mm as sm
from bench import machine, model, report, scaling
from semiring_mm.closures.elimination import Grid, eliminate
from semiring_mm.tiled.timeline import Timeline

ROOT = Path(__file__).resolve().parents[2]
RAW = max((ROOT / "bench" / "results").glob("gpu-nvidia-h200-*.json"))
DEVICE = model.Device(rate=16e12, half=200, stall=1.5e-6)
LINKS = model.Links(400e9)


# --- the graph and its check -------------------------------------------------------------------


def test_weights_are_the_same_from_any_rectangle():
    whole = scaling.weights(np, slice(0, 300), slice(0, 200))
    assert whole.dtype == np.float32
    np.testing.assert_array_equal(
        scaling.weights(np, slice(70, 300), slice(11, 40)), whole[70:300, 11:40]
    )


def test_weights_are_uniform_and_exact():
    w = scaling.weights(np, slice(5000, 6000), slice(0, 1000)).astype(np.float64)
    assert 0 < w.min() < 1e-5
    assert 1 - 1e-5 < w.max() <= 1
    assert abs(w.mean() - 0.5) < 2e-3
    assert abs(w.var() - 1 / 12) < 1e-3
    assert (w * 2**24 == np.rint(w * 2**24)).all()
    for one, other in ((w[:-1], w[1:]), (w[:, :-1], w[:, 1:]), (w, w.T)):
        assert abs(np.corrcoef(one.ravel(), other.ravel())[0, 1]) < 5e-3


def test_the_check_finds_one_wrong_entry():
    n = 700
    d = sm.apsp(scaling.weights(np, slice(0, n), slice(0, n)))
    assert scaling.check(np, n, lambda i: d[i]) == 4 * n
    for place, factor in (((n // 2, 5), 1.001), ((n - 1, 7), 0.999), ((0, 0), np.nan)):
        wrong = d.copy()
        wrong[place] = factor * max(wrong[place], 0.01)
        with pytest.raises(AssertionError, match=r"\d entries of rows"):
            scaling.check(np, n, wrong.__getitem__)


# --- measuring ---------------------------------------------------------------------------------


class Blocks:
    """Stands in for tiles on devices: one matrix, and the steps one after the other."""

    def __init__(self, devices, n, tile, timeline=None):
        self.grid, self.devices, self.timeline = Grid(n, tile), devices, timeline
        self.steps = scaling.problem_of(scaling.Hashed(np, n)).steps
        self.seconds, self.sent = 2.0 / len(devices), 100 * (len(devices) - 1)

    def load(self, read):
        whole = slice(0, self.grid.n)
        self.d = read(whole, whole, np)
        self.steps.begin(np, self.d, whole, whole)

    def run(self, tick):
        eliminate(self.grid.count, self)

    def read(self, rows, columns):
        return self.d[rows, columns]

    def _at(self, i, j):
        return self.d[self.grid.part(i), self.grid.part(j)]

    def pivot(self, k):
        from semiring_mm.cpu import engine

        self.steps.close(engine, self._at(k, k), None, k * self.grid.tile)
        for j in set(range(self.grid.count)) - {k}:
            self.steps.row(engine, self._at(k, k), self._at(k, j), None)
            self.steps.column(engine, self._at(j, k), self._at(k, k), None, None)
        if self.timeline is not None:
            for device in self.devices:
                self.timeline.note(f"cuda:{device}", "compute", "close", k, k, k + 0.5)

    def update(self, k, rows, columns):
        from semiring_mm.cpu import engine

        for i in rows:
            for j in columns:
                self.steps.update(engine, self._at(i, k), self._at(k, j), self._at(i, j))
        if self.timeline is not None:
            self.timeline.note("cuda:0", "send", "update", k, k + 0.5, k + 0.8)

    def finish(self, k): ...


@pytest.fixture
def bench():
    return scaling.Bench(np, [0, 1, 2, 3], 200, 32, Blocks)


def test_runs_are_checked_and_counted(bench):
    lines = list(bench.lines(["strong", "weak"]))
    assert [(x["kind"], x["n"], x["devices"]) for x in lines] == [
        ("strong", 200, 1), ("strong", 200, 2), ("strong", 200, 4),
        ("weak", 283, 2), ("weak", 400, 4),
    ]  # fmt: skip
    assert all(x["checked"] == 4 * x["n"] and x["tile"] == 32 for x in lines)
    assert lines[2]["seconds"] == 0.5
    assert lines[2]["sent"] == 300


def test_the_library_s_own_tiles_are_measured(bench, monkeypatch):
    """Over the CPU engine: what runs on devices but for the devices."""
    tiled = pytest.importorskip("semiring_mm.tiled.blocks")
    devices = pytest.importorskip("semiring_mm.tiled.devices")
    pytest.importorskip("semiring_mm.tiled.stored")
    monkeypatch.setattr(
        devices, "cuda_devices", lambda found: [devices.Device(f"cpu:{x}") for x in found]
    )
    assert tiled.shape_of(8) == model.grid_of(8)
    bench.make = scaling.blocks
    found = bench.timeline()
    assert found["devices"] == 4
    assert found["sent"] > 0
    assert {(m[1], m[2]) for m in found["marks"]} >= {("compute", "close"), ("send", "tile")}
    assert scaling.tile_of(65_536, 4) <= 4096
    monkeypatch.setattr(scaling, "Whole", lambda device, n: scaling.blocks([0], n, 64, Timeline()))
    streamed = bench.out_of_core(300)
    assert streamed["checked"] == 1200
    assert 0 < streamed["seconds"] <= streamed["whole"]


def test_a_wrong_run_is_no_result(bench, monkeypatch):
    monkeypatch.setattr(Blocks, "update", lambda *_: None)
    with pytest.raises(AssertionError, match="are no distances"):
        list(bench.lines(["strong"]))


def test_the_steps_of_a_timeline():
    kept = Timeline()
    for k in range(9):
        kept.note("cuda:0", "compute", "update", k, k, k + 1.5)  # on, into the next step
    marks = scaling.window(kept, 3)
    assert [m[3] for m in marks] == [2, 3, 4, 5, 6]
    assert marks[0][4:] == [0, 0.5]
    assert marks[-1][4:] == [3, 4]
    kept.note("cuda:0", "write", "tile", 0, 20, 30)
    assert scaling.computing(kept) == 9.5


def test_sizes_that_scale():
    assert scaling.counts(1) == [1]
    assert scaling.counts(6) == [1, 2, 4, 6]
    assert scaling.counts(8) == [1, 2, 4, 8]
    assert [scaling.weak_size(65_536, p) for p in (1, 2, 4, 8)] == [65536, 90112, 131072, 188416]


# --- the model ---------------------------------------------------------------------------------


def test_the_model_on_one_device_is_the_product():
    f = model.forecast(65_536, 1, 4096, DEVICE, LINKS)
    products = 65_536**3 / DEVICE.rate * (1 + DEVICE.half / 4096)
    assert f.seconds == pytest.approx(products + 65_536 * DEVICE.stall)
    assert f.send == 0
    assert f.bound == "computing"


def test_the_model_scales_until_the_chain_of_pivots_shows():
    alone = model.forecast(65_536, 1, 2048, DEVICE, LINKS).seconds
    four = model.forecast(65_536, 4, 2048, DEVICE, LINKS)
    assert 3.6 < alone / four.seconds < 4
    without = model.forecast(65_536, 4, 2048, DEVICE, LINKS, look_ahead=False)
    assert without.seconds > four.seconds
    assert model.forecast(65_536, 1024, 2048, DEVICE, LINKS).bound == "the pivot's chain"
    slow = model.Links(1e9)
    assert model.forecast(65_536, 4, 2048, DEVICE, slow).bound == "sending"
    uneven = model.forecast(33 * 2048, 4, 2048, DEVICE, LINKS).compute
    assert uneven == model.forecast(34 * 2048, 4, 2048, DEVICE, LINKS).compute


def test_the_model_of_undirected_graphs_and_of_tiles():
    whole = model.forecast(131_072, 4, 2048, DEVICE, LINKS)
    half = model.forecast(131_072, 4, 2048, DEVICE, LINKS, symmetric=True)
    assert 0.5 < half.seconds / whole.seconds < 0.6
    assert half.memory < whole.memory
    best = model.best_tile(131_072, 4, DEVICE, LINKS)
    for tile in (256, 8192):
        other = model.forecast(131_072, 4, tile, DEVICE, LINKS)
        assert model.forecast(131_072, 4, best, DEVICE, LINKS).seconds <= other.seconds


def test_the_model_of_streaming():
    tile = model.hiding_tile(DEVICE, LINKS)
    assert tile == pytest.approx(4 * 16e12 / 55e9 - 200)
    inside = model.forecast(131_072, 1, 4096, DEVICE, LINKS).seconds
    assert model.streamed(131_072, 4096, DEVICE, LINKS) == pytest.approx(inside)
    n = 131_072
    assert model.streamed(n, 256, DEVICE, LINKS) == pytest.approx(n / 256 * 4 * n**2 / 55e9)


def test_the_interval_of_checkpoints():
    assert model.interval(4, 180_000) == pytest.approx(math.sqrt(2 * 4 * 180_000), rel=0.01)
    assert model.interval(10, 1) == 1
    best = model.interval(60, 3600)
    least = model.overhead(60, 3600, best)
    assert least < min(model.overhead(60, 3600, x * best) for x in (0.5, 2))


def test_constants_come_from_raw_results():
    device = model.device_of(json.loads(RAW.read_text(encoding="utf-8")))
    assert 16e12 < device.rate < 18e12
    assert 100 < device.half < 400
    assert 1e-7 < device.stall < 2e-6
    # which was measured, and is not among what the constants are from
    assert model.forecast(65_536, 1, 8192, device, LINKS).seconds == pytest.approx(16.6, rel=0.03)
    assert model.line_through([(1, 3), (2, 5), (3, 7)]) == pytest.approx((2, 1))


# --- tables and figures ------------------------------------------------------------------------


def line(kind, n, devices, seconds):
    return {
        "kind": kind, "n": n, "devices": devices, "tile": 2048, "seconds": seconds,
        "sent": 10**9 * (devices - 1), "checked": 4 * n,
    }  # fmt: skip


@pytest.fixture
def committed(monkeypatch, tmp_path):
    """Results of two machines, committed; a copy of the page, and where figures go."""
    marks = [["cuda:0", "compute", "close", 3, 0, 0.5], ["cuda:1", "send", "row", 4, 0, 1]]
    gpu = {
        "machine": {"gpu": "NVIDIA H200", "driver": "580"}, "date": "2026-11-21T10:00:00+00:00",
        "commit": "abc", "devices": [0, 1, 2, 3],
        "links": {"device to device": 390e9, "host to device": 55e9, "device to host": 50e9},
        "lines": [
            line("strong", 65536, 1, 17.4), line("strong", 65536, 2, 8.9),
            line("strong", 65536, 4, 4.6), line("weak", 131072, 4, 36.0),
        ],
        "timeline": line("strong", 65536, 4, 4.6) | {"marks": marks},
    }  # fmt: skip
    two = gpu | {"devices": [0, 1], "lines": [line("strong", 65536, 2, 9.9)], "timeline": None}
    streamed = {
        "where": "device", "n": 131072, "in_memory": 140.0, "seconds": 154.0, "checked": 4,
    }  # fmt: skip
    cpu = {
        "machine": {"cpu": "Xeon"}, "date": "2026-11-21T10:00:00+00:00", "commit": "abc",
        "threads": 2, "devices": [],
        "streamed": [streamed | {"where": "cpu", "n": 8192, "in_memory": 10.0, "seconds": 12.0}],
    }  # fmt: skip
    alone = gpu | {"devices": [0], "lines": [], "streamed": [streamed], "timeline": None}
    folder = tmp_path / "bench" / "results"
    folder.mkdir(parents=True)
    names = []
    for what, result in {"x2": two, "x4": gpu, "cpu": cpu, "x1-out-of-core": alone}.items():
        names.append(f"bench/results/scaling-{what}-2026-11-21.json")
        (tmp_path / names[-1]).write_text(report.dumps(result), encoding="utf-8")
    names.append(f"bench/results/{RAW.name}")
    (tmp_path / names[-1]).write_bytes(RAW.read_bytes())
    page = tmp_path / "docs" / "scaling.md"
    page.parent.mkdir()
    page.write_text(scaling.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    monkeypatch.setattr(machine, "ROOT", tmp_path)
    monkeypatch.setattr(machine, "git", lambda *_: "\n".join(names))
    monkeypatch.setattr(scaling, "PAGE", page)
    for name in ("FIGURE", "TIMELINE"):
        monkeypatch.setattr(scaling, name, tmp_path / f"{name}.svg")
    return tmp_path


def test_the_page_is_renewed_from_committed_results(committed):
    pytest.importorskip("matplotlib")
    assert scaling.main(["--table"]) == 0
    text = (committed / "docs" / "scaling.md").read_text(encoding="utf-8")
    for row in (
        "| 65,536 | 1 | 17.4 s | 16.2 | 16.2 | 1.00 × | 100 % | 0.0 GB |",
        "| 65,536 | 2 | 8.90 s | 31.6 | 15.8 | 1.96 × | 98 % | 1.0 GB |",  # of the larger host
        "| 65,536 | 4 | 4.60 s | 61.2 | 15.3 | 3.78 × | 95 % | 3.0 GB |",
        "| 131,072 | 4 | 36.0 s | 62.5 | 15.6 | | 97 % | 3.0 GB |",
        "| host memory, one GPU | 131,072 | 140 s | 154 s | 14.6 T/s | × 1.10 |",
        "| a file, the CPU | 8,192 | 10.0 s | 12.0 s | 45.8 G/s | × 1.20 |",
        "| 1,000,000 | 1,000 | directed | ",
    ):
        assert row in text
    assert "| 65,536 | 4 | 2,048 | 4.60 s | " in text  # beside the model
    assert "](scaling.svg)" in text
    assert "](timeline.svg)" in text
    assert "Not measured yet" not in text
    assert "bench/results/scaling-x4-2026-11-21.json" in text
    for name in ("FIGURE", "TIMELINE"):
        assert (committed / f"{name}.svg").read_bytes().startswith(b"<?xml")


def test_links_are_taken_as_measured(committed):
    links = scaling.links_of(scaling.results())
    assert links == model.Links(390e9, store=50e9)
    assert scaling.links_of([]).store == 55e9


def test_unknown_parts_are_refused(capsys):
    with pytest.raises(SystemExit):
        scaling.main(["--only", "strong,stronger"])
    assert "--only takes links, strong, weak, timeline; got stronger" in capsys.readouterr().err
