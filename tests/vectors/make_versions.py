"""Writes versions.json: which version two sides speak by their HELLOs, and links into conversations with proofs."""

from __future__ import annotations

from itertools import product
from typing import Any

from tracing import beside, written

from peer.conversation.entry_links import EntryLink, is_proven, split_link, used
from peer.errors import VersionMismatch
from peer.state.version_negotiation import Versions, announced, common, told
from peer.wire.generated.frames import Hello
from signaling.errors import WrongLink

PATH = beside(__file__, "versions.json")
SIDES = (Versions(3, 3), Versions(3, 4), Versions(4, 4), Versions(4, 6), Versions(5, 6))
AGENTS = (
    *("shoal/0.1 (aiortc)", "shoal/0.1 (aiortc) speaks 4", "speaks 4", " speaks 4", "a speaks 4 speaks 5"),
    *("a speaks 12345", "a speaks -1", "a speaks 4 ", "a\nb speaks 7", "a speaks 2"),
)
MESH, PEER = "mfrggzdfmztwq2lkmfrggzdfmztwq2lk", "ons2wyzaijyw63lpons2wyzaijyw63lp"
LINK = f"https://host/#{MESH}.secret"
SEED = bytes(range(32))


def hellos() -> list[dict[str, Any]]:
    rows = []
    for own, other in product(SIDES, SIDES):
        try:
            version = common(own, other)
        except VersionMismatch:
            version = 0
        rows.append(
            {
                "own": [own.lowest, own.highest],
                "other": [other.lowest, other.highest],
                "agent": announced(other, "p", "n", "shoal/0.1").agent,
                "version": version,
            }
        )
    return rows


def agents() -> list[dict[str, Any]]:
    rows = []
    for agent in AGENTS:
        spoken, hello = told(Hello(3, "p", "n", agent))
        rows.append({"agent": agent, "highest": spoken.highest, "name": hello.agent})
    return rows


def links() -> list[dict[str, Any]]:
    whole = EntryLink("c1", SEED).after(LINK)
    rows = []
    for link in (
        LINK,
        whole,
        whole[:-1],
        f"{whole}A",
        f"{LINK}&in=",
        f"{LINK}&in=c1",
        whole.replace("c1", "c/1"),
    ):
        try:
            _, entry = split_link(link)
            found = None if entry is None else [entry.conversation, entry.seed.hex()]
            rows.append({"words": link.removeprefix(LINK), "entry": found})
        except WrongLink:
            rows.append({"words": link.removeprefix(LINK), "entry": "wrong"})
    return rows


def proof() -> dict[str, Any]:
    said = used(EntryLink("c1", SEED), MESH, PEER, "Bo", "#cc6633")
    assert is_proven(MESH, said)
    assert not is_proven(PEER, said)
    return {"mesh": MESH, "peer": PEER, "seed": SEED.hex(), "key": said.key, "proof": said.proof}


def text() -> str:
    about = (
        "hellos: what one side speaks and another (lowest, highest), how that one's agent ends in HELLO, the version "
        "that both speak then (0: none). agents: of a HELLO whose protocol is 3. links: what stands behind a mesh's "
        "link, and conversation and seed of it. proof: of a peer that comes into the conversation c1 with that seed."
    )
    body = {"hellos": hellos(), "agents": agents(), "links": links(), "proof": [proof()]}
    return written(about, body)


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
