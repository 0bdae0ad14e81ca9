"""Removing channels physically, and the plan that repeats it."""
