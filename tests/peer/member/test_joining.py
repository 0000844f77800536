"""A founder that starts again: alone, beside others, and with a log that is damaged."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

import pytest

from peer.errors import CannotServe
from peer.member.epoch_recovery import kept_peers, recover, requested
from peer.member.joining import _begins, _come_back
from peer.member.mesh_member import MeshMember
from peer.replication.log_keeping import LogKeeping
from peer.state.generated.commands import RoleGiven
from peer.state.member_commands import encode_command
from peer.storage.log_store import LOG
from peer.storage.peer_keys import kept_identity
from tests.peer.town import NAME, Town, options, town


@pytest.fixture(autouse=True)
def _nobody_is_waited_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("peer.member.joining.OTHERS_WAIT_S", 0.3)


async def say(mesh: MeshMember, text: str) -> None:
    """Something that shows in the state."""
    assert mesh.view.replica is not None
    await mesh.view.replica.propose(encode_command(RoleGiven(text, "viewer")))


def flip_last(folder: Path, name: str) -> None:
    """One bit, 40 bytes before the end of the log."""
    file = folder / f"{name}-log-1" / LOG
    data = bytearray(file.read_bytes())
    data[-40] ^= 1
    file.write_bytes(data)


async def started(here: Town, folder: Path, told: list[str]) -> tuple[MeshMember, bool]:
    """The founder a starts again; whether it is among others."""
    mesh = here.add("a", folder)
    mesh.log = LogKeeping(NAME, "a", folder / "a", told.append)
    mesh.report = lambda phase: told.append(phase.what)
    return mesh, not await _begins(mesh) and await _come_back(mesh, options("a"), True)


async def test_a_founder_whose_log_is_damaged_goes_on_with_what_can_be_read(tmp_path: Path) -> None:
    async with town() as here:
        a = await here.found("a", tmp_path)
        for text in ("first", "second", "last"):
            await say(a, text)
        await here.kill("a").close("killed")
    flip_last(tmp_path, "a")
    told: list[str] = []
    async with town() as here:
        mesh, among_others = await started(here, tmp_path, told)
        assert not among_others
        assert mesh.leadership.current is not None
        assert {"first", "second"} <= mesh.view.state.people.roles.keys()
        assert mesh.view.replica is not None
        assert mesh.view.replica.epoch == 2, "no other peer's log of the epoch before is taken for this one"
        await here.join("b")
        await here.kill("a").close("killed")
    assert "log is damaged (record" in told[0]
    assert "a-log-1.aside-1" in told[0]
    async with town() as here:
        mesh, among_others = await started(here, tmp_path, again := [])
        assert not among_others
        assert "first" in mesh.view.state.people.roles
        assert again == []


async def test_a_founder_whose_log_is_damaged_learns_all_from_others(tmp_path: Path) -> None:
    async with town() as here:
        meshes = [
            await here.found("a", tmp_path),
            await here.join("b", tmp_path),
            await here.join("c", tmp_path),
        ]
        await here.until(lambda: all(here.voters(mesh) == ("a", "b", "c") for mesh in meshes))
        await say(meshes[0], "last")
        await here.kill("a").close("killed")
        flip_last(tmp_path, "a")
        await here.until(lambda: here.leader() in meshes[1:])
        mesh, among_others = await started(here, tmp_path, [])
        assert among_others
        assert "last" in mesh.view.state.people.roles
        assert mesh.view.replica is not None
        assert mesh.view.replica.epoch == 1


async def test_a_founder_whose_log_is_damaged_does_not_go_on_without_the_others(tmp_path: Path) -> None:
    async with town() as here:
        meshes = [
            await here.found("a", tmp_path),
            await here.join("b", tmp_path),
            await here.join("c", tmp_path),
        ]
        await here.until(lambda: all(here.voters(mesh) == ("a", "b", "c") for mesh in meshes))
        await say(meshes[0], "first")
        await say(meshes[0], "last")
        for name in ("a", "b", "c"):
            await here.kill(name).close("killed")
    flip_last(tmp_path, "a")
    told: list[str] = []
    async with town() as here:
        for _ in range(2):
            with pytest.raises(CannotServe, match="others keep this mesh as well"):
                await started(here, tmp_path, told)
            await here.kill("a").close("killed")
    assert "log is damaged" in told[0]


async def test_recover_goes_on_from_what_can_be_read(tmp_path: Path) -> None:
    with kept_identity(tmp_path, NAME) as kept:
        peer, folder = kept.identity.id, tmp_path / "peers" / NAME
    async with town() as here:
        a = await here.found(peer, folder)
        await say(a, "first")
        await say(a, "last")
        await here.kill(peer).close("killed")
    (folder / f"{peer}-log-1").rename(folder / "0-log-1")
    flip_last(folder, "0")
    told: list[str] = []
    (found,) = kept_peers(tmp_path, "")
    assert "epoch 2" in await asyncio.to_thread(recover, found, told.append)
    assert "log is damaged" in told[0]
    assert "can be read of" in told[1]
    again = LogKeeping(NAME, peer, folder / "0")
    begin = again.open(2)
    assert begin.snapshot is not None
    assert b'"first"' in begin.snapshot.data
    again.close()


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (OSError(24, "Too many open files"), "this machine refuses .*Too many open files.*: start it again"),
        (MemoryError(), "this machine refuses .*memory.*: start it again"),
        (KeyError("x"), "a defect, please report it"),
    ],
)
async def test_what_a_machine_refuses_for_good_ends_the_peer_and_is_no_defect(
    error: Exception, why: str
) -> None:
    async with town() as here:
        a = await here.found("a")

        async def fails() -> None:
            raise error

        a.start(fails())
        await here.until(a.ended.is_set)
        assert re.search(why, a.why_ended)


async def test_a_folder_that_may_not_be_looked_into_asks_for_no_recovery(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = 0
    (tmp_path / "0-recover").touch()
    real = Path.exists

    def exists(path: Path) -> bool:
        nonlocal looks
        looks += 1
        if looks < 3:
            raise PermissionError(13, "forbidden")
        return real(path)

    async def after(_: float) -> None:
        return

    monkeypatch.setattr(Path, "exists", exists)
    await requested(tmp_path / "0", after)
    assert looks == 3
