"""The ``rbprune`` command: verbs, errors for people, exit codes."""

from __future__ import annotations

import json
import os
import signal
import sys

from cyclopts import App, CycloptsError
from rich.console import Console

from rbprune.errors import RbpruneError
from rbprune.utils.interrupt import Interrupted, SignalsStop, number_of
from rbprune.utils.memory import keep_freed_memory
from rbprune.utils.names import printable

app = App(name="rbprune", help="Make trained convolutional networks smaller and faster by Recursive Bayesian Pruning.")
VERBS = {
    "demo": "Train, prune and fine-tune a small network on data that comes with the package (about a minute).",
    "train": "Train the dense network of a recipe; its weights end in OUT/model.safetensors.",
    "prune": "Prune a trained network and fine-tune it.",
    "resume": "Go on with an interrupted run from its last checkpoint; the end is the same as without it.",
    "frontier": "Prune a network further and further, each time from the last result, and draw error against cost.",
    "pick": "Show the smallest network of a frontier that keeps the validation error, and copy it if asked to.",
    "compare": "Prune one network by several methods under the same budget, and print the table.",
    "reproduce": "Make a table or figure of the paper anew and print it beside the paper's own figures.",
    "report": "Write the page of a run anew, or one page that shows several runs side by side.",
    "watch": "Follow a run in the terminal while it goes, until it ends; or say where it stands.",
    "inspect": "Show which channels of a network can be removed, together with what, and what they cost.",
    "count": "Count multiply-accumulates and weights, of the whole network or with only some channels kept.",
    "calibrate": "Measure what the layers of a network take on this device at many widths: latency as a cost.",
    "time": "Time a network against its pruned self, in turns in one run: milliseconds, and their ratio.",
    "export": "Write a pruned network as ONNX, pt2, OpenVINO or safetensors, checked against PyTorch.",
    "evaluate": "Count the error, MACs and parameters of a pruned network, and compare them with what its folder says.",
    "shard": 'Pack a folder of images into shuffled WebDataset shards, for data.name = "shards".',
}
"""Each verb with a line for the overview. The function of that name in the module of that name is imported when it is
called: PyTorch takes seconds."""
for verb, line in VERBS.items():
    app.command(f"rbprune.cli.{verb}:{verb}", help=line)


def main(arguments: list[str] | None = None) -> None:
    """Entry point; the exit code is 0 only on success."""
    keep_freed_memory()
    words = sys.argv[1:] if arguments is None else arguments
    as_json = "--json" in words
    try:
        with SignalsStop():
            app(words, exit_on_error=not as_json, print_error=not as_json)
    except KeyboardInterrupt as stop:
        _complain_of_stop("interrupted; give the same command again", stop, as_json)
        sys.exit(128 + number_of(stop))
    except Interrupted as stop:
        _complain_of_stop(str(stop), stop, as_json)
        sys.exit(stop.exit_code)
    except BrokenPipeError:  # whoever read the output, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(128 + signal.SIGPIPE)
    except (RbpruneError, OSError, CycloptsError) as error:
        _complain(f"error: {error}", error, as_json)
        sys.exit(1)


def _complain_of_stop(text: str, stop: BaseException, as_json: bool) -> None:
    """Of several processes one says that they were asked to stop."""
    from rbprune.utils.processes import is_main

    if is_main():
        _complain(text, stop, as_json)


def _complain(text: str, error: BaseException, as_json: bool) -> None:
    """Say it to people, and to programs that asked for JSON as ``{"error": {"kind": ..., "message": ...}}``."""
    Console(stderr=True).print(printable(text, keep="\n"), markup=False, highlight=False, soft_wrap=True)
    if as_json:
        print(json.dumps({"error": {"kind": type(error).__name__, "message": str(error)}}))
