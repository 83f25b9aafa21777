"""
A conditional random field, trained and decoded
===============================================

Words are to be tagged, and a tag depends on the word and on the tag before it. A *linear-chain
conditional random field* gives a sequence of tags the score of its emissions, what the words say,
plus that of its transitions, what follows what (Lafferty, McCallum and Pereira, 2001).

* Its likelihood needs the sum over all sequences of tags: a chain of products over **log_plus**.
  The gradients of that sum are the probabilities of tags and of pairs of tags.
* The best sequence is the same chain over **max_plus** (Viterbi's algorithm).

Both take :math:`O(L T^2)` steps for a sequence of :math:`L` words and :math:`T` tags, gradients
included. ``semiring_mm.torch.sequences`` walks them in one call, where plain PyTorch has some
for each word, and keeps :math:`T × T` numbers for each word and sequence for the way back::

    python apps/crf.py    # --device cuda: on a GPU
"""

import argparse
import time

import matplotlib.pyplot as plt
import torch

from semiring_mm.torch import sequences

parser = argparse.ArgumentParser(description="A conditional random field.")
parser.add_argument("--steps", type=int, default=60, help="of the optimizer, at least 8")
parser.add_argument("--tags", type=int, default=8)
parser.add_argument("--words", type=int, default=32)
parser.add_argument("--device", default="cpu", help="where PyTorch keeps the tensors")
parser.add_argument("--plot", help="file for the picture; default: show it")
args = parser.parse_args()
torch.manual_seed(0)

# %%
# Sentences
# ---------
# Made up: a tag tends to be followed by the next one, and every other word may belong to any tag.


