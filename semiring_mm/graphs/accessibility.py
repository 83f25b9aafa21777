"""Accessibility: sums of what each node of a graph reaches, weighted by a decay with distance."""

from __future__ import annotations

import ast
import functools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from typing import Any

import numpy as np
from numpy.typing import NDArray

from .. import engine as engines
from .. import expressions as ex
from .. import pool
from ..arrays import Call, check_memory
from ..engine import JOIN, Engine
from ..hierarchy.devices import Placed, place
from ..hierarchy.reach import Reach, Sums
from ..lazy import cached_property
from ..plan import Plan
from ..products import multiply_into
from ..progress import Progress, Tick, part_of, reporter
from ..semirings import Semiring
from ..warn import warn
from .inputs import positions
from .prepared import PreparedGraph, distances_of
from .rows import Rows, Sweeps
from .statistics import rows_for
from .within import check_radius

__all__ = ["DECAYS", "Decay", "accessibility"]

Array = NDArray[Any]
Float = NDArray[np.float64]
Index = NDArray[np.int64]

_EXACT = 1 << 53
#: Terms that are smaller than 2⁻⁶⁴ of a weight are left out, where a decay tells which they are.
_CUT = 64 * math.log(2)
_ENTRIES = 1 << 22  # of rows that are added up at a time
_SHARE = 0.25  # of a device's free memory, for rows and what is computed of them
_EACH = 24  # bytes of a row's entry there, where it is converted
_WITHIN = ex.parse("a if a <= b else inf")


@dataclass(frozen=True)
class Rule:
    """A decay by its name."""

    parameters: tuple[str, ...]  # they are positive
    text: str  # an expression in the distance d, with the parameters in braces
    # from the parameters the distance beyond which it is below 2⁻⁶⁴, or 0
    cut: Callable[..., float]


#: Decays of :func:`accessibility`.
DECAYS = {
    "exponential": Rule(("rate",), "exp(-({rate} * d))", lambda rate: _CUT / rate),
    "gaussian": Rule(
        ("scale",), "exp(-0.5 * (d / {scale}) * (d / {scale}))",
        lambda scale: scale * math.sqrt(2 * _CUT),
    ),
    "logistic": Rule(
        ("middle", "scale"), "1 / (1 + exp((d - {middle}) / {scale}))",
        lambda middle, scale: middle + scale * _CUT,
    ),
    "power": Rule(
        ("exponent", "least"), "exp(-({exponent} * log(max(d, {least}))))",
        lambda exponent, least: math.inf,
    ),
    "linear": Rule(("end",), "max(0, 1 - d / {end})", lambda end: end),
}  # fmt: skip

_GIVE = (
    "give a name with its parameters, such as "
    + ", ".join(str((name, *rule.parameters)).replace("'", "") for name, rule in DECAYS.items())
    + ", an expression in d such as 'exp(-d / 500)', or zones {radius: value}"
)


