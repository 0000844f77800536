"""Decides when a peer ends that another program started: with that program, however that ended.

Edge. The program keeps the peer's standard input open and writes nothing more to it; it closes when the program is
gone, killed or not. Peers that people start look for their mesh for as long as it takes.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from typing import Final

GOODBYE_S: Final = 20.0  # a polite leave is over by then


def end_with_parent() -> None:
    """From here on the end of standard input is a Ctrl-C; who is not gone by GOODBYE_S after it ends at once."""
    descriptor = sys.stdin.fileno()

    def watch() -> None:
        try:
            while os.read(descriptor, 4096):
                continue
        except OSError:
            pass
        signal.raise_signal(signal.SIGINT)
        threading.Event().wait(GOODBYE_S)
        os._exit(1)

    threading.Thread(target=watch, name="parent", daemon=True).start()
