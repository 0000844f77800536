"""A question about a picture in a mesh of three processes: the tower on one, the decoder on two, whoever is killed."""

from __future__ import annotations

import asyncio
import signal
from base64 import b64encode
from collections.abc import Callable
from contextlib import AsyncExitStack, aclosing
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI, BadRequestError, NotFoundError

from peer.api import Mesh
from peer.errors import BadCommand, BadPicture, NoPlan
from peer.gateway.server import GatewayOptions, gateway
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.sight import placed
from peer.model.pictures import prepared
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.graph_runtime import GraphRuntime
from peer.runtime.kv_slots import KvSlots
from peer.session.given_rows import shift_at, shifted
from peer.wire.generated.frames import Open
from peer.wire.tensors import Tensor
from planner.model.compose import compose
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.e2e.chat_clients_run import chat_clients_say
from tests.e2e.command import Running, run, running
from tests.e2e.pictures import PICTURE, png
from tests.e2e.real_mesh import options
from tests.patience import WITHIN_S
from tests.planner.importers.vision.checkpoints import IMAGE, load, picture_of

WORDS = "w10 w11 w13"  # whose answer is long
TOKENS = 100
NAME = "seeing"
LEND = ("--memory", "1GiB", "--bind", "127.0.0.1", "--threads", "1")


OTHER = png(picture_of("llava")[::-1])
CASES = (
    "qwen2.5-vl",
    pytest.param("llava", marks=pytest.mark.soak),
)  # pictures that keep their form, and squares


def question(file: bytes) -> list[dict[str, Any]]:
    return [{"role": "user", "content": [{"type": "image", "image": file}, {"type": "text", "text": WORDS}]}]


