"""Why a channel stays, as a value: what kind of reason it is, in words, and where in the model's source it arose.

The remedy follows from the kind alone, so a name in somebody's model that sounds like a reason changes nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto


class Kind(Enum):
    """The kinds of reasons for which channels stay."""

    NO_RULE = auto()
    """The graph knows no rule for the operation, or none for this way of calling it."""
    CANNOT_BE_FOLLOWED = auto()
    """The forward of a submodule depends on data, so nothing is known about what happens inside of it."""
    FIXED_NUMBER = auto()
    """A number of channels is written into the model (``x.view(-1, 512)``)."""
    SELECTED_BY_POSITION = auto()
    """Some channels are picked by their position (``x[:, :32]``)."""
    FORWARD_HOOK = auto()
    """A forward hook of the user changes what passes, or the weights."""
    COMPUTED = auto()
    """A weight is computed from other tensors (spectral norm, masks)."""
    NOT_A_PARAMETER = auto()
    """A weight is neither a parameter nor a buffer of the model."""
    SHARED = auto()
    """One parameter or buffer has two names."""
    USED_ELSEWHERE = auto()
    """A parameter is also used outside of its layer."""
    WRITES_INTO = auto()
    """An activation is written into some channels of another one."""
    KEPT_BY_USER = auto()
    """The user asked for it, by ``keep=``."""
    OUTPUT = auto()
    """The channel is an output of the network."""
    SINGLE = auto()
    """The layer has one channel, and at least one must stay."""
    BOUND = auto()
    """All channels of the layer must live or die together, so none can go alone."""
    MIXES_CHANNELS = auto()
    """Channels meet each other in the operation: with one less, the others would change."""
    WRONG_DIMENSION = auto()
    """The channels are not where the operation expects them."""
    MEETS_FIXED = auto()
    """The channel meets something that cannot be removed."""
    SIZE_USED = auto()
    """The forward computes with, or decides by, the number of channels."""
    NOT_SUPPORTED = auto()
    """The operation is known, but not in this form."""
    NOT_SEEN = auto()
    """The layer does not occur in the graph."""


REMEDIES = {
    Kind.NO_RULE: "teach it: rbprune.register_rule(operation, rule)",
    Kind.CANNOT_BE_FOLLOWED: (
        "move what depends on data out of it, or teach it: rbprune.register_rule(its class, rule)"
    ),
    Kind.FIXED_NUMBER: "write x.flatten(1), or x.size(1) in place of the number",
    Kind.SELECTED_BY_POSITION: "take equal parts by x.chunk(n, 1), or give each part a layer of its own",
    Kind.FORWARD_HOOK: "remove the hook before tracing, or let it return None and change nothing",
    Kind.COMPUTED: "make it a plain parameter first (remove_parametrizations, remove_spectral_norm, prune.remove)",
    Kind.NOT_A_PARAMETER: "register it: self.register_buffer(name, tensor), or make it a parameter",
    Kind.SHARED: "give each a parameter of its own",
    Kind.WRITES_INTO: "build the result by torch.cat instead",
}
"""What the author of the model can do about it, for the kinds where there is something to do."""


@dataclass(frozen=True)
class Reason:
    """Why a channel stays.

    >>> print(Reason(Kind.SHARED, "'a.weight' is shared with 'b.weight'"))
    'a.weight' is shared with 'b.weight'; give each a parameter of its own
    >>> print(Reason(Kind.MIXES_CHANNELS, "max runs over channels", "net.py:3"))
    max runs over channels (net.py:3)
    """

    kind: Kind
    text: str
    place: str | None = None
    """The line of the model's source, as "file:line", where it is known."""

    @property
    def remedy(self) -> str | None:
        """What the author of the model can do about it, or None."""
        return REMEDIES.get(self.kind)

    def __str__(self) -> str:
        placed = f"{self.text} ({self.place})" if self.place else self.text
        return f"{placed}; {self.remedy}" if self.remedy else placed
