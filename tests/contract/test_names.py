"""The names of the package: what users see, what is loaded when, and how errors are called."""

import ast
import importlib
import importlib.util
import inspect
import pickle
import pkgutil
from pathlib import Path

import numpy as np
import processes
import pytest

import semiring_mm as sm
from semiring_mm import eigenvalues, files, neighbours, sequences

#: Modules that are loaded when they are first used, and the packages that they are for.
LATER = {
    "alignment": (), "csgraph": ("scipy",), "dask": ("dask", "distributed"), "eigenvalues": (),
    "files": (), "geo": ("geopandas",), "gf2": (), "jax": ("jax",), "neighbours": (),
    "pandana": ("pandas",), "sequences": (), "sklearn": ("sklearn",), "torch": ("torch",),
}  # fmt: skip
SLOW = ("jax", "torch")  # whose packages take seconds to load


def run(script):
    """What a fresh interpreter prints, and its error output."""
    done = processes.run("-c", script)
    return done.stdout.split(), done.stderr


def installed(packages):
    return all(map(importlib.util.find_spec, packages))


# --- what is there ------------------------------------------------------------------------------


def test_what_users_see():
    later = [name for name, packages in LATER.items() if installed(packages)]
    assert dir(sm) == sorted([*sm.__all__, *later])
    for name in sm.__all__:
        assert not inspect.ismodule(getattr(sm, name)), name


