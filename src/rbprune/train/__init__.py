"""The training engine: streams of batches, phases, checkpoints, and the runner that ties them together."""
