"""Decides what this machine and its environment give where an option is left out. Imports little: every start waits."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import Final

import psutil

MEMORY_SHARE: Final = 0.5  # of what is free, pledged unless told otherwise: the machine belongs to its owner
LEAST_PLEDGE_BYTES: Final = 512 << 20
NAME_BYTES: Final = 48


def cache_folder() -> Path:
    """Where models live unless --store says otherwise: $XDG_CACHE_HOME/shoal or ~/.cache/shoal."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "shoal"


def state_folder() -> Path:
    """Where this machine's keys live unless --state says otherwise: $XDG_STATE_HOME/shoal or ~/.local/state/shoal."""
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "shoal"


def default_pledge() -> int:
    """Bytes to pledge when nobody said how many: half of what is free now."""
    return max(LEAST_PLEDGE_BYTES, int(psutil.virtual_memory().available * MEMORY_SHARE))


def default_name() -> str:
    """Whose process this is, and where: "ada@laptop"."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError, ImportError):  # a user without an entry, as in some containers
        user = "peer"
    return f"{user}@{socket.gethostname().partition('.')[0] or 'here'}".encode()[:NAME_BYTES].decode(
        "utf-8", "ignore"
    )
