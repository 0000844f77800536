"""Members on one log: who leads, what is obeyed, what survives a leader, a restart, the loss of a majority."""

from __future__ import annotations

import asyncio
import errno
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pytest

from peer.consensus.events import Persist, StoreSnapshot
from peer.consensus.records import Entry
from peer.errors import BadCommand, DiskFull, DiskRefuses, MeshError, NotLeader, StateUnusable
from peer.member.epoch_recovery import kept_peers
from peer.member.mesh_member import MeshMember
from peer.replication.log_keeping import LogKeeping, state_of
from peer.replication.replica import Replica
from peer.state.generated.commands import Member, MemberJoined, RoleGiven
from peer.state.member_commands import encode_command
from peer.state.mesh_state import MeshState
from peer.storage.log_folder import Folder
from peer.wire.generated.requests import JOIN, LEADER, LEAVING, PROPOSE, JoinRequest, ProposeRequest
from tests.patience import WITHIN_S
from tests.peer.town import MODEL, NAME, QUICK, Town, town

HOUR_NS: Final = 3600 * 10**9


def say(mesh: MeshMember, text: str) -> asyncio.Future[tuple[int, int]]:
    """Something that shows in the state."""
    assert mesh.view.replica is not None
    return mesh.view.replica.propose(encode_command(RoleGiven(text, "viewer")))


def agree(here: Town) -> bool:
    states = [mesh.view.state for mesh in here.members.values()]
    return all(state == states[0] for state in states)


async def three(here: Town, folder: Path | None = None) -> list[MeshMember]:
    """Three members that all vote."""
    meshes = [await here.found("a", folder), await here.join("b", folder), await here.join("c", folder)]
    await here.until(lambda: all(here.voters(mesh) == ("a", "b", "c") for mesh in meshes))
    return meshes


async def test_members_build_the_same_state_and_say_who_leads() -> None:
    async with town() as here:
        a, b = await here.found("a"), await here.join("b")
        asker = await here.join("q", compute=False)
        await here.until(lambda: agree(here) and set(a.view.state.members) == {"a", "b", "q"})
        assert here.voters(a) == ("a",), "two voters are worse than one"
        assert b.view.leader == "a"
        await asker.links.dialer.dial("b")
        assert (await asker.links.call("b", LEADER, None)).leader == "a"
        assert not a.view.state.members["q"].headless
        with pytest.raises(NotLeader) as refused:
            await asker.links.call("b", LEAVING, None)
        assert refused.value.leader == "a"
        await asker.view.ask_leader(LEAVING, None)
        assert a.view.state.members["q"].status == "leaving"


async def test_a_lost_leader_is_followed_by_another_that_knows_all_that_was_committed() -> None:
    async with town() as here:
        _, b, c = await three(here)
        assert here.leader() is here.members["a"]
        await say(here.members["a"], "committed")
        here.kill("a")
        waiting = asyncio.ensure_future(b.view.ask_leader(PROPOSE, ProposeRequest("")))
        await here.until(lambda: here.leader() in (b, c))
        with pytest.raises(MeshError, match="JSON"):  # it was asked of the new leader
            await waiting
        assert "committed" in b.view.state.people.roles
        await here.until(lambda: b.view.state == c.view.state and "a" not in b.view.state.members)
        d = await here.join("d")
        await here.until(lambda: d.view.state == b.view.state)


async def test_a_defect_of_who_listens_to_the_log_does_not_stop_the_log() -> None:
    async with town() as here:
        a = await here.found("a")
        found: list[object] = []
        asyncio.get_running_loop().set_exception_handler(
            lambda _, context: found.append(context.get("exception"))
        )

        def defective() -> None:
            raise KeyError("a listener's defect")

        a.view.subscribe(defective)
        await say(a, "applied")
        await say(a, "applied after that")
        assert {"applied", "applied after that"} <= a.view.state.people.roles.keys()
        assert {type(error) for error in found} == {KeyError}


async def test_a_frozen_leader_that_wakes_up_gives_no_order_that_anybody_obeys() -> None:
    async with town() as here:
        a, b, c = await three(here)
        here.freeze("a")
        void = say(a, "an old order")
        await here.until(lambda: here.leader() in (b, c))
        leader = here.leader()
        assert leader is not None
        term, index = await say(leader, "a new order")
        assert not void.done() or void.exception() is not None
        here.thaw("a")
        await here.until(lambda: a.view.leader == leader.me and agree(here))
        with pytest.raises(NotLeader):
            await void
        assert a.leadership.current is None
        assert "an old order" not in a.view.state.people.roles
        assert "a new order" in a.view.state.people.roles
        for mesh in (a, b, c):
            assert mesh.view.replica is not None
            assert mesh.view.replica.order >= (term, index)


