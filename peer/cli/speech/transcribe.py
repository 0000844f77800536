"""`shoal transcribe`: what is said in files, by a model that a mesh offers."""

from __future__ import annotations

import argparse
import asyncio
import time
from contextlib import AsyncExitStack, aclosing, suppress
from pathlib import Path

from peer.cli.chat import asker
from peer.errors import BadCommand
from peer.launch.counting import counting
from peer.launch.terminal import interrupts, reporting, say, write
from peer.member.transcription import Transcriber, open_transcriber
from peer.model.sound import decoded
from peer.model.speech_asked import Segment, SpeechAsked
from peer.model.subtitles import plain, srt, vtt
from planner.model.speech import RATE

FORMS = {"srt": srt, "vtt": vtt}


async def transcribe(args: argparse.Namespace) -> int:
    """Prints what is said, and writes subtitles beside each file. Ctrl-C leaves no half of one."""
    beside = subtitles_of(args)
    asked = SpeechAsked(args.language, args.translate)
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            with reporting() as report:
                mesh = await stack.enter_async_context(asker(args, ctrl, report=report))
            with ctrl.cancelling():
                model = await open_transcriber(mesh, args.model)
                stack.push_async_callback(model.close)
                model.check(asked)
                for file, subtitles in beside.items():
                    parts = await _written(model, file, asked)
                    write(plain(parts) + "\n")
                    if subtitles is not None:
                        _keep(subtitles, FORMS[args.subtitles](parts))
                        say(f"subtitles in {subtitles}")
    return 0


def subtitles_of(args: argparse.Namespace) -> dict[Path, Path | None]:
    """Where subtitles of each file go. Raises BadCommand before anything is computed."""
    found: dict[Path, Path | None] = {}
    for file in args.files:
        if not file.is_file():
            raise BadCommand(f"{file}: a file expected")
        subtitles = file.with_suffix(f".{args.subtitles}") if args.subtitles in FORMS else None
        if subtitles is not None and subtitles.exists() and not args.overwrite:
            raise BadCommand(f"{subtitles} is there already: --overwrite, or --subtitles none")
        if subtitles == file or (subtitles is not None and subtitles in found.values()):
            raise BadCommand(f"{file}: its subtitles would be {subtitles}, which is another file")
        found[file] = subtitles
    return found


async def _written(model: Transcriber, file: Path, asked: SpeechAsked) -> list[Segment]:
    samples = await decoded(await asyncio.to_thread(file.absolute))
    begun, parts = time.monotonic(), list[Segment]()
    seconds, done, language = len(samples) / RATE, 0, ""
    with counting(f"seconds of {file.name}", max(round(seconds), 2), 0) as advance:
        async with aclosing(model.written(samples, asked)) as windows:
            async for window in windows:
                parts += window.segments
                language = window.language
                now = min(window.done_ms // 1000, round(seconds))
                advance(now - done)
                done = now
    took = max(time.monotonic() - begun, 1e-3)
    say(
        f"{file.name}: {seconds:.1f} s of sound{f' in {language!r}' if language else ''} written in {took:.1f} s, "
        f"real-time factor {took / max(seconds, 1e-3):.3f}"
    )
    return parts


def _keep(file: Path, content: str) -> None:
    """The whole file or none."""
    part = file.with_name(f".{file.name}.part")
    try:
        part.write_text(content, encoding="utf-8")
        part.replace(file)
    except OSError as error:
        raise BadCommand(f"{file}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink()
