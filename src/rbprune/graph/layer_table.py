"""The table of layers: for each kind of layer its type, its rule, and which of its attributes are widths.

The entries for layers of torch and timm are written in ``rules/tables.py``; ``register_rule`` adds those of the user.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from rbprune.graph.sites import Role

Rule = Callable[..., Any]
"""How an operation carries channel identities; how it is called is told in ``rbprune.graph.rules``."""


@dataclass(frozen=True)
class LayerKind:
    """What the graph knows of a kind of layer.

    ``widths`` are the attributes that count channels, each with the roles of the axes that it counts. The first of
    them for a role is the number of positions on that axis; the others, and ``group_counts``, keep their ratio to it
    when it is cut.
    """

    rule: Rule
    types: tuple[type, ...] = ()
    timm: tuple[str, ...] = ()
    """Names of classes in ``timm.layers``, by name so that timm need not be installed."""
    torchvision: tuple[str, ...] = ()
    """Names of classes in ``torchvision.ops``."""
    widths: Mapping[str, tuple[Role, ...]] = field(default_factory=dict)
    group_counts: Mapping[str, tuple[Role, ...]] = field(default_factory=dict)
    """Attributes that count groups of channels; unlike a width, one that the forward reads is let be."""
    refresh: Callable[[Any], None] | None = None
    """Lets the numbers of a module that follow from the widths of its children follow them, after a cut."""


_of_torch: list[LayerKind] = []
_of_timm: dict[str, LayerKind] = {}
_of_torchvision: dict[str, LayerKind] = {}
_of_user: dict[type, LayerKind] = {}
_torch_kinds: dict[type, LayerKind | None] = {}
"""What ``torch_kind`` has found, which hangs on the class of a module alone."""
_nearest_of_torch: dict[type, type | None] = {}
"""Of each class the nearest base that torch itself defines."""
_widths_of_type: dict[type, Mapping[str, tuple[Role, ...]]] = {}
"""What ``widths_of`` has found, which hangs on the class of a module alone."""


def add_kinds(kinds: tuple[LayerKind, ...]) -> None:
    """Enter layers of torch, timm and torchvision; where a layer has several types in the table, the first entry
    counts."""
    _of_torch.extend(kind for kind in kinds if kind.types)
    _of_timm.update({name: kind for kind in kinds for name in kind.timm})
    _of_torchvision.update({name: kind for kind in kinds for name in kind.torchvision})
    _torch_kinds.clear()
    _widths_of_type.clear()


def teach_kind(kind: LayerKind) -> None:
    """Enter a layer of the user's; it comes before those of torch and timm."""
    _of_user.update(dict.fromkeys(kind.types, kind))
    _widths_of_type.clear()


def user_kind(module: nn.Module) -> LayerKind | None:
    """The entry that the user made for the module's class, or for the nearest of its bases."""
    if not _of_user:
        return None
    return next((_of_user[base] for base in type(module).__mro__ if base in _of_user), None)


def timm_kind(module: nn.Module) -> LayerKind | None:
    """The entry of a layer that timm defines.

    >>> timm_kind(nn.Conv2d(1, 1, 1)) is None
    True
    """
    return _of_timm.get(type(module).__name__) if type(module).__module__.startswith("timm.layers.") else None


def torchvision_kind(module: nn.Module) -> LayerKind | None:
    """The entry of a layer that torchvision defines.

    >>> torchvision_kind(nn.Conv2d(1, 1, 1)) is None
    True
    """
    known = type(module).__module__.startswith("torchvision.ops.")
    return _of_torchvision.get(type(module).__name__) if known else None


def torch_kind(module: nn.Module) -> LayerKind | None:
    """The entry of a layer of torch, or of a subclass of one.

    >>> list(torch_kind(nn.Conv2d(1, 1, 1)).widths)
    ['out_channels', 'in_channels']
    """
    kind = type(module)
    if kind not in _torch_kinds:
        _torch_kinds[kind] = next((known for known in _of_torch if issubclass(kind, known.types)), None)
    return _torch_kinds[kind]


