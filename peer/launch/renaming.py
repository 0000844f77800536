"""How `shoal rename` reaches a `shoal serve` or `shoal join` of this machine that runs.

Edge. Each of them has a number in `running/MESH` of its state folder, whose file `N.lock` it holds; `N.name` is what it
is called, `N.lasts` until when another name would hold, `N.rename` what it shall be called, which it takes away when it
did so, and `N.refused` why it did not.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from peer.errors import BadCommand, CannotServe, PeerError
from peer.storage.peer_keys import KeptIdentity, private_folder
from planner.model.durable_files import open_locked

RUNNING: Final = "running"  # in a state folder
LOOK_S: Final = 0.5
TAKEN_S: Final = 20.0  # for a process to have its mesh call it so
MOST_BYTES: Final = 1024
MOST: Final = 256  # processes of one machine in one mesh


ALWAYS: Final = "also when it starts again"
BY_OPTION: Final = "until it ends: its command line gives it a name by --name"
BY_MESH: Final = "until it ends, and its mesh with it, which is not kept (--keep)"


@dataclass(frozen=True, slots=True)
class Renamed:
    """What a process was called, and until when its new name holds, in words."""

    before: str
    lasts: str


@dataclass(frozen=True, slots=True)
class Naming:
    """What a process is called: by `--name`, else as it was renamed before, else by this machine."""

    name: str
    lasts: str  # until when another name would hold
    kept: KeptIdentity | None

    async def rename(self, name: str, in_mesh: Callable[[str], Awaitable[None]]) -> None:
        """Keeps `name` for later starts, and has the mesh say it. Raises StateUnusable, and as `in_mesh`: nothing is
        changed then.
        """
        before = self.kept.name if self.kept is not None else ""
        if self.kept is not None:
            self.kept.keep_name(name)
        try:
            await in_mesh(name)
        except BaseException:
            if self.kept is not None:
                self.kept.keep_name(before)
            raise


def naming(option: str | None, machine: str, kept: KeptIdentity | None) -> Naming:
    """`option` is what the command line says, `machine` the name without that. Raises StateUnusable."""
    renamed = kept.name if kept is not None and option is None else ""
    lasts = BY_MESH if kept is None else BY_OPTION if option is not None else ALWAYS
    return Naming(option or renamed or machine, lasts, kept)


@asynccontextmanager
async def renamable(
    state: Path, mesh: str, called: Naming, in_mesh: Callable[[str], Awaitable[None]]
) -> AsyncIterator[None]:
    """While the block runs, `shoal rename` with the same state folder has it take another name, which `in_mesh` tells
    the mesh. Raises StateUnusable.
    """
    folder = state / RUNNING / mesh
    private_folder(folder)
    found = _first_free(folder)
    if found is None:
        yield  # so many run that this one is not found by its name
        return
    own, lock = found
    for left in (".rename", ".refused"):
        own.with_suffix(left).unlink(missing_ok=True)
    _write(own.with_suffix(".lasts"), called.lasts)
    _write(own.with_suffix(".name"), called.name)
    watching = asyncio.create_task(_watch(own, called, in_mesh), name="watch for another name")
    try:
        yield
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
        own.with_suffix(".name").unlink(missing_ok=True)
        os.close(lock)


async def ask_to_rename(
    state: Path, mesh: str, name: str, called: str | None, *, within_s: float = TAKEN_S
) -> Renamed:
    """Has the process of this machine in that mesh, of several the one that is `called` so, take `name`. Raises
    BadCommand where it cannot be told which, or refuses, and CannotServe where it does not answer.
    """
    running = _running(state / RUNNING / mesh)
    chosen = [own for own, its in running.items() if called in (None, its)]
    if not running:
        raise BadCommand(
            f"no shoal serve or join runs in that mesh from {state}: give its folder with --state"
        )
    if len(chosen) != 1:
        names = ", ".join(sorted(running.values()))
        raise BadCommand(f"say which one of this machine by --from NAME: {names}")
    own = chosen[0]
    wanted, refused = own.with_suffix(".rename"), own.with_suffix(".refused")
    refused.unlink(missing_ok=True)
    _write(wanted, name)
    try:
        async with asyncio.timeout(within_s):
            while wanted.exists():  # noqa: ASYNC110 - another process takes it away
                await asyncio.sleep(LOOK_S / 5)
    except TimeoutError:
        wanted.unlink(missing_ok=True)
        raise CannotServe(f"{running[own]} did not take the name within {within_s:.0f} s") from None
    if why := _read(refused):
        raise BadCommand(why)
    return Renamed(running[own], _read(own.with_suffix(".lasts")) or BY_MESH)


async def _watch(own: Path, called: Naming, in_mesh: Callable[[str], Awaitable[None]]) -> None:
    wanted = own.with_suffix(".rename")
    while True:
        await asyncio.sleep(LOOK_S)
        name = _read(wanted)
        if name is None:
            continue
        try:
            await called.rename(name, in_mesh)
        except (PeerError, TimeoutError) as error:
            _write(own.with_suffix(".refused"), str(error) or type(error).__name__)
        else:
            _write(own.with_suffix(".name"), name)
        wanted.unlink(missing_ok=True)


def _first_free(folder: Path) -> tuple[Path, int] | None:
    for number in range(MOST):
        lock = open_locked(folder / f"{number}.lock")
        if lock is not None:
            return folder / str(number), lock
    return None


def _running(folder: Path) -> dict[Path, str]:
    """What each process that runs is called."""
    found = {}
    for path in sorted(folder.glob("*.name")):
        lock = open_locked(path.with_suffix(".lock"))
        if lock is not None:
            os.close(lock)  # of one that was killed
        elif (name := _read(path)) is not None:
            found[path.with_suffix("")] = name
    return found


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(f"{path.suffix}.new")
    with suppress(OSError):  # a disk that is full: whoever asks hears that nothing came of it
        draft.write_text(text, encoding="utf-8")
        os.replace(draft, path)


def _read(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file.read(MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return None
