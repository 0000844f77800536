"""What a peer says of its machine, power, network and owner, and how the mesh's plan counts it."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import psutil
import pytest

from peer.coordination.coordinator import Coordinator, plan_request
from peer.errors import BadCommand
from peer.member.failure_domain_watch import (
    POWER_EVERY_S,
    THROTTLED_FOR_S,
    Around,
    Power,
    machine_name,
    on_battery,
)
from peer.member.peer_options import PeerOptions, known_as
from peer.stage.slowdown_reports import LOST_S, Pacing
from peer.state.failure_domains import UNKNOWN, WORSE_MS, End, Surroundings, hashed
from peer.state.generated.commands import (
    LinkFacts,
    MemberJoined,
    MemberMeasured,
    ModelChosen,
    PlanProposed,
    Profile,
    ProtectionChosen,
    UnitsHeld,
)
from peer.state.protection import PRESETS
from peer.transport.connection_path import Path
from peer.transport.link_probe import Measured, both_ways, link_words
from peer.wire.generated.requests import MEASURE_LINK
from planner.adapt.serving_plan import choose
from planner.cost.independent_copies import COPIES
from planner.reports.plan_text import explain
from planner.types import Plan, Unit

MIB = 1 << 20
MESH = "mfrggzdfmztwq2lkmfrggzdfmztwq2lk"
ANNA = hashed("owner", MESH, "anna")
KINDS = {"embed": 1000, "attn": 1000, "ffn": 1000, "head": 1000}
UNITS = tuple(
    Unit(f"{kind}.{at}", kind, 20 * MIB, 5, 2, 64) for at, kind in enumerate(("embed", "attn", "ffn", "head"))
)
OPTIONS = PeerOptions("p", 1 << 30, 1, "cpu", "aiortc", ("127.0.0.1",), owner="anna", machine="box")


def place(name: str) -> str:
    return hashed("machine", MESH, name)


def measured(peer: str, said: Surroundings, peers: str, relayed: bool | None = False) -> MemberMeasured:
    """With room for two stages of half the model each."""
    links = [
        LinkFacts(*pair, 1000, 10**8, 0, relayed)
        for other in peers
        if other != peer
        for pair in ((peer, other), (other, peer))
    ]
    return MemberMeasured(
        peer, Profile(95 * MIB, MIB, KINDS, KINDS, KINDS, 500, "cpu", 1, said), tuple(links)
    )


def mesh(said: dict[str, Surroundings], relayed: bool | None = False) -> Coordinator:
    coordinator = Coordinator("a", UNITS, (2,))
    coordinator.submit(ModelChosen("ab" * 32, "tiny", len(UNITS), 32, 1, "latency"))
    for peer in said:
        coordinator.submit(MemberJoined(peer, peer, True, True, True, 7))
    for peer, its in said.items():
        told = coordinator.told(peer, measured(peer, its, "".join(said), relayed))
        assert told is not None
        coordinator.submit(told)
    return coordinator


def planned(coordinator: Coordinator) -> Plan:
    wanted = coordinator.wanted()
    assert wanted is not None
    plan = coordinator.by_hand(wanted.request)
    assert isinstance(plan, Plan)
    coordinator.planned(wanted, plan)
    for peer in coordinator.state.members:
        held = {(s.first, s.stop) for s in plan.stages if peer in (s.peer, *s.standbys)}
        coordinator.submit(UnitsHeld(peer, tuple(sorted(held))))
    return plan


@pytest.mark.parametrize(
    ("machines", "standbys"),
    [
        ({}, [("c",), ("d",)]),
        ({"a": "1", "c": "1", "b": "2", "d": "2"}, [("d",), ("c",)]),
        ({"a": "1", "b": "2", "c": "2", "d": "1"}, [("c",), ("d",)]),
        (dict.fromkeys("abcd", "1"), [("c",), ("d",)]),  # nobody is elsewhere: better than none
    ],
)
def test_a_mesh_keeps_copies_on_other_machines(
    machines: dict[str, str], standbys: list[tuple[str, ...]]
) -> None:
    coordinator = mesh({peer: Surroundings(21, place(machines.get(peer, peer))) for peer in "abcd"})
    plan = planned(coordinator)
    assert [stage.peer for stage in plan.stages] == ["a", "b"]
    assert [stage.standbys for stage in plan.stages] == standbys


@pytest.mark.parametrize(
    ("classes", "machines", "standbys", "says"),
    [
        ("ABAB", {}, [("c",), ("d",)], False),
        ("ABBA", {}, [("d",), ("c",)], False),
        ("AAAB", {}, [("c",), ("c",)], False),  # two places of its class rather than an idle peer of another
        ("AABB", {"a": "1", "b": "1", "c": "2", "d": "2"}, [("c",), ("d",)], True),  # machines before classes
    ],
)
def test_copies_of_the_primarys_class_come_first_where_machines_allow(
    classes: str, machines: dict[str, str], standbys: list[tuple[str, ...]], says: bool
) -> None:
    coordinator = mesh({peer: Surroundings(21, place(machines.get(peer, peer))) for peer in "abcd"})
    for peer, name in zip("abcd", classes, strict=True):
        profile = coordinator.state.members[peer].profile
        assert profile is not None
        told = replace(profile, arithmetic=f"cpu/{name.lower()}/rows-1/0123456789abcdef")
        coordinator.submit(MemberMeasured(peer, told, ()))
    coordinator.submit(copies(2000, spare=False))
    plan = planned(coordinator)
    assert [stage.standbys for stage in plan.stages] == standbys
    assert any("other arithmetic" in why for why in plan.why) == says


def copies(milli: int, *, spare: bool) -> ProtectionChosen:
    return ProtectionChosen(replace(PRESETS["standard"], redundancy_milli=milli, spare=spare))


def test_who_leaves_seldom_stands_by_first() -> None:
    calm, likely = Surroundings(21), Surroundings(6000)
    coordinator = mesh({"a": calm, "b": calm, "c": likely, "d": calm})
    coordinator.submit(copies(1500, spare=False))
    assert [stage.standbys for stage in planned(coordinator).stages] == [("d",), ()]


def test_a_hazard_that_rises_moves_the_standby_and_no_stage() -> None:
    calm = Surroundings(21)
    coordinator = mesh(dict.fromkeys("abcd", calm))
    coordinator.submit(copies(1500, spare=False))
    assert [stage.standbys for stage in planned(coordinator).stages] == [("c",), ()]
    for milli, standby in ((42, "c"), (9000, "d"), (21, "d")):  # what is held is not moved for little
        log = coordinator.submit(measured("c", Surroundings(milli), "abcd"))
        assert not any(isinstance(command, PlanProposed) for command in log)
        plan = planned(coordinator)
        assert [stage.peer for stage in plan.stages] == ["a", "b"]
        assert [stage.standbys for stage in plan.stages] == [(standby,), ()]


@pytest.mark.parametrize("relayed", [True, None])
def test_a_mesh_of_relays_alone_plans_and_says_so(relayed: bool | None) -> None:
    coordinator = mesh(dict.fromkeys("abcd", Surroundings(500)), relayed)
    plan = planned(coordinator)
    assert [stage.standbys for stage in plan.stages] == [("c",), ("d",)]
    request = plan_request(coordinator.state, UNITS)
    chosen = choose(request)
    assert isinstance(chosen, Plan)
    assert any(why.startswith(COPIES) and "relay" in why for why in chosen.why)
    direct = choose(plan_request(mesh(dict.fromkeys("abcd", Surroundings(500))).state, UNITS))
    assert isinstance(direct, Plan)
    assert not any(why.startswith(COPIES) for why in direct.why)


def test_a_plan_says_what_fails_together_and_shows_what_is_known() -> None:
    said = Surroundings(21, place("1"), "", ANNA)
    request = plan_request(mesh(dict.fromkeys("abcd", said), True).state, UNITS)
    plan = choose(request)
    assert isinstance(plan, Plan)
    lines = explain(request, plan)
    assert any("same machine, owner" in line for line in lines)
    assert f"a: leaves 0.021 times an hour, machine {said.machine[:24]}, owner {ANNA[:24]}" in lines
    assert "between a and b: through a relay" in lines


def test_what_the_log_says_of_a_peer_of_before_is_unknown() -> None:
    facts = plan_request(mesh({"a": UNKNOWN, "b": UNKNOWN}).state, UNITS).peers[0].facts
    assert facts.hazard_per_h is None
    assert facts.domains == ()


# --- links


def test_a_link_is_relayed_where_either_end_sees_it() -> None:
    here = link_words(Measured(0.01, 1e6, 0.0), False)
    there, back = both_ways("a", "b", here, replace(here, relayed=True))
    assert (there.relayed, back.relayed) == (True, True)
    before = replace(here, relayed=None)
    assert [link.relayed for link in both_ways("a", "b", before, before)] == [None, None]
    assert [link.relayed for link in both_ways("a", "b", before, here)] == [False, False]
    assert "relayed" not in MEASURE_LINK.answer_body(before)
    with pytest.raises(BadCommand, match="relayed"):
        MEASURE_LINK.read_answer({**MEASURE_LINK.answer_body(here), "relayed": 1})


def test_a_relay_that_comes_as_a_later_candidate_is_known_as_one() -> None:
    class Picked:
        def selected(self) -> tuple[End, End]:
            return End("192.168.1.5", 5000, "host"), End("192.0.2.1", 7000, "prflx")

    path = Path(Picked())
    path.own("v=0\r\n")
    path.other("v=0\r\n")
    assert path.relayed() is False
    path.other("candidate:1 1 udp 1 192.0.2.1 7000 typ relay raddr 0.0.0.0 rport 0")
    assert path.relayed() is True


# --- this machine


def test_this_machine_has_a_name_that_lasts() -> None:
    assert machine_name() == machine_name()


def test_a_system_without_readable_batteries_runs_on_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreadable() -> None:
        raise FileNotFoundError("/sys/class/power_supply")

    monkeypatch.setattr(psutil, "sensors_battery", unreadable, raising=False)
    assert not on_battery()


def test_power_is_looked_at_now_and_then_and_heat_is_remembered() -> None:
    battery, heat, reads = [False], [3], list[int]()

    def throttles() -> int:
        reads.append(1)
        return heat[0]

    power = Power(lambda: battery[0], throttles)
    assert power.conditions(0.0) == frozenset()
    battery[0], heat[0] = True, 4
    assert power.conditions(POWER_EVERY_S - 0.1) == frozenset()
    assert len(reads) == 2, "no file is read more often"
    assert power.conditions(POWER_EVERY_S) == {"battery", "throttled"}
    assert power.conditions(2 * POWER_EVERY_S + THROTTLED_FOR_S) == {"battery"}


class FakeDialer:
    """Descriptions by peer, as `peer.transport.dialer` keeps them."""

    def __init__(self) -> None:
        self.sdps = {"b": "a=candidate:1 1 udp 5 203.0.113.9 5000 typ srflx\r\n"}

    def connected_peers(self) -> tuple[str, ...]:
        return tuple(self.sdps)

    def own_description(self, peer: str) -> str:
        return self.sdps[peer]


def around(options: PeerOptions, battery: list[bool]) -> tuple[Around, Any]:
    coordinator = mesh({"p": UNKNOWN, "b": UNKNOWN})
    node = SimpleNamespace(me="p", state=coordinator.state, dialer=FakeDialer())
    power = Power(lambda: battery[0], lambda: 0)
    return Around(MESH, options, cast(Any, node), cast(Any, node), power), node


def test_what_a_peer_says_and_what_it_keeps_to_itself() -> None:
    network = hashed("network", MESH, "203.0.113.9")
    assert around(OPTIONS, [False])[0].seen(0.0) == Surroundings(21, place("box"), network, ANNA)
    hidden = around(replace(OPTIONS, relay_only=True, machine=""), [True])[0].seen(0.0)
    assert hidden == Surroundings(42, "", "", ANNA)
    assert around(replace(OPTIONS, older=True), [True])[0].seen(0.0) == UNKNOWN
    its, node = around(OPTIONS, [False])
    assert its.seen(0.0).network == network
    node.dialer.sdps.clear()
    assert its.seen(1.0).network == network, "it is where it was, though it is connected with nobody now"
    own = around(replace(OPTIONS, machine=None), [False])[0].seen(0.0)
    assert own.machine == hashed("machine", MESH, machine_name())


def test_a_pulled_charger_is_told_when_it_lasts_and_keeps_the_pace() -> None:
    battery = [False]
    its, node = around(OPTIONS, battery)
    said = its.seen(0.0)
    node.state = mesh({"p": said, "b": UNKNOWN}).state
    assert its.due(1.0) is None
    battery[0] = True
    assert its.due(10.0) is None
    command = its.due(10.0 + WORSE_MS / 1000)
    assert command is not None
    assert command.profile == replace(
        node.state.members["p"].profile, surroundings=replace(said, hazard_milli=42)
    )
    assert command.links == ()


def test_a_changed_hazard_is_no_changed_pace() -> None:
    state = mesh({"p": Surroundings(21), "b": UNKNOWN}).state
    pacing = Pacing("p", cast(Any, None), lambda: state, cast(Any, None))
    assert pacing._look(0.0) is None
    learned = pacing._pace
    state = mesh({"p": Surroundings(42), "b": UNKNOWN}).state
    assert pacing._look(1.0) is None
    assert pacing._pace is learned


def test_a_pace_that_a_word_on_surroundings_put_back_is_told_again() -> None:
    state = mesh({"p": Surroundings(42), "b": UNKNOWN}).state
    pacing = Pacing("p", cast(Any, None), lambda: state, cast(Any, None))
    assert pacing._look(0.0) is None
    assert pacing._measured is not None
    slower = replace(pacing._measured, step_ns=2000)
    pacing._told, pacing._told_s = slower, 10.0
    pacing._pace.told_milli, pacing._pace._worked = 4000, 10.0  # nor is it forgiven for want of work
    pacing._look(10.0 + LOST_S)  # the log may lag
    assert (pacing._told, pacing._pace.told_milli) == (slower, 4000)
    pacing._look(10.1 + LOST_S)
    assert (pacing._told, pacing._pace.told_milli) == (pacing._measured, 1000)


def test_names_of_owners_are_checked() -> None:
    assert known_as(" anna ") == "anna"
    for wrong in ("", "  ", "a\nb", "x" * 65):
        with pytest.raises(Exception, match="expected a name"):
            known_as(wrong)
