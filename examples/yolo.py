"""Prune an Ultralytics YOLO network: train, prune to half of its MACs, fine-tune by Ultralytics' own trainer, export.

The data is drawn here: rectangles and discs on noise, in Ultralytics' layout. Nothing is downloaded, and everything is
written to a temporary folder.

python examples/yolo.py                             (under half a minute: too short to learn anything)
python examples/yolo.py --images 512 --epochs 40 --finetune 15 --method ibp          (a quarter of an hour)
"""

import argparse
import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image, ImageDraw

CLASSES = ("rectangle", "disc")


def polygon(kind: int, x: float, y: float, w: float, h: float) -> list[tuple[float, float]]:
    """The outline of a shape around (x, y), in parts of the image."""
    if kind == 0:
        return [(x - w / 2, y - h / 2), (x + w / 2, y - h / 2), (x + w / 2, y + h / 2), (x - w / 2, y + h / 2)]
    return [(x + w / 2 * np.cos(a), y + h / 2 * np.sin(a)) for a in np.linspace(0, 2 * np.pi, 20, endpoint=False)]


def draw(folder: Path, images: int, size: int, *, segment: bool, seed: int = 0) -> Path:
    """Write images and labels for training and validation; returns the ``data.yaml`` that names them."""
    random = np.random.default_rng(seed)
    for part, count in (("train", images), ("val", max(16, images // 4))):
        for kind in ("images", "labels"):
            (folder / kind / part).mkdir(parents=True)
        for number in range(count):
            image = Image.fromarray(random.integers(0, 90, (size, size, 3), dtype=np.uint8))
            pen, lines = ImageDraw.Draw(image), []
            for _ in range(random.integers(1, 4)):
                kind, (w, h) = int(random.integers(2)), random.uniform(0.2, 0.5, 2)
                x, y = random.uniform(w / 2, 1 - w / 2), random.uniform(h / 2, 1 - h / 2)
                corners = polygon(kind, x, y, w, h)
                colour = tuple(int(c) for c in random.integers(110, 256, 3))
                pen.polygon([(size * a, size * b) for a, b in corners], fill=colour)
                told = [c for corner in corners for c in corner] if segment else [x, y, w, h]
                lines.append(" ".join([str(kind), *(f"{value:.5f}" for value in told)]))
            image.save(folder / "images" / part / f"{number}.png")
            (folder / "labels" / part / f"{number}.txt").write_text("\n".join(lines))
    names = "".join(f"  {number}: {name}\n" for number, name in enumerate(CLASSES))
    (folder / "data.yaml").write_text(f"path: {folder}\ntrain: images/train\nval: images/val\nnames:\n{names}")
    return folder / "data.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", default="yolov8n", help="yolov8n, yolo11n, yolov8n-seg, yolo11n-seg, ...")
    parser.add_argument("--images", type=int, default=16)
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2, help="of the dense network")
    parser.add_argument("--finetune", type=int, default=1, help="epochs of the pruned network")
    parser.add_argument("--ratio", type=float, default=2.0, help="how many times fewer MACs")
    parser.add_argument("--method", default="uniform", help="ibp judges by the loss, and takes 200 steps for it")
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for variable in ("YOLO_CONFIG_DIR", "MPLCONFIGDIR"):  # where Ultralytics and matplotlib keep their settings
            os.environ.setdefault(variable, folder)
        run(chosen, Path(folder))


def run(chosen: argparse.Namespace, folder: Path) -> None:
    from rbprune.integrations.ultralytics import import_ultralytics, prune_yolo, pruned_trainer

    YOLO = import_ultralytics().YOLO  # noqa: N806  or: from ultralytics import YOLO
    data = draw(folder / "shapes", chosen.images, chosen.size, segment=chosen.network.endswith("-seg"))
    common: dict[str, Any] = {
        "data": str(data), "imgsz": chosen.size, "batch": 16, "project": str(folder), "seed": chosen.seed,
        "plots": False, "amp": False, "verbose": False, "workers": 0,
    }  # fmt: skip

    yolo = YOLO(f"{chosen.network}.yaml")
    yolo.train(epochs=chosen.epochs, close_mosaic=chosen.epochs // 4, name="dense", **common)

    result = prune_yolo(yolo, macs_ratio=chosen.ratio, method=chosen.method, batch=16, seed=chosen.seed)
    print(result)

    yolo.train(trainer=pruned_trainer(yolo), epochs=chosen.finetune, mosaic=0.0, name="pruned", **common)
    verdict = result.judge()  # of the fine-tuned network
    print(f"{verdict.level}: {verdict.text}")

    yolo.save(folder / "pruned.pt")  # Ultralytics' own file: YOLO("pruned.pt") reads it, with or without rbprune
    again = YOLO(folder / "pruned.pt")
    print(f"{again.export(format='onnx', imgsz=chosen.size, simplify=False)} is written")


if __name__ == "__main__":
    main()
