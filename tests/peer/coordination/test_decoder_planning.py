"""Further models for words, at who leads: planned with what others leave, refused by missing bytes, moved."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from types import SimpleNamespace
from typing import cast

import pytest

from peer.coordination.coordinator import Coordinator
from peer.coordination.coordinator_service import Coordinating
from peer.coordination.decoder_planning import Sharing, planned_with, taken_bytes, weights_of
from peer.coordination.decoder_planning_service import DecoderPlanning
from peer.errors import BadCommand, CannotServe
from peer.replication.leader_client import spelled
from peer.state.decoder_sight import seen_as
from peer.state.generated.commands import (
    DecoderHeld,
    DecoderOffered,
    MemberLeft,
    ModelWithdrawn,
    RoleGiven,
)
from peer.state.mesh_state import MeshState
from peer.state.plan_record import holders_of
from peer.wire.generated.requests import HELD, HeldRequest
from planner.model.manifest import Manifest
from planner.types import Unit
from tests.patience import WITHIN_S
from tests.peer.coordination.no_log import NoLog
from tests.peer.coordination.offered_models import MIB, grown, member, mesh

KINDS = ("embed", "attn", "ffn", "head")
OWN = tuple(Unit(kind, kind, 0, 1000, 0, 4) for kind in KINDS)


def units(mib: int) -> tuple[Unit, ...]:
    """Four units of so many MiB each, with twice the work of the mesh's own."""
    return tuple(Unit(f"{kind}", kind, mib * MIB, 2000, 0, 64) for kind in KINDS)


SMALL, LARGE, LOST, TWIN, TUNED = ("b" * 64, "c" * 64, "d" * 64, "e" * 64, "f" * 64)
KNOWN = {SMALL: units(10), LARGE: units(500), TWIN: units(10), TUNED: units(10)}
BLOBS = {SMALL: "same", LARGE: "large", TWIN: "same", TUNED: "tuned"}


def speaks(peer: str) -> int:
    return 7 if peer == "old" else 8


def offer(name: str, model: str = SMALL) -> DecoderOffered:
    return DecoderOffered(name, model, 4, 128, 2, "latency")


async def manifest_of(model: str) -> Manifest:
    if model not in KNOWN:
        raise CannotServe("the store does not have it")
    graph, blob = SimpleNamespace(sha256="graph"), SimpleNamespace(sha256=BLOBS[model])
    stored = [SimpleNamespace(kind=kind, graph=graph, blob=blob, tensors=(), kv=()) for kind in KINDS]
    numbers = {"weights": "f32", "vocab": 9, "hidden": 4, "context": 128, "scratch": 1, "rotary": ()}
    made = SimpleNamespace(planner_units=lambda: KNOWN[model], units=tuple(stored), **numbers)
    return cast(Manifest, made)


@asynccontextmanager
async def led(state: MeshState) -> AsyncIterator[Coordinating]:
    """A mesh that `a` owns and leads; everybody speaks the newest version."""
    planning = partial(DecoderPlanning, "a", manifest_of, OWN, None, speaks)
    core = Coordinator("a", OWN, None, grown(state, RoleGiven("a", "owner")))
    made = Coordinating(core, NoLog(), lambda _: True, decoders=planning)
    made.begin("")
    try:
        yield made
    finally:
        await made.close()


async def until(holds: Callable[[], bool]) -> None:
    async with asyncio.timeout(WITHIN_S):
        while not holds():  # noqa: ASYNC110 - what is waited for is told by many events
            await asyncio.sleep(0.005)


async def loaded(made: Coordinating, name: str) -> None:
    """Waits for a plan, and has its peers hold what it gives them, as they say themselves."""
    await until(lambda: made.state.decoders[name].proposed is not None)
    plan = made.state.decoders[name].proposed
    assert plan is not None
    for peer, runs in sorted(holders_of(plan).items()):
        said = DecoderHeld(name, peer, tuple(sorted(runs)))
        made.answer(peer, HELD, HeldRequest(spelled(said)))
    await until(lambda: seen_as(made.state, name).serving() is not None)


async def test_a_further_model_is_planned_held_and_planned_anew_after_a_loss() -> None:
    async with led(mesh(a=30, b=30, c=60)) as made:
        made.submit(offer("more"))
        await loaded(made, "more")
        decoder = made.state.decoders["more"]
        assert decoder.plan is not None
        assert decoder.plan.version > 2**19
        first = decoder.plan.stages[0].primary
        assert first != "a" or len(decoder.plan.stages) > 1, "the mesh's own model has a part of it"
        made.submit(MemberLeft("c", "lost"))
        await until(lambda: made.state.decoders["more"].proposed is not None)
        again = made.state.decoders["more"].proposed
        assert again is not None
        assert again.version > decoder.plan.version
        assert {stage.primary for stage in again.stages} == {"a", "b"}
        made.submit(ModelWithdrawn("more"))
        assert made.state.decoders == {}


