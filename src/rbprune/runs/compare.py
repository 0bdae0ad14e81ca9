"""Several methods on the same network, data, seeds and budget, one run folder each, and the table of their results."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from rbprune.errors import ConfigError
from rbprune.graph.cost import COSTS, MACS, find_cost
from rbprune.methods import find_method
from rbprune.methods.schedule import at_once
from rbprune.runs.folder import RunFolder
from rbprune.runs.jobs import Job, check_jobs, run_side_by_side
from rbprune.runs.series import claim, computing_like, dense_weights, reason, run_once
from rbprune.settings.recipe import load_recipe
from rbprune.settings.sections import Settings
from rbprune.utils.files import write_atomic
from rbprune.utils.interrupt import Interrupted

PEERS = {"torch-pruning": ("tp-magnitude", "tp-bn", "tp-taylor", "tp-group")}
"""Methods that a peer brings."""


@dataclass(frozen=True)
class ComparisonRequest:
    """What is to be compared; the first method sets the cost for those that must be told how much to cut."""

    recipe: str
    methods: tuple[str, ...]
    overrides: tuple[str, ...] = ()
    seeds: int = 1
    budget: float | None = None
    sweep: tuple[float, ...] = ()
    match: bool = False
    """Also cut the methods that decide by themselves to the first one's cost, by their own ranking, where they can."""
    cost: str = MACS.name
    """The cost at which the methods meet, and of which ``sweep`` holds ratios, by its name."""

    @property
    def ratio_setting(self) -> str:
        """The setting that tells a method how many times the cost has to fall.

        >>> ComparisonRequest("demo", ("rbp", "uniform"), cost="params").ratio_setting
        'prune.params_ratio'
        """
        return f"prune.{self.cost}_ratio"

    def told(self, method: str) -> bool:
        """Whether the method is told how much to cut."""
        found = find_method(method)
        if found.stage.needs_ratio or not self.match or method == self.methods[0]:
            return found.stage.needs_ratio
        settings = load_recipe(self.recipe, (*self.overrides, f"prune.method={method}")).prune
        return found.schedule is at_once or found.stage.can_target(settings)

    def check(self) -> None:
        """Refuse every mistake that can be seen before anything runs."""
        if self.seeds < 1:
            raise ConfigError(f"--seeds is how many runs each method gets; {self.seeds} is none")
        find_cost(self.cost)
        target = load_recipe(self.recipe, self.overrides).prune.ratio
        if not self.methods or len(set(self.methods)) < len(self.methods):
            raise ConfigError(
                f"--methods takes different methods, such as rbp,uniform; this is {','.join(self.methods)}"
            )
        stages = {name: find_method(name).stage for name in self.methods}
        if stages[self.methods[0]].needs_ratio and not self.sweep:
            given = [o for o in self.overrides if o.startswith(f"{self.ratio_setting}=")]
            if not given:
                raise ConfigError(
                    f"{self.methods[0]!r} must be told how much to cut: name a method first that decides by itself "
                    f"(rbp, rrbp), or give --sweep 1.5,2,3 or --set {self.ratio_setting}=2"
                )
        if target is not None and target[0].name != self.cost and any(map(self.told, self.methods)):
            other = f"prune.{target[0].name}_ratio"
            raise ConfigError(
                f"the methods meet at the same {find_cost(self.cost).label}, and the settings ask for {other} = "
                f"{target[1]:g}: give --cost {target[0].name}, or --set {other}=none"
            )