@dataclass(frozen=True)
class Decay:
    """A decay with distance."""

    text: str  # an expression in the distance d
    cut: float = math.inf  # distances beyond count nothing

    @classmethod
    def of(cls, given: Any) -> Decay:
        """What a caller writes; None: 1 at all distances.

        Raises
        ------
        ValueError, TypeError
            If it is no decay.
        """
        if given is None:
            return cls("1")
        if isinstance(given, str) and given not in DECAYS:
            return cls(given)
        if isinstance(given, Mapping):
            return cls._zones(given)
        name, *values = given if isinstance(given, (tuple, list)) and given else [given]
        rule = DECAYS.get(name) if isinstance(name, str) else None
        if rule is None:
            raise ValueError(f"there is no decay {name!r}: {_GIVE}")
        if len(values) != len(rule.parameters):
            written = str((name, *rule.parameters)).replace(f"'{name}'", f'"{name}"')
            raise ValueError(
                f"the decay {name!r} takes {' and '.join(rule.parameters)}, in the unit of the "
                f"weights: write ({written[1:-1].replace(chr(39), '')}), got {given!r}"
            )
        for parameter, x in zip(rule.parameters, values, strict=True):
            if not 0 < check_radius(x, f"the decay {name!r}: {parameter}") < math.inf:
                raise ValueError(
                    f"the decay {name!r}: {parameter} is positive and finite, got {x!r}"
                )
        numbers = dict(zip(rule.parameters, map(float, values), strict=True))
        return cls(rule.text.format(**numbers), rule.cut(**numbers))

    @classmethod
    def _zones(cls, zones: Mapping[Any, Any]) -> Decay:
        if not zones:
            raise ValueError(f"a decay by zones has at least one: {_GIVE}")
        text = "0"
        ends = sorted((check_radius(r, "the radius of a zone"), x) for r, x in zones.items())
        for r, x in reversed(ends):
            if isinstance(x, bool) or not isinstance(x, (int, float, np.number)) or x - x != 0:
                raise ValueError(f"the value of a zone is a finite number, got {x!r}")
            text = f"{float(x)!r} if d <= {r!r} else ({text})"
        return cls(text, ends[-1][0])

    @cached_property
    def written(self) -> str:
        """The expression, in which the distance is ``a``."""
        try:
            tree = ast.parse(self.text.strip(), mode="eval")
            names = [x for x in ast.walk(tree) if isinstance(x, ast.Name)]
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            return self.text
        other = next((x.id for x in names if x.id in ("a", "b")), None)
        if other is not None:
            raise ValueError(
                f"a decay is an expression in the distance d, and {self.text!r} has {other}"
            )
        for x in names:
            x.id = "a" if x.id == "d" else x.id
        return ast.unparse(tree) if names else self.text

    @cached_property
    def expr(self) -> ex.Expr:
        """The expression, checked."""
        try:
            expr = ex.parse(self.written)
        except ValueError as error:
            raise ValueError(str(error).replace("the names a and b", "the name d")) from None
        if ex.BITWISE & expr.ops() - {"&", "|"}:
            raise ValueError(f"a decay is computed in float64, and {self.text!r} has bits")
        return expr

    def __call__(self, d: Any) -> Any:
        """Values at distances, an array of float64 of any library."""
        return ex.evaluate(self.expr, d, d)

    @cached_property
    def plan(self) -> Plan:
        """The arithmetic whose ⊗ it is, for kernels."""
        return Plan(ex.parse("a + b"), self.expr, "float64", "f64")

    @cached_property
    def product(self) -> Semiring:
        """What adds up the values at distances a, weighted by b; at infinite ones they are 0."""
        return Semiring("decay", "a + b", f"(({self.written}) if a < inf else 0) * b", 0, 1)


