"""Members over real connections on loopback: hostile frames and requests end their sender's connection and no more."""

from __future__ import annotations

import asyncio
import json
import time
from dataclasses import replace
from typing import Any

import pytest

from peer.consensus.message_codec import encode as encode_message
from peer.consensus.messages import Append, Message
from peer.coordination.coordinator_service import MAX_COMMANDS, Coordinating
from peer.errors import BadCommand, ConnectFailed, ConnectionLost, MeshError
from peer.limits import LOWEST_VERSION
from peer.member.peer_parts import PeerParts
from peer.member.report_checks import shown_report
from peer.origin.session_host import Outcome
from peer.session.effects import Broken, Ended
from peer.session.origin import Ask, OriginSession
from peer.session.routes import Route
from peer.session.sampling import Sampling
from peer.state.display_names import names, plain, plain_lines
from peer.state.generated.commands import (
    LinkFacts,
    MemberJoined,
    MemberMeasured,
    Profile,
    UnitsHeld,
)
from peer.state.member_commands import encode_command
from peer.state.mesh_state import apply, decode_state, encode_state
from peer.transport.rpc import MAX_ANSWERING
from peer.wire.generated.frames import Consensus, Frame, Open, Refuse, Request, Token
from peer.wire.generated.requests import (
    LEADER,
    LEADER_REQUESTS,
    MEASURE_LINK,
    STATUS,
    LeaderAnswer,
    MeasureLinkAnswer,
)
from peer.wire.json_codec import Body
from tests.peer.loopback_members import MIB, coordinate, state_of, town, until

KINDS = {"embed": 1000, "attn": 2000, "ffn": 3000, "head": 4000}
PROFILE = Profile(200 * MIB, 10 * MIB, KINDS, KINDS, KINDS, 500, "cpu", 1)


def opening(origin: str, number: int, **change: Any) -> Open:
    sampling = tuple(Sampling().to_wire())
    session = number.to_bytes(16, "big")
    frame = Open(
        *(session, 1, 9, ("p",), 0, origin, 0, 1, 4, sampling, (), 0, 0),
        *(1, 0, 0, (1,), (), (), ()),
    )
    return replace(frame, **change)


# --- frames ----------------------------------------------------------------------------------------------------------


async def test_an_open_that_names_strangers_makes_nobody_dial_them() -> None:
    async with town() as here:
        node = here.add("p")
        node.view.obey(state_of("p"))
        for number in range(200):
            node.links.frame("evil", opening(f"stranger {number}", number))
        await asyncio.sleep(0)
        assert here.strangers == []
        assert node.links.dialer.connected_peers() == ()


async def test_frames_to_a_peer_that_runs_nothing_are_refused_to_their_sender() -> None:
    async with town() as here:
        node, evil = here.add("p"), here.add("evil")
        got: list[Frame] = []
        evil.links.start(lambda peer, frame: got.append(frame))
        await evil.links.dialer.dial("p")
        evil.links.dialer.send("p", opening("evil", 1))
        evil.links.dialer.send("p", Token(bytes(16), 1, 0, 5, 0))
        evil.links.dialer.send("p", Refuse(bytes(16), 1, 0, 0, 0, 200, "\x1b[2J"))
        await until(lambda: bool(got))
        assert isinstance(got[0], Refuse)
        assert "not served here" in got[0].message
        assert node.stage.core.sessions() == 0
        assert evil.links.dialer.connected_peers() == ("p",)


APPEND = Append(1, 0, 0, 0, ())


@pytest.mark.parametrize(
    ("body", "ends"),
    [
        (b"", True),
        (b"\x80", True),
        (b"\xff" * 100_000, True),
        (encode_message(Message("mesh", 1, "good", 1, 1, 9, APPEND)), True),
        (encode_message(Message("mesh", 1, "evil", 1, 1, 2**53 - 1, APPEND)), False),
        (encode_message(Message("other", 1, "evil", 1, 1, 2**53 - 1, APPEND)), False),
    ],
    ids=["nothing", "no message", "long", "of another", "no voter", "another mesh"],
)
async def test_a_peer_without_a_vote_moves_no_log(body: bytes, ends: bool) -> None:
    async with town() as here:
        node, evil, good = here.add("p"), here.add("evil"), here.add("good")
        coordinate(node)
        before, term = node.view.state, node.view.replica.term if node.view.replica is not None else 0
        await asyncio.gather(evil.links.dialer.dial("p"), good.links.dialer.dial("p"))
        ended: list[str] = []
        evil.links.on_gone(lambda peer, reason, polite: ended.append(reason))
        evil.links.dialer.send("p", Consensus(body))
        if ends:
            await until(lambda: bool(ended))
            assert "WrongField" in ended[0]
            assert node.links.dialer.connected_peers() == ("good",)
        else:
            with pytest.raises(MeshError, match="unknown"):
                await evil.links.call("p", replace(STATUS, method="nothing"), None)
        assert node.view.replica is not None
        assert (node.view.state, node.view.replica.term, node.view.replica.leads) == (before, term, True)


