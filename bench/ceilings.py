"""Peak rates of this machine's cores: loops in registers, and reading memory.

Each form of an inner step is written as LLVM IR for the host's vectors and timed on as many
threads as the operation it is compared with. Every step feeds its own accumulator back,
`acc = min(acc + b, a)`, so that nothing can be hoisted, folded or left out; there are enough
accumulators to hide the latency of the longest step.
"""

from __future__ import annotations

import ctypes
import re
import threading
import time
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

import numpy as np

#: Ceiling: (element, {form: steps on the accumulator}). The ceiling is its best form's rate.
STEPS: dict[str, tuple[str, dict[str, str]]] = {
    "min-plus f32": ("float", {"add, min": "fadd b; fmin a", "fma, min": "fma one b; fmin a"}),
    "min-plus f64": ("double", {"add, min": "fadd b; fmin a", "fma, min": "fma one b; fmin a"}),
    "min-plus i64": ("i64", {"add, min": "add b; smin a"}),
    "min-plus i32": ("i32", {"add, min": "add b; smin a"}),
    "min-plus i16": ("i16", {"add, min": "add b; smin a", "adds, min": "sadd b; smin a"}),
    "min-plus i8": ("i8", {"add, min": "add b; smin a", "adds, min": "sadd b; smin a"}),
    "max-min f32": ("float", {"floats": "fmin a; fmax b"}),
    "max-min f32 as keys": ("i32", {"keys": "smin a; smax b"}),
    "max-times f32": ("float", {"mul, max": "fmul b; fmax a"}),
    "plus-times f32": ("float", {"fma": "fma b a"}),
    "plus-times f64": ("double", {"fma": "fma b a"}),
    "or-and bits": ("i32", {"and, or": "and b; or a"}),
}
#: An operation that may be computed in more than one way has the best of them as its ceiling.
EITHER = {"max-min f32": ("max-min f32", "max-min f32 as keys")}
STREAMS = (1, 4, 8)  # forms of "read": rows that one thread reads at a time
READ = "read"
READ_BYTES = 256 << 20  # beyond any L3 that one machine's core is given
BITS = {"float": 32, "double": 64, "i64": 64, "i32": 32, "i16": 16, "i8": 8}
_LLVM_NAME = {"float": "f32", "double": "f64"}


def vector_bits(features: Any) -> tuple[int, int]:
    """Width of the host's vectors and how many accumulators leave room for three operands."""
    if features.get("avx512f") and features.get("avx512bw"):
        return 512, 24
    return (256, 10) if features.get("avx2") else (128, 10)


def step_ir(steps: str, element: str, lanes: int, acc: str, tag: str) -> tuple[list[str], str]:
    """One pair per lane on `acc`: the lines of IR, and the name of the new accumulator."""
    vector, suffix = f"<{lanes} x {element}>", f"v{lanes}{_LLVM_NAME.get(element, element)}"
    lines = []
    for i, step in enumerate(steps.split("; ")):
        op, *operands = step.split()
        x, new = f"%{operands[0]}", f"%{tag}.{i}"
        if op in ("fmin", "fmax"):  # the form that x86 has one instruction for
            lines.append(f"{new}.c = fcmp {'olt' if op == 'fmin' else 'ogt'} {vector} {acc}, {x}")
            lines.append(f"{new} = select <{lanes} x i1> {new}.c, {vector} {acc}, {vector} {x}")
        elif op == "fma":
            call = f"{vector} {acc}, {vector} {x}, {vector} %{operands[1]}"
            lines.append(f"{new} = call {vector} @llvm.fma.{suffix}({call})")
        elif op in ("smin", "smax", "sadd"):
            name = f"llvm.{op}.sat" if op == "sadd" else f"llvm.{op}"
            call = f"{vector} {acc}, {vector} {x}"
            lines.append(f"{new} = call {vector} @{name}.{suffix}({call})")
        else:
            lines.append(f"{new} = {op} {vector} {acc}, {x}")
        acc = new
    return lines, acc


