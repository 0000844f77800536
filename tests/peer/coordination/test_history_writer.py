"""What the coordinator notes of its mesh: from states and steps to facts, without a name, without harm to the mesh."""

from __future__ import annotations

import asyncio
import dataclasses
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.coordination import history_writer
from peer.coordination.chronicle import LEAST_TOKENS, MAX_ANSWERS, OVER_S, Chronicle
from peer.coordination.history_writer import open_history
from peer.coordination.plan_forecast import Foresight
from peer.member import history
from peer.session.effects import Ran
from peer.state.generated.commands import (
    LinkFacts,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    ModelChosen,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    Profile,
    UnitsHeld,
)
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState, apply
from peer.transport.listeners import Listeners
from planner.history.facts import (
    Fact,
    LinkMeasured,
    PeerMeasured,
    PlanEvent,
    Recovery,
    SessionTimes,
    Stay,
    UnitTime,
)
from planner.history.reading import ask
from planner.history.writing import HistoryWriter
from planner.types import Unit

UNITS = (
    Unit("embed", "embed", 10, 1, 0, 4),
    Unit("attn.0", "attn", 20, 2, 8, 4),
    Unit("head", "head", 30, 3, 0, 4),
)
TIMES = {"embed": 1000, "attn": 2_000_000, "head": 3_000_000}
AGENTS = {"a": "shoal/0.1.0 (aiortc)", "b": "shoal/0.1.0 (Chrome/140)"}
A, B = "Python 0.1 cpu x2 computer", "Chrome 140 webgpu x2 computer"
SECRET = "Zaphod's laptop"


def measured(peer: str, *others: str) -> MemberMeasured:
    provider = "cpu" if peer == "a" else "webgpu"
    links = tuple(LinkFacts(peer, other, 2000, 10**6, 0) for other in others)
    return MemberMeasured(peer, Profile(100, 10, TIMES, TIMES, {}, 500, provider, 2), links)


def plan(version: int, first: str, second: str) -> PlanRecord:
    stages = (PlanStage(0, 2, first, (second,)), PlanStage(2, 3, second))
    return PlanRecord(version, stages, 5000, 200_000, (f"because of {SECRET}",))


@dataclass
class Told:
    """A chronicle that is told of one command after the other."""

    chronicle: Chronicle
    state: MeshState = dataclasses.field(default_factory=MeshState)

    def __call__(self, now: float, *commands: Command) -> list[Fact]:
        for command in commands:
            self.state = apply(self.state, command)
        return self.chronicle.state(now, self.state)


@pytest.fixture
def told() -> Told:
    made = Told(Chronicle("mesh", UNITS, lambda peer: AGENTS.get(peer, "")))
    made(0.0, ModelChosen("f" * 64, "toy", 3, 128, 2, "latency"))
    return made


def served(told: Told) -> None:
    """Two peers serve plan 1."""
    told(
        1.0,
        MemberJoined("a", SECRET, True),
        measured("a"),
        MemberJoined("b", SECRET, True),
        measured("b", "a"),
    )
    told(2.0, PlanProposed(plan(1, "a", "b")), UnitsHeld("a", ((0, 2),)), UnitsHeld("b", ((2, 3), (0, 2))))
    told(3.0, PlanActivated(1))


def ran(session: bytes, position: int, count: int = 1, run: tuple[int, int] = (0, 2)) -> Ran:
    return Ran(run, session, 0, position, count, None, None)


def test_a_measured_peer_gives_its_class_its_units_and_its_links(told: Told) -> None:
    assert told(1.0, MemberJoined("a", SECRET, True)) == []
    facts = told(2.0, measured("a"), MemberJoined("b", SECRET, True), measured("b", "a"))
    peers = [fact for fact in facts if isinstance(fact, PeerMeasured)]
    assert [(fact.peer, fact.device_class) for fact in peers] == [("a", A), ("b", B)]
    units = [fact for fact in facts if isinstance(fact, UnitTime) and fact.phase == "decode"]
    assert {(fact.device_class, fact.kind): fact.seconds for fact in units}[A, "attn"] == 0.002
    assert len(units) == 6
    (link,) = (fact for fact in facts if isinstance(fact, LinkMeasured))
    assert (link.src_class, link.dst_class, link.rtt_s) == (B, A, 0.002)
    assert told(3.0, UnitsHeld("a", ((0, 2),))) == []
    assert told(4.0, measured("a")) == []  # the same again


def test_plans_come_with_classes_and_never_with_names(told: Told) -> None:
    served(told)
    facts = told(4.0, PlanProposed(plan(2, "b", "a")), PlanRefused(f"{SECRET} lacks memory"))
    (refused,) = (fact for fact in facts if isinstance(fact, PlanEvent) and fact.event == "refused")
    assert (refused.version, refused.peers) == (2, 2)
    (proposed,) = told(5.0, PlanProposed(plan(3, "b", "a")))
    assert isinstance(proposed, PlanEvent)
    assert proposed.layout == f"0-2 {B}; 2-3 {A}"
    assert (proposed.predicted_s, proposed.standbys) == (0.005, 1)
    assert SECRET not in repr([*facts, proposed])


