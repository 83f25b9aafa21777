"""The benchmark runs, on tiny sizes; its tables and lines say what was measured. No times."""

import importlib.util
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from processes import run

import semiring_mm as sm
from bench import (
    aims,
    cases,
    ceilings,
    gpu,
    gpu_ceilings,
    gpu_neighbours,
    gpu_sequences,
    headlines,
    report,
    roofline,
    sparse_products,
)
from bench.measure import UNITS, Contender, Line, sample

ROOT = Path(__file__).resolve().parents[2]
BEGIN, END = report.markers("cpu")
DEVICE_CASES = [
    *gpu.CASES, *gpu_sequences.CASES, *sparse_products.cases(True), *gpu_neighbours.CASES,
    *gpu.REST, gpu.LONGEST,
]  # fmt: skip


def bench(*arguments, **environment):
    return run("-m", "bench", *arguments, cwd=ROOT, **environment)


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """One quick run: (what it printed, its raw results)."""
    out = tmp_path_factory.mktemp("bench") / "new folder" / "raw.json"
    done = bench("--quick", "--threads", "2", "--out", str(out))
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, json.loads(out.read_text(encoding="utf-8"))


def test_every_case_is_a_line(quick):
    printed, raw = quick
    lines = [Line.from_raw(line) for line in raw["lines"]]
    assert {line.case for line in lines} == {case.name for case in cases.CASES if case.quick}
    for line in lines:
        assert report.text(line) in printed
        if not line.skipped:
            assert line.unit in UNITS
            assert line.ours.name == "semiring_mm"
            assert len(line.ours.samples) >= 2
            assert all(s > 0 for c in line.contenders for s in c.samples)
            assert (line.ceiling_rate > 0) == bool(line.ceiling)
            assert all(c.samples or c.skipped for c in line.contenders)


def test_raw_results_say_what_was_measured(quick):
    _, raw = quick
    assert raw["machine"]["cpu"]
    assert raw["machine"]["cores"] >= 1
    assert raw["versions"]["numpy"] == np.__version__
    assert raw["versions"]["BLAS"]
    assert raw["versions"]["LLVM"]
    assert raw["threads"] == 2
    assert raw["arguments"]["quick"] is True
    for row in raw["ceilings"]:
        for forms in (row["before"], row["after"]):
            assert all(rate > 0 for samples in forms.values() for rate in samples)


def test_large_sparse_graphs(tmp_path, monkeypatch, capsys):
    """Every line is measured on a small graph, with the rivals that there are, and checked."""
    pytest.importorskip("scipy")
    from bench import sparse

    monkeypatch.delenv("ROUTINGKIT", raising=False)
    out = tmp_path / "raw.json"
    assert sparse.main(["--quick", "--out", str(out)]) == 0
    raw = json.loads(out.read_text(encoding="utf-8"))
    lines = [Line.from_raw(line) for line in raw["lines"]]
    assert [*dict.fromkeys(line.case for line in lines)] == [case.name for case in sparse.CASES]
    assert all(line.ours.samples for line in lines)
    assert "RoutingKit" in capsys.readouterr().out
    table = sparse.table_of(raw, "raw.json").splitlines()
    assert table[2].startswith("| prepare | grid, 12 × 12 | ")


def test_families_of_sparse_graphs(tmp_path, capsys):
    """Every number of sources of small graphs, preparation included, checked against SciPy."""
    pytest.importorskip("scipy")
    from bench import families, sparse

    out = tmp_path / "raw.json"
    assert sparse.main(["--families", "--quick", "--out", str(out)]) == 0
    table = families.table_of(json.loads(out.read_text(encoding="utf-8")), "raw.json").splitlines()
    assert table[0] == "| graph | one source | 10 sources | 100 sources | all nodes |"
    assert [row.count("×") for row in table[2:4]] == [4, 4]
    assert "2-D grid, 150 nodes" in table[3]
    assert "one source" in capsys.readouterr().out


