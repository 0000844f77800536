"""Decides which Host and Origin headers a request may carry, and which bytes of a file a Range asks for
(pure).
"""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from signaling.errors import HostRefused, OriginRefused

_RANGE = re.compile(r"bytes=(\d{0,19})-(\d{0,19})")


def is_loopback(host: str) -> bool:
    """Whether a host name or address means this machine."""
    name = host.strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False


def check_host(header: str, bound_to: str, allowed: frozenset[str]) -> None:
    """HostRefused when a server on loopback is asked under a foreign name: a web page may have pointed its
    own name here (DNS rebinding). `allowed` are further names, such as the one of a reverse proxy.
    """
    host = _host_of(header)
    if host in allowed or not is_loopback(bound_to) or is_loopback(host):
        return
    raise HostRefused(
        f"this server answers to localhost, not to {host[:80]!r}: add --allow-host if that is its name"
    )


def check_origin(origin: str | None, host: str, allowed: frozenset[str]) -> None:
    """OriginRefused when a page of another site calls. Programs that are no browsers send no Origin."""
    if origin is None or origin in allowed:
        return
    try:
        parts = urlsplit(origin)
    except ValueError:
        parts = urlsplit("")
    if parts.scheme in ("http", "https") and parts.netloc.lower() == host.lower() and host:
        return
    raise OriginRefused(
        f"pages of {origin[:80]!r} may not use this server: start it with --allow-origin to let them"
    )


def _host_of(header: str) -> str:
    try:
        return urlsplit(f"//{header}").hostname or ""
    except ValueError:
        return ""


class BadRange(Exception):
    """The range lies outside the file (HTTP 416)."""


def parse_range(header: str | None, size: int) -> tuple[int, int] | None:
    """(start, stop) of one byte range, None: send everything, BadRange: outside (RFC 9110 section 14)."""
    match = _RANGE.fullmatch(header.strip()) if header else None
    if match is None or match.groups() == ("", ""):
        return None  # several ranges or another unit: the whole file is a valid answer
    first, last = match.groups()
    if not first:
        tail = min(int(last), size)
        if not tail:
            raise BadRange
        return size - tail, size
    start = int(first)
    stop = min(int(last) + 1, size) if last else size
    if last and int(last) < start:
        return None  # not a range at all
    if start >= size:
        raise BadRange
    return start, stop
