"""Decides what the founder notes of its mesh: who measured what, which plans came, who was lost, how fast it was.

Pure. `Chronicle` compares each state with the one before, and follows the steps that this peer computes; it is handed
the time. No prompt, text, token or activation gets here, and no name that a person chose.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from statistics import median
from typing import Final

from peer.session.effects import Ran
from peer.state.generated.commands import LinkFacts, Member, PlanRecord, Profile
from peer.state.mesh_state import MICRO, MeshState
from peer.state.plan_record import route_of
from planner.history.facts import (
    MAX_FIELD,
    Fact,
    LinkMeasured,
    PeerClass,
    PeerMeasured,
    PlanEvent,
    Recovery,
    SessionTimes,
    Stay,
    UnitTime,
    bucket_of,
    class_of,
)
from planner.types import Unit

NANO: Final = 1e9
LEAST_TOKENS: Final = 4  # of an answer whose times say something
OVER_S: Final = 5.0  # without a step for so long an answer is over, or was paused
MAX_ANSWERS: Final = 256  # followed at the same time
MAX_GAPS: Final = 4096  # of an answer
_CONDITIONS: Final = (
    ("hidden", "background"),
    ("froze", "background"),
    ("battery", "battery"),
)


@dataclass(slots=True)
class _Answer:
    """Decode steps of one session at one stage of this peer."""

    run: tuple[int, int]
    plan: PlanRecord | None
    first_s: float
    last_s: float
    position: int
    gaps: list[float] = field(default_factory=list)
    beside: set[bytes] = field(default_factory=set)  # sessions that are over and were computed meanwhile


@dataclass(slots=True)
class _Here:
    """A member since `since_s`, under one condition."""

    peer_class: PeerClass
    condition: str
    since_s: float


@dataclass(frozen=True, slots=True)
class _Loss:
    """A peer that served is gone, and the mesh has not served since."""

    peer: str
    device_class: str
    polite: bool
    plan: int
    at_s: float


class Chronicle:
    """`agent(peer)` is what a peer calls its software; "" where nobody knows."""

    def __init__(
        self,
        mesh: str,
        units: tuple[Unit, ...],
        agent: Callable[[str], str],
        again: Callable[[str, Profile], bool] = lambda *_: False,
    ) -> None:
        """`again(peer, profile)`: whether it was asked to measure that."""
        self._mesh = mesh
        self._units = units
        self._agent = agent
        self._again = again
        self._before = MeshState()
        self._here: dict[str, _Here] = {}
        self._losses: list[_Loss] = []
        self._answers: dict[bytes, _Answer] = {}

    def state(self, now: float, state: MeshState) -> list[Fact]:
        """What is new in `state`."""
        before, self._before = self._before, state
        facts: list[Fact] = []
        for peer in sorted(before.members.keys() - state.members.keys()):
            facts += self._gone(now, before, peer)
        for peer, member in state.members.items():
            known = before.members.get(peer)
            if member is not known and member.compute:
                facts += self._member(now, known, member, state)
        if state.links is not before.links:
            known_links = {(link.src, link.dst): link for link in before.links}
            facts += [
                self._link(link) for link in state.links if known_links.get((link.src, link.dst)) != link
            ]
        facts += self._plans(now, before, state)
        return facts

    def ran(self, now: float, result: Ran) -> list[Fact]:
        """A step was computed here: a decode step of an answer, or a piece of its prompt."""
        facts = self.idle(now)
        run = result.run
        answer = self._answers.get(result.session)
        if answer is not None and answer.run != run:
            return facts  # this peer has several stages: one of them says it all
        if answer is None or result.count != 1 or result.position != answer.position:
            facts += self._end(result.session)
            if len(self._answers) < MAX_ANSWERS:
                position = result.position + result.count
                self._answers[result.session] = _Answer(run, self._before.plan, now, now, position)
            return facts
        if len(answer.gaps) < MAX_GAPS:
            answer.gaps.append(now - answer.last_s)
        answer.last_s, answer.position = now, answer.position + 1
        return facts

    def idle(self, now: float) -> list[Fact]:
        """Answers that have had no step for a while are over."""
        over = [session for session, answer in self._answers.items() if now - answer.last_s > OVER_S]
        return [fact for session in over for fact in self._end(session)]

    def close(self, now: float) -> list[Fact]:
        """The last facts: who is still here, what was not repaired."""
        facts = [fact for session in list(self._answers) for fact in self._end(session)]
        facts += [self._stay(now, peer, ended=False) for peer in sorted(self._here)]
        facts += [self._recovery(loss, None, None) for loss in self._losses]
        self._here.clear()
        self._losses.clear()
        return facts

    # --- members

    def _member(self, now: float, known: Member | None, member: Member, state: MeshState) -> list[Fact]:
        profile = member.profile
        if profile is None:
            return []
        facts: list[Fact] = []
        here = self._here.get(member.peer)
        condition = _condition(member)
        if here is not None and condition != here.condition:
            facts.append(self._stay(now, member.peer, ended=False))
            here = None
        peer_class = class_of(self._agent(member.peer)[: 2 * MAX_FIELD], profile.provider, profile.threads)
        if here is None:
            self._here[member.peer] = _Here(peer_class, condition, now)
        before = known.profile if known is not None else None
        if before is not None and replace(before, surroundings=profile.surroundings) == profile:
            return facts
        name, model = peer_class.name, state.model.model if state.model is not None else ""
        facts.append(
            PeerMeasured(
                self._mesh,
                member.peer,
                name,
                peer_class.browser,
                peer_class.version,
                profile.provider[:MAX_FIELD],
                profile.threads,
                peer_class.device,
                profile.memory_bytes,
                profile.overhead_bytes,
                profile.step_ns / NANO,
                self._again(member.peer, profile),
            )
        )
        tables = (("decode", profile.decode_ns), ("prefill", profile.prefill_ns), ("batch", profile.batch_ns))
        for unit in {unit.kind: unit for unit in self._units}.values():
            for phase, table in tables:
                if unit.kind in table:
                    facts.append(
                        UnitTime(
                            self._mesh,
                            model,
                            member.peer,
                            name,
                            peer_class.browser,
                            profile.provider[:MAX_FIELD],
                            unit.kind,
                            bucket_of(unit.weight_bytes),
                            phase,
                            unit.flops_per_token,
                            unit.weight_bytes,
                            table[unit.kind] / NANO,
                        )
                    )
        return facts

    def _gone(self, now: float, before: MeshState, peer: str) -> list[Fact]:
        facts: list[Fact] = [self._stay(now, peer, ended=True)] if peer in self._here else []
        here, serving = self._here.pop(peer, None), before.plan
        if serving is not None and peer in route_of(serving):
            polite = before.members[peer].status == "leaving"
            name = here.peer_class.name if here is not None else ""
            self._losses.append(_Loss(peer, name, polite, serving.version, now))
        return facts

    def _stay(self, now: float, peer: str, *, ended: bool) -> Stay:
        here = self._here[peer]
        return Stay(self._mesh, peer, here.peer_class.name, here.condition, now - here.since_s, ended)

    def _link(self, link: LinkFacts) -> LinkMeasured:
        classes = [self._class_name(peer) for peer in (link.src, link.dst)]
        return LinkMeasured(
            self._mesh,
            link.src,
            link.dst,
            classes[0],
            classes[1],
            link.rtt_us / MICRO,
            float(link.bytes_per_s),
            link.overhead_us / MICRO,
            link.relayed,
        )

    def _class_name(self, peer: str) -> str:
        here = self._here.get(peer)
        return here.peer_class.name if here is not None else ""

    # --- plans

    def _plans(self, now: float, before: MeshState, state: MeshState) -> list[Fact]:
        facts: list[Fact] = []
        if state.last_version != before.last_version:
            newest = state.proposed or state.plan
            if newest is not None:
                facts.append(self._plan("proposed", newest, state))
        if state.plan is not None and (before.plan is None or state.plan.version != before.plan.version):
            facts.append(self._plan("activated", state.plan, state))
        if state.refused and state.refused != before.refused:
            facts.append(self._plan("refused", None, state))
        serving = state.serving()
        if serving is not None and self._losses:
            facts += [self._recovery(loss, serving.version, now - loss.at_s) for loss in self._losses]
            self._losses.clear()
        return facts

    def _plan(self, event: str, plan: PlanRecord | None, state: MeshState) -> PlanEvent:
        model = state.model.model if state.model is not None else ""
        peers = sum(member.compute and member.profile is not None for member in state.members.values())
        if plan is None:
            reason = "no plan exists"  # the sentence names peers
            return PlanEvent(
                self._mesh, model, state.last_version, event, 0, 0, peers, None, None, "", reason
            )
        layout = "; ".join(f"{s.first}-{s.stop} {self._class_name(s.primary)}" for s in plan.stages)
        standbys = sum(len(stage.standbys) for stage in plan.stages)
        return PlanEvent(
            self._mesh,
            model,
            plan.version,
            event,
            len(plan.stages),
            standbys,
            peers,
            plan.predicted_token_us / MICRO,
            plan.predicted_rate_milli / 1000,
            layout,
            "",
        )

    def _recovery(self, loss: _Loss, plan: int | None, seconds: float | None) -> Recovery:
        return Recovery(self._mesh, loss.peer, loss.device_class, loss.polite, loss.plan, plan, seconds)

    # --- answers

    def _end(self, session: bytes) -> list[Fact]:
        answer = self._answers.pop(session, None)
        if answer is None:
            return []
        for other, its in self._answers.items():
            if its.first_s < answer.last_s and answer.first_s < its.last_s:
                its.beside.add(session)
                answer.beside.add(other)
        if len(answer.gaps) < LEAST_TOKENS:
            return []
        gaps, plan = sorted(answer.gaps), answer.plan
        route = route_of(plan) if plan is not None else ()
        model = self._before.model
        return [
            SessionTimes(
                self._mesh,
                model.model if model is not None else "",
                plan.version if plan is not None else 0,
                len(route),
                ", ".join(sorted({self._class_name(peer) for peer in route})),
                len(gaps) + 1,
                answer.last_s - answer.first_s,
                median(gaps),
                gaps[int(0.9 * (len(gaps) - 1))],
                gaps[-1],
                plan.predicted_token_us / MICRO if plan is not None else None,
                len(answer.beside) + 1,
            )
        ]


def _condition(member: Member) -> str:
    """Why a member lends less than it could, as hazards tell it apart; "" when it does not."""
    if member.status not in ("draining", "paused"):
        return ""
    return next((condition for word, condition in _CONDITIONS if word in member.reason), "")
