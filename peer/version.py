"""The version of Shoal, which people read and peers tell one another."""

from __future__ import annotations

from typing import Final

VERSION: Final = "0.1.0"
