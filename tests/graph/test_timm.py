"""CNNs of timm: traced, and what has a site is cut exactly. `python -m tests.graph.test_timm` prints a table."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn.modules.conv import _ConvNd

from rbprune import apply_plan, models, trace
from tests.networks import left_alone, random_drop, relative_error, scatter, scramble

WHOLE = (
    *("cspdarknet53", "cspresnet50", "darknet53", "densenet121", "dla34", "dpn48b", "efficientnet_b0"),
    *("efficientnetv2_rw_t", "ese_vovnet19b_dw", "fbnetc_100", "ghostnet_050", "hardcorenas_a", "hrnet_w18_small"),
    *(
        "inception_v4",
        "mixnet_s",
        "mobilenetv3_small_050",
        "mobileone_s0",
        "regnetx_002",
        "repvgg_a0",
        "resnest14d",
        "resnet18d",
    ),
    *("resnetblur50", "resnetv2_50", "resnetv2_50d_gn", "rexnet_100", "selecsls42b", "semnasnet_075", "seresnet18"),
    *("tf_efficientnetv2_b0", "tresnet_m", "xception41", "res2net50_26w_4s", "fasternet_t0"),
)
"""Every convolution belongs to a site."""
PARTLY = {
    "convnext_atto": "layer_norm normalises over channels",
    "convnextv2_atto": "layer_norm normalises over channels",
    "ecaresnet26t": "(Conv1d) reads channels that are not in one dimension",
    "edgenext_xx_small": "layer_norm normalises over channels",
    "nf_resnet26": "(ScaledStdConv2d) standardises its filters over input channels",
    "nfnet_l0": "(ScaledStdConv2d) standardises its filters over input channels",
    "resnetv2_50x1_bit": "(StdConv2d) standardises its filters over input channels",
    "skresnet18": "split selects channels by position",
}
"""Some convolutions are left alone, and why the first of them is."""

SUMS = {
    **{"darknet53": 5, "dla34": 6, "efficientnet_b0": 5, "efficientnetv2_rw_t": 6, "fbnetc_100": 6, "ghostnet_050": 6},
    **{"hardcorenas_a": 5, "hrnet_w18_small": 9, "mixnet_s": 12, "mobilenetv3_small_050": 3, "mobileone_s0": 4},
    **{"regnetx_002": 4, "repvgg_a0": 5, "res2net50_26w_4s": 16, "resnest14d": 4, "resnet18d": 4, "resnetblur50": 4},
    **{"resnetv2_50": 4, "resnetv2_50d_gn": 4, "semnasnet_075": 5, "seresnet18": 4, "tf_efficientnetv2_b0": 5},
    **{"tresnet_m": 4, "xception41": 4, "fasternet_t0": 8},
}
"""How many sites of a network are residual sums, where any are; they are cut with the others."""


def build(name: str) -> nn.Module:
    models.import_torchvision()  # timm imports it, and it may need help
    timm = pytest.importorskip("timm")
    return timm.create_model(name, drop_rate=0.0)


def example(name: str) -> torch.Tensor:
    size = 160 if name == "inception_v4" else 96
    return torch.randn(2, 3, size, size, dtype=torch.float64)


def layers(kind: str) -> nn.Sequential:
    """A small network around layers of timm that have a forward of their own."""
    models.import_torchvision()
    timm = pytest.importorskip("timm.layers")
    pool = timm.create_pool2d("max", 2, 2, padding="same")
    middle = {
        "same": [timm.Conv2dSame(6, 8, 3, 2), timm.BatchNormAct2d(8), pool],
        "depthwise same": [
            timm.Conv2dSame(6, 6, 3, 2, groups=6),
            timm.create_act_layer("hard_swish"),
            nn.Conv2d(6, 8, 1),
        ],
        "standardised": [timm.ScaledStdConv2d(6, 8, 3), timm.Swish(), timm.DropPath(0.0)],
        "depthwise standardised": [timm.ScaledStdConv2d(6, 6, 3, groups=6), nn.Conv2d(6, 8, 1)],
        "group norm": [timm.GroupNormAct(6, 3), nn.Conv2d(6, 8, 1), timm.DropPath(0.0)],
        "mixed": [timm.MixedConv2d(6, 8, [3, 5]), timm.BatchNormAct2d(8)],
        "depthwise mixed": [timm.MixedConv2d(6, 6, [3, 5], padding="same", depthwise=True), nn.Conv2d(6, 8, 1)],
        "blur": [timm.BlurPool2d(6), nn.Conv2d(6, 8, 1), timm.BatchNormAct2d(8, act_layer=timm.Swish)],
    }[kind]
    return nn.Sequential(nn.Conv2d(3, 6, 3), *middle, nn.Conv2d(8, 5, 1), nn.Flatten(), timm.Linear(45, 2))


LAYERS = {
    "same": (11, {"0": 6, "1": 8, "4": 5}),
    "depthwise same": (7, {"0": 6, "3": 8, "4": 5}),
    "standardised": (5, {"1": 8, "4": 5}),
    "depthwise standardised": (5, {"0": 6, "2": 8, "3": 5}),
    "group norm": (5, {"0": 3, "2": 8, "4": 5}),
    "mixed": (5, {"0": 3, "0#2": 3, "1.0": 4, "1.1": 4, "3": 5}),
    "depthwise mixed": (5, {"0": 3, "0#2": 3, "2": 8, "3": 5}),
    "blur": (7, {"0": 6, "2": 8, "4": 5}),
}
"""The size of the image that makes the layers fit, and the sites."""


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("kind", LAYERS)
def test_a_layer_of_timm_is_the_same_masked_and_cut(kind: str, training: bool) -> None:
    size, sites = LAYERS[kind]
    model = scramble(layers(kind)).train(training)
    scatter(model)
    x = torch.randn(3, 3, size, size, dtype=torch.float64)
    graph = trace(model, x)
    assert {site.name: site.channels for site in graph.sites} == sites
    drop = random_drop(graph)
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        with graph.mask(drop):
            masked = model(x)
        plan = graph.remove(drop)
        assert relative_error(masked, model(x)) < 1e-9
        assert relative_error(masked, apply_plan(fresh, plan)(x)) < 1e-9


@pytest.mark.slow
@pytest.mark.parametrize("name", [*WHOLE, *PARTLY])
def test_a_cnn_of_timm_is_the_same_masked_and_cut(name: str) -> None:
    model = build(name)
    x = example(name)
    state = copy.deepcopy(model.state_dict())
    graph = trace(model, x.float())
    assert all(torch.equal(value, state[key]) for key, value in model.state_dict().items())
    reasons = list(left_alone(model, graph).values())
    if name in WHOLE:
        assert reasons == []
        assert graph.sites
    else:
        assert PARTLY[name] in reasons[0]
    assert all(graph.is_module(reader) for site in graph.sites for reader in site.consumers)
    assert sum(site.residual == "sum" for site in graph.sites) == SUMS.get(name, 0)
    drop = random_drop(graph)
    scramble(model)
    scatter(model)
    fresh = copy.deepcopy(model)
    with torch.no_grad():
        dense = model(x)
        with graph.mask(drop):
            masked = [model.train(mode)(x) for mode in (False, True)]
        assert not drop or relative_error(dense, masked[0]) > 1e-6, "the mask did nothing"
        plan = graph.remove(drop)
        for mode, wanted in zip((False, True), masked, strict=True):
            assert relative_error(wanted, model.train(mode)(x)) < 1e-9, mode
        assert relative_error(masked[0], apply_plan(fresh, plan).eval()(x)) < 1e-9


def _row(name: str) -> Any:
    model = build(name)
    graph = trace(model, example(name).float())
    missing = left_alone(model, graph)
    convolutions = sum(isinstance(m, _ConvNd) for m in model.modules())
    first = next(iter(missing.values()), "").partition(" (/")[0]
    return f"| {name} | {len(graph.sites)} | {convolutions - len(missing)} / {convolutions} | {first} |"


if __name__ == "__main__":
    for network in sorted([*WHOLE, *PARTLY]):
        print(_row(network), flush=True)


BRANCHES = {"efficientnet_b0": 9, "regnetx_002": 9, "convnext_atto": 12, "seresnet18": 5, "mobilenetv3_small_050": 7}
"""Networks with branches beside an identity (also one through ``nn.Identity``), and how many."""
MORE_BRANCHES = {
    **{"cspdarknet53": 23, "cspresnet50": 13, "darknet53": 23, "dla34": 6, "fbnetc_100": 15, "ghostnet_050": 11},
    **{"hrnet_w18_small": 18, "resnetv2_50": 12, "resnetv2_50d_gn": 12, "tresnet_m": 18, "xception41": 8},
    **{"edgenext_xx_small": 12, "mixnet_s": 11, "res2net50_26w_4s": 12, "skresnet18": 5, "nf_resnet26": 4},
}


REFUSED = {"dla34": 2, "edgenext_xx_small": 3}
"""Branches that cannot go: a relu in place would write into what others read; attention with written shapes."""


@pytest.mark.parametrize(
    ("name", "number"),
    [*BRANCHES.items(), *(pytest.param(*each, marks=pytest.mark.slow) for each in MORE_BRANCHES.items())],
)
def test_every_branch_beside_an_identity_goes_exactly(name: str, number: int) -> None:
    torch.manual_seed(0)
    model = build(name).double().eval()
    graph = trace(model, x := example(name))
    graph.check_branches()
    assert (len(graph.branches), len(graph.frozen_branches)) == (number, REFUSED.get(name, 0))
    some = list(graph.branches)[::2]
    with torch.no_grad():
        with graph.mask({branch: [0] for branch in some}):
            masked = model(x)
        plan = graph.remove_blocks(some)
        assert relative_error(masked, model(x)) < 1e-12
        fresh = apply_plan(build(name).double(), plan).eval()
        fresh.load_state_dict(model.state_dict(), strict=True)
        assert relative_error(model(x), fresh(x)) == 0
