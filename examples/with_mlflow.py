"""Let MLflow listen to a run: a tracker is handed every event. W&B and trackio differ by three names.

python examples/with_mlflow.py      (a few seconds; pip install mlflow-skinny)

In a recipe: runtime.tracker = "examples/with_mlflow.py:make_tracker"
"""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, TensorDataset

import rbprune

import mlflow  # isort: skip

SHOWN = ("loss", "kl", "val_error", "lr", "macs", "params", "macs_ratio", "measured", "forecast")


class MlflowTracker:
    """Settings become parameters, numbers of epochs and stages metrics, the summary a file."""

    def __init__(self, place: str, name: str = "rbprune") -> None:
        os.environ.setdefault("MLFLOW_ALLOW_FILE_STORE", "true")
        mlflow.set_tracking_uri(place)
        mlflow.set_experiment(name)
        self.run, self.step = mlflow.start_run(), 0

    def log(self, event: Mapping[str, Any]) -> None:
        kind = event["event"]
        if kind == "start":
            mlflow.log_params({"model": event["model"], "method": event["method"], "seed": event["seed"]})
        elif kind in ("epoch", "stage"):
            self.step += 1
            prefix = event["phase"] if kind == "epoch" else "stage"
            numbers = {f"{prefix}/{key}": event[key] for key in SHOWN if isinstance(event.get(key), int | float)}
            mlflow.log_metrics(numbers, step=self.step)
        elif kind == "done":
            mlflow.log_dict(event["summary"], "summary.json")

    def close(self) -> None:
        mlflow.end_run()


def make_tracker(folder: Path | None = None) -> MlflowTracker:
    """For a recipe: into the folder of the run, or where MLFLOW_TRACKING_URI says."""
    return MlflowTracker(os.environ.get("MLFLOW_TRACKING_URI", f"file:{folder or '.'}/mlruns"))


def main() -> None:
    torch.manual_seed(0)
    images = torch.randn(256, 1, 28, 28)
    batches = DataLoader(TensorDataset(images, images.flatten(1)[:, :10].argmax(1)), batch_size=64, shuffle=True)
    with tempfile.TemporaryDirectory() as folder:
        tracker = MlflowTracker(f"file:{folder}/mlruns")
        options = {"method": "uniform", "macs_ratio": 2, "options": ["finetune.epochs=2"], "trackers": [tracker]}
        result = rbprune.prune(
            rbprune.models.build("lenet5"), batches, example_inputs=images[:2], val_loader=batches, **options
        )
        tracker.close()
        seen = mlflow.get_run(tracker.run.info.run_id).data
        print(seen.params, {name: round(value, 4) for name, value in seen.metrics.items()})
        assert seen.metrics["stage/macs_ratio"] == result.summary["macs_ratio"]
        assert seen.params["method"] == "uniform"


if __name__ == "__main__":
    main()
