"""Networks for segmentation: several outputs, interpolation to the input's size, skips, transposed convolutions."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from rbprune import models, trace
from tests.networks import check_cut, left_alone, random_drop, relative_error, scramble

NETWORKS = {"lraspp_mobilenet_v3_large": (), "deeplabv3_mobilenet_v3_large": ("aux",), "fcn_resnet50": ("aux",)}


def build(name: str) -> nn.Module:
    zoo = models.import_torchvision().models.segmentation
    options = {"aux_loss": True} if NETWORKS[name] else {}
    return getattr(zoo, name)(weights=None, weights_backbone=None, num_classes=4, **options)


class DoubleConv(nn.Sequential):
    """Two convolutions with batch norm, as in U-Net."""

    def __init__(self, i: int, o: int) -> None:
        layers = [[nn.Conv2d(a, o, 3, padding=1, bias=False), nn.BatchNorm2d(o), nn.ReLU()] for a in (i, o)]
        super().__init__(*layers[0], *layers[1])


class UNet(nn.Module):
    """A small U-Net that goes up by transposed convolutions or by bilinear interpolation."""

    def __init__(self, bilinear: bool) -> None:
        super().__init__()
        self.bilinear = bilinear
        self.down1, self.down2, self.down3 = DoubleConv(3, 6), DoubleConv(6, 8), DoubleConv(8, 10)
        if not bilinear:
            self.up2, self.up1 = nn.ConvTranspose2d(10, 8, 2, 2), nn.ConvTranspose2d(8, 6, 2, 2)
        self.join2 = DoubleConv(18 if bilinear else 16, 8)
        self.join1 = DoubleConv(14 if bilinear else 12, 6)
        self.head = nn.Conv2d(6, 2, 1)

    def rise(self, x: Tensor, skip: Tensor, up: str) -> Tensor:
        if self.bilinear:
            x = F.interpolate(x, size=skip.shape[-2:], mode="bilinear", align_corners=False)
        else:
            x = getattr(self, up)(x)
            dy, dx = skip.size(2) - x.size(2), skip.size(3) - x.size(3)
            x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return torch.cat([skip, x], dim=1)

    def forward(self, x: Tensor) -> Tensor:
        one = self.down1(x)
        two = self.down2(F.max_pool2d(one, 2))
        three = self.down3(F.max_pool2d(two, 2))
        two = self.join2(self.rise(three, two, "up2"))
        return self.head(self.join1(self.rise(two, one, "up1")))


@pytest.mark.parametrize("name", NETWORKS)
def test_every_output_of_a_segmentation_network_is_the_same_masked_and_cut(name: str) -> None:
    training = name == "deeplabv3_mobilenet_v3_large"
    model = build(name)
    x = torch.randn(2, 3, 40, 48, dtype=torch.float64)
    graph = trace(model, x.float())
    assert left_alone(model, graph) == {}
    drop = random_drop(graph)
    scramble(model).train(training)
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
    with torch.no_grad():
        with graph.mask(drop):
            masked = model(x)
        graph.remove(drop)
        removed = model(x)
    assert list(removed) == ["out", *NETWORKS[name]]
    for head, wanted in masked.items():
        assert wanted.shape == (2, 4, 40, 48)
        assert relative_error(wanted, removed[head]) < 1e-9, head


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("bilinear", [False, True], ids=["transposed", "bilinear"])
def test_a_u_net_is_the_same_masked_and_cut(bilinear: bool, training: bool) -> None:
    model = scramble(UNet(bilinear)).train(training)
    x = torch.randn(2, 3, 18, 22, dtype=torch.float64)
    graph = trace(model, x)
    assert left_alone(model, graph) == {}
    widths = {"down1.0": 6, "down1.3": 6, "down2.0": 8, "down2.3": 8, "down3.0": 10, "down3.3": 10}
    widths |= {"join2.0": 8, "join2.3": 8, "join1.0": 6, "join1.3": 6} | ({} if bilinear else {"up2": 8, "up1": 6})
    assert {site.name: site.channels for site in graph.sites} == widths
    check_cut(graph, random_drop(graph), x)
