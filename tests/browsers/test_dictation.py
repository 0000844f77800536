"""Dictation on the page: a real recording of a browser's microphone, written by a model of the mesh, at the caret."""

from __future__ import annotations

import asyncio
import wave
from base64 import b64decode
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest

from peer.member.transcription import open_transcriber
from peer.model.sound import Samples
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
ALIKE: Final = 0.5  # correlation of a recording with what was played
# What the browser decodes is rounded to the samples that a process takes, and these are kept.
HEARD: Final = """
const decode = OfflineAudioContext.prototype.decodeAudioData;
OfflineAudioContext.prototype.decodeAudioData = async function (sound) {
  const made = await decode.call(this, sound);
  const whole = Int16Array.from(made.getChannelData(0), (each) => Math.max(-1, Math.min(each, 32767 / 32768)) * 32768);
  made.copyToChannel(Float32Array.from(whole, (each) => each / 32768), 0);
  const bytes = new Uint8Array(whole.buffer);
  globalThis.heard = btoa(Array.from(bytes, (byte) => String.fromCharCode(byte)).join(''));
  globalThis.heardAs = [made.numberOfChannels, made.sampleRate];
  return made;
};
"""


def speaking(home: Path, store: Store) -> tuple[ModelOffered, DecoderOffered]:
    """A random model of Whisper's kind in the store, as an owner offers both of its parts."""
    source = open_whisper(write(home / NAME, "varied"), NAME)
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


async def dictated(page: Page, key: str, least_s: int) -> tuple[str, Samples]:
    """What the field holds after a dictation that `key` ends after `least_s`, and the sound that was recorded."""
    before: str = await page.run(f"{FIELD}.value")
    await page.run(f"{BUTTON}.focus()")
    await page.key("Enter")
    await page.until(RECORDING)
    await page.until("document.activeElement.innerText === 'Stop'")
    await page.until("document.querySelector('.dictation .level i').style.width > '0%'")
    await page.until(f"document.querySelector('.dictation .clock').innerText >= '0:0{least_s}'")
    await page.key(key)
    await page.until(f"{FIELD}.value !== {before!r} || document.querySelector('.dictation.is-failed')")
    assert await page.run("document.querySelector('.dictation') === null"), await page.text()
    assert await page.run("heardAs") == [1, RATE]
    said: str = await page.run(f"{FIELD}.value")
    return said, np.frombuffer(b64decode(await page.run("heard")), "<i2")


def likeness(sound: Samples, played: Samples) -> float:
    """The largest correlation of `sound` with a part of `played`, which is repeated without an end."""
    floats = [np.asarray(each, np.float64) for each in (sound, np.resize(played, len(played) + len(sound)))]
    size = 1 << (len(floats[0]) + len(floats[1])).bit_length()
    part, whole = (np.fft.rfft(each, size) for each in floats)
    products = np.fft.irfft(whole * part.conj(), size)[: len(played)]
    power = np.cumsum(np.concatenate([[0.0], floats[1] ** 2]))
    powers = power[len(sound) : len(sound) + len(played)] - power[: len(played)]
    return float((np.abs(products) / np.sqrt(powers * (floats[0] ** 2).sum())).max())


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

        # Spoken into the fake microphone of the browser; the same sound for a process gives the same words.
        await page.run(HEARD)
        played = samples(spoken())
        model = await open_transcriber(mesh, NAME)
        texts = []
        for key, least_s in (("Escape", 1), ("Enter", 3)):
            await page.run(f"{FIELD}.focus(); {FIELD}.select()")
            await page.run("document.execCommand('insertText', false, 'before after')")
            await page.run(f"{FIELD}.setSelectionRange(6, 6)")
            said, sound = await dictated(page, key, least_s)
            assert len(sound) > (least_s - 0.5) * RATE
            assert likeness(sound, played) > ALIKE
            parts = [
                part
                async for window in model.written(sound, SpeechAsked(times=False))
                for part in window.segments
            ]
            expected = " ".join(part.text for part in parts).split()
            texts.append(expected)
            assert said.split() == ["before", *expected, "after"], key
            assert await page.run("document.activeElement.id") == "question"
        await model.close()
        assert texts[0] != texts[1]
        assert min(len(set(text)) for text in texts) > 3

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
