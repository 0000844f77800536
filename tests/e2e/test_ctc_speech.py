"""A random model of Wav2Vec2's kind over two peers neither of which can hold it writes the words of transformers, for
programs, the official client and a command; a long recording is written in windows.
"""

from __future__ import annotations

import asyncio
import json
import shutil
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from openai import AsyncOpenAI, BadRequestError

from peer.api import Mesh
from peer.errors import BadCommand
from peer.gateway.server import GatewayOptions, gateway
from peer.launch.model_import import find_or_import_any
from peer.launch.offered_models import Room, offers_of_store
from peer.member.joining import Founding, found, join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.member.transcription import open_transcriber
from peer.model.ctc_rules import MARGIN_S, WINDOW_S
from peer.model.sound import Samples
from peer.model.speech_asked import SpeechAsked, Written
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.graph_work import work_of
from planner.model.store import Store
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions
from tests.e2e.command import run
from tests.e2e.real_mesh import options
from tests.e2e.speech_mesh import samples
from tests.patience import WITHIN_S
from tests.planner.importers.speech.sounds import long_sound, spoken
from tests.planner.importers.speech.wav2vec2_folders import write
from tests.planner.importers.speech.whisper_folders import REFERENCE, SPOKEN

NAME = "hears"
Told = list[tuple[str, int, int]]


def expected_words() -> Told:
    """The words of the spoken file and their times, as transformers has them."""
    words = json.loads((REFERENCE / "ctc-base.json").read_text())["words"]
    return [(word.strip(), 20 * first, 20 * stop) for word, first, stop in words]


async def check_windows(mesh: MeshMember) -> None:
    """Of three minutes each window that begins with sound that was written already tells what it told alone."""
    model = await open_transcriber(mesh)
    sound = samples(long_sound())

    async def written(part: Samples) -> list[Written]:
        return [window async for window in model.written(part, SpeechAsked())]

    windows = await written(sound)
    step = WINDOW_S - 2 * MARGIN_S
    assert [window.done_ms for window in windows[:-1]] == [
        1000 * (step * (at + 1) + MARGIN_S) for at in range(len(windows) - 1)
    ]
    assert windows[-1].done_ms == windows[-1].total_ms == 180_000
    told = [word for window in windows for part in window.segments for word in part.words]
    assert [word.start_ms for word in told] == sorted(word.start_ms for word in told)
    first, last = step * 16_000, (step + WINDOW_S) * 16_000  # the second window
    alone = await written(sound[first:last])
    begin, stop = (step + MARGIN_S) * 1000, (step + WINDOW_S - MARGIN_S) * 1000
    inner = [
        (word.text, word.start_ms + step * 1000)
        for window in alone
        for part in window.segments
        for word in part.words
        if begin < word.start_ms + step * 1000 and word.end_ms + step * 1000 < stop
    ]
    kept = {(word.text, word.start_ms) for word in told}
    assert len(inner) > 20
    assert len([word for word in inner if word not in kept]) <= 2, "but for words that lie on a border"
    with pytest.raises(BadCommand, match="does not translate"):
        await written_alone(model.written(sound, SpeechAsked(translated=True)))


async def written_alone(windows: Any) -> None:
    async for _ in windows:
        raise AssertionError("nothing is written")


async def check_program(mesh: MeshMember, words: Told) -> None:
    """The official client, with times of words, as subtitles and as a stream."""
    text = " ".join(word for word, _, _ in words)
    async with (
        gateway(mesh, GatewayOptions(port=0)) as url,
        AsyncOpenAI(base_url=url, api_key="-") as client,
    ):
        asked: Any = client.audio.transcriptions

        async def answer(form: str, **more: Any) -> Any:
            return await asked.create(model=NAME, file=SPOKEN, response_format=form, timeout=WITHIN_S, **more)

        assert (await answer("json")).text == text
        told = await answer("verbose_json", timestamp_granularities=["word"])
        assert [(word.word, round(1000 * word.start), round(1000 * word.end)) for word in told.words] == words
        assert told.segments is None
        both = await answer("verbose_json", timestamp_granularities=["word", "segment"])
        assert len(both.words) == len(words)
        assert "".join(part.text for part in both.segments).strip() == text
        assert (await answer("vtt")).startswith("WEBVTT\n\n00:00:00.")
        events = [event async for event in await answer("json", stream=True)]
        assert events[-1].text == text
        with pytest.raises(BadRequestError, match="response_format verbose_json"):
            await answer("json", timestamp_granularities=["word"])
        with pytest.raises(BadRequestError, match="draws nothing by chance"):
            await answer("json", temperature=0.5)


async def test_two_peers_write_the_words_of_transformers(tmp_path: Path) -> None:
    store, folder = Store(tmp_path / "store"), write(tmp_path / NAME, "base")
    model = (await asyncio.to_thread(find_or_import_any, store, str(folder), "8bit")).model_id
    graph = decode_graph_manifest(store.manifest_bytes(model))
    most = sum(unit.weight_bytes for unit in work_of(graph).units) - 1  # so much of it fits nowhere

    def lent(name: str) -> PeerOptions:
        return replace(options(name, most), beside_program=True)  # all of it is for models

    promise = Founding(None, MeshOptions(0, 1, "latency", None), ServerOptions())
    async with AsyncExitStack() as stack:
        founding = found(promise, lent("founder"), store, identity_from_seed(bytes(32)))
        founder: MeshMember = await stack.enter_async_context(founding)
        assert founder.link is not None
        link = founder.link.url()
        joining = join(link, lent("other"), Store(tmp_path / "other"), compute=True)
        await stack.enter_async_context(joining)
        (offer,) = await asyncio.to_thread(offers_of_store, store, str(folder), "8bit", Room())
        await founder.propose(offer)
        assert await founder.view.until(lambda state: bool(state.offers[NAME].stages), WITHIN_S)
        stages = founder.view.state.offers[NAME].stages
        assert len({each.primary for each in stages}) == 2

        words = expected_words()
        told = await Mesh(founder).transcribe(SPOKEN)
        assert [
            (word.text, word.start_ms, word.end_ms) for part in told.segments for word in part.words
        ] == words
        assert told.text == " ".join(word for word, _, _ in words)
        assert len(spoken()) < WINDOW_S * 16_000
        await check_windows(founder)
        await check_program(founder, words)

        recording = tmp_path / "talk.flac"
        shutil.copyfile(SPOKEN, recording)
        where = ("--store", tmp_path / "third", "--state", tmp_path / "state", "--bind", "127.0.0.1")
        said = await asyncio.to_thread(run, tmp_path, "transcribe", link, recording, *where)
        assert (said.status, said.out.strip()) == (0, told.text), said.err
        assert (tmp_path / "talk.srt").read_text().startswith("1\n00:00:00,")
