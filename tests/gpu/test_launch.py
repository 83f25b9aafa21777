"""Parameters of kernels: what Python reads of a header is what a C++ compiler makes of it."""

import re
import struct
import subprocess

import numpy as np
import pytest
from host_device import FLAGS, HERE, compiler, need_compiler

from semiring_mm.gpu import device
from semiring_mm.gpu.launch import entry, struct_of

STRUCT = re.compile(r"^struct (\w+(?:Params|Side))\b", re.MULTILINE)
DECLARED = {
    header: names for header, text in device.headers().items() if (names := STRUCT.findall(text))
}
MAPS = {"BulkParams": 2, "TensorParams": 3}  # tensor maps that come first


@pytest.mark.parametrize("header", DECLARED)
def test_fields_lie_where_the_compiler_puts_them(header):
    need_compiler()
    lines = [f'#include "{header}"', "#include <cstddef>"]
    for name in DECLARED[header]:
        cxx, params = f"sr::{name}{'<3>' * (name == 'CombineParams')}", struct_of(name, N=3)
        maps = device.TENSOR_MAP * MAPS.get(name, 0)
        lines.append(f"static_assert(sizeof({cxx}) == {maps + params.size});")
        lines += [
            f"static_assert(offsetof({cxx}, {field}) == {maps + at});"
            for field, at in params.offsets.items()
            if field != "base"
        ]
    assert len(lines) > 3
    host = ("-include", str(HERE / "host" / "host.h"), "-x", "c++", "-fsyntax-only", "-")
    text = "\n".join(lines)
    done = subprocess.run(
        [compiler(), *FLAGS[:4], "-w", *host], input=text, capture_output=True, text=True
    )
    assert not done.returncode, done.stderr


def test_arrays_stand_for_their_addresses():
    x, n = np.zeros(3), 5
    params = struct_of("CopyParams")
    packed = params.pack({"x": x, "rows": n}, y=None, x_row=np.int64(-2))
    assert len(packed) == params.size
    assert packed[:24] == struct.pack("QQq", x.ctypes.data, 0, -2)
    assert packed[64:] == struct.pack("4i", n, 0, 0, 0)
    assert params.pointers == (0, 1)


def test_structs_within_and_lists():
    two = struct_of("ScanPairParams")
    one = struct_of("ScanParams")
    assert two.pointers == (0, 1, one.size // 8, one.size // 8 + 1)
    packed = two.pack(right=one.pack(lanes=7), left_blocks=3)
    assert packed == one.pack() + one.pack(lanes=7) + struct.pack("q", 3)
    three = struct_of("CombineParams", N=3)
    assert three.pack(row=[4, 5, 6])[24:48] == struct.pack("3q", 4, 5, 6)


def test_a_field_that_is_not_there():
    with pytest.raises(TypeError, match=r"sr::CopyParams has no strides"):
        struct_of("CopyParams").pack(strides=1)


def test_a_field_of_an_unknown_type(monkeypatch):
    text = "struct OddParams {\n  const void* x;\n  short count;\n};"
    monkeypatch.setattr(device, "headers", lambda: {"odd.cuh": text})
    with pytest.raises(TypeError, match=r"sr::short is no type .* or one of i64, u64, int, i32"):
        struct_of("OddParams")


def test_the_text_of_an_entry():
    text = entry("copy.cuh", struct_of("CopyParams"), "sr::Copy<float>::run", 256, cluster=2)
    assert text == (
        '#include "copy.cuh"\n\n'
        'extern "C" __global__ void __cluster_dims__(2) __launch_bounds__(256)\n'
        "kernel(const __grid_constant__ sr::CopyParams p) {\n  sr::Copy<float>::run(p);\n}\n"
    )