def sentences(batch, length, tags, words, seed):
    """Words and their tags, (batch, length) each, drawn by a hidden chain."""
    generator = torch.Generator().manual_seed(seed)
    step = torch.eye(tags).roll(1, 1) * 20 + torch.rand(tags, tags, generator=generator)
    hidden = [torch.randint(tags, (batch,), generator=generator)]
    for _ in range(length - 1):
        hidden.append(torch.multinomial(step[hidden[-1]], 1, generator=generator)[:, 0])
    hidden = torch.stack(hidden, 1)
    noise = torch.rand(batch, length, generator=generator) < 0.5
    anything = torch.randint(words, (batch, length), generator=generator)
    seen = torch.where(noise, anything, hidden * (words // tags))
    return seen.to(args.device), hidden.to(args.device)


# %%
# Training
# --------

words, tags = sentences(64, 20, args.tags, args.words, seed=0)
on_cuda = args.device != "cpu"


def train(loss_of, steps, captured=on_cuda):
    """A model, its losses, and the seconds that a step takes; the first two compile.

    The others, captured, are one CUDA graph: the host launches it, and none of its kernels.
    """
    torch.manual_seed(0)
    emit = torch.nn.Embedding(args.words, args.tags, device=args.device)
    transitions = torch.nn.Parameter(torch.zeros(args.tags, args.tags, device=args.device))
    parameters = [*emit.parameters(), transitions]
    optimizer = torch.optim.Adam(parameters, lr=0.1, fused=True, capturable=captured)

    def step():
        loss = loss_of(emit(words), transitions, tags).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss.detach()

    wait()
    with torch.cuda.stream(torch.cuda.Stream() if captured else None):
        losses = [step(), step()]
    wait()
    again = graph_of(step) if captured else step
    begin = time.perf_counter()
    losses += [again() for _ in range(2, steps)]
    wait()
    return emit, transitions, losses, (time.perf_counter() - begin) / (steps - 2)


def graph_of(step):
    """What replays the kernels of a step, on the same memory."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = step()

    def replay():
        graph.replay()
        return result.clone()

    return replay


def wait():
    """For the device."""
    if on_cuda:
        torch.cuda.synchronize()


emit, transitions, losses, _ = train(sequences.crf_loss, args.steps)
for step in [*range(0, args.steps - 1, 20), args.steps - 1]:
    print(f"step {step:3}  loss {losses[step]:.3f}")

observed, hidden = sentences(64, 20, args.tags, args.words, seed=1)
emissions = emit(observed).detach()
alone = (emissions.argmax(-1) == hidden).float().mean().item()
decoded, _ = sequences.viterbi(emissions, transitions.detach())
chained = (decoded == hidden).float().mean().item()
print(f"tags found in new sentences: {alone:.0%} word by word, {chained:.0%} by the chain")

# %%
# Against plain loops
# -------------------
# The sum by broadcasting, with its gradient; the best tags by Viterbi's algorithm with pointers.


def plain(emissions, transitions):
    """The logarithm of the sum over all sequences of tags."""
    state = emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        state = (state[:, :, None] + transitions).logsumexp(1) + emissions[:, t]
    return state.logsumexp(1)


def plain_loss(emissions, transitions, tags):
    """What is trained by: that sum less the score of the tags."""
    score = emissions.gather(2, tags[:, :, None])[:, :, 0].sum(1)
    return plain(emissions, transitions) - score - transitions[tags[:, :-1], tags[:, 1:]].sum(1)


def viterbi(emissions, transitions):
    """The best tags of one sentence."""
    best, pointers = emissions[0], []
    for emission in emissions[1:]:
        best, before = (best[:, None] + transitions).max(0)
        best = best + emission
        pointers.append(before)
    tags = [best.argmax()]
    for before in reversed(pointers):
        tags.append(before[tags[-1]])
    return torch.stack(tags[::-1])


def timed(call):
    """The best time of a call, of several, in seconds."""
    seconds = []
    for _ in range(9):
        begin = time.perf_counter()
        call()
        wait()
        seconds.append(time.perf_counter() - begin)
    return min(seconds)


def compare(words, ours, loop):
    print(f"{words}: {ours:.6f} s, by broadcasting {loop:.6f} s, × {loop / ours:.1f}")


for captured in [False, True][: 1 + on_cuda]:
    *_, found, ours = train(sequences.crf_loss, args.steps, captured)
    *_, expected, loop = train(plain_loss, 8 + 50 * captured, captured)
    torch.testing.assert_close(found[:8], expected[:8], rtol=1e-3, atol=0)
    *_, rest = train(lambda e, a, tags: e.sum((1, 2)) + a.sum(), args.steps, captured)
    compare("a step of training" + ", captured" * captured, ours, loop)
    print(f"of both, embedding and optimizer: {rest:.6f} s")


def sums(function):
    return torch.autograd.grad(function(*leaves).sum(), leaves)


leaves = [emissions.double().requires_grad_(), transitions.detach().double().requires_grad_()]
both = sequences.log_partition, plain
torch.testing.assert_close(*map(sums, both))
with torch.no_grad():
    torch.testing.assert_close(*(function(emissions, transitions) for function in both))
    for s in range(0, len(observed), 8):
        torch.testing.assert_close(viterbi(emissions[s], transitions), decoded[s].long())
compare("its sum and gradients", *(timed(lambda f=f: sums(f)) for f in both))
if on_cuda:
    graphs = [graph_of(lambda f=f: sums(f)[0]) for f in both]
    compare("its sum and gradients, captured", *map(timed, graphs))

# %%
# What was learnt
# ---------------
# That each tag is followed by the next one. On the right one sentence: grey what a word may mean,
# red where the model decided otherwise than the word alone.

figure, (axes, beside) = plt.subplots(
    1, 2, figsize=(11, 4.2), width_ratios=[1, 1.9], layout="constrained"
)
emissions, decoded, hidden = (x.cpu() for x in (emissions, decoded, hidden))
image = axes.imshow(transitions.detach().cpu().numpy(), cmap="Blues")
axes.set(xlabel="the next tag", ylabel="a tag", title="Transitions, learnt")
figure.colorbar(image, ax=axes, shrink=0.8)
s = int((emissions.argmax(-1) != decoded).sum(1).argmax())
meant, true = emissions[s].softmax(-1).T.numpy(), hidden[s].numpy()
beside.imshow(meant, cmap="Greys", aspect="auto", vmax=1.4, origin="lower")
beside.plot(meant.argmax(0), "s", color="#e8a33d", ms=6, label="word by word")
beside.plot(decoded[s].numpy(), "o-", color="#d1362f", ms=5, lw=1.5, label="by the chain")
beside.plot(true, "o", mfc="none", color="#22303c", ms=11, label="true")
beside.set(xlabel="word", ylabel="tag", xticks=range(0, 20, 2))
beside.set_title(f"{alone:.0%} right word by word, {chained:.0%} by the chain", loc="left")
beside.legend(ncols=3, frameon=False, loc="upper center", bbox_to_anchor=(0.5, -0.12))
if args.plot:
    figure.savefig(args.plot, dpi=150)
else:
    plt.show()
