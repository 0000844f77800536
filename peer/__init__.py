"""Decides what one member of the mesh does: frames, sessions, the pipeline, the runtime, the command line."""

from typing import Final

VERSION: Final = "0.1.0"
