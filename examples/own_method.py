"""A pruning method of your own: one class, then it is a name like any other.

This one removes the filters whose weights point in nearly the same direction as another filter of their layer.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils.data import DataLoader, TensorDataset

import rbprune
from rbprune.graph import Site
from rbprune.methods import register_method
from rbprune.methods.ranking import RankStage


class Similar(RankStage):
    """A filter matters less the more another one resembles it."""

    def score(self, site: Site) -> Tensor:
        out = next(part for part in site.parts if part.role == "out")
        weight, dim = self.graph.weight_along(out)
        filters = F.normalize(weight.detach().movedim(dim, 0)[self.graph.places(site, out)].flatten(1), dim=1)
        likeness = filters @ filters.T - 2 * torch.eye(len(filters))
        return 1 - likeness.max(dim=1).values


register_method("similar", Similar, summary="filters that resemble another one")


def main() -> None:
    """Train a small network on stripes, prune it by the new method, fine-tune it."""
    torch.manual_seed(0)
    labels = torch.randint(3, (1024,))
    images = 0.5 * torch.randn(1024, 1, 8, 8)
    images[labels == 0, :, ::2, :] += 1
    images[labels == 1, :, :, ::2] += 1
    loader = DataLoader(TensorDataset(images, labels), batch_size=64, shuffle=True)
    model = nn.Sequential(
        nn.Conv2d(1, 16, 3),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.Conv2d(16, 32, 3),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(512, 3),
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(2):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    result = rbprune.prune(
        model,
        loader,
        example_inputs=images[:2],
        val_loader=loader,
        method="similar",
        options=["prune.macs_ratio=4", "finetune.epochs=2"],
    )
    summary = result.summary
    print(f"MACs {summary['macs_ratio']:.2f}x, error {summary['error_before']:.2f} % -> {summary['error_after']:.2f} %")


if __name__ == "__main__":
    main()
