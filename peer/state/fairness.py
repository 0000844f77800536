"""Decides who may ask, whose word convicts whom of wrong work, and what a convicted peer loses.

Pure; the same in web_peer/src/state/fairness.ts. Work of the ledger earns; a finding is one peer's word that another
one's result is not what its units make of their input. One word convicts nobody: two different peers must have found
the same step wrong. Who is convicted loses what it earned, earns no more, and no plan uses it until it is pardoned.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, assert_never

from peer.state.generated.commands import (
    ALLOWANCE_MILLI,
    CHECKS_PPM,
    MAX_FINDINGS,
    MAX_QUARANTINED,
    MAX_SERVED,
    CheckFailed,
    FairnessChosen,
    FairnessCommand,
    PeerPardoned,
    Policy,
    Quarantine,
    WorkRecorded,
    check_failed_codec,
    policy_codec,
    quarantine_codec,
    session_pattern,
)
from peer.state.work_ledger import Balance, Ledger, tally
from peer.wire.json_codec import listed, record, table, uint

OPEN: Final = FairnessChosen("open", ALLOWANCE_MILLI, CHECKS_PPM)  # unless its founder says otherwise


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

fairness_codec: Final = record(
    Fairness,
    {
        "policy": policy_codec,
        "allowance_milli": uint,
        "checks_ppm": uint,
        "findings": listed(check_failed_codec, MAX_FINDINGS),
        "quarantined": table(quarantine_codec, MAX_QUARANTINED),
        "served": table(listed(session_pattern, MAX_SERVED)),
    },
)
