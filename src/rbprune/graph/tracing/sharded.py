"""Networks of which every process holds only a part: they cannot be cut."""

from __future__ import annotations

from collections.abc import Mapping

from torch import nn

from rbprune.errors import ModelError


def refuse_sharded(modules: Mapping[str, nn.Module]) -> None:
    """Refuse a network whose parameters are divided among processes (FSDP, tensor parallelism): no process has a whole
    layer to judge and to cut. ``modules`` are all of it by name, itself by ""."""
    wrapper = next((m for m in modules.values() if type(m).__module__.startswith("torch.distributed.fsdp")), None)
    parameters = ((path, name, p) for path, m in modules.items() for name, p in m._parameters.items())
    divided = next(
        (f"{path}.{name}".lstrip(".") for path, name, p in parameters if hasattr(p, "placements")), None
    )  # DTensor
    if wrapper is None and divided is None:
        return
    what = f"a {type(wrapper).__name__} inside" if divided is None else f"{divided!r} is a DTensor"
    kind = type(modules[""]).__name__
    raise ModelError(
        f"the parameters of this {kind} are divided among processes ({what}), so that none has a whole "
        "layer to cut; prune the network before it is sharded, in one process or with the whole of it in each "
        "(DistributedDataParallel, or torchrun and rbprune.prune), and shard the pruned one"
    )
