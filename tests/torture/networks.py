"""Two hundred networks and more that nobody here has made, and the hostile ones that we have: names, makers, inputs.

A library that is not installed has no networks here, and ``MISSING`` says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from torch import nn

from rbprune.utils.torchvision import import_torchvision
from tests.graph.hostile_networks import NETWORKS as HOSTILE

TORCHVISION = """alexnet convnext_tiny densenet121 efficientnet_b0 efficientnet_v2_s googlenet maxvit_t
mnasnet0_5 mnasnet1_0 mobilenet_v2 mobilenet_v3_large mobilenet_v3_small regnet_x_400mf regnet_x_800mf regnet_y_400mf
regnet_y_800mf resnet18 resnet34 resnet50 resnext50_32x4d shufflenet_v2_x0_5 shufflenet_v2_x1_0 squeezenet1_0
squeezenet1_1 swin_t swin_v2_t wide_resnet50_2 densenet169 resnet101"""
TORCHVISION_SEGMENTATION = "fcn_resnet50 deeplabv3_resnet50 deeplabv3_mobilenet_v3_large lraspp_mobilenet_v3_large"
TIMM = """botnet26t_256 eca_botnext26ts_256 halonet26t lambda_resnet26t bat_resnext26ts eca_resnet33ts gcresnet33ts
gernet_s mobileone_s0 mobileone_s1 regnetz_b16 repvgg_a0 resnet32ts coat_lite_mini convit_tiny convnext_atto
convnext_atto_rms convnextv2_atto convnext_zepto_rms cpubone_nano crossvit_9_240 csatv2 cs3darknet_s
cs3darknet_focus_s cs3sedarknet_x cspdarknet53 cspresnet50 cspresnext50 darknet53 davit_tiny
deit_tiny_patch16_224 densenetblur121d dla34 dla46_c dla46x_c dla60_res2net dla60x_c dpn48b dpn68
edgenext_xx_small edgenext_x_small efficientformer_l1 efficientformerv2_s0 efficientnet_b0 efficientnet_b0_gn
efficientnet_b0_g16_evos efficientnet_b1_pruned efficientnet_cc_b0_4e efficientnet_es efficientnet_lite0
efficientnetv2_rw_t efficientvim_m1 efficientvit_b0 efficientvit_m0 eva02_tiny_patch14_224 fasternet_t0
fasternet_t1 fastvit_t8 fastvit_sa12 fbnetc_100 fbnetv3_b focalnet_tiny_srf gcvit_xxtiny gernet_m ghostnet_050
ghostnet_100 ghostnetv2_100 ghostnetv3_050 hardcorenas_a hgnetv2_b0 hgnet_tiny hiera_tiny_224 hrnet_w18_small
hrnet_w18_small_v2 iformer_t inception_next_atto inception_resnet_v2 inception_v4 lcnet_050 lcnetv2_small
levit_128s levit_conv_128s lowformer_b0 mambaout_femto coatnet_pico_rw_224 maxvit_rmlp_pico_rw_256
poolformer_s12 poolformerv2_s12 convformer_s18 caformer_s18 mixer_s32_224 resmlp_12_224 gmlp_ti16_224 mixnet_s
mixnet_m mnasnet_small mobilenetv2_050 mobilenetv3_small_050 mobilenetv4_conv_small mobilenet_edgetpu_v2_xs
mobilevit_xxs mobilevitv2_050 mvitv2_tiny nest_tiny nextvit_small nf_resnet26 nf_regnet_b0 nfnet_l0 eca_nfnet_l0
pit_ti_224 pvt_v2_b0 rdnet_tiny regnetv_040 regnetx_002 regnety_002 regnetz_c16_evos repghostnet_050 repvit_m0_9
res2net50_14w_8s res2net50_26w_4s res2next50 resnest14d resnest26d ecaresnet26t resnet10t resnet14t resnet18d
resnet26d resnetaa50 resnetblur18 resnetrs50 resnext26ts seresnet18 seresnext26d_32x4d resnetv2_18 resnetv2_50
resnetv2_50d_evos resnetv2_50d_frn resnetv2_50d_gn resnetv2_50x1_bit rexnet_100 rexnetr_100 selecsls42
selecsls60b legacy_seresnet18 legacy_seresnext26_32x4d semnasnet_075 sequencer2d_s shvit_s1 skresnet18
skresnet34 skresnext50_32x4d spnasnet_100 starnet_s050 swiftformer_xs swin_tiny_patch4_window7_224
swinv2_tiny_window8_256 tf_efficientnet_b0 tf_efficientnetv2_b0 tf_mixnet_s tf_mobilenetv3_small_minimal_100
tiny_vit_5m_224 tinynet_e tresnet_m tnt_s_patch16_224 twins_svt_small visformer_tiny vit_tiny_patch16_224
vit_tiny_r_s16_p8_224 vitamin_small_224 volo_d1_224 eca_vovnet39b ese_vovnet19b_dw ese_vovnet39b vovnet39a
xception41 xcit_nano_12_p16_224"""
SMP = """Unet UnetPlusPlus MAnet Linknet FPN PSPNet DeepLabV3 DeepLabV3Plus PAN UPerNet Segformer"""
ULTRALYTICS = """v8/yolov8n v8/yolov8n-seg v8/yolov8n-pose v8/yolov8n-cls v8/yolov8n-ghost 11/yolo11n 11/yolo11n-seg
12/yolo12n v5/yolov5n v6/yolov6n v9/yolov9t v10/yolov10n v3/yolov3-tiny 26/yolo26n"""


@dataclass(frozen=True)
class Network:
    """A network of a library: its name there, its maker, and what it reads."""

    library: str
    name: str
    make: Callable[[], nn.Module]
    channels: int = 3
    dims: int = 2
    inputs: Any = None
    """What it is given, where that is no image of the smallest size that it accepts."""


def networks() -> Iterator[Network]:
    """All networks of the libraries that are there."""
    for library, listed in _LIBRARIES.items():
        if find_spec(library) is not None:
            yield from listed()
    for name, case in HOSTILE.items():
        yield Network("hostile", name, case.make, inputs=case.shape)


def missing() -> list[str]:
    """The libraries that are not installed."""
    return [library for library in _LIBRARIES if find_spec(library) is None]


def _torchvision() -> Iterator[Network]:
    zoo = import_torchvision().models
    for name in TORCHVISION.split():
        yield Network("torchvision", name, lambda name=name: zoo.get_model(name, weights=None))
    for name in TORCHVISION_SEGMENTATION.split():
        options = {"weights": None, "weights_backbone": None, "num_classes": 4}
        yield Network("torchvision", name, lambda name=name, o=options: zoo.get_model(name, **o))
    inception = lambda: zoo.inception_v3(weights=None, init_weights=False)  # noqa: E731
    yield Network("torchvision", "inception_v3", inception, inputs=(2, 3, 299, 299))
    yield Network("torchvision", "r2plus1d_18", lambda: zoo.video.r2plus1d_18(weights=None), dims=3)
    yield Network("torchvision", "r3d_18", lambda: zoo.video.r3d_18(weights=None), dims=3)


def _timm() -> Iterator[Network]:
    import_torchvision()  # timm imports it, and it may need help
    import timm

    for name in TIMM.split():
        yield Network("timm", name, lambda name=name: timm.create_model(name))


def _smp() -> Iterator[Network]:
    import_torchvision()
    import segmentation_models_pytorch as smp

    for encoder in ("resnet18", "mobilenet_v2", "efficientnet-b0"):
        for name in SMP.split():
            make = lambda name=name, encoder=encoder: getattr(smp, name)(encoder, encoder_weights=None, classes=2)  # noqa: E731
            if (encoder, name) != ("mobilenet_v2", "PAN"):
                yield Network("segmentation_models_pytorch", f"{name} on {encoder}", make)


def _monai() -> Iterator[Network]:
    from monai.networks import nets

    flat: dict[str, Any] = {"spatial_dims": 2, "in_channels": 1, "out_channels": 2}
    widths = {"channels": (8, 16, 32), "strides": (2, 2)}
    listed: dict[str, Callable[[], nn.Module]] = {
        "UNet": lambda: nets.UNet(**flat, **widths, num_res_units=2),
        "AttentionUnet": lambda: nets.AttentionUnet(**flat, **widths),
        "BasicUNet": lambda: nets.BasicUNet(**flat, features=(8, 8, 16, 16, 32, 8)),
        "BasicUNetPlusPlus": lambda: nets.BasicUNetPlusPlus(**flat, features=(8, 8, 16, 16, 32, 8)),
        "DynUNet": lambda: nets.DynUNet(**flat, kernel_size=[3, 3, 3], strides=[1, 2, 2], upsample_kernel_size=[2, 2]),
        "SegResNet": lambda: nets.SegResNet(**flat, init_filters=8),
        "SegResNetDS": lambda: nets.SegResNetDS(**flat, init_filters=8),
        "HighResNet": lambda: nets.HighResNet(**flat),
        "DenseNet121": lambda: nets.DenseNet121(**flat),
        "EfficientNetBN": lambda: nets.EfficientNetBN(
            "efficientnet-b0", spatial_dims=2, in_channels=1, pretrained=False
        ),
        "FlexibleUNet": lambda: nets.FlexibleUNet(1, 2, "efficientnet-b0", pretrained=False),
        "AutoEncoder": lambda: nets.AutoEncoder(**flat, channels=(8, 16, 32), strides=(2, 2, 2)),
        "SEResNet50": lambda: nets.SEResNet50(spatial_dims=2, in_channels=1, num_classes=2),
        "MedNeXtS": lambda: nets.MedNeXtS(spatial_dims=2, in_channels=1, out_channels=2),
    }
    for name, make in listed.items():
        yield Network("monai", name, make, channels=1)
    solid = {**flat, "spatial_dims": 3}
    yield Network("monai", "UNet, 3d", lambda: nets.UNet(**solid, **widths, num_res_units=1), channels=1, dims=3)
    yield Network("monai", "VNet, 3d", lambda: nets.VNet(**solid), channels=1, dims=3)
    resnet = {"spatial_dims": 3, "n_input_channels": 1, "num_classes": 2}
    yield Network("monai", "ResNet10, 3d", lambda: nets.resnet10(**resnet), channels=1, dims=3)


def _transformers() -> Iterator[Network]:
    import transformers as hf

    small = {"embedding_size": 16, "hidden_sizes": [16, 24, 32, 40], "depths": [1, 1, 1, 1]}
    listed: dict[str, Callable[[], nn.Module]] = {
        "ResNet": lambda: hf.ResNetForImageClassification(hf.ResNetConfig(**small)),
        "RegNet": lambda: hf.RegNetForImageClassification(hf.RegNetConfig(**small, groups_width=8)),
        "Bit": lambda: hf.BitForImageClassification(
            hf.BitConfig(hidden_sizes=[32, 64, 96, 128], depths=[1, 1, 1, 1], num_groups=8)
        ),
        "ConvNext": lambda: hf.ConvNextForImageClassification(hf.ConvNextConfig(hidden_sizes=[16, 24, 32, 40])),
        "ConvNextV2": lambda: hf.ConvNextV2ForImageClassification(hf.ConvNextV2Config(hidden_sizes=[16, 24, 32, 40])),
        "MobileNetV1": lambda: hf.MobileNetV1ForImageClassification(hf.MobileNetV1Config(depth_multiplier=0.25)),
        "MobileNetV2": lambda: hf.MobileNetV2ForImageClassification(hf.MobileNetV2Config(depth_multiplier=0.35)),
        "MobileViT": lambda: hf.MobileViTForImageClassification(hf.MobileViTConfig()),
        "PoolFormer": lambda: hf.PoolFormerForImageClassification(hf.PoolFormerConfig()),
        "Segformer": lambda: hf.SegformerForSemanticSegmentation(hf.SegformerConfig()),
        "Levit": lambda: hf.LevitForImageClassification(hf.LevitConfig()),
        "EfficientNet": lambda: hf.EfficientNetForImageClassification(
            hf.EfficientNetConfig(width_coefficient=0.5, depth_coefficient=0.5, hidden_dim=640)
        ),
    }
    for name, make in listed.items():
        yield Network("transformers", name, make)


def _ultralytics() -> Iterator[Network]:
    import_torchvision()
    from ultralytics import YOLO

    for name in ULTRALYTICS.split():
        path = Path(name)
        yield Network("ultralytics", path.name, lambda name=path.name: YOLO(f"{name}.yaml").model)


_LIBRARIES: dict[str, Callable[[], Iterator[Network]]] = {
    "torchvision": _torchvision,
    "timm": _timm,
    "segmentation_models_pytorch": _smp,
    "monai": _monai,
    "transformers": _transformers,
    "ultralytics": _ultralytics,
}
