"""The settings of a run, validated. ``settings.recipe`` reads and writes them."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from rbprune.methods import PruningSettings
from rbprune.methods.ending import AT_REST, STAGE_STEPS
from rbprune.utils.section import Section

Precision = Literal["32-true", "bf16-mixed", "16-mixed"]
"""What a training step computes in: float32, or partly in 16 bits; by the names of Lightning Fabric."""

Classes = Annotated[int, Field(ge=1, le=1_000_000)]
InputShape = Annotated[list[Annotated[int, Field(ge=1, le=1_000_000)]], Field(max_length=8)]
"""The shape of one example."""


class ModelSettings(Section):
    """Which network, and where its trained weights are."""

    name: str
    weights: str | None = None
    plan: str | None = None
    """The ``plan.json`` of a run whose pruned network this is: its cuts are made before the weights are loaded."""
    classes: Classes | None = None
    input_shape: InputShape | None = None


class DataSettings(Section):
    """Which data, where it lies, and how much of it is held out for choices."""

    name: str
    path: str | None = None
    val: int = Field(0, ge=0)
    augment: bool = True
    workers: int = Field(0, ge=0)
    image_size: int = Field(224, ge=8)
    mean: list[float] | None = None
    """What is taken from red, green and blue (0 to 1) of images from files; by default ImageNet's means."""
    std: list[float] | None = None
    """What they are divided by; by default ImageNet's standard deviations."""
    interpolation: Literal["bilinear", "bicubic", "nearest"] = "bilinear"
    crop: float | None = Field(None, gt=0, le=1)
    """Images are resized so that ``image_size`` is this part of their shorter side; by default to a square of which it
    is 224/256."""
    limit: int | None = Field(None, ge=1)
    corrupt: Literal["error", "skip"] = "error"
    """What to do about an image that cannot be decoded: stop and name it, or leave it out of its batch."""

    @model_validator(mode="after")
    def _has_three_colours(self) -> Self:
        for name, values in (("mean", self.mean), ("std", self.std)):
            if values is not None and len(values) != 3:
                raise ValueError(f"{name} = {values} must be three numbers, of red, green and blue")
        if self.std is not None and min(self.std) <= 0:
            raise ValueError(f"std = {self.std}: images are divided by it, so it must be positive")
        return self


RECOVERY_STEPS, RECOVERY_EPOCHS = 1000, 5
"""Recovery after the cuts, where nobody says how long: at least so many steps (of a small data set many passes), and at
least so many passes over a large one."""


class OptimSettings(Section):
    """How weights are trained in one phase."""

    epochs: float | None = Field(None, ge=0)
    batch_size: int = Field(128, ge=1)
    optimizer: Literal["sgd", "adam", "adamw", "muon"] = "sgd"
    """``muon``: momentum made orthogonal for convolutions and linear layers, Adam for the rest (``train/muon.py``)."""
    lr: float = Field(gt=0)
    momentum: float = Field(0.9, ge=0, lt=1)
    weight_decay: float = Field(0.0, ge=0)
    decay: Literal["constant", "linear", "cosine", "step"] = "constant"
    warmup: float = Field(0.0, ge=0, lt=1)
    step_epochs: float = Field(3, gt=0)
    step_factor: float = Field(0.5, gt=0, le=1)

    @property
    def length(self) -> float:
        """``epochs``, once they are decided."""
        assert self.epochs is not None, "with_epochs decides it"
        return self.epochs


class PretrainSettings(OptimSettings):
    """Training of the dense network: before pruning where no weights are given; by ``rbprune train`` always, from the
    weights if there are some."""

    epochs: float = Field(ge=0)


