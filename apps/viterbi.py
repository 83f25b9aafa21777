"""
Hidden Markov models: Viterbi decoding and the forward pass
===========================================================

A walker moves on a ring of cells, unseen. What is seen, at every step, is a cell near the walker's,
and now and then any cell at all. There are several kinds of walkers, each a hidden Markov model of
its own. Two questions about a whole batch of sequences:

* Which kind of walker was it? The *forward pass* adds up the probabilities of all the ways that a
  walker may have taken. With logarithms of probabilities that is a chain of products over
  **log_plus**: ⊗ is a sum, ⊕ is :math:`\\log(e^a + e^b)`.
* Which way did it take? *Viterbi's algorithm* finds the most probable one, the same chain over
  **max_plus**.

With :math:`S` cells a step costs :math:`S^2` pairs (⊗, ⊕) a sequence and model. The usual way in
NumPy is an array of all of these, which is then reduced, at each step; ``semiring_mm.sequences``
walks through a sequence in the cache, and takes all models and sequences in one call::

    python apps/viterbi.py
    python apps/viterbi.py --cells 128 --sequences 64
"""

import argparse
import math
import time

import matplotlib.pyplot as plt
import numpy as np

from semiring_mm import sequences

parser = argparse.ArgumentParser(description="Hidden Markov models over two semirings.")
parser.add_argument("--cells", type=int, default=60)
parser.add_argument("--sequences", type=int, default=12, help="of each kind of walker")
parser.add_argument("--length", type=int, default=100, help="steps of a sequence")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# Four models
# -----------
# One matrix of transitions for each kind of walker: how far it goes in a step, and how surely. A
# walker starts anywhere.

