"""What is asked of the CUDA driver, by a stand-in for CuPy that puts work off as a device may.

A copy is made, as late as can be, when somebody waits for it: memory that is used again before
shows.
"""

import ctypes
import struct
import sys
import threading
from types import SimpleNamespace

import fake_cupy
import numpy as np
import pytest
from numpy.testing import assert_array_equal

from semiring_mm import engine as engines
from semiring_mm.cpu import engine as cpu
from semiring_mm.gpu import device, memory
from semiring_mm.tiled import devices


class Array(np.ndarray):
    """A device's array."""

    @property
    def data(self):
        return SimpleNamespace(ptr=self.ctypes.data)

    def get(self):
        return np.array(self)


class Stream:
    """Copies and waits in their order, of which nothing is done before it must be."""

    lock = threading.RLock()  # of all streams
    entered: list  # of the test that runs

    def __init__(self, ptr=0, **_):
        self.ptr, self.todo, self.done = ptr or id(self), [], 0
        Stream.known[self.ptr] = self

    @classmethod
    def from_external(cls, theirs):
        return cls(theirs.__cuda_stream__()[1])

    def __enter__(self):
        Stream.entered.append(self)
        return self

    def __exit__(self, *_):
        Stream.entered.pop()

    def push(self, call, *values):
        self.todo.append((call, *values))

    def run(self, until):
        with self.lock:
            for call, *values in self.todo[self.done : until]:
                call(*values)
            self.done = max(self.done, until)

    def synchronize(self):
        self.run(len(self.todo))


class Event:
    def __init__(self, **_):
        self.ptr, self.stream, self.until = id(self), Stream(), 0
        Event.known[self.ptr] = self

    def record(self, stream):
        self.stream, self.until = stream, len(stream.todo)

    @property
    def done(self):
        return self.stream.done >= self.until

    def synchronize(self):
        self.stream.run(self.until)


class Device:
    def __init__(self, index):
        self.index = index

    def __enter__(self):
        Stream.devices.append(self.index)

    def __exit__(self, *_):
        Stream.devices.pop()


@pytest.fixture
def calls(monkeypatch):
    """What the driver was asked for, in order."""
    found = []

    def launch_kernel(*values):
        *shape, stream, pointers, extra = values
        place = ctypes.c_void_p.from_address(pointers).value
        found.append(("launch", *shape, stream, ctypes.string_at(place, 5), extra))

    Stream.known, Event.known, Stream.devices = {}, {}, [0]
    Stream.entered = [Stream()]
    function = SimpleNamespace(ptr=99)
    module = SimpleNamespace(load=lambda cubin: None, get_function=lambda name: function)
    cuda = SimpleNamespace(
        driver=SimpleNamespace(
            launchKernel=launch_kernel,
            funcSetAttribute=lambda *values: found.append(("attribute", *values)),
        ),
        function=SimpleNamespace(Module=lambda: module),
        nvrtc=SimpleNamespace(getVersion=lambda: (13, 0)),
        runtime=SimpleNamespace(
            memcpyHostToDevice=1, memcpyDeviceToHost=2,
            setDevice=lambda index: None,
            memGetInfo=lambda: (1000, 9000),
            memcpyAsync=lambda to, source, size, kind, stream: Stream.known[stream].push(
                ctypes.memmove, to, source, size
            ),
            eventRecord=lambda event, stream: Event.known[event].record(Stream.known[stream]),
            streamWaitEvent=lambda stream, event: Stream.known[stream].push(
                Stream.run, Event.known[event].stream, Event.known[event].until
            ),
        ),
        alloc_pinned_memory=bytearray,
        get_current_stream=lambda: Stream.entered[-1],
        Stream=Stream, Event=Event, Device=Device,
    )  # fmt: skip
    fake = SimpleNamespace(
        cuda=cuda,
        get_default_memory_pool=lambda: SimpleNamespace(free_bytes=lambda: 234),
        array=lambda x: np.array(x).view(Array),
        empty=lambda shape, dtype: np.full(shape, 77).astype(dtype).view(Array),
    )
    monkeypatch.setitem(sys.modules, "cupy", fake)
    monkeypatch.setitem(sys.modules, "cupy.cuda", cuda)
    here = SimpleNamespace(xp=fake, index=0, capturing=lambda: False)
    monkeypatch.setattr(device, "current", lambda: here)
    memory._ring.cache_clear()
    yield found
    memory._ring.cache_clear()