def accessibility(
    graph: Any,
    places: Any,
    weights: Any = None,
    *,
    radius: float | Sequence[float] | None = None,
    decay: Any = None,
    weight: str | int | None = "weight",
    source: Any = None,
    target: Any = None,
    dtype: Any = None,
    directed: bool | None = None,
    sources: Any = None,
    outward: bool = True,
    competition: Any = None,
    device: str | None = None,
    progress: Progress = None,
) -> Array:
    """Accessibility of places: of each node, the sum of weight times decay over what it reaches.

    That is A[i] = Σ w[j] f(d(i, j)) over the places j, such as shops, jobs or hospital beds:
    cumulative opportunities within a radius, gravity accessibility (Hansen, 1959), or, with
    `competition`, two-step floating catchment areas.

    Parameters
    ----------
    graph : any graph that :func:`adjacency` takes, or a prepared one of :func:`prepare`
    places : node, or sequence of nodes
        The weights of a node that comes more than once are added up.
    weights : array_like of shape (places,) or (places, columns), optional
        Finite numbers, or a table of such columns. Default: 1 each.
    radius : float or sequence of float, optional
        The distance, in the unit of the graph's weights, up to which places count, itself included;
        several at once.
    decay : tuple, str or dict, optional
        The function f of the distance d. By name, with positive parameters:

        - ``("exponential", rate)``: exp(-rate d),
        - ``("gaussian", scale)``: exp(-d² / (2 scale²)),
        - ``("logistic", middle, scale)``: 1 / (1 + exp((d - middle) / scale)),
        - ``("power", exponent, least)``: max(d, least)^-exponent,
        - ``("linear", end)``: max(0, 1 - d / end).

        Or an expression in d such as ``"exp(-d / 500)"``, of what :class:`Semiring` takes in a and
        b. Or zones, ``{300: 1, 600: 0.5}``: 1 up to 300, 0.5 up to 600, then 0. Default: 1, which
        takes a radius.
    weight, source, target, dtype, directed : optional
        As for :func:`statistics`.
    sources : node, or sequence of nodes, optional
        The nodes whose sums are wanted. Default: all nodes.
    outward : bool, default True
        In a directed graph: the distances from the nodes to the places; False: from the places.
    competition : array_like of shape (nodes,), or (sequence of nodes, array_like), optional
        The demand of the nodes, such as inhabitants. The weights are a supply then, which those who
        reach it share: w[j] becomes w[j] / Σ demand[i] f(d(i, j)), with the same radius and decay.
        A supply in reach of no demand counts nothing, and there is a warning.
    device : {None, "cpu", "cuda", "cuda:N"}
        Where to compute; None: on the CPU.
    progress : bool or callable, optional
        As for :func:`apsp`, of the nodes from which there are sweeps.

    Returns
    -------
    ndarray, shape (sources,), (sources, radii), (sources, columns) or (sources, radii, columns)
        Of int64 where whole numbers are summed without a decay, else of float64; 0 where nothing
        is reached.

    Raises
    ------
    ValueError
        If there is no such node, neither a radius nor a decay is given, a weight or a value of the
        decay is not finite, or a cycle has negative weight (:class:`NegativeCycleError`).
    OverflowError
        If whole numbers may add up to 2⁵³ or more.
    MemoryError
        If the sums do not fit.

    Notes
    -----
    Sweeps lead from the places against the edges, or from the `sources` if these are fewer; each
    leaves out what is beyond the largest radius, as for :func:`within`, and labels are added up as
    they are found. Terms of named decays that are smaller than 2⁻⁶⁴ of a weight are left out.
    Sums of whole numbers are exact. Other sums are in float64, in an order that does not depend on
    the number of threads: their relative error is below 10⁻¹³ for weights that are not negative,
    but for terms left out and what the distances themselves are rounded.

    Two-step floating catchment areas: Luo and Wang (2003); with zones (E2SFCA): Luo and Qi (2009).

    Examples
    --------
    >>> import semiring_mm as sm
    >>> net = sm.prepare({"a": {"b": 300}, "b": {"c": 400}, "c": {"d": 900}}, directed=False)
    >>> sm.accessibility(net, ["a", "d"], [10, 5], radius=[500, 1000])
    array([[10, 10],
           [10, 10],
           [ 0, 15],
           [ 5,  5]])
    >>> sm.accessibility(net, ["a", "d"], [10, 5], decay=("exponential", 0.01)).round(3)
    array([10.   ,  0.498,  0.01 ,  5.   ])
    >>> sm.accessibility(net, ["a", "d"], [10, 5], radius=1000, competition=[80, 20, 100, 0])
    array([0.05, 0.05, 0.1 , 0.05])
    """
    f = Decay.of(decay)
    if radius is None and decay is None:
        raise ValueError("give a radius, a decay, or both")
    several = not (radius is None or np.ndim(radius) == 0)
    given: list[Any] = [*radius] if several else [math.inf if radius is None else radius]  # type: ignore[misc]
    radii = np.array([check_radius(r) for r in given])
    if not len(radii):
        raise ValueError("radius: at least one, got none")
    start = float(np.asarray(f(np.zeros(1)), np.float64).max())
    if not math.isfinite(start):
        raise ValueError(
            f"the decay {f.text} is {start} at distance 0, where a place is at the node itself: "
            f"write max(d, ...) for a least distance"
        )
    edges, metric = distances_of(graph, weight, directed, source, target, dtype, "accessibility")
    at = positions(places, edges.n, edges.nodes, "places")
    if at is None:
        raise TypeError("places: a node or several, got None")
    amounts, whole, flat = _weights(weights, len(at), "weights", "place")
    demand = None if competition is None else _demand(competition, edges.n, edges.nodes)
    origins = positions(sources, edges.n, edges.nodes, "sources")
    reporter(progress, 1.0)  # the argument's own errors come first
    rows = rows_for(edges, min(len(at), edges.n), metric, metric=True)
    if isinstance(graph, PreparedGraph):
        rows.placed = graph.placed
    at, amounts = _joined(at, amounts)
    order, back = np.unique(radii, return_inverse=True)
    every, same = (None, None) if origins is None else np.unique(origins, return_inverse=True)
    with Call(device) as call:
        away = call.engine.FactorSweeps is not None
        if away and not isinstance(rows, Sweeps):
            raise ValueError(
                "this graph has large separators and is searched on the CPU: leave out device, or "
                "prepare it"
            )
        sums = _Sums(rows, f, progress, away=away)
        if demand is None:
            exact = whole and decay is None
            if exact and np.abs(amounts).sum(axis=0).max(initial=0) >= _EXACT:
                raise OverflowError(
                    "the weights are whole numbers that may add up to 2**53 or more: give them as "
                    "floating-point numbers"
                )
            total = sums.of(at, amounts, order, every, outward=outward)
            result: Array = total.astype(np.int64) if exact else total
        else:
            parts = []
            for r in order:
                there = sums.of(*demand, np.array([r]), at, outward=not outward)[:, 0, :1]
                lost = (there[:, 0] == 0) & (amounts != 0).any(axis=1)
                if lost.any():
                    one = edges.nodes[int(at[np.flatnonzero(lost)[0]])]
                    warn(
                        f"{lost.sum()} of {len(at)} places, such as {one!r}, are in reach of no "
                        f"demand: their supply counts nothing"
                    )
                share = np.divide(amounts, there, out=np.zeros(amounts.shape), where=there != 0)
                parts.append(sums.of(at, share, np.array([r]), every, outward=outward))
            result = np.concatenate(parts, axis=1)
    result = result if same is None else result[same]
    result = result[:, back]
    if not np.isfinite(result).all():
        raise ValueError(f"the decay {f.text} is not finite at all distances that are reached")
    result = result if several else result[:, 0]
    return result[..., 0] if flat else result


