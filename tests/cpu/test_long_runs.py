"""Long runs in job scripts, as processes: signals, one line for all attempts, terminals."""

import contextlib
import importlib
import math
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
from numpy.testing import assert_array_equal
from processes import script

import semiring_mm as sm
from semiring_mm import cli, progress
from semiring_mm.cli import compute

ENVIRONMENT = os.environ | {"PYTHONPATH": str(Path(sm.__file__).parents[1])}


def started(*arguments, **environment):
    """The command as a process of its own, in the current folder."""
    return subprocess.Popen(
        [sys.executable, "-m", "semiring_mm", *map(str, arguments)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=ENVIRONMENT | environment,
    )


def ended(process, *signals):
    """Exit code and texts of a process, which gets the signals."""
    for number in signals:
        process.send_signal(number)
        time.sleep(0.02)
    out, err = process.communicate(timeout=120)
    return process.returncode, out.decode(), err.decode()


def run(*arguments, **environment):
    return ended(started(*arguments, **environment))


def until(condition, process, seconds=30):
    """Wait for what a process does."""
    end = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.fixture
def graph(tmp_path, monkeypatch):
    """A matrix whose closure takes seconds."""
    monkeypatch.chdir(tmp_path)
    w = np.random.default_rng(0).integers(1, 1000, (4000, 4000)).astype("f8")
    np.save("g.npy", w)
    return w


def left():
    return sorted(path.name for path in Path().iterdir() if path.name != "g.npy")


ENDS = {
    "SIGINT": ("interrupted", 130),
    "SIGTERM": ("ended by SIGTERM", 143),
    "SIGHUP": ("ended by SIGHUP", 129),
}
posix = pytest.mark.skipif(os.name == "nt", reason="signals as on POSIX")


@posix
@pytest.mark.parametrize("name", ENDS)
def test_a_signal_leaves_what_can_be_resumed(graph, name):
    number, (word, code) = getattr(signal, name), ENDS[name]
    if signal.getsignal(number) == signal.SIG_IGN:
        pytest.skip(f"{name} is ignored, as under nohup")
    line = ("apsp", "g.npy", "-o", "D.npy", "--memory-limit", "20MB", "--resume", "--threads", "1")
    process = started(*line)
    parts = ["D.npy.part", "D.npy.part.json", "D.npy.part.sums"]
    until(lambda: left() == parts, process)  # the first state is there, and all work is ahead
    assert ended(process, number) == (
        code, "", f"semiring-mm: {word}: --resume goes on with what is in D.npy.part\n"
    )  # fmt: skip
    assert left() == parts


DROPS = """
import os, signal, sys, time
from semiring_mm.cli.entry import run_as_program

class Collected:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0)

def run():
    Collected()
    time.sleep(60)

sys.exit(run_as_program(run, process=True))
"""


@posix
def test_a_signal_that_python_drops_is_sent_again():
    """In a destructor no exception is raised."""
    done = subprocess.run([sys.executable, "-c", DROPS], capture_output=True, timeout=50, text=True)
    assert (done.returncode, done.stderr) == (143, "semiring-mm: ended by SIGTERM\n")


LOCKED = """
import os, signal, sys, threading
from semiring_mm.cli.entry import run_as_program

lock = threading.Lock()
amid = {"__name__": "threading", "lock": lock, "os": os, "signal": signal}
exec('''
def taken():
    lock.acquire()
    os.kill(os.getpid(), signal.SIGTERM)
    for _ in range(9): pass
    lock.release()
''', amid)

def run():
    try:
        amid["taken"]()
        assert not lock.locked()
    finally:
        print(lock.locked())

sys.exit(run_as_program(run, process=True))
"""


@posix
def test_a_signal_leaves_no_lock_taken():
    """Amid the code of Python's locks no exception is raised: what waits for one would wait on."""
    done = subprocess.run(
        [sys.executable, "-c", LOCKED], capture_output=True, timeout=50, text=True
    )
    assert (done.returncode, done.stdout) == (143, "False\n")
    assert done.stderr == "semiring-mm: ended by SIGTERM\n"


def catches(process, number):
    """Whether a process has a handler for a signal."""
    status = Path(f"/proc/{process.pid}/status").read_text()
    return bool(int(re.search(r"SigCgt:\s*(\w+)", status)[1], 16) >> (number - 1) & 1)


@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="asks for a process's handlers")
@pytest.mark.parametrize("second", ["SIGTERM", "SIGINT"])
def test_a_second_signal_does_not_disturb_the_cleaning(graph, second):
    process = started("apsp", "g.npy", "-o", "D.npy", "--method", "floyd_warshall")
    until(lambda: catches(process, signal.SIGTERM), process)
    time.sleep(1)  # reading, or working
    code, out, err = ended(process, signal.SIGTERM, getattr(signal, second))
    # Python sees them in the order of their numbers where both come within one block of work.
    assert code in (143, {"SIGTERM": 143, "SIGINT": 130}[second])
    assert out == ""
    assert err.endswith({143: "ended by SIGTERM\n", 130: "interrupted\n"}[code])
    assert left() == []