async def test_orders_below_the_highest_that_was_obeyed_are_refused() -> None:
    async with town() as here:
        a = await here.found("a")
        replica = a.view.replica
        assert replica is not None
        before, (term, index) = a.view.state, replica.order
        for old in ((term, index), (term, index - 1), (term - 1, index + 1)):
            replica._apply((Entry(old[1], old[0], "command", encode_command(RoleGiven("old", "viewer"))),))
        assert (a.view.state, replica.order) == (before, (term, index))


async def test_a_minority_changes_nothing_and_says_so() -> None:
    async with town() as here:
        a, _, _ = await three(here)
        here.watch(a)
        for name in ("b", "c"):
            here.kill(name)
        await here.until(lambda: a.away is not None and a.away.stuck)
        assert a.leadership.current is None
        assert "1 of 3 voters are here, 2 are needed" in str(a.away)
        with pytest.raises(NotLeader, match="nobody coordinates"):
            await a.view.ask_leader(LEAVING, None, 0.05)
        assert a.view.state.members["a"].status != "leaving"


async def test_a_polite_leader_hands_over_and_the_mesh_goes_on() -> None:
    async with town() as here:
        a, b = await here.found("a"), await here.join("b")
        await here.until(lambda: agree(here))
        await a.leave()
        del here.members["a"]
        await here.until(lambda: b.leadership.current is not None and set(b.view.state.members) == {"b"})
        await here.until(lambda: here.voters(b) == ("b",))
        assert b.view.state.model == MODEL
        assert not b.ended.is_set()


async def test_nobody_left_who_could_keep_it_ends_the_mesh() -> None:
    async with town() as here:
        a, asker = await here.found("a"), await here.join("q", compute=False)
        here.watch(asker)
        await here.until(lambda: agree(here))
        await a.leave()
        del here.members["a"]
        await here.until(asker.ended.is_set)
        assert "closed the mesh" in asker.why_ended


async def test_another_life_of_a_peer_learns_anew() -> None:
    async with town() as here:
        a, b = await here.found("a"), await here.join("b")
        old = b.view.state.members["b"].incarnation
        here.kill("b")
        await b.close("gone")
        again = await here.join("b")
        assert a.view.state.members["b"].incarnation > old
        assert again.view.state.model == MODEL
        with pytest.raises(BadCommand, match="epoch"):
            a.leadership.current.answer(
                "b", JOIN, JoinRequest("b", True, 3, old, fresh=True, epoch=9, headless=True, durable=False)
            )