@dataclass
class MethodResults:
    """What one method came to on each seed that is finished: errors in per cent, ``cost`` of a run in dense epochs."""

    method: str
    label: str
    seeds: list[int] = field(default_factory=list)
    channels: dict[str, list[int]] = field(default_factory=dict)
    ratios: dict[str, list[float]] = field(default_factory=lambda: {name: [] for name in COSTS})
    """How many times less the pruned network costs, by name of the cost; a run made before a cost existed lacks it."""
    error: list[float] = field(default_factory=list)
    val_error: list[float] = field(default_factory=list)
    cost: list[float] = field(default_factory=list)
    seconds: list[float] = field(default_factory=list)
    failed: str | None = None

    def add(self, summary: dict[str, Any]) -> None:
        """Add what the run of one more seed came to."""
        self.seeds.append(summary["seed"])
        self.channels = self.channels or summary["channels"]
        for name, ratios in self.ratios.items():
            ratios += [summary[f"{name}_ratio"]] if f"{name}_ratio" in summary else []
        self.error.append(summary["error_after"])
        self.val_error.append(summary["val_error_after"])
        cost = summary["dense_epochs"]
        self.cost.append(cost["prune"] + cost["finetune"])
        self.seconds.append(summary["seconds"])

    def as_dict(self) -> dict[str, Any]:
        """Everything as plain values; the ratios of each cost are a field ``NAME_ratio`` of their own."""
        fields = asdict(self)
        return fields | {f"{name}_ratio": ratios for name, ratios in fields.pop("ratios").items()}

    def behind(self, other: MethodResults) -> list[float]:
        """By how many points the error is above another method's, on each seed that both have."""
        theirs = dict(zip(other.seeds, other.error, strict=True))
        return [error - theirs[s] for s, error in zip(self.seeds, self.error, strict=True) if s in theirs]


@dataclass
class Comparison:
    """The results of all methods, and the errors of the dense networks that they start from."""

    request: ComparisonRequest
    rows: list[MethodResults] = field(default_factory=list)
    base_error: list[float] = field(default_factory=list)

    def to_json(self) -> str:
        """Return everything, for programs."""
        rows = [row.as_dict() for row in self.rows]
        found = {"request": asdict(self.request), "rows": rows, "base_error": self.base_error}
        return json.dumps({**found, "budget": self.request.budget}, indent=2)


def compare(
    request: ComparisonRequest, folder: Path, *, console: Console, command: list[str] | None = None, jobs: int = 1
) -> Comparison:
    """Run what is missing in ``folder`` and gather the table; a method that fails keeps a row that says why.

    With ``jobs`` so many runs go on side by side, in processes of their own that share the threads of this one.
    """
    request.check()
    check_jobs(jobs)
    _claim(folder, request)
    found = Comparison(request)
    failed = run_side_by_side(_jobs(request, folder, command or []), jobs, console=console) if jobs > 1 else {}
    for method, ratio in _entries(request):
        row = MethodResults(method, _label(method, ratio))
        for seed in range(request.seeds):
            if _title(row.label, seed) in failed:
                row.failed = f"seed {seed}: {failed[_title(row.label, seed)]}"
                continue
            try:
                summary = _one(request, folder, method, ratio, seed, command or [], console)
            except Interrupted:
                raise
            except Exception as error:
                story = _place(folder, seed, f"{row.label}-failed.txt")
                row.failed = f"seed {seed}: {reason(error, story)}"
                console.print(f"{row.label}, {row.failed}", markup=False, highlight=False, soft_wrap=True)
                continue
            row.add(summary)
            found.base_error += [summary["error_before"]] if len(found.rows) == 0 else []
        found.rows.append(row)
        write_atomic(folder / "compare.json", found.to_json())
    return found


def _claim(folder: Path, request: ComparisonRequest) -> None:
    """Write the settings of a comparison into its folder, or refuse a folder that was made with others.

    Methods and seeds are no part of them: more may be added later. Folders from before there was a choice of the cost
    hold comparisons at the same MACs.
    """
    fixed = {key: value for key, value in asdict(request).items() if key not in ("methods", "seeds")}
    claim(folder, {**fixed, "first": request.methods[0]}, "comparison", earlier={"cost": MACS.name})


def _entries(request: ComparisonRequest) -> list[tuple[str, float | None]]:
    """List the methods, each with the ratio it is told; those of a sweep once for each of its ratios."""
    entries: list[tuple[str, float | None]] = []
    for name in request.methods:
        swept = request.sweep and request.told(name)
        entries += [(name, ratio) for ratio in request.sweep] if swept else [(name, None)]
    return entries


def _title(label: str, seed: int) -> str:
    return f"{label}  seed {seed}"


