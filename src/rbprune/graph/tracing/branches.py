"""How the branch of a residual block can be removed, so that the sum is its shortcut.

Best is to replace the module that is the block by what is left of it, which is often nothing. Where a block is no
module of its own, its modules hand on what they are given, and the one whose output is added gives zeros.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Iterator

from torch import Tensor, fx, nn

from rbprune.graph.branch import Branch, Replacements, make_branch
from rbprune.graph.cutting.replace_modules import FUNCTIONS, ZEROS
from rbprune.graph.node_info import ModuleCall, info
from rbprune.graph.propagation import Propagation
from rbprune.graph.reasons import Kind, Reason
from rbprune.graph.sites import Site
from rbprune.graph.tracing.residual import Block

_PASSING = ("max_pool2d", "adaptive_max_pool2d", "dropout", "contiguous")
_PASSING_MODULES = (nn.MaxPool2d, nn.AdaptiveMaxPool2d, nn.Dropout, nn.Identity)
"""Operations whose results lie between the values that they are given."""


def find_branches(
    propagation: Propagation, graphs: list[fx.Graph], blocks: list[list[Block]], hooked: Collection[str]
) -> tuple[dict[str, Branch], dict[str, Reason]]:
    """The branches that can go, and the others with the reason; ``blocks`` are those of each graph, ``hooked`` the
    modules with forward hooks of the user's. A branch must go in the same way in all graphs."""
    found = [_Branches(propagation, graph, hooked).find(own) for graph, own in zip(graphs, blocks, strict=True)]
    branches, refused = found[0]
    for others, reasons in found[1:]:
        for name, branch in list(branches.items()):
            if name in reasons:
                refused[name] = reasons[name]
            elif name not in others or others[name].choices != branch.choices:
                refused[name] = Reason(Kind.NOT_SUPPORTED, "the block is another one in training")
            if name in refused:
                del branches[name]
    return branches, refused


def apart_from_sites(branches: Iterable[Branch], sites: Iterable[Site]) -> Iterator[Branch]:
    """The branches, each by a name that no site has: a single layer's would else be that of its channels."""
    names = {site.name for site in sites}
    for branch in branches:
        branch.name = f"branch of {branch.name}" if branch.name in names else branch.name
        yield branch


