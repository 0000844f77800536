"""How the process's memory is laid out after weights were loaded: freed pages go back, mapped files are let go,
weights move to huge pages.

A decode step streams every weight once; with 4 KiB pages a seventh of its time goes to address translation.
Linux and glibc only; elsewhere these functions do nothing.
"""

from __future__ import annotations

import ctypes
import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

MADV_DONTNEED: Final = 4
M_TRIM_THRESHOLD: Final = -1
M_MMAP_THRESHOLD: Final = -3
LARGE_BYTES: Final = 16 << 20
TRIM_EVERY_S: Final = 0.02
MADV_COLLAPSE: Final = 25  # Linux 6.1: make one huge page of these pages now, copying them
HUGE_BYTES: Final = 2 << 20  # x86-64, and AArch64 with 4 KiB pages
PAGE_BYTES: Final = 4096  # at least; where pages are larger, nothing smaller is let go

_mapping: Final = threading.Lock()  # held while files are mapped and unmapped for a session, or let go


def keep_no_large_holes() -> None:
    """From now on memory of LARGE_BYTES or more goes back as soon as it is freed.

    glibc raises that limit to 32 MiB as such blocks are freed, and keeps twice as much at the end of its heap. A lower
    one would cost time: at 4 MiB a piece of a prompt takes 9 % longer, as its scratch is mapped anew in each call.
    """
    mallopt = getattr(_c_library(), "mallopt", None)
    if mallopt is not None and sys.platform.startswith("linux"):
        mallopt(M_MMAP_THRESHOLD, LARGE_BYTES)
        mallopt(M_TRIM_THRESHOLD, LARGE_BYTES)


@contextmanager
def giving_back() -> Iterator[None]:
    """Within the block, in which weights are loaded, freed heap pages go back all the time. Otherwise float16 weights,
    which are widened one after the other, leave 59 MiB of a 360M shape as holes until the last one is loaded.

    One block at a time: files are unmapped while a session loads, and whoever lets go of files then must not meet what
    is mapped there next.
    """
    stop = threading.Event()

    def give_back() -> None:
        while not stop.wait(TRIM_EVERY_S):
            give_back_memory()

    thread = threading.Thread(target=give_back, name="shoal-trim", daemon=True)
    with _mapping:
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()


def give_back_memory() -> None:
    """Return freed heap pages to the system."""
    trim = getattr(_c_library(), "malloc_trim", None)
    if trim is not None:
        trim(ctypes.c_size_t(0))


def let_go_of_files(folder: Path) -> int:
    """Take the pages of mapped files of `folder` out of this process; who reads them again gets them from the file.

    Kernels that repack weights keep the originals mapped and do not read them again: an eighth of 4-bit weights are
    scales. Returns the bytes of the mappings.
    """
    library = _c_library()
    if not sys.platform.startswith("linux") or library is None:
        return 0
    found, inside = 0, os.path.realpath(folder) + os.sep
    with _mapping:
        looked = _unchanged_ranges(inside)
        there = _file_ranges(inside)  # what a session that ended unmapped meanwhile may be something else now
        for start, stop in (place for place in looked if place in there):
            if library.madvise(ctypes.c_void_p(start), ctypes.c_size_t(stop - start), MADV_DONTNEED) == 0:
                found += stop - start
    return found


def _file_ranges(inside: str) -> set[tuple[int, int]]:
    """Where files are mapped whose path begins so: quicker than `_unchanged_ranges`, for which pages are counted."""
    found: set[tuple[int, int]] = set()
    with open("/proc/self/maps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            where, *others = line.rstrip("\n").split(maxsplit=5)
            if len(others) == 5 and others[4].startswith(inside):
                start, _, stop = where.partition("-")
                found.add((int(start, 16), int(stop, 16)))
    return found


def _unchanged_ranges(inside: str) -> list[tuple[int, int]]:
    """Where files are mapped whose path begins so, and no page is a changed copy of this process's own."""
    found: list[tuple[int, int]] = []
    place: tuple[int, int] | None = None
    with open("/proc/self/smaps", encoding="utf-8", errors="surrogateescape") as maps:
        for line in maps:
            first, *others = line.rstrip("\n").split(maxsplit=5)
            if not first.endswith(":"):
                start, stop = (int(end, 16) for end in first.split("-"))
                place = (start, stop) if len(others) == 5 and others[4].startswith(inside) else None
            elif first == "Anonymous:" and place is not None and others[0] == "0":
                found.append(place)
    return found


def let_go_of_memory(address: int, size: int) -> None:
    """Give back the whole pages inside [address, address + size) of private memory; they read as zeros from then on."""
    library = _c_library()
    first = -(-address // PAGE_BYTES) * PAGE_BYTES
    stop = (address + size) // PAGE_BYTES * PAGE_BYTES
    if sys.platform.startswith("linux") and library is not None and stop > first:
        library.madvise(ctypes.c_void_p(first), ctypes.c_size_t(stop - first), MADV_DONTNEED)


def use_huge_pages() -> int:
    """Collapse anonymous memory that is resident already, so that nothing grows; returns the bytes that
    moved.
    """
    library = _c_library()
    if not sys.platform.startswith("linux") or library is None:
        return 0
    moved = 0
    resident = (ctypes.c_ubyte * (HUGE_BYTES // PAGE_BYTES))()
    for start, stop in _anonymous_ranges():
        for address in range(-(-start // HUGE_BYTES) * HUGE_BYTES, stop - HUGE_BYTES + 1, HUGE_BYTES):
            where, size = ctypes.c_void_p(address), ctypes.c_size_t(HUGE_BYTES)
            if library.mincore(where, size, resident) or not all(page & 1 for page in resident):
                continue
            if library.madvise(where, size, MADV_COLLAPSE) == 0:
                moved += HUGE_BYTES
    return moved


def _c_library() -> ctypes.CDLL | None:
    try:
        return ctypes.CDLL(None)
    except (OSError, TypeError):
        return None


def _anonymous_ranges() -> list[tuple[int, int]]:
    found = []
    with open("/proc/self/maps", encoding="ascii", errors="replace") as maps:
        for line in maps:
            fields = line.split()
            if fields[1] != "rw-p" or (len(fields) > 5 and fields[5] != "[heap]"):
                continue
            start, _, stop = fields[0].partition("-")
            if int(stop, 16) - int(start, 16) >= HUGE_BYTES:
                found.append((int(start, 16), int(stop, 16)))
    return found