async def test_a_flood_of_requests_ends_that_connection_only() -> None:
    async with town() as here:
        node, evil, good = here.add("p"), here.add("evil"), here.add("good")
        never = asyncio.Event()

        async def slow(peer: str, _: None) -> LeaderAnswer:
            if peer == "evil":
                await never.wait()
            return LeaderAnswer("p", 1, 1, ())

        slowly = replace(LEADER, method="slowly")
        node.links.on(slowly, slow)
        await asyncio.gather(evil.links.dialer.dial("p"), good.links.dialer.dial("p"))
        for number in range(MAX_ANSWERING + 1):
            evil.links.dialer.send("p", Request(number, "slowly", b"{}"))
        await until(lambda: node.links.dialer.connected_peers() == ("good",))
        assert (await good.links.call("p", slowly, None)).leader == "p"


async def test_one_measurement_of_a_link_at_a_time() -> None:
    async with town() as here:
        here.add("p")
        evil = here.add("evil")
        await evil.links.dialer.dial("p")
        asked = [evil.links.call("p", MEASURE_LINK, None) for _ in range(5)]
        answers = await asyncio.gather(*asked, return_exceptions=True)
        assert sum(isinstance(answer, MeasureLinkAnswer) for answer in answers) == 1
        assert sum(isinstance(answer, MeshError) for answer in answers) == 4


# --- the coordinator -------------------------------------------------------------------------------------------------


def measured(**change: Any) -> dict[str, str]:
    profile = replace(PROFILE, **change)
    return {"command": encode_command(MemberMeasured("evil", profile, ())).decode()}


def joining(**change: Any) -> dict[str, Any]:
    asked = {"name": "x", "compute": True, "protocol": LOWEST_VERSION, "incarnation": 9, "epoch": 1}
    return {**asked, "fresh": True, "headless": True, "durable": False, **change}


def linked(*links: LinkFacts) -> dict[str, str]:
    return {"command": encode_command(MemberMeasured("evil", PROFILE, links)).decode()}


