"""Elementary functions on vectors, emitted inline through the IR builder.

Every function takes the :class:`~.ir.Function` where its code goes and values of :data:`~.ir.F32`
or :data:`~.ir.F64` with any number of lanes, and emits straight-line code: no calls, tables,
branches or integer conversions, only multiply-adds, selects and operations on the exponent's bits.
Special values are those of NumPy.

The arguments are reduced as W. J. Cody and W. Waite do ("Software Manual for the Elementary
Functions", 1980): ``exp(x) = 2**k * exp(r)`` with ``|r| <= log(2) / 2``, and
``log(x) = e * log(2) + log1p(r)`` with ``1 + r`` in [sqrt(1/2), sqrt(2)). What is left is
``r + r**2 * Q(r)`` for both ``expm1`` and ``log1p``. Each Q is the polynomial of least weighted
error, found with Remez's exchange in 50 digits so that the weighted error is the relative one of
the whole, its coefficients then rounded to the type. :class:`_Format` has the errors; with the
roundings they bound the functions by the units in the last place that their docstrings state.
Rounding to an integer is the addition of 1.5 * 2**mantissa, whose low bits are then the integer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from .ir import Function, Type, Value

__all__ = ["LogSum", "add_exp", "exp", "expm1", "lifted_exp", "log", "log1p", "logaddexp"]


@dataclass(frozen=True)
class _Format:
    """Constants of a floating-point type."""

    mantissa: int  # stored bits of the significand
    bias: int  # of the exponent
    ln2: tuple[float, float]  # log(2) in two parts
    exp_range: tuple[float, float]  # outside it ``exp`` is zero or infinite
    expm1_low: float  # below it ``expm1`` is -1
    expm1_q: tuple[float, ...]  # Q of ``expm1``, lowest power first
    log1p_q: tuple[float, ...]  # and of ``log1p``
    unit_exp_q: tuple[float, ...]  # Q of ``exp`` in :func:`logaddexp`
    unit_log1p_q: tuple[float, ...]  # and of ``log1p``, there of arguments in [0, 1]

    @property
    def magic(self) -> float:
        """Added to a small number it leaves the nearest integer in the low bits."""
        return 1.5 * 2.0**self.mantissa

    @property
    def magic_bits(self) -> int:
        return ((self.bias + self.mantissa) << self.mantissa) | (1 << (self.mantissa - 1))

    @property
    def root_bits(self) -> int:
        """Bits of sqrt(1/2), rounded down."""
        significand = math.isqrt(1 << (2 * self.mantissa + 1)) - (1 << self.mantissa)
        return ((self.bias - 1) << self.mantissa) | significand


_FORMATS = {
    32: _Format(
        mantissa=23,
        bias=127,
        ln2=(0.693147182464599609375, -1.904654299957768e-09),
        exp_range=(-104.0, 89.0),
        expm1_low=-20.0,
        expm1_q=(0.5, 0.1666655, 0.041666854, 0.00836604, 0.0013898208),  # 2**-26.0
        log1p_q=(  # 2**-27.2
            -0.5,
            0.3333333,
            -0.2500082,
            0.20001228,
            -0.16623358,
            0.14201741,
            -0.13160154,
            0.12761673,
            -0.07634677,
        ),
        unit_exp_q=(0.4999923, 0.16667116, 0.041890148, 0.00831249),  # 2**-23.1
        unit_log1p_q=(  # 2**-24.6
            -0.49999648,
            0.33321324,
            -0.24857163,
            0.19153653,
            -0.13753799,
            0.079204485,
            -0.030065762,
            0.0053648166,
        ),
    ),
    64: _Format(
        mantissa=52,
        bias=1023,
        ln2=(0.6931471805599453, 2.3190468138462996e-17),
        exp_range=(-746.0, 710.0),
        expm1_low=-40.0,
        expm1_q=(  # 2**-59.2
            0.5,
            0.16666666666666677,
            0.04166666666666658,
            0.008333333333322158,
            0.0013888888888942668,
            0.000198412698849448,
            2.4801587198218958e-05,
            2.7557245291720596e-06,
            2.7557387046510805e-07,
            2.5108687372397102e-08,
            2.087891144586344e-09,
        ),
        log1p_q=(  # 2**-56.2
            -0.5,
            0.3333333333333314,
            -0.24999999999987976,
            0.20000000000066606,
            -0.1666666666982602,
            0.14285714280093958,
            -0.12499999691432503,
            0.11111111147406155,
            -0.10000015206652751,
            0.09090923934292913,
            -0.08332913532984908,
            0.07691529762750526,
            -0.07149439576587358,
            0.06684589861800393,
            -0.06196678564133682,
            0.0566837257742023,
            -0.0567777812124957,
            0.06503503197653088,
            -0.059817318126382545,
            0.026151094883101793,
        ),
        unit_exp_q=(  # 2**-55.1
            0.5,
            0.16666666666666602,
            0.04166666666662,
            0.008333333333388395,
            0.0013888888920499905,
            0.00019841269709322662,
            2.480151636110687e-05,
            2.7557425092609332e-06,
            2.7622221214738267e-07,
            2.504589590776118e-08,
        ),
        unit_log1p_q=(  # 2**-53.6
            -0.49999999999997,
            0.3333333333283824,
            -0.24999999971096903,
            0.19999999135160804,
            -0.16666651022263743,
            0.14285526311305138,
            -0.12498406286414518,
            0.1110117117034175,
            -0.09953000369858053,
            0.08918572594636084,
            -0.07834468002761108,
            0.06534891934394801,
            -0.04959114171840619,
            0.03260674927347902,
            -0.01763259159246783,
            0.007397228258796198,
            -0.002230975356447049,
            0.0004269625279155839,
            -3.8739095779367845e-05,
        ),
    ),
}

_INF, _NAN = math.inf, math.nan
_LOG2_E = 1 / math.log(2)


def _format(x: Value) -> _Format:
    if x.type.kind != "f" or x.type.bits not in _FORMATS:
        raise TypeError(f"elementary functions are of float or double, got {x.type}")
    return _FORMATS[x.type.bits]


def _integers(x: Value) -> Type:
    return Type("i", x.type.bits, x.type.lanes)


def _horner(f: Function, x: Value, coefficients: Sequence[float]) -> Value:
    """The polynomial with these coefficients, lowest power first."""
    total = f.const(coefficients[-1], x.type)
    for c in coefficients[-2::-1]:
        total = f.fma(total, x, f.const(c, x.type))
    return total


def _tail(f: Function, x: Value, q: Sequence[float], head: Value, rest: Value) -> Value:
    """The sum head + (x**2 * Q(x) + rest); even and odd powers apart halve the latency."""
    square = x * x
    even, odd = _horner(f, square, q[0::2]), _horner(f, square, q[1::2])
    return head + f.fma(square, f.fma(odd, x, even), rest)


def _clamp(f: Function, x: Value, low: float, high: float) -> Value:
    """Limit x; NaN stays."""
    lo, hi = f.const(low, x.type), f.const(high, x.type)
    x = f.select(x.cmp("<", lo), lo, x)
    return f.select(x.cmp(">", hi), hi, x)


def _reduced_expm1(f: Function, x: Value) -> tuple[Value, Value]:
    """Integer k and expm1(r), r = x - k * log(2), ``|r| <= log(2) / 2``."""
    fmt = _format(x)
    magic = f.const(fmt.magic, x.type)
    shifted = f.fma(x, f.const(_LOG2_E, x.type), magic)
    whole = shifted - magic
    head = f.fma(whole, f.const(-fmt.ln2[0], x.type), x)  # exact
    rest = whole * -fmt.ln2[1]
    value = _tail(f, head + rest, fmt.expm1_q, head, rest)
    return shifted.bits_as(_integers(x)) - fmt.magic_bits, value


def _power(x: Value, k: Value) -> Value:
    """2**k in the type of x, where that is a normal number."""
    fmt = _format(x)
    return ((k + fmt.bias) << fmt.mantissa).bits_as(x.type)


def exp(f: Function, x: Value) -> Value:
    """Exponential, within 1 ulp, with gradual underflow."""
    k, value = _reduced_expm1(f, _clamp(f, x, *_format(x).exp_range))
    half = k >> 1  # 2**k itself may be out of range; only the last product rounds
    return (value + 1.0) * _power(x, half) * _power(x, k - half)


def expm1(f: Function, x: Value) -> Value:
    """``exp(x) - 1`` without cancellation, within 2 ulp."""
    fmt = _format(x)
    k, value = _reduced_expm1(f, _clamp(f, x, fmt.expm1_low, fmt.exp_range[1]))
    scale = _power(x, k - 1)  # half, lest it overflow before the result does
    result = f.fma(value, scale, scale - 0.5) * 2.0
    return _keep_tiny(f, x, result)


def _keep_tiny(f: Function, x: Value, result: Value) -> Value:
    """Where x is so small that the function is x, sign of zero and denormals included."""
    return f.select(f.intrinsic("fabs", x).cmp("<", 2.0 ** -(_format(x).mantissa + 3)), x, result)


def _split(x: Value) -> tuple[Value, Value]:
    """Integer e and m in [sqrt(1/2), sqrt(2)) with x = 2**e * m, for normal positive x."""
    fmt = _format(x)
    bits = x.bits_as(_integers(x)) - fmt.root_bits
    m = (bits & ((1 << fmt.mantissa) - 1)) + fmt.root_bits
    return bits >> fmt.mantissa, m.bits_as(x.type)


def _log_split(f: Function, e: Value, r: Value, origin: Value) -> Value:
    """(e + magic - origin) * log(2) + log1p(r), r in [sqrt(1/2) - 1, sqrt(2) - 1)."""
    fmt = _format(r)
    whole = (e + fmt.magic_bits).bits_as(r.type) - origin
    result = _tail(f, r, fmt.log1p_q, r, whole * fmt.ln2[1])
    return f.fma(whole, f.const(fmt.ln2[0], r.type), result)


def _log_ends(f: Function, x: Value, pole: float, result: Value) -> Value:
    """Infinity and NaN as they are, -inf at the pole, NaN below it."""
    result = f.select(x.cmp("<", _INF), result, x)
    result = f.select(x.cmp("<", pole), f.const(_NAN, x.type), result)
    return f.select(x.cmp("==", pole), f.const(-_INF, x.type), result)


def log(f: Function, x: Value) -> Value:
    """Natural logarithm, within 1.1 ulp, denormals included; -inf at zero, NaN below."""
    fmt = _format(x)
    small = x.cmp("<", 2.0 ** (1 - fmt.bias))
    normal = f.select(small, x * 2.0**fmt.mantissa, x)
    magic = f.const(fmt.magic, x.type)
    origin = f.select(small, f.const(fmt.magic + fmt.mantissa, x.type), magic)
    e, m = _split(normal)
    return _log_ends(f, x, 0.0, _log_split(f, e, m - 1.0, origin))


def log1p(f: Function, x: Value) -> Value:
    """``log(1 + x)`` without cancellation, within 1.6 ulp; -inf at -1, NaN below.

    Only the exponent is taken from the rounded 1 + x; the rest is ``2**-e * (1 + x) - 1`` with one
    rounding, by a multiply-add.
    """
    e, _ = _split(x + 1.0)
    scale = _power(x, -e + 2)  # 2**-e itself may be denormal
    quarter = f.const(0.25, x.type)
    r = f.fma(x * quarter, scale, f.fma(quarter, scale, f.const(-1.0, x.type)))
    magic = f.const(_format(x).magic, x.type)
    return _log_ends(f, x, -1.0, _keep_tiny(f, x, _log_split(f, e, r, magic)))


def logaddexp(f: Function, x: Value, y: Value) -> Value:
    """``log(exp(x) + exp(y))``, within 4 ulp but for cancellation.

    It is the larger plus ``log1p(exp(-|x - y|))``, the last product and the sum in one rounding.
    Where the larger is near ``-log1p(exp(-|x - y|))`` they cancel and the error is that of the
    terms, and the rounding of ``x - y`` adds its own, as in NumPy. An exponential under twice the
    smallest normal number counts as zero, which is seen only if the larger argument is (nearly)
    zero. So denormals, slow on many processors, do not come up inside, and the time does not
    depend on the data. Both polynomials are in Horner's form for that reason: a square may be
    denormal where the sum is not.
    """
    larger = f.select(x.cmp(">", y), x, y)
    # Infinities that are equal differ by nothing.
    gap = -f.intrinsic("fabs", f.select(x.cmp("==", y), f.const(0.0, x.type), x - y))
    scale, value = _exp_gap(f, gap)
    t = scale * value
    return f.fma(t, _horner(f, t, [1.0, *_format(x).unit_log1p_q]), larger)


class LogSum:
    """``log(sum(exp(x)))`` of terms that are passed twice, with one exponential for each.

    First :meth:`look` at all terms, then :meth:`begin`, then :meth:`add` all of them again.
    Exponentials are those of what a term is below the greatest, within 1 ulp; under twice the
    smallest normal number they count as zero, as in :func:`logaddexp`. Special values are those of
    NumPy's ``logaddexp`` at each term.
    """

    def __init__(self, f: Function, type_: Type) -> None:
        self.f = f
        self.high = f.var(f.const(-_INF, type_))  # may miss a NaN, which the sum does not

    def look(self, x: Value) -> None:
        high = self.high.get()
        self.high.set(self.f.select(x.cmp(">", high), x, high))

    def begin(self) -> None:
        high = self.high.get()
        far = self.f.intrinsic("fabs", high).cmp("==", _INF)  # less itself it would be NaN
        self.base = self.f.select(far, self.f.const(0.0, high.type), high)
        self.total = self.f.var(self.f.const(0.0, self.high.type))

    def add(self, x: Value) -> None:
        self.total.set(add_exp(self.f, self.total.get(), x - self.base))

    def value(self) -> Value:
        return self.high.get() + log(self.f, self.total.get())


def add_exp(f: Function, total: Value, x: Value) -> Value:
    """``total + exp(x)`` in one rounding but for exp's; an `x` above 0 counts as 0."""
    x = f.select(x.cmp(">", 0.0), f.const(0.0, x.type), x)
    scale, value = _exp_gap(f, x)
    return f.fma(scale, value, total)


