"""Imports only go down, and nothing is loaded before it is used."""

import ast
import functools
import subprocess
import sys
from pathlib import Path

import pytest

import semiring_mm

PACKAGE = Path(semiring_mm.__file__).parent
#: From the bottom to the top: a module may import the modules before it. A star stands for the
#: modules of a folder that are not named, such as the readers of file formats.
ROOMS = """
    version naming warn cache pool storage display expressions laws semirings metrics plan
    memory engine kernel
    cpu.ir cpu.compiler cpu.vmath cpu.algebra cpu.views cpu.memory
    cpu.blocks cpu.crew cpu.stages cpu.product_code cpu.elimination cpu.hierarchy cpu.statistics
    cpu.bfs cpu.codegen cpu.kernels.*
    cpu.dijkstra cpu.search cpu.queries cpu.select cpu.forest cpu.spanning cpu.tuning cpu.facts
    cpu.logsum cpu.closure cpu.combine cpu.gf2
    cpu.product cpu.calls cpu.closure_program cpu.vector cpu.sparse cpu.chain_code cpu.viterbi
    cpu.forward_backward cpu.chain
    cpu.edits cpu.wavefront cpu.screen cpu.engine
    gpu.tiles gpu.chips gpu.source gpu.device gpu.calls gpu.views gpu.memory gpu.facts gpu.packing
    gpu.tensor gpu.bulk gpu.vector gpu.trees
    gpu.sparse gpu.closure gpu.logsum gpu.shares gpu.spanning gpu.bfs gpu.combine
    gpu.product gpu.gf2 gpu.select gpu.wide gpu.chain gpu.wavefront gpu.engine
    arrays config
    closures.edges closures.progress closures.paths closures.labelled closures.trees
    closures.weights closures.elimination closures.steps closures.bits closures.sources
    closures.solve closures.memory closures.spanning
    tiled.sizes tiled.timeline tiled.devices tiled.options tiled.blocks tiled.stores tiled.results
    tiled.checkpoint tiled.budget tiled.pipeline tiled.streamed tiled.run tiled.stored tiled.rows
    tiled.solve
    products bits gf2 sparse blas summation neighbours chains sequences eigenvalues alignment
    files.graph files.bulk files.file files.columns files.nodes files.* files.formats files
    hierarchy.costs hierarchy.structure hierarchy.sweeps hierarchy.statistics hierarchy.regions
    gpu.customize gpu.hierarchy gpu.collector
    graphs.packages graphs.inputs graphs.choice graphs.dijkstra graphs.hops graphs.contraction
    graphs.spanning graphs.out_of_core graphs.rounds graphs.dense graphs.apsp graphs.search
    graphs.prepared graphs.rows graphs.statistics graphs.nearest
    gradients chain_gradients torch.operators torch.launches torch.products torch.chains
    torch.sequences torch
    jax.operators jax.products jax.chains jax.sequences jax csgraph sklearn
    dask.cluster dask.checkpoint dask.source dask.tasks dask.futures dask.product dask
    __init__ text
    plot.projections plot.land plot.layout plot.labels plot.network plot.draw plot
    cli.options cli.graph cli.compute cli.tables cli.report cli.apsp cli.prepare cli.nearest
    cli.table cli.stats cli.entry cli __main__
    nx.convert nx.distances nx.functions nx.backend
""".split()


def starred(folder):
    names = (
        f"{folder}.{path.stem}"
        for path in sorted((PACKAGE / folder.replace(".", "/")).glob("[!_]*.py"))
    )
    return [name for name in names if name not in ROOMS]


ORDER = [m for room in ROOMS for m in (starred(room[:-2]) if room.endswith(".*") else [room])]
#: Modules for the users of another package, which is loaded with them.
NEIGHBOURS = {
    ("torch", "torch"), ("jax", "jax"), ("csgraph", "scipy"), ("nx", "networkx"),
    ("sklearn", "sklearn"), ("sklearn", "scipy"),
    ("dask", "dask"), ("dask", "distributed"),
}  # fmt: skip
OPTIONAL = set(
    """cupy dask distributed jax llvmlite matplotlib ml_dtypes networkx opt_einsum pymetis
    scipy sklearn torch zarr""".split()
)  # fmt: skip


@functools.cache
def parsed(path):
    return ast.parse(path.read_text())


def modules():
    for path in sorted(PACKAGE.rglob("*.py")):
        name = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        body = parsed(path).body
        if all(isinstance(node, ast.Expr) for node in body):  # a package without contents
            continue
        yield name.removesuffix(".__init__"), path


@functools.cache
def imports(name, path):
    """(module or top-level package imported, whether at import time) for every import in a file."""
    return tuple(_imports(name, path))


