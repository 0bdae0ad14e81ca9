"""VGG16 for 32x32 images: thirteen 3x3 convolutions, then three fully connected layers."""

from __future__ import annotations

from torch import Tensor, nn

WIDTHS = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))
HIDDEN = 512


class VGG16Cifar(nn.Module):
    """VGG16 with batch normalisation; a max pool ends each group, so that 32x32 pixels become 1x1.

    The two hidden layers of the classifier are batch-normalised too: it makes training with a high one-cycle
    learning rate stable, which the plain 512-512-classes head is not.

    >>> import torch
    >>> VGG16Cifar()(torch.zeros(2, 3, 32, 32)).shape
    torch.Size([2, 10])
    """

    def __init__(self, *, classes: int = 10) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        channels = 3
        for group in WIDTHS:
            for width in group:
                layers += [
                    nn.Conv2d(channels, width, 3, padding=1, bias=False),
                    nn.BatchNorm2d(width),
                    nn.ReLU(inplace=True),
                ]
                channels = width
            layers.append(nn.MaxPool2d(2))
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Sequential(
            nn.Linear(channels, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, HIDDEN),
            nn.BatchNorm1d(HIDDEN),
            nn.ReLU(inplace=True),
            nn.Linear(HIDDEN, classes),
        )
        for module in self.modules():
            if isinstance(module, nn.Conv2d | nn.Linear):
                nn.init.kaiming_normal_(module.weight, nonlinearity="relu")
                if module.bias is not None:
                    nn.init.zeros_(module.bias)

    def forward(self, x: Tensor) -> Tensor:
        scores: Tensor = self.classifier(self.features(x).flatten(1))
        return scores
