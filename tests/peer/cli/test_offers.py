"""`shoal offer` and `shoal withdraw`: who may, what is refused in which words, and what is said of where it runs."""

from __future__ import annotations

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

import pytest

from peer.cli.main import main
from peer.cli.offers import give, take_back
from peer.errors import BadCommand, CannotServe
from peer.launch.offered_models import offer_beside, offer_of
from peer.launch.served_models import offer_line, offers_shown
from peer.member.mesh_member import MeshMember
from peer.model.fetcher import Fetcher
from peer.state.generated.commands import ModelOffered, ModelPlaced, ModelWithdrawn, RoleGiven, RunStage
from peer.state.member_commands import Command
from peer.state.mesh_state import MeshState, apply
from signaling.invites import Role, make_invite
from signaling.keys import identity_from_seed
from tests.peer.town import MODEL, Town, town

LINK = make_invite(identity_from_seed(bytes(32)), "http://127.0.0.1:1", bytes(32), Role.PEER, 0, 0)[0].url()
MANIFEST = b"{}"
OCR = ModelOffered(hashlib.sha256(MANIFEST).hexdigest(), "ocr")
STAGES = (RunStage(0, 3, "a", ("q",), 12 << 20), RunStage(3, 4, "q", (), 5 << 20))


class Server:
    """The store of a mesh's signaling server, as a fetcher sees it."""

    def __init__(self, body: bytes | None = MANIFEST) -> None:
        self.body = body

    async def beside(self, model: str, name: str, most: int) -> bytes | None:
        assert (model, name) == (OCR.model, "manifest.json")
        return self.body


@asynccontextmanager
async def owned() -> AsyncIterator[tuple[Town, MeshMember, MeshMember]]:
    """A mesh that `a` owns and leads, and `q`, who asks."""
    async with town() as here:
        founder = await here.found("a")
        asker = await here.join("q", compute=False)
        await say(founder, RoleGiven("a", "owner"))
        await asker.view.until(lambda state: "a" in state.people.roles, 20.0)
        yield here, founder, asker


async def say(leader: MeshMember, command: Command) -> None:
    assert leader.leadership.current is not None
    leader.leadership.current.submit(command)
    await leader.leadership.current.settled()


async def offer(mesh: MeshMember, wanted: ModelOffered = OCR, body: bytes | None = MANIFEST) -> str:
    return await give(mesh, wanted, cast(Fetcher, Server(body)), 0.05)


async def test_a_founder_offers_what_it_was_started_with_once() -> None:
    async with owned() as (_, founder, _asker):
        await offer_beside(founder, OCR)
        await founder.view.until(lambda state: "ocr" in state.offers, 20.0)
        await offer_beside(founder, OCR)  # as when it starts again with a mesh that it keeps
        with pytest.raises(BadCommand, match="is called ocr already"):
            await offer_beside(founder, ModelOffered("f" * 64, "ocr"))


async def test_an_owner_offers_and_withdraws() -> None:
    async with owned() as (_, founder, asker):
        with pytest.raises(CannotServe, match=r"runs nowhere: .*; it stays offered"):
            await offer(founder)  # nobody places here
        await say(founder, ModelPlaced("ocr", 99, STAGES, 12_340, 81_000, ()))
        assert await offer(founder) == (
            "offers ocr: a runs units 0-2 (12.0 MiB, standby q), q runs unit 3 (5.0 MiB); 12.3 ms a run, 81.0 runs/s"
        ), "what is offered already is told again"
        for wanted, why in (
            (ModelOffered("f" * 64, "ocr"), "is called ocr already"),
            (ModelOffered(OCR.model, MODEL.name), f"is called {MODEL.name} already"),
        ):
            with pytest.raises(BadCommand, match=why):
                await offer(founder, wanted)
        with pytest.raises(BadCommand, match="only an owner offers"):
            await offer(asker)
        with pytest.raises(BadCommand, match="only an owner offers"):
            await take_back(asker, ModelWithdrawn("ocr"))
        with pytest.raises(BadCommand, match="under the name text; offered: ocr"):
            await take_back(founder, ModelWithdrawn("text"))
        assert await take_back(founder, ModelWithdrawn("ocr")) == "ocr is not offered any more"
        assert founder.view.state.offers == {}


@pytest.mark.parametrize("body", [None, b"{} "])
async def test_the_server_of_the_mesh_must_have_the_model(body: bytes | None) -> None:
    async with owned() as (_, founder, _asker):
        with pytest.raises(BadCommand, match=r"does not have the model .*: run shoal import on its machine"):
            await offer(founder, body=body)
        assert founder.view.state.offers == {}


async def test_an_older_voter_is_in_the_way() -> None:
    async with owned() as (here, founder, asker):
        here.spoken["a"] = 4
        with pytest.raises(BadCommand, match="speaks protocol 4, and this needs 5: update it first"):
            await offer(founder)
        assert asker.view.state.offers == {}


def test_a_model_whose_own_name_is_none_needs_another_one() -> None:
    assert offer_of("b" * 64, "PP-OCRv4_det") == ModelOffered("b" * 64, "PP-OCRv4_det")
    with pytest.raises(BadCommand, match=r"calls itself 'My Model'.*with --name"):
        offer_of("b" * 64, "My Model")


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("offer", LINK, "x.onnx", "--name", "a b"), "argument --name: expected a name of 1 to 64 letters"),
        (("offer", LINK), "MODEL"),
        (("withdraw", LINK, ".."), "argument NAME: expected a name of 1 to 64 letters"),
        (("withdraw", LINK), "NAME"),
    ],
)
def test_wrong_arguments(words: tuple[str, ...], why: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(words)
    assert ended.value.code == 2
    assert why in capsys.readouterr().err.splitlines()[0]


def test_what_is_no_model_is_one_line(capsys: pytest.CaptureFixture[str], tmp_path: object) -> None:
    assert main(("offer", LINK, f"{tmp_path}/none.onnx", "--store", f"{tmp_path}")) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert "none.onnx" in line
    assert main(("offer", LINK, f"{tmp_path}/none.onnx", "--wait", "-1")) == 1
    assert "--wait: expected seconds" in capsys.readouterr().err


def test_offers_as_people_and_programs_read_them() -> None:
    state = MeshState()
    for command in (
        ModelOffered("b" * 64, "x"),
        ModelOffered("b" * 64, "a"),
        ModelPlaced("x", 1, (), 0, 0, ("needs 5 MiB more on pb",)),
    ):
        state = apply(state, command)
    assert [each["name"] for each in offers_shown(state)] == ["a", "x"]
    waits, lacks = offers_shown(state)
    assert (
        offer_line("a", waits, {}) == "offers a, which runs nowhere: the mesh has found no place for it yet"
    )
    assert offer_line("x", lacks, {}) == "offers x, which runs nowhere: needs 5 MiB more on pb"
    assert (lacks["model_id"], lacks["version"], lacks["stages"]) == ("b" * 64, 1, [])
