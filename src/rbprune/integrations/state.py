"""What a checkpoint of somebody else's loop has to hold of pruning, and the pruned network as a folder."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from rbprune.bayes.likelihood import Location
from rbprune.errors import CheckpointError, RbpruneError
from rbprune.integrations.stages import HostedStages
from rbprune.pruner import DenseMeasures
from rbprune.runs.folder import RunFolder
from rbprune.utils.checksums import sha256_file, sums_text
from rbprune.utils.files import write_atomic


def take_state(stages: HostedStages) -> dict[str, Any]:
    """All that is needed to go on from the weights of now, as plain values; a stage in progress begins anew."""
    likelihood, graph = stages.pruner.likelihood, stages.pruner.graph
    errors = likelihood if isinstance(likelihood, Location) and likelihood.is_measured else None
    return {
        "dataset_size": stages.dataset_size,
        "stage": stages.number,
        "sites": {name: dict(left) for name, left in graph.plan().sites.items()},
        "blocks": list(graph.removed_blocks),
        "dense": None if stages.measured is None else [stages.measured.loss, stages.measured.explained],
        "error_sums": None if errors is None else errors.sums.tolist(),
    }


def restore_state(stages: HostedStages, state: dict[str, Any]) -> None:
    """Cut the dense network as ``take_state`` found it; the weights are the loop's to load."""
    graph, likelihood = stages.pruner.graph, stages.pruner.likelihood
    try:
        if state["dense"] is not None:
            stages.measured = DenseMeasures(*state["dense"])
        if isinstance(likelihood, Location) and state["error_sums"] is not None:
            likelihood.sums = torch.tensor(state["error_sums"], dtype=torch.float64)
            likelihood.is_measured = True
        if state["blocks"]:
            graph.remove_blocks(state["blocks"])
        for site, left in state["sites"].items():
            kept = set(left["kept"])
            graph.remove({site: [channel for channel in range(left["channels"]) if channel not in kept]})
        stages.number = int(state["stage"])
    except (AttributeError, KeyError, TypeError, ValueError, IndexError, RbpruneError) as error:
        raise CheckpointError(
            f"what the checkpoint says of the cuts does not fit this {type(stages.model).__name__}: {error}; build the "
            "network as it was before pruning, with the same settings of pruning"
        ) from error


def save_network(stages: HostedStages, folder: str | Path) -> Path:
    """Write weights and plan into a new or empty folder, for ``rbprune.load(folder, FreshModel())``."""
    files = RunFolder(folder)
    files.check_empty("choose another folder")
    files.write_network(stages.model, stages.plan)
    written = (files.weights_file, files.plan_file)
    write_atomic(files.sums_file, sums_text({file.name: sha256_file(file) for file in written}))
    return files.path
