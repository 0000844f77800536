"""The door for programs: joins a mesh by its link and asks it, in an async form and a blocking one.

async with Mesh.join(link) as mesh:
    async for token in mesh.chat("Why is the sky blue?", seed=7):
        print(token.text, end="")

with Mesh.join_blocking(link) as mesh:
    print(mesh.ask("Why is the sky blue?").text)
    print(mesh.run("detector", {"x": picture})["boxes"])  # a model that the mesh offers beside its own
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, aclosing, asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final, TypedDict, TypeVar, Unpack

import numpy.typing as npt

from peer.dataflow.value_codec import Array, arrays_of
from peer.errors import BadCommand, CannotServe
from peer.gateway.answers import shown_likely
from peer.gateway.grammar_jobs import GrammarJobs, GuidedAnswer, JsonForm
from peer.gateway.rerank_requests import ranked
from peer.gateway.responses import Likely
from peer.gateway.tool_calls import CallScanner, Tool, ToolCall, style_of, tool_of
from peer.member.comparing import classified
from peer.member.joining import join
from peer.member.mesh_member import MeshMember as Member
from peer.member.peer_options import PeerOptions
from peer.member.sight import given_rows, prepared
from peer.member.text_models import embeddings, text_classes, text_scores
from peer.member.transcription import open_transcriber
from peer.model.pictures import apart, file_bytes
from peer.model.sound import decoded
from peer.model.speech_asked import Segment, SpeechAsked
from peer.model.subtitles import plain
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.origin.answering_model import AnsweringModel
from peer.origin.arithmetic_changes import Crossing
from peer.session.evidence import Floats
from peer.session.sampling import MAX_SEED, AskedSampling, sampling_for
from peer.session.steering import Steering
from peer.stage.seat_waiting import Waits
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.store import Store

READY_WITHIN_S: Final = 120.0  # peers may still be fetching weights

__all__ = ["Answer", "BlockingMesh", "Mesh", "Token", "Waits"]

_T = TypeVar("_T")
# A question, or a conversation as OpenAI's API has it; a part of a content may be a picture (peer.model.pictures).
Messages = str | Sequence[Mapping[str, Any]]


class Options(TypedDict, total=False):
    """How to answer. Each may be left out: sampling is then as the model's own settings say, or as it is usual
    (temperature 0.7, top_p 0.95), `seed` one by chance. `temperature` 0 is the likeliest token always.
    """

    model: str  # a further model that answers in words, by its name in the mesh; the mesh's own by default
    system: str  # instructions before a question
    temperature: float
    top_k: int
    top_p: float
    min_p: float
    repetition_penalty: float
    frequency_penalty: float
    presence_penalty: float
    seed: int
    max_tokens: int | None
    stop: Sequence[str]
    logit_bias: Mapping[int, float]
    top_logprobs: int  # 0: of the answer's own tokens only
    schema: Mapping[str, Any] | None  # JSON that fits it; {"type": "object"}: any object
    tools: Sequence[Mapping[str, Any]]
    on_wait: Callable[
        [Waits | None], None
    ]  # while the mesh is full: where this stands; None: its turn has come


@dataclass(frozen=True, slots=True)
class Token:
    """A piece of an answer: `text` (often "", never half a character) and, where asked for, its probability."""

    text: str
    id: int
    likely: Likely | None = None


@dataclass(frozen=True, slots=True)
class Answer:
    """A whole answer. `why`: "end", "stop", "length" or "tool_calls"."""

    text: str
    why: str
    seed: int
    prompt_tokens: int
    cached_tokens: int
    tokens: int
    seconds: float
    calls: tuple[ToolCall, ...] = ()
    likely: tuple[Likely, ...] = ()
    crossed: tuple[
        Crossing, ...
    ] = ()  # where it went on with other arithmetic: wording may differ from there


@dataclass(frozen=True, slots=True)
class Transcript:
    """What is said in a recording. `segments`: its parts with their times, in milliseconds; `language`: its code, ""
    where the model knows one.
    """

    text: str
    segments: tuple[Segment, ...]
    language: str


class Mesh:
    """A mesh that this process asks. Made by `Mesh.join` and `Mesh.join_blocking`."""

    def __init__(self, member: Member) -> None:
        self._member = member
        self._grammars: dict[str, GrammarJobs] = {}  # by id of the model

    @staticmethod
    @asynccontextmanager
    async def join(
        link: str,
        *,
        store: Path | None = None,
        name: str = "python",
        transport: str = "auto",
        bind: Sequence[str] = (),
    ) -> AsyncIterator[Mesh]:
        """Joins as a guest that only asks. `store`: where the tokenizer is kept for the next time.

        Raises WrongLink, InviteExpired, InviteUsedUp, InviteRevoked, ServerUnreachable, NotAdmitted, ConnectFailed.
        """
        options = PeerOptions(name, 0, 1, "cpu", transport, tuple(bind))
        async with AsyncExitStack() as stack:
            if store is None:
                store = Path(stack.enter_context(TemporaryDirectory(prefix="shoal-")))
            mesh = Mesh(await stack.enter_async_context(join(link, options, Store(store))))
            stack.push_async_callback(mesh._close)
            yield mesh

    @staticmethod
    @contextmanager
    def join_blocking(
        link: str,
        *,
        store: Path | None = None,
        name: str = "python",
        transport: str = "auto",
        bind: Sequence[str] = (),
    ) -> Iterator[BlockingMesh]:
        """The same for programs without an event loop: one runs in a thread of its own meanwhile."""
        with _Loop() as loop:
            joining = Mesh.join(link, store=store, name=name, transport=transport, bind=bind)
            mesh = loop.run(joining.__aenter__())
            try:
                yield BlockingMesh(mesh, loop)
            finally:
                loop.run(joining.__aexit__(None, None, None))

    @property
    def member(self) -> Member:
        """What this process is in the mesh: its state, its plan, its members."""
        return self._member

    @property
    def model(self) -> str:
        """The name of the model that answers in words. Raises NoPlan where the mesh has none, and while this process is
        out of it.
        """
        return self._member.view.chosen.name

    async def ready(self, timeout_s: float = READY_WITHIN_S) -> None:
        """Waits until the mesh can answer. Raises NoPlan, saying why not, when it cannot in time or never will."""
        await self._member.until_serving(timeout_s)

    async def chat(self, messages: Messages, **options: Unpack[Options]) -> AsyncGenerator[Token]:
        """Streams one answer. Closing the generator early stops it on every stage.

        Raises BadSampling, ContextOverflow, NoPlan, AnswerFailed (MeshFull, MustContribute), and ApiError for what
        cannot be asked.
        """
        asked = await self._asked(options)
        async with aclosing(self._pieces(asked, messages, options)) as pieces:
            async for piece in pieces:
                if isinstance(piece, Delta):
                    yield Token(piece.text, piece.token, _likely(piece, asked.model.text))

    async def ask(self, messages: Messages, **options: Unpack[Options]) -> Answer:
        """One whole answer. Raises as `chat` does."""
        seed = options.setdefault("seed", int.from_bytes(os.urandom(6)))
        deltas: list[Delta] = []
        asked = await self._asked(options)
        async with aclosing(self._pieces(asked, messages, options)) as pieces:
            async for piece in pieces:
                match piece:
                    case Delta():
                        deltas.append(piece)
                    case Finished():
                        end = piece
        text, why = "".join(delta.text for delta in deltas), end.why
        calls: tuple[ToolCall, ...] = ()
        tools = self._tools(options)
        template = asked.model.text.tool_template
        style = style_of(template) if template is not None else None
        if tools and style is not None:
            scanner = CallScanner(style, frozenset(tool.name for tool in tools))
            words = [scanner.push(delta.text, delta.control) for delta in deltas]
            more, calls = scanner.end()
            text = "".join(words) + more
        every = (_likely(delta, asked.model.text) for delta in deltas)
        likely = tuple(found for found in every if found is not None)
        return Answer(
            text,
            "tool_calls" if calls else why,
            seed,
            end.prompt_tokens,
            end.cached_tokens,
            end.tokens,
            end.seconds,
            calls,
            likely,
            end.crossed,
        )

    # --- runs of other models

    async def run(
        self, model: str, inputs: Mapping[str, npt.ArrayLike], timeout_s: float | None = None
    ) -> dict[str, Array]:
        """The outputs of one item, by name. `model`: what the mesh offers it as (`shoal offer`).

        Raises WrongTensor for an input of another type or shape, NoPlan, RunFailed, TimeoutError.
        """
        run = await self._member.open_run(model)
        try:
            return await run.run(arrays_of(run.manifest, inputs), timeout_s)
        finally:
            await run.close()

    async def map(
        self, model: str, items: Iterable[Mapping[str, npt.ArrayLike]], timeout_s: float | None = None
    ) -> AsyncGenerator[dict[str, Array]]:
        """The outputs of each item, in order; several items are under way, so that every stage has work.

        Leaving the loop early cancels what is under way. Raises as `run` does, at the item that cannot be computed or
        takes longer than `timeout_s`.
        """
        run = await self._member.open_run(model)
        try:
            arrays = (arrays_of(run.manifest, item) for item in items)
            async with aclosing(run.map(arrays, timeout_s)) as outputs:
                async for found in outputs:
                    yield found
        finally:
            await run.close()

    async def embed(self, texts: str | Sequence[str], model: str | None = None) -> Floats:
        """A vector of each text, float32 (texts, dimensions), by a model that the mesh offers beside its own.

        `model`: its name; None: the only one that makes embeddings. Batches of texts go over all peers that have room.
        Raises NoPlan, CannotServe, RunFailed; BadCommand for a text that is longer than the model takes.
        """
        return await embeddings(self._member, [texts] if isinstance(texts, str) else texts, model)

    async def transcribe(
        self,
        path: str | Path,
        model: str | None = None,
        language: str | None = None,
        *,
        translate: bool = False,
    ) -> Transcript:
        """What is said in a file with sound, by a model that the mesh offers (`shoal offer`).

        `model`: its name; None: the only one that writes what is said. `language`: a code such as "en"; None: as the
        beginning sounds. `translate`: into English. Raises BadCommand for a file without sound, and for a language that
        the model does not know; NoPlan, CannotServe, RunFailed, AnswerFailed.
        """
        samples = await decoded(await asyncio.to_thread(Path(path).absolute))
        transcriber = await open_transcriber(self._member, model)
        parts, heard = list[Segment](), ""
        try:
            async with aclosing(transcriber.written(samples, SpeechAsked(language, translate))) as windows:
                async for window in windows:
                    parts += window.segments
                    heard = window.language
        finally:
            await transcriber.close()
        return Transcript(plain(parts), tuple(parts), heard)

    async def rerank(
        self, query: str, documents: Sequence[str], model: str | None = None
    ) -> list[tuple[int, float]]:
        """The places of the documents and how well each answers the query, the best first, by a cross-encoder that the
        mesh offers beside its own.

        `model`: its name; None: the only one that ranks texts. Raises as `embed` does, BadCommand for a document that
        is longer with the query than the model takes.
        """
        scores = await text_scores(self._member, query, documents, model)
        return [(place, float(scores[place])) for place in ranked(scores)]

    async def classify(
        self, what: str | Path | bytes, labels: Sequence[str] | None = None, model: str | None = None
    ) -> dict[str, float]:
        """How well each label fits, the best first, by a model that the mesh offers. With `labels` of a picture (a
        file, or its bytes; CLIP: shares of 1; SigLIP: a probability of each), without them of a text, by the model's
        own (shares of 1, or each by itself where several may fit). `model`: its name; None: the only one that does so.

        Raises BadPicture, NoPlan, CannotServe, RunFailed; BadCommand for labels or a text that it cannot read.
        """
        if labels is None:
            if not isinstance(what, str):
                raise BadCommand("a text expected, or labels for a picture")
            return (await text_classes(self._member, [what], model))[0]
        file = await asyncio.to_thread(file_bytes, what)
        return await classified(self._member, file, labels, model)

    async def _asked(self, options: Options) -> AnsweringModel:
        name = options.get("model")
        if name is None:
            _ = self._member.view.chosen  # or it says why there is none
        return await self._member.answering(name)

    async def _pieces(
        self, asked: AnsweringModel, messages: Messages, options: Options
    ) -> AsyncGenerator[Delta | Finished]:
        model = asked.chosen
        turns = _turns(messages, options.get("system", ""))
        text, tools = asked.model.text, self._tools(options)
        if tools and (text.tool_template is None or style_of(text.tool_template) is None):
            raise CannotServe(f"the chat template of {model.name} knows no tools")
        whole = [tool.whole for tool in tools] or None
        turns, pictures = await asyncio.to_thread(apart, turns)
        prompt = await asked.model.prompts.turns(turns, whole, model.context)
        seen = await prepared(self._member, asked, prompt, pictures)
        prompt, rows = seen.prompt, await given_rows(self._member, seen)
        schema = options.get("schema")
        guide = await self._guide(asked, schema) if schema is not None else None
        conversation = asked.conversation()
        if (tell := options.get("on_wait")) is not None:
            conversation.on_wait(tell)
        try:
            settings = replace(_settings(options, asked.model.sampling_defaults, guide), rows=rows)
            async with aclosing(conversation.tokens(prompt.tokens, settings)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            with suppress(Exception):  # the mesh may be gone already, and said so
                conversation.close()
            if guide is not None:
                guide.close()

    async def _guide(self, asked: AnsweringModel, schema: Mapping[str, Any]) -> GuidedAnswer:
        model = asked.chosen.model
        if model not in self._grammars:
            self._grammars[model] = GrammarJobs(asked.model.text_file)
        form, grammars = JsonForm(schema), self._grammars[model]
        await grammars.check(form)
        return grammars.guided(form)

    async def _close(self) -> None:
        for grammars in self._grammars.values():
            await grammars.close()

    @staticmethod
    def _tools(options: Options) -> tuple[Tool, ...]:
        return tuple(tool_of(tool, f"tools[{place}]") for place, tool in enumerate(options.get("tools", ())))


def _likely(piece: Delta, text: Text) -> Likely | None:
    return shown_likely(piece.likely, text) if piece.likely else None


class BlockingMesh:
    """A mesh for programs without an event loop. For one thread at a time."""

    def __init__(self, mesh: Mesh, loop: _Loop) -> None:
        self._mesh = mesh
        self._loop = loop

    @property
    def model(self) -> str:
        """The name of the model."""
        return self._mesh.model

    def ready(self, timeout_s: float = READY_WITHIN_S) -> None:
        """As Mesh.ready."""
        self._loop.run(self._mesh.ready(timeout_s))

    def ask(self, messages: Messages, **options: Unpack[Options]) -> Answer:
        """As Mesh.ask."""
        return self._loop.run(self._mesh.ask(messages, **options))

    def chat(self, messages: Messages, **options: Unpack[Options]) -> Iterator[Token]:
        """As Mesh.chat. Leaving the loop over it early stops the answer on every stage."""
        tokens = self._mesh.chat(messages, **options)

        async def following() -> Token | None:
            return await anext(tokens, None)

        try:
            while (token := self._loop.run(following())) is not None:
                yield token
        finally:
            self._loop.run(tokens.aclose())

    def run(
        self, model: str, inputs: Mapping[str, npt.ArrayLike], timeout_s: float | None = None
    ) -> dict[str, Array]:
        """As Mesh.run."""
        return self._loop.run(self._mesh.run(model, inputs, timeout_s))

    def embed(self, texts: str | Sequence[str], model: str | None = None) -> Floats:
        """As Mesh.embed."""
        return self._loop.run(self._mesh.embed(texts, model))

    def transcribe(
        self,
        path: str | Path,
        model: str | None = None,
        language: str | None = None,
        *,
        translate: bool = False,
    ) -> Transcript:
        """As Mesh.transcribe."""
        return self._loop.run(self._mesh.transcribe(path, model, language, translate=translate))

    def rerank(
        self, query: str, documents: Sequence[str], model: str | None = None
    ) -> list[tuple[int, float]]:
        """As Mesh.rerank."""
        return self._loop.run(self._mesh.rerank(query, documents, model))

    def classify(
        self, what: str | Path | bytes, labels: Sequence[str] | None = None, model: str | None = None
    ) -> dict[str, float]:
        """As Mesh.classify."""
        return self._loop.run(self._mesh.classify(what, labels, model))

    def map(
        self, model: str, items: Iterable[Mapping[str, npt.ArrayLike]], timeout_s: float | None = None
    ) -> Iterator[dict[str, Array]]:
        """As Mesh.map. Leaving the loop over it early cancels what is under way."""
        outputs = self._mesh.map(model, items, timeout_s)

        async def following() -> dict[str, Array] | None:
            return await anext(outputs, None)

        try:
            while (found := self._loop.run(following())) is not None:
                yield found
        finally:
            self._loop.run(outputs.aclose())


class _Loop:
    """An event loop in a thread of its own, as long as the block lasts."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="shoal", daemon=True)

    def run(self, work: Awaitable[_T]) -> _T:
        """What `work` gives. Ctrl-C while it runs cancels it."""
        future = asyncio.run_coroutine_threadsafe(_awaited(work), self._loop)
        try:
            return future.result()
        except KeyboardInterrupt:
            future.cancel()
            raise

    def __enter__(self) -> _Loop:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.run(self._loop.shutdown_asyncgens())
        self.run(self._loop.shutdown_default_executor())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _awaited(work: Awaitable[_T]) -> _T:
    return await work


def _turns(messages: Messages, system: str) -> list[Mapping[str, Any]]:
    turns: list[Mapping[str, Any]] = [{"role": "system", "content": system}] if system else []
    return [*turns, *([{"role": "user", "content": messages}] if isinstance(messages, str) else messages)]


def _settings(options: Options, defaults: SamplingDefaults, guide: GuidedAnswer | None) -> Settings:
    """Raises BadSampling."""
    bias = options.get("logit_bias", {})
    asked = AskedSampling(
        temperature=options.get("temperature"),
        top_k=options.get("top_k"),
        top_p=options.get("top_p"),
        min_p=options.get("min_p"),
        repetition_penalty=options.get("repetition_penalty"),
        frequency_penalty=options.get("frequency_penalty"),
        presence_penalty=options.get("presence_penalty"),
    )
    return Settings(
        sampling_for(defaults, asked, options.get("seed", int.from_bytes(os.urandom(6))) % (MAX_SEED + 1)),
        options.get("max_tokens"),
        tuple(options.get("stop", ())),
        steering=Steering(
            options.get("top_logprobs"),
            tuple(sorted((token, round(by * 1_000_000)) for token, by in bias.items())),
        ),
        guide=guide,
    )
