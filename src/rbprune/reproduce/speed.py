"""The paper's table of practical acceleration, measured on whatever device is here.

The paper gives the widths of its VGG16 layer by layer, those of ResNet50 by RBP stage by stage and those by RRBP only
in total. Where it gives a sum, every layer below it gets the same share.
"""

from __future__ import annotations

from collections.abc import Sequence

from rbprune import models
from rbprune.graph import Site, trace
from rbprune.measure.count import stage_of
from rbprune.measure.latency import latency
from rbprune.report.plain_table import PlainTable
from rbprune.reproduce import paper
from rbprune.runs.pair import Pair, kept_pair

BATCHES = (1, 32)
STAGES = ("layer1", "layer2", "layer3", "layer4")


def paper_pairs() -> dict[str, Pair]:
    """The dense networks of the paper's table and their pruned selves."""
    vgg = "-".join(str(left.kept) for left in paper.VGG16_CHANNELS)
    sites = _resnet_sites()
    shares = {stage: left.kept / left.channels for stage, left in zip(STAGES, paper.RESNET50_STAGES, strict=True)}
    rbp = [shares.get(stage_of(site.name), 1.0) for site in sites]
    inside = [site.residual == "inside" and not site.downsample for site in sites]
    total = sum(site.channels for site, open_ in zip(sites, inside, strict=True) if open_)
    rrbp = [1 - paper.RRBP_REMOVED / total if open_ else 1.0 for open_ in inside]
    return {
        "VGG-RBP": kept_pair("torchvision:vgg16", vgg),
        "ResNet50-RBP": kept_pair("torchvision:resnet50", _keep(sites, rbp)),
        "ResNet50-RRBP": kept_pair("torchvision:resnet50", _keep(sites, rrbp)),
    }


def _resnet_sites() -> list[Site]:
    name = "torchvision:resnet50"
    model = models.build(name)
    return [site for site in trace(model, models.example_input(name, model)).sites if site.residual != "sum"]


def _keep(sites: Sequence[Site], shares: Sequence[float]) -> str:
    widths = [max(1, round(share * site.channels)) for site, share in zip(sites, shares, strict=True)]
    return "-".join(map(str, widths))


def gpu_table(
    pairs: dict[str, Pair], *, rounds: int, batches: Sequence[int] = BATCHES, device: str = "auto"
) -> PlainTable:
    """Dense / pruned: time for each batch size, storage, MACs."""
    rows = []
    machine = ""
    for row in paper.GPU:
        rows.append((row.model, "paper, batch 32", f"{row.time:.1f}x", "", f"{row.storage:.1f}x", ""))
        if row.model not in pairs:
            continue
        pair = pairs[row.model]
        networks = {"dense": pair.dense, "pruned": pair.pruned}
        found = latency(networks, pair.shape, batches=batches, rounds=rounds, device=device)
        machine = str(found.machine)
        for batch in batches:
            time = found.at("pruned", batch).ratio
            spread = f"{time.low:.2f} .. {time.high:.2f}"
            size = f"{found.storage_ratio['pruned']:.2f}x"
            rows.append(
                (row.model, f"here, batch {batch}", f"{time.median:.2f}x", spread, size, f"{pair.macs_ratio:.2f}x")
            )
    columns = ("model", "by", "time", "quartiles", "storage", "MACs")
    note = f"Here: {machine}, medians of {rounds} interleaved rounds; the paper: GTX 1080 Ti, Caffe, cuDNN 5."
    return PlainTable("Practical acceleration", columns, tuple(rows), names=2, note=note)
