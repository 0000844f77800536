"""`shoal generate` and `shoal chat`: one question, or a conversation in the terminal."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict

from prompt_toolkit import PromptSession
from prompt_toolkit.patch_stdout import patch_stdout

from peer.asking import Conversation, Delta, Finished, Settings
from peer.chat_template import Message
from peer.commands.terminal import INTERRUPTED, either, interrupts, say, write
from peer.errors import AnswerFailed, ContextOverflow, NoPlan
from peer.joining import join
from peer.mesh import Mesh
from peer.options import PeerOptions
from peer.sampling import Sampling
from planner.store import Store


def settings(args: argparse.Namespace) -> Settings:
    """The sampling part of the arguments. Raises BadSampling."""
    sampling = Sampling(
        temperature=args.temperature,
        top_k=args.top_k,
        top_p=args.top_p,
        min_p=args.min_p,
        repetition_penalty=args.repetition_penalty,
        frequency_penalty=args.frequency_penalty,
        presence_penalty=args.presence_penalty,
        seed=args.seed,
    )
    return Settings(sampling, args.max_tokens, tuple(args.stop), args.wait)


@asynccontextmanager
async def asker(args: argparse.Namespace) -> AsyncIterator[Mesh]:
    """A member that only asks."""
    options = PeerOptions(args.name, 0, 1, "cpu", args.transport, tuple(args.bind))
    async with join(args.link, options, Store(args.store)) as mesh:
        yield mesh


async def generate(args: argparse.Namespace) -> int:
    """Answers one prompt on standard output. Ctrl-C stops the answer; exit status 130 then."""
    chosen = settings(args)
    prompt = sys.stdin.read() if args.prompt == "-" else args.prompt
    with interrupts() as asked:
        async with asker(args) as mesh:
            conversation = mesh.conversation()
            messages = [Message("system", args.system)] if args.system else []
            messages.append(Message("user", prompt))
            text, finished = "", None
            pieces = (
                conversation.complete(prompt, chosen) if args.raw else conversation.chat(messages, chosen)
            )
            async with aclosing(pieces), _stopping(conversation, asked):
                async for piece in pieces:
                    match piece:
                        case Delta(shown, _):
                            text += shown
                            if not args.json:
                                write(shown)
                        case Finished():
                            finished = piece
            assert finished is not None
            if args.json:
                write(json.dumps({"text": text, **asdict(finished)}) + "\n")
            else:
                write("\n")
            if args.stats:
                say(summary(finished))
            return INTERRUPTED if finished.why == "cancelled" else 0


async def chat(args: argparse.Namespace) -> int:
    """A conversation in the terminal."""
    chosen = settings(args)
    async with asker(args) as mesh:
        model = mesh.node.state.model
        say(f"talking to {model.name if model else 'the mesh'}; Ctrl-C stops an answer, Ctrl-C again leaves")
        await converse(mesh, chosen, args.system)
    return 0


async def converse(mesh: Mesh, chosen: Settings, system: str) -> None:
    """Takes questions until the end of input, Ctrl-C at the prompt, or the end of the mesh."""
    conversation = mesh.conversation()
    messages = [Message("system", system)] if system else []
    reader = _Reader()
    while not mesh.ended.is_set():
        question = await reader.line(mesh.ended)
        if question is None:
            break
        if not question.strip():
            continue
        messages.append(Message("user", question))
        try:
            answer = await _stream_answer(conversation, messages, chosen)
        except (AnswerFailed, NoPlan, ContextOverflow) as error:
            messages.pop()
            say(f"\n{error}")
            continue
        messages.append(Message("assistant", answer))
    if mesh.ended.is_set():
        say(mesh.why_ended)
    conversation.close()


async def _stream_answer(conversation: Conversation, messages: list[Message], chosen: Settings) -> str:
    text = ""
    pieces = conversation.chat(messages, chosen)
    with interrupts() as asked:
        async with aclosing(pieces), _stopping(conversation, asked):
            async for piece in pieces:
                match piece:
                    case Delta(shown, _):
                        text += shown
                        write(shown)
                    case Finished():
                        write("\n")
                        say(f"[{summary(piece)}]")
    return text


@asynccontextmanager
async def _stopping(conversation: Conversation, asked: asyncio.Event) -> AsyncIterator[None]:
    """Stops the conversation's answer when asked to."""

    async def watch() -> None:
        await asked.wait()
        conversation.stop()

    task = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


class _Reader:
    """Lines from a person, with editing and history, or from a pipe."""

    def __init__(self) -> None:
        self._session: PromptSession[str] | None = PromptSession() if sys.stdin.isatty() else None

    async def line(self, ended: asyncio.Event) -> str | None:
        """The next line; None at the end of input, on Ctrl-C, or when the mesh ends."""
        if self._session is None:
            text = await asyncio.to_thread(sys.stdin.readline)
            return text.rstrip("\n") if text else None
        with patch_stdout():
            prompt = asyncio.ensure_future(self._session.prompt_async("> "))
            waiting = asyncio.Event()
            prompt.add_done_callback(lambda _: waiting.set())
            await either(waiting, ended)
            if not prompt.done():
                prompt.cancel()
            try:
                return await prompt
            except (EOFError, KeyboardInterrupt, asyncio.CancelledError):
                return None


def summary(finished: Finished) -> str:
    """One line about an answer."""
    cached = f", {finished.cached_tokens} of them cached" if finished.cached_tokens else ""
    stages = len(finished.route)
    return (
        f"{finished.tokens} tokens, {finished.tokens_per_s:.1f} per second, first after "
        f"{finished.first_token_s * 1000:.0f} ms; prompt of {finished.prompt_tokens} tokens{cached}; "
        f"{stages} stage{'s' if stages > 1 else ''}"
    )