@pytest.mark.parametrize("n", [1000, 30_000])
def test_networks_like_roads(n):
    """Connected, of as many nodes as asked for, the same for the same seed, with dead ends."""
    sparse = pytest.importorskip("scipy.sparse")
    from bench import families

    tail, head, time = families.road_like(n)
    assert {x.dtype for x in (tail, head, time)} == {np.dtype(np.int32)}
    assert time.min() >= 1
    edges = sparse.coo_array((time, (tail, head)), shape=(n, n))
    assert sparse.csgraph.connected_components(edges, directed=False)[0] == 1
    degree = np.bincount(np.concatenate([tail, head]), minlength=n)
    assert 2.2 < degree.mean() < 2.7
    assert 0.15 < (degree == 1).mean() < 0.25
    assert degree.max() <= 8
    for x, again, other in zip(
        (tail, head, time), families.road_like(n), families.road_like(n, 2), strict=True
    ):
        np.testing.assert_array_equal(x, again)
        assert len(x) != len(other) or (x != other).any()


def test_a_continent(tmp_path):
    """Preparation and questions, checked against SciPy."""
    pytest.importorskip("scipy")
    from bench import sparse

    out = tmp_path / "raw.json"
    assert sparse.main(["--continent", "--quick", "--out", str(out)]) == 0
    raw = json.loads(out.read_text(encoding="utf-8"))
    table = sparse.continent_table(raw, "raw.json").splitlines()
    assert table[0] == "| question | like roads, 2,000 nodes |"
    questions = [row.split(" | ")[0] for row in table[2:-2]]
    assert [questions[0], questions[-1]] == ["| prepare", "| a source's eccentricity"]


def test_what_is_asked_of_one_source(tmp_path):
    """Each question to small graphs, checked against SciPy."""
    pytest.importorskip("scipy")
    from bench import families, sparse

    out = tmp_path / "raw.json"
    assert sparse.main(["--single", "--quick", "--out", str(out)]) == 0
    raw = json.loads(out.read_text(encoding="utf-8"))
    table = families.single_table(raw, "raw.json").splitlines()
    assert table[0].startswith("| graph | weights | `csgraph` | `limit`, a tenth |")
    assert [row.count("×") for row in table[2:4]] == [7, 7]


def test_raw_results_are_kept_by_kind_machine_and_day(tmp_path, monkeypatch):
    monkeypatch.setattr(report, "RESULTS", tmp_path / "results")
    result = report.begin(2, arguments={})
    result["machine"]["cpu"] = "A Core (TM) 3"
    assert report.keep(result, "some", None, scratch=True) is None
    assert not list(tmp_path.iterdir())
    kept = report.keep(result, "some", None, scratch=False)
    assert kept == tmp_path / "results" / f"some-a-core-tm-3-{result['date'][:10]}.json"
    named = report.keep(result, "some", tmp_path / "new" / "raw.json", scratch=True)
    for path in (kept, named):
        assert json.loads(path.read_text(encoding="utf-8")) == json.loads(report.dumps(result))
    result["machine"]["gpu"] = "A Card"
    assert report.keep(result, "some", None, scratch=False).name.startswith("some-a-card-")


def test_a_wrong_product_stops_the_run():
    a, b = np.arange(6.0).reshape(2, 3), np.ones((3, 2))
    right = Contender("right", lambda: a @ b)
    wrong = Contender("wrong", lambda: a @ b + 1)
    check = cases.check_product(a, b, "plus_times")
    sample(Line("product", "3", "G/s", 1, [right], check=check), quick=True)
    with pytest.raises(AssertionError, match="product 3: wrong"):
        sample(Line("product", "3", "G/s", 1, [right, wrong], check=check), quick=True)


