"""The GPU engine without a GPU: NVRTC compiles its kernels, and the machine code is looked at.

NVRTC needs no driver and no device. What the kernels compute is tested in ``test_kernels.py``.
"""

import functools
import itertools
import re
import subprocess
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from metrics import grid, metric_of, on_device
from reference import BFLOAT16

import semiring_mm as sm
from bench.banks import conflicts, crowded_loads
from semiring_mm.closures.edges import EdgeList
from semiring_mm.closures.solve import Problem
from semiring_mm.closures.sources import EdgeSource
from semiring_mm.engine import PLAIN, AlignmentRule, Forest, Ragged, Scaling
from semiring_mm.gpu import (
    bit_rows,
    chain,
    device,
    engine,
    product,
    select,
    shares,
    source,
    tensor,
    tiles,
    wavefront,
)  # fmt: skip
from semiring_mm.gpu import (
    sweeps as sweeping,
)
from semiring_mm.gpu.bfs import HopSearches, Shape
from semiring_mm.gpu.dependencies import HopDependencies
from semiring_mm.gpu.facts import flags_of
from semiring_mm.graphs.hops import Hops
from semiring_mm.hierarchy.devices import device_customizer
from semiring_mm.hierarchy.metric import Arcs
from semiring_mm.hierarchy.symbolic import eliminate
from semiring_mm.metrics import as_metric
from semiring_mm.plan import Facts, make_plan

HERE = Path(__file__).parents[1]
OWN_LINES = (75, 80, 90)  # architectures that some line of the kernels is for
PACKED = 100  # has lines for packed floats besides, which STEPS is for
SIBLINGS = (86, 89, PACKED, 120)  # of one of them, line by line: a sample is enough

needs_nvrtc = pytest.mark.usefixtures("nvrtc")


#: Once, where several tests look at the same code.
compiled = functools.cache(device.compile_source)


class Recorder:
    """A device that runs nothing and keeps the sources of what it was asked for."""

    xp, name, sms, shared_limit, early = np, "recorder", 132, 232448, True
    indices = itertools.count(-2, -1)

    def __init__(self, arch):
        self.arch = arch
        self.index = next(self.indices)  # its own, since prepared launches are kept by it
        self.sources = []
        self.own = {}  # what a source needs of an architecture's own instructions

    def kernel(self, text, own=""):
        self.sources.append(text)
        self.own[text] = own
        return self

    def compile(self, text):
        return compiled(text, self.arch, self.own[text])

    def assemble(self, text):
        """Optimized only if it has instructions that wait for others: those draw warnings then."""
        fast = () if self.own[text] else ("--Ofast-compile=max",)  # takes half of the time
        return compiled(text, self.arch, self.own[text], *fast)

    def tensor_map(self, *_):
        return bytes(128)

    def launch(self, *_, **__):
        pass

    def prepared(self, *_):
        return self.launch

    def stream(self):
        return 0

    def host_memory(self, shape, dtype):
        return np.zeros(shape, dtype)

    def mark(self, _):
        return lambda: None

    def capturing(self):
        return False


@pytest.fixture
def sources_of(monkeypatch):
    """A chip like an H200, with the sources of the kernels that a call launches on it."""

    def record(run, arch=90):
        recorder = Recorder(arch)
        monkeypatch.setattr(device, "current", lambda: recorder)
        product._plans.cache_clear()
        run()
        return recorder

    yield record
    product._plans.cache_clear()


NEGATIVE, POSITIVE, WHOLE = Facts(-1, 1, False), Facts(1, 2, False), Facts(-9, 9, False)


def product_of(name, dtype, facts=None, n=4096, **options):
    a, b, c = (np.empty((n, n), dtype) for _ in range(3))
    known = facts and (facts, facts, facts)
    engine.product(sm.semirings[name], a, b, c, known=known, **options)


# --- machine code -------------------------------------------------------------------------------

#: Of a large product: the inner step, and the instructions that do its work on sm_90.
LARGE = [
    ("plus_times", "f4", None, "General", ["FFMA", "LDGSTS.E.BYPASS.128", "STG.E.128"]),
    ("min_plus", "f4", NEGATIVE, "General", ["FADD", "FMNMX.NAN", "LDGSTS.E.BYPASS.128"]),
    ("min_plus", "f4", POSITIVE, "Nonnegative", ["FADD", "VIMNMX3"]),
    ("max_times", "f4", POSITIVE, "Nonnegative", ["FMUL", "VIMNMX3"]),
    ("max_min", "f4", POSITIVE, "Ordered", ["VIMNMX3"]),
    ("min_plus", "i4", WHOLE, "Sums", ["VIADDMNMX", "VIMNMX3"]),
    ("min_plus", "i2", WHOLE, "SumsPaired", ["VIADDMNMX.S16x2"]),
    ("min_plus", "f2", None, "FloatsJoined", ["VHMNMX.NAN", "HADD2", "HFMA2.MMA"]),
    ("plus_times", "f8", None, "MatrixDoubles", ["DMMA.16x8x4", "LDGSTS.E.LTC128B.64"]),
]

#: Two accumulators take up one step of k, or two: architecture, ⊕, ⊗, dtype, the instructions.
STEPS = [
    (90, "a + b", "(a - b) * (a - b)", "f4", {"FADD": 2, "FFMA": 2}),
    (90, "a + b", "a * b + abs(a)", "f4", {"FFMA": 2, "FADD": 2}),
    (90, "a + b", "a * a - b * b", "f4", {"FMUL": 3, "FADD": 4}),
    (90, "min(a, b)", "a + b", "f4", {"FADD": 4, "VIMNMX3": 2}),
    (90, "min(a, b)", "a + b", "f2", {"H...2": 4, "VHMNMX.NAN": 2}),
    (90, "max(a, b)", "a * b", BFLOAT16, {"H...2.BF16_V2": 4, "VHMNMX.BF16_V2.NAN": 2}),
    (100, "a + b", "a * b", "f4", {"FFMA2": 1}),
    (100, "min(a, b)", "a + b", "f4", {"FADD2": 2, "FMNMX3.NAN": 2}),
    (103, "max(a, b)", "a * b", "f4", {"FMUL2": 2, "FMNMX3.NAN": 2}),
    (103, "max(a, b)", "abs(a - b)", "f4", {"FADD": 4, "FMNMX3.NAN": 2}),
    (103, "min(a, b)", "a + b", "f2", {"H...2": 4, "VHMNMX.NAN": 2}),
    (110, "min(a, b)", "a + b", "f4", {"FADD": 4, "FMNMX3.NAN": 2}),
    (120, "min(a, b)", "a + b", "f4", {"FADD": 2, "FMNMX.NAN": 2}),
    (120, "min(a, b)", "a + b", "f2", {"H...2": 2, "HMNMX2.NAN": 2}),
    (120, "min(a, b)", "a + b", "i2", {"VIADD.16x2": 2, "VIMNMX.S16x2": 2}),
    (80, "min(a, b)", "a + b", "f2", {"H...2": 2, "HMNMX2.NAN": 2}),
    (80, "max(a, b)", "a + b", BFLOAT16, {"H...2.BF16_V2": 2, "HMNMX2.BF16_V2.NAN": 2}),
]  # fmt: skip
ARITHMETIC = re.compile(r"[DFH](ADD|MUL|FMA|MNMX)|V[HI]MNMX|VIADDMNMX|VIADD\.16x2")

