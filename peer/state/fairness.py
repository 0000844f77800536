"""Decides who may ask, whose word convicts whom of wrong work, and what a convicted peer loses.

Pure; the same in web_peer/src/state/fairness.ts. Work of the ledger earns; a finding is one peer's word that another
one's result is not what its units make of their input. One word convicts nobody: two different peers must have found
the same step wrong. Who is convicted loses what it earned, earns no more, and no plan uses it until it is pardoned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, assert_never

from peer.state.work_ledger import Balance, Ledger, WorkRecorded, tally
from peer.wire.json_codec import Codec, listed, matching, one_of, record, span, table, text, uint

MAX_FINDINGS: Final = 256  # the newest: two peers that find the same step wrong do so within seconds
MAX_QUARANTINED: Final = 1024
MAX_SERVED: Final = 8  # the last sessions of a peer, which are marked when it is convicted
ALLOWANCE_MILLI: Final = 2_000_000  # what anybody may ask for before it must contribute: 2000 tokens
CHECKS_PPM: Final = 20_000
Policy = Literal["open", "fair", "off"]


@dataclass(frozen=True, slots=True)
class FairnessChosen:
    """`open`: balances order who waits; `fair`: who owes too much may not ask; `off`: nothing is counted."""

    policy: Policy
    allowance_milli: int
    checks_ppm: int  # millionths of steps that askers have checked


OPEN: Final = FairnessChosen("open", ALLOWANCE_MILLI, CHECKS_PPM)  # unless its founder says otherwise


@dataclass(frozen=True, slots=True)
class CheckFailed:
    """`by` computed `position` of a session through `units` itself, and found another result than `peer` gave."""

    session: str
    position: int
    units: tuple[int, int]
    peer: str
    by: str
    when_ms: int


@dataclass(frozen=True, slots=True)
class PeerPardoned:
    """An owner lets a convicted peer compute again; what it lost stays lost."""

    peer: str


FairnessCommand = FairnessChosen | CheckFailed | PeerPardoned


@dataclass(frozen=True, slots=True)
class Quarantine:
    """A peer that was convicted: when, by whose words, what it lost, and the sessions that it computed last."""

    when_ms: int
    by: tuple[str, ...]
    lost_milli: int
    sessions: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fairness:
    """`served`: the last sessions of each peer with a place in a counted work."""

    policy: Policy = "open"
    allowance_milli: int = ALLOWANCE_MILLI
    checks_ppm: int = CHECKS_PPM
    findings: tuple[CheckFailed, ...] = ()
    quarantined: Mapping[str, Quarantine] = field(default_factory=dict)
    served: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def owed_milli(ledger: Ledger, peer: str) -> int:
    """What `peer` spent beyond what it earned; below zero where it is the other way round."""
    balance = ledger.balances.get(peer, Balance())
    return balance.spent - balance.earned


def counted_milli(fairness: Fairness, ledger: Ledger, peer: str) -> int:
    """The same where the mesh counts work, else 0: what orders those who wait."""
    return 0 if fairness.policy == "off" else owed_milli(ledger, peer)


def may_ask(fairness: Fairness, ledger: Ledger, peer: str) -> str:
    """Why `peer` may not ask now, and what to do; "" when it may."""
    owed = owed_milli(ledger, peer)
    if fairness.policy != "fair" or owed <= fairness.allowance_milli:
        return ""
    return (
        f"this mesh shares fairly: you have asked for {owed // 1000} credits more than you contributed, and "
        f"{fairness.allowance_milli // 1000} are allowed; lend a machine with shoal join, or lend this tab's memory, "
        "and ask again when it has computed for others"
    )


def account_fairly(
    ledger: Ledger, fairness: Fairness, command: WorkRecorded
) -> tuple[Ledger, Fairness] | str:
    """The ledger after `command` and who served, or why none of its entries counts. Who is convicted earns nothing."""
    if fairness.policy == "off":
        return "this mesh counts no work"
    entries = tuple(work for work in command.entries if work.peer not in fairness.quarantined)
    after, why = tally(ledger, entries)
    counted = [work for work, reason in zip(entries, why, strict=True) if not reason]
    if not counted:
        return next(
            iter(why), "the peer was convicted of wrong work" if command.entries else "there are no entries"
        )
    served = dict(fairness.served)
    for work in counted:
        others = tuple(session for session in served.get(work.peer, ()) if session != work.session)
        served[work.peer] = (*others, work.session)[-MAX_SERVED:]
    served = {peer: sessions for peer, sessions in served.items() if peer in after.balances}
    return after, replace(fairness, served=served)


def settle(ledger: Ledger, fairness: Fairness, command: FairnessCommand) -> tuple[Ledger, Fairness] | str:
    """Ledger and fairness after `command`, or why it changes nothing."""
    match command:
        case FairnessChosen():
            chosen = replace(
                fairness,
                policy=command.policy,
                allowance_milli=command.allowance_milli,
                checks_ppm=command.checks_ppm,
            )
            return "it is so already" if chosen == fairness else (ledger, chosen)
        case PeerPardoned():
            if command.peer not in fairness.quarantined:
                return "this peer is not convicted"
            others = {peer: each for peer, each in fairness.quarantined.items() if peer != command.peer}
            findings = tuple(each for each in fairness.findings if each.peer != command.peer)
            return ledger, replace(fairness, quarantined=others, findings=findings)
        case CheckFailed():
            return _found(ledger, fairness, command)
        case _:
            assert_never(command)


def _found(ledger: Ledger, fairness: Fairness, found: CheckFailed) -> tuple[Ledger, Fairness] | str:
    if found.by == found.peer:
        return "nobody judges itself"
    if found.by in fairness.quarantined:
        return "the word of a convicted peer does not count"
    if found.peer in fairness.quarantined:
        return "this peer is convicted already"
    same = [each for each in fairness.findings if _step(each) == _step(found)]
    if any(each.by == found.by for each in same):
        return "it said so before"
    if not same:
        return ledger, replace(fairness, findings=(*fairness.findings, found)[-MAX_FINDINGS:])
    if len(fairness.quarantined) >= MAX_QUARANTINED:
        return f"{MAX_QUARANTINED} peers are convicted, which is the most"
    words = tuple(dict.fromkeys((*(each.by for each in same), found.by)))
    balance = ledger.balances.get(found.peer, Balance())
    sessions = tuple(dict.fromkeys((*fairness.served.get(found.peer, ()), found.session)))[-MAX_SERVED:]
    verdict = Quarantine(found.when_ms, words, balance.earned, sessions)
    findings = tuple(each for each in fairness.findings if found.peer not in (each.peer, each.by))
    after = replace(fairness, findings=findings, quarantined={**fairness.quarantined, found.peer: verdict})
    if found.peer not in ledger.balances:
        return ledger, after
    return replace(ledger, balances={**ledger.balances, found.peer: replace(balance, earned=0)}), after


def _step(found: CheckFailed) -> tuple[str, int, tuple[int, int], str]:
    return found.session, found.position, found.units, found.peer


# --- wire -------------------------------------------------------------------------------------------------

_session: Final = matching("[0-9a-f]{32}", "a session of 16 bytes in hex")
_policy: Final = one_of("open", "fair", "off")
_found_codec: Final = record(
    CheckFailed,
    {"session": _session, "position": uint, "units": span, "peer": text, "by": text, "when_ms": uint},
)
_quarantine: Final = record(
    Quarantine,
    {
        "when_ms": uint,
        "by": listed(text, 8),
        "lost_milli": uint,
        "sessions": listed(_session, MAX_SERVED),
    },
)
fairness_codec: Final = record(
    Fairness,
    {
        "policy": _policy,
        "allowance_milli": uint,
        "checks_ppm": uint,
        "findings": listed(_found_codec, MAX_FINDINGS),
        "quarantined": table(_quarantine, MAX_QUARANTINED),
        "served": table(listed(_session, MAX_SERVED)),
    },
)
FAIRNESS_COMMANDS: Final[Mapping[type[Any], Codec[Any]]] = {
    FairnessChosen: record(FairnessChosen, {"policy": _policy, "allowance_milli": uint, "checks_ppm": uint}),
    CheckFailed: _found_codec,
    PeerPardoned: record(PeerPardoned, {"peer": text}),
}
