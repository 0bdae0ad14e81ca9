"""Pruned networks as files for other runtimes: written, checked against the network, and only then given their name."""
