"""A run that never happened, with figures as a ResNet or VGG run has them."""

from __future__ import annotations

import math
import random
from pathlib import Path
from typing import Any

from rbprune.logging.events import EventLog

TOML = 'model = "resnet56-cifar"\nmethod = "rrbp"\nseed = 0\n\n[prune]\nepochs = 10  # <at most>\n'


def site_names(sites: int) -> list[str]:
    return [f"layer{1 + index * 3 // sites}.{index % max(9, -(-sites // 3))}.conv1" for index in range(sites)]


def write_run(folder: Path, sites: int = 25, per_stage: int = 1, until: str = "done") -> dict[str, Any]:
    """Write events into ``folder``, up to the first event named ``until``; returns the summary."""
    rng = random.Random(0)
    log = EventLog(folder / "events.jsonl")
    names = site_names(sites)
    widths = {name: 16 * 2 ** (index * 3 // sites) for index, name in enumerate(names)}
    layers = [
        {"name": name, "macs": 4_719_592 // (1 + i % 3), "params": 9 * widths[name] ** 2}
        for i, name in enumerate(names)
    ]
    channels: dict[str, list[int]] = {}
    cost, seconds = 0.0, 0.0
    log.write(
        "start",
        version="0.1.0",
        command=["rbprune", "run", "resnet56-cifar.toml", "--out", str(folder), "--set", "data.root=/my data"],
        config={"seed": 0},
        config_toml=TOML,
        model="resnet56-cifar",
        method="rrbp",
        seed=0,
        dataset_size=48000,
        macs=125_485_706,
        params=853_018,
        sites=widths | {"linear": 10, "conv1": 16},
        stages=[names[i : i + per_stage] for i in range(0, sites, per_stage)],
        layers=layers,
    )
    log.write("dense", error_before=6.61, val_error_before=6.8, loss=0.01, explained=2.2, price=None)

    def epoch(phase: str, stage: int | None, number: int, epochs: int, loss: float, **more: Any) -> None:
        nonlocal cost, seconds
        cost += {"prune": 1.1, "finetune": 0.48}[phase]
        seconds += 61.0
        log.write(
            "epoch",
            phase=phase,
            stage=stage,
            epoch=number,
            epochs=epochs,
            loss=loss,
            lr=0.05,
            dense_epochs=cost,
            seconds=61.0,
            images_per_second=310.0,
            **more,
        )

    groups = [names[i : i + per_stage] for i in range(0, sites, per_stage)]
    for stage, group in enumerate(groups):
        done = (stage + 1) / len(groups)
        for number in (1, 2):
            error = 7 + 6 * done + rng.random()
            undecided = 0.5 / number
            epoch(
                "prune",
                stage,
                number,
                2,
                0.1 + 0.2 * rng.random() + 0.2 * done,
                kl=1.5 * (1 - 0.6 * done) + 0.4 * rng.random(),
                val_error=error,
                undecided=undecided,
            )
        rates = {}
        for name in group:
            kept = max(1, round(widths[name] * rng.uniform(0.2, 0.8)))
            channels[name] = [widths[name], kept]
            rates[name] = [rng.betavariate(0.4, 8) for _ in range(kept)]
            rates[name] += [rng.betavariate(12, 0.6) for _ in range(widths[name] - kept)]
        log.write(
            "stage",
            stage=stage,
            stages=len(groups),
            sites=group,
            channels={name: channels[name] for name in group},
            diagnostic="rate",
            values=rates,
            undecided=dict.fromkeys(group, 0.0 if stage % 4 else 0.06),
            price={name: [0.02, 1.31] for name in group},
            epochs=2,
            settled=bool(stage % 4),
            guarded=group[:1] if stage == 2 else [],
            macs=round(125_485_706 / (1 + 1.1 * done)),
            params=round(853_018 / (1 + done)),
            macs_ratio=1 + 1.1 * done,
            params_ratio=1 + done,
            val_error=8 + 8 * done,
            seconds=122.0,
        )
        if until == "stage":
            return {}
    for number in range(1, 41):
        if until == "finetune" and number == 4:
            return {}
        fading = math.exp(-number / 8)
        epoch(
            "finetune",
            None,
            number,
            40,
            0.08 + 0.3 * fading,
            kl=0.0,
            val_error=6.9 + 6 * fading + 0.2 * rng.random(),
            undecided=None,
        )
    summary: dict[str, Any] = {
        "method": "rrbp",
        "seed": 0,
        "error_before": 6.61,
        "error_after": 6.95,
        "val_error_before": 6.8,
        "val_error_after": 7.02,
        "macs_before": 125_485_706,
        "macs_after": 59_755_098,
        "macs_ratio": 2.1,
        "params_before": 853_018,
        "params_after": 426_509,
        "params_ratio": 2.0,
        "channels": channels,
        "undecided": dict.fromkeys(names, 0.0) | {names[0]: 0.06},
        "dense_epochs": {"pretrain": 0.0, "prune": 2.2 * len(groups), "finetune": 19.2},
        "seconds": seconds,
        "versions": {"python": "3.11.2", "torch": "2.13.0+cpu", "platform": "Linux x86_64, 2 cores"},
        "dataset_size": 48000,
        "measured_latency": {"batch": 1, "dense_ms": 9.1, "pruned_ms": 6.5, "ratio": 1.4, "machine": "cpu, 2 threads"},
        "verdict": {"level": "good", "text": "2.10x fewer MACs and 2.00x fewer parameters, for 0.34 points of error"},
    }
    after = [{**row, "macs": row["macs"] * 45 // 100, "params": row["params"] // 2} for row in layers]
    log.write("done", summary=summary, layers=after)
    return summary
