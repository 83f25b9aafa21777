"""The CUDA kernels on the host: every verb of the GPU engine against the plain reference.

The device is :class:`host_device.HostDevice`, which compiles ``kernels/*.cuh`` with g++ and refuses
what a device would refuse. Operands lie within poison, so that a read beyond one shows.
"""

import shutil
import struct

import host_device
import numpy as np
import pytest
from host_device import HostDevice

pytestmark = pytest.mark.skipif(
    shutil.which(host_device.compiler()) is None, reason="no g++ to compile the kernels with"
)
HOST = HostDevice()

# --- the host as a device -----------------------------------------------------------------------

LONE = """#include "base.cuh"
struct Params {{ int* out; int n; }};
extern "C" __global__ void __launch_bounds__(64) kernel(const __grid_constant__ Params p) {{
  [[maybe_unused]] int* shared = sr::shared_memory<int>();
  [[maybe_unused]] const int t = int(threadIdx.x);
  {}
}}
"""


def run_lone(body, blocks=1, threads=64, shared=256):
    out = np.full(threads, -7, np.int32)
    params = struct.pack("qi4x", out.ctypes.data, threads)
    HOST.kernel(LONE.format(body)).launch(blocks, threads, shared, params)
    return out


def test_barriers_of_the_host():
    reverse = "shared[t] = t; {}; p.out[t] = shared[p.n - 1 - t];"
    np.testing.assert_array_equal(run_lone(reverse.format("__syncthreads()")), np.arange(64)[::-1])
    assert -1 in run_lone(reverse.format(""))  # what shared memory holds at first
    turned = "shared[t] = t; {}; p.out[t] = shared[t ^ 31];"
    np.testing.assert_array_equal(run_lone(turned.format("__syncwarp()")), np.arange(64) ^ 31)
    assert -1 in run_lone(turned.format(""))


def test_order_of_the_threads_of_the_host():
    """A block runs upwards, the next one downwards."""
    assert run_lone("if (p.out[0] < 0) p.out[0] = t;")[0] == 0
    assert run_lone("if (blockIdx.x == 1 && p.out[0] < 0) p.out[0] = t;", blocks=2)[0] == 63


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if (t < 40) __syncthreads(); else __syncwarp();", "thread 0 waits for threads that never"),
        ("if (t == 0) shared[p.n] = 1;", "block 0 wrote 0 bytes behind its 256"),
        ("*(long long*)(shared + 2 * t + 1) = 1;", "misaligned access"),
    ],
)  # fmt: skip
def test_the_host_refuses(body, words):
    with pytest.raises(RuntimeError, match=words):
        run_lone(body)


def test_the_host_refuses_parameters_of_another_size():
    with pytest.raises(RuntimeError, match="a struct of 12 bytes came, the kernel takes 16"):
        HOST.kernel(LONE.format("")).launch(1, 64, 0, bytes(12))
