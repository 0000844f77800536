"""The gateway: a mesh as an HTTP server in the form of OpenAI's API (docs/api.md).

Edge. What requests mean is decided in peer.gateway.chat_requests, what answers look like in peer.gateway.responses.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import logging
import os
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from ipaddress import ip_address
from typing import Concatenate, Final, ParamSpec, TypeVar

from aiohttp import web

from peer.errors import (
    ApiError,
    BadCommand,
    BadPicture,
    BadSampling,
    ChatTemplateError,
    ContextOverflow,
    GrammarFailed,
    MustContribute,
    NoPlan,
    PeerError,
    TextError,
)
from peer.gateway import anthropic_answers
from peer.gateway import responses as shapes
from peer.gateway.answer_forms import AnswerForm, ChatForm, CompletionForm, call_ids
from peer.gateway.answers import Begun, Called, Calling, Done, Said, Task
from peer.gateway.anthropic_answers import MessageForm
from peer.gateway.asked_model import AskedModel
from peer.gateway.chat_requests import Wanted
from peer.gateway.client_pace import Bounds, ClientPace, TooOften
from peer.gateway.embedder import Embedder
from peer.gateway.grammar_jobs import Form
from peer.gateway.incoming_bodies import IncomingBodies
from peer.gateway.mesh_texts import MeshEmbedders
from peer.gateway.request_queue import RETRY_AFTER_S, full, too_many
from peer.gateway.request_reading import (
    ForFurther,
    ReadChat,
    Served,
    no_text,
    read_chat,
    read_completion,
    read_count,
    read_embedding,
    read_message,
    read_rerank,
    read_response,
    read_unanswered,
)
from peer.gateway.response_answers import ResponseAnswer, ResponseForm
from peer.gateway.responses import Choice, Heading, Shape, Usage, Used
from peer.gateway.transcriptions import Transcriptions
from peer.gateway.uploads.uploaded_files import UploadedFiles
from peer.member.mesh_member import MeshMember
from peer.member.sight import counted, given_rows, prepared
from peer.member.text_models import Found, Use
from peer.model.prompts import BUDGET, Prompt
from peer.model.tokenizer import Text
from peer.origin.answer_stream import Settings
from peer.origin.answering_model import AnsweringModel
from peer.origin.model_health import answers, healths
from peer.origin.text_vectors import dimensions_of
from peer.session.given_rows import GivenRows
from peer.session.origin import room_for
from peer.session.sampling import MAX_SEED
from peer.session.steering import Steering
from peer.state.decoders import Decoders
from peer.state.generated.commands import ModelChosen
from planner.errors import JobError, JobTooLarge, JobTooLong
from planner.jobs.jobs import Jobs
from planner.model.graph_manifest import GraphManifest
from planner.model.sampling_defaults import OPENAI, SamplingDefaults
from signaling.http_connections import ConnectionRoom, HttpConnections, is_shortage, listening

MAX_WAITING: Final = 512
FULL_WAIT_S: Final = 120.0
PLAN_WAIT_S: Final = 30.0  # for peers that are still loading, before a request is refused
CLOSE_WITHIN_S: Final = 2.0
MESSAGES: Final = "/v1/messages"
HELD_S: Final = 1.0  # a refusal of who asks too often, before it is told
MOST_HELD: Final = 512
LEAVING_TURNS: Final = 4  # of the loop, until it knows that a connection ended right after a request
_HEADER_NAMES: Final = re.compile(r"[A-Za-z0-9-]{1,64}(?: ?, ?[A-Za-z0-9-]{1,64}){0,63}")

P = ParamSpec("P")
T = TypeVar("T")
Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """Where to listen, and who may ask. Without keys: only this machine."""

    host: str = "127.0.0.1"
    port: int = 8000
    keys: tuple[str, ...] = ()
    origins: frozenset[str] = frozenset()  # pages whose scripts may ask; none unless told
    max_waiting: int = MAX_WAITING
    full_wait_s: float = FULL_WAIT_S  # for a session, while others of the mesh hold all of them
    openai_defaults: bool = False  # of sampling, instead of the model's
    connections: ConnectionRoom = field(default_factory=ConnectionRoom)
    pace: Bounds = field(default_factory=Bounds)  # of each client


@asynccontextmanager
async def gateway(
    mesh: MeshMember, options: GatewayOptions, embedder: Embedder | None = None
) -> AsyncIterator[str]:
    """Serves `mesh`, and `embedder` beside it, over HTTP; gives the base URL.

    Raises BadCommand for an open door, OSError for a port in use.
    """
    if not options.keys and not _is_loopback(options.host):
        raise BadCommand(
            f"whoever reaches {options.host} could use this mesh: give --key, or listen on 127.0.0.1 only"
        )
    serving = Gateway(mesh, options, embedder)
    connections = HttpConnections(options.connections)
    runner = web.AppRunner(
        serving.app(connections), handler_cancellation=True, shutdown_timeout=CLOSE_WITHIN_S
    )
    await runner.setup()
    try:
        async with listening(
            runner,
            connections,
            (options.host, options.port),
            access_log=None,
            lingering_time=CLOSE_WITHIN_S,
            auto_decompress=False,  # a few bytes can stand for a thousand times as many
        ) as (_, port):
            host = f"[{options.host}]" if ":" in options.host else options.host
            yield f"http://{host}:{port}/v1"
    finally:
        await runner.cleanup()
        await serving.close()


def _name_of(host: str) -> str:
    """The name or address in a Host header: without its port, and without the brackets of IPv6."""
    if (found := re.fullmatch(r"\[([^\]]*)\](?::\d*)?", host)) is not None:
        return found[1]
    return host.partition(":")[0] if host.count(":") == 1 else host


async def _still_there() -> None:
    """Lets the loop look whether who asked has left already, which ends the request before anything is computed."""
    for _ in range(LEAVING_TURNS):
        await asyncio.sleep(0)


def _key_of(request: web.Request) -> bytes:
    scheme, _, key = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() != "bearer":
        key = request.headers.get("x-api-key", "")  # as Anthropic's clients send it
    return key.strip().encode("utf-8", "surrogateescape")


def _is_anthropic(request: web.Request) -> bool:
    """Whether a client of Anthropic's API asks."""
    return request.path.startswith(MESSAGES) or "anthropic-version" in request.headers


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return False


