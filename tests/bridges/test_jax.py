"""semiring_mm.jax: gradients against plain JAX, inside jit and vmap, and what is refused."""

import json
import math

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

import semiring_mm as sm

jax = pytest.importorskip("jax", reason="JAX is not here: pip install '.[jax]'")
import jax.numpy as jnp  # noqa: E402

from bench import neighbours_jax, report  # noqa: E402
from bench.measure import Line  # noqa: E402
from semiring_mm.jax import apsp, chain, matmul  # noqa: E402

inf = math.inf
CHEBYSHEV = sm.Semiring("min_maxabs", "min(a, b)", "max(abs(a), abs(b))", inf, 0)
#: ⊗ and ⊕ in JAX, over the (m, k, n) array that these products do without.
PLAIN = {
    "plus_times": (jnp.multiply, jnp.sum),
    "min_plus": (jnp.add, jnp.min),
    "max_times": (jnp.multiply, jnp.max),
    "max_min": (jnp.minimum, jnp.max),
    "plus_min": (jnp.minimum, jnp.sum),
    "log_plus": (jnp.add, jax.nn.logsumexp),
    CHEBYSHEV: (lambda a, b: jnp.maximum(abs(a), abs(b)), jnp.min),
}


@pytest.fixture(autouse=True)
def _float64_on_the_host():
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def arrays(*shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [jnp.asarray(rng.random(shape)) for shape in shapes]


def plain(a, b, semiring):
    times, plus = PLAIN[semiring]
    left, right = a[None] if a.ndim == 1 else a, b[:, None] if b.ndim == 1 else b
    c = plus(times(left[..., :, :, None], right[..., None, :, :]), axis=-2)
    return jnp.squeeze(c, [axis for axis, x in ((-2, a), (-1, b)) if x.ndim == 1])


def squares(function, semiring):
    return lambda a, b: (function(a, b, semiring) ** 2).sum()


def same(found, expected):
    jax.tree.map(lambda x, y: assert_allclose(x, y, rtol=1e-12, atol=1e-12), found, expected)


@pytest.mark.parametrize("semiring", ["plus_times", "max_times"])
def test_second_derivatives(semiring):
    a, b = arrays((3, 4), (4, 5))

    def twice(function):
        first = jax.grad(squares(function, semiring), (0, 1))
        second = jax.grad(lambda a, b: sum((x**3).sum() for x in first(a, b)), (0, 1))
        return jax.jit(second)(a, b)

    same(twice(matmul), twice(plain))


def test_results_are_those_of_the_host():
    a, b = arrays((3, 4), (4, 5))
    for x, y in ((a, b), (a.astype("bfloat16"), b.astype("bfloat16")), (a > 0.5, b > 0.5)):
        name = "lor_land" if x.dtype == bool else "max_plus"
        found = jax.jit(lambda x, y, name=name: matmul(x, y, name))(x, y)
        assert found.dtype == x.dtype
        assert_array_equal(found, sm.matmul(x, y, name))
    c, arg = jax.jit(lambda x, y: matmul(x, y, "min_plus", return_arg=True))(a, b)
    expected = sm.matmul(np.asarray(a), np.asarray(b), "min_plus", return_arg=True)
    assert_array_equal(c, expected[0])
    assert_array_equal(arg, expected[1])
    assert matmul(a[:, :0], b[:0], "min_plus").tolist() == [[inf] * 5] * 3
    assert jax.grad(lambda x: matmul(x, b[:0], "min_plus").sum())(a[:, :0]).shape == (3, 0)
    assert matmul(a.astype("float32"), b.astype("bfloat16")).dtype == jnp.float32


def test_log_plus_where_nothing_is_reached():
    a, b = arrays((3, 4), (4, 5))
    a = a.at[1].set(-inf)
    da, db = jax.grad(lambda a, b: matmul(a, b, "log_plus")[:2].sum(), (0, 1))(a, b)
    assert_array_equal(da[1], 0)
    assert_allclose(da[0].sum(), 5)
    assert_allclose(db.sum(0), 1)


def test_paths_from_some_nodes():
    (w,) = arrays((3, 6, 6))
    one = jax.jit(lambda w: apsp(w, sources=[4, 1], return_predecessors=True))
    d, p = one(w[0])
    expected = sm.apsp(np.asarray(w[0]), sources=[4, 1], return_predecessors=True)
    assert_array_equal(d, expected[0])
    assert_array_equal(p, expected[1])
    assert_array_equal(jax.vmap(one)(w)[0][0], d)
    same(
        jax.grad(lambda w: apsp(w, sources=[4, 1]).sum())(w[0]),
        jax.grad(lambda w: apsp(w)[jnp.array([4, 1])].sum())(w[0]),
    )


def test_traced_arrays_are_told_where_to_go():
    (a,) = arrays((3, 3))
    calls = (
        lambda x: sm.matmul(x, x), sm.apsp, lambda x: sm.closure(x, "min_plus"),
        lambda x: sm.gemv(1, x, x[0]),
    )  # fmt: skip
    for call in calls:
        for transformed in (jax.jit(call), jax.vmap(call), jax.grad(lambda x: call(x).sum())):  # noqa: B023
            with pytest.raises(TypeError, match=r"traced by JAX .* semiring_mm\.jax has apsp, "):
                transformed(a)


@pytest.mark.parametrize(
    "call", [lambda x: matmul(x, x, "min_plus"), jax.vmap(lambda x: matmul(x, x)), apsp]
)
def test_inside_jit_for_another_device_is_an_error(call):
    traced = jax.jit(call).trace(*arrays((2, 3, 3)))
    traced.lower(lowering_platforms=("cpu",))
    with pytest.raises(NotImplementedError, match="inside jit or vmap runs on the CPU only"):
        traced.lower(lowering_platforms=("cuda",))


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda x: matmul(x, x[:2]), ValueError, r"a of shape \(3, 3\) has k = 3, but b"),
        (lambda x: jax.jit(apsp)(-x), Exception, "NegativeCycleError"),
        (lambda x: apsp(-x), sm.NegativeCycleError, "negative"),
        (
            lambda x: jax.grad(lambda x: jax.grad(lambda x: apsp(x)[0, 1] ** 2)(x).sum())(x),
            NotImplementedError, "none of closures",
        ),
        (
            lambda x: jax.grad(
                lambda x: matmul(x, x, sm.Semiring("mine", "sqrt(a*a+b*b)", "a*b", 0, 1)).sum()
            )(x),
            NotImplementedError, "no gradient is known for mine",
        ),
        (lambda x: jax.jacfwd(lambda x: matmul(x, x))(x), TypeError, "forward-mode"),
    ],
)  # fmt: skip
def test_refusals(call, error, words):
    with pytest.raises(error, match=words):
        call(arrays((3, 3))[0])


