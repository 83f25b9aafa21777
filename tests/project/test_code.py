"""Compiled code: what is not used any more is unloaded, and forked children can compile."""

import functools
import gc
import os
import re
import threading
import weakref

import numpy as np
import pytest
from processes import script

import semiring_mm as sm
from semiring_mm.cpu import calls, compiler, product, vector
from semiring_mm.cpu.compiler import host_target
from semiring_mm.cpu.ir import module_text
from semiring_mm.cpu.product_code import micro_function, product_code, tile_shape
from semiring_mm.engine import PLAIN
from semiring_mm.plan import Facts, make_plan

ONES = np.ones((3, 3))


def own(i, add="min(a, b)"):
    return sm.Semiring("own", add, f"a + b + {i}", np.inf, 0)


def test_code_that_is_not_used_any_more_is_unloaded(monkeypatch):
    for name in ("product_code", "choose", "_alone"):
        few = functools.lru_cache(maxsize=4)(getattr(product, name).__wrapped__)
        monkeypatch.setattr(product, name, few)
    monkeypatch.setattr(calls, "KEPT", 4)
    monkeypatch.setattr(calls, "_calls", {})
    libraries = []
    for i in range(20):
        sm.matmul(ONES, ONES, own(i))
        known = Facts(1.0, 1.0, False)
        plan, code = product.choose(own(i), ONES.dtype, known, known, None, 1, PLAIN, False)
        libraries.append(weakref.ref(code.call.library))
        del plan, code
    gc.collect()
    assert [i for i, library in enumerate(libraries) if library()] == [16, 17, 18, 19]
    assert sm.matmul(ONES, ONES, own(0)).tolist() == [[2.0] * 3] * 3  # compiled once more


def random(*shape):
    return np.random.default_rng().random(shape)


def edges():
    ends = np.random.default_rng().integers(0, 300, (2, 900))
    return sm.files.Graph(range(300), *ends, 1 + 8 * random(900), True)


CALLS = {
    "product": lambda: sm.matmul(random(70, 80), random(80, 90), "min_plus"),
    "argument": lambda: sm.matmul(random(70, 80), random(80, 90), "max_plus", return_arg=True),
    "sgemm": lambda: sm.sgemm(2.0, *(random(2, 70, 70).astype("f4"))),
    "vector": lambda: sm.gemv(None, random(700, 800), random(800), semiring="min_plus"),
    "einsum": lambda: sm.einsum("ij,kj->ik", random(70, 80), random(90, 80), semiring="max_min"),
    "paths": lambda: sm.apsp(random(90, 90), return_predecessors=True),
    "some paths": lambda: sm.apsp(edges(), sources=[3, 5]),
    "sparse paths": lambda: sm.apsp(edges()),
    "statistics": lambda: sm.statistics(edges()),
    "closure": lambda: sm.closure(random(90, 90), "max_min"),
    "neighbours": lambda: sm.neighbours.knn(random(90, 5), random(80, 5), 3),
    "distances": lambda: sm.neighbours.cdist(random(90, 5), random(80, 5)),
    "dtw": lambda: sm.alignment.dtw(random(90), random(80)),
    "edits": lambda: sm.alignment.edit_distance(*(random(2, 90) < 0.5).astype("i4")),
    "viterbi": lambda: sm.sequences.viterbi(random(20, 9), random(9, 9)),
    "marginals": lambda: sm.sequences.marginals(random(20, 9), random(9, 9)),
    "scan": lambda: sm.scan(random(30, 9, 9), semiring="min_plus"),
}  # fmt: skip


@pytest.mark.parametrize("name", CALLS)
def test_a_call_that_comes_again_compiles_nothing(name, monkeypatch):
    for _ in range(3):  # small calls are learnt
        CALLS[name]()
    monkeypatch.setattr(compiler, "_compiled", None)
    CALLS[name]()


@pytest.mark.skipif(not os.path.exists("/proc/self/maps"), reason="counts the maps in /proc")
def test_unloading_gives_the_memory_maps_back():
    """After some 20,000 semirings there would be no map left, and every compilation would fail."""

    def maps():
        with open("/proc/self/maps") as file:
            return sum(1 for _ in file)

    def compile_some(first, count):
        for i in range(first, first + count):
            plan = make_plan(own(i), ONES.dtype, Facts(1, 1, False), Facts(1, 1, False), 1)
            found = product_code.__wrapped__(plan, False)
        return found

    compile_some(0, 2)
    before = maps()
    kept = [compile_some(100 + i, 1) for i in range(10)]
    grown = maps() - before
    assert grown >= 10  # else this test sees nothing
    del kept
    gc.collect()
    compile_some(200, 20)
    assert maps() - before <= grown // 2


