"""rbprune inside the tools people already use."""