BIG = np.full((1, 2, 2), 2**30, np.int32)
IN_JIT = {
    "matmul": (lambda x: matmul(x, x), BIG, "OverflowError: a result of plus_times does not fit"),
    "vmap": (jax.vmap(lambda x: matmul(x, x)), BIG, "OverflowError: a result of plus_times"),
    "chain": (lambda x: chain(jnp.concatenate([x, x])), BIG, "OverflowError: .* int32"),
    "apsp": (apsp, -np.ones((2, 2), "f4"), "NegativeCycleError: the graph has a cycle of negative"),
}  # fmt: skip


@pytest.mark.parametrize("name", IN_JIT)
def test_errors_inside_jit_are_told_once(name, caplog, capfd):
    """By the exception, in three lines of which the last one has the words."""
    call, x, words = IN_JIT[name]
    with pytest.raises(jax.errors.JaxRuntimeError, match=words) as caught:
        jax.block_until_ready(jax.jit(call)(x))
    assert len(str(caught.value).splitlines()) == 3
    assert not caplog.records
    assert capfd.readouterr() == ("", "")


def test_errors_inside_jit_are_told_in_full_where_jax_is_told_to(caplog):
    before = jax.config.jax_traceback_filtering
    jax.config.update("jax_traceback_filtering", "off")
    try:
        with pytest.raises(jax.errors.JaxRuntimeError, match=r"blas\.py") as caught:
            jax.block_until_ready(jax.jit(lambda x: matmul(x, x))(BIG))
    finally:
        jax.config.update("jax_traceback_filtering", before)
    assert len(str(caught.value).splitlines()) > 3
    assert caplog.records


def test_the_benchmark_runs(tmp_path, capsys):
    assert neighbours_jax.main(["--quick", "--out", str(tmp_path / "raw.json")]) == 0
    raw, printed = json.loads((tmp_path / "raw.json").read_text()), capsys.readouterr().out
    for line in raw["lines"]:
        assert line["checked"]
        assert report.pair_row(Line.from_raw(line)).startswith(f"| {line['case']} | 32 | ")
        assert f"| {line['case']} | 32 | " in printed


@pytest.mark.gpu
def test_outside_jit_on_a_device():
    try:
        home = jax.devices("gpu")[0]
    except RuntimeError as error:
        pytest.skip(f"JAX finds no GPU: {error}")
    for semiring in PLAIN:
        a, b = (jax.device_put(x, home) for x in arrays((2, 30, 40), (40, 50)))
        found = matmul(a, b, semiring)
        assert found.devices() == {home}
        same(found, plain(a, b, semiring))
        mine, expected = (jax.grad(squares(f, semiring), (0, 1)) for f in (matmul, plain))
        same(mine(a, b), expected(a, b))
        with pytest.raises(NotImplementedError, match="on the CPU only"):
            jax.jit(lambda a, b: matmul(a, b, "min_plus"))(a, b)