class Gateway:
    """The routes, over one membership of a mesh."""

    def __init__(self, mesh: MeshMember, options: GatewayOptions, embedder: Embedder | None) -> None:
        self._mesh = mesh
        self._options = options
        self._embedder = embedder
        self._mesh_embedders = MeshEmbedders(mesh)
        self._transcriptions = Transcriptions(mesh)
        self._uploads = UploadedFiles(self._client, _is_anthropic)
        self._keys = tuple(hashlib.sha256(key.encode()).digest() for key in options.keys)
        self._created = int(time.time())
        own = AnsweringModel(mesh.view, mesh.model, mesh.sessions, open_run=mesh.open_run)
        self._own = AskedModel(own, options.max_waiting, options.full_wait_s)
        self._further: dict[tuple[str, str], AskedModel] = {}  # by name and id, once it was asked
        self._known_plain: Jobs | None = None
        self._incoming = IncomingBodies()
        self._pace = ClientPace(options.pace)
        self._held = 0  # refusals

    def app(self, connections: HttpConnections) -> web.Application:
        """Returns the web application with all routes."""
        app = web.Application(middlewares=[connections.middleware, self._guarded])
        app.router.add_get("/v1/models", self._list_models)
        app.router.add_get("/v1/models/{model:.+}", self._one_model)
        app.router.add_post("/v1/chat/completions", self._chat)
        app.router.add_post("/v1/completions", self._complete)
        app.router.add_post("/v1/responses", self._respond)
        app.router.add_post(MESSAGES, self._message)
        app.router.add_post(f"{MESSAGES}/count_tokens", self._count)
        app.router.add_post("/v1/embeddings", self._embed)
        app.router.add_post("/v1/audio/transcriptions", self._transcribe)
        app.router.add_post("/v1/audio/translations", self._translate)
        app.router.add_post("/v1/rerank", self._rerank)
        self._uploads.add_to(app.router)
        app.router.add_get("/healthz", self._health)
        return app

    async def close(self) -> None:
        """Stops listening to the state of the mesh, and ends the processes of its own."""
        self._mesh_embedders.close()
        await self._transcriptions.close()
        self._uploads.close()
        for each in (self._own, *self._further.values()):
            await each.close()
        if self._known_plain is not None:
            await self._known_plain.close()

    # --- who may ask, and how refusals look

    @web.middleware
    async def _guarded(self, request: web.Request, handler: Handler) -> web.StreamResponse:
        try:
            await self._paced(request)
            self._admit(request)
            response = await handler(request)
        except web.HTTPException as problem:
            if problem.status < 400:
                raise
            response = _refused(_http_problem(problem), request)
        except Exception as problem:
            response = _refused(_told(problem), request)
        origin = request.headers.get("Origin")
        if origin in self._options.origins and not response.prepared:
            response.headers.update(_allowing(request))
        return response

    async def _paced(self, request: web.Request) -> None:
        """Waits until its client may ask this. Raises ApiError for one of too many that wait, and not at once: who asks
        again right after a refusal asks no more than so often.
        """
        if request.path == "/healthz":
            return
        client = self._client(request)
        match self._pace.take(client, asyncio.get_running_loop().time()):
            case TooOften(wait_s):
                if self._held < MOST_HELD:
                    self._held += 1
                    try:
                        await asyncio.sleep(HELD_S)
                    finally:
                        self._held -= 1
                raise too_many("too many requests of one client: ask less often, or more at once", wait_s)
            case wait_s if wait_s > 0:
                await asyncio.sleep(wait_s)

    def _admit(self, request: web.Request) -> None:
        """Raises ApiError unless this request may be answered."""
        origin = request.headers.get("Origin")
        if origin is not None and origin not in self._options.origins:
            raise ApiError("pages of other origins may not ask here; --allow-origin lets one", 403)
        if request.method == "OPTIONS" and origin is not None:
            raise web.HTTPNoContent(headers=_allowing(request))
        if request.path == "/healthz":
            return
        if (refused := self._stranger(request)) is not None:
            raise refused

    def _stranger(self, request: web.Request) -> ApiError | None:
        """Why whoever asks may ask nothing but whether the mesh is well; None: may."""
        if not self._keys:
            if _is_loopback(_name_of(request.host)):
                return None
            return ApiError("without keys this gateway answers to loopback names only", 403)
        key = _key_of(request)
        if self._knows(hashlib.sha256(key).digest()):
            return None
        what = "Incorrect API key provided" if key else "No API key provided; send Authorization: Bearer KEY"
        return ApiError(what, 401, code="invalid_api_key")

    # --- models

    def _model(self) -> ModelChosen:
        return self._mesh.view.chosen

    def _in_words(self) -> bool:
        """Whether the mesh has a model of its own that answers in words. Raises NoPlan while this peer is out of its
        mesh.
        """
        view = self._mesh.view
        if view.state.model is None and view.me not in view.state.members:
            _ = view.chosen
        return view.state.model is not None

    async def _asked(self, name: str) -> AskedModel:
        """The further model of that name or id. Raises NoPlan where there is none, ApiError where it cannot be."""
        decoders = self._mesh.view.state.decoders
        name = next((each for each, found in decoders.items() if name in (each, found.model)), name)
        try:
            answering = await self._mesh.answering(name)
        except BadCommand as error:
            raise ApiError(str(error), param="model", code="model_not_supported") from error
        manifest = answering.model.manifest
        if manifest is not None and manifest.speech is not None:
            raise ApiError(
                f"{name} writes what is said and answers no questions: /v1/audio/transcriptions asks it",
                param="model",
                code="model_not_supported",
            )
        key = (name, answering.chosen.model)
        for gone in [each for each in self._further if each != key and not _is_offered(each, decoders)]:
            await self._further.pop(gone).close()
        if key not in self._further:
            self._further[key] = AskedModel(answering, self._options.max_waiting, self._options.full_wait_s)
        return self._further[key]

    def _defaults(self, asked: AskedModel | None = None) -> SamplingDefaults:
        model = (asked or self._own).model
        return OPENAI if self._options.openai_defaults else model.sampling_defaults

    def _shown_model(self) -> Shape:
        model = self._model()
        return shapes.answering_model(model.name, self._created, model.context, model.model, self._defaults())

    def _shown_further(self) -> dict[str, Shape]:
        """The further models that answer in words, by name."""
        return {
            name: shapes.model(name, self._created, found.context, found.model)
            for name, found in sorted(self._mesh.view.state.decoders.items())
        }

    def _shown_offers(self) -> dict[str, Shape]:
        """The models that the mesh offers beside those that answer, by name."""
        offers, models = self._mesh.view.state.offers, self._mesh_embedders.models
        of_texts = models.found(Use.EMBED) | models.found(Use.RANK)
        return {
            name: shapes.offered_model(name, self._created, offer.model)
            | (_text_shape(of_texts[name][1]) if name in of_texts else {})
            for name, offer in sorted(offers.items())
        }

    def _served(self, asked: AskedModel | None = None) -> Served:
        """What is asked: `asked`, or the mesh's own model."""
        loaded, state = self._embedder, self._mesh.view.state
        models = self._mesh_embedders.models
        embedders, rankers = _longest(models.found(Use.EMBED)), _longest(models.found(Use.RANK))
        if loaded is not None:
            embedders |= dict.fromkeys((loaded.name, loaded.model_id), loaded.max_tokens)
        names = tuple(sorted(state.decoders))
        further = frozenset((*names, *(found.model for found in state.decoders.values())))
        others = (embedders, frozenset(state.offers), names, further, rankers)
        if asked is None and not self._in_words():
            return Served("", "", 0, self._defaults(), *others)
        model = (asked or self._own).chosen
        return Served(model.name, model.model, model.context, self._defaults(asked), *others)

    async def _read(
        self,
        request: web.Request,
        work: Callable[Concatenate[Text, bytes, P], T],
        *args: P.args,
        **_: P.kwargs,
    ) -> T:
        """What `work` reads of a request's body. Short ones are read here, others in a process of their own, which ends
        with the request.
        """
        async with self._body(request) as raw:
            return await self._worked(raw, work, *args, **_)

    async def _read_words(
        self, request: web.Request, work: Callable[[Text, bytes, Served], T | ForFurther]
    ) -> tuple[AskedModel, T]:
        """The same of a request for words, and the model that it asks: which one that is stands in the body."""
        async with self._body(request) as raw:
            if not self._in_words():
                found: T | ForFurther = await self._plain(read_unanswered, raw, self._served())
            else:
                found = await self._worked(raw, work, self._served())
            if not isinstance(found, ForFurther):
                return self._own, found
            asked = await self._asked(found.name)
            asked.line.check(1, self._client(request))
            prompts, context = asked.model.prompts, asked.chosen.context
            read = await prompts.run(len(raw), context, work, raw, self._served(asked))
            assert not isinstance(read, ForFurther)  # it is served by that
            return asked, read

    @asynccontextmanager
    async def _body(self, request: web.Request) -> AsyncIterator[bytes]:
        if request.content_type != "application/json":
            raise ApiError("expected Content-Type: application/json", 415)
        client = self._client(request)
        if self._in_words():
            self._own.line.check(1, client)
        async with self._incoming.body(request, client) as raw:
            await _still_there()
            yield raw

    async def _worked(
        self, raw: bytes, work: Callable[Concatenate[Text, bytes, P], T], *args: P.args, **_: P.kwargs
    ) -> T:
        if not self._in_words():
            return await self._plain(work, raw, *args)
        return await self._own.model.prompts.run(len(raw), self._model().context, work, raw, *args, **_)

    async def _plain(self, work: Callable[..., T], raw: bytes, *args: object) -> T:
        """The same where no model of the mesh answers in words: there is no tokenizer, which none of it needs."""
        if self._known_plain is None:
            self._known_plain = Jobs(no_text, budget=BUDGET)
        try:
            return await self._known_plain.run(work, raw, *args)
        except (JobTooLong, JobTooLarge) as error:
            raise ApiError(f"this request cannot be read: {error}; send less") from error
        except JobError as error:
            raise full(f"this request cannot be read now: {error}", RETRY_AFTER_S) from error

    def _client(self, request: web.Request) -> str:
        """Whose request it is, as far as that can be told: its key's, where that is one of ours, or its address's."""
        given = hashlib.sha256(_key_of(request)).digest()
        return given.hex() if self._knows(given) else request.remote or ""

    def _knows(self, given: bytes) -> bool:
        found = [hmac.compare_digest(given, known) for known in self._keys]  # all of them, whichever fits
        return any(found)

    async def _list_models(self, request: web.Request) -> web.Response:
        own = [self._shown_model()] if self._in_words() else []
        if _is_anthropic(request):
            answering = [each["id"] for each in (*own, *self._shown_further().values())]
            since = datetime.fromtimestamp(self._created, UTC).isoformat().replace("+00:00", "Z")
            return web.json_response(anthropic_answers.models([(name, since) for name in answering]))
        await self._mesh_embedders.models.look()
        further = self._shown_further().values()
        shown = [*own, *further, *self._shown_embedder(), *self._shown_offers().values()]
        return web.json_response(shapes.models(shown))

    async def _one_model(self, request: web.Request) -> web.Response:
        name = request.match_info["model"]
        if self._embeds(name):
            return web.json_response(self._shown_embedder()[0])
        await self._mesh_embedders.models.look()
        if (offered := (self._shown_further() | self._shown_offers()).get(name)) is not None:
            return web.json_response(offered)
        self._served().check(name)
        return web.json_response(self._shown_model())

    async def _health(self, request: web.Request) -> web.Response:
        """Whoever may not ask anything else is told in one word, and not which models there are."""
        state = self._mesh.view.state
        found = healths(state, self._mesh.links.unreached)
        asked = request.query.get("model")
        ok, known = answers(found, asked, state.model is not None), self._stranger(request) is None
        shown: Shape = {"ok": bool(ok)}
        if known:
            shown["models"] = [asdict(each) | {"ok": not each.why} for each in found]
        return web.json_response(shown, status=200 if ok else 404 if ok is None and known else 503)

    async def _embed(self, request: web.Request) -> web.Response:
        await self._mesh_embedders.models.look()
        served = self._served()
        asked = await self._read(request, read_embedding, served)
        embedder = (
            self._embedder
            if self._embeds(asked.model)
            else await self._mesh_embedders.embedder(Use.EMBED, asked.model)
        )
        if embedder is None:  # withdrawn meanwhile
            raise served.unknown(asked.model)
        body = await embedder.answer(asked, self._client(request))
        return web.Response(body=body, content_type="application/json")

    async def _transcribe(self, request: web.Request) -> web.StreamResponse:
        return await self._heard(request, translated=False)

    async def _translate(self, request: web.Request) -> web.StreamResponse:
        return await self._heard(request, translated=True)

    async def _heard(self, request: web.Request, *, translated: bool) -> web.StreamResponse:
        headers = _allowing(request) if "Origin" in request.headers else {}
        return await self._transcriptions.answer(
            request, self._client(request), headers, translated=translated
        )

    async def _rerank(self, request: web.Request) -> web.Response:
        await self._mesh_embedders.models.look()
        served = self._served()
        asked = await self._read(request, read_rerank, served)
        ranker = await self._mesh_embedders.embedder(Use.RANK, asked.model)
        if ranker is None:  # withdrawn meanwhile
            raise served.unknown(asked.model)
        body = await ranker.rank(asked, self._client(request))
        return web.Response(body=body, content_type="application/json")

    def _embeds(self, name: str) -> bool:
        return self._embedder is not None and name in (self._embedder.name, self._embedder.model_id)

    def _shown_embedder(self) -> list[Shape]:
        loaded = self._embedder
        if loaded is None:
            return []
        shown = shapes.model(loaded.name, self._created, loaded.max_tokens, loaded.model_id)
        return [shown | {"dimensions": loaded.dimensions}]

    # --- answers

    async def _chat(self, request: web.Request) -> web.StreamResponse:
        model, asked = await self._read_words(request, read_chat)
        heading = self._heading(model, "chatcmpl", asked.wanted)
        return await self._answer_chat(request, model, asked, lambda _: ChatForm(heading, asked.wanted))

    async def _respond(self, request: web.Request) -> web.StreamResponse:
        model, (asked, echo) = await self._read_words(request, read_response)
        answer = ResponseAnswer.new(int(time.time()), model.chosen.name, echo)
        return await self._answer_chat(request, model, asked, lambda _: ResponseForm(answer, call_ids))

    async def _message(self, request: web.Request) -> web.StreamResponse:
        model, asked = await self._read_words(request, read_message)

        def form(prompt: Prompt) -> AnswerForm:
            return MessageForm(model.chosen.name, len(prompt.tokens), call_ids)

        return await self._answer_chat(request, model, asked, form)

    async def _count(self, request: web.Request) -> web.Response:
        model, asked = await self._read_words(request, read_count)
        pictures = await self._uploads.pictures(request, asked.pictures)
        tokens = await counted(self._mesh, model.answering, asked.prompt, pictures)
        return web.json_response({"input_tokens": tokens})

    async def _answer_chat(
        self, request: web.Request, model: AskedModel, asked: ReadChat, form: Callable[[Prompt], AnswerForm]
    ) -> web.StreamResponse:
        if asked.form is not None:
            async with self._incoming.place(self._client(request)):
                await model.grammars().check(asked.form)
        calling = Calling(asked.style, asked.tools, asked.parallel) if asked.style is not None else None
        model.line.check(asked.wanted.choices, self._client(request))
        pictures = await self._uploads.pictures(request, asked.pictures)
        seen = await prepared(self._mesh, model.answering, asked.prompt, pictures)
        prompt, rows = seen.prompt, await given_rows(self._mesh, seen)
        tasks = self._tasks(
            model,
            self._client(request),
            asked.wanted,
            [prompt.tokens],
            calling,
            asked.form,
            prompt.front,
            rows,
        )
        return await self._answer(request, model, tasks, asked.wanted, form(prompt))

    async def _complete(self, request: web.Request) -> web.StreamResponse:
        model, asked = await self._read_words(request, read_completion)
        tasks = self._tasks(model, self._client(request), asked.wanted, asked.prompts)
        heading = self._heading(model, "cmpl", asked.wanted)
        before = [text for text in asked.before for _ in range(asked.wanted.choices)]
        form = CompletionForm(heading, asked.wanted, before)
        return await self._answer(request, model, tasks, asked.wanted, form)

    async def _answer(
        self, request: web.Request, model: AskedModel, tasks: Sequence[Task], wanted: Wanted, form: AnswerForm
    ) -> web.StreamResponse:
        if wanted.stream:
            return await self._stream(request, model, tasks, wanted, form)
        choices, used, waited = await self._whole(model, tasks, wanted)
        return web.json_response(form.whole(choices, used), headers=waited)

    def _tasks(
        self,
        asked: AskedModel,
        client: str,
        wanted: Wanted,
        prompts: Sequence[tuple[int, ...]],
        calling: Calling | None = None,
        form: Form | None = None,
        front: int = 0,
        rows: tuple[GivenRows, ...] = (),
    ) -> list[Task]:
        """One for each choice. Raises ApiError when one cannot be asked at all, or too many wait."""
        model = asked.chosen
        asked.line.check(len(prompts) * wanted.choices, client)
        tasks: list[Task] = []
        for prompt in prompts:
            room_for(len(prompt), wanted.max_tokens, model.context)
            for number in range(wanted.choices):
                seed = wanted.seed + number if wanted.seed is not None else int.from_bytes(os.urandom(6))
                settings = Settings(
                    wanted.sampling(seed % (MAX_SEED + 1)),
                    wanted.max_tokens,
                    wanted.stop,
                    PLAN_WAIT_S,
                    steering=Steering(wanted.alternatives, wanted.bias),
                    guide=asked.grammars().guided(form) if form is not None else None,
                    seat_wait_s=self._options.full_wait_s,
                    front=front,
                    rows=rows,
                )
                tasks.append(Task(len(tasks), prompt, settings, calling, client))
        return tasks

    def _heading(self, asked: AskedModel, prefix: str, wanted: Wanted) -> Heading:
        model = asked.chosen
        return Heading(
            f"{prefix}-{os.urandom(12).hex()}",
            int(time.time()),
            model.name,
            f"shoal_{model.model[:12]}",
            wanted.alternatives is not None,
        )

    async def _whole(
        self, asked: AskedModel, tasks: Sequence[Task], wanted: Wanted
    ) -> tuple[list[Choice], Usage, dict[str, str]]:
        since = time.monotonic()
        ahead = asked.line.waiting
        waited_s = 0.0
        choices = [Choice(task.index) for task in tasks]
        used = Used(wanted.choices)
        async with aclosing(asked.answers.together(tasks)) as events:
            async for event in events:
                choice = choices[event.index]
                match event:
                    case Begun():
                        waited_s = time.monotonic() - since
                    case Said():
                        choice.text += event.text
                        choice.likely += event.likely
                    case Called():
                        choice.calls = event.calls
                        choice.call_ids = call_ids(len(event.calls))
                    case Done():
                        choice.why, choice.crossed = event.why, event.finished.crossed
                        choice.stop = event.finished.stop
                        used.add(event.index, _usage(event))
        return choices, used.all, _waited(ahead, waited_s)

    async def _stream(
        self,
        request: web.Request,
        asked: AskedModel,
        tasks: Sequence[Task],
        wanted: Wanted,
        form: AnswerForm,
    ) -> web.StreamResponse:
        """Server-sent events. Refusals before the first word are answers of their own; later ones end the stream."""
        since = time.monotonic()
        ahead = asked.line.waiting
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream; charset=utf-8", "Cache-Control": "no-cache"}
        )
        used = Used(wanted.choices)

        async def send(part: Shape) -> None:
            name = f"event: {part['type']}\n" if form.has_names else ""
            await response.write(f"{name}data: {json.dumps(part, ensure_ascii=False)}\n\n".encode())

        async with aclosing(asked.answers.together(tasks)) as events:
            try:
                async for event in events:
                    if not response.prepared and not isinstance(event, Begun):
                        response.headers.update(_waited(ahead, time.monotonic() - since))
                        origin = request.headers.get("Origin")
                        if origin is not None:
                            response.headers.update(_allowing(request))
                        await response.prepare(request)
                        for part in form.begin(len(tasks)):
                            await send(part)
                    for part in form.parts(event):
                        await send(part)
                    if isinstance(event, Done):
                        used.add(event.index, _usage(event))
            except ConnectionResetError:
                raise
            except Exception as problem:
                if not response.prepared:
                    raise
                await send(form.failed(_told(problem)))
                return response
        for part in form.end(used.all):
            await send(part)
        await response.write(form.last)
        return response


