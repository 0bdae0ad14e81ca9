"""The settings of a run: validated, read from TOML and written to it, and the shipped recipes."""