def test_dropping_code_does_not_wait_for_a_compilation():
    """Ctrl-C in a `__del__` that waits would be lost."""
    plan = make_plan(own(999), ONES.dtype, Facts(1, 1, False), Facts(1, 1, False), 1)
    code = product_code.__wrapped__(plan, False)
    locked, dropped = threading.Event(), threading.Event()

    def compile_long():
        with compiler._lock:
            locked.set()
            dropped.wait(60)

    thread = threading.Thread(target=compile_long)
    thread.start()
    assert locked.wait(10)
    del code
    gc.collect()
    assert thread.is_alive()  # and has the lock still
    dropped.set()
    thread.join()


def test_a_function_keeps_its_library_while_it_is_called(monkeypatch):
    """Its code is used by a thread when the cache drops it."""
    few = functools.lru_cache(maxsize=1)(vector._code.__wrapped__)
    monkeypatch.setattr(vector, "_code", few)
    a, x = np.ones((800, 900)), np.ones(900)
    wrong = []

    def multiply():
        for _ in range(100):
            if not (sm.gemv(None, a, x, semiring=own(0)) == 2).all():
                wrong.append(1)

    thread = threading.Thread(target=multiply)
    thread.start()
    i = 1
    while thread.is_alive():
        sm.gemv(None, ONES, ONES[0], semiring=own(i))
        i += 1
    thread.join()
    assert not wrong


def test_accumulators_stay_where_they_are_while_the_argument_is_kept():
    target = host_target()
    if not any(x in target.features for x in ("+avx", "+sse")):
        pytest.skip("reads x86 assembly")
    known = Facts(-1.0, 1.0, False)
    plan = make_plan(sm.semirings["min_plus"], np.dtype("f4"), known, known, 1)
    shape = tile_shape(plan, target)
    machine = compiler._machine(target)
    made = compiler._optimised(module_text([micro_function(plan, shape, arg=True)]), machine)
    text = str(machine.emit_assembly(made))
    register = r"%[xyz]mm\d+"
    assert len(re.findall(rf"vaddps.*{register}|addps.*{register}", text)) >= shape.mr
    copies = re.findall(rf"movap[sd]\s+{register}, {register}\n", text)
    # SSE's operations overwrite an operand, so that each product is a copy
    assert len(copies) <= (0 if "+avx" in target.features else shape.mr * shape.vectors)


FORKS = """
import os, signal, sys, threading, warnings
import numpy as np
import semiring_mm as sm
from semiring_mm import pool

warnings.simplefilter("ignore")
ones, big, stop = np.ones((3, 3)), np.ones((400, 400), "f4"), threading.Event()

def own(i):
    return sm.Semiring("own", "min(a, b)", f"a + b + {i}", np.inf, 0)

def compile_on():
    i = 0
    while not stop.is_set():
        sm.matmul(ones, ones, own(i))
        i += 1

sm.set_num_threads(2)
sm.matmul(big, big, "min_plus")  # the pool has threads
threading.Thread(target=compile_on).start()
failed = 0
for i in range(5):
    stop.wait(0.03)
    child = os.fork()
    if not child:
        signal.alarm(30)
        right = (sm.matmul(ones, ones, own(-5 - i)) == -3 - i).all()
        right &= (sm.matmul(big, big, "min_plus") == 2).all()
        os._exit(0 if right else 1)
    failed += os.waitpid(child, 0)[1] != 0
stop.set()
sys.exit(failed)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_compiles_and_multiplies_whatever_the_parents_threads_did():
    script(FORKS)


LATE = """
import os, signal, sys, threading
from semiring_mm.lazy import cached_property

begun, go_on = threading.Event(), threading.Event()

class Late:
    def __init__(self, number):
        self.number = number

    @cached_property
    def value(self):
        if self.number == 1:
            begun.set()
            go_on.wait()
        return [self.number]

thread = threading.Thread(target=lambda: Late(1).value)
thread.start()
begun.wait()
child = os.fork()
if not child:
    signal.alarm(30)
    late = Late(2)
    os._exit(0 if late.value == [2] and late.value is late.value else 1)
go_on.set()
thread.join()
sys.exit(os.waitpid(child, 0)[1] != 0)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_child_computes_properties_that_the_parents_threads_were_computing():
    script(LATE)