def library_forward(kind: type[nn.Module]) -> Any:
    """The forward of the nearest class that torch itself defines: a subclass with its own is unknown to us."""
    if kind not in _nearest_of_torch:
        bases = [base for base in kind.__mro__ if base.__module__ != _PARAMETRIZED]
        _nearest_of_torch[kind] = next((base for base in bases if base.__module__.startswith("torch.")), None)
    return getattr(_nearest_of_torch[kind], "forward", None)


def computes_as_torch(module: nn.Module) -> bool:
    """Whether a module computes what the class of torch computes that it is of, or derives from.

    A subclass does where it adds nothing but how it is made and how it prints.

    >>> class Plain(nn.Conv2d):
    ...     pass
    >>> class Padded(nn.Conv2d):
    ...     def _conv_forward(self, x, weight, bias):
    ...         return super()._conv_forward(nn.functional.pad(x, (1, 1)), weight, bias)
    >>> computes_as_torch(Plain(1, 1, 1)), computes_as_torch(Padded(1, 1, 1))
    (True, False)
    """
    if not _type_computes_as_torch(type(module)):
        return False
    attributes = vars(module)
    return not any(hasattr(type(module), name) for name in attributes.keys() - _OWN if callable(attributes[name]))


def _type_computes_as_torch(kind: type) -> bool:
    for base in kind.__mro__:
        if base.__module__.startswith(("torch.nn", "torch.ao.nn")) and base.__module__ != _PARAMETRIZED:
            return base is not nn.Module
        if base.__module__ != _PARAMETRIZED and not set(vars(base)) <= _COMPUTE_NOTHING:
            return False
    return False


_OWN = frozenset(vars(nn.Module()))
"""What every module has of its own, and no class: flags and tables."""
_PARAMETRIZED = "torch.nn.utils.parametrize"
_COMPUTE_NOTHING = {
    *("__init__", "__module__", "__qualname__", "__doc__", "__annotations__", "__constants__", "__parameters__"),
    *("__repr__", "extra_repr", "reset_parameters", "__static_attributes__", "__firstlineno__", "__orig_bases__"),
}
"""What a class may define without computing anything else than its base."""


def widths_of(module: nn.Module) -> Mapping[str, tuple[Role, ...]]:
    """The attributes of a module that count channels, each with the roles of the axes that it counts.

    A subclass has the widths of the layer of torch that it derives from, and those of its own entry beside them.
    """
    known = _widths_of_type.get(type(module))
    if known is None:
        known = {name: roles for kind in _kinds(module) for name, roles in kind.widths.items()}
        _widths_of_type[type(module)] = known
    return known


def set_width(module: nn.Module, role: Role, width: int) -> None:
    """Let a module's own numbers say that an axis has so many positions.

    >>> layer = nn.GroupNorm(4, 8)
    >>> set_width(layer, "along", 6)
    >>> layer.num_channels, layer.num_groups
    (6, 3)
    """
    groups = {name: roles for kind in _kinds(module) for name, roles in kind.group_counts.items()}
    names = [name for name, roles in (*widths_of(module).items(), *groups.items()) if role in roles]
    if names:
        before = int(getattr(module, names[0]))
        for name in names:
            setattr(module, name, int(getattr(module, name)) * width // before)


def refresh_counts(modules: Iterable[nn.Module]) -> None:
    """After a cut, let numbers of modules that follow from the widths of their children follow them."""
    for module in modules:
        kind = timm_kind(module)
        if kind is not None and kind.refresh is not None:
            kind.refresh(module)


def counts_of(module: nn.Module) -> dict[str, int]:
    """All numbers of a module that follow its channels, by attribute, as they are.

    >>> counts_of(nn.GroupNorm(4, 8))
    {'num_channels': 8, 'num_groups': 4}
    """
    names = {name: None for kind in _kinds(module) for name in (*kind.widths, *kind.group_counts)}
    return {name: int(getattr(module, name)) for name in names}


def _kinds(module: nn.Module) -> list[LayerKind]:
    """All entries of a module, that of torch first."""
    found = (torch_kind(module), timm_kind(module), user_kind(module))
    return [kind for kind in found if kind is not None]