@pytest.mark.parametrize(
    ("method", "body", "word"),
    [
        ("join", {"name": "\ud800", "compute": True, "protocol": LOWEST_VERSION}, "name"),
        ("join", {"name": "\x1b]0;you\x07", "compute": True, "protocol": LOWEST_VERSION}, "control"),
        ("join", {"name": "x", "compute": True, "protocol": 2}, "update"),
        ("join", joining(incarnation=0), "incarnation"),
        ("join", joining(incarnation=True), "incarnation"),
        ("join", joining(durable=1), "durable"),
        ("join", joining(incarnation=2**53), "incarnation"),
        ("join", joining(fresh=False), "life"),
        ("join", {**joining(), "epoch": 7}, "epoch"),
        ("propose", {"command": encode_command(MemberJoined("x", "x", True)).decode()}, "coordinator's"),
        ("join", {"name": "x" * 65, "compute": True, "protocol": LOWEST_VERSION}, "64"),
        ("join", {"name": 7, "compute": True, "protocol": LOWEST_VERSION}, "name"),
        ("join", {"name": "x", "compute": 1, "protocol": LOWEST_VERSION}, "compute"),
        ("measured", {"command": 7}, "text"),
        ("measured", {"command": "\ud800"}, "text"),
        ("measured", {"command": json.dumps({"kind": "MemberJoined"})}, "fields"),
        ("measured", measured(provider="\\ud800"), "string"),
        ("measured", measured(decode_ns={"attn": 1}), "missing"),
        ("measured", measured(batch_ns={f"{number}" * 50: 1 for number in range(1000)}), "only"),
        ("measured", measured(decode_ns=dict.fromkeys(KINDS, 2**53 - 1)), "seconds|times"),
        ("measured", measured(memory_bytes=2**53 - 1, overhead_bytes=2**53 - 1), ""),
        ("measured", linked(LinkFacts("p", "good", 1, 1, 1)), "links"),
        ("held", {"command": encode_command(UnitsHeld("evil", ((0, 2**53 - 1),))).decode()}, "runs"),
        ("held", {"command": encode_command(UnitsHeld("evil", ((0, 1),) * 9)).decode()}, "runs"),
        ("held", {"command": encode_command(UnitsHeld("good", ((0, 1),))).decode()}, "itself|says"),
        ("paused", {"why": "\ud800\x1b[2J" * 1000}, "why"),
        ("paused", {"why": "\x1b[2J" * 100}, ""),
    ],
)
async def test_whatever_a_member_says_the_log_and_the_planner_go_on(
    method: str, body: dict[str, Any], word: str
) -> None:
    async with town() as here:
        node = here.add("p")
        coordinating = coordinate(node)
        coordinating.submit(MemberMeasured("p", PROFILE, ()))
        coordinating.submit(MemberJoined("evil", "evil", True))
        coordinating.submit(MemberJoined("good", "good", True))
        text = json.dumps(body).replace(
            "\\\\\\\\ud800", "\\\\ud800"
        )  # as a lone surrogate inside the command
        asked = json.loads(text)
        if word:
            with pytest.raises(MeshError, match=word):
                told(coordinating, "evil", method, asked)
        else:
            told(coordinating, "evil", method, asked)
        await coordinating.settled()
        assert (
            decode_state(encode_state(node.view.state)) == node.view.state
        )  # whoever joins now gets a snapshot
        both = (LinkFacts("good", "p", 500, 10**8, 0), LinkFacts("p", "good", 500, 10**8, 0))
        absurd = LinkFacts("good", "evil", 2**53 - 1, 0, 0)
        said = MemberMeasured("good", PROFILE, (*both, absurd, LinkFacts("good", "gone", 1, 1, 1)))
        told(coordinating, "good", "measured", {"command": encode_command(said).decode()})
        assert set(both) <= set(node.view.state.links)
        assert absurd not in node.view.state.links
        await until(lambda: node.view.state.proposed is not None or node.view.state.plan is not None)
        coordinating.gone("evil", "lost")
        await coordinating.close()


def told(coordinating: Coordinating, peer: str, method: str, body: Body) -> None:
    """As the body comes from a peer."""
    kind = next(kind for kind in LEADER_REQUESTS if kind.method == method)
    coordinating.answer(peer, kind, kind.read(body))


async def test_reports_in_floods_are_refused_and_repeated_ones_tell_nobody() -> None:
    async with town() as here:
        node = here.add("p")
        coordinating = coordinate(node)
        for peer in ("evil", "good"):
            coordinating.submit(MemberJoined(peer, peer, True))
        before = node.view.state.index
        held = {"command": encode_command(UnitsHeld("evil", ())).decode()}
        for _ in range(MAX_COMMANDS):
            told(coordinating, "evil", "held", held)
        assert node.view.state.index == before
        with pytest.raises(BadCommand, match="slow down"):
            told(coordinating, "evil", "held", held)
        told(coordinating, "good", "leaving", {})
        told(coordinating, "good", "leaving", {})
        assert node.view.state.index == before + 1


# --- sessions and connections ----------------------------------------------------------------------------------------


def asked(node: PeerParts) -> tuple[OriginSession, list[Outcome]]:
    """A session that waits for the answer of a peer that never answers."""
    core, heard = OriginSession(bytes(16), node.me), list[Outcome]()
    node.sessions.attach(core, heard.append)
    route = Route(1, ("far",))
    node.sessions.perform(core.session, core.begin(time.monotonic(), route, Ask((1, 2), 5, Sampling(), ())))
    return core, heard


async def test_whoever_listens_hears_the_end_however_it_comes() -> None:
    async with town() as here:
        node = here.add("p")
        core, heard = asked(node)
        node.sessions.detach(core.session)
        assert heard == [Ended("cancelled")]
        assert not node.sessions.attached(core.session)
        core, heard = asked(node)
        await node.close("left")
        assert [type(outcome) for outcome in heard] == [Broken]


