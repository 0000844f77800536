"""The caches of fronts of prompts, beside those of sessions: copied from a session that computed one, into others.

Edge, on the worker of one runtime (peer.session.prefix_cache decides what is kept).
"""

from __future__ import annotations

import logging
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from peer.runtime.kv_slots import KvSlots
from peer.runtime.stage_execution import StageExecution
from peer.session.effects import PrefixWork

log = logging.getLogger(__name__)


class KeptFronts:
    """By hash, the key and value arrays of its positions."""

    def __init__(self, execution: StageExecution, slots: KvSlots) -> None:
        self._execution = execution
        self._slots = slots
        self._all: dict[bytes, Mapping[str, npt.NDArray[np.float32]]] = {}
        self.bytes = 0

    def do(self, work: PrefixWork) -> None:
        """What cannot be done is left: whoever needs those positions computes them."""
        try:
            match work.what:
                case "keep":
                    self._keep(work)
                case "share":
                    self._share(work)
                case "drop":
                    self._all.pop(work.digest, None)
        except Exception:
            log.exception("a front was not copied")
        self.bytes = sum(array.nbytes for arrays in self._all.values() for array in arrays.values())

    def _keep(self, work: PrefixWork) -> None:
        row = self._slots.row(work.session)
        if row is not None and self._slots.length(work.session) >= work.count:
            arrays = self._execution.copied(row, work.count, None)
            if arrays is not None:
                self._all[work.digest] = arrays

    def _share(self, work: PrefixWork) -> None:
        arrays = self._all.get(work.digest)
        row = self._slots.admit(work.session) if arrays is not None else None
        if arrays is None or row is None or work.count >= self._slots.context:
            return
        self._execution.ensure(self._slots, row + 1, work.count + 1)
        self._execution.put(row, work.count, arrays)
        self._slots.set_length(work.session, work.count)
