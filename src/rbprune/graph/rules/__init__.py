"""How each operation carries channel identities. An operation without a rule freezes what it touches.

A rule is called as ``rule(propagation, node, *args, **kwargs)`` with identities in place of activations (and, for a
module, the module before them), and returns the identities of the result.
"""

from rbprune.graph.rules.registry import apply_rule, own_rule, register_rule, teaches_own_functions

__all__ = ["apply_rule", "own_rule", "register_rule", "teaches_own_functions"]