def _weights(weights: Any, count: int, name: str, what: str) -> tuple[Float, bool, bool]:
    """Columns of numbers, whether they are whole, and whether there is one that is no column."""
    if weights is None:
        return np.ones((count, 1)), True, True
    found = np.asarray(weights)
    if found.ndim not in (1, 2) or len(found) != count:
        raise ValueError(
            f"{name}: a number for each {what}, of shape ({count},) or ({count}, columns), got "
            f"shape {found.shape}"
        )
    if found.dtype.kind == "O" and all(isinstance(x, Real) for x in found.flat):
        found = found.astype(np.float64)
    if found.dtype.kind not in "biuf":
        raise TypeError(f"{name} are numbers, got dtype {found.dtype}")
    values = found.astype(np.float64)
    if not np.isfinite(values).all():
        i = int(np.flatnonzero(~np.isfinite(values.reshape(count, -1)).all(axis=1))[0])
        raise ValueError(f"{name} are finite, got {found[i].tolist()} for {what} {i}")
    flat = found.ndim == 1
    return values[:, np.newaxis] if flat else values, found.dtype.kind in "biu", flat


def _demand(given: Any, n: int, nodes: Sequence[Any]) -> tuple[Index, Float]:
    """The nodes that have a demand, and theirs."""
    at: Index | None = None
    if isinstance(given, tuple) and len(given) == 2:
        at, given = positions(given[0], n, nodes, "competition"), given[1]
    count = n if at is None else len(at)
    values, _, flat = _weights(given, count, "competition", "node")
    if not flat or (values < 0).any():
        raise ValueError("competition: a demand for each node, one number that is not negative")
    return _joined(np.arange(n) if at is None else at, values)


def _joined(at: Index, amounts: Float) -> tuple[Index, Float]:
    """Each node once, and none whose amounts are 0."""
    nodes, place = np.unique(at, return_inverse=True)
    total = np.zeros((len(nodes), amounts.shape[1]))
    np.add.at(total, place, amounts)
    kept = (total != 0).any(axis=1)
    return nodes[kept], total[kept]


