"""Decides what one member of the mesh does: frames, sessions, the pipeline, the runtime, the command line."""
