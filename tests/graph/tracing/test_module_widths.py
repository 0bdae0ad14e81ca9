"""Widths that a forward reads: noticed whoever asks and however, with nothing changed that anybody could see."""

from __future__ import annotations

import copy
import pickle
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from rbprune import trace
from rbprune.graph.tracing.module_widths import WidthReads
from tests.graph.hostile import same, snapshot
from tests.graph.operations import Case, Net, check_operation, conv


class Head(nn.Module):
    """Widths that are no plain attributes."""

    in_channels = 8

    def __init__(self) -> None:
        super().__init__()
        self.in_features, self.fc = 8, nn.Linear(8, 4)

    @property
    def out_features(self) -> int:
        return self.fc.out_features

    def forward(self, x: Tensor) -> Tensor:
        return self.fc(x)


def test_widths_may_be_properties_and_classes_are_left_as_they_were() -> None:
    model = Net(lambda n, x: n.h(n.a(x).mean((2, 3))).view(-1, n.h.out_features), a=conv(3, 8), h=Head())
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert [site.name for site in graph.sites] == ["a"]
    for kind in (nn.Conv2d, nn.Linear, Head):
        assert "out_channels" not in vars(kind)
        assert "num_features" not in vars(kind)


NETS: dict[str, Case] = {
    "scaled by a width": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x) / n.a.out_channels**0.5).relu()), a=conv(3, 6), b=conv(6, 5), c=conv(5, 2)
        ),
        (3, 5, 5),
        {"b": 5},
    ),
    "scaled by the width it reads": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.a(x) * n.b.in_channels**-0.5).relu()), a=conv(3, 6), b=conv(6, 5), c=conv(5, 2)
        ),
        (3, 5, 5),
        {"b": 5},
    ),
    "scaled by normalised features": (
        lambda: Net(
            lambda n, x: n.c(n.b(n.norm(n.a(x)) / n.norm.num_features).relu()),
            a=conv(3, 6),
            norm=nn.BatchNorm2d(6),
            b=conv(6, 5),
            c=conv(5, 2),
        ),
        (3, 5, 5),
        {"b": 5},
    ),
}


@pytest.mark.parametrize("training", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", NETS)
def test_masked_equals_removed(name: str, training: bool) -> None:
    check_operation(*NETS[name], training)


def kept(forward: Callable[[Net, Tensor], Any]) -> bool:
    """Whether the channels of ``a`` stay because of what this does on the way; the model must stay as it was."""

    def run(net: Net, x: Tensor) -> Tensor:
        y = net.a(x)
        forward(net, y)
        return net.b(y)

    model = Net(run, a=conv(3, 8, bias=False), b=conv(8, 4))  # printing a layer reads its bias, which is another matter
    before = snapshot(model)
    graph = trace(model, torch.zeros(2, 3, 5, 5))
    assert same(before, snapshot(model))
    for module in model.modules():
        assert {type(name) for name in vars(module)} == {str}
    reasons = str(graph.frozen.get("a", ""))
    assert ("the forward reads a.out_channels, which a cut would change" in reasons) == (not graph.sites)
    return not graph.sites


READS: dict[str, Callable[[Net, Tensor], Any]] = {
    "attribute": lambda n, x: n.a.out_channels,
    "getattr": lambda n, x: getattr(n.a, "out" + "_channels"),
    "hasattr": lambda n, x: hasattr(n.a, "out_channels"),
    "vars": lambda n, x: vars(n.a)["out_channels"],
    "by another's input": lambda n, x: n.b.in_channels,
}
LOOKS: dict[str, Callable[[Net, Tensor], Any]] = {
    "nothing": lambda n, x: None,
    "printing": lambda n, x: repr(n),
    "listing": lambda n, x: dir(n.a),
    "other attributes": lambda n, x: (n.a.kernel_size, n.a.groups, hasattr(n.a, "nonsense")),
    "copying": lambda n, x: copy.deepcopy(n.a),
    "copying shallowly": lambda n, x: copy.copy(n.a),
    "writing": lambda n, x: setattr(n.a, "out_channels", 8),
    "deleting": lambda n, x: delattr(n.a, "out_channels"),
    "replacing": lambda n, x: vars(n.a).update(spare=1),
    "state": lambda n, x: n.a.state_dict(),
}


@pytest.mark.parametrize("name", READS)
def test_whoever_reads_a_width_is_noticed(name: str) -> None:
    if name == "by another's input":
        model = Net(lambda n, x: n.b(n.a(x) / n.b.in_channels), a=conv(3, 8), b=conv(8, 4))
        assert "reads b.in_channels" in str(trace(model, torch.zeros(2, 3, 5, 5)).frozen["a"])
    else:
        assert kept(READS[name])


@pytest.mark.parametrize("name", LOOKS)
def test_what_reads_no_width_is_no_obstacle(name: str) -> None:
    assert not kept(LOOKS[name])


class Asking(nn.Conv2d):
    """Reads its own width, which is its own business."""

    def forward(self, x: Tensor) -> Tensor:
        assert sum(self.out_channels for _ in range(2)) == 2 * self.out_channels
        return super().forward(x)


def test_a_layer_may_read_its_own_width() -> None:
    model = nn.Sequential(Asking(3, 6, 3), nn.ReLU(), conv(6, 2))
    assert [site.name for site in trace(model, torch.zeros(2, 3, 5, 5)).sites] == ["0"]


def test_a_watched_module_is_the_same_to_all_other_code() -> None:
    layer = conv(3, 8)
    text, names, keys = repr(layer), dir(layer), list(vars(layer))
    reads = WidthReads()
    with reads.watching(layer):
        assert (repr(layer), dir(layer), list(vars(layer))) == (text, names, keys)
        for twin in (copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))):
            assert {type(name) for name in vars(twin)} == {str}
            assert twin.out_channels == 8
        reads.found.clear()  # the comparison of names above has asked for them
        layer.out_channels = 5
        assert not reads.found
        assert layer.out_channels == 5
        assert list(reads.found) == [(layer, "out_channels")]
        del layer.out_channels
        with pytest.raises(AttributeError, match="'Conv2d' object has no attribute 'out_channels'"):
            print(layer.out_channels)
        layer.out_channels = 7
    assert {type(name) for name in vars(layer)} == {str}
    assert layer.out_channels == 7


