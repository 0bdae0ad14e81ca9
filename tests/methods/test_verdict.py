"""Verdicts: what a ranking follows, and the one channel that stays where all were to go."""

from __future__ import annotations

import torch

from rbprune.methods.verdict import Verdict, spare_one


def test_one_channel_stays_where_all_were_to_go_and_the_user_is_told() -> None:
    verdict = Verdict(torch.tensor([0.9, 0.6, 0.8]), torch.ones(3, dtype=torch.bool))
    gone = verdict.redundant.clone()
    message = spare_one("conv1", verdict, gone, "a lower prune.price")
    assert gone.tolist() == [True, False, True]
    assert message is not None and "'conv1'" in message and "a lower prune.price keeps more" in message
    assert spare_one("conv1", verdict, gone, "a lower prune.price") is None, "one stays already"
    assert gone.tolist() == [True, False, True]


def test_a_rank_goes_before_the_value_where_there_is_one() -> None:
    value, rank = torch.tensor([0.1, 0.2]), torch.tensor([2.0, 1.0])
    assert Verdict(value, value > 1).ranking is value
    assert Verdict(value, value > 1, rank=rank).ranking is rank
