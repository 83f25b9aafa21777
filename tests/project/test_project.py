"""What stands in more than one file of the project agrees."""

import re
import tomllib
from pathlib import Path

import pytest
from processes import run

import semiring_mm as sm

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


def test_the_version_is_the_same_everywhere():
    citation = (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    found = re.search(r"^version: (.*)$", citation, re.MULTILINE)
    assert (PROJECT["version"], found[1]) == (sm.__version__, sm.__version__)


def test_the_conda_recipe_takes_its_dependencies_from_the_project():
    jinja2, yaml = pytest.importorskip("jinja2"), pytest.importorskip("yaml")
    template = jinja2.Template((ROOT / "conda" / "meta.yaml").read_text(encoding="utf-8"))
    recipe = yaml.safe_load(
        template.render(
            load_file_data=lambda path, from_recipe_dir: {"project": PROJECT}, PYTHON="python"
        )
    )
    assert recipe["package"] == {"name": "semiring-mm", "version": sm.__version__}
    assert recipe["requirements"]["run"] == ["python >=3.11", *PROJECT["dependencies"]]
    assert recipe["build"]["entry_points"] == ["semiring-mm = semiring_mm.cli:main"]


def test_a_test_that_hangs_ends_the_run(tmp_path):
    (tmp_path / "test_it.py").write_text("import time\ndef test_it():\n    time.sleep(60)\n")
    done = run(
        "-m", "pytest", "-c", ROOT / "pyproject.toml", "test_it.py", "-p", "no:xdist",
        "-p", "no:cacheprovider", "-o", "faulthandler_timeout=0.5", cwd=tmp_path, timeout=50,
    )  # fmt: skip
    assert done.returncode == 1
    assert "Timeout (0:00:00.500000)!" in done.stderr
    assert "in test_it\n" in done.stderr


def test_workflows_run_what_is_there():
    yaml = pytest.importorskip("yaml")
    jobs = {}
    for path in sorted((ROOT / ".github" / "workflows").glob("*.yml")):
        jobs |= yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    commands = [step["run"] for job in jobs.values() for step in job["steps"] if "run" in step]
    scripts = {command for command in commands if command.startswith(".ci/")}
    assert scripts == {".ci/run", ".ci/lowest"}
    for script in scripts:
        assert (ROOT / script).stat().st_mode & 0o100, script
    matrix = jobs["core"]["strategy"]["matrix"]
    extras = [*matrix["extras"], *(row["extras"] for row in matrix["include"])]
    text = (ROOT / ".ci" / "lowest").read_text(encoding="utf-8")
    lowest = re.search(r"extras=\((.*)\)", text)[1].split()
    for name in {name for some in extras for name in some.split(",")} | set(lowest):
        assert name in PROJECT["optional-dependencies"], name
