"""
What reaches what in a large directed graph
===========================================

From which page of a web does one get to which other, along any number of links? Over **lor_land** ⊗
is *and*, ⊕ is *or*: the closure of the matrix of links says for every ordered pair of nodes whether
there is a path. Truth values are computed on as bits, 32 or 64 pairs of them at once, so that the
:math:`n^3` pairs (⊗, ⊕) of 8,192 nodes take about a second on two cores.

The usual tool is a search from each node, in :math:`O(n m)` for :math:`m` links. Where these are as
few as here, that is not far behind in compiled code; the closure takes the same time however many
links there are, and its result is a matrix, which is easily asked questions. Here it shows the
*bow-tie* that Broder et al. ("Graph structure in the Web", 2000) found in the web: a core of pages
that reach each other, pages that lead into it, pages that it leads to, and others.

The graph is made up, or a file that :func:`semiring_mm.files.read_graph` knows::

    python apps/reachability.py
    python apps/reachability.py --nodes 2000 --links 6000
    python apps/reachability.py --data edges.csv
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse
from scipy.sparse import csgraph

import semiring_mm as sm
from semiring_mm.files import read_graph

parser = argparse.ArgumentParser(description="What reaches what in a large directed graph.")
parser.add_argument("--data", help="a directed graph (.csv, .gr, .mtx, ...); default: made up")
parser.add_argument("--nodes", type=int, default=8192)
parser.add_argument("--links", type=int, help="default: 1.5 a node")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()

# %%
# A graph
# -------
# Links between pages at random, some pages being more popular than others.

if args.data:
    graph = read_graph(args.data)
    n, u, v = len(graph.nodes), graph.row, graph.col
    if not graph.directed:
        u, v = np.concatenate([u, v]), np.concatenate([v, u])
else:
    n, rng = args.nodes, np.random.default_rng(0)
    links = args.links or int(1.5 * n)
    popular = rng.pareto(3, n) + 0.5
    u, v = rng.integers(0, n, links), rng.choice(n, links, p=popular / popular.sum())
A = np.zeros((n, n), bool)
A[u, v] = True
print(f"{n:,} nodes, {np.count_nonzero(A):,} links")

# %%
# The closure
# -----------
# One call. On the diagonal is ⊗'s identity: every node reaches itself.


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


R, ours = timed(lambda: sm.closure(A, "lor_land"), runs=2)
reaches, reached = R.sum(1), R.sum(0)
print(f"{R.mean():.1%} of all ordered pairs are joined by a path")

# %%
# Against searches
# ----------------
# A breadth-first search from some nodes, each of which must reach what its row says, and the
# strongly connected components of all, which are the classes of nodes that reach each other.

sparse = scipy.sparse.csr_array(A)
some = np.unique(np.linspace(0, n - 1, 500).astype(int))


def searches():
    found = np.zeros((len(some), n), bool)
    for row, node in zip(found, some, strict=True):
        row[csgraph.breadth_first_order(sparse, node, return_predecessors=False)] = True
    return found


expected, seconds = timed(searches)
np.testing.assert_array_equal(R[some], expected)
theirs = seconds * n / len(some)
print(f"semiring_mm {ours:.3f} s, SciPy's searches {theirs:.3f} s (× {theirs / ours:.1f})")

count, component = csgraph.connected_components(sparse, connection="strong")
mutual = R & R.T
first = mutual.argmax(1)  # names a class by its first node
assert len(np.unique(first)) == count
np.testing.assert_array_equal(first, first[np.unique(component, return_index=True)[1]][component])

# %%
# The bow-tie
# -----------
# The core is the largest class of nodes that reach each other. What reaches it without being in it
# is its *in* side, what it reaches its *out* side.

core = mutual[mutual.sum(1).argmax()]
hub = core.argmax()
into, out = R[:, hub] & ~core, R[hub] & ~core
others = ~(core | into | out)
parts = {"in": into, "core": core, "out": out, "others": others}
print(", ".join(f"{name} {part.sum():,}" for name, part in parts.items()))
assert R[np.ix_(into, core)].all()
assert R[np.ix_(core, out)].all()
assert not R[np.ix_(out, into)].any()

# %%
# The matrix
# ----------
# If one node reaches another, it reaches all that this one does. So nodes sorted by how many they
# reach are in topological order but for those of one class, and the matrix is blockwise triangular.

order = np.lexsort([first, -reaches])
assert not np.tril(R[np.ix_(order, order)] & ~mutual[np.ix_(order, order)]).any()

figure, (axes, beside) = plt.subplots(
    1, 2, figsize=(11.5, 5.6), width_ratios=[1.1, 1], layout="constrained"
)
kind = np.concatenate([np.flatnonzero(part)[np.argsort(-reaches[part])] for part in parts.values()])
side = max(1, n // 900)  # nodes to a pixel
sampled = R[np.ix_(kind, kind)].astype(np.float32)
m = n // side * side
density = sampled[:m, :m].reshape(m // side, side, m // side, side).mean((1, 3))
axes.imshow(density, cmap="Blues", vmin=0, vmax=1, extent=(0, n, n, 0), interpolation="nearest")
edges = np.cumsum([0] + [part.sum() for part in parts.values()])
for edge in edges[1:-1]:
    axes.axhline(edge, color="#d1362f", lw=0.8)
    axes.axvline(edge, color="#d1362f", lw=0.8)
middle = [
    (k, name)
    for k, name, part in zip((edges[1:] + edges[:-1]) / 2, parts, parts.values(), strict=True)
    if part.sum() > n / 50
]
axes.set_xticks([k for k, _ in middle], [name for _, name in middle])
axes.set_yticks([k for k, _ in middle], [name for _, name in middle], rotation=90, va="center")
axes.tick_params(length=0)
axes.set_title("Row reaches column")

colours = {"in": "#2a78b5", "core": "#d1362f", "out": "#e8a33d", "others": "#9aa7b1"}
for name, part in parts.items():
    beside.scatter(
        reaches[part], reached[part], s=14, alpha=0.35, lw=0, color=colours[name],
        label=f"{name}: {part.sum():,}",
    )  # fmt: skip
beside.set(xscale="log", yscale="log", xlabel="nodes that it reaches", ylabel="nodes that reach it")
beside.set_title(f"{n:,} nodes, {np.count_nonzero(A):,} links")
for handle in beside.legend(frameon=False).legend_handles:
    handle.set(alpha=1)
beside.spines[["top", "right"]].set_visible(False)
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
