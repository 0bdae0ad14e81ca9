"""Networks of all libraries, masked and removed: a few in ``make test``, all of them in ``make torture``."""

from __future__ import annotations

from collections import Counter

import pytest

from tests.torture.network_trial import NetworkFigures, try_networks
from tests.torture.networks import missing, networks


def check(figures: dict[str, NetworkFigures]) -> None:
    for each in figures.values():
        print(f"\n{each.line()}")
        for kind in ("refused", "without_sites", "skipped", "wrong", "foreign"):
            for text in getattr(each, kind):
                print(f"  {kind}: {text}")
        print(f"  convolutions in no site: {dict(each.reasons.most_common())}")
    for each in figures.values():
        assert (each.wrong, each.foreign) == ([], []), each.line()


def test_some_networks() -> None:
    some = [network for network in networks() if network.library == "hostile"][::4]
    check(found := try_networks(some))
    assert found["hostile"].tried == len(some)


@pytest.mark.torture
@pytest.mark.slow
def test_two_hundred_networks() -> None:
    every = list(networks())
    figures = try_networks(every)
    check(figures)
    print(f"not installed: {', '.join(missing()) or 'none'}")
    print(
        f"altogether {sum(each.tried for each in figures.values())} networks: {dict(Counter(n.library for n in every))}"
    )
    assert missing() or sum(each.tried for each in figures.values()) >= 200
