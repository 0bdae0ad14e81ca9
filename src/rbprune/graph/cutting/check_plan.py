"""Whether a plan fits a network, found out before anything of it is cut."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict
from typing import cast, get_args

from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from rbprune.errors import ModelError
from rbprune.graph.cutting.plan import Plan
from rbprune.graph.cutting.plan_fields import check_fields
from rbprune.graph.cutting.replace_modules import check_steps
from rbprune.graph.cutting.surgery import find_tensor
from rbprune.graph.layer_table import counts_of, set_width
from rbprune.graph.sites import Role
from rbprune.graph.size_attributes import set_size, size_of

_REMEDY = "build the same network that was pruned, with its original width"


def check_plan(model: nn.Module, plan: Plan) -> None:
    """Refuse a plan that is not one, or not one for this network; the network stays as it is."""
    check_fields({"tensors": plan.tensors, "widths": plan.widths, "sites": plan.sites})
    check_fields({"blocks": {name: asdict(block) for name, block in plan.blocks.items()}})
    for name, dims in plan.tensors.items():
        for dim, kept in dims.items():
            _check_tensor(model, name, int(dim), kept)
    modules = dict(model.named_modules(remove_duplicate=False))
    for name, widths in plan.widths.items():
        if name not in modules:
            raise _not_here(model, name)
        _check_counts(name, modules[name], widths, plan)
    replaced = plan.replacements()
    for path, steps in replaced.items():
        if path not in modules and not any(path.startswith(f"{other}.") for other in replaced):
            raise _not_here(model, path)
        check_steps(path, steps)


def set_counts(module: nn.Module, widths: Mapping[str, int]) -> None:
    """Let a module's own numbers follow a cut: by the role of an axis or, in a plan of several cuts, by attribute."""
    for axis, width in widths.items():
        if axis in get_args(Role):
            set_width(module, cast(Role, axis), width)
        else:
            set_size(module, axis, width)


def counts_with_sizes(module: nn.Module, keys: Iterable[str]) -> dict[str, int]:
    """What a module counts by the table of layers, and by those of the keys that are sizes in its attributes."""
    sizes = {key: size_of(module, key) for key in keys if key not in get_args(Role)}
    return counts_of(module) | {key: size for key, size in sizes.items() if size is not None}


def _not_here(model: nn.Module, name: str) -> ModelError:
    return ModelError(
        f"the plan changes {name!r}, which this {type(model).__name__} does not have; "
        "build the same network that was pruned, unpruned"
    )


def _check_tensor(model: nn.Module, name: str, dim: int, kept: list[int]) -> None:
    try:
        tensor = find_tensor(model, name)[2]
    except AttributeError:
        tensor = None
    if not isinstance(tensor, Tensor):
        raise _not_here(model, name)
    if tensor.dim() <= dim or max(kept) >= tensor.shape[dim]:
        raise ModelError(
            f"the plan keeps position {max(kept)} of {name!r} (dimension {dim}), which has fewer; {_REMEDY}"
        )


def _check_counts(name: str, module: nn.Module, widths: Mapping[str, int], plan: Plan) -> None:
    """The numbers of a module after the cut are its own, no larger than before, and those of its tensors."""
    before = counts_with_sizes(module, widths)
    for axis, width in widths.items():
        if axis not in get_args(Role) and axis not in before:
            raise ModelError(
                f"the plan sets {axis!r} of {name!r}, and this {type(module).__name__} counts no channels there "
                f"({', '.join(before) or 'nowhere'}); {_REMEDY}"
            )
        most = max(before.values(), default=width)
        if width > most:
            raise ModelError(f"the plan leaves {name!r} a width of {width} ({axis}), where it has {most}; {_REMEDY}")
    try:
        set_counts(module, widths)
        after = counts_with_sizes(module, widths)
        sizes = _sizes_by_counts(module) if min(after.values(), default=1) > 0 else {}
    finally:
        for count, old in before.items():
            set_size(module, count, old)
    for count, old in before.items():
        if not 1 <= after[count] <= old:
            raise ModelError(f"the plan changes {count} of {name!r} from {old} to {after[count]}; {_REMEDY}")
    for tensor, wanted in sizes.items():
        _check_sizes(name, tensor, wanted, module, plan)


def _check_sizes(name: str, leaf: str, sizes: tuple[int, ...], module: nn.Module, plan: Plan) -> None:
    value = find_tensor(module, leaf)[2]
    if value is None:
        return
    cut = plan.tensors.get(f"{name}.{leaf}" if name else leaf, {})
    left = [len(cut[str(dim)]) if str(dim) in cut else size for dim, size in enumerate(value.shape)]
    if tuple(left[: len(sizes)]) != sizes:
        raise ModelError(
            f"the plan contradicts itself: it leaves {leaf!r} of {name!r} with {left[: len(sizes)]} positions, and its "
            f"widths ask for {list(sizes)}; copy plan.json anew, or repeat the run"
        )


def _sizes_by_counts(module: nn.Module) -> dict[str, tuple[int, ...]]:
    """The first sizes that the tensors of a layer of torch have by the layer's own numbers; none of another layer."""
    if isinstance(module, _ConvTransposeNd):
        return {"weight": (module.in_channels, module.out_channels // module.groups), "bias": (module.out_channels,)}
    if isinstance(module, _ConvNd):
        return {"weight": (module.out_channels, module.in_channels // module.groups), "bias": (module.out_channels,)}
    if isinstance(module, nn.Linear):
        return {"weight": (module.out_features, module.in_features), "bias": (module.out_features,)}
    if isinstance(module, _NormBase):
        names = ("weight", "bias", "running_mean", "running_var")
        return dict.fromkeys(names, (module.num_features,))
    if isinstance(module, nn.GroupNorm):
        return dict.fromkeys(("weight", "bias"), (module.num_channels,))
    return {}