class PruneSettings(OptimSettings, PruningSettings):
    """Inference of the rates; ``epochs`` and the learning-rate schedule are those of one stage."""

    epochs: float | None = Field(None, ge=0)
    """How long a stage lasts at most; by default ``STAGE_STEPS`` steps, which are many passes over a small data set and
    a part of one over a large one."""
    optimizer: Literal["sgd", "adam", "adamw", "muon"] = "adam"
    lr: float = Field(1e-3, gt=0)
    settle: float = Field(AT_REST, ge=0)
    """A stage ends early when the rates move less than this on average over a tenth of an epoch; 0: never."""
    observe: int = Field(20, ge=1)
    """Training batches that a method looks at before it judges, where it does."""
    distill: float = Field(0.0, ge=0, le=1)
    """Share of the loss that asks to agree with the dense network."""
    max_error_rise: float | None = Field(None, ge=0)
    """Make the network as small as it gets while its validation error is at most so many points above the dense
    network's, instead of once by a price or down to a ratio."""

    @model_validator(mode="after")
    def _has_one_aim(self) -> Self:
        if self.max_error_rise is not None and self.ratio is not None:
            cost, ratio = self.ratio
            raise ValueError(
                f"max_error_rise = {self.max_error_rise:g} goes as far as the error allows, and {cost.name}_ratio = "
                f"{ratio:g} says how far: give one of them"
            )
        return self

    def with_epochs(self, steps: int) -> Self:
        """The same settings with the length of a stage in epochs of so many steps, where it was left open."""
        return self if self.epochs is not None else self.model_copy(update={"epochs": STAGE_STEPS / steps})


class FinetuneSettings(OptimSettings):
    """Training of the pruned network."""

    epochs: float | None = Field(None, ge=0)
    """How long the pruned network is trained. Where neither this nor ``Settings.budget`` is given, what is left of a
    budget that is the same for every method: what the default method's stages may take and, of the dense network,
    ``RECOVERY_STEPS`` steps or ``RECOVERY_EPOCHS`` epochs, whichever is longer (``train/budget.py``)."""
    optimizer: Literal["sgd", "adam", "adamw", "muon"] = "adam"
    lr: float = Field(1e-3, gt=0)
    decay: Literal["constant", "linear", "cosine", "step"] = "cosine"
    distill: float = Field(0.0, ge=0, le=1)
    """Share of the loss that asks to agree with the dense network."""
    label_smoothing: float = Field(0.0, ge=0, lt=1)
    """Share of every label that is spread evenly over all classes."""
    average: float = Field(0.0, ge=0, le=1)
    """Share of the steps, the last ones, over which the weights are averaged; the network ends with the average."""
    reinitialise: bool = False
    """Whether the pruned network starts again from fresh weights: what its widths alone are worth."""

    def with_epochs(self, steps: int) -> Self:
        """The same settings with the length of the recovery in epochs of so many steps, where it was left open.

        >>> FinetuneSettings().with_epochs(8).epochs, FinetuneSettings().with_epochs(400).epochs
        (125.0, 5.0)
        """
        recovery = max(float(RECOVERY_EPOCHS), RECOVERY_STEPS / steps)
        return self if self.epochs is not None else self.model_copy(update={"epochs": recovery})


class RuntimeSettings(Section):
    """The machine."""

    threads: int | None = Field(None, ge=1)
    accelerator: str = "auto"
    devices: int = Field(1, ge=1)
    precision: Literal["auto", Precision] = "auto"
    """``auto`` takes bf16 where the device computes it and measured training steps are faster, and float32 elsewhere;
    the settings of a run that has begun hold what was decided."""
    channels_last: Literal["auto", True, False] = "auto"
    """``auto`` takes the memory layout in which measured training steps are faster."""
    checkpoint_seconds: float = Field(120, gt=0)
    recalibrate: int = Field(50, ge=0)
    """Training batches over which batch-normalisation statistics are taken anew after a cut."""
    tracker: str | None = None
    """``package.module:factory`` or ``path/file.py:factory``, which makes something that is handed every event."""
    time: bool = False
    """Whether the latency of the dense and the pruned network is measured at the end."""


class Settings(Section):
    """Everything that decides the result of a run."""

    task: Literal["prune", "train"] = "prune"
    """``train`` stops after the pretraining."""
    preset: str | None = None
    seed: int = Field(0, ge=0, lt=2**63)
    model: ModelSettings
    data: DataSettings
    pretrain: PretrainSettings | None = None
    prune: PruneSettings = PruneSettings()
    finetune: FinetuneSettings = FinetuneSettings()
    runtime: RuntimeSettings = RuntimeSettings()
    budget: float | None = Field(None, gt=0)
    """Dense epochs for pruning and fine-tuning together: fine-tuning lasts as long as is left of them. Where neither
    this nor ``finetune.epochs`` is given, it is decided (``train/budget.py``)."""
    pruning_share: float | None = Field(None, gt=0, le=1)
    """At most so much of the budget goes into pruning, whose stages are shortened if need be: by default 0.4 of a
    budget that was given, and as much as it takes of one that was decided."""