cells, length = args.cells, args.length
kinds = {"still": (0, 0.7), "strolling": (1, 0.5), "hurried": (2, 1.0), "backwards": (-1, 0.6)}
distance = (np.arange(cells) - np.arange(cells)[:, None] + cells // 2) % cells - cells // 2


def bell(mean, width):
    """Rows of probabilities around `mean` cells from each cell: (cells, cells)."""
    p = np.exp(-0.5 * ((distance - mean) / width) ** 2)
    return p / p.sum(1, keepdims=True)


steps = np.stack([bell(mean, width) for mean, width in kinds.values()])  # (models, cells, cells)
sight = 0.7 * bell(0, 2.5) + 0.3 / cells  # what is seen, from each cell

# %%
# Walkers of each kind, and what was seen of them. A draw inverts the cumulative probabilities.

rng = np.random.default_rng(5)
kind = np.repeat(np.arange(len(kinds)), args.sequences)  # (sequences,)
batch = len(kind)


def draw(p):
    """An index from each row of probabilities."""
    return (p.cumsum(-1) < rng.random((len(p), 1))).sum(-1).clip(max=cells - 1)


way = [rng.integers(cells, size=batch)]
for _ in range(length - 1):
    way.append(draw(steps[kind, way[-1]]))
way = np.stack(way)  # (length, sequences)
seen = np.stack([draw(sight[now]) for now in way])
clues = np.log(sight.T)[seen]  # (length, sequences, cells): how probable is what was seen
log_steps = np.log(np.maximum(steps, 1e-300))

# %%
# Both questions
# --------------
# All models and sequences in one call each: the leading dimensions of the emissions, (sequences,),
# and of the transitions, (models, 1), broadcast.

emissions = clues.swapaxes(0, 1)  # (sequences, length, cells)
transitions = log_steps[:, None, None]  # (models, 1, 1, cells, cells): one matrix for all steps
start = np.full(cells, -np.log(cells))


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


evidence, ours_forward = timed(
    lambda: sequences.log_partition(emissions, transitions, start), runs=2
)
(paths, scores), ours_viterbi = timed(
    lambda: sequences.viterbi(emissions, transitions, start), runs=2
)
model = evidence.argmax(0)
decoded = paths[model, np.arange(batch)].T  # (length, sequences)
right = (model == kind).mean()


def off(path):
    """Cells between a path and the true one, on average."""
    return np.abs((path - way + cells // 2) % cells - cells // 2).mean()


print(f"kind of walker found for {right:.0%} of {batch} sequences")
print(f"cells off the way: {off(seen):.1f} as seen, {off(decoded):.1f} decoded")

# %%
# Against plain loops
# -------------------
# First all sequences with NumPy's broadcasting, which makes an array of models × sequences × cells
# × cells numbers at every step. Then some sequences once more, number by number.


def by_broadcasting(join):
    state = np.broadcast_to(clues[0] - np.log(cells), (len(kinds), batch, cells))
    for clue in clues[1:]:
        state = join(state[..., :, None] + log_steps[:, None], axis=-2) + clue
    return state


def by_hand(clues, log_step):
    """One sequence under one model: the log-probability of all ways, the best way and its own."""
    total = best = [x - math.log(cells) for x in clues[0]]
    pointers = []
    for clue in clues[1:]:
        next_total, next_best, arg = [], [], []
        for j in range(cells):
            terms = [total[i] + log_step[i][j] for i in range(cells)]
            most = max(terms)
            all_ways = most + math.log(sum(math.exp(x - most) for x in terms))
            next_total.append(all_ways + clue[j])
            k = max(range(cells), key=lambda i: best[i] + log_step[i][j])
            next_best.append(best[k] + log_step[k][j] + clue[j])
            arg.append(k)
        total, best = next_total, next_best
        pointers.append(arg)
    now = max(range(cells), key=lambda j: best[j])
    path = [now]
    for arg in reversed(pointers):
        path.append(arg[path[-1]])
    most = max(total)
    return most + math.log(sum(math.exp(x - most) for x in total)), path[::-1], best[now]


expected, theirs_forward = timed(lambda: by_broadcasting(np.logaddexp.reduce))
np.testing.assert_allclose(evidence, np.logaddexp.reduce(expected, axis=-1), rtol=1e-11)
expected, theirs_viterbi = timed(lambda: by_broadcasting(np.max))
np.testing.assert_array_equal(scores, expected.max(-1))
for s in range(0, batch, -(-batch // 3)):
    m = model[s]
    total, path, best = by_hand(clues[:, s].tolist(), log_steps[m].tolist())
    np.testing.assert_allclose(evidence[m, s], total, rtol=1e-11)
    np.testing.assert_array_equal(decoded[:, s], path)
    assert scores[m, s] == best

pairs = (length - 1) * len(kinds) * batch * cells**2
print(f"{pairs / 1e6:,.0f} million pairs (⊗, ⊕) each")
print(f"forward  semiring_mm {ours_forward:.3f} s, NumPy {theirs_forward:.3f} s")
print(
    f"Viterbi  semiring_mm {ours_viterbi:.3f} s, NumPy {theirs_viterbi:.3f} s, without its pointers"
)

# %%
# What one may know
# -----------------
# The forward pass and the same backwards give the probability of each cell at each time, given all
# that was seen. Here it is for one sequence, with what was seen and the way found by Viterbi's
# algorithm.

s = int(np.flatnonzero(kind == 1)[0])
posterior = sequences.marginals(emissions[s], log_steps[model[s]])

figure, axes = plt.subplots(2, 1, figsize=(9, 7), height_ratios=[3, 1.2], layout="constrained")
image = axes[0].imshow(
    posterior.T**0.5, origin="lower", aspect="auto", cmap="Blues", interpolation="nearest"
)
axes[0].scatter(range(length), seen[:, s], s=12, c="#e8a33d", label="seen")
for path, style, name in ((way[:, s], "-", "true"), (decoded[:, s], ":", "decoded")):
    jumps = np.flatnonzero(np.abs(np.diff(path)) > cells / 2) + 1  # around the ring
    colour = "#22303c" if name == "true" else "#d1362f"
    axes[0].plot(
        np.insert(np.arange(length, dtype=float), jumps, np.nan),
        np.insert(path.astype(float), jumps, np.nan),
        style, color=colour, lw=1.3 if name == "true" else 2.6, label=name,
    )  # fmt: skip
axes[0].set(xlabel="time", ylabel="cell")
axes[0].set_title("A walker on a ring, its probable places in blue", loc="left")
axes[0].legend(ncols=3, loc="lower right", bbox_to_anchor=(1.01, 0.99), frameon=False)
margin = evidence - evidence.max(0)
axes[1].imshow(np.maximum(margin, -100), aspect="auto", cmap="viridis", interpolation="nearest")
axes[1].set_yticks(range(len(kinds)), list(kinds))
axes[1].set_xlabel("sequence")
axes[1].set_title("Log-probability under each model, less that of the best", loc="left")
figure.colorbar(axes[1].images[0], ax=axes[1], extend="min")
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
