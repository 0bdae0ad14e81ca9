"""Recipes: every shipped one is valid, mistakes are explained."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from rbprune.errors import ConfigError
from rbprune.settings.recipe import build_settings, load_recipe, merge, parse_override, read_toml, shipped, to_toml
from rbprune.settings.sections import Settings
from rbprune.utils.files import write_atomic

NAMES = [
    "demo",
    "lenet5-mnist",
    "resnet20-cifar10",
    "resnet50-ilsvrc-rbp",
    "resnet50-ilsvrc-rrbp",
    "resnet56-cifar10",
    "vgg16-cifar10",
    "vgg16-ilsvrc",
]


def test_the_promised_recipes_are_shipped() -> None:
    assert shipped() == NAMES


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_is_valid_and_survives_being_written(name: str) -> None:
    config = load_recipe(name)
    again = build_settings(tomllib.loads(to_toml(config)), applied=True)
    assert again == config


@pytest.mark.parametrize("name", NAMES)
def test_every_recipe_leaves_precision_and_layout_to_the_machine(name: str) -> None:
    runtime = load_recipe(name).runtime
    assert (runtime.precision, runtime.channels_last) == ("auto", "auto")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ("runtime.precision=half", "runtime.precision = 'half': Input should be 'auto', '32-true', 'bf16-mixed' or"),
        ("runtime.channels_last=maybe", "runtime.channels_last = 'maybe': Input should be 'auto', True or False"),
    ],
)
def test_an_unknown_precision_or_layout_is_told_the_known_ones(given: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("demo", [given])


@pytest.mark.parametrize("name", [name for name in NAMES if name != "demo"])
def test_the_paper_preset_has_the_papers_settings(name: str) -> None:
    config = load_recipe(name, ["preset=paper"])
    assert config.prune.price.nats == 20
    assert config.prune.price.nats_per_mmac is None
    assert (config.prune.optimizer, config.prune.lr, config.prune.rate_lr) == ("adam", 1e-4, 1e-4)
    assert (config.prune.threshold, config.prune.rate_init, config.prune.settle) == (None, 0.01, 0), "rbp's is 0.5"
    assert (config.prune.confidence, config.prune.max_rise) == (0, 100), "the threshold alone, and nothing taken back"
    assert config.prune.sums is False, "said, so that no later default changes it"
    finetune = config.finetune
    assert (finetune.epochs, finetune.optimizer, finetune.lr, finetune.decay) == (10, "sgd", 1e-4, "step")
    assert (finetune.step_epochs, finetune.step_factor, finetune.distill) == (3, 0.5, 0)
    wanted = {"vgg16-ilsvrc": (3, 128), "resnet50-ilsvrc-rbp": (3, 256), "resnet50-ilsvrc-rrbp": (7, 256)}
    assert (config.prune.epochs, config.prune.batch_size) == wanted.get(name, (10, 64))
    if name == "vgg16-cifar10" and config.pretrain is not None:
        assert (config.pretrain.epochs, config.pretrain.batch_size) == (100, 64)
    assert build_settings(tomllib.loads(to_toml(config)), applied=True) == config, "a written run repeats what was run"


@pytest.mark.parametrize("method", ["ibp", "rbc", "bc", "bc-gnj", "sbp", "bmrs"])
def test_under_the_paper_preset_every_method_has_its_schedule_and_a_threshold_of_its_own(method: str) -> None:
    config = load_recipe("vgg16-cifar10", ["preset=paper", f"prune.method={method}"])
    assert (config.prune.epochs, config.prune.rate_lr, config.prune.threshold) == (10, 1e-4, None)
    assert load_recipe("vgg16-cifar10", ["preset=paper", f"prune.method={method}", "prune.epochs=2"]).prune.epochs == 2


def test_overrides_come_after_the_preset() -> None:
    config = load_recipe("lenet5-mnist", ["prune.epochs=1.5", "preset=paper", "prune.price.nats_per_mmac=5"])
    assert config.prune.epochs == 1.5
    assert config.prune.price.model_dump(exclude_none=True) == {"nats_per_mmac": 5.0}


def test_settings_for_one_method_may_be_overridden_beside_the_others() -> None:
    override = "methods.bc.prune.epochs=2.5"
    for preset in ([], ["preset=paper"]):
        given = load_recipe("vgg16-cifar10", [override, "prune.method=bc", *preset])
        assert given.prune.epochs == 2.5
        for method in ("rbp", "sbp"):
            other = [f"prune.method={method}", *preset]
            assert load_recipe("vgg16-cifar10", [override, *other]) == load_recipe("vgg16-cifar10", other)


def raw(**more: Any) -> dict[str, Any]:
    """The shortest recipe, and more."""
    prune = {"epochs": 2, "lr": 0.1, "price": {"nats": 20}}
    finetune = {"epochs": 1, "lr": 0.1}
    return {"model": {"name": "lenet5"}, "data": {"name": "mnist"}, "prune": prune, "finetune": finetune, **more}


def test_settings_for_one_method_reach_the_default_method_too() -> None:
    tables = {"rbp": {"prune": {"epochs": 7}}}
    assert build_settings(raw(methods=tables)).prune.epochs == 7
    assert build_settings(raw(methods=tables), ["prune.method=ibp"]).prune.epochs == 2


@pytest.mark.parametrize(
    ("more", "overrides", "complaint"),
    [
        ({"methods": {"thinnet": {"prune": {"epochs": 1}}}}, [], r"methods.thinnet: there is no such method.*thinet"),
        ({"methods": {"sbp": {"prune": {"epocs": 1}}}}, [], r"methods.sbp.*(?s:.*)epocs: unknown key"),
        ({"presets": {"p": {"prune": {"epocs": 1}}}}, [], r"presets.p.*(?s:.*)epocs: unknown key"),
        ({"methods": 3}, [], r"methods holds tables such as"),
        ({"methods": {"rbp": 3}}, [], r"methods holds tables such as"),
        ({"presets": {"p": 3}}, [], r"presets holds tables such as"),
        ({"prune": "a"}, [], r"prune = 'a'"),
        ({}, ["methods.bd.prune.epochs=1"], r"--set: methods.bd: there is no such method"),
        ({}, ["methods.bc=1"], r"--set: methods holds tables"),
        ({}, ["methods.bc.prune.epocs=1"], r"epocs: unknown key"),
        ({}, ["prune=none"], r"'prune' is a section"),
        ({}, ["prune.method=[1]"], r"prune.method"),
        ({}, ["seed=99999999999999999999999"], r"seed = 99999999999999999999999: .*less than"),
        ({"preset": "paper"}, [], r"no preset 'paper'.*preset=none"),
    ],
)
def test_mistakes_are_named_wherever_they_stand(more: dict[str, Any], overrides: list[str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        build_settings(raw(**more), overrides)


def test_a_price_may_be_given_in_parts() -> None:
    given = ["prune.price.nats_per_example=1.3", "prune.price.nats=70"]
    for overrides in (given, given[::-1]):
        found = load_recipe("demo", overrides).prune.price.model_dump(exclude_none=True)
        assert found == {"nats_per_example": 1.3, "nats": 70.0}


@pytest.mark.parametrize("override", ["prune=3", "finetune=none-such", "preset=[1]"])
def test_a_section_is_no_value(override: str) -> None:
    with pytest.raises(ConfigError, match="is a section of settings|has no preset"):
        load_recipe("lenet5-mnist", [override])


def test_values_are_toml_or_plain_text() -> None:
    assert parse_override("a.b=[1, 2]") == {"a": {"b": [1, 2]}}
    assert parse_override("data.path=/some/where") == {"data": {"path": "/some/where"}}
    assert parse_override("x=true") == {"x": True}
    assert parse_override('x="none"') == {"x": "none"}
    assert merge({"a": {"b": 1, "c": 2}}, {"a": {"b": 3}}) == {"a": {"b": 3, "c": 2}}


def test_none_takes_a_setting_away() -> None:
    assert load_recipe("resnet50-ilsvrc-rbp").model.weights == "torchvision:IMAGENET1K_V1"
    config = load_recipe("resnet50-ilsvrc-rbp", ["model.weights=none"])
    assert config.model.weights is None
    assert build_settings(tomllib.loads(to_toml(config)), applied=True) == config
    with pytest.raises(ConfigError, match=r"prune\.lr = None: .*valid number"):
        load_recipe("demo", ["prune.lr=none"])


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["prune.epoch=3"], r"prune\.epoch: unknown key; did you mean 'epochs'\?"),
        (["finetun.epochs=3"], r"finetun: unknown key; did you mean 'finetune'\?"),
        (["prune.price={nats=0}"], r"prune\.price\.nats = 0: .*greater than 0"),
        (["prune.price={nats_per_example=1, nats_per_mmac=2}"], "a price is one of nats, nats_per_mmac"),
        (["prune.observe=0"], r"prune\.observe = 0: .*greater than or equal to 1"),
        (["seed"], r"takes key=value.*'seed'"),
        (["preset=papr"], "no preset 'papr'; did you mean 'paper'"),
        (["prune.noise=row"], r"prune\.noise = 'row'"),
        (["prune.lr=fast"], r"prune\.lr = 'fast': .*valid number"),
    ],
)
def test_mistakes_are_explained(overrides: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_recipe("lenet5-mnist", overrides)


def test_all_mistakes_are_shown_together() -> None:
    with pytest.raises(ConfigError) as caught:
        load_recipe("lenet5-mnist", ["prune.epoch=3", "finetune.lr=-1", "data.vall=3"])
    assert all(word in str(caught.value) for word in ("prune.epoch", "finetune.lr", "data.vall"))


def test_a_recipe_is_a_name_or_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(to_toml(load_recipe("demo")))
    assert load_recipe(str(file)) == load_recipe("demo")
    with pytest.raises(ConfigError, match="no recipe 'lenet5-mnits'; did you mean 'lenet5-mnist'"):
        load_recipe("lenet5-mnits")
    file.write_text("prune = [")
    with pytest.raises(ConfigError, match="not valid TOML"):
        load_recipe(str(file))


def test_a_preset_may_stand_in_the_file(tmp_path: Path) -> None:
    text = (Path(__file__).parents[2] / "src/rbprune/settings/recipes/lenet5-mnist.toml").read_text()
    (tmp_path / "mine.toml").write_text('preset = "paper"\n' + text)
    assert load_recipe(str(tmp_path / "mine.toml")) == load_recipe("lenet5-mnist", ["preset=paper"])


def test_toml_text_with_quotes_survives() -> None:
    config = load_recipe("demo", [r'data.path=C:\data "x"'])
    assert build_settings(tomllib.loads(to_toml(config))) == config
    assert isinstance(config, Settings)


TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
"""Any characters that a file can hold: quotes, line ends, control characters, every script."""


@given(path=TEXT, name=TEXT, sites=st.lists(TEXT, max_size=3), option=TEXT, number=st.floats(0, 1e9))
@example(path="a\rb", name='"""', sites=["\x00", "\\"], option="a.b", number=5e-324)
@example(path="C:\\neu\\\u2028", name="'''\n", sites=["#", "\x7f\x85"], option="", number=0.1 + 0.2)
@settings(max_examples=50, deadline=None)
def test_whatever_characters_settings_hold_they_survive_being_written(
    path: str, name: str, sites: list[str], option: str, number: float
) -> None:
    prune = {"keep": sites, "only": sites, "options": {option: number}}
    config = build_settings(
        {"model": {"name": name, "weights": path}, "data": {"name": name, "path": path}, "prune": prune}
    )
    written = to_toml(config).encode("utf-8")
    assert build_settings(tomllib.loads(written.decode("utf-8")), applied=True) == config


