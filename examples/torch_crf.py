"""A linear-chain conditional random field, trained and decoded with semiring products.

The model scores a sequence of tags by emissions (batch, length, tags) and transitions (tags, tags).
The sum over all sequences is a chain of log_plus products; the best sequence is the same chain over
max_plus, and its gradient marks the tags of that sequence.

Run it: ``python examples/torch_crf.py``
"""

import torch

from semiring_mm.torch import matmul


def total(emissions, transitions, semiring):
    """⊕ over all tag sequences of their scores: the logarithm of their sum, or the best."""
    state = emissions[:, 0]  # (batch, tags)
    for emission in emissions[:, 1:].unbind(1):
        state = matmul(state, transitions, semiring) + emission
    return matmul(state, torch.zeros_like(state[0]), semiring)  # (batch,)


def score(emissions, transitions, tags):
    """The score of one sequence, tags being (batch, length)."""
    own = emissions.gather(2, tags[..., None]).sum((1, 2))
    return own + transitions[tags[:, :-1], tags[:, 1:]].sum(1)


def loss(emissions, transitions, tags):
    """How surprising the tags are: their negative log-likelihood, per sequence."""
    return (total(emissions, transitions, "log_plus") - score(emissions, transitions, tags)).mean()


def decode(emissions, transitions):
    """The best tags (Viterbi): where the best score has a gradient."""
    emissions = emissions.detach().requires_grad_()
    best = total(emissions, transitions.detach(), "max_plus")
    (marks,) = torch.autograd.grad(best.sum(), emissions)
    return marks.argmax(-1)  # (batch, length)


def plain(emissions, transitions):
    """The same sum as :func:`total` over log_plus, by a loop that broadcasts."""
    state = emissions[:, 0]
    for t in range(1, emissions.shape[1]):
        state = (state[:, :, None] + transitions).logsumexp(1) + emissions[:, t]
    return state.logsumexp(1)


def sequences(batch, length, tags, words, seed=0):
    """Words drawn by a hidden chain of tags: a tag tends to be followed by the next one."""
    generator = torch.Generator().manual_seed(seed)
    step = torch.eye(tags).roll(1, 1) * 20 + torch.rand(tags, tags, generator=generator)
    hidden = [torch.randint(tags, (batch,), generator=generator)]
    for _ in range(length - 1):
        hidden.append(torch.multinomial(step[hidden[-1]], 1, generator=generator)[:, 0])
    hidden = torch.stack(hidden, 1)
    noise = torch.rand(batch, length, generator=generator) < 0.5  # a word may belong to any tag
    anything = torch.randint(words, (batch, length), generator=generator)
    return torch.where(noise, anything, hidden * (words // tags)), hidden


def main(steps=60, tags=8, words=32):
    """Train on 64 sequences; returns the losses and the parts of tags found in 64 others."""
    torch.manual_seed(0)
    emit = torch.nn.Embedding(words, tags)
    transitions = torch.nn.Parameter(torch.zeros(tags, tags))
    optimizer = torch.optim.Adam([*emit.parameters(), transitions], lr=0.1)
    observed, hidden = sequences(64, 20, tags, words)
    losses = []
    for step in range(steps):
        found = loss(emit(observed), transitions, hidden)
        optimizer.zero_grad()
        found.backward()
        optimizer.step()
        losses.append(found.item())
        if step % 10 == 0 or step == steps - 1:
            print(f"step {step:3}  loss {losses[-1]:.3f}")
    with torch.no_grad():
        emissions = emit(observed)
    torch.testing.assert_close(
        total(emissions, transitions, "log_plus"), plain(emissions, transitions)
    )
    observed, hidden = sequences(64, 20, tags, words, seed=1)
    alone = (emit(observed).argmax(-1) == hidden).float().mean().item()
    chained = (decode(emit(observed), transitions) == hidden).float().mean().item()
    print(f"tags found in new sequences: {alone:.0%} word by word, {chained:.0%} by the chain")
    return losses, alone, chained


if __name__ == "__main__":
    main()