def lifted_exp(f: Function, x: Value, lift: int, least: int) -> Value:
    """``2**lift * exp(x)`` for ``x <= 0`` or NaN, within 1 ulp; zero where below ``2**least``.

    Numbers of both sizes must be normal.
    """
    scale, value = _exp_gap(f, x, lift)
    far = x.cmp("<", (least - lift) * math.log(2))
    return f.select(far, f.const(0.0, x.type), scale * value)


def _exp_gap(f: Function, x: Value, lift: int = 0) -> tuple[Value, Value]:
    """Two factors of 2**lift * exp(x) for x <= 0 or NaN: zero where that is nearly denormal."""
    fmt = _format(x)
    zero = fmt.bias - 1 + lift  # 2**(k + lift - 1) has the biased exponent k + zero
    low = f.const(-zero * math.log(2), x.type)
    x = f.select(x.cmp("<", low), low, x)
    shifted = f.fma(x, f.const(_LOG2_E, x.type), f.const(fmt.magic + zero, x.type))
    scale = (shifted.bits_as(_integers(x)) << fmt.mantissa).bits_as(x.type)
    whole = shifted - f.const(fmt.magic + zero, x.type)
    r = f.fma(whole, f.const(-fmt.ln2[0], x.type), x)
    q = fmt.unit_exp_q
    if lift:  # not beside exp(0) but by itself
        q = fmt.expm1_q
    if lift or x.type.bits == 64:  # as float the first part is right to 2**-29, enough here
        r = f.fma(whole, f.const(-fmt.ln2[1], x.type), r)
    return scale, _horner(f, r, [2.0, 2.0, *(2 * c for c in q)])
