"""What the pages about neighbours show is what comes out."""

import doctest
import json
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
sys.path.insert(0, str(ROOT))  # bench is not part of the installed package


@pytest.mark.parametrize("page", ["scipy.md", "einsum.md"])
def test_examples_of_a_page(page):
    if page == "scipy.md":
        pytest.importorskip("scipy")
    if page == "einsum.md":
        pytest.importorskip("opt_einsum")
    text = (DOCS / page).read_text(encoding="utf-8")
    blocks = [b for b in re.findall(r"```python\n(.*?)```", text, re.DOTALL) if ">>>" in b]
    assert blocks
    code = "\n".join(blocks)
    names = {}
    if page == "scipy.md":
        exec("from semiring_mm import csgraph", names)
    with np.printoptions(legacy=False):
        test = doctest.DocTestParser().get_doctest(code, names, page, page, 0)
        assert doctest.DocTestRunner().run(test).failed == 0


def test_examples_of_the_readme(capsys):
    """All but those that need a GPU, one after the other."""
    pytest.importorskip("networkx")
    pytest.importorskip("opt_einsum")
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    blocks = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names = {}
    for block in blocks:
        if "cupy" not in block:
            exec(block, names)
    assert len(blocks) > 2
    assert names["D"].tolist() == [[0, 3, 4], [3, 0, 1], [2, 5, 0]]
    assert "min_plus" in capsys.readouterr().out


def test_the_measured_tables(tmp_path):
    """The measurement runs, on tiny sizes, and its pages have a place for what it says."""
    pytest.importorskip("scipy")
    from bench import neighbours_scipy, report

    out = tmp_path / "raw.json"
    assert neighbours_scipy.main(["--quick", "--out", str(out)]) == 0
    result = json.loads(out.read_text(encoding="utf-8"))
    for page, name in neighbours_scipy.PAGES.items():
        block = neighbours_scipy.table(result, page, "raw.json")
        for case in neighbours_scipy.CASES[page]:
            assert not case.quick or f"| {case.name} |" in block
        copy = tmp_path / Path(name).name
        copy.write_text((ROOT / name).read_text(encoding="utf-8"), encoding="utf-8")
        assert report.put(copy, block, page)
        assert block in copy.read_text(encoding="utf-8")


def test_the_tables_of_strassen(tmp_path):
    from bench import report, strassen

    out = tmp_path / "raw.json"
    assert strassen.main(["--quick", "--out", str(out)]) == 0
    block = strassen.table(json.loads(out.read_text(encoding="utf-8")), "raw.json")
    assert "| float32 | 33 | " in block
    assert "| normal | float64 | 32 | " in block
    copy = tmp_path / "strassen.md"
    copy.write_text((DOCS / "strassen.md").read_text(encoding="utf-8"), encoding="utf-8")
    for device in strassen.SIZES:
        assert report.put(copy, block, f"strassen-{device}")
    assert copy.read_text(encoding="utf-8").count(block) == 2


def test_the_size_from_which_a_level_pays():
    from bench import strassen
    from bench.measure import Contender, Line

    def line(n, *seconds):
        names = (strassen.PLAIN, "1 level", "2 levels")
        who = [Contender(x, None, samples=[s]) for x, s in zip(names, seconds, strict=True)]
        return Line("float32", str(n), "", 1, who)

    lines = [line(8, 1, 0.9, 2), line(16, 2, 3, 4), line(32, 5, 4, 4.5), line(64, 9, 8, 7)]
    assert strassen.pays(lines, "float32", 1) == "from n = 32"
    assert strassen.pays(lines, "float32", 2) == "from n = 64"
    assert strassen.pays(lines[:2], "float32", 1) == "at none of these sizes"
