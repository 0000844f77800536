"""Readers of foreign model files; each yields a `SourceModel` for `planner.model.units`."""