@posix
def test_a_job_script_has_one_line(graph, capsys):
    """It is ended, started again, and started once more than needed."""
    graph = graph[:1500, :1500]
    np.save("g.npy", graph)
    line = ("apsp", "g.npy", "-o", "D.npy", "--memory-limit", "20MB", "--resume")
    process = started(*line)
    until(lambda: b'"steps"' in read("D.npy.part.json"), process)
    assert ended(process, signal.SIGTERM)[0] == 143
    code, out, err = run(*line)
    assert (code, out) == (0, "")
    assert err.endswith("semiring-mm: wrote D.npy (1,500 × 1,500, float64)\n")
    assert left() == ["D.npy", "D.npy.done.json"]
    expected = sm.apsp(graph)
    assert_array_equal(np.load("D.npy"), expected)
    note = "semiring-mm: note: nothing to do: D.npy is finished\n"
    assert run(*line) == (0, "", note)
    assert cli.main([*line, "--summary", "--quiet"]) == 0
    out, err = capsys.readouterr()
    assert err == ""
    assert re.search(r"time +[\d.]+ s, nothing was left to compute\n", out)
    assert cli.main([*line, "--semiring", "min_max"]) == 2
    words = "semiring-mm: error: --resume: D.npy is the result of a run with semiring"
    assert words in capsys.readouterr().err
    assert_array_equal(np.load("D.npy"), expected)


def read(name):
    try:
        return Path(name).read_bytes()
    except FileNotFoundError:
        return b""


def test_a_lost_scheduler_is_one_line(tmp_path, monkeypatch, capsys):
    pytest.importorskip("distributed")
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("a,b,1\n")

    def lost(*_):
        Path("D.npy.steps").mkdir()
        Path("D.npy.steps/run.json").touch()
        raise type("Lost", (Exception,), {"__module__": "distributed.client"})

    monkeypatch.setattr(cli.compute, "_on_workers", lost)
    line = ["apsp", "g.csv", "--scheduler", "tcp://h:1", "-o", "D.npy", "--resume"]
    assert cli.main(line) == 2
    words = "the workers of tcp://h:1: Lost; --resume goes on with what is in D.npy.steps\n"
    assert capsys.readouterr().err.endswith(words)


# --- nothing large unasked ----------------------------------------------------------------------

RING = 90_000  # nodes, of which all pairs take 60 GiB