@pytest.mark.parametrize("keeps", [True, False])
async def test_another_life_under_a_clock_that_was_set_back_is_let_in(
    keeps: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with town() as here:
        a, b = await here.found("a"), await here.join("b", tmp_path / "once" if keeps else None)
        old = b.view.state.members["b"].incarnation
        await here.kill("b").close("killed")
        earlier = SimpleNamespace(time_ns=lambda: time.time_ns() - 6 * HOUR_NS)
        monkeypatch.setattr("peer.storage.log_store.time", earlier)
        again = await here.join("b", tmp_path / "anew" if keeps else None)
        assert a.view.state.members["b"].incarnation == old + 1
        await say(a, "heard")
        await here.until(lambda: "heard" in again.view.state.people.roles)


# --- what is kept ----------------------------------------------------------------------------------------------------


async def test_who_votes_alone_goes_on_after_a_restart(tmp_path: Path) -> None:
    async with town() as here:
        a = await here.found("a", tmp_path)
        await say(a, "kept")
        life = a.view.state.members["a"].incarnation
        here.kill("a")
        await a.close("killed")
    async with town() as here:
        again = here.add("a", tmp_path)
        assert again.log is not None
        again.take_part(again.log.open(again.log.epochs()[-1]))
        assert await again.leadership.until_leads(60)
        assert "kept" in again.view.state.people.roles
        assert again.view.replica is not None
        assert again.view.replica.begin.incarnation == life


async def test_a_voter_that_is_killed_comes_back_as_what_it_was(tmp_path: Path) -> None:
    async with town() as here:
        a, _, _ = await three(here, tmp_path)
        b = here.kill("b")
        await b.close("killed")
        await say(a, "meanwhile")
        again = await here.join("b", tmp_path)
        assert again.view.replica is not None
        assert b.view.replica is not None
        assert again.view.replica.begin.incarnation == b.view.replica.begin.incarnation
        assert "meanwhile" in again.view.state.people.roles
        assert "b" in here.voters(a)


async def test_what_is_left_of_a_mesh_goes_on_in_another_epoch(tmp_path: Path) -> None:
    async with town() as here:
        a, _, c = await three(here, tmp_path)
        await say(a, "before")
        await here.until(lambda: agree(here))
        here.freeze("c")
        for name in ("a", "b"):
            await here.kill(name).close("killed")
        here.thaw("c")
        await here.until(lambda: c.view.leader is None)
        epoch = await c.recover(lambda: here.enter(c))
        assert epoch == 2
        assert "before" in c.view.state.people.roles
        await here.until(lambda: c.leadership.current is not None)
        back = await here.join("a", tmp_path)
        assert back.view.replica is not None
        assert back.view.replica.epoch == 2
        await here.until(lambda: agree(here))
        with pytest.raises(BadCommand, match="somebody coordinates"):
            await c.recover(lambda: here.enter(c))


async def test_a_log_that_is_not_in_use_is_begun_anew(tmp_path: Path) -> None:
    folder = tmp_path / "peers" / NAME
    folder.mkdir(parents=True)
    (folder / "0.json").write_text("{}")
    kept = LogKeeping(NAME, "a", folder / "0")
    kept.found(MeshState(), 4)
    assert kept.store is not None
    entry = Entry(2, 1, "command", encode_command(MemberJoined("a", "a", True)))
    kept.store.persist(Persist(3, 1, "", (entry,), 0))
    kept.close()
    (found,) = kept_peers(tmp_path, "")
    assert (found.mesh, found.epoch) == (NAME, 4)
    begin = kept.open(4)
    assert set(state_of(begin.snapshot, begin.entries).members) == {"a"}
    kept.close()
    assert kept_peers(tmp_path, "another") == []


@dataclass
class FillingDisk:
    """That of c: whether it is full now, and how often it was looked whether it still is."""

    full: bool = False
    looks: int = 0


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FillingDisk:
    monkeypatch.setattr("peer.replication.replica.RETRY_S", 0.02)
    monkeypatch.setattr("peer.member.mesh_member.GIVE_UP_DISK_S", 0.1)
    monkeypatch.setattr("peer.member.mesh_member.KEEP_AGAIN_S", 0.1)
    disk = FillingDisk()

    def refusing(real: Callable[..., Any], of: Callable[[Any], str]) -> Callable[..., Any]:
        def call(first: Any, *rest: Any) -> Any:
            if disk.full and of(first).startswith("c-log"):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return real(first, *rest)

        return call

    for name in ("append", "draft"):
        monkeypatch.setattr(Folder, name, refusing(getattr(Folder, name), lambda folder: folder.path.name))
    can_write = LogKeeping.can_write

    def looked(kept: LogKeeping) -> bool:
        disk.looks += 1
        return not disk.full and can_write(kept)

    monkeypatch.setattr(LogKeeping, "can_write", looked)
    return disk


async def test_a_voter_whose_disk_stays_full_goes_on_in_memory_and_keeps_its_log_again(
    tmp_path: Path, disk: FillingDisk
) -> None:
    told: list[str] = []
    async with town() as here:
        a, _, c = await three(here, tmp_path)
        c.report = lambda phase: told.append(phase.what)
        here.watch(c)
        kept, life = c.log, c.view.state.members["c"].incarnation
        disk.full = True
        await say(a, "on a full disk")

        def c_in(mesh: MeshMember) -> Member | None:
            return mesh.view.state.members.get("c")

        await here.until(lambda: (known := c_in(a)) is not None and known.incarnation > life)
        await here.until(lambda: "on a full disk" in c.view.state.people.roles)
        assert not c.log.durable
        assert "No space left" in told[0]
        assert "goes on without it" in told[0]
        disk.full = False
        await here.until(lambda: (known := c_in(a)) is not None and known.durable and c.log is kept)
        assert told[1:] == ["the log of the mesh is kept here again"]
        await here.until(lambda: here.voters(a) == ("a", "b", "c"))
        await here.kill("c").close("killed")
        again = LogKeeping(NAME, "c", tmp_path / "c")
        begin = again.open(1)
        assert "on a full disk" in state_of(begin.snapshot, begin.entries).people.roles
        again.close()


async def test_a_voter_in_memory_is_not_reborn_while_its_vote_is_needed(
    tmp_path: Path, disk: FillingDisk
) -> None:
    async with town() as here:
        a, b, c = await three(here, tmp_path)
        here.watch(c)
        kept, life = c.log, c.view.state.members["c"].incarnation
        disk.full = True
        await say(a, "on a full disk")

        def votes_in_memory() -> bool:
            replica = b.view.replica
            known = replica.config.by_id.get("c") if replica is not None else None
            return known is not None and known.voter and known.incarnation > life

        await here.until(votes_in_memory)
        assert here.leader() is a
        here.kill("a")
        disk.full = False  # b and c are a majority together only
        await here.until(lambda: b.view.leader in ("b", "c"))
        await say(here.members[b.view.leader or ""], "without a")
        looks = disk.looks
        await here.until(lambda: disk.looks > looks + 2)
        assert c.log is not kept
        assert b.view.leader in ("b", "c")


class Disk:
    """A store that takes the first writes, and then raises `error` for so many."""

    def __init__(self, error: Exception, fails: float) -> None:
        self.left = 2
        self.error = error
        self.fails = fails

    def persist(self, effect: Persist) -> None:
        self.left -= 1
        if self.left < 0 and self.fails > 0:
            self.fails -= 1
            raise self.error

    def store_snapshot(self, effect: StoreSnapshot) -> None:
        return


class Told:
    """What a replica tells its owner."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.new = asyncio.Event()

    async def until(self, line: str) -> None:
        async with asyncio.timeout(WITHIN_S):
            while line not in self.lines:
                self.new.clear()
                await self.new.wait()

    def say(self, line: str) -> None:
        self.lines.append(line)
        self.new.set()

    def log_changed(self, entries: tuple[Entry, ...]) -> None:
        return

    def role_changed(self) -> None:
        self.say("leads" if self.replica.ready else self.replica.role)

    def log_refused(self, why: str) -> None:
        self.say(f"refused: {why}")

    def log_lost(self, why: str) -> None:
        self.say(f"lost: {why}")

    def begin(self, disk: Disk) -> Replica:
        begin = LogKeeping(NAME, "a", None).found(MeshState())
        self.replica = Replica(begin, disk, lambda *_: None, self, QUICK)
        self.replica.start()
        return self.replica


def role(name: str) -> bytes:
    return encode_command(RoleGiven(name, "viewer"))


async def test_a_log_that_cannot_be_kept_is_silent_from_then_on() -> None:
    told = Told()
    replica = told.begin(Disk(StateUnusable("the store is gone"), 10**9))
    await told.until("leader")
    proposals = [replica.propose(role("x")) for _ in range(5)]
    results = await asyncio.gather(*proposals, return_exceptions=True)
    assert isinstance(results[-1], NotLeader)
    await told.until("lost: the store is gone")
    with pytest.raises(NotLeader):
        await replica.propose(role("y"))
    await replica.close()


@pytest.mark.parametrize("error", [DiskFull("the disk is full"), DiskRefuses("it cannot be written now")])
async def test_a_leader_whose_disk_refuses_for_a_while_leads_on_when_it_is_over(
    error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.replication.replica.RETRY_S", 0.02)
    told = Told()
    replica = told.begin(Disk(error, 3))
    await told.until("leader")
    await asyncio.gather(*(replica.propose(role(str(n))) for n in range(3)), return_exceptions=True)
    await told.until(f"refused: {error}")
    assert told.lines[told.lines.index(f"refused: {error}") - 1] == "follower", "nobody is led meanwhile"
    await told.until("refused: ")
    assert told.lines.count(f"refused: {error}") == 1, "said once"
    await replica.propose(role("after"))
    assert "after" in replica.state.people.roles
    assert replica.ready
    await replica.close()


async def test_a_peer_whose_disk_refuses_takes_no_word_and_promises_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = Told()
    replica = told.begin(Disk(DiskFull("the disk is full"), 10**9))
    await told.until("leader")
    await asyncio.gather(*(replica.propose(role(str(n))) for n in range(3)), return_exceptions=True)
    await told.until("refused: the disk is full")
    for ask in (replica.propose(role("x")), replica.read()):
        with pytest.raises(NotLeader, match="the disk is full"):
            await ask
    async with asyncio.timeout(WITHIN_S):
        await replica.close()  # though the disk is full still


async def test_others_lead_while_the_leaders_disk_is_full_and_it_follows_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("peer.replication.replica.RETRY_S", 0.02)
    async with town() as here:
        a, b, c = await three(here, tmp_path)
        refusing = True

        def persist(*_: object) -> None:
            if refusing:
                raise DiskFull("the disk is full")
            real(*_)

        assert a.log.store is not None
        real = a.log.store.persist
        monkeypatch.setattr(a.log.store, "persist", persist)
        with pytest.raises(NotLeader):
            await say(a, "refused")
        await here.until(lambda: here.leader() in (b, c))
        leader = here.leader()
        assert leader is not None
        await say(leader, "meanwhile")
        refusing = False
        await here.until(lambda: "meanwhile" in a.view.state.people.roles and agree(here))
