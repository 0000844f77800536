"""Runs of models that are graphs of units: what stages need, make and pass on, what the origin gets. Pure."""
