"""Channel identities: what is merged goes together, what is frozen stays, and the first reason is remembered."""

from __future__ import annotations

import pytest
import torch

from rbprune.graph.ids import FROZEN, IdSpace, along, compact, spread, varies
from rbprune.graph.reasons import Kind, Reason

FIRST, SECOND = Reason(Kind.OUTPUT, "first"), Reason(Kind.OUTPUT, "second")


def test_fresh_identities_are_new_and_never_frozen() -> None:
    ids = IdSpace()
    a, b = ids.fresh(3), ids.fresh(2)
    assert len({FROZEN, *a.tolist(), *b.tolist()}) == 6
    assert ids.components().tolist() == list(range(6))


def test_merged_identities_have_one_component_through_any_chain() -> None:
    ids = IdSpace()
    a, b, c = ids.fresh(4), ids.fresh(4), ids.fresh(4)
    ids.merge(a, b)
    ids.merge(c, b.flip(0))
    component = ids.components()
    assert component[a].tolist() == component[b].tolist() == component[c].flip(0).tolist() == a.tolist()


def test_what_meets_frozen_identities_is_frozen() -> None:
    ids = IdSpace()
    a, b = ids.fresh(3), ids.fresh(3)
    ids.freeze(a[:1], FIRST)
    ids.merge(a, b)
    assert ids.components()[b].tolist() == [FROZEN, a[1].item(), a[2].item()]


def test_the_first_reason_holds_for_all_that_are_connected_and_for_nobody_else() -> None:
    ids = IdSpace()
    a, b, c = ids.fresh(1), ids.fresh(1), ids.fresh(1)
    ids.freeze(b, FIRST)
    ids.freeze(b, SECOND)
    ids.freeze(c, SECOND)
    ids.merge(a, b)
    told = ids.reasons()
    assert [told[int(i)] for i in (a, b, c)] == [FIRST, FIRST, SECOND]
    assert FROZEN not in told


def test_a_bond_is_told_of_identities_that_it_binds_only() -> None:
    ids = IdSpace()
    a, b, alone = ids.fresh(2), ids.fresh(2), ids.fresh(1)
    ids.merge(a, a)
    assert ids.bonds() == {}
    ids.merge(a, b, FIRST)
    assert set(ids.bonds()) == {*a.tolist(), *b.tolist()}
    assert int(alone) not in ids.bonds()


@pytest.mark.parametrize("dim", [0, 1, -1])
def test_spread_and_along_are_inverse(dim: int) -> None:
    shape = [2, 3, 4]
    vector = torch.arange(1, shape[dim] + 1)
    ids = spread(vector, dim, shape)
    assert list(ids.shape) == shape
    found = along(ids, dim)
    assert found is not None
    assert torch.equal(found, vector)
    assert compact(ids)[0].numel() == len(vector)
    assert [varies(ids, d) for d in range(3)] == [d == dim % 3 for d in range(3)]


def test_identities_in_two_dimensions_are_along_none() -> None:
    ids = torch.arange(6).view(2, 3)
    assert along(ids, 0) is None
    assert along(ids, 1) is None