def test_what_is_read_in_a_pause_or_afterwards_is_not_noted() -> None:
    layer = nn.Linear(2, 3)
    reads = WidthReads()
    with reads.watching(layer):
        with reads.paused():
            assert layer.in_features == 2
        assert layer.out_features == 3
    assert layer.in_features == 2
    assert list(reads.found) == [(layer, "out_features")]


def test_names_are_put_back_after_an_error() -> None:
    layer = nn.Linear(2, 3)
    keys = list(vars(layer))
    with pytest.raises(KeyError), WidthReads().watching(layer):
        raise KeyError("the user's own")
    assert list(vars(layer)) == keys
    assert {type(name) for name in vars(layer)} == {str}


def test_no_class_is_changed_meanwhile() -> None:
    kinds = (nn.Module, nn.Conv2d, nn.Linear, nn.BatchNorm2d, nn.modules.conv._ConvNd)
    names = [set(vars(kind)) for kind in kinds]
    seen = []

    def forward(net: Net, x: Tensor) -> Tensor:
        y = net.norm(net.a(x)) / net.a.out_channels
        seen.append([set(vars(kind)) for kind in kinds])
        return net.b(y.mean((2, 3)))

    graph = trace(Net(forward, a=conv(3, 8), norm=nn.BatchNorm2d(8), b=nn.Linear(8, 2)), torch.zeros(2, 3, 5, 5))
    assert graph.sites == []
    assert seen == [names] * 2  # it runs once in evaluation and once in training
    assert [set(vars(kind)) for kind in kinds] == names


def first() -> nn.Module:
    return Net(
        lambda n, x: n.c(n.b(n.a(x) / n.a.out_channels**0.5).relu()), a=conv(3, 6), b=Asking(6, 5, 3), c=conv(5, 2)
    )


def second() -> nn.Module:
    return Net(
        lambda n, x: n.c(n.norm(n.b(n.a(x).relu())) / n.norm.num_features),
        a=Asking(3, 7, 3),
        b=conv(7, 4),
        norm=nn.BatchNorm2d(4),
        c=conv(4, 2),
    )


def found(model: nn.Module) -> Any:
    graph = trace(model, torch.zeros(2, 3, 9, 9))
    sites = [(s.name, [(p.owner, p.role, p.positions.tolist()) for p in s.parts]) for s in graph.sites]
    return sites, graph.frozen, graph.macs()


def test_two_threads_find_what_one_finds_after_the_other() -> None:
    makes = (first, second)
    wanted = [found(make()) for make in makes]
    assert [[name for name, _ in sites] for sites, _, _ in wanted] == [["b"], ["a"]]
    assert "the forward reads a.out_channels" in str(wanted[0][1]["a"])
    assert "the forward reads norm.num_features" in str(wanted[1][1]["b"])
    models = [[make() for _ in range(20)] for make in makes]
    state = torch.get_rng_state()
    results: list[list[Any]] = [[], []]
    start = threading.Barrier(2)

    def work(number: int) -> None:
        start.wait()
        results[number] += [found(model) for model in models[number]]

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [[each] * 20 for each in wanted]
    assert torch.equal(state, torch.get_rng_state())


def test_a_model_that_runs_in_another_thread_is_not_disturbed() -> None:
    other, x = nn.Sequential(conv(3, 6), nn.ReLU(), conv(6, 2)), torch.ones(1, 3, 5, 5)
    wanted = other(x)
    done, wrong, runs = threading.Event(), [], []

    def run() -> None:
        while not done.is_set():
            try:
                runs.append(1)
                if not torch.equal(other(x), wanted):
                    wrong.append("another result")
            except Exception as error:
                wrong.append(repr(error))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        results = [found(first()) for _ in range(20)]
    finally:
        done.set()
        thread.join()
    assert len(runs) > 1
    assert wrong == []
    assert all(each == results[0] for each in results)