class _Sums:
    """Sums over what is reached, by sweeps on the host or rows of distances."""

    def __init__(self, rows: Rows, decay: Decay, progress: Progress, *, away: bool) -> None:
        self.rows, self.decay, self.progress, self.away = rows, decay, progress, away

    def of(
        self, places: Index, amounts: Float, radii: Float, origins: Index | None, *, outward: bool
    ) -> Float:
        """Of origins, each once, or all nodes: an array of shape (origins, radii, columns)."""
        rows, n = self.rows, self.rows.problem.source.n
        count = n if origins is None else len(origins)
        shape = count, len(radii), amounts.shape[1]
        check_memory(
            8 * math.prod(shape) * (3 if self.away else 2 * pool.get_num_threads() + 3),
            f"the sums of {count} x {len(radii)} x {shape[2]} entries",
        )
        if not (len(places) and math.prod(shape)):
            return np.zeros(shape)
        back = len(places) <= count  # sweeps lead from the places, against the edges
        rows = rows.reversed if back == outward else rows
        start, end = (places, origins) if back else (origins, places)
        start = np.arange(n) if start is None else start
        tick = reporter(self.progress, float(len(start)), rows.method, "sources")
        if not self.away and isinstance(rows, Sweeps):
            return self._by_sweeps(rows, start, end, amounts, radii, shape, back, tick)
        return self._by_rows(rows, start, end, amounts, radii, shape, back, tick)

    def _by_sweeps(
        self, rows: Sweeps, start: Index, end: Index | None, amounts: Float, radii: Float,
        shape: tuple[int, int, int], back: bool, tick: Tick | None,
    ) -> Float:  # fmt: skip
        limit = min(float(radii[-1]), self.decay.cut)
        count = max(2, len(start))  # in blocks
        reach = Reach(rows.metric, limit, count, end, in_order=back)
        check_memory(reach.bytes(whole=False), f"the work by {rows.method}")
        sums = Sums(reach, self.decay.plan, radii)
        order = rows.order(start)
        position = rows.metric.structure.rank[start[order]].astype(np.int64)
        told = part_of(tick, 0.0, len(start))
        if back:
            total = np.zeros(shape)
            sums.at_vertices(position, np.ascontiguousarray(amounts[order].T), total, told)
            return total if end is not None else total[rows.metric.structure.rank]
        total = np.empty(shape)
        total[order] = sums.at_sources(position, np.ascontiguousarray(amounts.T), told)
        return total

    def _by_rows(
        self, rows: Rows, start: Index, end: Index | None, amounts: Float, radii: Float,
        shape: tuple[int, int, int], back: bool, tick: Tick | None,
    ) -> Float:  # fmt: skip
        """The same by rows of distances, of some sources at a time, on the host or a device."""
        n = rows.problem.source.n if end is None else len(end)
        engine, lines, add = engines.named("cpu"), max(1, _ENTRIES // n), self._add_on_host
        distances: Callable[[Index], Any] = functools.partial(rows.rows, columns=end)
        if self.away:
            assert isinstance(rows, Sweeps)
            placed = self._placed(rows)
            engine, sweeps = placed.engine, placed.sweeps[0][1]
            kind = rows.dtype if rows.dtype.kind == "f" else sweeps.factor.dtype
            far = rows.problem.steps.s.identities(kind)[0]

            def on_device(some: Index) -> Any:
                d = sweeps.rows(some, targets=end, out=engine.xp.empty((len(some), n), kind))
                d = d if kind.kind == "f" else engine.xp.where(d == far, math.inf, d)
                return d.astype(np.float64, copy=False)

            room = int(_SHARE * (engine.free_memory() or 0)) // (_EACH * n)
            lines, distances = max(sweeps.width, room), on_device
            radii = radii.astype(kind if kind.kind == "f" else np.float64)
            add = functools.partial(self._add_on_device, engine)
        count, several, columns = shape
        total, weight = engine.xp.zeros((several, count, columns)), engine.xp.asarray(amounts)
        for begin in range(0, len(start), lines):
            part = slice(begin, begin + lines)
            d = distances(start[part])
            if back:
                add(d.T, radii, weight[part], total)
            else:
                add(d, radii, weight, total[:, part])
            if tick is not None:
                tick(float(min(begin + lines, len(start))))
        return np.asarray(engine.to_host(total), np.float64).transpose(1, 0, 2)

    def _add_on_host(self, d: Array, radii: Float, weight: Float, total: Float) -> None:
        """Add to sums the weights times the decay at distances up to each of the radii."""
        limits = np.minimum(radii, np.finfo(d.dtype).max).tolist()
        value = self.decay(np.where(d <= limits[-1], d, 0.0).astype(np.float64, copy=False))
        for limit, sums in zip(limits, total, strict=True):
            # another product may depend on the number of threads
            sums += np.einsum("ij,ja->ia", np.where(d <= limit, value, 0.0), weight)

    def _add_on_device(self, engine: Engine, d: Any, radii: Float, weight: Any, total: Any) -> None:
        """The same on a device, where `d` is overwritten."""
        along = d if d.strides[1] == d.itemsize else d.T
        for limit, sums in zip(radii[::-1].tolist(), total[::-1], strict=True):
            if limit < math.inf:
                engine.apply(_WITHIN, along, limit)
            multiply_into(engine, self.decay.product, d, weight, sums, JOIN)

    def _placed(self, rows: Sweeps) -> Placed:
        """The metric on the current device, which may be there already."""
        given = self.rows
        forward = isinstance(given, Sweeps) and (rows.metric is given.metric or given.symmetric)
        if forward and given.placed is not None:
            return given.placed([-1])
        return place(rows.metric, [-1])
