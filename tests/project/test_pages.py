"""What the pages about neighbours show is what comes out."""

import doctest
import importlib.util
import inspect
import json
import re
import runpy
import shlex
import shutil
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest

import semiring_mm as sm
from semiring_mm import cli
from semiring_mm.gpu import device

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
FILES = sorted([ROOT / "README.md", *DOCS.rglob("*.md")])
PAGES = [page.relative_to(ROOT).as_posix() for page in FILES]
#: What has to be installed for the examples of a page.
NEEDS = {
    "README.md": ("geopandas", "networkx", "opt_einsum", "pandas", "pyproj", "scipy", "shapely"),
    "docs/dask.md": ("dask", "distributed"),
    "docs/einsum.md": ("opt_einsum",),
    "docs/first-steps.md": ("geopandas", "networkx", "pandas", "scipy"),
    "docs/from-a-map.md": ("geopandas", "pandas", "scipy"),
    "docs/jax.md": ("jax",),
    "docs/neighbours.md": ("sklearn",),
    "docs/networkx.md": ("networkx",),
    "docs/osm-and-turns.md": ("osmium", "pyproj"),
    "docs/sparse-graphs.md": ("pandas",),
    "docs/pandana.md": ("pandas", "scipy"),
    "docs/scipy.md": ("scipy",),
    "docs/shortest-paths.md": ("pandas",),
    "docs/sequences.md": ("torch",),
    "docs/sparse.md": ("scipy",),
    "docs/torch.md": ("torch",),
}
#: A comment before a block says why it does not run everywhere, or what is given to it.
GPU = "needs a GPU"
COMMENT = r"<!-- (?:(needs a GPU|not run: .+?)|given: (.+?)) -->\n"
BLOCK = re.compile(rf"(?:{COMMENT})?```python\n(.*?)```", re.DOTALL)


def blocks(page):
    """The Python of a page: (why it does not run everywhere, what is given, the code, its line)."""
    text = (ROOT / page).read_text(encoding="utf-8")
    return [
        (m[1] or "", m[2] or "", m[3], text.count("\n", 0, m.start(3)))
        for m in BLOCK.finditer(text)
    ]


def run(page, reasons):
    """One block after the other, as a reader would; those with a prompt print what they show."""
    names, failed = {}, 0
    with np.printoptions(legacy=False):
        for why, given, code, line in blocks(page):
            if why not in reasons:
                continue
            exec(given, names)
            if ">>>" in code:
                test = doctest.DocTestParser().get_doctest(code, names, page, page, line)
                runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
                failed += runner.run(test, clear_globs=False).failed
                names = test.globs
            else:
                exec(compile("\n" * line + code, page, "exec"), names)
    assert not failed, "what is shown is not what comes out: see above"
    return names


@pytest.fixture
def settings(page):
    """What a page needs is there; NetworkX's settings, which its page changes, stay."""
    packages = {name: pytest.importorskip(name) for name in NEEDS.get(page, ())}
    if "networkx" not in packages:
        yield
        return
    nx = packages["networkx"]
    if "semiring_mm" not in nx.config.backends:
        pytest.skip("NetworkX does not know the backend: install the package")
    algorithms, ours = nx.config.backend_priority.algos, nx.config.backends.semiring_mm
    before = dict(ours)
    yield
    nx.config.backend_priority.algos = algorithms
    for name, value in before.items():
        ours[name] = value


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)])
def test_examples_of_a_page(page, settings, capsys):
    names = run(page, {""})
    if page == "README.md":  # which shows no results, but says some
        assert names["D"].tolist() == [[0, 3, 4], [3, 0, 1], [2, 5, 0]]
        assert "min_plus" in capsys.readouterr().out


