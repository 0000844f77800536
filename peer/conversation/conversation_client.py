"""Conversations of the mesh as this peer takes part in them: asks in turn, hears others' answers, adopts some.

An answer is adopted when its asker is gone. Edge; peer.conversation.turn_order and peer.conversation.live_answer
decide. The log is the truth. Beside it members send each other hints (peer.conversation.live_hints).
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from peer.conversation.answer_in_progress import Making
from peer.conversation.live_answer import Listening
from peer.conversation.live_hints import TYPING_S, Hints, piece_of
from peer.conversation.picture_marks import told_text, unmarked_text
from peer.conversation.turn_order import adopters, next_turn, prompt_of, running
from peer.errors import BadPicture, ContextOverflow, PeerError
from peer.limits import SESSION_BYTES
from peer.model.chat_template import Message
from peer.model.prompts import Prompt
from peer.origin.answer_stream import Begun, Conversation, Finished, Settings, day_of
from peer.origin.answering_model import AnsweringModel
from peer.replication.mesh_view import MeshView
from peer.replication.proposal_queue import Proposals
from peer.session.origin import Heard, room_for
from peer.session.sampling import AskedSampling, Sampling, sampling_for
from peer.state.conversations import Conversation as Talk
from peer.state.conversations import Conversations
from peer.state.generated.commands import (
    AnswerAdopted,
    ConversationChanged,
    ConversationCommand,
    ConversationRemoved,
    ConversationStarted,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    Participant,
    ParticipantLeft,
    ParticipantPutOut,
    ParticipantSet,
    Role,
)
from peer.state.generated.commands import Message as Said
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import LIVE, TYPING, LiveRequest, TypingRequest
from planner.model.sampling_defaults import USUAL, SamplingDefaults

ADOPT_STEP_S: Final = 0.3  # between those who may make an answer go on
PLAN_WAIT_S: Final = 60.0  # a question that finds no plan says so, and can be asked again
ID_BYTES: Final = 9
MAX_SESSIONS: Final = 4  # kept for next questions, each a slot on every stage
MAX_KEPT: Final = 32  # answers that ended early
MAX_REASON: Final = 400  # characters
COLOURLESS: Final = "#888888"
WIRE: Final = 8  # integers of a sampling; in a conversation the most tokens and whether the seed holds follow
Ended = Literal["done", "stopped", "failed"]

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Self:
    """What a person is called in conversations, and in which colour."""

    name: str
    colour: str


@dataclass(frozen=True, slots=True)
class Manner:
    """How a conversation is held. `sampling`: eight integers as in OPEN, the most tokens of an answer (0: as many as
    fit), and whether the seed holds for every question (1) or is drawn for each (0); none:
    as the model's settings say. `model`: which one answers, by name ("": the mesh's own).
    """

    title: str
    system: str = ""
    sampling: tuple[int, ...] = ()
    model: str = ""


@dataclass(frozen=True, slots=True)
class _Adoption:
    """An answer that this peer is to make go on, as soon as the log says so."""

    ids: tuple[int, ...]
    standing: Heard | None


@dataclass(frozen=True, slots=True)
class _Asked:
    """A question as tokens, the tokens that its answer may have, and who answers."""

    of: AnsweringModel
    prompt: Prompt
    room: int


class Talking:
    """One per membership. `answering(name)`: the model of that name ("": the mesh's own) once it can be asked, or a
    PeerError; `changed()`: something is to be shown; `refused(why)`: the mesh did not take something.
    """

    def __init__(
        self,
        links: PeerLinks,
        view: MeshView,
        answering: Callable[[str], Awaitable[AnsweringModel]],
        changed: Callable[[], None] = lambda: None,
        refused: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._links = links
        self._view = view
        self._answering = answering
        self.changed = changed
        self.refused = refused
        self.conversations: Conversations = {}  # as said here, committed or not
        self.listening = Listening()
        self._tasks: set[asyncio.Task[Any]] = set()
        self._hints = Hints(links, self._start)
        self._proposals = Proposals(
            view.propose, lambda: view.state.conversations, self._spoken, self._not_taken
        )
        self.ends: dict[str, Finished] = {}  # of answers that this peer made, by message
        self._makings: dict[str, Making] = {}  # by message
        # By conversation, the oldest first.
        self._sessions: dict[str, tuple[AnsweringModel, Conversation]] = {}
        self._kept: dict[str, tuple[int, ...]] = {}  # tokens of answers that ended early here, by message
        self._preparing: set[str] = set()  # answers that go on here once their prompt is read
        self._acted: set[str] = set()  # what is acted upon only once
        self._adoptions: dict[str, _Adoption] = {}  # by session
        self._typists: dict[str, dict[str, float]] = {}  # by conversation: until when, by peer
        self._looked: dict[str, tuple[Talk, object]] = {}
        self._looking = False
        self._ends = (
            links.on(LIVE, self._told_live),
            links.on(TYPING, self._told_typing),
            view.subscribe(self._look),
            view.on_role(self._look),
        )
        self._start(self._proposals.run())
        self.conversations = view.state.conversations
        self._look()

    async def close(self) -> None:
        """Takes part no more. What was not said yet is not."""
        for end in self._ends:
            end()
        self._hints.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _, session in self._sessions.values():
            session.close()

    @property
    def me(self) -> str:
        """The id of this peer."""
        return self._view.me

    def typing(self, conversation: str) -> list[str]:
        """Who writes now in a conversation."""
        now = time.monotonic()
        return [peer for peer, until in self._typists.get(conversation, {}).items() if until > now]

    async def said(self) -> None:
        """Waits until the mesh has taken what this peer said."""
        await self._proposals.said()

    def makes(self, message: str) -> Making | None:
        """How an answer is made here now."""
        return self._makings.get(message)

    # --- what a person does

    def start(self, manner: Manner, own: Self) -> str:
        """A new conversation, which this peer owns. Its id."""
        conversation = new_id()
        self._proposals.say(
            ConversationStarted(
                conversation,
                manner.title,
                manner.model,
                manner.system,
                manner.sampling,
                _now_ms(),
                self.me,
                own.name,
                own.colour,
            )
        )
        return conversation

    def enter(self, conversation: str, own: Self) -> None:
        """Comes into a conversation, or changes what this peer is called there."""
        talk = self.conversations[conversation]
        known = talk.participants.get(self.me)
        if known is not None and (known.name, known.colour) == (own.name, own.colour):
            return
        reads = self._view.state.people.roles.get(self.me) == "viewer"
        role: Role = known.role if known is not None else "viewer" if reads else "member"
        self._proposals.say(ParticipantSet(conversation, self.me, own.name, own.colour, role))

    def set_role(self, conversation: str, peer: str, role: Role) -> None:
        """What a participant, or another member of the mesh, may do from now on. Owners only."""
        known = self.conversations[conversation].participants.get(peer)
        if known is None:  # was put out, say
            member = self._view.state.members[peer]
            known = Participant(member.name, COLOURLESS, role)
        self._proposals.say(ParticipantSet(conversation, peer, known.name, known.colour, role))

    def put_out(self, conversation: str, peer: str) -> None:
        """Takes a participant out for good, or leaves."""
        left = ParticipantLeft if peer == self.me else ParticipantPutOut
        self._proposals.say(left(conversation, peer))

    def change(
        self,
        conversation: str,
        *,
        title: str | None = None,
        model: str | None = None,
        system: str | None = None,
        sampling: tuple[int, ...] | None = None,
    ) -> None:
        """Other settings, for questions from now on."""
        talk = self.conversations[conversation]
        self._proposals.say(
            ConversationChanged(
                conversation,
                talk.title if title is None else title,
                talk.model if model is None else model,
                talk.system if system is None else system,
                talk.sampling if sampling is None else sampling,
            )
        )

    def remove(self, conversation: str) -> None:
        """Proposes that the conversation is removed for all."""
        self._proposals.say(ConversationRemoved(conversation))

    def add(self, conversation: str, form: Literal["to-model", "to-people"], text: str, parent: str) -> str:
        """A question, or a message to people. Its id."""
        added = self._added(conversation, parent, form, text)
        self._proposals.say(added)
        self.write(conversation, typing=False)
        return added.id

    def again(self, conversation: str, question: str) -> None:
        """Another answer to a question that has one. Nothing while an answer runs."""
        talk = self.conversations[conversation]
        message = talk.messages.get(question)
        if message is not None and running(talk) is None:
            self._acted.add(question)
            self._start(self._ask(conversation, talk, message, again=True))

    def go_on(self, conversation: str, answer: str) -> None:
        """An answer that was stopped, failed or was cut goes on."""
        found = self._message(conversation, answer)
        if found is not None and found.state in ("stopped", "failed"):
            self._start(self._adopt(conversation, found, None))

    def stop(self, conversation: str, answer: str) -> None:
        """Ends an answer, anybody's."""
        found = self._message(conversation, answer)
        if found is None or found.state != "running":
            return
        making = self._makings.get(answer)
        if making is not None:
            making.stop()
        else:
            self._end(conversation, found, "stopped", "")

    def withdraw(self, conversation: str, question: str) -> None:
        """A question that waits is taken back."""
        answer = self._added(conversation, question, "answer", "", session=os.urandom(SESSION_BYTES).hex())
        ended = MessageEnded(conversation, answer.id, "stopped", 0, None, "taken back")
        self._proposals.say(answer, ended)

    def bring(self, commands: Sequence[ConversationCommand]) -> None:
        """What was kept in a file (peer.conversation.transcripts)."""
        self._proposals.say(*commands)

    def write(self, conversation: str, *, typing: bool) -> None:
        """This person writes, or has stopped writing."""
        self._hints.typing(conversation, self._others(conversation), typing=typing)

    # --- looking

    def _look(self) -> None:
        """Does what the log asks of this peer, once all that is told now was told."""
        if not self._looking:
            self._looking = True
            asyncio.get_running_loop().call_soon(self._look_now)

    def _spoken(self) -> None:
        self.conversations = self._proposals.over(self._view.state.conversations)
        self._look()

    def _look_now(self) -> None:
        self._looking = False
        state = self._view.state
        self.conversations = self._proposals.over(state.conversations)
        under: set[str] = set()
        for identifier, talk in self.conversations.items():
            answer = running(talk)
            if answer is not None:
                under.add(answer.id)
            before = self._looked.get(identifier)
            logged = talk is state.conversations.get(identifier)
            if logged and before is not None and before[0] is talk and before[1] is state.members:
                continue
            self._looked[identifier] = (talk, state.members)
            self._look_at(identifier, talk, answer, state.members)
        for gone in self._looked.keys() - self.conversations.keys():
            del self._looked[gone]
            self._typists.pop(gone, None)
        for message, making in self._makings.items():
            found = self._message(making.conversation, message)
            if (found is None or found.state != "running" or found.author != self.me) and not making.stopped:
                making.stop()
        self.listening.keep_only(under)
        self.changed()

    def _look_at(self, identifier: str, talk: Talk, answer: Said | None, members: Collection[str]) -> None:
        for message in talk.messages:
            if message.form == "answer":
                self.listening.follow(message)
        if self.me not in members:
            return
        if answer is not None:
            self._follow(identifier, talk, answer, members)
        turn = next_turn(talk, members)
        if turn is None or turn[1] != self.me or turn[0].id in self._acted:
            return
        # Its place in the queue is the log's to say.
        if self._in_log(identifier, turn[0].id) is not None:
            self._acted.add(turn[0].id)
            self._start(self._ask(identifier, talk, turn[0]))

    def _follow(self, identifier: str, talk: Talk, answer: Said, members: Collection[str]) -> None:
        """An answer under way: this peer makes it, or another does, or its author is gone."""
        if answer.author == self.me:
            logged = self._in_log(identifier, answer.id)
            said = logged is not None and (logged.author, logged.session) == (self.me, answer.session)
            if answer.id in self._makings or answer.id in self._preparing or not said:
                return
            adoption = self._adoptions.pop(answer.session, None)
            if adoption is not None:
                self._preparing.add(answer.id)
                self._start(self._resume(identifier, talk, answer, adoption))
            elif self._once(f"{answer.id} {answer.session}"):  # asked in another life of this peer
                self._start(self._adopt(identifier, answer, None))
            return
        order = adopters(talk, answer, members)
        if self.me in order and self._once(f"{answer.id} of {answer.author}"):
            self._start(self._adopt_in_turn(identifier, answer, order.index(self.me) * ADOPT_STEP_S))

    async def _adopt_in_turn(self, identifier: str, answer: Said, wait_s: float) -> None:
        await asyncio.sleep(wait_s)
        self._acted.discard(f"{answer.id} of {answer.author}")
        now = self._message(identifier, answer.id)
        if now is None or now.state != "running" or now.author != answer.author:
            return
        if answer.author not in self._view.state.members:
            heard = self.listening.of(answer.id)
            await self._adopt(identifier, now, heard.standing if heard is not None and heard.sure else None)

    def _once(self, what: str) -> bool:
        if what in self._acted:
            return False
        self._acted.add(what)
        return True

    def _in_log(self, conversation: str, message: str) -> Said | None:
        talk = self._view.state.conversations.get(conversation)
        return talk.messages.get(message) if talk is not None else None

    def _message(self, conversation: str, message: str) -> Said | None:
        talk = self.conversations.get(conversation)
        return talk.messages.get(message) if talk is not None else None

    # --- answers of this peer

    async def _ask(self, identifier: str, talk: Talk, question: Said, *, again: bool = False) -> None:
        most = talk.sampling[WIRE] if len(talk.sampling) > WIRE else 0
        asked: _Asked | None = None
        why = ""
        try:
            asked = await self._asked(talk, question, talk.model, most)
        except PeerError as error:
            why = str(error)
        now = self.conversations.get(identifier)
        turn = next_turn(now, self._view.state.members) if now is not None else None
        mine = turn is not None and (turn[0].id, turn[1]) == (question.id, self.me)
        if (
            now is None
            or now.messages.get(question.id) is None
            or running(now) is not None
            or not (mine or again)
        ):
            self._acted.discard(question.id)  # the conversation changed while its prompt was read
            self._look()
            return
        if asked is None:
            session = os.urandom(SESSION_BYTES).hex()
            sampling = _seeded(talk.sampling, USUAL)
            answer = self._added(identifier, question.id, "answer", "", session=session, sampling=sampling)
            self._proposals.say(replace(answer, model=talk.model))
            self._proposals.say(MessageEnded(identifier, answer.id, "failed", 0, None, why[:MAX_REASON]))
            return
        sampling = _seeded(talk.sampling, asked.of.model.sampling_defaults)
        asking = self._session_for(identifier, now, asked.of)
        answer = self._added(
            identifier,
            question.id,
            "answer",
            "",
            session=asking.session.hex(),
            sampling=sampling,
            most=asked.room,
        )
        self._proposals.say(replace(answer, model=talk.model))
        making = Making(identifier, asking, asked.of.model.text, ())
        pieces = asking.tokens(asked.prompt.tokens, _settings(sampling, asked.room, asked.prompt.front))
        self._makings[answer.id] = making
        self._start(self._make(answer.id, making, pieces, adopted=False))

    async def _adopt(self, conversation: str, answer: Said, standing: Heard | None) -> None:
        """Makes an answer go on: in its session where the stages may still hold it, else in a new one."""
        ends: Collection[int] = ()
        session = os.urandom(SESSION_BYTES)  # which says why it cannot go on, where its model cannot be asked
        try:
            of = await self._answering(answer.model)
            ends, session = of.model.text.end_tokens, of.new_session()
        except PeerError as error:
            log.info("the model of an answer cannot be asked here: %s", error)
        stream = self.listening.of(answer.id)
        ids = self._kept.get(answer.id) or (stream.ids if stream is not None and stream.sure else ())
        while ids and ids[-1] in ends:  # whoever was last may have gone just before it said the end
            ids = ids[:-1]
        following = answer.session if standing is not None else session.hex()
        self._adoptions[following] = _Adoption(ids, standing)
        self._proposals.say(AnswerAdopted(conversation, answer.id, answer.author, self.me, following))

    async def _resume(self, identifier: str, talk: Talk, answer: Said, adoption: _Adoption) -> None:
        question = talk.messages.get(answer.parent)
        most = answer.max_tokens if answer.max_tokens > answer.tokens else 0
        try:
            if question is None:
                raise ContextOverflow("its question is gone")
            asked = await self._asked(talk, question, answer.model, most)
            asking = asked.of.conversation(bytes.fromhex(answer.session))
        except PeerError as error:
            self._end(identifier, answer, "failed", str(error))
            return
        finally:
            self._preparing.discard(answer.id)
        now = self._message(identifier, answer.id)
        if now is None or now.state != "running" or (now.author, now.session) != (self.me, answer.session):
            asking.close()
            return  # it ended, or another makes it, since its prompt was asked for
        prompt, room = asked.prompt, asked.room
        ids = adoption.ids[: room - 1]
        making = Making(identifier, asking, asked.of.model.text, ids)
        standing = adoption.standing
        fits = standing is not None and sum(standing.spans) == len(prompt.tokens)
        begun = Begun(
            ids, standing if standing is not None and fits else 1 if standing is None else _now_ms()
        )
        log.info("an answer goes on here, with %d tokens that were heard", len(ids))
        pieces = asking.tokens(prompt.tokens, _settings(answer.sampling, room, prompt.front), begun)
        self._makings[answer.id] = making
        self._start(self._make(answer.id, making, pieces, adopted=True))

    async def _asked(self, talk: Talk, question: Said, model: str, most: int) -> _Asked:
        """A question as that model is to be asked; `most` 0: its answer may have as many tokens as fit. Raises
        PeerError.
        """
        of = await self._answering(model)
        chosen = of.view.state.model
        context = chosen.context if chosen is not None else 0
        turns, day = prompt_of(talk, question.id), day_of(question.when_ms)
        if unmarked_text(turns[-1].content).pictures:
            raise BadPicture(
                "the picture of this question is in the tab that asked with it alone: ask again with the picture"
            )
        messages = [Message(turn.role, told_text(turn.content)) for turn in turns]
        prompt = await of.model.prompts.chat(messages, context, day)
        room = room_for(len(prompt.tokens), None, context)
        return _Asked(of, prompt, min(most, room) if most else room)

    async def _make(self, message: str, making: Making, pieces: Any, *, adopted: bool) -> None:
        why = await making.run(pieces, lambda: self._grown(message, making))
        conversation = making.conversation
        self._hints.over(message, self._others(conversation), making)
        del self._makings[message]
        finished = making.finished
        if finished is not None:
            self.ends[message] = finished
            for old in list(self.ends)[:-MAX_KEPT]:
                del self.ends[old]
        if finished is None or finished.why != "end":
            self._kept[message] = tuple(making.ids)
            for old in list(self._kept)[:-MAX_KEPT]:
                del self._kept[old]
        if adopted:
            making.asking.close()
        found = self._message(conversation, message)
        if found is None or found.state != "running" or found.author != self.me:
            return
        state, reason = _end_of(finished.why if finished is not None else "", why)
        # Stopped while it was being made again: the log has more of it.
        behind = state != "done" and len(making.ids) < found.tokens
        text = None if behind or making.text == found.text else making.text
        tokens = found.tokens if behind else len(making.ids)
        self._proposals.say(MessageEnded(conversation, message, state, tokens, text, reason))

    def _grown(self, message: str, making: Making) -> None:
        conversation = making.conversation
        self._hints.live(message, lambda: self._others(conversation), making)
        found = self._message(conversation, message)
        if found is not None and found.state == "running" and not self._proposals.extends(message):
            session = making.asking.session.hex()
            due = making.due(found, time.monotonic())
            if session != found.session and found.author == self.me:  # it moved to another plan
                self._proposals.say(AnswerAdopted(conversation, message, self.me, self.me, session))
            elif due is not None:
                tokens, text = due
                self._proposals.say(MessageExtended(conversation, message, found.tokens, tokens, text))
        self.changed()

    def _session_for(self, identifier: str, talk: Talk, of: AnsweringModel) -> Conversation:
        """One session for this peer's answers in a conversation: stages keep what they read. Another one if it was
        adopted, or another model answers.
        """
        kept = self._sessions.pop(identifier, None)
        asking: Conversation | None = None
        if kept is not None:
            before, asking = kept
            session = asking.session.hex()
            others = any(m.session == session and m.author != self.me for m in talk.messages)
            others = others or before.sessions is not of.sessions
            if others or any(making.asking is asking for making in self._makings.values()):
                if others:
                    asking.close()
                asking = None
        if asking is None:
            asking = of.conversation()
        self._sessions[identifier] = of, asking
        for other in list(self._sessions)[:-MAX_SESSIONS]:
            idle = self._sessions[other][1]
            if not any(making.asking is idle for making in self._makings.values()):
                del self._sessions[other]
                idle.close()
        return asking

    def _end(self, conversation: str, message: Said, state: Ended, why: str) -> None:
        ended = MessageEnded(conversation, message.id, state, message.tokens, None, why[:MAX_REASON])
        self._proposals.say(ended)

    def _added(
        self,
        conversation: str,
        parent: str,
        form: Literal["to-model", "to-people", "answer"],
        text: str,
        *,
        session: str = "",
        sampling: tuple[int, ...] = (),
        most: int = 0,
    ) -> MessageAdded:
        return MessageAdded(
            conversation, new_id(), parent, self.me, form, text, _now_ms(), session, "", sampling, most
        )

    # --- between peers

    def _not_taken(self, command: ConversationCommand, why: str) -> None:
        if not isinstance(command, MessageExtended | AnswerAdopted):  # else another was first
            self.refused(why)
        self._look()

    def _others(self, conversation: str) -> list[str]:
        """Everybody else who takes part and is here."""
        talk = self.conversations.get(conversation)
        members = self._view.state.members
        return [peer for peer in talk.participants if peer != self.me and peer in members] if talk else []

    async def _told_live(self, peer: str, said: LiveRequest) -> None:
        self.listening.came(peer, said.message, piece_of(said))
        known = self._message(said.conversation, said.message)
        if known is not None:
            self.listening.follow(known)
        self.changed()

    async def _told_typing(self, peer: str, said: TypingRequest) -> None:
        talk = self.conversations.get(said.conversation)
        if talk is not None and peer in talk.participants:
            typists = self._typists.setdefault(said.conversation, {})
            if said.typing:
                typists[peer] = time.monotonic() + TYPING_S
            else:
                typists.pop(peer, None)
            self.changed()

    def _start(self, step: Any) -> None:
        task: asyncio.Task[Any] = asyncio.ensure_future(step)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("taking part in conversations failed", exc_info=error)
            self.refused(f"a defect, please report it: {type(error).__name__}: {error}")


def _end_of(finished: str, failed: str) -> tuple[Ended, str]:
    if failed:
        return "failed", failed[:MAX_REASON]
    match finished:
        case "end" | "stop":
            return "done", ""
        case "length":
            return "stopped", "length"
        case _:
            return "stopped", ""


def _seeded(sampling: tuple[int, ...], defaults: SamplingDefaults) -> tuple[int, ...]:
    """Eight integers, those of the model where the conversation says none, with a seed: that of the conversation where
    it holds for every question, else another one.
    """
    eight = sampling[:WIRE]
    if len(eight) < WIRE:
        eight = tuple(sampling_for(defaults, AskedSampling()).to_wire())
    holds = len(sampling) > WIRE + 1 and sampling[WIRE + 1] == 1
    return eight if holds else (*eight[:-1], int.from_bytes(os.urandom(4)))


def _settings(sampling: tuple[int, ...], room: int, front: int) -> Settings:
    chosen = Sampling.from_wire(list(sampling)) if len(sampling) == WIRE else Sampling()
    return Settings(chosen, room, plan_wait_s=PLAN_WAIT_S, front=front)


def new_id() -> str:
    """For a conversation or a message."""
    return os.urandom(ID_BYTES).hex()


def _now_ms() -> int:
    return int(time.time() * 1000)
