"""What a run tells while it goes: events, the terminal, progress bars, TensorBoard."""
