"""Decides what one member of the mesh does: frames, sessions, the pipeline, the runtime, the command line.

Programs begin with `from peer import Mesh` (peer.api).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from peer.version import VERSION

if TYPE_CHECKING:
    from peer.api import Answer, BlockingMesh, Mesh, Token, Waits


__all__ = ["VERSION", "Answer", "BlockingMesh", "Mesh", "Token", "Waits"]


def __getattr__(name: str) -> Any:
    """What programs use is imported when it is asked for: `shoal --help` does not wait for it."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from peer import api

    return getattr(api, name)
