"""
A tropical tensor network: ground states of a spin glass
========================================================

Spins ±1 stand on a square lattice. Each pair of neighbours has a coupling :math:`J` of random sign,
and the energy is :math:`-\\sum J_{ij} s_i s_j`: some neighbours would rather be alike and others
different, and not all can have it. Which arrangement has the least energy, of :math:`2^{n}`?

Give each coupling a 2 × 2 tensor with its energy for the four cases. Over **min_plus**, ⊗ adds
energies up, and ⊕ over the spins takes the least: the *contraction* of the network is the
ground-state energy (Liu, Wang and Zhang, "Tropical tensor network for ground states of spin
glasses", Physical Review Letters 126, 2021). The same network over **log_plus** is the logarithm of
the partition function, and so the free energy at any temperature. :func:`semiring_mm.einsum` does
both in a line.

The cost is exponential in the width of the lattice only: row by row, as below, :math:`L × L` spins
take :math:`O(L^2 2^L)` steps::

    python apps/spin_glass.py
    python apps/spin_glass.py --side 20 --couplings gaussian
"""

import argparse
import itertools
import time

import matplotlib.pyplot as plt
import numpy as np
from matplotlib.collections import LineCollection

import semiring_mm as sm

parser = argparse.ArgumentParser(description="Ground states of a spin glass.")
parser.add_argument("--side", type=int, default=14, help="spins a side, 4 to 22")
parser.add_argument("--couplings", choices=["signs", "gaussian"], default="signs")
parser.add_argument("--seed", type=int, default=1)
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()


def lattice(side, couplings, seed=args.seed):
    """Couplings to the right, (side, side - 1), and downwards, (side - 1, side)."""
    rng = np.random.default_rng(seed)
    shapes = (side, side - 1), (side - 1, side)
    if couplings == "signs":  # integers: exact
        return [rng.choice(np.array([-1, 1], dtype=np.int16), shape) for shape in shapes]
    return [rng.normal(size=shape) for shape in shapes]


def energy(spins, right, down):
    """The energy of spins (..., side, side)."""
    return -(right * spins[..., :, 1:] * spins[..., :, :-1]).sum((-1, -2)) - (
        down * spins[..., 1:, :] * spins[..., :-1, :]
    ).sum((-1, -2))


# %%
# The network in one line
# -----------------------
# A spin is an index, a coupling a matrix over two of them. An index may be shared by any number of
# tensors, so that nothing else is needed. In which order the sums are best taken is found by
# opt_einsum.


BOTH = np.array([[-1, 1], [1, -1]], np.int16)  # times J: the energy of alike and different spins


def network(right, down):
    """Operands of einsum: a tensor of energies and its two indices for each coupling."""
    index = np.arange(len(right) ** 2).reshape(len(right), -1)
    for j, u, v in zip(right.flat, index[:, :-1].flat, index[:, 1:].flat, strict=True):
        yield from (j * BOTH, [u, v])
    for j, u, v in zip(down.flat, index[:-1].flat, index[1:].flat, strict=True):
        yield from (j * BOTH, [u, v])


right, down = lattice(4, args.couplings)
found = sm.einsum(*network(right, down), [], semiring="min_plus")

# %%
# With 4 × 4 spins all 65,536 arrangements can be tried.

every = np.array(list(itertools.product([-1, 1], repeat=16)), np.int8).reshape(-1, 4, 4)
energies = energy(every, right, down)
assert np.isclose(found, energies.min()), (found, energies.min())
print(f"4 × 4: least energy {found:g}, also by trying all {len(every):,} arrangements")

# %%
# The partition function is :math:`Z = \sum e^{-E/T}`. With energies times :math:`-1/T` the network
# over log_plus is its logarithm.


def free_energy(right, down, temperature):
    """−T log Z."""
    log_weights = network(-right / temperature, -down / temperature)
    return -temperature * sm.einsum(*log_weights, [], semiring="log_plus")


for temperature in (0.5, 2.0):
    expected = -temperature * np.logaddexp.reduce(-energies / temperature)
    np.testing.assert_allclose(free_energy(right, down, temperature), expected, rtol=1e-12)

# %%
# Row by row, and the spins themselves
# ------------------------------------
# For large lattices, and to learn which arrangement it is, rows are added one after the other.
# ``best`` holds, for each of the :math:`2^L` states of the last row, the least energy of all rows
# so far. The couplings to the next row act on each spin alone, so they can be taken some spins at a
# time: a matrix :math:`2^g × 2^g` for each part of :math:`g` spins, and one product with it,
#
# .. math:: best' = best^T ⊗ K^T,
#
# where ``best`` is read as a matrix with a row for each state of its first part. The product puts
# the part's new states last, so that after all parts every one of them is back in its place. Then
# the energy within the new row is added. The ``k`` that attained each minimum is the part's old
# state: it is kept, and leads back through the rows at the end.


def states(count):
    """All states of `count` spins, the first one the slowest to change: (2 ** count, count)."""
    return 1 - 2 * (np.arange(2**count)[:, None] >> np.arange(count)[::-1] & 1).astype(np.int16)


def within(j):
    """The energy within a row, for each of its states."""
    found = np.zeros(2, j.dtype)
    for c in j:  # one spin more, like the last one or not
        found = (found.reshape(-1, 2, 1) + c * BOTH).ravel()
    return found