#: On tensor cores, by architecture.
TENSOR = [
    (90, "plus_times", "f2", None,
     ["HGMMA.64x256x16.F32", "UTMALDG.3D", "STSM.16.M88.4", "UTMASTG.3D"]),
    (90, "plus_times", "f4", "tf32", ["HGMMA.64x256x8.F32.TF32", "LDS", "UTMALDG.3D", "STG.E"]),
    (90, "plus_times", "f4", "float32_emulated",
     ["HGMMA.64x128x16.F32", "FADD", "UTMALDG.3D.MULTICAST"]),
    (90, "lor_land", "?", None, ["BGMMA.64x256x256.AND.POPC", "UTMALDG.3D", "STG.E.128"]),
    (90, "xor_land", "?", None, ["BGMMA.64x256x256.AND.POPC", "SHFL.BFLY", "STG.E.128"]),
    (90, "plus_times", "f8", None, ["DMMA.16x8x8", "LDS.128", "UTMALDG.3D", "STG.E.128"]),
    (80, "plus_times", "f8", None, ["DMMA.884", "LDS.128", "STG.E.128"]),
    (80, "plus_times", "f2", None, ["HMMA.16816.F32", "LDS.128", "STG.E.128"]),
    (120, "plus_times", "f4", "tf32", ["HMMA.1688.F32.TF32", "LDS.128", "STG.E.128"]),
]  # fmt: skip


#: Bytes, where the schedules without any were slower when they were measured.
SPILLS = {
    ("min_plus", "f2", "FloatsJoined"): 8,
    ("min_plus", "f4", "General"): 64,
}


