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


@pytest.mark.parametrize("page", ["scipy.md", "einsum.md", "sparse.md"])
def test_examples_of_a_page(page):
    if page in ("scipy.md", "sparse.md"):
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


def test_the_measured_tables_of_sparse_products(tmp_path):
    """The measurement runs and checks its results, and its page has a place for what it says."""
    pytest.importorskip("scipy")
    from bench import report, sparse

    out = tmp_path / "raw.json"
    assert sparse.main(["--quick", "--only", "DIA", "--out", str(out)]) == 0
    block = sparse.table(json.loads(out.read_text(encoding="utf-8")), "raw.json")
    copy = tmp_path / "sparse.md"
    copy.write_text(sparse.PAGE.read_text(encoding="utf-8"), encoding="utf-8")
    for what in ("sparse-cpu", "sparse-gpu"):
        assert report.put(copy, block, what)
    for case in sparse.cases(False)[:4]:
        assert copy.read_text(encoding="utf-8").count(f"| {case.name} | 200 |") == 2


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