def test_the_readme_installs_what_its_blocks_need(monkeypatch):
    """Each block runs where there is nothing but what the lines above it install."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]

    def packages(extra):
        for line in project["optional-dependencies"][extra]:
            name, inner = re.match(r"([\w-]+)(?:\[(.*?)\])?", line).groups()
            yield name
            if name == project["name"]:
                for more in inner.split(","):
                    yield from packages(more)

    names, ran = {}, 0
    for why, _, code, line in blocks("README.md"):
        above = "\n".join(text.split("\n")[:line])
        extras = ",".join(re.findall(r"pip install \"\.\[(.*?)\]\"", above)).split(",")
        installed = {name for extra in extras for name in packages(extra)}
        if why or not all(importlib.util.find_spec(x) for x in installed & set(NEEDS["README.md"])):
            continue
        with monkeypatch.context() as without:
            for name in set(NEEDS["README.md"]) - installed:
                without.setitem(sys.modules, name, None)
            exec(code, names)
        ran += 1
    assert ran


@pytest.mark.gpu
@pytest.mark.parametrize("page", [p for p in PAGES if GPU in {b[0] for b in blocks(p)}])
def test_examples_of_a_page_on_a_gpu(page, settings):
    pytest.importorskip("torch")
    if reason := device.why_not():
        pytest.skip(reason)
    run(page, {"", GPU})


def test_commands(tmp_path, monkeypatch, capsys):
    """What docs/command-line.md shows after a $ prints what it shows."""
    pytest.importorskip("matplotlib")
    pytest.importorskip("geopandas")
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", "examples")
    Path("grid.csv").write_text("from,to,capacity\nA,B,40\nB,C,25\nA,C,10\n", encoding="utf-8")
    trips = "from,to,trips\nFRA,SYD,300\nJFK,SIN,200\nLYR,SYD,100\n"
    Path("trips.csv").write_text(trips, encoding="utf-8")
    text = (DOCS / "command-line.md").read_text(encoding="utf-8")
    sessions = "".join(re.findall(r"```console\n(.*?)```", text, re.DOTALL))
    commands = re.findall(r"^\$ semiring-mm (.*)\n((?:[^$].*\n)*)", sessions, re.MULTILINE)
    assert commands

    def untimed(text):
        return re.sub(r"^(  time +)[\d.]+ s.*", r"\1... s", text, flags=re.MULTILINE)

    for command, shown in commands:
        assert cli.main(shlex.split(command)) == 0, command
        assert untimed("".join(capsys.readouterr())) == untimed(shown), command
    assert {path.name for path in Path().iterdir()} >= {"D.npy", "D.nodes.txt", "flights.png"}


def test_every_block_that_is_not_run_says_why():
    """A comment with a typing error would be no comment, and its block would run, or not."""
    for page in PAGES:
        text = (ROOT / page).read_text(encoding="utf-8")
        before = re.findall(r"(.*)\n```python\n", text)
        said = [why or given for why, given, *_ in blocks(page) if why or given]
        assert sum(line.startswith("<!--") for line in before) == len(said), page


def test_links_to_files():
    """They work where the code is hosted; the site's build sees to its own."""
    for page in (*PAGES, "CONTRIBUTING.md", "CHANGELOG.md"):
        text = re.sub(r"```.*?```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.DOTALL)
        for target in re.findall(r"\]\((?!https?:)([^)#\s]+)", text):
            assert (ROOT / page).parent.joinpath(target).exists(), (page, target)


@pytest.fixture
def conf():
    """The names of docs/conf.py."""
    for package in ("docutils", "sphinx"):
        pytest.importorskip(package)
    return runpy.run_path(str(DOCS / "conf.py"))


def test_a_page_of_the_gallery_begins_with_its_picture(conf):
    image = ".. image-sg:: /gallery/images/a.png\n   :alt: a\n   :class: single\n"
    page = f".. _sphx_glr_a.py:\n\nThe title\n=========\n\nWords.\n\nCode\n====\n\n{image}\nEnd\n"
    head, _, rest = conf["picture_first"](page).partition("=========\n")
    assert head.endswith("The title\n")
    assert rest.startswith(f"\n{image}\n\nWords.")
    assert conf["picture_first"]("Title\n=====\n\nWords.\n") == "Title\n=====\n\nWords.\n"


def test_names_of_other_libraries_are_links_without_a_network(conf):
    """What docstrings refer to is in the lists that a build falls back on."""
    listed = {}
    for project, (url, (online, offline)) in conf["intersphinx_mapping"].items():
        assert url.startswith("https://")
        assert online is None
        listed[project] = [
            line.split()[0]
            for line in (DOCS / offline).read_text(encoding="utf-8").splitlines()
            if not line.startswith("#")
        ]
    roles = rf":(?:func|class|meth|mod|exc|attr|obj):`~?(({'|'.join(listed)})\.[\w.]+)`"
    code = [*ROOT.glob("semiring_mm/**/*.py"), *ROOT.glob("apps/*.py")]
    used = {m for path in code for m in re.findall(roles, path.read_text(encoding="utf-8"))}
    assert ("numpy.matmul", "numpy") in used
    assert not {name for name, project in used if name not in listed[project]}


def test_the_glossary_is_in_order():
    text = (DOCS / "glossary.md").read_text(encoding="utf-8")
    terms = re.findall(r"^## (.+)$", text, re.MULTILINE)
    assert len(terms) > 25
    assert terms == sorted(terms, key=str.casefold)


def test_the_table_of_semirings():
    """No row is out of date: ``python -m bench readme`` renews the page. The site has all rows."""
    from bench import report

    begin, end = report.markers("semirings")
    text = (DOCS / "semirings.md").read_text(encoding="utf-8")
    rows = text.partition(begin)[2].partition(end)[0].split("\n")
    assert len(rows) > 12
    assert set(rows) - {""} <= set(sm.semirings._repr_markdown_().split("\n"))


def test_every_public_name_is_in_the_reference():
    text = (DOCS / "reference" / "index.md").read_text(encoding="utf-8")
    parts = re.split(r"currentmodule:: (\S+)", text)
    for name, part in zip(parts[1::2], parts[2::2], strict=True):
        if name in ("semiring_mm.torch", "semiring_mm.jax", "semiring_mm.dask"):
            pytest.importorskip(name.partition(".")[2])
        module = importlib.import_module(name)
        listed = set(re.findall(r"^(?:   |.. py:data:: )(\w+)$", part, re.MULTILINE))
        own = {x for x in module.__all__ if _is_ours(getattr(module, x))}
        inner = {x for x in own if inspect.ismodule(getattr(module, x))}  # have lists of their own
        assert listed == own - inner, name
        assert {f"{name}.{x}" for x in inner} <= set(parts), name


def _is_ours(value):
    """Not SciPy's, which csgraph passes on."""
    return not getattr(value, "__module__", "semiring_mm").startswith("scipy")


def test_the_measured_tables_of_sparse_products(tmp_path):
    """The measurement runs and checks its results, and its page has a place for what it says."""
    pytest.importorskip("scipy")
    from bench import report
    from bench import sparse_products as sparse

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


def test_the_tables_of_strassen(tmp_path):
    from bench import report, strassen

    out = tmp_path / "raw.json"
    assert strassen.main(["--quick", "--out", str(out)]) == 0
    block = strassen.table(json.loads(out.read_text(encoding="utf-8")), "raw.json")
    assert "| float32 | 33 | " in block
    assert "| normal | float64 | 32 | " in block
    copy = tmp_path / "strassen.md"
    copy.write_text((DOCS / "strassen.md").read_text(encoding="utf-8"), encoding="utf-8")
    for kind in strassen.SIZES:
        assert report.put(copy, block, f"strassen-{kind}")
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
