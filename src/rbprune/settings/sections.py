"""The settings of a run, validated. ``settings.recipe`` reads and writes them."""

from __future__ import annotations

from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from rbprune.methods import Price


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class ModelConfig(_Section):
    """Which network, and where its trained weights are."""

    name: str
    weights: str | None = None
    classes: int | None = None
    input_shape: list[int] | None = None


class DataConfig(_Section):
    """Which data, where it lies, and how much of it is held out for choices."""

    name: str
    path: str | None = None
    val: int = Field(0, ge=0)
    augment: bool = True
    workers: int = Field(0, ge=0)
    image_size: int = Field(224, ge=8)
    limit: int | None = Field(None, ge=1)
    corrupt: Literal["error", "skip"] = "error"
    """What to do about an image that cannot be decoded: stop and name it, or leave it out of its batch."""


class OptimConfig(_Section):
    """How weights are trained in one phase."""

    epochs: float = Field(ge=0)
    batch_size: int = Field(128, ge=1)
    optimizer: Literal["sgd", "adam"] = "sgd"
    lr: float = Field(gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    decay: Literal["constant", "linear", "cosine", "step"] = "constant"
    warmup: float = Field(0.0, ge=0, lt=1)
    step_epochs: float = Field(3, gt=0)
    step_factor: float = Field(0.5, gt=0, le=1)


class PretrainConfig(OptimConfig):
    """Training of the dense network: before pruning where no weights are given; by ``rbprune train`` always, from the
    weights if there are some."""


class PriceConfig(_Section):
    """``{nats = 20}`` (the paper), ``{nats_per_mmac = L}`` or ``{nats_per_example = K}``; beside one of the last two
    ``nats`` is the least price of a channel, ``power`` the power of its MACs that it follows. See ``rbprune.Price``."""

    nats: float | None = Field(None, gt=0)
    nats_per_mmac: float | None = Field(None, gt=0)
    nats_per_example: float | None = Field(None, gt=0)
    power: float | None = Field(None, gt=0)

    @model_validator(mode="after")
    def _one(self) -> PriceConfig:
        given = self.model_dump(exclude_none=True, exclude={"power"})
        if self.power is not None and not given.keys() & {"nats_per_mmac", "nats_per_example"}:
            raise ValueError("power says how a price follows MACs: give it beside nats_per_mmac or nats_per_example")
        if not given or {"nats_per_mmac", "nats_per_example"} <= given.keys():
            raise ValueError("give nats, nats_per_mmac or nats_per_example (and nats beside one of these as the least)")
        return self

    def price(self) -> Price:
        """The same as an object of ``rbprune.methods``."""
        return Price(**self.model_dump())


class PruneConfig(OptimConfig):
    """Inference of the rates; ``epochs`` and the learning-rate schedule are those of one stage."""

    method: str = "rbp"
    price: PriceConfig
    rate_lr: float = Field(1e-2, gt=0)
    rates: Literal["adam", "fixed-point"] = "adam"
    """How the rates are found: by Adam, or by going to their fixed point for a running estimate of the curvature."""
    rate_init: float = Field(0.01, gt=0, lt=1)
    noise: Literal["example", "batch"] | None = None
    """One draw per example or per batch; by default as the method has it."""
    threshold: float | None = None
    """Where a channel counts as redundant, in the method's own unit; by default the method's own."""
    settle: float = Field(0.01, ge=0)
    """A stage ends early when the rates move less than this on average over a tenth of an epoch; 0: never."""
    macs_ratio: float | None = Field(None, ge=1)
    """Cut until the MACs are so many times fewer, along the method's ranking; some methods must be told."""
    least: float = Field(0.1, ge=0, le=1)
    """The share of its channels that every layer keeps when ``macs_ratio`` decides; at least one channel stays."""
    downsampling: bool = False
    """rrbp: also prune the blocks whose shortcut is not the identity (the paper leaves them alone)."""
    observe: int = Field(20, ge=1)
    """Training batches that a method looks at before it judges, where it does."""
    options: dict[str, float] = {}
    """Settings of one method only; see docs/methods.md."""
    keep: list[str] = []
    only: list[str] | None = None
    distill: float = Field(0.0, ge=0, le=1)


class FinetuneConfig(OptimConfig):
    """Training of the pruned network."""

    distill: float = Field(0.0, ge=0, le=1)
    """Share of the loss that asks to agree with the dense network."""


class RuntimeConfig(_Section):
    """The machine."""

    threads: int | None = Field(None, ge=1)
    accelerator: str = "auto"
    devices: int = Field(1, ge=1)
    precision: Literal["32-true", "bf16-mixed", "16-mixed"] = "32-true"
    channels_last: bool = False
    checkpoint_seconds: float = Field(120, gt=0)
    recalibrate: int = Field(50, ge=0)
    """Training batches over which batch-normalisation statistics are taken anew after a cut."""


class Config(_Section):
    """Everything that decides the result of a run."""

    task: Literal["prune", "train"] = "prune"
    """``train`` stops after the pretraining."""
    preset: str | None = None
    seed: int = Field(0, ge=0, lt=2**63)
    model: ModelConfig
    data: DataConfig
    pretrain: PretrainConfig | None = None
    prune: PruneConfig
    finetune: FinetuneConfig
    runtime: RuntimeConfig = RuntimeConfig()
    budget: float | None = Field(None, gt=0)
    """Dense epochs for pruning and fine-tuning together: pruning takes at most 40 % of it (its epochs are shortened if
    need be), and fine-tuning lasts as long as is left."""
