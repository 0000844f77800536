"""`shoal generate` and `shoal chat`: one question, or a conversation in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import codecs
import json
import os
import sys
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, suppress
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.patch_stdout import patch_stdout

from peer.cli.queue_lines import WaitingLines
from peer.cli.serve_join import follow_coordinator
from peer.errors import (
    AnswerFailed,
    BadCommand,
    CannotServe,
    ConnectFailed,
    ContextOverflow,
    Interrupted,
    MeshError,
    NoPlan,
)
from peer.launch.served_models import asked_model
from peer.launch.terminal import Interrupts, either, interrupts, say, unechoed, write
from peer.member.byte_sizes import bytes_text
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import INTERRUPTED, PeerOptions
from peer.member.progress import Report, silent
from peer.member.sight import given_rows, prepared
from peer.model.chat_template import Message
from peer.model.pictures import apart
from peer.origin.answer_stream import Conversation, Delta, Finished, Settings
from peer.origin.answering_model import AnsweringModel
from peer.origin.arithmetic_changes import crossed_text
from peer.session.sampling import AskedSampling, sampling_for
from peer.storage.peer_keys import kept_identity
from planner.model.sampling_defaults import USUAL, SamplingDefaults
from planner.model.store import Store
from signaling.invites import parse_link


def settings(args: argparse.Namespace, defaults: SamplingDefaults) -> Settings:
    """The sampling part of the arguments; what they leave out is `defaults`, the seed by chance. Raises BadSampling."""
    asked = AskedSampling(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        frequency_penalty=args.frequency_penalty,
        presence_penalty=args.presence_penalty,
    )
    seed = args.seed if args.seed is not None else drawn_seed()
    return Settings(sampling_for(defaults, asked, seed), args.max_tokens, tuple(args.stop), args.wait)


def drawn_seed() -> int:
    """A seed by chance, which JavaScript holds exactly."""
    return int.from_bytes(os.urandom(6))


def check_settings(args: argparse.Namespace) -> None:
    """Raises BadSampling for what no model takes, before a mesh is joined."""
    settings(args, USUAL)


@asynccontextmanager
async def asker(
    args: argparse.Namespace, ctrl: Interrupts, *, pin_ends: bool = False, report: Report = silent
) -> AsyncIterator[MeshMember]:
    """A member that only asks; `report` is told how far joining is. Ctrl-C while it joins raises Interrupted."""
    invite = parse_link(args.link)
    options = PeerOptions(
        args.name,
        0,
        1,
        "cpu",
        args.transport,
        tuple(args.bind),
        relay_only=args.relay_only,
        pin_ends=pin_ends,
    )
    async with AsyncExitStack() as stack:
        kept = stack.enter_context(kept_identity(args.state, invite.mesh))
        joining = join(args.link, options, Store(args.store), report=report, kept=kept)
        with ctrl.cancelling():
            mesh = await stack.enter_async_context(joining)
        if mesh.sessions.own_ends is not None:
            whole, new = mesh.sessions.own_ends.bytes, mesh.sessions.own_ends.fetched_bytes
            say(
                f"embedding and head stay here: {bytes_text(whole)} of weights, {bytes_text(new)} fetched for it"
            )
        yield mesh


async def generate(args: argparse.Namespace) -> int:
    """Answers one prompt on standard output. Ctrl-C stops the answer; exit status 130 then."""
    check_settings(args)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    if not prompt.strip():
        raise BadCommand("expected a question, got nothing: give it in quotes, or - to read standard input")
    if args.raw and args.image:
        raise BadCommand(
            "--raw goes on with a text, in which no picture has a place: leave out --raw or --image"
        )
    with interrupts() as ctrl:
        async with asker(args, ctrl, pin_ends=args.pin_ends) as mesh:
            asked = await mesh.answering(asked_model(mesh.view.state, args.model))
            chosen = settings(args, asked.model.sampling_defaults)
            conversation = asked.conversation()
            conversation.on_wait(WaitingLines(say))
            messages = [Message("system", args.system)] if args.system else []
            messages.append(Message("user", prompt))
            if args.image:
                with ctrl.cancelling():
                    pieces = await _about_pictures(mesh, asked, conversation, messages, chosen, args.image)
            elif args.raw:
                pieces = conversation.complete(prompt, chosen)
            else:
                pieces = conversation.chat(messages, chosen)
            shown = None if args.json else write
            text, finished = await stream(conversation, pieces, ctrl, shown)
            if args.json:
                write(json.dumps({"text": text, "seed": chosen.sampling.seed, **asdict(finished)}) + "\n")
            elif text:
                write("\n")
            if crossed := crossed_text(finished.crossed):
                say(crossed)
            if args.stats:
                say(summary(finished))
            return INTERRUPTED if finished.why == "cancelled" else 0


async def _about_pictures(
    mesh: MeshMember,
    asked: AnsweringModel,
    conversation: Conversation,
    messages: Sequence[Message],
    chosen: Settings,
    files: Sequence[Path],
) -> AsyncGenerator[Delta | Finished]:
    """Answers a question about pictures, which stand before its words."""
    *before, question = messages
    parts = [
        *({"type": "image", "image": file} for file in files),
        {"type": "text", "text": question.content},
    ]
    given: list[Mapping[str, Any]] = [
        *({"role": each.role, "content": each.content} for each in before),
        {"role": "user", "content": parts},
    ]
    turns, pictures = await asyncio.to_thread(apart, given)
    prompt = await asked.model.prompts.turns(turns, None, asked.chosen.context)
    seen = await prepared(mesh, asked, prompt, pictures)
    rows = await given_rows(mesh, seen)
    return conversation.tokens(seen.prompt.tokens, replace(chosen, front=prompt.front, rows=rows))


async def stream(
    conversation: Conversation,
    pieces: AsyncGenerator[Delta | Finished],
    ctrl: Interrupts,
    shown: Callable[[str], None] | None,
) -> tuple[str, Finished]:
    """One answer, shown as it comes. Ctrl-C stops it on every stage; before its first token that raises Interrupted."""
    text, finished = "", None
    with unechoed(ctrl), ctrl.stopping(conversation.stop) as begun:
        async with aclosing(pieces):
            try:
                async for piece in pieces:
                    begun()
                    match piece:
                        case Delta(words, _):
                            text += words
                            if shown is not None:
                                shown(words)
                        case Finished():
                            finished = piece
            except MeshError:
                if text and shown is not None:
                    shown("\n")  # what is wrong stands on a line of its own
                raise
    assert finished is not None
    return text, finished


def chat(args: argparse.Namespace) -> int:
    """A conversation in the terminal."""
    check_settings(args)
    return asyncio.run(_chat(args))


async def _chat(args: argparse.Namespace) -> int:
    with interrupts() as ctrl:
        async with asker(args, ctrl, pin_ends=args.pin_ends) as mesh:
            asked = await mesh.answering(asked_model(mesh.view.state, args.model))
            say(f"talking to {asked.chosen.name}; Ctrl-C stops an answer, at the prompt it leaves")
            follow_coordinator(mesh, say)
            chosen = settings(args, asked.model.sampling_defaults)
            await converse(mesh, asked.conversation(), chosen, args.system, ctrl)
    return 0


async def converse(
    mesh: MeshMember, conversation: Conversation, chosen: Settings, system: str, ctrl: Interrupts
) -> None:
    """Takes questions until the end of input or Ctrl-C at the prompt. Raises CannotServe when the mesh ends, and
    where lines are piped and one of them was not answered.
    """
    conversation.on_wait(WaitingLines(say))
    messages = [Message("system", system)] if system else []
    reader = Reader()
    failed = ""
    while not mesh.ended.is_set() and not ctrl.asked.is_set():
        question = await reader.line(mesh.ended, ctrl.asked)
        if question is None:
            break
        if not question.strip():
            continue
        messages.append(Message("user", question))
        try:
            answer, finished = await stream(conversation, conversation.chat(messages, chosen), ctrl, write)
        except Interrupted:
            messages.pop()
            say("stopped")
        except (AnswerFailed, NoPlan, ContextOverflow, ConnectFailed) as error:
            messages.pop()
            failed = str(error)
            say(failed)
        else:
            write("\n" if answer else "")
            say(f"[{summary(finished)}]")
            if crossed := crossed_text(finished.crossed):
                say(f"[{crossed}]")
            messages.append(Message("assistant", answer))
    conversation.close()
    if mesh.ended.is_set() and not ctrl.asked.is_set():
        raise CannotServe(mesh.why_ended)
    if failed and not reader.of_a_person:
        raise CannotServe("not every question was answered, see above")


class Reader:
    """Lines from a person, with editing and history, or from a pipe or file."""

    def __init__(self) -> None:
        self._session = prompt_session() if sys.stdin.isatty() else None
        self._lines = None if self._session is not None else PipedLines()

    @property
    def of_a_person(self) -> bool:
        """Whether somebody types, who sees what failed."""
        return self._session is not None

    async def line(self, *ends: asyncio.Event) -> str | None:
        """The next line; None at the end of input, on Ctrl-C, or when one of `ends` is set."""
        if self._lines is not None:
            return await first_of(asyncio.ensure_future(self._lines.next()), *ends)
        assert self._session is not None
        with patch_stdout():
            prompt = asyncio.ensure_future(self._session.prompt_async("> ", handle_sigint=False))
            return await first_of(prompt, *ends)


def prompt_session(**options: Any) -> PromptSession[str]:
    """A prompt with history and `options` of prompt_toolkit, where Ctrl-C is the end of input.

    The KeyboardInterrupt that prompt_toolkit raises instead would leave the event loop and cancel every task in it: the
    connections would break before this peer has left.
    """
    return PromptSession(interrupt_exception=EOFError, **options)


async def first_of(
    reading: asyncio.Task[str] | asyncio.Task[str | None] | asyncio.Task[None], *ends: asyncio.Event
) -> str | None:
    """What is read; None when one of `ends` is set first, at the end of input and on Ctrl-C."""
    done = asyncio.Event()
    reading.add_done_callback(lambda _: done.set())
    await either(done, *ends)
    if not reading.done():
        reading.cancel()
    try:
        return await reading
    except (EOFError, asyncio.CancelledError):
        return None


class PipedLines:
    """Lines of standard input without a terminal. A thread of its own waits, which the end of the process need not."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[str | None] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="stdin", daemon=True).start()

    async def next(self) -> str | None:
        """The next line, without its end; None after the last."""
        return await self._queue.get()

    def _read(self) -> None:
        decoder = codecs.getincrementaldecoder(sys.stdin.encoding or "utf-8")("replace")
        rest = ""
        # Not through sys.stdin: its lock would be held while this thread waits, and the interpreter needs it to end.
        while chunk := os.read(sys.stdin.fileno(), 1 << 16):
            *lines, rest = (rest + decoder.decode(chunk)).split("\n")
            for line in lines:
                self._put(line.rstrip("\r"))
        if rest := rest + decoder.decode(b"", final=True):
            self._put(rest)
        self._put(None)

    def _put(self, line: str | None) -> None:
        with suppress(RuntimeError):  # the loop has ended
            self._loop.call_soon_threadsafe(self._queue.put_nowait, line)


def summary(finished: Finished) -> str:
    """One line about an answer."""
    cached = f", {finished.cached_tokens} of them cached" if finished.cached_tokens else ""
    stages = len(finished.route)
    return (
        f"{finished.tokens} tokens, {finished.tokens_per_s:.1f} per second, first after "
        f"{finished.first_token_s * 1000:.0f} ms; prompt of {finished.prompt_tokens} tokens{cached}; "
        f"{stages} stage{'s' if stages > 1 else ''}"
    )
