"""What a run learns about its own forecasts."""

from __future__ import annotations

import pytest

from rbprune.train.forecast import LEAST, MOST, forecast_correction


def cut(forecast: float | None, measured: float | None) -> dict[str, float | None]:
    return {"forecast": forecast, "measured": measured}


def test_the_mean_is_that_of_ratios() -> None:
    assert forecast_correction([cut(0.01, 0.03), cut(0.03, 0.01)]) == pytest.approx(1)
    assert forecast_correction([cut(0.01, 0.02), cut(0.01, 0.03)]) == pytest.approx(6**0.5)


@pytest.mark.parametrize("empty", [cut(None, 0.1), cut(0.1, None), cut(LEAST / 2, 0.1), cut(0.1, -0.1), {}])
def test_what_means_nothing_teaches_nothing(empty: dict[str, float | None]) -> None:
    assert forecast_correction([empty]) == 1
    assert forecast_correction([empty, cut(0.1, 0.2)]) == pytest.approx(2)


def test_a_correction_is_bounded() -> None:
    assert forecast_correction([cut(0.01, 10)]) == MOST
    assert forecast_correction([cut(10, 0.01)]) == 1 / MOST