def test_reference_paths():
    inf = np.inf
    w = np.array([[inf, 3, 8, inf], [inf, inf, 1, inf], [2, inf, inf, inf], [1, inf, inf, inf]])
    np.testing.assert_array_equal(cases.dijkstra(w, 0), [0, 3, 4, inf])
    width = np.where(np.isfinite(w), w, -inf)
    np.testing.assert_array_equal(cases.dijkstra(width, 0, widest=True), [inf, 3, 8, -inf])
    check = cases.check_paths(w)
    d = np.array([[0, 3, 4, inf], [3, 0, 1, inf], [2, 5, 0, inf], [1, 4, 5, 0]])
    check(d)
    with pytest.raises(AssertionError):
        check(d + 1)


def test_a_missing_file_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("SEMIRING_MM_DATA", str(tmp_path))
    case = cases.Case("apsp nowhere", cases.network("nowhere.gr"), (0,))
    before = sm.get_num_threads()
    (line,) = case.lines(cases.Options(threads=before + 1))
    assert report.text(line).endswith("skipped: no file nowhere.gr")
    assert sm.get_num_threads() == before


@pytest.mark.skipif(os.name == "nt", reason="sends a signal")
def test_what_was_measured_before_a_signal_is_kept(tmp_path):
    out = tmp_path / "raw.json"
    command = [sys.executable, "-m", "bench", "--only", "min-plus f32", "--out", str(out)]
    running = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    line = next(line for line in running.stdout if line.startswith("small min-plus"))
    running.send_signal(signal.SIGTERM)
    printed = line + running.communicate(timeout=60)[0]
    assert running.returncode == 1
    lines = [Line.from_raw(x) for x in json.loads(out.read_text(encoding="utf-8"))["lines"]]
    assert lines
    assert len(lines) < 10
    assert all(report.text(line) in printed for line in lines)


def test_rounds_take_turns():
    order = []
    contenders = [Contender(name, lambda name=name: order.append(name)) for name in "ab"]
    for contender in contenders:
        contender.call = lambda name=contender.name: order.append(name) or 1.0
        contender.own_clock = True
    sample(Line("turns", "1", "", 1, contenders), quick=True)
    assert order == list("abab")


def test_ceilings_are_rates_of_every_form():
    for name in ("min-plus f32", "max-min f32", "or-and bits", "read"):
        samples = ceilings.measure(name, 1, seconds=0.001, repeat=2)
        assert len(samples) >= {"or-and bits": 1}.get(name, 2)
        form, best = ceilings.best(samples)
        assert best == max(max(rates) for rates in samples.values())
        assert best in samples[form]


@pytest.mark.parametrize("width", [128, 256, 512])
def test_loops_are_valid_ir_at_every_width(width):
    import llvmlite.binding as llvm

    ceilings.assembly()  # targets are initialised
    for name, (element, forms) in ceilings.STEPS.items():
        for i, steps in enumerate(forms.values()):
            text = ceilings.module_ir([ceilings.loop_ir(f"f{i}", element, steps, width, 10)])
            llvm.parse_assembly(text).verify()
            assert f"<{width // ceilings.BITS[element]} x {element}>" in text, name


def test_tables_stand_between_markers(quick, tmp_path):
    _, raw = quick
    target = tmp_path / "README.md"
    target.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n", encoding="utf-8")
    lines = [Line.from_raw(line) for line in raw["lines"]]
    block = report.table(raw, lines, "bench/results/some.json")
    assert report.put(target, block)
    text = target.read_text(encoding="utf-8")
    assert text.startswith(f"before\n{BEGIN}\n| operation | n |")
    assert text.endswith(f"{END}\nafter\n")
    assert "old" not in text
    assert raw["machine"]["cpu"] in text
    assert f"| {lines[-1].case} |" in text
    target.write_text("no markers", encoding="utf-8")
    assert not report.put(target, block)
    assert target.read_text(encoding="utf-8") == "no markers"