def loop_ir(name: str, element: str, steps: str, width: int, accumulators: int) -> str:
    """`void name(int64 n, const void *operands, void *out)`: n times a step per accumulator."""
    lanes = width // BITS[element]
    vector, every = f"<{lanes} x {element}>", range(accumulators)
    head, phis, body, tail = [], [], [], []
    for i, operand in enumerate(["a", "b", "one", *(f"s{j}" for j in every)]):
        head += [
            f"%p.{operand} = getelementptr i8, ptr %in, i64 {i * width // 8}",
            f"%{operand} = load {vector}, ptr %p.{operand}, align 1",
        ]
    for j in every:
        lines, last = step_ir(steps, element, lanes, f"%x{j}", f"t{j}")
        phis.append(f"%x{j} = phi {vector} [ %s{j}, %entry ], [ {last}, %loop ]")
        body += lines
        tail += [
            f"%q{j} = getelementptr i8, ptr %out, i64 {j * width // 8}",
            f"store {vector} {last}, ptr %q{j}, align 1",
        ]
    return _function(name, head, phis, body, tail, "1")


def read_ir(name: str, streams: int, width: int) -> str:
    """`void name(int64 n, const void *data, void *out)`: read n bytes in `streams` runs."""
    vector, each = f"<{width // 32} x i32>", width // 8
    head = [f"%part = sdiv i64 %n, {streams}", f"%end = sub i64 %part, {4 * each - 1}"]
    body, phis, tail = [], [], []
    for s in range(streams):
        head += [
            f"%off{s} = mul i64 %part, {s}",
            f"%base{s} = getelementptr i8, ptr %in, i64 %off{s}",
        ]
        body.append(f"%at{s} = getelementptr i8, ptr %base{s}, i64 %i")
        for j in range(4):
            acc = f"{s}.{j}"
            phis.append(f"%x{acc} = phi {vector} [ zeroinitializer, %entry ], [ %y{acc}, %loop ]")
            body += [
                f"%r{acc} = getelementptr i8, ptr %at{s}, i64 {j * each}",
                f"%v{acc} = load {vector}, ptr %r{acc}, align 4",
                f"%y{acc} = or {vector} %x{acc}, %v{acc}",
            ]
            tail += [
                f"%q{acc} = getelementptr i8, ptr %out, i64 {(4 * s + j) * each}",
                f"store {vector} %y{acc}, ptr %q{acc}, align 1",
            ]
    return _function(name, head, phis, body, tail, str(4 * each), "%end")


def _function(
    name: str,
    head: Sequence[str],
    phis: Sequence[str],
    body: Sequence[str],
    tail: Sequence[str],
    stride: str,
    end: str = "%n",
) -> str:
    lines = [
        f"define void @{name}(i64 %n, ptr noalias %in, ptr noalias %out) nounwind {{",
        "entry:",
        *head,
        "br label %loop",
        "loop:",
        "%i = phi i64 [ 0, %entry ], [ %i.next, %loop ]",
        *phis,
        *body,
        f"%i.next = add i64 %i, {stride}",
        f"%more = icmp slt i64 %i.next, {end}",
        "br i1 %more, label %loop, label %done",
        "done:",
        *tail,
        "ret void",
        "}",
    ]
    return "\n".join(lines)


