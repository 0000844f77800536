"""Prompts of people and programs as tokens, without holding this process up: bounds first, then a budget.

Edge. A prompt that cannot fit the context is refused by its length alone. A short one is put into tokens here, within a
bound of characters and of the template's turns that takes some milliseconds, and while all of them together took no
more than a share of the time; any other in a process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from typing import Any, Concatenate, Final, ParamSpec, TypeVar

from peer.errors import ContextOverflow, MeshFull, TemplateSpent, TextError, TextTooLong
from peer.model.chat_template import Message
from peer.model.picture_parts import PICTURE
from peer.model.tokenizer import Text, TextFile
from peer.session.ask import room_for
from peer.session.prefix_cache import shared_front
from planner.errors import JobError, JobTooLarge, JobTooLong
from planner.jobs.jobs import Budget, Jobs

SHORT_CHARACTERS: Final = 1500  # of what was given
SHORT_RENDERED: Final = (
    3000  # of what is put into tokens: tokenizers take some 250 characters a millisecond at worst
)
SHORT_TURNS: Final = 2000  # of a template: some 10 ms
HERE_SHARE: Final = 0.03  # of the time of this process, for short ones: few heartbeats meet one
HERE_BURST_S: Final = 0.03
BUDGET: Final = Budget(cpu_s=10.0, memory_bytes=1 << 30)
AGAIN_S: Final = 5.0  # told to whoever finds too many waiting

P = ParamSpec("P")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Prompt:
    """`tokens` of a prompt, of which `front` stand before the first question: other sessions may begin with these."""

    tokens: tuple[int, ...]
    front: int = 0
    pictures: tuple[int, ...] = ()  # where the rows of each picture begin


def widened(prompt: Prompt, counts: Sequence[int], context: int) -> Prompt:
    """A prompt whose pictures hold one place each, with as many for each as `counts` says. Raises ContextOverflow."""
    tokens, firsts, at = list[int](), list[int](), 0
    for place, count in zip(prompt.pictures, counts, strict=True):
        tokens += prompt.tokens[at:place]
        firsts.append(len(tokens))
        tokens += [prompt.tokens[place]] * count
        at = place + 1
    tokens += prompt.tokens[at:]
    room_for(len(tokens), None, context)
    return replace(prompt, tokens=tuple(tokens), pictures=tuple(firsts))


class Allowance:
    """Time that short work may take in this process: a share of what passes, of which at most `burst_s` is saved up."""

    def __init__(self, now_s: float, share: float = HERE_SHARE, burst_s: float = HERE_BURST_S) -> None:
        self._share, self._burst_s = share, burst_s
        self._left_s, self._at_s = burst_s, now_s

    def left(self, now_s: float) -> bool:
        """Whether there is any."""
        self._left_s = min(self._burst_s, self._left_s + (now_s - self._at_s) * self._share)
        self._at_s = now_s
        return self._left_s > 0

    def spend(self, seconds: float) -> None:
        """Takes what was needed, be it more than there was."""
        self._left_s -= seconds


class Prompts:
    """The prompts of one model. For one event loop."""

    def __init__(self, file: TextFile, text: Callable[[], Text]) -> None:
        """`text` gives what `file` reads, in this process."""
        self._text = text
        self._jobs = Jobs(TextFile.read, file, budget=BUDGET)
        self._here = Allowance(time.monotonic())

    @property
    def text(self) -> Text:
        """The tokenizer and chat template in this process, for what is short."""
        return self._text()

    async def chat(self, messages: Sequence[Message], context: int, today: date | None = None) -> Prompt:
        """A conversation, ending where the answer begins. Raises as `run`, and ChatTemplateError."""
        count = sum(len(message.content) for message in messages)
        return await self.run(count, context, chat_prompt, tuple(messages), context, today)

    async def turns(
        self, turns: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]] | None, context: int
    ) -> Prompt:
        """The same for turns as chat templates read them. Raises as `run`, and ChatTemplateError."""
        count = len(repr((turns, tools)))
        return await self.run(count, context, turns_prompt, tuple(turns), tools, context)

    async def plain(self, text: str, context: int) -> Prompt:
        """Text without a template. Raises as `run`."""
        return await self.run(len(text), context, plain_prompt, text, context)

    async def run(
        self,
        characters: int,
        context: int,
        work: Callable[Concatenate[Text, P], T],
        *args: P.args,
        **_: P.kwargs,
    ) -> T:
        """What `work(text, *args)` returns, a function of a module whose cost grows with `characters`.

        Raises ContextOverflow for a prompt that no `context` of tokens can hold, TextError for one that takes too much
        to read, MeshFull where too many wait for that.
        """
        text = self._text()
        most = text.most_characters(context)
        if characters <= SHORT_CHARACTERS and self._here.left(time.monotonic()):
            begun = time.thread_time()
            try:
                with text.within(min(SHORT_RENDERED, most), SHORT_TURNS):
                    return work(text, *args, **_)
            except (TextTooLong, TemplateSpent):
                pass  # longer, or slower, than it looked
            finally:
                self._here.spend(time.thread_time() - begun)
        try:
            return await self._jobs.run(_long, most, work, args)
        except TextTooLong as error:
            raise _overflow(error.characters, context) from error
        except (JobTooLong, JobTooLarge) as error:
            raise TextError(f"this prompt cannot be read: {error}; ask with less text") from error
        except JobError as error:
            raise MeshFull(f"this prompt cannot be read now: {error}", AGAIN_S) from error

    async def close(self) -> None:
        """Ends the process that jobs come from."""
        await self._jobs.close()


def _long(text: Text, most: int, work: Callable[..., T], args: tuple[Any, ...]) -> T:
    with text.within(most):
        return work(text, *args)


def chat_prompt(text: Text, messages: Sequence[Message], context: int, today: date | None) -> Prompt:
    """A conversation as tokens. Raises ContextOverflow where `context` has no room for an answer."""
    text.check_length(sum(len(message.content) for message in messages))
    prompt = text.encode_chat(messages, today)
    room_for(len(prompt), None, context)
    first = next((at for at, each in enumerate(messages) if each.role == "user"), len(messages))
    front = shared_front(
        prompt, lambda words: text.encode_chat([*messages[:first], Message("user", words)], today)
    )
    return Prompt(tuple(prompt), front)


def turns_prompt(
    text: Text,
    turns: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None,
    context: int,
) -> Prompt:
    """The same for turns as chat templates read them."""
    text.check_length(sum(map(characters_of, turns)))
    count = sum(map(pictures_in, turns))
    prompt, pictures = text.with_pictures(text.encode_turns(turns, tools), count)
    room_for(len(prompt), None, context)
    first = next((at for at, turn in enumerate(turns) if turn["role"] == "user"), len(turns))

    def other(words: str) -> list[int]:
        return text.encode_turns([*turns[:first], {"role": "user", "content": words}], tools)

    return Prompt(tuple(prompt), shared_front(prompt, other), tuple(pictures))


def characters_of(turn: Mapping[str, Any]) -> int:
    """Of a turn's content, which is text, or a list of parts: texts, and places of pictures."""
    content = turn["content"]
    return len(content) if isinstance(content, str) else sum(len(part.get("text", "")) for part in content)


def pictures_in(turn: Mapping[str, Any]) -> int:
    """How many pictures a turn has."""
    content = turn["content"]
    return 0 if isinstance(content, str) else sum(part["type"] == PICTURE for part in content)


def plain_prompt(text: Text, words: str, context: int) -> Prompt:
    """Text without a template as tokens."""
    prompt = text.encode(words)
    room_for(len(prompt), None, context)
    return Prompt(tuple(prompt))


def _overflow(characters: int, context: int) -> ContextOverflow:
    return ContextOverflow(
        f"the prompt has {characters} characters, more than any {context} tokens can hold, which is the context here; "
        "shorten it"
    )