# --- kernels ------------------------------------------------------------------------------------


def test_a_launch_is_on_the_current_stream_with_the_shared_memory_that_it_needs(calls):
    kernel = device.Kernel(b"cubin")
    kernel.launch(3, 64, 1000, b"first")
    with memory.on(2, 1234):  # of another library
        assert Stream.devices == [0, 2]
        kernel.launch(3, 64, 50_000, b"other")
        kernel.launch(3, 64, 49_500, b"third")
    kernel.launch(3, 64, 60_000, b"after")
    own = Stream.entered[0].ptr
    assert Stream.devices == [0]
    assert calls == [
        ("launch", 99, 3, 1, 1, 64, 1, 1, 1000, own, b"first", 0),
        ("attribute", 99, 8, 50_000),
        ("launch", 99, 3, 1, 1, 64, 1, 1, 50_000, 1234, b"other", 0),
        ("launch", 99, 3, 1, 1, 64, 1, 1, 49_500, 1234, b"third", 0),
        ("attribute", 99, 8, 60_000),
        ("launch", 99, 3, 1, 1, 64, 1, 1, 60_000, own, b"after", 0),
    ]


def test_an_early_launch_says_so(calls, monkeypatch):
    """By the driver's structures: CUlaunchConfig of 56 bytes, CUlaunchAttribute of 72."""

    def launch(config, *values):
        text = ctypes.string_at(ctypes.addressof(config._obj), 56)
        *shape, stream, attributes, count = struct.unpack("7I4xQQI4x", text)
        attribute, (function, arguments, extra) = ctypes.string_at(attributes, 72), values
        place = ctypes.c_void_p.from_address(arguments.value).value
        calls.append((*shape, stream, count, attribute, function.value, extra))
        calls.append(ctypes.string_at(place, 5))
        return status

    status = 0
    monkeypatch.setattr(device, "_driver", lambda: SimpleNamespace(cuLaunchKernelEx=launch))
    kernel, own = device.Kernel(b"cubin"), Stream.entered[0].ptr
    kernel.launch(3, 64, 1000, b"first", early=True)
    attribute = struct.pack("iiii56x", 6, 0, 1, 0)
    assert calls == [(3, 1, 1, 64, 1, 1, 1000, own, 1, attribute, 99, None), b"first"]
    status = 801
    with pytest.raises(RuntimeError, match="cuLaunchKernelEx: error 801"):
        kernel.launch(3, 64, 1000, b"first", early=True)


@pytest.mark.usefixtures("calls")
def test_compiled_code_is_kept_for_its_source_headers_compiler_and_architecture(
    monkeypatch, tmp_path
):
    """Of two keys that differ in one of them, each is compiled."""
    compiled = []

    def compile_source(source, arch, own=""):
        compiled.append(source)
        return b"%d" % len(compiled), ""

    monkeypatch.setenv("SEMIRING_MM_CACHE", str(tmp_path))
    monkeypatch.setattr(device, "compile_source", compile_source)
    texts = device.headers()
    edited = {name: text + "//" if name == "base.cuh" else text for name, text in texts.items()}
    nvrtc = sys.modules["cupy.cuda"].nvrtc
    for source, arch, own, headers, version in [
        ("a", 90, "", texts, (13, 0)), ("b", 90, "", texts, (13, 0)), ("a", 80, "", texts, (13, 0)),
        ("a", 90, "a", texts, (13, 0)), ("a", 90, "", edited, (13, 0)),
        ("a", 90, "", texts, (13, 1)),
    ]:  # fmt: skip
        monkeypatch.setattr(device, "headers", lambda headers=headers: headers)
        monkeypatch.setattr(nvrtc, "getVersion", lambda version=version: version)
        found = [device.compiled(source, arch, own) for _ in range(2)]
        assert found == [b"%d" % len(compiled)] * 2
    assert compiled == ["a", "b", "a", "a", "a", "a"]


