"""Which rule belongs to which operation, and its application."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, get_args

import torch
from torch import Tensor, fx, nn

from rbprune.errors import ConfigError, ModelError
from rbprune.graph.ids import tensors_in
from rbprune.graph.layer_table import (
    LayerKind,
    Rule,
    library_forward,
    teach_kind,
    timm_kind,
    torch_kind,
    torchvision_kind,
    user_kind,
)
from rbprune.graph.markers import size_in_python
from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind
from rbprune.graph.rules import layers, norms, parts, shape, size_dependence
from rbprune.graph.rules.tables import BY_NAME
from rbprune.graph.sites import Role

_taught: dict[Any, Rule] = {}
"""Rules of the user's for functions and methods; those for module classes are in the table of layers."""


def register_rule(operation: Any, rule: Rule, *, widths: Mapping[str, Role | tuple[Role, ...]] | None = None) -> None:
    """Teach the graph an operation: a function, a method's name, or a module class.

    The rule is called with the propagation, the fx node, (for a module class, the module,) and the call's arguments,
    in which activations are replaced by tensors of channel identities; it returns the identities of the result.

    ``widths`` names the attributes of a module class that count channels, each with the role (or roles) of the axes
    that it counts, such as ``{"out_channels": "out"}``; a cut updates them. The first attribute named for a role is
    the number of positions on that axis, any others keep their ratio to it. A subclass of a layer of torch has the
    widths of that as well, and before these.

    >>> import torch
    >>> from rbprune.graph.rules.elementwise import channelwise
    >>> register_rule(torch.special.expit, channelwise)
    """
    named = {name: (given,) if isinstance(given, str) else tuple(given) for name, given in (widths or {}).items()}
    unknown = [role for roles in named.values() for role in roles if role not in get_args(Role)]
    if unknown:
        raise ConfigError(f"{unknown[0]!r} is no role of an axis; widths takes one of {', '.join(get_args(Role))}")
    if isinstance(operation, type):
        teach_kind(LayerKind(rule, (operation,), widths=named))
    elif named:
        raise ConfigError(f"widths are attributes of a module class; {operation!r} is none, leave widths out")
    else:
        _taught[operation] = rule


def teaches_own_functions() -> bool:
    """Whether the user has taught functions that are not torch's own, which only fx sees as one operation."""
    functions = [operation for operation in _taught if not isinstance(operation, str)]
    return any(not str(getattr(each, "__module__", None) or "torch").startswith("torch") for each in functions)


_FOLLOW_SIZES = (shape.reshape, shape.unflatten, parts.split, shape.expand, norms.functional_group_norm)
"""Rules that know what to do with a size that changes when channels go."""


def _find(propagation: Propagation, node: fx.Node) -> tuple[Rule | None, tuple[Any, ...]]:
    if node.op == "call_module":
        module = propagation.modules[str(node.target)]
        if own := own_rule(propagation, module):
            return own, (module,)
        if "forward" in vars(module) or type(module).forward is not library_forward(type(module)):
            return None, ()
        known = torch_kind(module)
        return (known.rule if known else None), (module,)
    if node.target in _taught:
        return _taught[node.target], ()
    if node.op == "call_method":
        return BY_NAME.get(str(node.target)), ()
    home = str(getattr(node.target, "__module__", None) or "torch")
    trusted = home.split(".")[0] in ("torch", "_operator", "builtins", "torchvision", "timm", "math", "rbprune")
    return (BY_NAME.get(getattr(node.target, "__name__", "")) if trusted else None), ()


def own_rule(propagation: Propagation, module: nn.Module) -> Rule | None:
    """A rule for a module that is not torch's own, so that nobody need look inside.

    It was taught for the module's class, or is one for a layer of timm or torchvision, or was found by cutting a copy
    of the layer.
    """
    if taught := user_kind(module):
        return taught.rule
    if "forward" in vars(module):
        return None
    known = timm_kind(module) or torchvision_kind(module)
    return known.rule if known else propagation.verified.get(module)


def apply_rule(propagation: Propagation, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """The identities of a node's result."""
    rule, extra = _find(propagation, node)
    size_dependence.note_size(propagation, node, args)
    like = info(node).result
    computes = bool(tensors_in((args, kwargs, like)))
    if node.target in (torch._assert, size_in_python):
        size_dependence.preserve_decision(propagation, node)
    elif computes and rule not in _FOLLOW_SIZES:
        size_dependence.freeze_counted(propagation, node, size_dependence.counted_by_arguments(propagation, node))
    if rule is None:
        layers.count_inside(propagation, node)
        if failure := info(node).failure:
            what = f"has no channel rule and cannot be followed: {failure}"
            return propagation.refuse(node, (args, kwargs), what, Kind.CANNOT_BE_FOLLOWED)
        return propagation.refuse(node, (args, kwargs), "has no channel rule", Kind.NO_RULE)
    if kwargs.get("out") is not None:
        return propagation.refuse(node, (args, kwargs), "with out= has no channel rule", Kind.NO_RULE)
    for module in extra:
        _check_widths(str(node.target), module)
    if node.op == "call_module" and kwargs and user_kind(propagation.modules[str(node.target)]) is None:
        args, kwargs = _by_position(propagation.modules[str(node.target)], args, kwargs)
    try:
        result = rule(propagation, node, *extra, *args, **kwargs)
    except Exception:
        size_dependence.freeze_counted(propagation, node, size_dependence.counted_by_arguments(propagation, node))
        raise
    if node.op == "call_module" and (reason := propagation.kept(str(node.target))):
        for leaf in tensors_in(result):
            propagation.ids.freeze(leaf, reason)
    if isinstance(like, Tensor) and result.shape != like.shape:
        raise ValueError(
            f"the rule of {propagation.describe(node)} makes {tuple(result.shape)}, not {tuple(like.shape)}"
        )
    return result


def _by_position(module: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The arguments of a module as its rule expects them: ``conv(input=x)`` is ``conv(x)``."""
    bound = inspect.signature(module.forward).bind(*args, **kwargs)
    return bound.args, bound.kwargs


def _check_widths(name: str, module: nn.Module) -> None:
    """Refuse a layer of the user's that has not the widths that its rule names, before anything is cut."""
    kind = user_kind(module)
    for attribute in kind.widths if kind else ():
        width = getattr(module, attribute, None)
        if not isinstance(width, int) or width < 1:
            raise ModelError(
                f"{name!r} ({type(module).__name__}) has {attribute} = {width!r}, but its rule names that as a width; "
                "correct the widths given to rbprune.register_rule"
            )
