"""Python in a fresh process, which finds the package and what is in this folder."""

import os
import subprocess
import sys
from pathlib import Path

_HERE = Path(__file__).resolve().parent
PATHS = [str(_HERE), str(_HERE.parent), os.environ.get("PYTHONPATH", "")]


def run(*arguments, cwd=None, timeout=300, **environment):
    """Standard output and errors of ``python ARGUMENTS``, and its exit code."""
    # Of now, since a test may have changed the variables of this process.
    variables = os.environ | {"PYTHONPATH": os.pathsep.join(PATHS)} | environment
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, check=False, cwd=cwd,
        timeout=timeout, env=variables,
    )  # fmt: skip


def script(code, **environment):
    """Run a text of Python; what it printed."""
    done = run("-X", "faulthandler", "-c", code, **environment)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout
