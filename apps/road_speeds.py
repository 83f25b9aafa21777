"""
Road speeds from travel times
=============================

How fast is traffic on every road of a region, if all that is known is how long trips take between
some places, and neither their routes nor the speed of any road?

The time of a trip is the least sum of its roads' times: a distance over **min_plus**. It is a
function of all of them that has a gradient, since a trip takes a second more for each second that a
road *on its path* takes more. So what a road receives of the trips' errors is what it would carry
if these were vehicles, each on its quickest path: one flow of traffic for each step of learning.
:func:`semiring_mm.torch.distances` computes the times and, backward, this flow, over a road network
that is prepared once (:func:`semiring_mm.prepare`); a step takes new weights, a table of distances
and a sweep back::

    python apps/road_speeds.py
    python apps/road_speeds.py --data ChicagoRegional_net.tntp

The file is one of `TransportationNetworks
<https://github.com/bstabler/TransportationNetworks>`_. Its roads have lengths; the traffic and the
trips are made up here, so that what is learned can be compared with what is true.
"""

import argparse
import time

import matplotlib.pyplot as plt
import numpy as np
import torch
from matplotlib.collections import LineCollection
from matplotlib.colors import Normalize

import semiring_mm as sm
from semiring_mm.files import Graph, read_graph
from semiring_mm.torch import distances

parser = argparse.ArgumentParser(description="Learn the speeds of roads from travel times.")
parser.add_argument("--data", help="a road network (.gr, .tntp, .csv, ...); default: made up")
parser.add_argument("--side", type=int, default=60, help="crossings a side of the made-up city")
parser.add_argument("--places", type=int, default=150, help="between which trips are observed")
parser.add_argument("--steps", type=int, default=100, help="of the optimizer")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
rng = np.random.default_rng(0)

# %%
# Roads
# -----
# The made-up city is a grid whose crossings are some steps off their places, with a fifth of its
# streets closed; a street leads both ways, and each way has a speed of its own.


def city(side):
    """Streets between side × side crossings, weighed by their lengths in kilometres."""
    y, x = np.mgrid[:side, :side] * 0.4
    places = np.stack([x, y], axis=-1).reshape(-1, 2) + rng.normal(0, 0.08, (side**2, 2))
    node = np.arange(side**2).reshape(side, side)
    a = np.concatenate([node[:, :-1].ravel(), node[:-1].ravel()])
    b = np.concatenate([node[:, 1:].ravel(), node[1:].ravel()])
    kept = rng.random(len(a)) < 0.8
    a, b = np.concatenate([a[kept], b[kept]]), np.concatenate([b[kept], a[kept]])
    length = np.linalg.norm(places[a] - places[b], axis=1)
    names = [str(k) for k in range(side**2)]
    return Graph(names, a, b, length, directed=True, coordinates=places, unit="km")


def scaled(net, landmarks=200):
    """Places in the plane for a network without coordinates, by distances from some landmarks."""
    some = np.linspace(0, len(net.nodes) - 1, landmarks).astype(int)
    known = np.asarray(net.distances([net.nodes[k] for k in some]))
    known = np.minimum(known, known[np.isfinite(known)].max()) ** 2
    inner = (known[:, some] + known[:, some].T) / 2
    inner = inner - inner.mean(1)
    values, vectors = np.linalg.eigh(-0.5 * (inner - inner.mean(1, keepdims=True)))
    base = vectors[:, -2:] / np.sqrt(values[-2:])
    return 0.5 * (known[:, some].mean(1)[:, None] - known).T @ base


graph = read_graph(args.data) if args.data else city(args.side)
net = sm.prepare(graph)
length = torch.tensor(graph.weight)
places = graph.coordinates if graph.coordinates is not None else scaled(net)
print(f"{len(net.nodes):,} crossings, {len(length):,} roads")

# %%
# Traffic
# -------
# A kilometre (or what else lengths are in) takes a minute out of town, up to three minutes near its
# centre, and on each road some tenths more or less. Trips are observed between some places, with an
# error of two per cent each; those between other places are kept for the test.

centre = np.median(places, axis=0)
away = np.linalg.norm(places - centre, axis=1) / np.linalg.norm(places - centre, axis=1).mean()
jam = 1 + 2 * np.exp(-((away[graph.row] + away[graph.col]) ** 2))
true = torch.tensor(jam * np.exp(rng.normal(0, 0.15, len(jam))))

reached = np.flatnonzero(np.isfinite(np.asarray(net.distances([net.nodes[graph.row[0]]]))[0]))
assert 2 * args.places <= len(reached), "give fewer --places"
chosen = [net.nodes[k] for k in rng.choice(reached, 2 * args.places, replace=False)]
seen, unseen = chosen[: args.places], chosen[args.places :]
truth = distances(net, length * true, chosen, chosen)
observed = truth[: args.places, : args.places]
observed = observed * (1 + 0.02 * torch.tensor(rng.normal(size=observed.shape)))

# %%
# Learning
# --------
# The parameters are the logarithms of what a kilometre takes on each road, one for all to begin
# with; the loss is the mean square of the logarithm of learned by observed times. A road on no
# quickest path keeps what it has.


def errors(times, expected):
    """The logarithms of times by what they are to be, of all trips that there are."""
    trips = (expected > 0) & expected.isfinite() & times.isfinite()
    return (times[trips] / expected[trips]).log()


def off(pace, some, expected):
    """The median of the relative errors of trips."""
    return errors(distances(net, length * pace, some, some), expected).abs().median().item()


others = truth[args.places :, args.places :]
pace = torch.ones(len(length), dtype=torch.float64)
pace *= torch.exp(-errors(distances(net, length, seen, seen), observed).mean())
before = off(pace, unseen, others)
slowness = pace.log().requires_grad_()
optimizer = torch.optim.Adam([slowness], lr=0.02)
losses = []
begin = time.perf_counter()
for step in range(args.steps):
    times = distances(net, length * slowness.exp(), seen, seen)
    loss = errors(times, observed).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    if step % 20 == 0 or step == args.steps - 1:
        print(f"step {step:3}  loss {losses[-1]:.6f}")
seconds = (time.perf_counter() - begin) / args.steps
learned = slowness.detach().exp()
after = off(learned, unseen, others)
print(f"{seconds:.3f} s a step: {args.places} × {args.places} times and the gradient of all roads")
print(f"trips that were not observed were off by {100 * before:.1f} %, now by {100 * after:.1f} %")

# %%
# What a gradient is
# ------------------
# The gradient of the sum of all times is how many trips pass each road. Times grow as all roads
# grow slower, so that this traffic, times the roads' own times, is the sum of all trips' times.

weights = (length * learned).requires_grad_()
times = distances(net, weights, seen, seen)
there = times.isfinite()
(traffic,) = torch.autograd.grad(times[there].sum(), weights)
torch.testing.assert_close((traffic * weights).sum(), times[there].sum())
print(f"{int((traffic > 0).sum()):,} of the roads are on a quickest path of a trip, the busiest on "
      f"{traffic.max():,.0f}")  # fmt: skip

# %%
# What was learned
# ----------------
# Both maps have the minutes of a kilometre as colours, and the roads on some trip's path. The
# centre is where trips were slow, although nobody said where they led.

figure, axes = plt.subplot_mosaic(
    [["true", "learned", "loss"], ["true", "learned", "trips"]], figsize=(13, 4.8),
    width_ratios=[1, 1, 0.7], layout="constrained",
)  # fmt: skip
used = np.flatnonzero((traffic > 0).numpy())
roads = places[np.stack([graph.row, graph.col], axis=1)[used]]
limits = Normalize(*np.quantile(true[used], (0.02, 0.98)))
for name, values in (("true", true), ("learned", learned)):
    lines = LineCollection(
        roads, array=values[used].numpy(), cmap="plasma_r", norm=limits,
        linewidths=float(np.clip(60 / len(used) ** 0.5, 0.4, 2)),
    )  # fmt: skip
    axes[name].add_collection(lines)
    axes[name].autoscale()
    axes[name].set_aspect("equal")
    axes[name].axis("off")
    axes[name].set_title(f"Minutes a {graph.unit or 'unit'}: {name}")
figure.colorbar(lines, ax=[axes["true"], axes["learned"]], shrink=0.6, location="bottom")
axes["loss"].semilogy(losses, color="#2a78b5", lw=2)
axes["loss"].axhline(0.02**2, color="#54718a", ls=":", lw=1.5)
axes["loss"].set_xlabel("step")
axes["loss"].set_title("Loss, and errors of observations", fontsize=10)
found = distances(net, length * learned, unseen, unseen)
shown = found.isfinite() & (others > 0)
some = rng.permutation(int(shown.sum()))[:3000]
axes["trips"].plot(
    others[shown][some], found[shown][some], ".", ms=2, color="#d1362f", rasterized=True
)
axes["trips"].axline((0, 0), slope=1, color="#22303c", lw=1)
axes["trips"].set(xlabel="true minutes", ylabel="learned")
axes["trips"].set_title(f"Trips not observed: {100 * after:.1f} % off", fontsize=10)
for name in ("loss", "trips"):
    axes[name].spines[["top", "right"]].set_visible(False)
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
