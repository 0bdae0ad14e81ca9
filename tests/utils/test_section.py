"""Tables of settings: every mistake is named at once, wherever it stands."""

from __future__ import annotations

from typing import Self

import pytest
from pydantic import Field, ValidationError, model_validator

from rbprune.errors import ConfigError
from rbprune.settings.recipe import build_settings
from rbprune.utils.section import Section, explain


class Inner(Section):
    width: int = Field(1, ge=1)
    name: str = "a"


class Outer(Section):
    inner: Inner = Inner()
    perhaps: Inner | None = None
    rate: float = 0.5

    @model_validator(mode="after")
    def _adds_up(self) -> Self:
        if self.rate * self.inner.width > 10:
            raise ValueError("rate times width is at most 10")
        return self


class Named(Section):
    name: str


class Holder(Section):
    outer: Outer
    key: Named | None = None


def mistakes(**values: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        Outer(**values)
    return str(caught.value).splitlines()


def test_all_mistakes_are_collected_also_those_of_inner_tables() -> None:
    first, *rest = mistakes(inner={"width": 0, "nam": "b"}, perhaps={"widht": 2}, rate="fast")
    assert first == "these settings cannot be used:"
    assert sorted(rest) == [
        "  inner.nam: unknown key; did you mean 'name'?; known here: name, width",
        "  inner.width = 0: Input should be greater than or equal to 1",
        "  perhaps.widht: unknown key; did you mean 'width'?; known here: name, width",
        "  rate = 'fast': Input should be a valid number, unable to parse string as a number",
    ]


def test_what_no_single_key_is_to_blame_for_is_told_of_the_table() -> None:
    """The message names the keys; the table itself, which can be long, is not shown."""
    (_, told) = mistakes(inner={"width": 4}, rate=3)
    assert told == "  rate times width is at most 10"
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate({"outer": {"inner": {"width": 4}, "rate": 3}})
    assert explain(caught.value, Holder, "it").splitlines()[1:] == ["  outer: rate times width is at most 10"]


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ({}, "  there is no [outer] section"),
        ({"outer": {}, "key": {}}, "  key.name is missing; give it, there is no default"),
        ({"outer": {}, "key": {"name": {"a": 1}}}, "  key.name = {'a': 1}: Input should be a valid string"),
        ({"outer": 3}, "  outer = 3: this is a section, not a value: write [outer] and keys below it"),
    ],
)
def test_what_is_missing_is_named_and_no_table_is_dumped(values: dict[str, object], told: str) -> None:
    with pytest.raises(ValidationError) as caught:
        Holder.model_validate(values)
    assert explain(caught.value, Holder, "it").splitlines()[1:] == [told]


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_numbers_are_finite(value: float) -> None:
    assert mistakes(rate=value)[1].endswith("Input should be a finite number")


def test_an_inner_table_made_by_itself_refuses_on_the_spot() -> None:
    with pytest.raises(ConfigError, match=r"these settings cannot be used:\n  width = -1"):
        Inner(width=-1)
    assert Outer(inner=Inner(width=3)).inner.width == 3


def test_changed_validates_and_leaves_the_old_one_alone() -> None:
    old = Outer(inner=Inner(width=4))
    new = old.changed(rate=2)
    assert (old.rate, new.rate, new.inner) == (0.5, 2.0, old.inner)
    with pytest.raises(ConfigError, match="rate times width is at most 10"):
        old.changed(rate=3)
    with pytest.raises(ConfigError, match="rat: unknown key; did you mean 'rate'"):
        old.changed(rat=3)


def test_nothing_can_be_set_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        Inner().width = 3  # type: ignore[misc]


def test_explain_says_where_the_settings_came_from() -> None:
    with pytest.raises(ValidationError) as caught:
        Outer.model_validate({"inner": 3})
    assert explain(caught.value, Outer, "recipe 'x'").startswith("recipe 'x' cannot be used:\n  inner = 3: ")
    assert "[inner]" in explain(caught.value, Outer, "recipe 'x'")


def test_a_value_that_python_will_not_print_is_told_all_the_same() -> None:
    with pytest.raises(ConfigError, match="an int that is too long to print"):
        build_settings({"model": {"name": 1 << 20000}, "data": {"name": "mnist-subset"}})