class _Branches:
    """Looks for the branches of one graph."""

    def __init__(self, propagation: Propagation, graph: fx.Graph, hooked: Collection[str]) -> None:
        self.propagation, self.hooked = propagation, hooked
        self.nodes: list[fx.Node] = list(graph.nodes)
        self.order = {node: number for number, node in enumerate(self.nodes)}
        self.calls = propagation.calls[graph]
        self.times = Counter(call.path for call in self.calls)
        self.calls_of: dict[fx.Node | str | None, list[ModuleCall]] = defaultdict(list)
        """Calls of modules by the path of the module, and by the node that they are given."""
        self.returned_by: dict[fx.Node | None, list[str]] = defaultdict(list)
        """The modules that return what a node makes."""
        self.within: dict[str, list[fx.Node]] = defaultdict(list)
        """The nodes that run inside of a module, by its path."""
        self.using: dict[str, list[fx.Node]] = defaultdict(list)
        """The nodes that use a module or parameter inside of the module of a path."""
        self.live: set[fx.Node] = set()
        """Nodes whose results are used for the network's outputs."""

    def _note_where_nodes_are(self) -> None:
        """Fill in what is asked for again and again."""
        for call in self.calls:
            self.calls_of[call.path].append(call)
            self.calls_of[call.source].append(call)
            self.returned_by[call.output].append(call.path)
        for node in self.nodes:
            for path in info(node).modules:
                self.within[path].append(node)
            if node.op in ("get_attr", "call_module"):
                for path in _holders(str(node.target)):
                    self.using[path].append(node)
        for node in reversed(self.nodes):
            if node.op == "output" or any(user in self.live for user in node.users):
                self.live.add(node)

    def find(self, blocks: Collection[Block]) -> tuple[dict[str, Branch], dict[str, Reason]]:
        """Branches by name, and reasons for those that stay. The name is that of the block where it is a module, else
        of what holds the branch; the second of the same name is called "name#2"."""
        branches: dict[str, Branch] = {}
        refused: dict[str, Reason] = {}
        names: Counter[str] = Counter()
        if blocks:
            self._note_where_nodes_are()
        for block in sorted(blocks, key=lambda each: self.order[each.sum]):
            if block.name is None or block.added is None or block.fork is None:
                continue
            made = self._branch(block, block.fork, block.added)
            base = made.name if isinstance(made, Branch) else block.name
            names[base] += 1
            name = base if names[base] == 1 else f"{base}#{names[base]}"
            if isinstance(made, Branch):
                made.name, branches[name] = name, made
            else:
                refused[name] = made
        return branches, refused

    def _branch(self, block: Block, fork: fx.Node, added: fx.Node) -> Branch | Reason:
        reason = self._stays(block)
        if reason is not None:
            return reason
        output = self._output(added, block.nodes)
        if output is None:
            return Reason(
                Kind.NOT_SUPPORTED, "no module gives what is added to the shortcut", info(block.sum).source_line
            )
        whole, inside = self._replace_block(block, fork), self._replace_inside(block, output)
        choices = [way for way in (whole, inside) if way is not None]
        if not choices:
            return Reason(Kind.NOT_SUPPORTED, "its modules also do something else", info(block.sum).source_line)
        return make_branch(block.name or output if whole is None else next(iter(whole)), output, choices)

    def _stays(self, block: Block) -> Reason | None:
        """Why a branch must stay, where that can be said from the graph alone."""
        describe, place = self.propagation.describe, info(block.sum).source_line
        members = sorted(block.nodes, key=self.order.__getitem__)
        if block.sum.kwargs or describe(block.sum) not in ("add", "add_", "iadd"):
            return Reason(Kind.NOT_SUPPORTED, f"{describe(block.sum)} does not simply add it", place)
        for node in members:
            others = (user for user in node.users if user not in block.nodes and user is not block.sum)
            reader = next((user for user in others if user in self.live), None)
            if reader is not None:
                return Reason(Kind.USED_ELSEWHERE, f"{describe(reader)} reads {describe(node)} inside of it", place)
        for path in dict.fromkeys(str(n.target) for n in members if n.op == "call_module"):
            kept = self.propagation.kept(path)
            if kept is not None:
                return kept
            if self.times[path] > 1 and next(self.propagation.modules[path].parameters(), None) is not None:
                return Reason(Kind.SHARED, f"{path!r} inside of it is called {self.times[path]} times", place)
        inside = {path for node in members for path in info(node).modules if path}
        hook = next((path for path in self.hooked if path in inside), None)
        return None if hook is None else Reason(Kind.FORWARD_HOOK, f"{hook!r} has a forward hook", place)

    def _output(self, node: fx.Node, members: Collection[fx.Node]) -> str | None:
        """The module on whose output the factor of the branch stands: the last one with parameters where only products
        and operations on one tensor follow on it, else the last one."""
        last: str | None = None
        while node in members:
            paths = [str(node.target)] if node.op == "call_module" else []
            paths += [path for path in self.returned_by.get(node, ()) if path not in paths]
            for path in paths:
                own = (n for n in self.within.get(path, ()) if info(n).modules[-1] == path)
                if self.times[path] == 1 and all(n in members for n in own):
                    if any(p is not None for p in self.propagation.modules[path]._parameters.values()):
                        return path
                    last = last or path
            sources = [source for source in node.all_input_nodes if source in members]
            is_product = self.propagation.describe(node) in ("mul", "mul_", "imul")
            if not sources or (len(sources) > 1 and not is_product):
                break
            node = max(sources, key=_numel)
        return last

    def _replace_block(self, block: Block, fork: fx.Node) -> Replacements | None:
        """Replace the module that is the block by what is left of it: a chain of children and functions."""
        path = info(block.sum).modules[-1]
        call = next(iter(self.calls_of.get(path, ())), None)
        if not path or call is None or self.times[path] > 1 or call.source is None or call.output is None:
            return None
        inside = set(self.within[path])
        steps: list[str] = []
        has_sum = False
        node, passed, is_positive = call.source, {block.sum, *block.shortcut}, False
        while node is not call.output:
            if node is fork:
                node, is_positive, has_sum = block.sum, self._is_output_of_relu(fork), True
                if node is call.output:
                    break
            step = self._step(node, path, inside - block.nodes)
            if step is None or step[0] in steps:
                return None
            name, node = step
            relu = name == "torch.relu" or type(self.propagation.modules.get(f"{path}.{name}")) is nn.ReLU
            if not (relu and is_positive):
                steps.append(name)
            is_positive = relu
            passed.add(node)
            passed |= inside & set(self.within.get(f"{path}.{name}", ()))
        left = (inside & self.live) - block.nodes - passed  # what the branch alone reads: parameters, sizes
        outside = (user for other in left for user in other.users if user not in block.nodes and user not in left)
        elsewhere = (user for other in passed - {call.output} for user in other.users if user not in inside)
        shared = any(node not in inside for node in self.using.get(path, ()))
        return {path: steps} if has_sum and not shared and not any(outside) and not any(elsewhere) else None

    def _step(self, node: fx.Node, path: str, inside: Collection[fx.Node]) -> tuple[str, fx.Node] | None:
        """What follows on a node in a chain: a child of the module, or a function, by name, and its result."""
        for call in self.calls_of.get(node, ()):
            holder, _, leaf = call.path.rpartition(".")
            follows = holder == path and self._is_own(call.path, path)
            if follows and call.output is not None and call.output in inside:
                return leaf, call.output
        for user in node.users:
            name = f"torch.{self.propagation.describe(user).rstrip('_')}"
            plain = user.op != "call_module" and user.args == (node,) and set(user.kwargs) <= {"inplace"}
            if user in inside and plain and name in FUNCTIONS:
                return name, user
        return None

    def _is_own(self, child: str, path: str) -> bool:
        """Whether a child is called in its module alone, and once if it has parameters."""
        shared = self.times[child] > 1 and next(self.propagation.modules[child].parameters(), None) is not None
        return not shared and all(path in info(node).modules for node in self.within.get(child, ()))

    def _is_output_of_relu(self, node: fx.Node) -> bool:
        """Whether nothing negative can be there."""
        module = self.propagation.modules.get(str(node.target)) if node.op == "call_module" else None
        name = self.propagation.describe(node).rstrip("_")
        if isinstance(module, nn.ReLU | nn.ReLU6) or (module is None and name in ("relu", "relu6")):
            return True
        passes = isinstance(module, _PASSING_MODULES) or (module is None and name in _PASSING)
        return passes and bool(node.all_input_nodes) and self._is_output_of_relu(node.all_input_nodes[0])

    def _replace_inside(self, block: Block, output: str) -> Replacements | None:
        """Let the outermost modules inside of the branch hand on what they are given, and the last one give zeros."""
        here = Counter(path for node in block.nodes for path in info(node).modules)
        own = {p for p, count in here.items() if p and count == len(self.within[p]) and self.times[p] == 1}
        outermost = [p for p in own if not any(holder in own for holder in _holders(p))]
        last = next((path for path in outermost if output == path or output.startswith(f"{path}.")), None)
        if last is None:
            return None
        return {path: [ZEROS] if path == last else [] for path in sorted(outermost)}


def _holders(path: str) -> list[str]:
    """The modules that hold a module, by name.

    >>> _holders("layer1.0.conv")
    ['layer1', 'layer1.0']
    """
    steps = path.split(".")
    return [".".join(steps[:end]) for end in range(1, len(steps))]


def _numel(node: fx.Node) -> int:
    """How large a node's result is; that of several (attention) counts as nothing."""
    result = info(node).result
    return result.numel() if isinstance(result, Tensor) else 0
