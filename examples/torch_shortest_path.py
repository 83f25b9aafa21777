"""Shortest paths as a layer: what a kind of road costs, learnt from travel times alone.

On a grid of streets of some kinds, times between pairs of crossings are observed, but neither the
routes taken nor the cost of any street. The layer finds all shortest paths under the current costs;
the gradient of a time counts the streets on its path.

Run it: ``python examples/torch_shortest_path.py``
"""

import torch

from semiring_mm.torch import apsp


def streets(side, kinds, seed=0):
    """Both directions of every street of a grid, and its kind: start, end, kind, (edges,) each."""
    node = torch.arange(side * side).view(side, side)
    start = torch.cat([node[:, :-1].flatten(), node[:-1].flatten()])
    end = torch.cat([node[:, 1:].flatten(), node[1:].flatten()])
    kind = torch.randint(kinds, start.shape, generator=torch.Generator().manual_seed(seed))
    return torch.cat([start, end]), torch.cat([end, start]), torch.cat([kind, kind])


class Times(torch.nn.Module):
    """Times between all crossings, by a positive cost for each kind of street."""

    def __init__(self, side, kinds):
        super().__init__()
        self.nodes = side * side
        self.start, self.end, self.kind = streets(side, kinds)
        self.raw = torch.nn.Parameter(torch.zeros(kinds))

    def costs(self):
        return torch.nn.functional.softplus(self.raw)

    def weights(self):
        """The matrix of the graph, inf where there is no street."""
        none = self.raw.new_full((self.nodes, self.nodes), torch.inf)
        return none.index_put((self.start, self.end), self.costs()[self.kind])

    def forward(self):
        return apsp(self.weights())


def plain(weights):
    """The same times by a loop (Floyd and Warshall), which PyTorch differentiates step by step."""
    n = len(weights)
    d = torch.where(torch.eye(n, dtype=torch.bool, device=weights.device), 0, weights)
    for k in range(n):
        d = torch.minimum(d, d[:, k : k + 1] + d[k])
    return d


def main(steps=80, side=8):
    """Learn three costs; returns the losses, what was found and what is true."""
    torch.manual_seed(0)
    true = torch.tensor([0.5, 1.2, 3.0])
    layer = Times(side, len(true))
    with torch.no_grad():
        layer.raw.copy_(true.expm1().log())
        times = layer() * (1 + 0.05 * torch.randn(side**2, side**2))
        seen = torch.rand(side**2, side**2) < 0.2
        layer.raw.zero_()
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    losses = []
    for step in range(steps):
        error = (layer() - times)[seen].square().mean()
        optimizer.zero_grad()
        error.backward()
        optimizer.step()
        losses.append(error.item())
        if step % 10 == 0 or step == steps - 1:
            shown = ", ".join(f"{cost:.2f}" for cost in layer.costs().tolist())
            print(f"step {step:3}  error {losses[-1]:8.4f}  costs {shown}")
    weights = layer.weights().detach()
    torch.testing.assert_close(apsp(weights), plain(weights))
    print(f"true costs {', '.join(f'{cost:.2f}' for cost in true.tolist())}")
    return losses, layer.costs().detach(), true


if __name__ == "__main__":
    main()