async def test_a_newer_connection_tells_that_the_older_one_is_gone() -> None:
    async with town() as here:
        node, first = here.add("p"), here.add("q")
        await first.links.dialer.dial("p")
        await until(lambda: node.links.dialer.connected_peers() == ("q",))
        gone: list[str] = []
        node.links.on_gone(lambda peer, reason, polite: gone.append(f"{peer}: {reason}"))
        second = here.add("q", beside=True)
        await second.links.dialer.dial("p")
        await until(lambda: bool(gone))
        assert gone == ["q: replaced by a newer connection"]
        assert node.links.dialer.connected_peers() == ("q",)
        await second.close("left")


async def test_two_that_dial_each_other_at_once_have_one_connection() -> None:
    async with town() as here:
        a, b = here.add("a"), here.add("b")
        gone: list[str] = []
        for node in (a, b):
            node.links.on_gone(lambda peer, reason, polite: gone.append(reason))
        await asyncio.gather(a.links.dialer.dial("b"), b.links.dialer.dial("a"))
        assert a.links.dialer.connected_peers() == ("b",)
        assert b.links.dialer.connected_peers() == ("a",)
        assert gone == []


async def test_nothing_is_kept_of_peers_that_came_and_went() -> None:
    async with town() as here:
        node = here.add("p")
        tasks = len(asyncio.all_tasks())
        for number in range(8):
            guest = here.add(f"guest {number}")
            await guest.links.dialer.dial("p")
            await until(lambda: bool(node.links.dialer.connected_peers()))
            await guest.close("left")
            await until(lambda: not node.links.dialer.connected_peers())
            del here.nodes[f"guest {number}"]
        with pytest.raises(ConnectFailed):
            await node.links.dialer.dial("nobody")
        with pytest.raises(ConnectionLost, match="no member"):
            node.links.send("nobody", Token(bytes(16), 1, 0, 5, 0))
        await until(lambda: len(asyncio.all_tasks()) <= tasks)
        assert not node.links.dialer._lines
        assert not node.links.dialer._by_id


# --- what people see -------------------------------------------------------------------------------------------------


def test_names_and_texts_of_others_move_no_cursor() -> None:
    state = state_of("a", "b")
    state = apply(state, MemberJoined("a", "\x1b[31mroot\x07\r\n\u202e", True))
    assert names(state.members)["a"] == "\ufffd[31mroot\ufffd\ufffd\ufffd\ufffd"
    assert plain("Zoë's 笔记本 👩‍💻") == "Zoë's 笔记本 👩‍💻"
    assert plain_lines("a\tb\nc\x1b]0;x\x07\x9b") == "a\tb\nc\ufffd]0;x\ufffd\ufffd"


GOOD_REPORT: dict[str, Any] = {
    **dict.fromkeys(("rss_bytes", "weight_bytes", "kv_bytes", "pledge_bytes", "sessions", "active"), 1),
    "steps": 1,
    "tokens": 2,
    "tokens_per_s_milli": 3,
    "runs": [[0, 2]],
    "rtt_us": {"a": 5},
    "breakers": [["a", "open"], ["a>b", "half-open"]],
    "fresh": ["a"],
    "step_us": [[0, 9, 21_500]],
    "name": "a",
    "agent": "shoal",
}


@pytest.mark.parametrize(
    "change",
    [
        {"runs": 5},
        {"runs": [[1]]},
        {"runs": [["a", "b"]]},
        {"rtt_us": []},
        {"rtt_us": {"a": "b"}},
        {"tokens": -1},
        {"breakers": {}},
        {"breakers": [["a"]]},
        {"breakers": [["a", "ajar"]]},
        {"breakers": [[1, "open"]]},
        {"breakers": [["a", "open"]] * 2000},
        {"fresh": "a"},
        {"fresh": [1]},
        {"fresh": ["a"] * 2000},
        {"step_us": {}},
        {"step_us": [[0, 9]]},
        {"step_us": [[0, 9, 1]] * 2000},
    ],
)
def test_a_status_of_the_wrong_shape_is_no_status(change: dict[str, Any]) -> None:
    assert shown_report(STATUS.read_answer({**GOOD_REPORT, "more": "x"})) == GOOD_REPORT
    with pytest.raises(BadCommand):
        shown_report(STATUS.read_answer({**GOOD_REPORT, **change}))
