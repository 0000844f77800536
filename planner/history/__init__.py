"""Decides what is remembered of meshes: one DuckDB file of facts that were measured, never of what was said."""
