"""What the paper printed: errors in per cent, parameters (its CR) and MACs (its FLOPs) as reductions."""

from __future__ import annotations

from typing import NamedTuple


class PaperResult(NamedTuple):
    """A method in one of the paper's comparisons; ``macs`` and ``params`` say how many times fewer there are."""

    method: str
    macs: float
    error: float
    top5: float | None = None
    params: float | None = None
    channels: str = ""


class PaperChannels(NamedTuple):
    """A layer or stage of a channel table; ``macs`` is the reduction once it and all before it are cut."""

    name: str
    kept: int
    channels: int
    macs: float


class PaperSpeed(NamedTuple):
    """A row of the GPU table; ``top5`` is the change of the top-5 error in points."""

    model: str
    time: float
    storage: float
    top5: float


CIFAR10 = (
    PaperResult("Baseline", 1.0, 8.4, None, 1.0, "64-64-128-128-256-256-256-512-512-512-512-512-512-512-512"),
    PaperResult("SBP", 3.2, 9.0, None, 17.0, "47-50-91-115-227-160-50-72-51-12-34-39-20-20-272"),
    PaperResult("BC", 2.6, 9.0, None, 18.6, "51-62-125-128-228-129-38-13-9-6-5-6-6-6-20"),
    PaperResult("RBC", 3.1, 9.5, None, 25.7, "43-62-120-120-182-113-40-12-20-11-6-9-10-10-22"),
    PaperResult("IBP", 2.3, 8.3, None, 13.3, "45-63-122-123-246-199-82-31-20-17-14-14-31-21-21"),
    PaperResult("RBP", 3.5, 9.0, None, 39.1, "50-63-123-108-104-57-23-14-9-8-6-7-11-11-12"),
)

VGG16 = (
    PaperResult("Baseline", 1.0, 27.5, 9.2),
    PaperResult("DDS", 4.0, 31.5, 11.8),
    PaperResult("ThiNet", 3.2, 30.2, 10.5),
    PaperResult("CP", 4.4, 32.2, 11.9),
    PaperResult("RBP", 5.0, 31.6, 11.4),
)

VGG16_CHANNELS = (
    PaperChannels("conv1_1", 16, 64, 1.1),
    PaperChannels("conv1_2", 39, 64, 1.2),
    PaperChannels("conv2_1", 45, 128, 1.3),
    PaperChannels("conv2_2", 81, 128, 1.4),
    PaperChannels("conv3_1", 65, 256, 1.6),
    PaperChannels("conv3_2", 68, 256, 2.0),
    PaperChannels("conv3_3", 116, 256, 2.2),
    PaperChannels("conv4_1", 132, 512, 2.9),
    PaperChannels("conv4_2", 135, 512, 4.3),
    PaperChannels("conv4_3", 257, 512, 5.0),
)

RESNET50 = (
    PaperResult("Baseline", 1.0, 23.9, 7.1),
    PaperResult("DDS(32)", 1.4, 25.8, 8.1),
    PaperResult("DDS(26)", 1.7, 28.2, 9.2),
    PaperResult("CP", 1.5, 27.7, 9.2),
    PaperResult("ThiNet-50", 2.3, 29.0, 10.0),
    PaperResult("RBP", 2.3, 28.9, 10.0),
    PaperResult("RRBP", 2.2, 27.0, 9.0),
)

RESNET50_STAGES = (
    PaperChannels("res2", 20, 384, 1.2),  # printed as 20/256; three blocks of two convolutions with 64 channels are 384
    PaperChannels("res3", 67, 1024, 1.6),
    PaperChannels("res4", 2408, 3072, 1.8),
    PaperChannels("res5", 1105, 3072, 2.3),
)
RRBP_REMOVED = 4000
"""Channels that RRBP removed from the 5,632 of the 12 blocks without down-sampling."""

GPU = (
    PaperSpeed("VGG-RBP", 2.6, 3.6, 2.2),
    PaperSpeed("ResNet50-RBP", 1.4, 1.5, 2.9),
    PaperSpeed("ResNet50-RRBP", 1.3, 1.4, 1.8),
)