@pytest.mark.parametrize("name", [*LATER, "torch.sequences", "jax.sequences"])
def test_a_module_shows_what_it_promises(name):
    top = name.split(".")[0]
    if not installed(LATER[top]):
        pytest.skip(f"{top} is not installed")
    module = importlib.import_module(f"semiring_mm.{name}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, x) for x in module.__all__)


def test_a_prepared_graph_shows_no_insides():
    net = sm.prepare({0: {1: 1.0}})
    assert [x for x in dir(net) if not hasattr(net, x)] == []
    assert {"distance", "distances", "path", "customize", "save", "nodes"} <= set(dir(net))
    assert not {"metric", "placed", "_arcs", "_state"} & set(dir(net))


@pytest.mark.parametrize("name", sm._MOVED)
def test_moved_names_are_deprecated(name):
    home = importlib.import_module(f"semiring_mm.{sm._MOVED[name]}")
    text = f"^semiring_mm.{name} is deprecated .*: write semiring_mm.{sm._MOVED[name]}.{name}$"
    with pytest.warns(DeprecationWarning, match=text):
        assert getattr(sm, name) is getattr(home, name)
    assert name not in dir(sm)


def test_the_packages_that_are_absent_are_not_shown():
    names, _ = run(
        "import importlib.util as u; find = u.find_spec\n"
        "u.find_spec = lambda name: None if name in ('torch', 'dask') else find(name)\n"
        "import semiring_mm as sm; print(*dir(sm))"
    )
    assert "torch" not in names
    assert "dask" not in names
    assert "files" in names
    _, error = run("import sys; sys.modules['torch'] = None\nimport semiring_mm as sm; sm.torch")
    assert "ImportError: semiring_mm.torch works with PyTorch" in error
    assert '"semiring-mm[torch]"' in error


def test_modules_are_loaded_when_they_are_first_used():
    loaded, error = run(
        "import sys, semiring_mm as sm\n"
        "dir(sm)\n"
        f"print(*(x for x in {sorted(LATER)} if 'semiring_mm.' + x in sys.modules))\n"
        "sm.files.read_graph\n"
        "print('semiring_mm.files' in sys.modules, callable(sm.einsum))"
    )
    assert (loaded, error) == (["True", "True"], "")


def test_each_way_to_a_module():
    names = [x for x, packages in LATER.items() if x not in SLOW and installed(packages)]
    ways = (
        f"found = sm.{name}\nimport semiring_mm.{name}\nfrom semiring_mm import {name}\n"
        f"print(found is {name} is semiring_mm.{name})\n"
        for name in names
    )
    printed, error = run("import semiring_mm as sm\n" + "".join(ways))
    assert (printed, error) == (["True"] * len(names), "")


@pytest.mark.parametrize("name", SLOW)
def test_a_slow_module_is_found_by_its_first_use(name, monkeypatch):
    """It is loaded in this process already, with the tests of it."""
    pytest.importorskip(name)
    module = importlib.import_module(f"semiring_mm.{name}")
    monkeypatch.delattr(sm, name)
    assert getattr(sm, name) is module


def test_no_function_is_hidden_by_a_module():
    """An imported module would take the place of a public name that is not loaded yet."""
    modules = {x.name for x in pkgutil.iter_modules(sm.__path__)}
    assert modules & set(sm.__all__) <= {"semirings"}
    printed, _ = run(
        "import semiring_mm as sm, semiring_mm.semirings\nprint(type(sm.semirings).__name__)"
    )
    assert printed == [type(sm.semirings).__name__]


def test_the_table_of_names_is_what_a_type_checker_reads():
    tree = ast.parse(Path(sm.__file__).read_text())
    (block,) = (x for x in tree.body if isinstance(x, ast.If))
    read = {
        alias.name: x.module for x in block.body if isinstance(x, ast.ImportFrom)
        for alias in x.names
    }  # fmt: skip
    assert read == sm._HOME
    assert {*sm._HOME, "Semiring", "__version__", "semirings"} == set(sm.__all__)


def test_a_name_that_is_none():
    with pytest.raises(AttributeError, match="module 'semiring_mm' has no attribute 'nothing'"):
        _ = sm.nothing
    assert not hasattr(sm, "nothing")
    with pytest.raises(AttributeError, match=r"apps/strassen\.py"):
        _ = sm.strassen


#: Arguments that are called the same everywhere, in the order in which they come.
ARGUMENTS = (
    "weight source target dtype directed sources targets return_predecessors overwrite out "
    "return_arg device progress tiles"
).split()
READING = ["weight", "source", "target", "dtype", "directed"]


def functions():
    for home in ("", *LATER):
        if home in ("csgraph", "jax", "sklearn", "torch") or not installed(LATER.get(home, ())):
            continue  # which have the conventions of other packages
        module = importlib.import_module(f"semiring_mm.{home}".rstrip("."))
        for name in module.__all__:
            if inspect.isfunction(getattr(module, name)):
                yield f"{home}.{name}", list(inspect.signature(getattr(module, name)).parameters)


FUNCTIONS = dict(functions())


@pytest.mark.parametrize("name", FUNCTIONS)
def test_arguments_are_called_the_same_and_come_in_the_same_order(name):
    given = FUNCTIONS[name]
    common = [x for x in given if x in ARGUMENTS]
    assert common == [x for x in ARGUMENTS if x in common]
    assert not {"devices", "memory_limit", "checkpoint", "resume"} & set(given)
    # the graph of read_graph keeps what is in the file; a street network has known columns of ends
    if "weight" in given and name not in ("files.read_graph", "geo.network"):
        assert common[: len(READING)] == READING


# --- what things are called ---------------------------------------------------------------------

CLASSES = [
    (module, name) for module in (sm, eigenvalues, files, neighbours, sequences)
    for name in module.__all__ if isinstance(getattr(module, name), type)
]  # fmt: skip


@pytest.mark.parametrize(("module", "name"), CLASSES, ids=[name for _, name in CLASSES])
def test_classes_are_called_as_they_are_imported(module, name):
    kind = getattr(module, name)
    assert (kind.__module__, kind.__qualname__) == (module.__name__, name)


def test_tracebacks_have_the_names_that_users_import():
    _, error = run("import semiring_mm as sm; sm.apsp([[0, -1.0], [-1.0, 0]])")
    assert error.splitlines()[-1].startswith("semiring_mm.NegativeCycleError: the graph has")
    assert "Improves" not in error
    _, error = run("import semiring_mm as sm; sm.semirings.plus_min.check_laws()")
    assert error.splitlines()[-1].startswith("semiring_mm.SemiringLawError: plus_min on float64")
    _, error = run("import semiring_mm as sm; raise sm.files.GraphFileError('roads.csv:3: what?')")
    assert error.splitlines()[-1] == "semiring_mm.files.GraphFileError: roads.csv:3: what?"


def test_errors_are_pickled_whole():
    cycle = sm.NegativeCycleError([0, 2], -1.5, ["here", "", "there"])
    with pytest.raises(sm.SemiringLawError) as caught:
        sm.semirings.plus_min.check_laws()
    law = caught.value
    file = files.GraphFileError("roads.csv:3: no number")
    for error in (cycle, law, file):
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error)
        assert (str(again), vars(again)) == (str(error), vars(error))
    s = sm.semirings.max_min
    assert pickle.loads(pickle.dumps(s)) == s


def test_the_error_of_two_libraries():
    csgraph = pytest.importorskip("scipy.sparse.csgraph")
    with pytest.raises(sm.NegativeCycleError) as caught:
        sm.csgraph.shortest_path(np.array([[0.0, -1.0], [-1.0, 0.0]]))
    error = caught.value
    for found in (error, pickle.loads(pickle.dumps(error))):
        assert isinstance(found, csgraph.NegativeCycleError)
        assert isinstance(found, sm.NegativeCycleError)
        assert (type(found).__module__, type(found).__qualname__) == (
            "semiring_mm.csgraph", "NegativeCycleError",
        )  # fmt: skip
        assert (str(found), found.cycle) == (str(error), error.cycle)