async def test_each_has_what_the_others_leave_and_one_that_nobody_can_hold_leaves_them_alone() -> None:
    async with led(mesh(a=30, b=60, c=60)) as made:
        made.submit(offer("more"))
        await loaded(made, "more")
        made.submit(offer("large", LARGE))
        await until(lambda: made.state.decoders["large"].refused != "")
        assert "MiB" in made.state.decoders["large"].refused
        made.submit(offer("most", TUNED))
        await loaded(made, "most")
        assert seen_as(made.state, "more").serving() is not None
        lent = {
            peer: found.profile.memory_bytes for peer, found in made.state.members.items() if found.profile
        }
        assert all(taken + MIB <= lent[peer] for peer, taken in taken_bytes(made.state).items())


async def sharing_of(made: Coordinating) -> Sharing:
    models = {name: decoder.model for name, decoder in made.state.decoders.items()}
    return Sharing({name: weights_of(await manifest_of(model)) for name, model in models.items()}, speaks)


async def test_a_model_fits_that_has_its_weights_loaded_by_another_and_no_third_takes_their_place() -> None:
    async with led(mesh(a=20, b=60)) as made:
        made.submit(offer("more"))
        await loaded(made, "more")
        made.submit(offer("tuned", TUNED))  # as large, with other weights
        await until(lambda: made.state.decoders["tuned"].refused != "")
        assert "MiB" in made.state.decoders["tuned"].refused
        made.submit(ModelWithdrawn("tuned"))
        made.submit(offer("twin", TWIN))
        await loaded(made, "twin")
        plan = made.state.decoders["twin"].plan
        assert plan is not None
        assert [(s.primary, s.first, s.stop) for s in plan.stages] == [("b", 0, 4)]
        taken = taken_bytes(made.state, sharing=await sharing_of(made))
        assert taken["b"] == 50 * MIB, "all units of one, and the embedding of the other"
        assert taken_bytes(made.state)["b"] == 80 * MIB
        made.submit(ModelWithdrawn("more"))
        assert taken_bytes(made.state, sharing=await sharing_of(made))["b"] == 40 * MIB
        assert seen_as(made.state, "twin").serving() is not None


async def test_what_a_model_lacks_is_said_without_what_others_have_loaded_of_it() -> None:
    async with led(mesh(a=10, b=45)) as made:
        made.submit(offer("more"))
        await loaded(made, "more")
        made.submit(offer("twin", TWIN))
        await until(lambda: made.state.decoders["twin"].refused != "")
        assert "needs at most 6 MiB more on b" in made.state.decoders["twin"].refused


@pytest.mark.parametrize(
    ("peer", "provider", "shares"), [("b", "cpu", True), ("old", "cpu", False), ("b", "wasm", True)]
)
async def test_weights_are_shared_where_peers_load_them_once(peer: str, provider: str, shares: bool) -> None:
    state = grown(mesh(a=20), *member(peer, 60, ["a"], provider=provider))
    async with led(state) as made:
        made.submit(offer("more"))
        await loaded(made, "more")
        made.submit(offer("twin", TWIN))
        await until(
            lambda: (
                made.state.decoders["twin"].proposed is not None or made.state.decoders["twin"].refused != ""
            )
        )
        assert (made.state.decoders["twin"].refused == "") == shares


async def test_a_manifest_that_cannot_be_had_is_said() -> None:
    async with led(mesh(a=30)) as made:
        made.submit(offer("lost", LOST))
        await until(lambda: made.state.decoders["lost"].refused != "")
        assert made.state.decoders["lost"].refused == (
            "its manifest cannot be had: the store does not have it"
        )


async def test_what_is_held_is_for_who_holds_it_to_say() -> None:
    async with led(mesh(a=30, b=30)) as made:
        made.submit(offer("more"))
        for said, why in (
            (DecoderHeld("more", "a", ((0, 4),)), "what a member that computes says of itself"),
            (DecoderHeld("more", "b", ((0, 5),)), "runs of the 4 units of more"),
            (DecoderHeld("none", "b", ((0, 1),)), "runs of the 0 units of none"),
        ):
            with pytest.raises(BadCommand, match=why):
                made.answer("b", HELD, HeldRequest(spelled(said)))


def test_a_further_model_is_planned_with_peers_of_the_newest_version_and_its_own_times() -> None:
    state = grown(mesh(a=30, b=30, c=30), *member("t", 30, provider="wasm"), offer("more"))
    seen = planned_with(state, "more", units(10), OWN, lambda peer: 5 if peer == "c" else 6)
    assert [peer for peer, each in seen.members.items() if each.compute] == ["a", "b", "t"]
    before, now = state.members["b"].profile, seen.members["b"].profile
    assert before is not None
    assert now is not None
    assert now.decode_ns == {kind: 2 * ns for kind, ns in before.decode_ns.items()}
    own = seen.members["a"].profile
    assert own is not None
    assert own.memory_bytes == 29 * MIB, "the mesh's own model has 1 MiB there"
