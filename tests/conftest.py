"""The whole suite runs on all cores where pytest-xdist is there."""

import json
import os
import secrets
import shutil
from importlib import metadata

import engines
import host_device
import pytest
import reference

from semiring_mm import cli, pool
from semiring_mm.gpu import device


@pytest.fixture(scope="session")
def gxx():
    """Tests that compile kernels for the host."""
    host_device.need_compiler()


@pytest.fixture(scope="session")
def nvrtc():
    """Tests that compile kernels for a device, which they need not have."""
    try:
        from cupy.cuda import nvrtc

        nvrtc.getVersion()
        missing = ""
    except (ImportError, RuntimeError, OSError) as error:
        missing = f"{error}; pip install cupy-cuda13x nvidia-cuda-nvrtc"
    host_device.need(missing)


@pytest.fixture(autouse=True)
def _restore_threads():
    """Whatever a test sets."""
    before = pool.configured()
    yield
    if pool.configured() != before:
        pool.set_num_threads(before)


@pytest.fixture
def two_threads():
    """Costs are compared, and memory is divided, as on a machine of two cores."""
    pool.set_num_threads(2)


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def there(request, monkeypatch):
    """A device: `put` takes an array to it and `get` back."""
    if request.param == "cuda":
        if reason := device.why_not():
            pytest.skip(reason)
        return engines.Cuda()
    engines.for_a_device(monkeypatch)
    return engines.Host()


@pytest.fixture(params=["host", pytest.param("cuda", marks=pytest.mark.gpu)])
def moves(request, monkeypatch):
    """A device for what is on the host."""
    if request.param == "host":
        engines.on_host(monkeypatch)
    elif reason := device.why_not():
        pytest.skip(reason)


class CommandLine:
    """Runs the command in this process: exit code, standard output and errors."""

    def __init__(self, capsys):
        self._capsys = capsys

    def __call__(self, *arguments):
        code = cli.main([str(argument) for argument in arguments])
        return code, *self._capsys.readouterr()

    def json(self, *arguments):
        """What is printed with ``--json``."""
        code, out, _ = self(*arguments, "--json")
        assert code == 0
        return json.loads(out)

    def refused(self, *arguments):
        """The errors of a command that prints nothing else."""
        code, out, err = self(*arguments)
        assert (code, out) == (2, "")
        return err


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """The command line, in an empty folder."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SEMIRING_MM_NUM_THREADS", "")
    return CommandLine(capsys)


@pytest.fixture
def kill_seed():
    """A seed of the times at which processes are killed; it is shown when the test fails."""
    seed = int(os.environ.get("KILL_SEED") or secrets.randbits(32))
    print(f"KILL_SEED={seed}")
    return seed


@pytest.fixture(scope="session")
def nvdisasm():
    """Where the disassembler is: on the path, or in NVIDIA's package."""
    found = shutil.which("nvdisasm")
    if found is None:
        try:
            files = metadata.files("nvidia-cuda-nvdisasm") or []
        except metadata.PackageNotFoundError:
            files = []
        names = ("nvdisasm", "nvdisasm.exe")
        found = next((str(file.locate()) for file in files if file.name in names), None)
    host_device.need("" if found else "pip install nvidia-cuda-nvdisasm")
    return found


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist reads its options
def pytest_cmdline_main(config):
    """As by ``-n``, where nothing was asked for: files and names start at once, in this process.

    So do tests marked gpu, large or slow: they share one device, one memory or all cores.
    """
    if "PYTEST_XDIST_WORKER" in os.environ:  # a worker reads this file, too, and starts no others
        return
    option = config.option
    whole = config.args_source is config.ArgsSource.TESTPATHS and not option.keyword
    usual = option.markexpr == "not slow and not large"
    if (
        whole and usual and config.pluginmanager.hasplugin("xdist")
        and option.numprocesses is None and not option.usepdb
    ):  # fmt: skip
        option.numprocesses = pool.default_threads()
        option.dist = "worksteal"


def pytest_collection_modifyitems(items):
    """Skip the tests whose parameters name bfloat16 where ml_dtypes is not there."""
    if reference.ml_dtypes is None:
        for item in items:
            named = getattr(item, "callspec", None) and item.callspec.params.values()
            if any(x is reference.BFLOAT16 for x in named or ()):
                item.add_marker(pytest.mark.skip(reason="bfloat16: pip install ml_dtypes"))