@pytest.fixture
def ring(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    edges = (f"a {i + 1} {(i + 1) % RING + 1} 1\n" for i in range(RING))
    Path("ring.gr").write_text(f"p sp {RING} {RING}\n{''.join(edges)}")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "90,000 nodes needs 64.8 GB"),
        ([], "--force takes it, -o D.npy --memory-limit 4GB works in a file, --from A --to B"),
        (["--from", "1", "--to", "4", "--summary"], "needs 97.2 GB"),
        (["--dtype", "float32"], "needs 32.4 GB"),
    ],
)
def test_all_pairs_of_a_large_graph_ask_for_consent(ring, options, words):
    code, out, err = run("apsp", "ring.gr", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert os.listdir() == ["ring.gr"]


def test_a_matrix_that_has_no_room_in_memory_is_not_begun(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("g.gr").write_text("p sp 3 1\na 1 2 1\n")
    monkeypatch.setattr(compute, "free_memory", lambda: 71)
    assert cli.main(["apsp", "g.gr", "-o", "D.npy"]) == 2
    err = capsys.readouterr().err
    assert re.search(r"D.npy of 3 × 3 entries needs .* --memory-limit 4GB works", err)
    assert os.listdir() == ["g.gr"]


def test_a_path_of_a_large_graph_takes_one_row(ring):
    code, out, err = run("apsp", "ring.gr", "--from", "2", "--to", "4", "--pairs", "7,9;90000,1")
    assert (code, err) == (0, "")
    assert out.startswith("2 → 4: 2 in 2 legs\n")
    assert out.endswith("from,to,distance\n7,9,2\n90000,1,1\n")


# --- terminals ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("encoding", "first", "name"),
    [
        ("utf-8", "Malmö (a) → 東京 (c): 3 in 2 legs", "Malmö"),
        ("latin-1", "Malmö (a) ? ?? (c): 3 in 2 legs", "Malmö"),
        ("ascii", "Malm? (a) ? ?? (c): 3 in 2 legs", "Malm?"),
    ],
)
def test_a_terminal_that_is_not_utf_8(tmp_path, monkeypatch, encoding, first, name):
    """Nothing is half printed, and columns stay aligned."""
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("from,to,weight\na,b,1\nb,c,2\n", "utf-8")
    Path("n.csv").write_text("id,name\na,Malmö\nb,x\nc,東京\n", "utf-8")
    process = started(
        "apsp", "g.csv", "--nodes", "n.csv", "--from", "a", "--to", "c", "--summary",
        PYTHONIOENCODING=encoding,
    )  # fmt: skip
    out, err = process.communicate()
    assert process.returncode == 0, err
    lines = out.decode(encoding).splitlines()
    assert lines[0] == first
    names, b = lines[2], lines[3]
    assert names.rstrip() == f"  a  {name}"
    assert len(b) == len(lines[4])
    assert any(line.startswith("  time ") for line in lines)


def test_data_are_not_rewritten_for_a_terminal(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("g.csv").write_text("from,to,weight\nö,b,1\n", "utf-8")
    code, out, err = run("apsp", "g.csv", "--pairs", "ö,b", PYTHONIOENCODING="ascii")
    assert (code, out) == (2, "")
    assert "standard output is in ascii, which cannot hold '\\xf6': write to a file with -o" in err
    assert run("apsp", "g.csv", "--pairs", "ö,b")[1] == "from,to,distance\nö,b,1\n"


def test_python_on_a_terminal_that_is_not_utf_8():
    text = (
        "import semiring_mm as sm; print(sm.semirings); print(sm.semirings['max_min']);"
        "sm.show_config()"
    )
    out = script(text, PYTHONIOENCODING="ascii")
    assert out.isascii()
    assert out.splitlines()[0].split()[:3] == ["name", "add", "mul"]


# --- progress -----------------------------------------------------------------------------------


@pytest.fixture
def clock(monkeypatch):
    now = [100.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: now[0])
    return now


def test_the_last_line_is_printed_once(clock, capsys):
    tick = progress.reporter(True, 8e9, "elimination in blocks")
    tick(2e9, {"cuda:0": 1e9, "cuda:1": 1e9})
    clock[0] += 2
    for done in (4e9, 8e9, 8e9):
        tick(done, {"cuda:0": done / 2 + 2e9, "cuda:1": done / 2})
    tick(math.inf)
    out, err = capsys.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert err.startswith("elimination in blocks: 100%|")
    rate = float(re.search(r"\| ([\d.]+)G pairs/s, 00:00 left", err)[1])
    assert 2.8 < rate <= 3  # of what was done since the first tick, in 2 seconds and some
    assert err.endswith(", cuda:0 2.5 G/s  cuda:1 1.5 G/s\n")


def test_a_search_has_no_rate_of_pairs(clock, capsys):
    for method, unit, rate in (
        ("rounds of products", "products", ""),
        ("repeated squaring", "pairs at most", ""),
        ("sparse elimination", "entries", "50.0 entries/s, "),
    ):
        tick = progress.reporter(progress.Watched(True), 100.0, method, unit)
        tick(0)
        clock[0] += 2
        tick(100.0)
        err = capsys.readouterr().err.replace("49.9", "50.0")
        assert re.fullmatch(rf"{method}: 100%\|[^|]*\| {rate}00:00 left\n", err)


def test_work_of_less_than_a_second_shows_nothing(clock, capsys):
    bar = progress.ProgressBar(transient=True)
    tick = progress.reporter(bar, 10.0, "rounds")
    tick(0)
    clock[0] += 0.9
    tick(10)
    bar.close()
    assert capsys.readouterr() == ("", "")


@posix
def test_progress_on_a_terminal(graph):
    """It is erased when the result comes, and printed by whole lines where it stays."""
    pty = importlib.import_module("pty")
    master, terminal = pty.openpty()
    command = [sys.executable, "-m", "semiring_mm", "apsp", "g.npy", "-o", "D.npy"]
    process = subprocess.Popen(
        [*command, "--method", "floyd_warshall"], env=ENVIRONMENT, stderr=terminal
    )
    os.close(terminal)
    text = b""
    with contextlib.suppress(OSError):  # the other end is closed
        while block := os.read(master, 1 << 16):
            text += block
    os.close(master)
    assert process.wait() == 0
    states = text.decode().partition("semiring-mm: ")[0].split("\r")
    assert re.match(r"elimination in blocks: +\d+%\|", states[1])
    assert " pairs/s, " in states[1]
    assert "\n" not in "".join(states)
    assert not "".join(states[-2:]).strip()
