"""Imports follow six arrows, and nothing is loaded before it is used."""

import ast
import fnmatch
import functools
import re
import sys
from pathlib import Path

import pytest
from processes import run, script

import semiring_mm
from semiring_mm import registry

PACKAGE = Path(semiring_mm.__file__).parent
#: The rooms, and their modules.
ROOMS = {
    "base": "version naming warn cache storage display text lazy memory pool progress registry",
    "algebra": "expressions laws semirings metrics plan spanning",
    "engine": "engine graph_kernels layouts kernel",
    "cpu": "cpu.*",
    "cuda": "gpu.*",
    "verbs": """arrays tiles deprecated products bits bit_rows gf2 sparse blas summation neighbours
        chains sequences alignment traceback traceback_kernels eigenvalues gradients
        chain_gradients config verb""",
    "graphs": "closures.* hierarchy.* graphs.*",
    "files": "files files.*",
    "scale": "tiled.* dask dask.*",
    "public": "__init__",
    "bridges": """differentiable differentiable.* torch torch.* jax jax.* csgraph nx.* sklearn
        geo geo.* pandana""",
    "plot": "plot plot.*",
    "cli": "cli cli.* __main__",
}
#: Of each room those just below it: its modules import these, and what these may import. Nobody
#: imports an engine, which is reached by its name or its arrays (:mod:`semiring_mm.engine`).
BELOW = {
    "base": "", "algebra": "base", "engine": "algebra", "cpu": "engine", "cuda": "engine",
    "verbs": "engine", "graphs": "verbs", "files": "graphs", "scale": "graphs",
    "public": "scale files", "bridges": "public", "plot": "public", "cli": "public plot",
}  # fmt: skip
#: Modules for the users of another package, which is loaded with them.
NEIGHBOURS = {
    ("torch", "torch"), ("jax", "jax"), ("csgraph", "scipy"), ("nx", "networkx"),
    ("sklearn", "sklearn"), ("sklearn", "scipy"), ("pandana", "pandas"),
    ("dask", "dask"), ("dask", "distributed"),
}  # fmt: skip
OPTIONAL = set(
    """cupy dask distributed geopandas jax llvmlite matplotlib ml_dtypes networkx opt_einsum
    osmium pymetis pyproj scipy shapely sklearn torch zarr""".split()
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
    """(module or top-level package imported, whether at import time) for every import in a file.

    Those for the type checker alone are not at import time.
    """
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
    known = set(ALL) | {"closures", "cpu", "graphs", "nx", "tiled"}
    for node in ast.walk(tree):
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


def room_of(name):
    """The one room whose patterns a module matches."""
    rooms = [
        room
        for room, patterns in ROOMS.items()
        if any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns.split())
    ]
    assert len(rooms) == 1, f"{name}: {rooms}"
    return rooms[0]


@functools.cache
def reachable(room):
    """The rooms that the modules of a room may import."""
    return {room}.union(*(reachable(below) for below in BELOW[room].split()))


@pytest.mark.parametrize("name", ALL)
def test_imports_follow_the_arrows(name):
    """Those inside functions and for the type checker, too."""
    room = room_of(name)
    for target, _ in imports(name, ALL[name]):
        if target.startswith("."):
            assert room_of(target[1:]) in reachable(room), f"{name} imports {target[1:]}"


def test_what_rooms_above_provide_is_there():
    for name, home in registry.HOMES.items():
        assert callable(registry.provided(name))
        assert room_of(home) in ("files", "scale")


@pytest.mark.parametrize("name", ALL)
def test_no_module_names_an_engine_s_in_a_string(name):
    inside = re.compile(r"(semiring_mm)?\.(cpu|gpu)(\.\w+)*")
    named = {
        node.value
        for node in ast.walk(parsed(ALL[name]))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    }
    there = {text for text in named if inside.fullmatch(text)}
    assert not there or name == "engine"


def test_no_module_imports_itself_while_it_is_imported():
    """Each module is entered once; one that is entered below itself closes a circle."""
    below = {
        name: {x[1:] for x, at_import in imports(name, path) if at_import and x[1:] in ALL}
        for name, path in ALL.items()
    }
    done = set()

    def enter(name, above):
        assert name not in above, " -> ".join([*above, name])
        if name not in done:
            for target in sorted(below[name] - {name}):
                enter(target, [*above, name])
            done.add(name)

    for name in ALL:
        enter(name, [])


@pytest.mark.parametrize("name", ALL)
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
    assert (".__init__", True) in set(imports("cli.commands", ALL["cli.commands"]))


def modules_after(code):
    """Names in sys.modules of a fresh interpreter that ran `code`."""
    return set(script(f"{code}\nimport sys; print(*sys.modules)").split())


def test_importing_the_package_loads_numpy_only():
    loaded = modules_after("import semiring_mm")
    assert "semiring_mm" in loaded
    tops = {name.split(".")[0] for name in loaded - modules_after("import numpy")}
    assert tops - sys.stdlib_module_names <= {"semiring_mm", "numpy"}
    assert not {"csv", "gzip", "importlib.metadata", "semiring_mm.files"} & loaded
    assert own(loaded) == {"expressions", "laws", "lazy", "semirings", "version"}


def own(loaded):
    """The modules of the package among those loaded, without its folders themselves."""
    names = {x.removeprefix("semiring_mm.") for x in loaded if x.startswith("semiring_mm.")}
    return names & set(ALL)


#: Calls, and the folders and modules that they have no part in.
FIRST_CALLS = {
    "sm.matmul(a, a, 'min_plus')": (
        "gpu tiles tiled.solve hierarchy graphs files plot cli cpu.chain cpu.viterbi "
        "cpu.forward_backward cpu.select cpu.screen cpu.spanning cpu.sparse cpu.alignment "
        "neighbours chains metrics"
    ),
    "sm.apsp(a, return_predecessors=True)": (
        "gpu hierarchy.symbolic hierarchy.metric files plot cli tiled.solve tiled.stored "
        "graphs.contraction graphs.out_of_core graphs.prepared cpu.chain cpu.screen neighbours"
    ),
    "sm.sequences.viterbi(a, a)": "gpu tiled hierarchy graphs files plot cli cpu.screen neighbours",
    "sm.neighbours.knn(a, a, 2)": (
        "gpu tiled hierarchy graphs files plot cli cpu.chain cpu.spanning chains"
    ),
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
    done = run("-c", f"import sys; sys.modules['{package}'] = None\nimport semiring_mm.{name}")
    last = done.stderr.splitlines()[-1]
    assert "pip install" in last
    assert package in last
