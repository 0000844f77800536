"""Sessions of onnxruntime that several stages of this process use at once, where their graphs and weights are equal.

Edge. Models that share weights (one offered under two names, or two that have a head in common) name the same blobs in
the same graphs, so each part is loaded once. A session computes for several threads at a time, and keeps nothing of a
call.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from typing import Any
from weakref import WeakValueDictionary


class SharedSessions:
    """Those that are in use; one that nobody uses any more is unloaded."""

    def __init__(self) -> None:
        self._turn = threading.Lock()
        self._used: WeakValueDictionary[bytes, Any] = WeakValueDictionary()

    def __len__(self) -> int:
        return len(self._used)

    def session(self, graph: bytes, settings: object, make: Callable[[], Any]) -> Any:
        """The session of a graph whose weights are named by their hashes, under equal `settings` (by their text), made
        by `make` where there is none.
        """
        key = hashlib.sha256(repr(settings).encode() + b"\0" + graph).digest()
        with self._turn:
            found = self._used.get(key)
            if found is None:
                found = self._used[key] = make()
            return found
