"""A folder that can be pushed to the Hugging Face hub as it is, and that ``rbprune.load`` reads."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

from safetensors.torch import save

from rbprune.errors import ConfigError
from rbprune.export.card import model_card
from rbprune.export.config import CONFIG, read_config
from rbprune.export.network import PrunedNetwork
from rbprune.export.signature import Signature
from rbprune.runs.folder import RunFolder
from rbprune.utils.checksums import sha256_file, sums_text
from rbprune.utils.files import write_atomic

CARD = "README.md"
KEPT_OF_SUMMARY = (
    *("method", "seed", "metric", "error_before", "error_after", "val_error_after", "macs_before", "macs_after"),
    *("macs_ratio", "params_before", "params_after", "params_ratio", "dataset_size", "measured_latency"),
)
"""What the folder tells of the run; paths and commands of the machine that made it stay there."""
KEPT_OF_DATA = ("name", "val", "image_size")
LOOK = ("mean", "std", "interpolation", "crop")
"""How images are made inputs; kept where it is not as usual."""


class Bundle:
    """An exported folder of one network; several formats may be written into it, one after the other."""

    def __init__(self, folder: Path, network: PrunedNetwork) -> None:
        self.folder, self.network = folder, network
        self.weights = save(network.stored_tensors())
        self.earlier = self._read_earlier()

    def _read_earlier(self) -> dict[str, Any]:
        """The configuration of an earlier export of the same network into this folder; anything else is refused."""
        folder, files = self.folder, RunFolder(self.folder)
        if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
            return {}
        config = folder / CONFIG
        if not (config.is_file() and files.weights_file.is_file()):
            raise ConfigError(f"{folder} exists and is no exported folder; choose another --out")
        if files.weights_file.read_bytes() != self.weights:
            raise ConfigError(f"{folder} holds the export of another network; choose another --out")
        return read_config(config).model_dump()

    def complete(self, file: str, told: Mapping[str, Any], signature: Signature | None) -> None:
        """Write what belongs beside a file that has just got its name; the card comes last."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = RunFolder(self.folder)
        write_atomic(files.weights_file, self.weights)
        write_atomic(files.plan_file, self.network.plan.to_json())
        weights, plan = files.weights_file.name, files.plan_file.name
        names = dict.fromkeys([weights, plan, *self.earlier.get("files", {}), file])  # the card is for people to change
        kept = [name for name in names if (self.folder / name).is_file()]
        write_atomic(files.sums_file, sums_text({name: sha256_file(self.folder / name) for name in kept}))
        config = self._config(file, told, signature)
        write_atomic(self.folder / CONFIG, json.dumps(config, indent=2) + "\n")
        write_atomic(self.folder / CARD, model_card(config))

    def _config(self, file: str, told: Mapping[str, Any], signature: Signature | None) -> dict[str, Any]:
        network = self.network
        data = {} if network.data is None else network.data.model_dump(include=set(KEPT_OF_DATA))
        data |= {} if network.data is None else network.data.model_dump(include=set(LOOK), exclude_defaults=True)
        names = {
            "inputs": list(signature.inputs) if signature else self.earlier.get("inputs", []),
            "outputs": list(signature.outputs) if signature else self.earlier.get("outputs", []),
            "keywords": list(signature.keywords) if signature else self.earlier.get("keywords", []),
        }
        return {
            "library_name": "rbprune",
            "rbprune_version": metadata.version("rbprune"),
            "license": network.license or self.earlier.get("license"),
            "model": network.name,
            "classes": network.classes,
            "input_shape": None if network.input_shape is None else list(network.input_shape),
            **names,
            "files": {**self.earlier.get("files", {}), file: dict(told)},
            "data": data,
            "summary": {key: network.summary[key] for key in KEPT_OF_SUMMARY if key in network.summary},
        }