@cache
def _compiled() -> tuple[int, int, Callable[[str], Any], str]:
    """(vector bits, accumulators, function by name, assembly) of all loops, compiled once."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    features = llvm.get_host_cpu_features()
    machine = llvm.Target.from_default_triple().create_target_machine(
        cpu=llvm.get_host_cpu_name(), features=features.flatten(), opt=3, jit=True
    )
    width, accumulators = vector_bits(features)
    parts = [
        loop_ir(_symbol(ceiling, form), element, steps, width, accumulators)
        for ceiling, (element, forms) in STEPS.items()
        for form, steps in forms.items()
    ]
    parts += [read_ir(_symbol(READ, str(s)), s, width) for s in STREAMS]
    module = llvm.parse_assembly(module_ir(parts))
    module.verify()
    library = (
        llvm.JITLibraryBuilder().add_object_img(machine.emit_object(module)).add_current_process()
    )
    for part in parts:
        library.export_symbol(part.split("@")[1].split("(")[0])
    compiler = llvm.create_lljit_compiler()
    tracker = library.link(compiler, "ceilings")
    signature = ctypes.CFUNCTYPE(None, ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p)

    def lookup(name: str, keep: Any = (compiler, tracker)) -> Any:  # keep: the code's owners
        return signature(tracker[name])

    return width, accumulators, lookup, machine.emit_assembly(module)


def module_ir(functions: Sequence[str]) -> str:
    """The functions, and declarations of the intrinsics that they call."""
    calls = re.findall(r"call (.*)", "\n".join(functions))
    return "\n".join([*sorted({_declare(call) for call in calls}), *functions])


def _symbol(ceiling: str, form: str) -> str:
    return "".join(c if c.isalnum() else "_" for c in f"{ceiling} {form}")


def _declare(call: str) -> str:
    """The declaration of the intrinsic in `type @name(type %x, ...)`."""
    result, rest = call.split(" @")
    name, arguments = rest.split("(", 1)
    return f"declare {result} @{name}({', '.join([result] * arguments.count('%'))})"


def assembly() -> str:
    """The loops as compiled for this host, to look at."""
    return _compiled()[3]


def _elapsed(calls: Sequence[Callable[[], Any]]) -> float:
    """Seconds from the first start to the last end of calls made at once, one thread each."""
    barrier = threading.Barrier(len(calls))
    spans: list[tuple[float, float]] = []

    def run(call: Callable[[], Any]) -> None:
        barrier.wait()
        start = time.perf_counter()
        call()
        spans.append((start, time.perf_counter()))

    threads = [threading.Thread(target=run, args=(call,)) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return max(end for _, end in spans) - min(start for start, _ in spans)


def _operands(element: str, width: int, accumulators: int) -> Any:
    """a, b, one, then the accumulators' first values: ordinary numbers, no denormals."""
    rng = np.random.default_rng(1)
    shape = (3 + accumulators, width // BITS[element])
    if element in _LLVM_NAME:
        values = rng.uniform(1, 2, shape)
        values[1] /= 4
        values[2] = 1
        return values.astype(f"f{BITS[element] // 8}")
    return rng.integers(0, 100, shape).astype(f"i{BITS[element] // 8}")


def measure(
    ceiling: str, threads: int, *, seconds: float = 0.05, repeat: int = 5
) -> dict[str, list[float]]:
    """Every form's samples: pairs a second (bit pairs for "or-and bits", bytes for "read")."""
    if ceiling == READ:
        return _measure_read(threads, READ_BYTES if seconds >= 0.05 else 1 << 20, repeat)
    width, accumulators, lookup, _ = _compiled()
    samples: dict[str, list[float]] = {}
    for name in EITHER.get(ceiling, (ceiling,)):
        element, forms = STEPS[name]
        data = _operands(element, width, accumulators)
        outs = [np.empty_like(data) for _ in range(threads)]
        pairs = accumulators * width // (1 if ceiling == "or-and bits" else BITS[element])
        for form in forms:
            function = lookup(_symbol(name, form))

            def rate(
                n: int, outs: Any = outs, function: Any = function, data: Any = data,
                pairs: int = pairs,
            ) -> float:  # fmt: skip
                calls = [
                    lambda out=out: function(n, data.ctypes.data, out.ctypes.data) for out in outs
                ]
                return n * pairs * len(outs) / _elapsed(calls)

            # by one thread: the start of many takes longer than this
            n = max(1, int(rate(20_000, outs[:1]) * seconds / pairs))
            samples[form] = [rate(n) for _ in range(repeat)]
    return samples


def _measure_read(threads: int, size: int, repeat: int) -> dict[str, list[float]]:
    width, _, lookup, _ = _compiled()
    chunk = size // threads // 4096 * 4096
    data: Any = np.ones(chunk * threads // 4, np.int32)
    outs: list[Any] = [np.empty(4 * max(STREAMS) * width // 8, np.uint8) for _ in range(threads)]
    samples = {}
    for streams in STREAMS:
        function = lookup(_symbol(READ, str(streams)))
        calls = [
            lambda t=t, out=out, f=function: f(chunk, data.ctypes.data + t * chunk, out.ctypes.data)
            for t, out in enumerate(outs)
        ]
        samples[f"{streams} at a time"] = [
            chunk * threads / _elapsed(calls) for _ in range(repeat + 1)
        ][1:]
    return samples


def best(samples: dict[str, list[float]]) -> tuple[str, float]:
    """The form with the best sample, and that sample."""
    form = max(samples, key=lambda name: max(samples[name]))
    return form, max(samples[form])
