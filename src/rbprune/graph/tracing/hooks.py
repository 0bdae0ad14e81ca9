"""Forward hooks of the user: one that only looks is let be, one that changes what passes freezes it.

Which it is cannot be read off a hook, so each is called once with random numbers of the shapes it will see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn.utils.weight_norm import WeightNorm
from torch.utils._pytree import tree_leaves, tree_map_only

from rbprune.graph.node_info import info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.tracing.preserve_model import belongs_to_forward
from rbprune.graph.tracing.recorded_run import RecordedRun


@dataclass
class HookedModule:
    """A module with forward hooks and what it was called with, nodes in place of tensors.

    ``pre`` and ``post`` are its hooks, each with whether it takes keyword arguments; ``marks`` are the nodes that stand
    in the graph where they see its inputs and outputs.
    """

    module: nn.Module
    pre: list[tuple[Callable[..., Any], bool]]
    post: list[tuple[Callable[..., Any], bool]]
    args: tuple[Any, ...] = ()
    kwargs: dict[str, Any] = field(default_factory=dict)
    output: Any = None
    marks: dict[str, list[fx.Node]] = field(default_factory=lambda: {"input": [], "output": []})
    effects: dict[str, str] | None = None
    """What its hooks change, of "input", "output" and "weights", each with a word on how; None where nobody knows."""


def find_hooked_modules(model: nn.Module) -> dict[str, HookedModule]:
    """The submodules that have forward hooks; each hook with whether it takes keyword arguments.

    Hooks of the model itself see only its inputs and outputs, which stay anyway.
    """
    found = {}
    for name, module in model.named_modules():
        if not name or not (module._forward_pre_hooks or module._forward_hooks):
            continue
        pre = [(hook, key in module._forward_pre_hooks_with_kwargs) for key, hook in module._forward_pre_hooks.items()]
        pre = [(hook, kwargs) for hook, kwargs in pre if not isinstance(hook, WeightNorm)]
        post = hooks_on_output(module)
        if pre or post:
            found[name] = HookedModule(module, pre, post)
    return found


def hooks_on_output(module: nn.Module) -> list[tuple[Callable[..., Any], bool]]:
    """The forward hooks of a module, each with whether it takes keyword arguments."""
    hooks = [(key, hook) for key, hook in module._forward_hooks.items() if not belongs_to_forward(hook)]
    return [(hook, key in module._forward_hooks_with_kwargs) for key, hook in hooks]


@contextmanager
def hooks_on(hooked: dict[str, HookedModule]) -> Iterator[None]:
    """Inside, modules from which ``preserve_model`` has taken the hooks have them."""
    handles = []
    try:
        for each in hooked.values():
            handles += [each.module.register_forward_pre_hook(hook, with_kwargs=takes) for hook, takes in each.pre]
            handles += [each.module.register_forward_hook(hook, with_kwargs=takes) for hook, takes in each.post]
        yield
    finally:
        for handle in handles:
            handle.remove()


def note_hook_effects(propagation: Propagation, hooked: dict[str, HookedModule]) -> None:
    """Call every hook once and note on its marks, or on the module's tensors, what it does to them."""
    for name, each in hooked.items():
        if each.marks["input"] or each.marks["output"]:
            kind = type(each.module).__name__
            each.effects = _effects(each)
            for place, what in each.effects.items():
                reason = Reason(Kind.FORWARD_HOOK, f"{name!r} ({kind}) has a forward hook that {what}")
                for node in each.marks.get(place, ()):
                    info(node).hook = replace(reason, place=info(node).source_line)
                if place == "weights":
                    propagation.leave_whole(each.module, reason)


def _effects(each: HookedModule) -> dict[str, str]:
    """What the hooks change: of "input", "output" and "weights" those that they do, each with a word on how."""
    like = next((p for p in each.module.parameters() if p.is_floating_point()), torch.empty(0))
    args, kwargs, output = fx.node.map_arg((each.args, each.kwargs, each.output), lambda n: _random_result(n, like))
    weights = {name: t.detach().clone() for name, t in each.module.state_dict(keep_vars=True).items()}
    before = tree_map_only(Tensor, torch.clone, (args, kwargs, output))
    found: dict[str, str] = {}
    try:
        for hook, takes in each.pre:
            given = hook(each.module, args, kwargs) if takes else hook(each.module, args)
            if given is not None and given is not args and not (takes and _same_objects(given, (args, kwargs))):
                found["input"] = "changes what it reads"
        for hook, takes in each.post:
            given = hook(each.module, args, kwargs, output) if takes else hook(each.module, args, output)
            if given is not None and given is not output:
                found["output"] = "changes what it makes"
    except Exception as error:
        found = dict.fromkeys(("input", "output"), f"cannot be judged, it raises {type(error).__name__}")
    if not _equal(before[:2], (args, kwargs)):
        found["input"] = "writes into what it reads"
    if not _equal(before[2], output):
        found["output"] = "writes into what it makes"
    now = each.module.state_dict(keep_vars=True)
    for name, value in weights.items():
        if now.get(name) is None or not torch.equal(now[name], value):
            found["weights"] = f"writes into {name!r}"
            if name in now:
                now[name].data = value
    return found


def _random_result(node: fx.Node, like: Tensor) -> Any:
    """Random numbers in the shape of a node's result, of the type and on the device of ``like``."""
    return tree_map_only(Tensor, lambda t: torch.randn(t.shape, device=like.device).to(like.dtype), info(node).result)


def _same_objects(a: Any, b: Any) -> bool:
    a, b = tree_leaves(a), tree_leaves(b)
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


def _equal(a: Any, b: Any) -> bool:
    pairs = zip(tree_leaves(a), tree_leaves(b), strict=True)
    return all(torch.equal(x, y) for x, y in pairs if isinstance(x, Tensor))


def on_copies(hook: Callable[..., Any], run: RecordedRun) -> Callable[..., Any]:
    """A hook that calls another one with copies of what it would see, and returns nothing.

    What the other one writes into the module's tensors is not noted in the run, and what it raises is ignored.
    """

    def call(module: nn.Module, *values: Any) -> None:
        before = [(tensor, run.content(tensor)) for tensor in (*module.parameters(), *module.buffers())]
        with suppress(Exception):
            hook(module, *tree_map_only(Tensor, torch.clone, values))
        for tensor, content in before:
            run.restore(tensor, content)

    return call