@pytest.mark.parametrize(("page", "up"), [("README.md", "bench"), ("docs/page.md", "../bench")])
def test_raw_results_are_a_link_from_their_page(page, up, tmp_path, monkeypatch):
    monkeypatch.setattr(report.machine, "ROOT", tmp_path)
    target = tmp_path / page
    target.parent.mkdir(exist_ok=True)
    target.write_text(f"{BEGIN}\n{END}\n", encoding="utf-8")
    assert report.put(
        target, "Raw: `bench/results/cpu-some-2.50.json`, [it](bench/results/a.json)."
    )
    link = f"Raw: [`bench/results/cpu-some-2.50.json`]({up}/results/cpu-some-2.50.json), "
    link += f"[it]({up}/results/a.json)."
    assert link in target.read_text(encoding="utf-8")


def test_the_first_pages_say_what_was_measured():
    """They have the rows of the newest committed results: ``python -m bench readme``."""
    if not report.machine.git("ls-files", "bench/results"):
        pytest.skip("not a checkout: no results are committed")
    rows = [row for row in headlines.table().split("\n") if row.startswith("| ")]
    assert len(rows) == 2 + len(headlines.ROWS)
    assert all(float(row.rpartition("× ")[2].rstrip(" |")) > 1 for row in rows[2:])
    begin, end = report.markers("headlines")
    for name in ("README.md", "docs/index.md"):
        page = (report.machine.ROOT / name).read_text(encoding="utf-8")
        block = page.partition(begin)[2].partition(end)[0]
        assert [row for row in block.split("\n") if row.startswith("| ")] == rows, name


def test_a_headline_stands_beside_the_fastest_rival(monkeypatch):
    rivals = [
        Contender("slow", None, samples=[9.0]),
        Contender("fast", None, samples=[3.0, 4.0, 5.0]),
    ]
    line = Line("case", "7", "", 2, [Contender("semiring_mm", None, samples=[0.5]), *rivals])
    result = {"date": "2026-01-02T03:04:05", "threads": 2, "machine": {"cpu": "Intel Z"},
              "lines": [line.raw()]}  # fmt: skip
    monkeypatch.setattr(headlines, "newest", lambda kind: (f"bench/results/{kind}.json", result))
    monkeypatch.setattr(headlines, "ROWS", [("a case", "cpu", "case", "7")])
    assert "| a case | fast 4.00 s | 500 ms | × 8.00 |" in headlines.table()
    assert "2 cores of an Intel Z, 2026-01-02 ([raw](bench/results/cpu.json))" in headlines.table()
    monkeypatch.setattr(headlines, "ROWS", [("a case", "cpu", "case", "8")])
    with pytest.raises(LookupError, match="no line 'case' of size '8'"):
        headlines.table()