@pytest.mark.parametrize("polite", [False, True])
def test_a_loss_is_over_when_the_mesh_serves_again(told: Told, polite: bool) -> None:
    served(told)
    if polite:
        told(9.0, MemberLeaving("a"))
    gone = told(10.0, MemberLeft("a", f"{SECRET} is gone"))
    assert gone == [Stay("mesh", "a", A, "", 9.0, True)]
    alone = PlanRecord(2, (PlanStage(0, 3, "b"),), 9000, 100_000)
    facts = told(10.5, PlanProposed(alone), UnitsHeld("b", ((0, 3),)), PlanActivated(2))
    assert [fact for fact in facts if isinstance(fact, Recovery)] == [
        Recovery("mesh", "a", A, polite, 1, 2, 0.5)
    ]


def test_a_loss_that_is_never_repaired_is_told_at_the_end(told: Told) -> None:
    served(told)
    told(10.0, MemberLeft("a", ""))
    facts = told.chronicle.close(20.0)
    assert Recovery("mesh", "a", A, False, 1, None, None) in facts
    assert Stay("mesh", "b", B, "", 19.0, False) in facts


@pytest.mark.parametrize(
    ("reason", "condition"), [("the tab is hidden", "background"), ("the battery is low", "battery")]
)
def test_a_stay_under_a_condition_counts_apart(told: Told, reason: str, condition: str) -> None:
    served(told)
    (before,) = told(11.0, MemberDraining("b", reason))
    assert before == Stay("mesh", "b", B, "", 10.0, False)
    (after,) = (fact for fact in told(14.0, MemberLeft("b", "")) if isinstance(fact, Stay))
    assert after == Stay("mesh", "b", B, condition, 3.0, True)


def test_steps_become_the_times_of_an_answer(told: Told) -> None:
    served(told)
    chronicle = told.chronicle
    assert chronicle.ran(10.0, ran(b"s", 0, 7)) == []  # the prompt
    now = 10.0
    for step in range(8):
        now += 0.5 if step == 5 else 0.1
        assert chronicle.ran(now, ran(b"s", 7 + step)) == []
        assert chronicle.ran(now, ran(b"s", 7 + step, run=(2, 3))) == []  # its other stage
    assert chronicle.idle(now + OVER_S - 0.1) == []
    (fact,) = chronicle.idle(now + OVER_S + 0.1)
    assert isinstance(fact, SessionTimes)
    assert (fact.tokens, fact.plan, fact.stages, fact.predicted_s) == (9, 1, 2, 0.005)
    assert fact.classes == f"{B}, {A}"
    assert (round(fact.token_s, 6), round(fact.longest_s, 6)) == (0.1, 0.5)


def test_a_new_question_ends_the_answer_before_and_short_ones_say_nothing(told: Told) -> None:
    served(told)
    chronicle = told.chronicle
    chronicle.ran(1.0, ran(b"s", 0, 4))
    for step in range(LEAST_TOKENS):
        chronicle.ran(1.1 + step / 10, ran(b"s", 4 + step))
    (fact,) = chronicle.ran(2.0, ran(b"s", 8, 20))
    assert isinstance(fact, SessionTimes)
    chronicle.ran(2.1, ran(b"s", 28))
    assert chronicle.ran(2.2, ran(b"s", 5, 2)) == []  # one token only
    assert chronicle.idle(99.0) == []


def answered(chronicle: Chronicle, begins: float, session: bytes) -> list[Fact]:
    """An answer of half a second; what was noted meanwhile."""
    facts = chronicle.ran(begins, ran(session, 0, 4))
    for step in range(LEAST_TOKENS + 1):
        facts += chronicle.ran(begins + 0.1 + step / 10, ran(session, 4 + step))
    return facts


def test_a_settled_mesh_notes_every_answer_when_the_next_begins(told: Told) -> None:
    served(told)
    count = MAX_ANSWERS + 44
    facts = [
        answered(told.chronicle, 10.0 + number * (OVER_S + 1), number.to_bytes(2)) for number in range(count)
    ]
    assert [len(noted) for noted in facts] == [0, *[1] * (count - 1)]
    last: list[Fact] = [fact for fact in told.chronicle.close(1e6) if isinstance(fact, SessionTimes)]
    times = [fact for noted in [*facts, last] for fact in noted if isinstance(fact, SessionTimes)]
    assert [fact.sessions for fact in times] == [1] * count


def test_an_answer_that_was_paused_is_two_even_when_another_stage_goes_on(told: Told) -> None:
    served(told)
    answered(told.chronicle, 10.0, b"s")
    (fact,) = told.chronicle.ran(20.0, ran(b"s", 9, run=(2, 3)))
    assert isinstance(fact, SessionTimes)


