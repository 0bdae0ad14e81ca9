"""Branches of residual blocks as sites of a single channel: a branch goes whole, or it stays."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch

from rbprune.graph.sites import Site

Replacements = dict[str, list[str]]
"""What stands in place of modules when a branch is gone: for each of them, by name, what is still computed there.

Each step is a child of the module that is left, by name, or a function (``torch.relu``); without any step the module
hands on what it is given.
"""


@dataclass
class Branch(Site):
    """The branch of a residual block whose shortcut is the identity: without it the sum is the shortcut.

    Methods meet it as a site with one channel and no parts: one factor stands on the output of the module ``output``,
    where 0 and the removal of the branch are the same function.
    """

    output: str = ""
    """The module on whose output the branch's factor stands, and into whose parameters it is folded."""
    choices: list[Replacements] = field(default_factory=list)
    """Ways to remove it, the cheapest first; once the removal has been proved, only the one that is exact."""
    is_proved: bool = False
    """Whether the removal has been compared with the masked network."""
    is_foldable: bool = False
    """Whether a factor can be folded into the parameters of ``output``; known when the removal has been proved."""

    @property
    def original(self) -> int:
        """A branch is one thing."""
        return 1

    @property
    def keeps_one(self) -> bool:
        """It may go whole."""
        return False

    @property
    def replacements(self) -> Replacements:
        """What stands in place of its modules when it is gone."""
        return self.choices[0]

    def removes(self, name: str) -> bool:
        """Whether a module or tensor of that name goes with the branch."""
        return is_replaced(name, self.replacements)


def make_branch(name: str, output: str, choices: list[Replacements]) -> Branch:
    """A branch that is there."""
    return Branch(name, [], alive=torch.arange(1), output=output, choices=choices)


def is_replaced(name: str, replacements: Mapping[str, list[str]]) -> bool:
    """Whether a module or tensor of that name is no longer in the network after the replacements.

    >>> gone = {"layer1.1": ["act"], "layer2.0.conv": []}
    >>> [is_replaced(name, gone) for name in ("layer1.1.conv.bias", "layer1.1.act", "layer1.10.conv", "layer2.0.conv")]
    [True, False, False, True]
    """
    for path, steps in replacements.items():
        rest = name.removeprefix(f"{path}.")
        if name == path or (rest != name and not any(rest == s or rest.startswith(f"{s}.") for s in steps)):
            return True
    return False