def test_a_figure_is_drawn(quick, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    _, raw = quick
    monkeypatch.setattr(report, "FIGURE", tmp_path / "figure.svg")
    assert report.draw(raw, [Line.from_raw(line) for line in raw["lines"]])
    assert "</svg>" in (tmp_path / "figure.svg").read_text(encoding="utf-8")


def test_lines_read_well():
    line = Line(
        "min-plus f32", "4096", "G/s", 2,
        [
            Contender("semiring_mm", None, 4096.0**3, samples=[0.5, 0.6, 0.7]),
            Contender("other", None, 4096.0**3, samples=[6.0]),
            Contender("plain product", None, 4096.0**3, ours=True, samples=[0.3]),
            Contender("third", None, skipped="absent"),
        ],
        ceiling="min-plus f32", ceiling_rate=160e9,
    )  # fmt: skip
    assert " ".join(report.text(line).split()) == (
        "min-plus f32 4096 600 ms (best 500 ms) 115 G/s 72 % of 160 other 11.5 G/s (× 10.0) "
        "plain product 229 G/s (50 %) third absent"
    )
    assert Line.from_raw(line.raw()) == line


@pytest.mark.parametrize(
    ("value", "text"),
    [(12.34, "12.3 s"), (0.9999, "1.00 s"), (0.0123, "12.3 ms"), (4.5e-7, "0.45 µs")],
)
def test_seconds(value, text):
    assert report.seconds(value) == text


def test_refusals():
    done = bench("--only", "no such thing")
    assert done.returncode == 2
    assert "no operation has 'no such thing' in its name; there are: import" in done.stderr
    done = bench("--threads", "0")
    assert done.returncode == 2
    assert "expected a whole number from 1 on, got '0'" in done.stderr


# The CUDA device's part, as far as it goes without one


@pytest.fixture
def device_results():
    """Raw results of a device that there is not."""
    lines = [
        Line(
            "sgemm", "4096", "T/s", 0,
            [
                Contender("semiring_mm", None, 4096.0**3, samples=[0.003, 0.0028, 0.0029]),
                Contender("cuBLAS by CuPy", None, 4096.0**3, samples=[0.0027]),
                Contender("cuBLAS by PyTorch", None, skipped="absent"),
            ],
            "plus-times f32", 28e12, pairs=4096.0**3, bytes=12 * 4096.0**2,
        ),
        Line(
            "plus-times f32 A x", "16384 × 16384", "TB/s", 0,
            [Contender("semiring_mm", None, 4 * 16384.0**2, samples=[0.00025])],
            "copy", 4.2e12, pairs=16384.0**2, bytes=4 * 16384.0**2,
        ),
        Line(
            "apsp f32", "16384", "T/s", 0,
            [
                Contender("semiring_mm", None, 16384.0**3, samples=[0.314]),
                Contender("product", None, 16384.0**3, ours=True, samples=[0.288]),
            ],
            "min-plus f32 ≥ 0", 17e12, pairs=16384.0**3, bytes=8 * 16384.0**2,
        ),
        Line("min-plus bf16", "8192", "", 0, [Contender("semiring_mm", None)],
             skipped="PyTorch absent"),
    ]  # fmt: skip
    return {
        "format": 1, "date": "2026-01-02T03:04:05+00:00", "commit": "0123456789ab", "threads": 0,
        "machine": {
            "gpu": "NVIDIA H0", "arch": "sm_90", "multiprocessors": 7, "memory_gib": 10.5,
            "l2_mib": 50.0, "host": "a processor, 2 cores", "os": "Linux", "driver": "580.1",
        },
        "versions": {"numpy": "2.0", "cupy-cuda13x": "14.2.0", "NVRTC": "13.0", "cuBLAS": "130100"},
        "lines": [line.raw() for line in lines],
        "ceilings": [
            {"name": "copy", "threads": 0, "before": {"d": [4.2e12]}, "after": {"d": [4.1e12]}}
        ],
    }  # fmt: skip


def test_device_results_render(device_results, tmp_path):
    raw = json.loads(report.dumps(device_results))
    lines = [Line.from_raw(line) for line in raw["lines"]]
    block = report.table(raw, lines, "gpu-some.json")
    assert (
        "| sgemm | 4096 | 2.90 ms | 23.7 T/s | 85 % | cuBLAS by CuPy 25.5 T/s (× 0.93) |" in block
    )
    assert "| plus-times f32 A x | 16384 × 16384 | 250 µs | 4.29 TB/s | 102 % | |" in block
    assert "| apsp f32 | 16384 | 314 ms | 14.0 T/s | 82 % | product 288 ms (92 %) |" in block
    assert "| min-plus bf16 | 8192 | skipped: PyTorch absent |" in block
    assert "NVIDIA H0, driver 580.1; cupy-cuda13x 14.2.0, NVRTC 13.0, cuBLAS 130100" in block
    heading = report.heading(raw)
    assert heading.startswith("NVIDIA H0 (sm_90), 7 multiprocessors, 10.5 GiB, L2 50 MiB")
    assert "copy                d 4.20 → 4.10" in report.ceilings_text(raw["ceilings"])
    (begin, end), target = report.markers("gpu"), tmp_path / "README.md"
    others = f"{BEGIN}\nkept\n{END}"
    target.write_text(f"{others}\n{begin}\nold\n{end}\n", encoding="utf-8")
    assert report.put(target, block, "gpu")
    assert target.read_text(encoding="utf-8") == f"{others}\n{begin}\n{block}\n{end}\n"


def test_a_roofline_is_drawn(device_results, tmp_path, monkeypatch):
    pytest.importorskip("matplotlib")
    monkeypatch.setattr(report, "ROOFLINE", tmp_path / "roofline.svg")
    lines = [Line.from_raw(line) for line in device_results["lines"]]
    shown = {line.case: (x, y) for line, x, y in roofline.points(lines)}
    assert list(shown) == ["sgemm", "plus-times f32 A x", "apsp f32"]
    assert shown["sgemm"] == pytest.approx((4096 / 12, 4096**3 / 0.0029))
    assert shown["plus-times f32 A x"][0] == 0.25
    assert [roofline.mark(name)[0] for name in shown] == ["o", "s", "^"]
    assert roofline.ceilings(lines) == {
        "plus-times f32": 28e12, "min-plus f32 ≥ 0": 17e12, "copy": 4.2e12,
    }  # fmt: skip
    assert roofline.draw(device_results, lines)
    assert "</svg>" in (tmp_path / "roofline.svg").read_text(encoding="utf-8")


def test_every_operation_of_a_device_is_measured():
    table = [*gpu.CASES, *gpu.REST, gpu.LONGEST]
    sizes = {case.name: case.sizes for case in table}
    assert len(sizes) == len(table)
    assert sizes["sgemm"] == (256, 512, 1024, 2048, 4096, 8192, 12288, 16384)
    for m in (16, 64, 256):
        assert (m, 65536, 4096) in sizes["sgemm, low"]
        assert (4096, 65536, m) in sizes["sgemm, narrow"]
    for name in ("min-plus f32", "min-plus f32 ≥ 0"):
        assert {4096, 8192, 16384} <= set(sizes[name])
    for name in ("i32", "i16", "f16"):
        assert {4096, 8192} <= set(sizes[f"min-plus {name}"])
    assert {4096, 8192} <= set(sizes["max-min f32"]) & set(sizes["max-times f32 ≥ 0"])
    for general in (
        "min-plus f32, one entry < 0", "min-plus f32, one NaN", "max-min f32, one NaN",
        "max-times f32, one entry < 0", "min-plus f32, argmin", "min-plus f32 ≥ 0, argmin",
    ):  # fmt: skip
        assert 8192 in sizes[general]
    assert 16384 in sizes["or-and bool"]
    squares = {(n, n) for n in (256, 4096, 8192, 16384, 32768)}
    slim = {(128, 262144), (262144, 128), (1_000_000, 32)}
    for op in ("A x", "Aᵀ x"):
        assert set(sizes[f"plus-times f32 {op}"]) == squares | slim
        assert set(sizes[f"min-plus f32 {op}"]) < squares | slim
    assert 16384 in sizes["apsp f32"]
    assert 16384 in sizes["apsp f32, predecessors"]
    assert table[-1].full == (65536,)  # takes as long as everything else
    assert (10_000, 64) in sizes["apsp f32, batch"]
    assert {"first product, cold", "first product, from the disk"} <= set(sizes)
    quick = cases.Options(0, quick=True)
    assert all(case.wanted(quick) for case in table[:-1])


def test_every_page_has_a_place_for_its_lines_of_a_device(tmp_path):
    assert {case.table for case in DEVICE_CASES} == {"", *report.GPU_TABLES}
    pages = {kind: page for kind, (page, _) in report.GPU_TABLES.items()}
    for kind, page in (pages | {"gpu": "docs/performance.md"}).items():
        copy = tmp_path / "page.md"
        copy.write_text((report.machine.ROOT / page).read_text(encoding="utf-8"), encoding="utf-8")
        assert report.put(copy, "new", kind)


def test_columns_without_cells_are_left_out(device_results):
    lines = [Line("DTW", "3 pairs", "", 0, [Contender("semiring_mm", None, samples=[0.002])])]
    lines[0].contenders.append(Contender("a loop", None, samples=[0.4]))
    rows = report.table(device_results, lines, "raw.json", "sequences").split("\n")
    assert rows[:3] == [
        "| operation | sequences | time | beside it |", "| --- | --- | --- | --- |",
        "| DTW | 3 pairs | 2.00 ms | a loop 400 ms (× 200) |",
    ]  # fmt: skip


def test_aims_are_compared_with_results(device_results):
    """A missed aim is bold and says what holds it; one without results has no row."""
    cublas = aims.against("cuBLAS")
    row = aims.Aim("sgemm", "sgemm", ("4096", "9"), cublas, "×", 1.03, "power").row(device_results)
    assert row == "| sgemm | ≥ × 1.03 | 4096: **× 0.93** | power |"
    row = aims.Aim("sgemm", "sgemm", ("4096",), cublas, "×", 0.93, "power").row(device_results)
    assert row == "| sgemm | ≥ × 0.93 | 4096: × 0.93 | |"
    seconds = aims.Aim("paths", "apsp f32", ("16384",), aims.took, "s", 0.3, most=True)
    assert seconds.row(device_results) == "| paths | ≤ 300 ms | 16384: **314 ms** | |"
    product = aims.Aim(
        "paths", "apsp f32", ("16384",), aims.over("product"), "×", (1.1,), most=True
    )
    assert product.row(device_results) == "| paths | ≤ × 1.10 | 16384: × 1.09 | |"
    assert not aims.Aim("none", "sgemm", ("5",), aims.rate, "T/s", 1).row(device_results)


def test_errors_are_an_aim():
    both = {"emulated": [2.0, 3.0], "cuBLAS float32": [4.0, 4.0]}
    row = aims.error_row({"lines": [{"errors": both}]})
    assert row.endswith("| ≤ × 1.00 | at most × 0.75 | |")
    worse = both | {"emulated": [2.0, 5.0]}
    assert "at most **× 1.25**" in aims.error_row({"lines": [{"errors": x} for x in (both, worse)]})


def test_aims_are_of_lines_that_are_measured():
    names = {case.name for case in DEVICE_CASES}
    for aim in aims.AIMS:
        assert aim.kind != "gpu" or aim.case in names, aim
        assert not isinstance(aim.asked, tuple) or len(aim.asked) == len(aim.sizes), aim


def test_pages_use_all_results():
    """Raw results that no page has a table of are removed."""
    files = [Path(name).name for name in report.machine.git("ls-files", "bench/results").split()]
    pages = [*(report.machine.ROOT / "docs").glob("*.md"), report.machine.ROOT / "README.md"]
    text = "".join(page.read_text(encoding="utf-8") for page in pages)
    assert [name for name in files if f"bench/results/{name}" not in text] == []


def test_device_ceilings_are_loops_of_one_step():
    for forms in gpu_ceilings.STEPS.values():
        for step in forms.values():
            assert ("a1" in step.take) == (step.depth == 2)
            text = gpu_ceilings.of_form(step, (8, 16, 4))
            assert f"return {step.take};" in text
            assert "sr::Ceiling<Form, 8, 16, 4>::run(p);" in text
            text = gpu_ceilings.of_form(step, (8, 16, 4), pairs=True)
            assert "sr::Ceiling<Form, 8, 16, 4, true>::run(p);" in text


def test_device_ceilings_compile():
    pytest.importorskip("cupy")
    from semiring_mm.gpu import device

    for name in ("min-plus f32 ≥ 0", "min-plus i32", "or-and bits"):
        for step in gpu_ceilings.STEPS[name].values():
            pairs = name == "min-plus f32 ≥ 0"
            _, said = device.compile_source(gpu_ceilings.of_form(step, (8, 8, 4), pairs=pairs), 90)
            assert "0 bytes spill stores" in said


def test_without_a_device_it_is_said():
    if importlib.util.find_spec("cupy"):
        from semiring_mm.gpu import device

        if not device.why_not():
            pytest.skip("there is a device")
    done = bench("gpu", "--quick")
    assert done.returncode == 1
    assert done.stderr.startswith("bench: CuPy ")