def _is_offered(key: tuple[str, str], decoders: Decoders) -> bool:
    name, model = key
    return name in decoders and decoders[name].model == model


def _text_shape(manifest: GraphManifest) -> Shape:
    """What the list of models says of one that makes embeddings or ranks texts, besides."""
    assert manifest.text is not None  # as it has an output of texts
    dimensions = dimensions_of(manifest)
    shown: Shape = {"context_length": manifest.text.longest}
    return shown | ({"dimensions": dimensions} if dimensions else {"ranks": True})


def _longest(found: Found) -> dict[str, int]:
    """How many tokens models of texts take, by name and id."""
    return {
        called: manifest.text.longest
        for name, (model, manifest) in found.items()
        if manifest.text is not None
        for called in (name, model)
    }


def _usage(event: Done) -> Usage:
    finished = event.finished
    return Usage(finished.prompt_tokens, finished.cached_tokens, finished.tokens)


def _waited(ahead: int, seconds: float) -> dict[str, str]:
    return {"X-Shoal-Ahead": str(ahead), "X-Shoal-Waited-Ms": str(round(seconds * 1000))}


def _allowing(request: web.Request) -> dict[str, str]:
    """What lets a page of an allowed origin ask, with whichever headers its client sends, and read ours."""
    asked = request.headers.get("Access-Control-Request-Headers", "")
    return {
        "Access-Control-Allow-Origin": request.headers["Origin"],
        "Access-Control-Allow-Headers": asked
        if _HEADER_NAMES.fullmatch(asked)
        else "authorization, content-type",
        "Access-Control-Allow-Methods": "GET, POST",
        "Access-Control-Expose-Headers": "X-Shoal-Ahead, X-Shoal-Waited-Ms, Retry-After",
        "Vary": "Origin, Access-Control-Request-Headers",
    }


