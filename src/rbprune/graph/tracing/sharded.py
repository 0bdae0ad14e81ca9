"""Networks of which every process holds only a part: they cannot be cut."""

from __future__ import annotations

from torch import nn

from rbprune.errors import ModelError


def refuse_sharded(model: nn.Module) -> None:
    """Refuse a network whose parameters are divided among processes (FSDP, tensor parallelism): no process has a whole
    layer to judge and to cut."""
    wrapper = next((m for m in model.modules() if type(m).__module__.startswith("torch.distributed.fsdp")), None)
    divided = next((name for name, p in model.named_parameters() if hasattr(p, "placements")), None)  # a DTensor
    if wrapper is None and divided is None:
        return
    what = f"a {type(wrapper).__name__} inside" if divided is None else f"{divided!r} is a DTensor"
    raise ModelError(
        f"the parameters of this {type(model).__name__} are divided among processes ({what}), so that none has a whole "
        "layer to cut; prune the network before it is sharded, in one process or with the whole of it in each "
        "(DistributedDataParallel, or torchrun and rbprune.prune), and shard the pruned one"
    )