def test_answers_count_those_that_were_computed_meanwhile(told: Told) -> None:
    served(told)
    chronicle = told.chronicle
    chronicle.ran(9.9, ran(b"long", 0, 4))
    facts = []
    for step in range(80):  # 8 s; "long" goes on under all of these
        now = 10.0 + step / 10
        facts += chronicle.ran(now, ran(b"long", 4 + step))
        if step == 10:
            for piece in range(3):
                facts += chronicle.ran(now + piece / 100, ran(b"short", 40 * piece, 40))
        if 10 < step < 20:
            facts += chronicle.ran(now, ran(b"short", 109 + step))
        if 30 <= step < 40:
            facts += chronicle.ran(now, ran(b"later", step))
    facts += answered(chronicle, 18.5, b"after")
    facts += chronicle.idle(99.0)
    times = [fact for fact in facts if isinstance(fact, SessionTimes)]
    assert sorted((fact.tokens, fact.sessions) for fact in times) == [(6, 1), (10, 2), (10, 2), (81, 3)]


@asynccontextmanager
async def keep_history(mesh: Mesh, file: Path, tell: Callable[[str], None]) -> AsyncIterator[None]:
    """As a founder does it."""
    foresight = Foresight()
    async with open_history(file, tell, foresight) as writer:
        with nullcontext() if writer is None else history.keep_history(cast(Any, mesh), writer, foresight):
            yield


class Mesh:
    """As much of a member as a history needs."""

    def __init__(self, state: MeshState) -> None:
        dialer = SimpleNamespace(
            connection=lambda peer: SimpleNamespace(remote=None) if peer == "b" else None
        )
        self.links = SimpleNamespace(me="a", agent=AGENTS["a"], dialer=dialer)
        self.looks, self.steps = Listeners[Callable[[], None]](), Listeners[Callable[[Ran], None]]()
        self.view = SimpleNamespace(state=state, subscribe=self.looks.add)
        self.stage = SimpleNamespace(on_ran=self.steps.add)
        self.leadership = SimpleNamespace(current=None, is_fresh=lambda *_: False)
        self.manifest = SimpleNamespace(planner_units=lambda: UNITS)
        self.link = SimpleNamespace(mesh="mesh")


async def test_the_mesh_is_followed_until_it_ends(told: Told, tmp_path: Path) -> None:
    served(told)
    mesh, said = Mesh(told.state), list[str]()
    async with keep_history(mesh, tmp_path / "h.duckdb", said.append):
        (look,) = mesh.looks
        (step,) = mesh.steps
        mesh.view.state = replace(told.state, refused="")
        look()
        step(ran(b"s", 0, 3))
    assert not mesh.looks
    assert not mesh.steps
    assert said == []
    assert ask(tmp_path / "h.duckdb", "select peer, device_class from peers order by 1").rows == (
        ("a", A),
        ("b", "browser webgpu x2 computer"),
    )
    assert ask(tmp_path / "h.duckdb", "select count(*) from stays").rows == ((2,),)


@pytest.mark.parametrize("fault", ["busy", "no folder"])
async def test_a_history_that_cannot_be_kept_stops_no_mesh(told: Told, tmp_path: Path, fault: str) -> None:
    mesh, said, file = Mesh(told.state), list[str](), tmp_path / "h.duckdb"
    other = HistoryWriter(file) if fault == "busy" else None
    if fault == "no folder":
        (tmp_path / "file").write_text("")
        file = tmp_path / "file" / "h.duckdb"
    async with keep_history(mesh, file, said.append):
        assert not mesh.looks
    assert len(said) == 1
    assert said[0].startswith("no history is kept")
    if other is not None:
        other.close()


async def test_a_damaged_history_is_set_aside_and_another_one_kept(told: Told, tmp_path: Path) -> None:
    mesh, said, file = Mesh(told.state), list[str](), tmp_path / "h.duckdb"
    file.write_bytes(b"?" * 9000)
    async with keep_history(mesh, file, said.append):
        assert mesh.looks
    assert len(said) == 1
    aside = await asyncio.to_thread(lambda: [path.read_bytes() for path in tmp_path.glob("h.duckdb?*")])
    assert b"?" * 9000 in aside


async def test_the_loop_goes_on_while_the_file_is_opened_and_closed(
    told: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    served(told)
    loop, here, passed = asyncio.get_running_loop(), threading.get_ident(), list[str]()

    def until_the_loop_turns(what: str) -> None:
        assert threading.get_ident() != here
        turned = threading.Event()
        loop.call_soon_threadsafe(turned.set)
        assert turned.wait(60)
        passed.append(what)

    class Slow(HistoryWriter):
        def __init__(self, path: Path, mend: Callable[[str], None]) -> None:
            until_the_loop_turns("opened")
            super().__init__(path, mend=mend)

        def close(self) -> None:
            until_the_loop_turns("closed")
            super().close()

    monkeypatch.setattr(history_writer, "HistoryWriter", Slow)
    async with keep_history(Mesh(told.state), tmp_path / "h.duckdb", lambda _: None):
        assert passed == ["opened"]
    assert passed == ["opened", "closed"]