@pytest.mark.parametrize(
    ("element", "kind", "size", "lines"),
    [("uint8", 0, 1, 64), ("float16", 6, 2, 256), ("float32", 7, 4, 64), ("bfloat16", 9, 2, 128)],
)
def test_a_tensor_map_describes_boxes_of_lines_of_128_bytes(
    element, kind, size, lines, monkeypatch
):
    """The values of cuda.h: no interleaving, a swizzle of 128 bytes, 256 bytes at once from the
    second-level cache, zeros outside."""

    def encode(to, *values):
        place = to.value
        assert place % 64 == 0
        plain = [list(x) if isinstance(x, ctypes.Array) else getattr(x, "value", x) for x in values]
        assert plain == [
            kind, 3, 4096, [70, 50, 3], [144, 7200], [128 // size, lines, 1], [1, 1, 1], 0, 3, 3,
            0,
        ]  # fmt: skip
        assert [x._type_ for x in values if isinstance(x, ctypes.Array)] == [
            ctypes.c_uint64, ctypes.c_uint64, ctypes.c_uint32, ctypes.c_uint32,
        ]  # fmt: skip
        ctypes.memset(place, 5, 128)
        return 0

    monkeypatch.setattr(device, "_driver", lambda: SimpleNamespace(cuTensorMapEncodeTiled=encode))
    here = device.Device.__new__(device.Device)
    assert here.tensor_map(4096, element, (70, 50, 3), (144, 7200), lines) == b"\5" * 128
    monkeypatch.setattr(
        device, "_driver", lambda: SimpleNamespace(cuTensorMapEncodeTiled=lambda *_: 1)
    )
    with pytest.raises(RuntimeError, match="cuTensorMapEncodeTiled: error 1"):
        here.tensor_map(4096, element, (70, 50, 3), (144, 7200))


# --- copies -------------------------------------------------------------------------------------


@pytest.mark.usefixtures("calls", "two_threads")
@pytest.mark.parametrize(("size", "pieces"), [(199, 0), (201, 3), (4000, 8), (9999, 10)])
def test_large_copies_wait_for_their_pieces(size, pieces, monkeypatch):
    """Also for those of the call before, which may be in another stream."""
    monkeypatch.setattr(memory, "_PIECE", 1000)
    monkeypatch.setattr(memory, "_LEAST", 100)
    x, y = np.random.default_rng(size).integers(0, 255, (2, size)).astype("u1")
    there = memory.from_host(x)
    assert sum(call is ctypes.memmove for call, *_ in Stream.entered[0].todo) == pieces
    with memory.on(0, 1234):
        assert_array_equal(memory.to_host(y.view(Array)), y)
        Stream.entered[0].synchronize()
        assert_array_equal(there, x)
        assert_array_equal(memory.to_host(there), x)


@pytest.mark.usefixtures("calls")
def test_copies_that_a_graph_captures_are_the_librarys(monkeypatch):
    """It would repeat what pinned memory holds then."""
    monkeypatch.setattr(memory, "_LEAST", 100)
    monkeypatch.setattr(device.current(), "capturing", lambda: True)
    x = np.arange(1000)
    assert_array_equal(memory.from_host(x), x)
    assert not Stream.entered[0].todo


@pytest.mark.usefixtures("calls")
def test_memory_that_cupy_keeps_is_free():
    assert memory.free_memory() == 1234


@pytest.mark.usefixtures("calls")
def test_streamed_tiles_wait_for_their_copies(monkeypatch):
    """One piece of pinned memory for all of them."""
    there = fake_cupy.Engine(sys.modules["cupy"], cpu)
    monkeypatch.setitem(engines._engines, "cuda", there)
    place = devices.CudaDevice(0, 1, 800)
    tiles = [np.full(100, i, "f8") for i in range(5)]
    blocks = [place.empty(100, np.dtype("f8")) for _ in tiles]
    span = lambda *_: 0.0  # noqa: E731
    for tile, block in zip(tiles, blocks, strict=True):
        place.load(lambda stage, tile=tile: np.copyto(stage, tile), block, span)
    assert_array_equal(blocks, tiles)
    written = []
    for block in blocks:
        place.save(block, lambda stage: written.append(stage.copy()), span)
    assert_array_equal(written, tiles)
