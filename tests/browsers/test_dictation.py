"""Dictation on the page: a real recording of a browser's microphone, written by a model of the mesh, at the caret."""

from __future__ import annotations

import asyncio
import wave
from base64 import b64encode
from pathlib import Path
from typing import Any, Final

import pytest

from peer.member.transcription import open_transcriber
from peer.model.speech_asked import SpeechAsked
from peer.state.generated.commands import DecoderOffered, ModelOffered
from planner.importers.decoder_units import build_model
from planner.importers.speech.storing import put_encoded
from planner.importers.speech.whisper import open_whisper
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from tests.browsers.accessibility import DESKTOP, PHONE, expect_names, expect_no_barriers
from tests.browsers.harness import Driver, Models, founded, launch
from tests.browsers.page import Page
from tests.e2e.speech_mesh import samples
from tests.planner.importers.speech.sounds import spoken
from tests.planner.importers.speech.whisper_folders import write

NAME: Final = "speaker"
RATE: Final = 16_000
BUTTON: Final = "document.querySelector('.dictate')"
FIELD: Final = "document.querySelector('.composer textarea')"
RECORDING: Final = "document.querySelector('.dictation.is-recording')"
# What the microphone heard is the spoken file from here on, to the sample.
HEARD: Final = (
    "OfflineAudioContext.prototype.decodeAudioData = async () => {{"
    " const whole = Int16Array.from(atob({whole!r}).match(/../gs), (two) =>"
    " two.charCodeAt(0) | (two.charCodeAt(1) << 8));"
    " const made = new AudioBuffer({{ length: whole.length, numberOfChannels: 1, sampleRate: 16000 }});"
    " made.copyToChannel(Float32Array.from(whole, (each) => each / 32768), 0); return made; }}"
)


def speaking(home: Path, store: Store) -> tuple[ModelOffered, DecoderOffered]:
    """A random model of Whisper's kind in the store, as an owner offers both of its parts."""
    source = open_whisper(write(home / NAME, "small"), NAME)
    speech = put_encoded(source, store)
    model = build_model(source, "f32", store, speech=speech)
    manifest = decode_manifest(store.manifest_bytes(model))
    decoder = DecoderOffered(NAME, model, len(manifest.units), manifest.context, 2, "latency")
    return ModelOffered(speech.encoder, f"{NAME}.encoder"), decoder


def wav(path: Path, sound: Any) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE)
        file.writeframes(samples(sound).tobytes())
    return path


async def dictated(page: Page, key: str) -> str:
    """What the field holds after a dictation that `key` ends; "" where no words were heard."""
    before: str = await page.run(f"{FIELD}.value")
    await page.run(f"{BUTTON}.focus()")
    await page.key("Enter")
    await page.until(RECORDING)
    await page.until("document.activeElement.innerText === 'Stop'")
    await page.until("document.querySelector('.dictation .level i').style.width > '0%'")
    await page.key(key)
    await page.until(f"{FIELD}.value !== {before!r} || document.querySelector('.dictation.is-failed')")
    if await page.run("document.querySelector('.dictation') !== null"):
        assert "No words were heard" in await page.text()
        await page.click("document.querySelector('.dictation button[aria-label=Close]')")
        return ""
    said: str = await page.run(f"{FIELD}.value")
    return said


@pytest.mark.soak
async def test_a_person_dictates(driver: Driver, app: Path, tiny: tuple[Store, str], tmp_path: Path) -> None:
    """By keyboard, and on a phone; the words are those that a process gets of the same sound."""
    store, own = tiny
    encoder, decoder = await asyncio.to_thread(speaking, tmp_path, store)
    flags = (
        "--use-fake-device-for-media-stream",
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={wav(tmp_path / 'spoken.wav', spoken())}",
    )
    async with founded(Models(store, {"f32": own}), app, weights="f32") as mesh:
        assert mesh.link is not None
        made = await launch(driver, "chromium", tmp_path / "profile", flags)
        page = Page(await made.tab(mesh.link.url(), width=DESKTOP[0], height=DESKTOP[1]))
        await page.until("document.querySelector('.pill.is-ready')")
        assert await page.run(f"{BUTTON} === null"), "nobody writes what is said"
        await mesh.propose(encoder)
        await mesh.propose(decoder)
        await page.until(BUTTON)
        assert await page.run("document.querySelector('.model-choice') === null"), "it answers no questions"

        # Spoken into the fake microphone of the browser, for as long as it takes to press a key.
        # A random model may hear no words in it.
        await dictated(page, "Escape")
        await page.run(f"{FIELD}.select()")
        await page.key("Delete")

        # The same sound for a process: the same words, at the caret.
        model = await open_transcriber(mesh, NAME)
        sound = samples(spoken())
        parts = [
            part
            async for window in model.written(sound, SpeechAsked(times=False))
            for part in window.segments
        ]
        await model.close()
        expected = " ".join(part.text for part in parts).split()
        assert len(expected) > 3
        await page.run(HEARD.format(whole=b64encode(sound.tobytes()).decode()))
        await page.run(f"{FIELD}.focus(); document.execCommand('insertText', false, 'before after')")
        await page.run(f"{FIELD}.setSelectionRange(6, 6)")
        assert (await dictated(page, "Enter")).split() == ["before", *expected, "after"]
        assert await page.run("document.activeElement.id") == "question"

        # On a phone, with what a person may meet.
        await page.sized(*PHONE)
        await page.run(f"{BUTTON}.click()")
        await page.until(RECORDING)
        small = (
            "[...document.querySelectorAll('.dictation button, .dictate')].filter((one) =>"
            " Math.min(one.getBoundingClientRect().width, one.getBoundingClientRect().height) < 43.5).length"
        )
        assert await page.run(small) == 0
        assert await page.run("document.documentElement.scrollWidth <= innerWidth")
        await expect_no_barriers(page, "recording, on a phone")
        await expect_names(page, "recording, on a phone")
        await page.run("document.querySelector('[aria-label=\"Discard the recording\"]').click()")
        await page.until("document.querySelector('.dictation') === null")
        for name, words in (
            ("NotAllowedError", "allow it beside the page’s address"),
            ("NotFoundError", "No microphone was found"),
        ):
            await page.run(
                f"navigator.mediaDevices.getUserMedia = () => Promise.reject(new DOMException('', {name!r}))"
            )
            await page.run(f"{BUTTON}.click()")
            await page.until_says(words)
        await made.close()