@pytest.mark.parametrize(
    "path", ["a\rb", "a\r\nb", "\x00\x1b[31m", 'quo"te', "tab\tand\nline", "\u540d\U0001f600", "\\"]
)
def test_a_file_of_settings_is_read_back_whatever_its_paths_hold(tmp_path: Path, path: str) -> None:
    config = build_settings(raw(data={"name": "folder", "path": path}))
    file = write_atomic(tmp_path / "config.toml", to_toml(config))
    assert build_settings(read_toml(file), applied=True) == config


def test_a_file_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    (tmp_path / "mine.toml").write_bytes(b'preset = "\xff"')
    with pytest.raises(ConfigError, match="mine.toml is not UTF-8, as TOML must be"):
        load_recipe(str(tmp_path / "mine.toml"))


def test_an_integer_beyond_64_bits_is_no_toml(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text(f"prune = {{ method = 0x{'f' * 5000} }}")
    with pytest.raises(ConfigError, match=r"a.toml is not valid TOML: an integer of 20000 bits"):
        load_recipe(str(tmp_path / "a.toml"))
    with pytest.raises(ConfigError, match="prune.epochs"):
        load_recipe("demo", [f"prune.epochs=0x{'f' * 5000}"])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[model]\nname = "lenet5"\n[prune]\nepochs = 3\n', ["  there is no [data] section; it needs name"]),
        ("[prune]\nepochs = 3\n", [f"  there is no [{name}] section; it needs name" for name in ("model", "data")]),
        ('[model]\n[data]\nname = "mnist-subset"\n', ["  model.name is missing; give it, there is no default"]),
        (
            '[model]\nname = "lenet5"\n[data]\nname = "mnist-subset"\n[pretrain]\nlr = 0.1\n',
            ["  pretrain.epochs is missing; give it, there is no default"],
        ),
    ],
)
def test_a_missing_section_is_named_and_the_recipe_is_not_dumped(tmp_path: Path, text: str, told: list[str]) -> None:
    file = tmp_path / "mine.toml"
    file.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_recipe(str(file))
    first, *rest = str(caught.value).splitlines()
    assert first == f"recipe {str(file)!r} cannot be used:" and rest == told and "{" not in str(caught.value)
