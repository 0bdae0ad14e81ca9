"""What to do about a channel that stays, by a phrase of the reason."""

from __future__ import annotations

_REMEDIES = {
    "cannot be followed": "move what depends on data out of it, or teach it: rbprune.register_rule(its class, rule)",
    " rule": "teach it: rbprune.register_rule(operation, rule)",
    "fixes the number of channels": "write x.flatten(1), or x.size(1) in place of the number",
    "selects channels by position": "take equal parts by x.chunk(n, 1), or give each part a layer of its own",
    "forward hook": "remove the hook before tracing, or let it return None and change nothing",
    "is computed by": "make it a plain parameter first (remove_parametrizations, remove_spectral_norm, prune.remove)",
    "no parameter of the model": "register it: self.register_buffer(name, tensor), or make it a parameter",
    "is shared with": "give each a parameter of its own",
    "writes into": "build the result by torch.cat instead",
}


def with_remedy(reason: str, where: str | None = None) -> str:
    """The reason, the line of source it comes from, if known, and, where there is one, the remedy.

    >>> with_remedy("'a.weight' is shared with 'b.weight'")
    "'a.weight' is shared with 'b.weight'; give each a parameter of its own"
    """
    remedy = next((remedy for phrase, remedy in _REMEDIES.items() if phrase in reason), None)
    placed = f"{reason} ({where})" if where else reason
    return f"{placed}; {remedy}" if remedy else placed