def _jobs(request: ComparisonRequest, folder: Path, command: list[str]) -> list[Job]:
    """The runs that are not finished, each with those that it builds upon: its dense network, the first method on the
    same seed, and the first run of all, which decides how all compute."""
    found, entries = [], _entries(request)
    if load_recipe(request.recipe, request.overrides).model.weights is None:
        for seed in range(request.seeds):
            train, log = partial(_train_dense, request, folder, seed), _place(folder, seed, "dense.log")
            found.append(Job(_title("dense network", seed), train, log))
    first = [_label(*entry) for entry in entries if entry[0] == request.methods[0]]
    for method, ratio in entries:
        label = _label(method, ratio)
        for seed in range(request.seeds):
            before = [_title("dense network", seed), _title(first[0], 0)]
            before += [] if method == request.methods[0] else [_title(each, seed) for each in first]
            call = partial(_one, request, folder, method, ratio, seed, command)
            after = tuple(name for name in before if name != _title(label, seed))
            found.append(Job(_title(label, seed), call, _place(folder, seed, f"{label}.log"), after))
    return [job for job in found if not RunFolder(job.log.with_suffix("")).is_finished]


def _train_dense(request: ComparisonRequest, folder: Path, seed: int, console: Console) -> list[str]:
    """Train the dense network of a seed, unless it is there; returns the settings that name it."""
    base = [*request.overrides, f"seed={seed}"]
    out, title = folder / f"seed{seed}" / "dense", _title("dense network", seed)
    return dense_weights(request.recipe, base, out, title=title, console=console)


def _one(
    request: ComparisonRequest,
    folder: Path,
    method: str,
    ratio: float | None,
    seed: int,
    command: list[str],
    console: Console,
) -> dict[str, Any]:
    """Run one method on one seed, or what is left of it, and return its summary."""
    label = _label(method, ratio)

    def settings() -> Settings:
        base = [*request.overrides, f"seed={seed}", *_train_dense(request, folder, seed, console)]
        return _settings(request, [*base, f"prune.method={method}"], folder, method, ratio, seed)

    out = _place(folder, seed, label)
    return run_once(out, settings, title=_title(label, seed), console=console, command=command)


def _settings(
    request: ComparisonRequest, overrides: list[str], folder: Path, method: str, ratio: float | None, seed: int
) -> Settings:
    """The recipe for one method: the common budget, and the cost of the first method where it must be told."""
    first = request.methods[0]
    reference = _reference(request, folder, ratio, seed)
    if request.told(method) and ratio is None and method != first:
        if reference is None:
            raise ConfigError(f"{first!r} failed, so {method!r} cannot be cut to its {find_cost(request.cost).label}")
        ratio = reference[f"{request.cost}_ratio"]
    if ratio is not None:
        overrides = [*overrides, f"{request.ratio_setting}={ratio}"]
    budget = request.budget
    if budget is None and method != first:
        if reference is None:
            raise ConfigError(f"{first!r} failed, so nobody knows what {method!r} may spend; give --budget")
        budget = reference["dense_epochs"]["prune"] + reference["dense_epochs"]["finetune"]
    if budget is not None:
        overrides = [*overrides, f"budget={budget}"]
    swept = request.sweep[0] if request.sweep and request.told(first) else None
    return computing_like(load_recipe(request.recipe, overrides), RunFolder(_place(folder, 0, _label(first, swept))))


def _reference(request: ComparisonRequest, folder: Path, ratio: float | None, seed: int) -> dict[str, Any] | None:
    """What the first method came to, at the same ratio if it was told one; None if it failed."""
    first = request.methods[0]
    swept = (ratio or request.sweep[0]) if request.sweep and request.told(first) else None
    return RunFolder(_place(folder, seed, _label(first, swept))).read_summary()


def _label(method: str, ratio: float | None) -> str:
    return method if ratio is None else f"{method} {ratio:g}x"


def _place(folder: Path, seed: int, label: str) -> Path:
    return folder / f"seed{seed}" / label.replace(" ", "-")