def disassembled(cubin, path, nvdisasm, *options):
    path.write_bytes(cubin)
    command = [nvdisasm, "-c", *options, str(path)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def operations(cubin, path, nvdisasm):
    text = disassembled(cubin, path, nvdisasm)
    return Counter(
        re.findall(r"^\s*/\*\w+\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)", text, re.MULTILINE)
    )


@needs_nvrtc
def test_instructions_of_large_products(sources_of, tmp_path, nvdisasm):
    """Each inner step is the instructions that it is there for; 32-bit words spill no register."""
    texts = []
    for name, dtype, facts, step, _ in LARGE:
        # larger ones are read by the copy engine
        n = {"f8": 680, "f4": 2048}[dtype] if name == "plus_times" else 4096
        sources = sources_of(lambda: product_of(name, dtype, facts, n)).sources  # noqa: B023
        text = next(text for text in reversed(sources) if "using Product =" in text)
        assert f"sr::{step}<Algebra>" in text
        texts.append(text)
    with ThreadPoolExecutor() as pool:
        compiled = list(pool.map(lambda text: device.compile_source(text, 90), texts))
    for i, ((name, dtype, _, step, expected), (cubin, report)) in enumerate(
        zip(LARGE, compiled, strict=True)
    ):
        found = operations(cubin, tmp_path / f"{i}.cubin", nvdisasm)
        for instruction in expected:
            assert found[instruction] > 0, (name, dtype, step, instruction, found)
        spilled = int(re.search(r"(\d+) bytes spill stores", report)[1])
        assert spilled <= SPILLS.get((name, dtype, step), 0), (name, dtype, step, report)


@needs_nvrtc
def test_minima_of_16_bits_with_b_along_k_fit_into_registers(sources_of):
    a, b, c = (np.empty((4096, 4096), "f2") for _ in range(3))
    text = sources_of(lambda: engine.product(sm.semirings["min_plus"], a, b.T, c)).sources[-1]
    assert "sr::FloatsJoined<Algebra>" in text
    spilled = int(re.search(r"(\d+) bytes spill", device.compile_source(text, 90)[1])[1])
    assert spilled <= 36, "0 by NVRTC 13.5, 36 by 13.0"


TAKE = """#include "multiplier.cuh"
{algebra}
using Step = sr::{step}<Algebra>;
using Word = Step::Word;
template <class S>
SR_FN void take(Word* x) {{
  if constexpr (S::TWO) {{
    S::take_two(x[0], x[1], x + 2, x + 4, x + 6);
  }} else {{
    S::take(x[0], x + 2, x + 4);
    S::take(x[1], x + 2, x + 6);
  }}
}}
extern "C" __global__ void __launch_bounds__(32) kernel(Word* p) {{
  Word x[8];
  for (int i = 0; i < 8; ++i) x[i] = p[threadIdx.x + 32 * i];
  take<Step>(x);
  p[threadIdx.x] = x[0], p[threadIdx.x + 32] = x[1];
}}
"""


@needs_nvrtc
@pytest.mark.parametrize(("arch", "add", "mul", "dtype", "expected"), STEPS, ids=str)
def test_instructions_of_steps(arch, add, mul, dtype, expected, tmp_path, nvdisasm):
    """Each chip's best step takes those instructions that the chip has for it, and no others."""
    start = {"a": 0, "min": np.inf, "max": -np.inf}[re.match(r"\w+", add)[0]]
    semiring, facts = sm.Semiring("own", add, mul, start, 0), WHOLE if dtype == "i2" else None
    plans = product._plans(semiring, np.dtype(dtype), facts, facts, None, 9, PLAIN, False, arch)
    way = next(way for way in plans if way.kind is None)
    text = TAKE.format(algebra=source.algebra(way.plan), step=way.step.name)
    cubin, _ = device.compile_source(text, arch)
    code = disassembled(cubin, tmp_path / "kernel.cubin", nvdisasm)
    # sums of halves may be multiply-adds by 1, which have another pipe; of zeros, constants
    names = Counter(
        re.sub(r"H(ADD|MUL|FMA)2(\.MMA)?", "H...2", name)
        for name, rest in re.findall(r"^\s*/\*\w+\*/\s+([A-Z][\w.]*)(.*)$", code, re.MULTILINE)
        if ARITHMETIC.match(name) and "-RZ, RZ" not in rest
    )
    assert names == expected


@needs_nvrtc
def test_few_register_bank_conflicts_in_sgemm(sources_of, tmp_path, nvdisasm):
    """17 % without the order of ``kernels/multiplier.cuh``."""
    text = sources_of(lambda: product_of("plus_times", "f4", n=2048)).sources[0]
    cubin, path = device.compile_source(text, 90)[0], tmp_path / "kernel.cubin"
    code = disassembled(cubin, path, nvdisasm, "-hex")  # crowded loads are told by control words
    waits, count = conflicts(code)
    assert count >= 1024
    assert waits < 0.15 * count
    assert crowded_loads(code) < 20  # 28 with some other orders


@needs_nvrtc
def test_copies_of_sgemm_share_an_address(sources_of, tmp_path, nvdisasm):
    """Chunks of a tile that a thread copies to shared memory are constants apart."""
    text = sources_of(lambda: product_of("plus_times", "f4", n=2048)).sources[0]
    code = disassembled(device.compile_source(text, 90)[0], tmp_path / "kernel.cubin", nvdisasm)
    loop = code[: code.rindex("FFMA")]  # without the tiles before it, which begin the same way
    copies = re.findall(r"LDGSTS\S* \[(R\d+)(\+0x\w+)?\]", loop)
    assert len(copies) >= 18
    assert sum(bool(distance) for _, distance in copies) >= len(copies) // 3


@needs_nvrtc
def test_bulk_products_do_little_else_than_multiply(sources_of, tmp_path, nvdisasm):
    """The loop has no copies, no spills, and at most 80 instructions besides 1,024."""
    sources = sources_of(lambda: product_of("plus_times", "f4")).sources
    (text,) = (text for text in sources if "sr::BulkProduct<" in text)
    cubin, report = device.compile_source(text, 90, "a")
    assert " 0 bytes spill stores" in report
    code = disassembled(cubin, tmp_path / "kernel.cubin", nvdisasm)
    lines = re.findall(r"^\s+/\*\w{4,}\*/ .*$", code, re.MULTILINE)
    at = [i for i, line in enumerate(lines) if " FFMA " in line]
    assert len(at) == 1024
    assert at[-1] - at[0] <= 1104
    assert "LDGSTS" not in code


@needs_nvrtc
@pytest.mark.parametrize("layout", ["CC", "FC", "CF"])
def test_fragments_of_doubles_are_not_moved(layout, sources_of, tmp_path, nvdisasm):
    """Whatever the layout, words are read into the registers that instructions take."""
    a, b = (np.empty((4096, 4096), order=order) for order in layout)
    plus_times = sm.semirings["plus_times"]
    (text,) = sources_of(lambda: engine.product(plus_times, a, b, np.empty_like(a))).sources[:1]
    cubin = device.compile_source(text, 90, "a")[0]
    code = disassembled(cubin, tmp_path / "kernel.cubin", nvdisasm).splitlines()
    at = [i for i, line in enumerate(code) if "DMMA.16x8x8" in line]
    assert len(at) == 32
    moves = sum("MOV" in line for line in code[at[0] : at[-1]])
    assert moves < len(at) / 2


def test_conflicts_are_counted():
    code = """
        /*0000*/                   FFMA R1, R2.reuse, R4, R1 ;   /* two of an even number */
        /*0010*/                   FFMA R3, R2, R6, R3 ;         /* R2 is at hand */
        /*0020*/                   FFMA R6, R2, R8, R6 ;         /* all three even */
        /*0030*/              @!P0 LDS R2, [R4] ;
"""
    assert conflicts(code) == (3, 3)
    assert conflicts(code, "LDS") == (0, 1)


def test_crowded_loads_are_counted():
    code = """
        /*2bb0*/       LDS.128 R52, [R17] ;              /* 0x0000000011347984 */
                                                         /* 0x0002a80000000c00 */
        /*2bc0*/       LDS.128 R56, [R17+0x80] ;         /* 0x0000800011387984 */
                                                         /* 0x0003280000000c00 */
        /*2bd0*/       LDS R60, [R19] ;                  /* 0x00000000133c7984 */
                                                         /* 0x0003280000000c00 */
"""
    assert crowded_loads(code) == 2
    assert crowded_loads(code.replace("0x0002a8", "0x0002a2")) == 1


@needs_nvrtc
@pytest.mark.parametrize(("arch", "name", "dtype", "precision", "expected"), TENSOR, ids=str)
def test_instructions_of_tensor_cores(
    arch, name, dtype, precision, expected, sources_of, tmp_path, nvdisasm
):
    recorder = sources_of(lambda: product_of(name, dtype, precision=precision), arch)
    text = next(x for x in recorder.sources if "using Product =" in x)
    cubin, report = recorder.compile(text)
    found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
    for instruction in expected:
        assert found[instruction] > 0, (instruction, found)
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0
    assert not re.search("C75(10|14|17)", report)  # products wait for each other
    clusters = found["UTMALDG.3D.MULTICAST"] > 0  # whose blocks wait for each other once
    assert found["MEMBAR.ALL.GPU"] == 2 * clusters


@needs_nvrtc
def test_results_of_16_bits_are_written_while_tensor_cores_multiply(sources_of, tmp_path, nvdisasm):
    a, b, c = (np.empty((4096, 4096), "f2") for _ in range(3))
    run = lambda: engine.product(sm.semirings["plus_times"], a.T, b.T, c)  # noqa: E731
    recorder = sources_of(run)
    cubin, report = recorder.compile(recorder.sources[-1])
    text = disassembled(cubin, tmp_path / "kernel.cubin", nvdisasm)
    found = re.findall(r"HGMMA|UTMASTG", text)
    first = found.index("UTMASTG")
    assert "HGMMA" in found[:first]
    assert "HGMMA" in found[first:]
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0
    assert not re.search("C75(10|14|17)", report)  # products wait for each other


def sieved(x, k=3):
    """The launches of the nearest rows by sums of absolute differences."""
    select.Sieve(as_metric("l1").algebra, x, x, None)._search(np.arange(len(x)), k, 64)


def nearest_of(x, k=3):
    """The launches of neighbours: from values, from stored products and from candidates."""
    sieved(x)
    m = len(x)
    lists, screen = select.empty(m, k, x.dtype), engine.Screen(x, x, 1.0)
    select.put(*lists, x, 0)
    screen.put(slice(0, m), slice(0, m), np.empty((m, m), screen.dtype), *lists)
    select.merge(*lists, None, 0, {}, wide=True)
    if screen.fused:
        points, left = select._Ordered(screen, 8), screen._prepared(x)[0]
        count = np.zeros(m, "u4")
        points.sift(left, 8, m, np.zeros(m, "f4"), count, np.zeros((m, 9), "u4"))


def bits_near(metric="jaccard"):
    """The launches of pairs of rows of bits within a radius, or all of them."""
    x = np.zeros((400, 32), "u8")
    sides = bit_rows._Sides(metric, 2048, x, x)
    count, candidates = np.zeros(400, "u4"), np.zeros((400, 9), "u4")
    if device.current().arch == 90:
        sides.sift(slice(0, 400), slice(0, 400), np.full(400, 0.2), count, candidates)
    sides.listed(slice(0, 400), slice(0, 400), count, candidates)
    sides.tile(slice(0, 400), slice(0, 400), np.empty((400, 400)))


@needs_nvrtc
def test_instructions_of_screened_bits(sources_of, tmp_path, nvdisasm):
    """The largest count of a row, two in a time; of tiles where it passes, each is compared."""
    recorder = sources_of(bits_near)
    (text,) = [source for source in recorder.sources if "sr::Screened" in source]
    cubin, report = recorder.compile(text)
    found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
    entries = 64 * 256 // 128  # of a thread
    assert found["BGMMA.64x256x256.AND.POPC"] > 0
    assert found["VIMNMX3"] == entries // 2
    assert found["I2FP.F32.S32"] == found["FFMA"] == entries + 2
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0
    assert not re.search("C75(10|14|17)", report)  # products wait for each other


@needs_nvrtc
@pytest.mark.parametrize(("spread", "product"), [
    (False, "HGMMA.64x256x16.F32"), (True, "HGMMA.64x256x8.F32.TF32"),
])  # fmt: skip
def test_instructions_of_screened_products(spread, product, sources_of, tmp_path, nvdisasm):
    """Two additions and a comparison for each entry, and nothing is stored but candidates."""
    x = np.full((400, 16), 1e-4 if spread else 1.0, "f4")
    x[: 1 if spread else 200] = -1
    recorder = sources_of(lambda: nearest_of(x))
    (text,) = [source for source in recorder.sources if "sr::Screened" in source]
    cubin, report = recorder.compile(text)
    found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
    entries = 64 * 256 // 128  # of a thread
    assert found[product] > 0
    assert found["FADD"] + found["FSEL"] <= 2 * entries
    assert found["FSETP.GTU.AND"] + found["FSETP.LE.AND"] == entries
    assert found["STG.E"] <= 16  # of the tile before, and of the last one
    assert found["ATOMG.E.ADD.STRONG.GPU"] == 4
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0
    assert not re.search("C75(10|14|17)", report)  # products wait for each other


@needs_nvrtc
def test_instructions_of_sieves(sources_of, tmp_path, nvdisasm):
    """A comparison for each distance, by which all of them are where they were summed up."""
    recorder = sources_of(lambda: sieved(np.empty((20_000, 128), "f4")))
    *_, text = (source for source in recorder.sources if "sr::Sieve" in source)
    cubin, report = recorder.compile(text)
    found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
    compared = re.compile(r"FSETP\.(GT|LT|GEU|LEU)")
    assert sum(count for name, count in found.items() if compared.match(name)) >= 8 * 16
    assert found["STG.E.128"] == 0
    assert found["STG.E"] <= 2 * 8  # of a candidate of each row
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0


#: Of a closure in one launch: the step of its updates, and what does their work on sm_90.
CLOSURES = [
    ("min_plus", "f4", NEGATIVE, "General", ["FADD", "FMNMX.NAN"]),
    ("min_plus", "f4", POSITIVE, "Nonnegative", ["FADD", "VIMNMX3"]),
    ("max_min", "f4", POSITIVE, "Ordered", ["VIMNMX3"]),
    ("min_plus", "i4", WHOLE, "Sums", ["VIADDMNMX", "VIMNMX3"]),
    ("min_plus", "f8", POSITIVE, "General", ["DADD"]),
    ("lor_land", "?", None, "General", ["LOP3.LUT"]),
]


def closed(name, dtype, facts=None, marks=False, n=300):
    a, p = np.empty((n, n), dtype), np.empty((n, n), "i4") if marks else None
    engine.closure_batch(sm.semirings[name], a, facts and (facts,) * 3, np.empty_like(a), p)


@needs_nvrtc
@pytest.mark.parametrize("case", CLOSURES, ids=str)
def test_instructions_of_closures(case, sources_of, tmp_path, nvdisasm):
    name, dtype, facts, step, expected = case
    recorder = sources_of(lambda: closed(name, dtype, facts))
    (text,) = recorder.sources
    assert f"sr::{step}<Algebra>" in text
    cubin, report = recorder.compile(text)
    found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
    for instruction in (*expected, "LDGSTS.E.BYPASS.128", "STG.E.128"):
        assert found[instruction] > 0 or dtype == "?", (instruction, found)
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0


@needs_nvrtc
@pytest.mark.parametrize("dtype", ["f4", "f8", "i8", "f2"])
def test_kernels_of_predecessors_spill_no_register(dtype, sources_of):
    facts = WHOLE if dtype[0] == "i" else None
    recorder = sources_of(lambda: closed("min_plus", dtype, facts, marks=True))
    found = [x for x in recorder.sources if "sr::Trees<" in x]
    assert len(found) == 4
    for text in found:
        assert "0 bytes spill stores" in recorder.compile(text)[1]


def in_compressed_rows():
    """Rows long enough for all lanes of a warp."""
    data, columns, ends = np.ones(20_000, "f4"), np.zeros(20_000, "i4"), np.arange(0, 20_001, 500)
    b, c = np.ones((40, 1), "f4"), np.ones((40, 1), "f4")
    engine.csr_product(sm.semirings["min_plus"], data, columns, ends.astype("i4"), b, c)


def flags_of_a_matrix():
    a = np.ones((40, 40), "f4")
    flags_of(a, a)


#: The fence of the matrix instructions, and the waits for all groups but one, and for all.
IN_ORDER = [r"WARPGROUP\.ARRIVE", *(rf"WARPGROUP\.DEPBAR\.LE gsb0, 0x{n}" for n in (0, 1))]

#: What the host has other bodies for: a launch, the struct that it runs, and the instructions that
#: must and must not be there. The last operand of a minimum is PT, that of a maximum !PT.
HIDDEN = {
    "minimum": (
        lambda: product_of("min_plus", "f4", NEGATIVE, n=64), "Product<",
        [r"FMNMX\.NAN .* PT ;"], [r"FMNMX ", r"FMNMX.*!PT"],
    ),
    "maximum": (
        lambda: product_of("max_plus", "f4", NEGATIVE, n=64), "Product<",
        [r"FMNMX\.NAN .*!PT ;"], [r"FMNMX ", r"FMNMX.* PT ;"],
    ),
    "minimum of float16": (
        lambda: product_of("min_plus", "f2", NEGATIVE, n=64), "sr::FloatsJoined<",
        [r"HMNMX2\.NAN .* PT ;", r"HADD2 |HADD2\.F32|HFMA2", r"F2FP?\.F16\.F32"],
        [r"HMNMX2 ", r"HMNMX2.*!PT", r"(F2FP?|HADD2)\S*[._]R[ZMP]\b"],
    ),
    "maximum of bfloat16": (
        lambda: product_of("max_plus", BFLOAT16, NEGATIVE, n=64), "sr::FloatsJoined<",
        [r"HMNMX2\.BF16_V2\.NAN .*!PT ;"], [r"HMNMX2\.BF16_V2 ", r"HMNMX2.* PT ;"],
    ),
    "minimum of bfloat16": (
        lambda: product_of("min_plus", BFLOAT16, NEGATIVE, n=64), "sr::FloatsJoined<",
        [r"HMNMX2\.BF16_V2\.NAN .* PT ;"], [r"HMNMX2\.BF16_V2 ", r"HMNMX2.*!PT"],
    ),
    # every copy to shared memory has landed before the barrier after it
    "copies": (
        lambda: product_of("plus_times", "f4", n=64), "Product<",
        [r"LDGSTS", r"LDGDEPBAR", r"DEPBAR\.LE SB0, 0x0"],
        [r"(?s)LDGDEPBAR(?:(?!DEPBAR\.LE SB0, 0x0 ).)*?BAR\.SYNC"],
    ),
    # fence and wait, registers handed over, operands described (lines of 128 bytes, eight of them
    # 1024 bytes apart; the swizzle of 128 bytes; across k, boxes 8192 bytes apart), lanes that
    # exchange columns
    "tensor cores": (
        lambda: product_of("plus_times", "f2", n=4096), "sr::TensorProduct<",
        [*IN_ORDER, r"USETMAXREG\.DEALLOC\.CTAPOOL 0x28",
         r"USETMAXREG\.TRY_ALLOC\.CTAPOOL UP\d, 0xe8", r"0x40000040", r"LOP3.* 0x10000,",
         r"LOP3.* 0x2000000,", r"gdesc\[UR\d+\]\.tnspB, .*gsb0", r"SHFL\.BFLY .* 0x1, ",
         r"SHFL\.BFLY .* 0x2, ", r"ACQBULK(?:.*\n)*.*PREEXIT"],
        [],
    ),
    "tensor cores, in two parts": (
        lambda: product_of("plus_times", "f4", n=1400, precision="float32_emulated"),
        "sr::TensorProduct<",
        IN_ORDER, [],
    ),
    # eight loads of 16 bytes past the first cache, then sums that lanes exchange
    "rows of few steps": (
        lambda: engine.gemv(
            sm.semirings["plus_times"], np.empty((1 << 16, 32), "f4"), np.empty(32, "f4"),
            np.empty(1 << 16, "f4"),
        ), "sr::Vector<",
        [r"LDG\.E\.128", r"SHFL\.BFLY .* 0x4, ", r"SHFL\.BFLY .* 0x1, "], [r"BAR\.SYNC", r"STL"],
    ),
    # both operands lie along k; counts become bits before lanes exchange any
    "packed truth values": (
        lambda: product_of("xor_land", "?", n=1024), "sr::TensorProduct<",
        [*IN_ORDER, r"BGMMA\.64x256x256\.AND\.POPC", r"0x40000040", r"SHFL\.BFLY .* 0x1, ",
         r"SHFL\.BFLY .* 0x2, ", r"STG\.E\.128"],
        [],
    ),
    "kinds of entries": (flags_of_a_matrix, "sr::scan_pair<", [r"STG\.E "], [r"(RED|ATOM)G"]),
    # what others join at the same time is read past the first cache, and exchanged
    "joins": (
        lambda: customized("i8"), "sr::Triangles<",
        [r"LDG\.E\.64\.STRONG\.GPU", r"ATOMG\.E\.CAS\.64\.STRONG\.GPU", r"LDG\.E\.128"],
        [r"LDG\S*CONSTANT"],
    ),
    # a block tells others what it has stored, past the first cache
    "blocks that wait for others": (
        lambda: closed("min_plus", "f4", POSITIVE), "sr::Elimination<",
        [r"ATOMG\.E\.ADD\.STRONG\.GPU", r"LDG\.E\.STRONG\.GPU.*\n(?:.*0x\w+ \*/\n)?.*CCTL\.IVALL",
         r"MEMBAR\.ALL\.GPU(?:.*\n)*?.*STG\.E\.STRONG\.GPU"],
        [],
    ),
    "rows by warps": (
        in_compressed_rows, "sr::CsrVector<",
        [*(rf"SHFL\.BFLY .* {lane:#x}, 0x1f" for lane in (16, 8, 4, 2, 1)), r"SHFL\.IDX"], [],
    ),
    "lengths of ranges": (lambda: spanning(), "sr::Between<", [r"FLO\.U32"], []),
    "votes of a warp": (lambda: hops(), "sr::HopLevel<4, false>", [r"VOTE\.ANY", "POPC"], []),
    "an old word": (lambda: hops(), "sr::HopStart<false>", [r"ATOM.*\.OR"], []),
}  # fmt: skip


@needs_nvrtc
@pytest.mark.parametrize("case", HIDDEN)
def test_instructions_that_the_host_has_other_bodies_for(case, sources_of, tmp_path, nvdisasm):
    launch, struct, expected, forbidden = HIDDEN[case]
    recorder = sources_of(launch)
    text = next(x for x in recorder.sources if struct in x)
    code = disassembled(recorder.compile(text)[0], tmp_path / "kernel.cubin", nvdisasm)
    assert [x for x in expected if not re.search(x, code)] == []
    assert [x for x in forbidden if re.search(x, code)] == []


def small_launches():
    """Every verb once, on small operands."""
    rng = np.random.default_rng(1)
    a, b, c = (rng.random((40, 40)).astype("f4") for _ in range(3))
    semiring = sm.semirings["min_plus"]
    engine.product(semiring, a, b, c)
    engine.product(semiring, a, b, c, arg=np.empty((40, 40), np.int32))
    product_of("lor_land", "?", n=40)
    product_of("log_plus", "f8", n=40)
    product_of("min_plus", "f2", POSITIVE, n=40)
    product_of("min_plus", "f2", NEGATIVE, n=40)
    product_of("max_times", "i4", WHOLE, n=40)
    product_of("plus_times", "f2", n=40)
    product_of("plus_times", "f4", n=40, precision="tf32")
    product_of("plus_times", "f2", n=1000)
    product_of("plus_times", "f4", n=1400, precision="float32_emulated")
    if device.current().arch == 90:  # elsewhere these are bits again, in tiles that take minutes
        product_of("lor_land", "?", n=1400)
        bits = engine.pack_bits(a.T > 0)
        engine.product_bits(sm.semirings["xor_land"], bits, bits, np.empty_like(bits), 40)
    engine.reduce_bits(np.zeros((40, 8), "u1"), 40)
    bits_near()
    bits_near("cosine")
    for x in (a, a.astype("f8")):
        nearest_of(x)
    engine.facts(semiring, a.astype("i8"))
    flags_of(a, b[:, ::2])
    engine.gemv(semiring, a, b[0], c[0])
    engine.gemv(semiring, a.T, b[0], c[0])
    engine.gemv(sm.Semiring("sum", "a + b", "a", 0, 1), a, b[0], c[0])
    engine.closure_block(semiring, a, None)
    ends, columns = np.arange(41, dtype="i4"), np.arange(40, dtype="i4")
    engine.csr_product(semiring, a[0], columns, ends, b[:, :1], c[:, :1])
    engine.dia_product(semiring, a, columns, b, c, Scaling(alpha=2.0))
    stack = np.stack([a, b])
    engine.closure_batch(semiring, stack, None, stack, np.empty((2, 40, 40), np.int32))
    closed("min_plus", "f4", POSITIVE)
    closed("min_plus", "i8", WHOLE, marks=True)
    engine.doubtful(semiring, a, np.empty((40, 40), np.int32))
    for other in (b, 2.0):
        engine.apply(semiring.mul_expr, c, other)
        engine.apply(semiring.mul_expr, c.T, other)
    sweeps("i4")
    hops()
    dependent()
    customized("i8")
    spanning()
    chains_of(5)
    chains_of(130)
    alignments()


def alignments():
    """By dynamic time warping, and by scores with all that they may have."""
    lengths, x = np.array([512, 0]), np.zeros((512, 1), "f4")
    rules = (
        AlignmentRule("f4", "absolute", warp=True),
        AlignmentRule("f8", "table", affine=True, local=True),
        AlignmentRule("f8", "table", affine=True, ends=15),
    )
    codes = x[:, 0].astype("i4")
    some = (rules[0], x), (rules[0], np.zeros((512, 8), "f4")), *((r, codes) for r in rules[1:])
    for rule, entries in some:
        for band in (None, 9):
            given = Ragged(entries, np.cumsum(lengths) - lengths, lengths, 512)
            wavefront.align(rule, given, given, band, [1.0] * 4, x[:1], keep=False)
    many = np.full(600, 800)  # two pairs at a time
    given = Ragged(np.zeros(600 * 800, "i4"), np.cumsum(many) - many, many, 800, True)
    for cost in ("equal", "table"):
        rule = AlignmentRule("f4", cost, affine=cost == "table", local=cost == "equal")
        wavefront.align(rule, given, given, None, [1.0] * 4, x[:1], keep=False)


def chains_of(n):
    """Rows, best paths and probabilities, each with the matrix in registers if n is small."""
    a, e, lengths = np.zeros((2, 3, n, n), "f4"), np.zeros((2, 4, n), "f4"), np.array([4, 2])
    shared = np.broadcast_to(a[:1, :1], a.shape)
    for name in ("max_plus", "log_plus"):
        chain.carry(sm.semirings[name], shared, e[:, 1:], e[:, :1], e[:, 1:, None], lengths - 1,
                    every=True, reverse=name == "log_plus", exclusive=False)  # fmt: skip
    for name, every in (("plus_times", True), ("log_plus", False)):
        chain.carry(sm.semirings[name], a, None, None, a if every else a[:, :1], lengths - 1,
                    every=every, reverse=False, exclusive=False)  # fmt: skip
    path, total = np.empty((2, 4), np.int32), np.empty(2, "f4")
    chain.best_path(sm.semirings["max_plus"], shared, e, e[:, 0], e[:, 0], path, total, lengths)
    chain.posterior(shared, e, e[:, 0], e[:, 0], total, e, np.zeros((2, 1, n, n), "f4"), lengths)
    paths, totals = np.empty((2, 3, 4), np.int32), np.empty((2, 3), "f4")
    chain.best_paths(sm.semirings["max_plus"], shared, e, e[:, 0], e[:, 0], paths, totals, lengths)
    draws = np.empty((3, 2, 4), np.int32)
    chain.draw(shared, e, e[:, 0], e[:, 0], np.zeros(draws.shape, "f4"), draws, lengths)


def spanning():
    """A spanning forest of 40 nodes in a line, and its paths."""
    a, own = np.ones((40, 40), "f4"), np.arange(40, dtype="i4")
    semiring = sm.semirings["max_min"]
    engine.symmetric(a)
    engine.best_outside(semiring, a, own, own, own.copy(), a[0].copy())
    engine.between(semiring, a[0, :39], own, own, a)
    engine.towards(Forest(own, own - 1, np.full_like(own, 40)), own, np.empty((40, 40), "i4"))


def hops(**shape):
    row, col = np.random.default_rng(0).integers(0, 40, (2, 90))
    graph = Hops(40, row, col, directed=True)
    there = HopSearches(40, graph.out, graph.back, **shape)
    there.statistics(np.arange(40), np.arange(2))
    there.rows(np.arange(40), np.float32, np.inf)


def dependent():
    """Dependencies of 40 sources, back from a level."""
    first, near = np.arange(41), np.arange(40, dtype="i4")
    there = HopDependencies(40, (first, near), (first, near), words=2)
    there.sums(np.arange(40), None, 1.0, edges=True, stress=False)
    there._launch("PathShare", 0, {})


def customized(dtype):
    n, row, col = grid(20)
    source = EdgeSource(
        sm.semirings["min_plus"],
        EdgeList(range(n), row, col, np.full(len(row), -1, dtype), True), dtype,
    )  # fmt: skip
    structure, _ = eliminate(n, row, col, sources=1)
    arcs = Arcs.of(structure, row, col, undirected=False)
    device_customizer(engine, structure, arcs)(Problem.of(source))


def sweeps(dtype, name="min_plus"):
    n, row, col = grid(20)
    weight = np.ones(len(row), dtype)
    metric = metric_of(name, n, row, col, weight, directed=False)
    size = 8 if dtype == "f8" else 4
    shape = sweeping.Shape(each=16 // size, narrow=8 // size, core=0)
    there = on_device(metric, n, shape=shape)
    there.rows(np.arange(n), edges=(row, col, weight), parents=np.empty((n, n), np.int32))
    there.statistics(np.arange(n), ["largest", "count", "sum"])
    options = {"radii": np.arange(4), "mass": np.ones(n, np.int64), "edges": np.arange(9)}
    there.statistics(np.arange(n), sweeping.KINDS, **options)


@needs_nvrtc
def test_chains_keep_the_matrix_in_registers(sources_of, tmp_path, nvdisasm):
    """32 terms of each step, and nothing of them from memory but the row: four at a time."""
    recorder = sources_of(lambda: chains_of(32))
    steps = {"Carry<Algebra, 32, true, false, false": 32, "BestPath<": 32, "Posterior<": 96}
    for kind, terms in steps.items():
        text = next(x for x in recorder.sources if kind in x)
        cubin, report = recorder.compile(text)
        found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
        assert found["FFMA" if kind == "Posterior<" else "FADD"] >= terms, found
        assert found["LDS.128"] >= 8, found
        assert "0 bytes spill stores" in report


@needs_nvrtc
def test_alignments_keep_rows_in_registers(sources_of, tmp_path, nvdisasm):
    """Eight cells a lane and step, each of two minima and two sums; four steps without tests."""
    recorder = sources_of(alignments)
    for text in recorder.sources:
        cubin, report = recorder.compile(text)
        found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
        assert "0 bytes spill stores" in report
        if "COST_ABSOLUTE" in text:
            assert found["FMNMX.NAN"] == found["FADD"] in range(5 * 16, 9 * 16, 16), found
            assert found["SHFL.IDX"] >= 2, found
        if "sr::Couple" in text:  # 13 rows of two pairs, in whole columns and in others
            table = "COST_TABLE" in text
            assert found["VIADDMNMX.S16x2"] in range(13 * 6, 13 * 10), found
            assert found["VIMNMX3.S16x2"] in range(13 * 2, 13 * 8), found
            assert found["PRMT"] >= 26 * table, found
            assert found["LDS.128"] >= 4 * table, found
    assert sum("sr::Couple" in text for text in recorder.sources) == 2


#: Of sweeps, in statistics or not: what folds an edge.
FOLDS = {"i4": ["VIADDMNMX"], "i8": ["VIADDMNMX"], "f4": ["FADD", "FMNMX.NAN"], "f8": ["DADD"]}


@needs_nvrtc
@pytest.mark.parametrize("dtype", FOLDS)
def test_sweeps_keep_their_words_in_registers(dtype, sources_of, tmp_path, nvdisasm):
    recorder = sources_of(lambda: sweeps(dtype))
    texts = sorted({x for x in recorder.sources if re.search("sr::(Rise|Fall)<", x)})
    assert len(texts) >= 4  # with statistics, and without
    if dtype in ("f4", "i8"):  # as long as the others
        texts = texts[::3]
    for text in texts:
        wide = "Rise" not in text and f"64, {2 if dtype == 'f8' else 4}, " in text
        cubin, report = recorder.compile(text)
        found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
        for instruction in FOLDS[dtype]:
            assert found[instruction] >= 4, (instruction, found)
        assert found["LDGSTS.E.BYPASS.128"] >= 6  # nodes, edges, labels
        if "sr::Rise" in text or ", 0>" in text:
            assert found["STG.E.128" if wide else "STG.E.64"] >= 2, text
        assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0
        statistics = "Rise" not in text and ", 0>" not in text
        several = re.search(r", \d{4}>", text)  # radii
        most = 200 if several else 160 if statistics else 128
        assert int(re.search(r"Used (\d+) registers", report)[1]) <= most


@needs_nvrtc
@pytest.mark.parametrize(
    ("shape", "load"), [(Shape(2), "LDG.E.64"), (Shape(4, blocks=2), "LDG.E.128")]
)
def test_searches_keep_their_words_in_registers(shape, load, sources_of, tmp_path, nvdisasm):
    recorder = sources_of(lambda: hops(shape=shape))
    text = next(x for x in recorder.sources if re.search("sr::HopLevel<., false>", x))
    cubin, report = recorder.compile(text)
    found = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)
    wide = sum(count for name, count in found.items() if name.startswith(load))
    assert wide >= 8  # rows that are under way at once, of a node and of one with many edges
    assert int(re.search(r"(\d+) bytes spill stores", report)[1]) == 0


@needs_nvrtc
def test_dependencies_have_values_under_way(sources_of, tmp_path, nvdisasm):
    """Those of four neighbours at once, before the first is added, and hardly anything spilled."""
    recorder = sources_of(dependent)
    for name, spilled in (("PathCount", 0), ("PathShare", 16)):  # bytes
        cubin, report = recorder.compile(next(x for x in recorder.sources if name in x))
        loads = operations(cubin, tmp_path / "kernel.cubin", nvdisasm)["LDG.E.64"]
        assert loads >= 8  # of two sources each, which are read apart
        assert int(re.search(r"(\d+) bytes spill stores", report)[1]) <= spilled


def test_architectures_that_lines_are_for():
    """From 75 on, which is the oldest."""
    kernels = (HERE.parent / "kernels").glob("*.cuh")
    found = re.findall(r"__CUDA_ARCH__ >= (\d+)0\b", "".join(x.read_text() for x in kernels))
    assert {75, *map(int, found)} == {*OWN_LINES, PACKED}


@needs_nvrtc
@pytest.mark.parametrize("arch", [*OWN_LINES, *SIBLINGS])
def test_every_verb_compiles_for_every_architecture(arch, sources_of):
    recorder = sources_of(small_launches, arch)
    texts = sorted(set(recorder.sources))
    assert len(texts) > 12
    if arch in SIBLINGS:
        texts = texts[SIBLINGS.index(arch) :: 5]
    with ThreadPoolExecutor() as pool:
        for cubin, report in pool.map(recorder.assemble, texts):
            assert cubin[:4] == b"\x7fELF"
            assert "warning" not in report


@needs_nvrtc
@pytest.mark.parametrize("arch", [75, 90, 120])
@pytest.mark.parametrize("storage", ["float32", "float64"])
def test_gradients_over_log_plus_keep_their_registers(storage, arch):
    report = device.compile_source(shares.shares_source(storage), arch)[1]
    assert "0 bytes spill stores" in report


@needs_nvrtc
def test_an_error_of_the_compiler_shows_the_source():
    with pytest.raises(RuntimeError, match=r"(?s)NVRTC.*expected a.*int x = ;"):
        device.compile_source("int x = ;", 90)


STEP = {
    "start": "Word start() { return 0; }",
    "left": "Word left(Left x) { return x; }",
    "right": "Word right(const Right* x) { return *x; }",
    "join": "Word join(Word x, Word) { return x; }",
    "out": "Word out(Word x, int) { return x; }",
    "one": "void one(Word& c, Word a, Word) { c = a; }",
    "take": "void take(Word& c, const Word* a, const Word*) { c = *a; }",
}


@needs_nvrtc
@pytest.mark.parametrize("missing", [None, *STEP])
def test_a_step_policy_is_told_what_it_lacks(missing):
    """kernels/steps.cuh lists the members of a policy."""
    members = "\n".join(f"SR_FN static {text}" for name, text in STEP.items() if name != missing)
    text = f"""#include "multiplier.cuh"
struct Algebra {{ using Compute = float; }};
struct Step {{
  using Algebra = ::Algebra; using Word = float; using Left = float; using Right = float;
  static constexpr int COLUMNS = 1, ELEMENTS = 1, DEPTH = 1;
  static constexpr bool PLAIN = true, RIGHT_PLAIN = true, MIXED = false, TWO = false;
  static constexpr bool DOWN = false, SHORT = true;
  {members}
}};
static_assert(sr::CheckWords<Step>::DONE && sr::CheckArithmetic<Step>::DONE);
"""
    if missing is None:
        device.compile_source(text, 90)
        return
    with pytest.raises(
        RuntimeError, match=rf'assertion failed with "a step policy has .*{missing}\('
    ):
        device.compile_source(text, 90)


# --- pure functions -----------------------------------------------------------------------------

EVERY_TILE = [(kind, tile) for kind in tiles.TILES for tile in tiles.TILES[kind]]


@pytest.mark.parametrize(("kind", "tile"), EVERY_TILE, ids=str)
def test_tiles_fit_a_multiprocessor(kind, tile):
    """As many blocks at once as the launch bounds promise, on the chips of the last years."""
    shared = tile.shared(8 if "wide" in kind else 4)
    # of a block, on sm_86 and sm_89; on sm_80, where doubles take matrix instructions
    assert shared <= (163 if kind == "matrix wide" else 99) << 10
    assert tile.blocks * (shared + 1024) <= 228 << 10  # of a multiprocessor, on sm_90
    assert tile.threads % 32 == 0
    assert tile.blocks * tile.threads <= 2048
    words = 2 if "wide" in kind else 1
    assert tile.blocks * tile.threads * tile.tm * tile.tn * words < 65536  # registers


@pytest.mark.parametrize("kind", tiles.TILES)
def test_every_step_of_k_has_a_block(kind):
    for m, words, k, batch in [
        (1, 1, 1, 1), (64, 64, 100_000, 1), (128, 262144, 128, 1), (4096, 4096, 4096, 1),
        (300, 300, 5000, 3), (17, 1, 65, 100),
    ]:  # fmt: skip
        for sms in (4, 132):
            launch = tiles.choose(kind, m, words, k, batch, sms)
            assert launch.tile in tiles.TILES[kind]
            tile, splits, k_split = launch.tile, launch.splits, launch.k_split
            parted = -(-m // tile.bm) * -(-words // tile.bn) * batch - launch.whole
            assert parted >= 0
            if parted:
                assert launch.whole % (sms * tile.blocks) == 0
                assert (splits - 1) * k_split < k <= splits * k_split
                assert k_split % tile.bk == 0
            assert tiles.choose(kind, m, words, k, batch, sms, split=False).splits == 1


def test_large_products_take_large_tiles_and_deep_ones_split_k():
    large = tiles.choose("bits", 8192, 8192, 8192, 1, 132)
    assert large.tile.bm * large.tile.bn == max(t.bm * t.bn for t in tiles.TILES["bits"])
    assert large.whole == 15 * 132
    assert large.splits > 2  # for the last 68 tiles
    assert tiles.choose("word", 64, 64, 65536, 1, 132).splits > 8
    small = tiles.choose("word", 100, 100, 100, 1, 132).tile
    assert small.bm * small.bn < 64 * 128


def test_doubles_take_narrow_tiles_where_these_fill_the_chip():
    (kind,) = tensor.kinds_of(
        make_plan(sm.semirings["plus_times"], np.dtype("f8"), None, None, 1), None, 90
    )
    for n, columns in ((1024, 64), (2048, 128), (8192, 128)):
        chosen = tensor.choose(kind, n, n, n, 1, 132, split=True)
        assert chosen.shape == (128, columns, 1)
    assert tensor.choose(kind, 1024, 1024, 1024, 1, 132, split=True).splits == 1
    assert tensor.repays(kind, 768, 768, 768, 1)
    assert not tensor.repays(kind, 64, 64, 64, 2000)


@pytest.mark.parametrize(
    ("name", "dtype", "facts", "arch", "arg", "expected"),
    [
        ("min_plus", "f4", None, 90, False, ["Nonnegative", "General"]),
        ("min_plus", "f4", None, 80, False, ["General"]),
        ("min_plus", "f2", None, 90, False, ["FloatsJoined"]),
        ("min_plus", "f2", None, 90, True, ["Nonnegative", "General"]),
        ("min_plus", "f8", None, 90, False, ["General"]),
        ("plus_times", "f4", None, 90, False, ["General"]),
        ("plus_times", "f8", None, 90, False, ["Tensor", "MatrixDoubles"]),
        ("plus_times", "f8", None, 80, False, ["MatrixDoubles"]),
        ("plus_times", "f8", None, 89, False, ["General"]),
        ("max_min", "f4", None, 90, False, ["Ordered", "General"]),
        ("max_min", "i2", None, 90, False, ["Ordered"]),
        ("min_plus", "i4", WHOLE, 90, False, ["Sums"]),
        ("min_plus", "i2", WHOLE, 90, False, ["SumsPaired"]),
        ("min_plus", "i2", WHOLE, 80, False, ["General"]),
        ("lor_land", "?", None, 75, False, ["Bits"]),
        ("max_min", "?", None, 90, True, ["General"]),
    ],
)
def test_inner_steps(name, dtype, facts, arch, arg, expected):
    ways = product._plans(
        sm.semirings[name], np.dtype(dtype), facts, facts, None, 16, PLAIN, arg, arch
    )
    assert [way.step.name for way in ways] == expected
    assert not ways[-1].step.forbidden
    kinds = [source.kind_of(x.plan, x.step, arg=arg) for x in ways if x.kind is None]
    assert all(kind in tiles.TILES for kind in kinds)


def test_twins_share_their_code():
    twin = sm.Semiring("twin", " min(a,b)", "(a+b)", np.inf, 0)
    texts = []
    for semiring in (sm.semirings["min_plus"], twin):
        plan = make_plan(semiring, np.dtype("f4"), None, None, 1)
        texts.append(source.algebra(plan))
    assert texts[0] == texts[1]
    assert "return sr::min(a, b);" in texts[0]
    assert "return (a + b);" in texts[0]


def test_numbers_in_the_text_are_exact():
    """The ends of a range have literals of their own, and infinity has none."""
    for name, dtype, expected in [
        ("min_plus", "i8", "sr::i64"), ("max_min", "i8", "(-9223372036854775807ll - 1)"),
        ("min_max", "u8", "18446744073709551615ull"),
        ("max_plus", "f4", "-sr::infinity<Compute>()"),
    ]:  # fmt: skip
        plan = make_plan(sm.semirings[name], np.dtype(dtype), WHOLE, WHOLE, 4)
        assert expected in source.algebra(plan)


def test_measured_shares_take_the_place_of_the_tables(monkeypatch, tmp_path):
    monkeypatch.setenv("SEMIRING_MM_CACHE", str(tmp_path))
    tiles.measured_shares.cache_clear()
    size = "word", 4096, 4096, 4096, 1, 132
    usual = tiles.choose(*size, device="A Card").tile
    path = tiles.keep_shares("A Card", {("word", usual): 0.01})
    assert path.parent == tmp_path
    assert tiles.choose(*size, device="A Card").tile != usual
    assert tiles.choose(*size, device="Another").tile == usual
    path.write_text("{")  # an unreadable file counts for nothing
    tiles.measured_shares.cache_clear()
    tiles.choose.cache_clear()
    assert tiles.choose(*size, device="A Card").tile == usual
    tiles.measured_shares.cache_clear()
    tiles.choose.cache_clear()