def _refused(problem: ApiError, request: web.Request) -> web.Response:
    shape = anthropic_answers.error if _is_anthropic(request) else shapes.error
    headers = {"Retry-After": str(problem.retry_after_s)} if problem.retry_after_s is not None else {}
    if problem.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return web.json_response(shape(problem), status=problem.status, headers=headers)


def _http_problem(problem: web.HTTPException) -> ApiError:
    if isinstance(problem, web.HTTPNotFound):
        return ApiError("there is no such route; docs/api.md lists them", 404, code="unknown_url")
    return ApiError(problem.reason, problem.status)


def _told(problem: Exception) -> ApiError:
    """What a program hears of any error. Of a defect: that it is one; this machine's log has the rest."""
    if isinstance(problem, PeerError):
        return _problem(problem)
    if is_shortage(problem):
        log.warning("a request failed: %s", type(problem).__name__)
        return ApiError(
            "this machine is short of memory or open files at the moment: try again",
            503,
            "server_error",
            code="gateway_full",
            retry_after_s=RETRY_AFTER_S,
        )
    log.error("a request failed", exc_info=problem)
    return ApiError("a defect of the gateway; its log says more", 500, "server_error")


def _problem(problem: PeerError) -> ApiError:
    """What a program hears of an error of the mesh."""
    match problem:
        case ApiError():
            return problem
        case ContextOverflow():
            return ApiError(str(problem), param="messages", code="context_length_exceeded")
        case BadSampling() | BadPicture() | ChatTemplateError() | TextError():
            return ApiError(str(problem))
        case MustContribute():  # waiting does not help, so there is no Retry-After
            return ApiError(str(problem), 503, "server_error", code="must_contribute")
        case GrammarFailed():  # nor here
            return ApiError(str(problem), 500, "server_error", code="grammar_failed")
        case NoPlan():
            return ApiError(
                str(problem), 503, "server_error", code="mesh_not_ready", retry_after_s=RETRY_AFTER_S
            )
        case _:
            return ApiError(
                str(problem), 503, "server_error", code="answer_failed", retry_after_s=RETRY_AFTER_S
            )
