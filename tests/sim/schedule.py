"""Decides, from a seed alone, what one simulated run is made of: the mesh, who asks what, and what goes wrong when."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from peer.session.sampling import Sampling
from peer.state.generated.commands import PlanRecord, PlanStage
from tests.sim.toy import UNITS, VOCAB


@dataclass(frozen=True, slots=True)
class Turn:
    """One question: `keep` tokens of the conversation so far (None: all; below 0: all but so many), then `fresh`."""

    keep: int | None
    fresh: tuple[int, ...]
    max_tokens: int
    sampling: Sampling
    end_tokens: tuple[int, ...]
    stop_after: int | None  # the asker stops the answer at this many tokens
    pause_s: float


@dataclass(frozen=True, slots=True)
class Talk:
    """One session and its questions."""

    session: bytes
    asker: str
    turns: tuple[Turn, ...]
    stays: bool  # the asker never lets the session go


@dataclass(frozen=True, slots=True)
class Fault:
    """At `at_s`: `kind` happens to `peer` (and its link to `other`), for `lasts_s`."""

    at_s: float
    kind: str
    peer: str
    other: str = ""
    lasts_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds, chances from 0 to 1."""

    link_s: float
    jitter_s: float
    token_s: float
    duplicates: float  # of a frame to come twice
    encoded: bool  # every frame goes through its bytes
    notice_s: float  # at most so long until an end of a connection hears that it is lost
    log_s: float  # at most so long until the coordinator knows of a loss
    hint_s: float  # at most so long until signaling says so to everyone (0: it never does)
    patience_s: float  # that an asker has with an answer to WHERE
    spare_loss: float  # chance that frames to a shadow are dropped


@dataclass(frozen=True, slots=True)
class Schedule:
    seed: int
    peers: tuple[str, ...]  # that compute
    askers: tuple[str, ...]
    plan: PlanRecord
    slots: int
    log_bytes: int
    standbys_do: str  # "nothing", "shadow" or "keep"
    hopeful: bool  # askers wait for a plan that holds what was lost
    talks: tuple[Talk, ...]
    faults: tuple[Fault, ...]
    pace: Pace


FAULTS = (
    *("crash",) * 6,
    *("crash_restart",) * 4,
    *("freeze",) * 4,
    *("drop",) * 5,
    *("slow",) * 2,
    *("spike",) * 2,
    *("leave",) * 1,
    *("replan",) * 4,
    *("full",) * 2,
    *("vanish",) * 1,
    *("stranger",) * 3,
)


def make_schedule(seed: int) -> Schedule:
    """The same for the same seed, whatever the machine."""
    rng = random.Random(seed)
    stages = rng.choice((1, 2, 2, 3, 3, 3))
    cuts = [0, *sorted(rng.sample(range(1, UNITS), stages - 1)), UNITS]
    peers = [f"p{index}" for index in range(stages)]
    primaries = list(peers)
    spares = rng.choice((0, 0, 1, 1, 2))
    standbys = rng.choice((0, 1, 1, 1, 2))
    extra = [f"s{index}" for index in range(rng.randint(1, stages) if standbys else 0)]
    peers += extra
    plan_stages = []
    for place in range(stages):
        pool = [peer for peer in peers if peer != primaries[place]]
        pool.sort(key=lambda peer: (not peer.startswith("s"), rng.random()))
        count = min(len(pool), standbys if rng.random() < 0.9 else 0)
        plan_stages.append(PlanStage(cuts[place], cuts[place + 1], primaries[place], tuple(pool[:count])))
    peers += [f"x{index}" for index in range(spares)]
    plan = PlanRecord(1, tuple(plan_stages), 0, 0)
    askers = ["asker", "other"][: rng.choice((1, 1, 2))]
    if rng.random() < 0.3:
        askers.append(rng.choice(peers))
    talks = tuple(_talk(rng, index, rng.choice(askers)) for index in range(rng.choice((1, 1, 2, 2, 3))))
    pace = Pace(
        link_s=rng.choice((0.0005, 0.002, 0.005, 0.02)),
        jitter_s=rng.choice((0.0, 0.002, 0.01)),
        token_s=rng.choice((0.001, 0.004, 0.01)),
        duplicates=rng.choice((0.0, 0.0, 0.02, 0.1)),
        encoded=rng.random() < 0.03,
        notice_s=rng.choice((0.0, 0.05, 0.5, 4.0)),
        log_s=rng.choice((0.1, 0.5, 2.0)),
        hint_s=rng.choice((0.0, 0.05)),
        patience_s=rng.choice((0.08, 0.25)),
        spare_loss=rng.choice((0.0, 0.0, 0.1, 0.5)),
    )
    busy_s = 0.3 + 12 * stages * (pace.link_s + pace.jitter_s / 2 + pace.token_s)
    count = rng.choice((0, 1, 1, 1, 2, 2, 3, 4))
    faults = [_fault(rng, peers, askers, busy_s) for _ in range(count)]
    return Schedule(
        seed,
        tuple(peers),
        tuple(askers),
        plan,
        slots=rng.choice((2, 4, 4, 4)),
        log_bytes=rng.choice((64, 256, 1 << 20, 1 << 20)),
        standbys_do=rng.choice(("nothing", "shadow", "shadow", "keep")),
        hopeful=rng.random() < 0.7,
        talks=talks,
        faults=tuple(sorted(faults, key=lambda fault: fault.at_s)),
        pace=pace,
    )


def calm(schedule: Schedule) -> Schedule:
    """The same questions, and nothing goes wrong."""
    return replace(schedule, faults=(), pace=replace(schedule.pace, duplicates=0.0))


def _talk(rng: random.Random, index: int, asker: str) -> Talk:
    turns: list[Turn] = []
    for number in range(rng.choice((1, 1, 1, 2, 2, 3))):
        edited = number > 0 and rng.random() < 0.3
        most = rng.randint(2, 10)
        fresh = rng.choice((1, 2, 4, 5, 9, 14))
        turns.append(
            Turn(
                keep=rng.choice((-fresh, rng.randint(0, 6))) if edited else None,
                fresh=tuple(rng.randrange(VOCAB) for _ in range(fresh)),
                max_tokens=most,
                sampling=_sampling(rng),
                end_tokens=rng.choice(((), (), (3,), (3, 8))),
                stop_after=rng.randint(1, most) if rng.random() < 0.2 else None,
                pause_s=rng.choice((0.0, 0.02, 0.5)),
            )
        )
    return Talk(bytes([index + 1]) * 16, asker, tuple(turns), rng.random() < 0.05)


def _sampling(rng: random.Random) -> Sampling:
    match rng.randrange(4):
        case 0:
            return Sampling()
        case 1:
            return Sampling(temperature=1.0, seed=rng.randrange(1 << 40))
        case _:
            return Sampling(
                temperature=rng.choice((0.0, 0.8)),
                repetition_penalty=1.3,
                frequency_penalty=0.4,
                seed=rng.randrange(1 << 40),
            )


def _fault(rng: random.Random, peers: list[str], askers: list[str], busy_s: float) -> Fault:
    kind = rng.choice(FAULTS)
    at_s = rng.uniform(0.0, busy_s)
    everyone = list(dict.fromkeys([*peers, *askers]))
    peer = rng.choice(askers if kind == "vanish" else peers)
    other = rng.choice([one for one in everyone if one != peer])
    lasts_s = {"freeze": rng.choice((0.1, 0.5, 3.0)), "slow": 1.0, "spike": rng.choice((0.1, 1.0))}.get(
        kind, rng.choice((0.05, 0.4, 2.0))
    )
    return Fault(at_s, kind, peer, other, lasts_s)
