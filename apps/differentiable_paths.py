"""
Differentiable shortest paths
=============================

What does a kind of street cost, in minutes, if all that is known are the times that some trips
took, and not even which way they went?

All shortest paths, the closure over **min_plus**, are a function of the streets' costs that has a
gradient: a trip's time grows by one for each minute that a street *on its path* becomes slower, and
not at all with other streets. :func:`semiring_mm.torch.apsp` is this function as a layer of
PyTorch. Forward it takes :math:`n^3` pairs (⊗, ⊕), backward :math:`O(n^2 \\log n)` steps along the
trees of shortest paths. The usual way is Floyd and Warshall's loop written with PyTorch's
operators, which keeps all of its :math:`n` steps for the backward pass, each an :math:`n × n`
matrix::

    python apps/differentiable_paths.py
    python apps/differentiable_paths.py --side 20 --steps 40
"""

import argparse
import time

import matplotlib.pyplot as plt
import torch
from matplotlib.collections import LineCollection

from semiring_mm.torch import apsp

parser = argparse.ArgumentParser(description="Learn costs of streets from travel times.")
parser.add_argument("--side", type=int, default=12, help="crossings a side")
parser.add_argument("--steps", type=int, default=120, help="of the optimizer")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
torch.manual_seed(0)

# %%
# The layer
# ---------
# Every street of a grid is of one of three kinds, in both directions. The costs of the kinds are
# the parameters, made positive by softplus.


class Times(torch.nn.Module):
    """Times between all crossings, by a positive cost for each kind of street."""

    def __init__(self, side, kinds, seed=0):
        super().__init__()
        self.nodes = side * side
        node = torch.arange(self.nodes).view(side, side)
        start = torch.cat([node[:, :-1].flatten(), node[:-1].flatten()])
        end = torch.cat([node[:, 1:].flatten(), node[1:].flatten()])
        kind = torch.randint(kinds, start.shape, generator=torch.Generator().manual_seed(seed))
        self.start, self.end = torch.cat([start, end]), torch.cat([end, start])
        self.kind = torch.cat([kind, kind])
        self.raw = torch.nn.Parameter(torch.zeros(kinds))

    def costs(self):
        return torch.nn.functional.softplus(self.raw)

    def weights(self):
        """The matrix of the graph, inf where there is no street."""
        none = self.raw.new_full((self.nodes, self.nodes), torch.inf)
        return none.index_put((self.start, self.end), self.costs()[self.kind])

    def forward(self):
        return apsp(self.weights())


# %%
# Training
# --------
# A fifth of all trips is observed, each time with an error of some per cent. The costs start out
# equal.

true = torch.tensor([0.5, 1.2, 3.0])
layer = Times(args.side, len(true))
n = layer.nodes
with torch.no_grad():
    layer.raw.copy_(true.expm1().log())
    times = layer() * (1 + 0.05 * torch.randn(n, n))
    seen = torch.rand(n, n) < 0.2
    layer.raw.zero_()

optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
losses, history = [], []
for step in range(args.steps):
    loss = (layer() - times)[seen].square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    history.append(layer.costs().tolist())
    if step % 20 == 0 or step == args.steps - 1:
        print(f"step {step:3}  error {losses[-1]:8.4f}  costs", *(f"{x:.2f}" for x in history[-1]))
found = layer.costs().detach()
print("the true costs:               ", *(f"{x:.2f}" for x in true.tolist()))

# %%
# Against the loop
# ----------------
# Floyd and Warshall's algorithm as PyTorch differentiates it: the same times and the same
# gradients. For the comparison every street has a weight of its own, so that no two paths are
# equally long.


def plain(weights):
    """All shortest paths by a loop over the crossings that they may pass."""
    d = weights.masked_fill(torch.eye(len(weights), dtype=torch.bool), 0)
    for k in range(len(weights)):
        d = torch.minimum(d, d[:, k : k + 1] + d[k])
    return d


def gradient(shortest, weights, trips):
    """How the sum of trips' times depends on each street."""
    weights = weights.detach().requires_grad_()
    total = (shortest(weights) * trips).sum()
    return torch.autograd.grad(total, weights)[0]


def timed(call, runs=1):
    """Return a call's result and its best time of several runs; the first run compiles."""
    seconds = []
    for _ in range(runs):
        begin = time.perf_counter()
        result = call()
        seconds.append(time.perf_counter() - begin)
    return result, min(seconds)


weights = (layer.weights() * (1 + 0.3 * torch.rand(n, n))).detach().double()
torch.testing.assert_close(apsp(weights), plain(weights))
trips = torch.rand(n, n).double()
ours, seconds = timed(lambda: gradient(apsp, weights, trips), runs=3)
expected, loop = timed(lambda: gradient(plain, weights, trips))
torch.testing.assert_close(ours, expected)
print(f"{n} crossings, times and gradient: {seconds:.3f} s, by the loop {loop:.3f} s")

# %%
# What a gradient shows
# ---------------------
# The gradient of a single trip's time is 1 for each street of its path: on the left, thick, over
# the streets in the colours of their kinds. On the right the costs come to what they are.

one_trip = torch.zeros(n, n).double()
one_trip[0, n - 1] = 1
on_path = gradient(apsp, weights, one_trip)
assert on_path.unique().tolist() == [0, 1]
assert torch.isclose((on_path.bool() * weights.nan_to_num(posinf=0)).sum(), apsp(weights)[0, -1])

colours = ["#2a78b5", "#e8a33d", "#7a5195"]
figure, (axes, beside) = plt.subplots(1, 2, figsize=(10.5, 5), layout="constrained")
place = torch.stack([torch.arange(n) % args.side, torch.arange(n) // args.side], -1).numpy()
lines = place[torch.stack([layer.start, layer.end], -1).numpy()]
travelled = on_path[layer.start, layer.end].bool().numpy()
axes.add_collection(LineCollection(lines[travelled], colors="#d1362f", lw=9, capstyle="round"))
axes.add_collection(LineCollection(lines, colors=[colours[k] for k in layer.kind.tolist()], lw=2))
axes.scatter(*place.T, s=12, c="#22303c", zorder=3)
axes.set_title("The gradient of one trip's time")
axes.set_aspect("equal")
axes.axis("off")
for k, colour in enumerate(colours):
    beside.plot([costs[k] for costs in history], color=colour, lw=2, label=f"kind {k + 1}")
    beside.axhline(true[k], color=colour, ls=":", lw=1.5)
beside.set(xlabel="step", ylabel="cost", ylim=(0, None), title="Costs learnt, and the true ones")
beside.legend(frameon=False)
beside.spines[["top", "right"]].set_visible(False)
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