def unsplit(store: Store, model: str, file: bytes) -> list[int]:
    """The greedy tokens of the whole model in this process, up to and with one that ends the answer."""
    manifest = decode_manifest(store.manifest_bytes(model))
    assert manifest.sight is not None
    towers = decode_graph_manifest(store.manifest_bytes(manifest.sight.model))
    assert towers.picture is not None
    pixels = prepared(None, file, store.blob_path(towers.picture.graph.sha256).read_bytes())
    composed = compose(towers, store, 0, len(towers.units))
    tower = GraphRuntime(composed, store.root / "blobs", 1, fused=towers.fused)
    rows, shift = tower.run({towers.picture.input: pixels})["rows"][0], 0
    prompt = np.array([3, *[IMAGE] * len(rows), 10, 11, 13, 9])  # a role is a word that the tokenizer has not
    if manifest.sight.axes > 1:
        high, wide = (side // manifest.sight.square for side in pixels.shape[2:])
        given = placed(1, rows, (high, wide), ())
        rows, shift = given.tensor.array(), shift_at([given], given.stop)
    form = proven(store, manifest, "cpu", 1).form
    shard = make_shard(manifest, store, 0, len(manifest.units), exact=form.plain)
    execution = Execution(shard, threads=1, context=manifest.context, form=form)
    slots = KvSlots(1, manifest.context, form)
    slots.admit(b"0")
    execution.ensure(slots, 1, len(prompt) + TOKENS + form.spare_tokens)
    hidden = shifted(execution.embed(prompt), shift)
    hidden[:1] = execution.embed(prompt[:1])
    hidden[prompt == IMAGE] = rows
    made, tokens = execution.prompt(hidden, Row(0, 0)).copy(), []
    for at in range(TOKENS):
        token = int(execution.head(made[-1:])[0].argmax())
        tokens.append(token)
        if token in manifest.end_tokens:
            break
        embedded = shifted(execution.embed(np.array(tokens[-1:])), shift)
        made = execution.alone(embedded, Row(0, len(prompt) + at)).copy()
    execution.close()
    return tokens


async def answer(
    mesh: Mesh, file: bytes, at: int = -1, action: Callable[[], None] = lambda: None
) -> list[int]:
    """The tokens of an answer; `action` is done when `at` of them are here."""
    got: list[int] = []
    pieces = mesh.chat(question(file), temperature=0, max_tokens=TOKENS)
    async with aclosing(pieces):
        async for piece in pieces:
            if piece.id >= 0:
                got.append(piece.id)
            if len(got) == at:
                action()
    return got


class Town:
    """The mesh, as who asks it sees it."""

    def __init__(self, member: MeshMember, processes: dict[str, Running]) -> None:
        self.member = member
        self.processes = processes
        self.route: set[str] = set()  # of the last turn
        member.sessions.subscribe(self)

    def name(self, peer: str) -> str:
        member = self.member.view.state.members.get(peer)
        return member.name if member is not None else ""

    def where(self) -> tuple[list[str], set[str]]:
        """Who runs the stages of the decoder, in order, and who those of the towers."""
        state = self.member.view.state
        plan = state.serving()
        offers = [stage.primary for offer in state.offers.values() for stage in offer.stages]
        stages = [self.name(stage.primary) for stage in plan.stages] if plan is not None else []
        return stages, {self.name(peer) for peer in offers}

    def opened(self, frame: Open) -> None:
        self.route = {self.name(peer) for peer in frame.route}

    def emitted(self, session: bytes, position: int) -> None:
        pass

    def ended(self, session: bytes) -> None:
        pass

    def returned(self, session: bytes, position: int, state: Tensor) -> None:
        pass

    def kill(self, name: str) -> None:
        self.processes[name].process.send_signal(signal.SIGKILL)

    async def until(self, holds: Callable[[], bool]) -> None:
        assert await self.member.view.until(lambda _: holds(), WITHIN_S), self.where()


@pytest.mark.parametrize("case", CASES)
async def test_an_answer_about_a_picture_survives_whoever_is_killed(case: str, tmp_path: Path) -> None:
    """The tower's peer after the prompt, then one of the decoder: the same tokens as the whole model in one process."""
    checkpoint = load(case)
    folder, clip = checkpoint.write(tmp_path / NAME), load("clip").write(tmp_path / "clip")
    async with AsyncExitStack() as stack:
        meeting = stack.enter_context(
            running(tmp_path, "signaling", "--port", "0", "--store", tmp_path / "store")
        ).until(r"^http://\S+")[0]
        serve = (
            "serve",
            folder,
            clip,
            "--weights",
            "f32",
            "--context",
            "128",
            "--name",
            "founder",
            "--sessions",
            "2",
        )
        serve += ("--component", "low=0-2@founder", "--component", "high=3-5@one", "--signaling", meeting)
        founder = stack.enter_context(running(tmp_path, *serve, "--store", tmp_path / "store", *LEND))
        link = founder.until(r"http://\S+#\S+")[0]
        processes = {"founder": founder}
        for name in ("one", "two"):
            where = ("--state", tmp_path / name, "--store", tmp_path / f"{name}-store")
            processes[name] = stack.enter_context(
                running(tmp_path, "join", link, "--name", name, *where, *LEND)
            )
        joining = join(link, options("asker", 0), Store(tmp_path / "other"))
        member = await stack.enter_async_context(joining)
        town, mesh = Town(member, processes), Mesh(member)
        await town.until(lambda: town.where() == (["founder", "one"], {"two"}))
        store = Store(tmp_path / "store")
        chosen = member.view.chosen
        expected = unsplit(store, chosen.model, PICTURE)
        assert unsplit(store, chosen.model, OTHER) != expected
        assert await answer(mesh, PICTURE) == expected
        assert await answer(mesh, OTHER) != expected
        with pytest.raises(BadPicture, match="and this cannot be read"):
            await answer(mesh, b"no picture")
        await _labels(mesh, store)
        url = await stack.enter_async_context(gateway(member, GatewayOptions(port=0), None))
        await _over_http(stack, mesh, url)
        await _in_a_terminal(tmp_path, link)

        assert await answer(mesh, PICTURE, 3, lambda: town.kill("two")) == expected
        await town.until(lambda: bool(town.where()[1]) and "two" not in town.where()[1])
        assert await answer(mesh, PICTURE, 3, lambda: town.kill("one")) == expected
        assert town.route == {"founder"}, "the answer went on without who was killed"


async def _labels(mesh: Mesh, store: Store) -> None:
    """CLIP's two towers say which label fits, as they do in one process."""
    member, labels = mesh.member, ["w5 w6 w3", "w7 w3"]
    found = await mesh.classify(PICTURE, labels, "clip")
    assert list(found.values()) == sorted(found.values(), reverse=True)
    assert sum(found.values()) == pytest.approx(1)
    graph = await member.graph_manifest(member.view.state.offers["clip"].model)
    assert graph.picture is not None
    assert graph.picture.scores is not None
    pixels = prepared(None, PICTURE, store.blob_path(graph.picture.graph.sha256).read_bytes())
    whole = GraphRuntime(
        compose(graph, store, 0, len(graph.units)), store.root / "blobs", 1, fused=graph.fused
    )
    texts = (await member.text_reader(graph)).arrays(labels)
    expected = whole.run({graph.picture.input: pixels, **texts})[graph.picture.scores][0]
    assert [found[label] for label in labels] == pytest.approx(expected.tolist(), abs=1e-6)
    with pytest.raises(NoPlan, match="offers no model dog"):
        await mesh.classify(PICTURE, labels, "dog")
    with pytest.raises(BadCommand, match="no two of them alike"):
        await mesh.classify(PICTURE, ["w5", "w5"])


@pytest.mark.soak
async def test_langchain_and_litellm_ask_about_a_picture(tmp_path: Path) -> None:
    """Each in the form that the library gives a picture."""
    folder, file = load("llava").write(tmp_path / NAME), tmp_path / "asked.png"
    file.write_bytes(PICTURE)
    async with AsyncExitStack() as stack:
        serve = ("serve", folder, "--weights", "f32", "--context", "128", "--store", tmp_path / "store")
        founder = stack.enter_context(running(tmp_path, *serve, *LEND))
        link = founder.until(r"http://\S+#\S+")[0]
        joining = join(link, options("asker", 0), Store(tmp_path / "other"))
        member = await stack.enter_async_context(joining)
        assert await member.view.until(
            lambda state: bool(state.offers) and state.serving() is not None, WITHIN_S
        )
        url = await stack.enter_async_context(gateway(member, GatewayOptions(port=0), None))
        expected = (await Mesh(member).ask(question(PICTURE), temperature=0, max_tokens=12)).text
        words = ("pictures", url, NAME, str(file), WORDS, "12")
        found = await chat_clients_say(tmp_path / "clients", *words)
        assert len(found) == 7
        assert set(found.values()) == {expected}, found


async def _over_http(stack: AsyncExitStack, mesh: Mesh, url: str) -> None:
    client = await stack.enter_async_context(
        AsyncOpenAI(base_url=url, api_key="-", max_retries=0, timeout=300)
    )
    inside = b64encode(PICTURE).decode()
    expected = (await mesh.ask(question(PICTURE), temperature=0, max_tokens=12)).text

    def asked(address: str) -> Any:
        picture = {"type": "image_url", "image_url": {"url": address, "detail": "auto"}}
        return [{"role": "user", "content": [picture, {"type": "text", "text": WORDS}]}]

    data = f"data:image/png;base64,{inside}"
    more: Any = {"model": NAME, "temperature": 0}
    made = await client.chat.completions.create(messages=asked(data), max_tokens=12, **more)
    assert made.choices[0].message.content == expected
    part = [
        {"type": "input_image", "image_url": data, "detail": "auto"},
        {"type": "input_text", "text": WORDS},
    ]
    said = await client.responses.create(
        input=[{"role": "user", "content": part}], max_output_tokens=12, **more
    )
    assert said.output_text == expected
    uploaded = await client.files.create(file=("cat.png", PICTURE), purpose="vision")
    words: dict[str, Any] = {"type": "text", "text": WORDS}
    named: Any = [{"role": "user", "content": [{"type": "file", "file": {"file_id": uploaded.id}}, words]}]
    made = await client.chat.completions.create(messages=named, max_tokens=12, **more)
    assert made.choices[0].message.content == expected
    part[0] = {"type": "input_image", "file_id": uploaded.id, "detail": "auto"}
    said = await client.responses.create(
        input=[{"role": "user", "content": part}], max_output_tokens=12, **more
    )
    assert said.output_text == expected
    for address, why in (
        ("https://example.org/cat.png", "nothing is fetched from other servers"),
        ("data:image/png;base64,!!", "bytes of a picture in base64"),
        (f"data:image/png;base64,{b64encode(b'none').decode()}", "cannot be read"),
    ):
        with pytest.raises(BadRequestError, match=why):
            await client.chat.completions.create(messages=asked(address), max_tokens=12, **more)
    other = AsyncAnthropic(base_url=url.removesuffix("/v1"), api_key="-", max_retries=0, timeout=300)
    client_ = await stack.enter_async_context(other)
    source = {"type": "base64", "media_type": "image/png", "data": inside}
    block: Any = [{"type": "image", "source": source}, {"type": "text", "text": WORDS}]
    told = await client_.messages.create(
        messages=[{"role": "user", "content": block}],
        max_tokens=12,
        model=NAME,
        extra_body={"temperature": 0},
    )
    assert told.content[0].type == "text"
    assert told.content[0].text == expected
    sent = await client_.beta.files.upload(file=("cat.png", PICTURE, "image/png"))
    assert [each.id for each in (await client_.beta.files.list()).data] == [sent.id, uploaded.id]
    block[0] = {"type": "image", "source": {"type": "file", "file_id": sent.id}}
    beta = await client_.beta.messages.create(
        messages=[{"role": "user", "content": block}],
        max_tokens=12,
        model=NAME,
        betas=["files-api-2025-04-14"],
        extra_body={"temperature": 0},
    )
    assert beta.content[0].type == "text"
    assert beta.content[0].text == expected
    await client_.beta.files.delete(sent.id)
    await client.files.delete(uploaded.id)
    with pytest.raises(NotFoundError, match="is here: send it to /v1/files first"):
        await client.chat.completions.create(messages=named, max_tokens=12, **more)


async def _in_a_terminal(home: Path, link: str) -> None:
    (home / "picture.png").write_bytes(PICTURE)
    words = ("--image", home / "picture.png", "--temperature", "0", "--max-tokens", "12", "--json")
    where = ("--state", home / "asker", "--store", home / "third", "--bind", "127.0.0.1")
    said = await asyncio.to_thread(run, home, "generate", link, WORDS, *words, *where)
    assert said.status == 0, said.err
    said = await asyncio.to_thread(run, home, "generate", link, WORDS, "--image", home / "none.png", *where)
    assert (said.status, len(said.complaints)) == (1, 1)
    assert "none.png cannot be read: No such file" in said.complaints[0]