def ground_state(right, down, most=6):
    """The least energy of a lattice and an arrangement that has it."""
    side = len(right)
    parts = np.array_split(np.arange(side), -(-side // most))
    spins = [states(len(part)) for part in parts]
    sizes = [len(x) for x in spins]
    best, before = within(right[0]), []
    for j_row, j_down in zip(right[1:], down, strict=True):
        for part, s in zip(parts, spins, strict=True):
            k = -(s * j_down[part]) @ s.T  # (new state, old state)
            best, arg = sm.matmul(best.reshape(len(s), -1).T, k.T, "min_plus", return_arg=True)
            before.append(arg.astype(np.uint8))
        best = best.ravel() + within(j_row)

    row = list(np.unravel_index(best.argmin(), sizes))
    rows = [np.concatenate([s[x] for s, x in zip(spins, row, strict=True)])]
    for _ in range(side - 1):
        for p in reversed(range(len(parts))):  # those after p are old by now, those before it new
            others, shape = row[p + 1 :] + row[:p], sizes[p + 1 :] + sizes[:p]
            row[p] = before.pop()[np.ravel_multi_index(others, shape) if others else 0, row[p]]
        rows.append(np.concatenate([s[x] for s, x in zip(spins, row, strict=True)]))
    return best.min(), np.stack(rows[::-1])


found, spins = ground_state(right, down)
assert np.isclose(found, energies.min())
assert np.isclose(found, energy(spins, right, down))

# %%
# A larger lattice
# ----------------
# The usual way in NumPy adds one spin after the other to an array of all :math:`2^L` states of a
# row. It is a plain loop, and what the result is checked against; ``einsum`` is asked as well.


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


def spin_by_spin(right, down):
    """The least energy, by an array with one axis a column."""
    side = len(right)
    spin = np.array([1, -1], right.dtype)
    best = np.zeros((2,) * side, right.dtype)

    def on(axis, x):
        return x.reshape([2 if k == axis else 1 for k in range(side)])

    for i in range(side):
        for j in range(side):
            if i:  # the spin above is summed over: the new one is like it, or not
                up, low = np.take(best, 0, j), np.take(best, 1, j)
                c = down[i - 1, j]
                best = np.stack([np.minimum(up - c, low + c), np.minimum(up + c, low - c)], j)
            if j:
                best = best - right[i, j - 1] * on(j - 1, spin) * on(j, spin)
    return best.min()


right, down = lattice(args.side, args.couplings)
(found, spins), ours = timed(lambda: ground_state(right, down), runs=2)
expected, theirs = timed(lambda: spin_by_spin(right, down))
assert np.isclose(found, expected), (found, expected)
assert np.isclose(found, energy(spins, right, down))
print(f"{args.side} × {args.side}: least energy {found:g}, {found / args.side**2:.3f} a spin")
print(f"rows by semiring_mm {ours:.3f} s, spin by spin in NumPy {theirs:.3f} s")
if args.side <= 14:
    by_einsum, seconds = timed(lambda: sm.einsum(*network(right, down), [], semiring="min_plus"))
    assert np.isclose(found, by_einsum)
    print(
        f"the network of {right.size + down.size} tensors by einsum {seconds:.3f} s, order included"
    )

# %%
# Frustration
# -----------
# Black and white are the spins of a ground state. A coupling that does not have it its way is red.
# Round a shaded square an odd number of couplings ask for a difference, so that one of them at
# least is red: the ground state pairs up these squares by the shortest red chains.
#
# Beside it, the free energy: at low temperatures the ground state is all that counts.

figure, (axes, beside) = plt.subplots(
    1, 2, figsize=(11, 6), width_ratios=[1.5, 1], layout="constrained"
)
side = args.side
odd = np.sign(right[:-1] * right[1:] * down[:, :-1] * down[:, 1:]) < 0
for y, x in np.argwhere(odd):
    axes.add_patch(plt.Rectangle((x, y), 1, 1, color="#fbe3b8", lw=0))
y, x = np.mgrid[:side, :side]
ends = [
    ((x[:, :-1], y[:, :-1]), (x[:, 1:], y[:, 1:]), right * spins[:, 1:] * spins[:, :-1]),
    ((x[:-1], y[:-1]), (x[1:], y[1:]), down * spins[1:] * spins[:-1]),
]
for a, b, content in ends:
    lines = np.stack([np.stack(a, -1), np.stack(b, -1)], axis=-2).reshape(-1, 2, 2)
    strength = np.abs(content.ravel()) / np.abs(content).max()
    colours = np.where(content.ravel() > 0, "#9fb3c2", "#d1362f")
    axes.add_collection(LineCollection(lines, colors=colours, linewidths=0.6 + 2 * strength))
axes.scatter(x, y, c=spins, cmap="gray", vmin=-1, vmax=1, ec="#22303c", s=1100 / side, zorder=3)
axes.set_title(f"A ground state of {side} × {side} spins, energy {found:g}".replace("-", "−"))
axes.set_aspect("equal")
axes.invert_yaxis()
axes.axis("off")

small = lattice(min(side, 8), args.couplings)
temperatures = np.linspace(0.1, 4, 14)
free = [free_energy(*small, t) for t in temperatures]
beside.plot(temperatures, free, "o-", color="#2a78b5", ms=4, label="free energy, over log_plus")
least = sm.einsum(*network(*small), [], semiring="min_plus")
assert free[0] <= least + 1e-9
beside.axhline(least, color="#d1362f", ls="--", label="least energy, over min_plus")
beside.set(
    xlabel="temperature",
    title=f"One network of {len(small[0])} × {len(small[0])} spins, two semirings",
)
beside.legend(frameon=False)
beside.spines[["top", "right"]].set_visible(False)
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