def _imports(name, path):
    tree = parsed(path)
    at_import = set()

    def note(body):  # statements that run when the module is imported
        for node in body:
            if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
                continue
            at_import.add(node)
            for field in ("body", "orelse", "finalbody", "handlers"):
                if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    note(getattr(node, field, []))

    note(tree.body)
    hidden = [
        n for n in ast.walk(tree) if isinstance(n, ast.If) and "TYPE_CHECKING" in ast.unparse(n)
    ]
    typing_only = {x for n in hidden for b in n.body for x in ast.walk(b)}
    known = set(ALL) | {"closures", "cpu", "graphs", "nx", "tiled"}
    for node in ast.walk(tree):
        if node in typing_only:
            continue
        found = []
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            found = [node.module]
        elif isinstance(node, ast.ImportFrom):
            package = path.relative_to(PACKAGE).parts[: -node.level]
            base = [*package, *(node.module.split(".") if node.module else [])]
            for alias in node.names:
                inner = ".".join([*base, alias.name])
                found.append("." + (inner if inner in known else ".".join(base)))
        for target in found:
            if target.split(".")[0] == "semiring_mm":
                target = "." + (target.partition(".")[2] or "__init__")
            yield target, node in at_import


ALL = dict(modules())


def test_every_module_has_its_place():
    assert set(ALL) == set(ORDER)


@pytest.mark.parametrize("name", ORDER)
def test_imports_go_down(name):
    for target, _ in imports(name, ALL[name]):
        if target.startswith("."):
            below = target[1:]
            assert below in ORDER, f"{name} imports {target}"
            assert ORDER.index(below) < ORDER.index(name), f"{name} imports {below}"


@pytest.mark.parametrize("name", ORDER)
def test_what_is_optional_or_slow_is_imported_where_it_is_used(name):
    for target, at_import in imports(name, ALL[name]):
        top = target.split(".")[0]
        if at_import and top and (name.split(".")[0], top) not in NEIGHBOURS:
            assert top in sys.stdlib_module_names | {"numpy"}, f"{name} imports {target} at once"


def test_the_reader_of_imports_reads():
    """The test above would pass on an empty list."""
    found = set(imports("cpu.product", ALL["cpu.product"]))
    assert {(".semirings", True), (".pool", True), ("numpy", True)} <= found
    assert ("llvmlite.binding", False) in set(imports("cpu.compiler", ALL["cpu.compiler"]))
    assert (".__init__", True) in set(imports("cli.entry", ALL["cli.entry"]))


def modules_after(code):
    """Names in sys.modules of a fresh interpreter that ran `code`."""
    script = f"{code}\nimport sys; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


def test_importing_the_package_loads_numpy_only():
    loaded = modules_after("import semiring_mm")
    assert "semiring_mm" in loaded
    tops = {name.split(".")[0] for name in loaded - modules_after("import numpy")}
    assert tops - sys.stdlib_module_names <= {"semiring_mm", "numpy"}
    assert own(loaded) == {"expressions", "laws", "semirings", "version"}


def own(loaded):
    """The modules of the package among those loaded, without its folders themselves."""
    names = {x.removeprefix("semiring_mm.") for x in loaded if x.startswith("semiring_mm.")}
    return names & set(ORDER)


#: Calls, and the folders and modules that they have no part in.
FIRST_CALLS = {
    "sm.matmul(a, a, 'min_plus')": (
        "gpu tiled hierarchy graphs files plot cli cpu.chain cpu.viterbi cpu.forward_backward "
        "cpu.select cpu.screen cpu.spanning cpu.sparse cpu.wavefront neighbours chains metrics"
    ),
    "sm.apsp(a, return_predecessors=True)": (
        "gpu hierarchy.structure hierarchy.sweeps files plot cli tiled.solve tiled.stored "
        "graphs.contraction graphs.out_of_core graphs.prepared cpu.chain cpu.screen neighbours"
    ),
    "sm.sequences.viterbi(a, a)": "gpu tiled hierarchy graphs files plot cli cpu.screen neighbours",
    "sm.knn(a, a, 2)": "gpu tiled hierarchy graphs files plot cli cpu.chain cpu.spanning chains",
    "sm.prepare({0: {1: 2.0}}).path(0, 1)": (
        "gpu files.formats plot cli tiled.solve tiled.stored graphs.statistics cpu.chain neighbours"
    ),
    "sm.statistics({0: {1: 2.0}})": "gpu files.formats plot cli tiled.solve cpu.chain neighbours",
}


@pytest.mark.parametrize("call", FIRST_CALLS)
def test_a_call_loads_what_it_needs(call):
    start = "import numpy as np, semiring_mm as sm; a = np.ones((3, 3))\n"
    loaded = modules_after(start + call)
    assert "cpu.engine" in own(loaded)
    parts = FIRST_CALLS[call].split()
    assert not {x for x in own(loaded) for part in parts if x == part or x.startswith(part + ".")}
    assert not {"concurrent.futures", "logging", "html"} & loaded


def test_the_compiler_is_loaded_by_the_first_product():
    use = "import numpy as np, semiring_mm as sm\n"
    assert "llvmlite" not in modules_after(use + "sm.semirings['min_plus'].check_laws()")
    loaded = modules_after(use + "sm.matmul(np.ones((3, 3)), np.ones((3, 3)), 'min_plus')")
    assert "llvmlite" in loaded
    assert not OPTIONAL - {"llvmlite"} & loaded


@pytest.mark.parametrize(("name", "package"), sorted(NEIGHBOURS - {("nx", "networkx")}))
def test_a_neighbour_that_is_absent_is_named(name, package):
    script = f"import sys; sys.modules['{package}'] = None\nimport semiring_mm.{name}"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    last = done.stderr.splitlines()[-1]
    assert "pip install" in last
    assert package in last
