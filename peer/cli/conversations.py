"""`shoal chat LINK --in TITLE` and `shoal conversations LINK`: conversations that the mesh keeps, in a terminal."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from prompt_toolkit import PromptSession, print_formatted_text
from prompt_toolkit.formatted_text import FormattedText
from prompt_toolkit.patch_stdout import patch_stdout

from peer.cli import conversation_invites
from peer.cli.chat import PipedLines, asker, check_settings, first_of, prompt_session, settings
from peer.cli.conversation_lines import (
    HELP,
    Typed,
    branch_picked,
    colour_of,
    ending,
    names_in,
    peer_named,
    read_line,
    readers,
    whole_lines,
)
from peer.cli.queue_lines import WaitingLines
from peer.cli.serve_join import follow_coordinator
from peer.conversation.conversation_client import Manner, Self, new_id
from peer.conversation.entry_links import EntryLink
from peer.conversation.picture_marks import told_text
from peer.conversation.transcripts import as_json, as_markdown, brought, transcript
from peer.conversation.turn_order import leaf_of, may_ask, running, shown, waiting, waits_for
from peer.errors import BadCommand, CannotServe, MeshError
from peer.launch.served_models import asked_model
from peer.launch.terminal import interrupts, out, say
from peer.launch.transcript_files import read_transcript
from peer.limits import SESSION_BYTES
from peer.member.mesh_member import MeshMember
from peer.origin.answering_model import AnsweringModel
from peer.origin.arithmetic_changes import crossed_text
from peer.state.conversations import Conversation, Conversations
from peer.state.display_names import name_of, names, plain, plain_lines
from peer.state.generated.commands import Message, Role
from peer.state.roles import ROLES

MODEL: Final = "model"
MODEL_STYLE: Final = "bold"
KNOWN_WITHIN_S: Final = 20.0
LIST_TITLE: Final = 60  # characters


class Screen:
    """Shows messages once, in the order in which they come; a running answer line by line where it is a terminal."""

    def __init__(self) -> None:
        self.live = sys.stdout.isatty() and sys.stdin.isatty()
        self._shown: dict[str, int] = {}  # characters by message; -1: all of it

    def forget(self) -> None:
        """Everything is shown again."""
        self._shown.clear()

    def message(self, message: Message, who: str, colour: str) -> None:
        """A question, or a message to people."""
        if message.id not in self._shown:
            self._shown[message.id] = -1
            note = "" if message.form == "to-model" else " (to people)"
            self.line(who, f"fg:{colour}", told_text(message.text), note)

    def answer(self, message: Message, text: str, note: str = "") -> None:
        """An answer, with what came so far; a `note` stands at its end."""
        before = self._shown.get(message.id, 0)
        if before < 0:
            return
        if message.state != "running":
            self._shown[message.id] = -1
            rest = "\n".join(filter(None, (text[before:].rstrip("\n"), ending(message), note)))
            self.line(MODEL if not before else "", MODEL_STYLE, rest)
        elif self.live:
            width = shutil.get_terminal_size().columns - len(MODEL) - 3
            stop = before + whole_lines(text[before:], max(width, 20))
            if stop > before:
                self._shown[message.id] = stop
                self.line(MODEL if not before else "", MODEL_STYLE, text[before:stop].rstrip("\n"))

    def line(self, who: str, style: str, text: str, note: str = "") -> None:
        """`text` of somebody; "": more of the same."""
        words = plain_lines(text)
        if self.live:
            parts = [(style, f"{who}{note}: ")] if who else [("", " " * (len(MODEL) + 2))]
            print_formatted_text(FormattedText([*parts, ("", words)]))
        else:
            out.print(f"{who}{note}: {words}" if who else words, markup=False)


class Room:
    """One person at one terminal: which conversation is open, which branches, what is typed."""

    def __init__(self, mesh: MeshMember, own: Self, manner: Manner) -> None:
        self.mesh = mesh
        self.own = own
        self.manner = manner
        self.screen = Screen()
        self.open = ""
        self.chosen: dict[str, str] = {}
        self.over = asyncio.Event()
        self._news = asyncio.Event()
        self._waiting = WaitingLines(say)
        self.talking = mesh.talking(self._changed, lambda why: say(f"not taken: {why}"))

    @property
    def known(self) -> Conversations:
        """The conversations of the mesh, by id."""
        return self.talking.conversations

    @property
    def talk(self) -> Conversation | None:
        """The conversation that is open, or None."""
        return self.known.get(self.open)

    async def until(self, holds: Callable[[], bool], within_s: float | None = None) -> bool:
        """Waits for something that a change may bring about; False when the time is over first."""
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    self._news.clear()
                    await self._news.wait()
        except TimeoutError:
            return False
        return True

    def _changed(self) -> None:
        self._news.set()
        self.show()

    def show(self) -> None:
        """What is new."""
        talk = self.talk
        if talk is None:
            return
        called = names_in(talk)
        for turn in shown(talk.messages, self.chosen):
            author = turn.message.author
            colour = talk.participants[author].colour if author in talk.participants else "#888888"
            self.screen.message(turn.message, name_of(author, called), colour)
            if turn.answer is not None:
                end = self.talking.ends.get(turn.answer.id)
                crossed = crossed_text(end.crossed) if end is not None else ""
                note = f"[{crossed}]" if crossed else ""
                self.screen.answer(turn.answer, self.talking.listening.text(turn.answer)[0], note)
                making = self.talking.makes(turn.answer.id)
                if making is not None:
                    self._waiting(making.waits)

    def begin(self, title: str) -> None:
        """Another conversation, which is open from now on."""
        self._enter(self.talking.start(replace(self.manner, title=title), self.own))

    def answer_with(self, model: str) -> None:
        """From the next question on that model answers the open conversation; "": the mesh's own."""
        talk = self.talk
        if self.open is not None and talk is not None and talk.model != model:
            self.talking.change(self.open, model=model)

    def _enter(self, conversation: str) -> None:
        self.open, self.chosen = conversation, {}
        self.screen.forget()
        talk = self.known[conversation]
        if self.talking.me not in talk.participants:
            if why := conversation_invites.why_outside(talk, self.talking.me):
                say(why)
            else:
                self.talking.enter(conversation, self.own)
        say(
            f"in {plain(talk.title) or 'a conversation without a title'}: {', '.join(names_in(talk).values())}"
        )
        say(readers(talk))
        self.show()

    def found(self, what: str) -> str | None:
        """The conversation of that number, id or title."""
        every = list(self.known)
        if what.isdecimal() and 1 <= int(what) <= len(every):
            return every[int(what) - 1]
        if what in self.known:
            return what
        same = [each for each, talk in self.known.items() if talk.title == what]
        return same[0] if same else None

    def enter_or_begin(self, what: str) -> None:
        """Opens it, or begins one with that title."""
        found = self.found(what)
        if found is not None:
            self._enter(found)
        else:
            self.begin(what)

    async def enter_with(self, link: EntryLink) -> None:
        """Comes into the conversation that a link leads to. Raises BadCommand when it is not there."""
        if not await self.until(lambda: link.conversation in self.known, KNOWN_WITHIN_S):
            raise BadCommand("the conversation of this link is not there any more")
        conversation_invites.come_in(self.mesh, self.talking, link, self.own)
        self._enter(link.conversation)

    async def rename(self, name: str) -> None:
        """Has the mesh, and the conversations that this person takes part in, say `name`. Raises BadCommand."""
        await self.mesh.rename(name)
        self.own = replace(self.own, name=name)
        for conversation, talk in self.known.items():
            if self.talking.me in talk.participants:
                self.talking.enter(conversation, self.own)
        say(f"you are called {name} now")

    def listed(self, only: str | None = None) -> list[str]:
        """The conversations, or that one, a line each."""
        me = self.talking.me
        lines = []
        for number, (conversation, talk) in enumerate(self.known.items(), start=1):
            if only not in (None, conversation):
                continue
            people = ", ".join(names_in(talk).values()) or "nobody"
            mark = "*" if me in talk.participants else " "
            title = plain(talk.title)[:LIST_TITLE] or "(no title)"
            lines.append(f"{number:3d}{mark} {title} · {len(talk.messages)} messages · {people}")
        return lines or ["no conversations yet; /new TITLE begins one"]

    def toolbar(self) -> str:
        """Beneath the prompt: what runs, what waits, who writes."""
        talk = self.talk
        if talk is None:
            return "no conversation is open: /list, /open N or /new TITLE"
        called = names_in(talk)
        here = [name for peer, name in called.items() if peer in self.mesh.view.state.members]
        parts = [plain(talk.title), f"here: {', '.join(here)}"]
        answer = running(talk)
        if answer is not None:
            text = "…" + plain(self.talking.listening.text(answer)[0])[-60:]
            making = self.talking.makes(answer.id)
            if making is not None and making.waits is not None:
                text = f"the mesh is full, {making.waits.text}"
            parts.append(f"answering {called.get(answer.author, '?')}: {text}")
        own = [each for each in waiting(talk) if each.author == self.talking.me]
        if own:
            before = len(waits_for(talk, own[0]))
            parts.append(f"your question waits for {before}" if before else "your question is next")
        if self.mesh.view.leader is None:
            parts.append("nobody coordinates now: what you say is said later")
        writing = [called[peer] for peer in self.talking.typing(self.open) if peer in called]
        if writing:
            parts.append(f"{', '.join(writing)} writing")
        return " · ".join(parts)

    def settled(self) -> bool:
        """Whether every question of this person has its answer."""
        me = self.talking.me
        for talk in self.known.values():
            answer = running(talk)
            if answer is not None and answer.author == me:
                return False
            if may_ask(talk, me) and any(each.author == me for each in waiting(talk)):
                return False
        return True

    def failed(self) -> set[str]:
        """Answers to this person that ended without being whole."""
        me = self.talking.me
        each = (message for talk in self.known.values() for message in talk.messages)
        return {message.id for message in each if message.author == me and message.state == "failed"}

    # --- what is typed

    async def do(self, typed: Typed) -> None:
        """Does one line. Raises BadCommand."""
        match typed.what:
            case "wrong":
                raise BadCommand(typed.text)
            case "help":
                say(HELP)
            case "quit":
                self.over.set()
            case "list":
                for line in self.listed():
                    say(line)
            case "new":
                self.begin(typed.text)
            case "open":
                found = self.found(typed.text)
                if found is None:
                    raise BadCommand("there is no such conversation; /list shows which there are")
                self._enter(found)
            case "invite" if not typed.text:
                say(self.mesh.link.url() if self.mesh.link is not None else "there is no link")
            case "name":
                await self.rename(typed.text)
            case "import":
                await self.bring(Path(typed.text))
            case _:
                talk = self.talk
                if talk is None:
                    raise BadCommand("no conversation is open: /list, /open N or /new TITLE")
                await self._within(talk, typed)

    async def _within(self, talk: Conversation, typed: Typed) -> None:
        talking, conversation = self.talking, self.open
        turns = shown(talk.messages, self.chosen)
        match typed.what:
            case "ask" | "say":
                if not may_ask(talk, talking.me):
                    raise BadCommand("you read here; an owner can let you ask with /role")
                form = "to-model" if typed.what == "ask" else "to-people"
                talking.add(
                    conversation,
                    "to-model" if form == "to-model" else "to-people",
                    typed.text,
                    leaf_of(turns),
                )
            case "people":
                members = self.mesh.view.state.members
                for peer, name in names_in(talk).items():
                    here = "here" if peer in members else "away"
                    say(
                        f"{name}: {talk.participants[peer].role}, {here}{', you' if peer == talking.me else ''}"
                    )
            case "invite":
                say(await conversation_invites.invite(self.mesh, conversation, typed.text))
            case "invites":
                for line in conversation_invites.listed(talk):
                    say(line)
            case "withdraw":
                await conversation_invites.withdraw(self.mesh, conversation, talk, typed.text)
                say("that link leads in nobody any more")
            case "entry":
                say(await conversation_invites.choose_entry(self.mesh, conversation, talk, typed.text))
            case "kick":
                who = peer_named(talk, typed.text)
                if who is None or who == talking.me:
                    raise BadCommand("expected the name of one other participant")
                talking.put_out(conversation, who)
            case "role":
                name, _, role = typed.text.rpartition(" ")
                others = names(self.mesh.view.state.members)
                who = peer_named(talk, name.strip(), others)
                if who is None or role not in ROLES:
                    raise BadCommand(f"expected the name of one participant and one of {', '.join(ROLES)}")
                talking.set_role(conversation, who, _role(role))
            case "stop":
                answer = running(talk)
                own = [each for each in waiting(talk) if each.author == talking.me]
                if answer is not None:
                    talking.stop(conversation, answer.id)
                elif own:
                    talking.withdraw(conversation, own[-1].id)
            case "again":
                asked = next((t.message for t in reversed(turns) if t.message.form == "to-model"), None)
                if asked is None or running(talk) is not None:
                    raise BadCommand("expected a question before, and no answer under way")
                talking.again(conversation, asked.id)
            case "continue":
                last = next((t.answer for t in reversed(turns) if t.answer is not None), None)
                if last is None or last.state not in ("stopped", "failed"):
                    raise BadCommand("expected an answer that was stopped or failed")
                self.screen.forget()
                talking.go_on(conversation, last.id)
            case "edit":
                mine = next((t.message for t in reversed(turns) if t.message.author == talking.me), None)
                if mine is None:
                    raise BadCommand("expected a message of your own")
                form = mine.form
                talking.add(
                    conversation, "to-people" if form == "to-people" else "to-model", typed.text, mine.parent
                )
            case "branch":
                number = int(typed.text) if typed.text.isdecimal() else 0
                picked = branch_picked(talk.messages, self.chosen, number)
                if picked is None:
                    raise BadCommand("expected the number of a branch of the last message that has several")
                self.chosen = picked
                self.screen.forget()
                self.show()
            case "title":
                talking.change(conversation, title=plain(typed.text)[:200])
            case "system":
                talking.change(conversation, system=typed.text)
            case "history":
                self.screen.forget()
                self.show()
            case "leave":
                talking.put_out(conversation, talking.me)
                self.open = ""
            case "remove":
                talking.remove(conversation)
                self.open = ""
            case "export":
                await talking.said()
                await asyncio.to_thread(export, self.known[conversation], Path(typed.text), self.chosen)
                say(f"kept in {typed.text}")
            case _:
                raise AssertionError(typed.what)

    async def bring(self, path: Path) -> None:
        """A conversation out of a file. Raises BadCommand."""
        kept = await read_transcript(path)
        conversation = self.talking.start(
            Manner(kept.title, kept.system, kept.sampling, self.manner.model), self.own
        )
        me = self.talking.me
        commands = await asyncio.to_thread(brought, kept, conversation, me, new_id, _new_session)
        self.talking.bring(commands)
        self._enter(conversation)
        await self.talking.said()


def _new_session() -> str:
    return os.urandom(SESSION_BYTES).hex()


def export(talk: Conversation, path: Path, chosen: dict[str, str]) -> None:
    """Keeps a conversation in a file, by its name as Markdown or JSON. Raises BadCommand."""
    markdown = path.suffix.lower() in (".md", ".markdown")
    text = as_markdown(talk, chosen) if markdown else as_json(transcript(talk))
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise BadCommand(f"{path}: expected a file that can be written: {error.strerror}") from None


def _role(text: str) -> Role:
    return next(role for role in ROLES if role == text)


def _manner(args: argparse.Namespace, asked: AnsweringModel, name: str | None) -> Manner:
    """How a conversation is held that is begun here, with the model `name` (None: the mesh's own); the seed holds for
    all questions where one was given.
    """
    chosen = settings(args, asked.model.sampling_defaults)
    holds = int(args.seed is not None)
    sampling = (*chosen.sampling.to_wire(), chosen.max_tokens or 0, holds)
    return Manner("", args.system, sampling, name or "")


@asynccontextmanager
async def room(args: argparse.Namespace, mesh: MeshMember, begun: Manner) -> AsyncIterator[Room]:
    """The conversations of a mesh, once this peer knows them; those that begin here are held as `begun`."""
    own = Self(plain(args.name), colour_of(mesh.me))
    made = Room(mesh, own, begun)
    try:
        yield made
    finally:
        await made.talking.close()


def talk(args: argparse.Namespace) -> int:
    """Takes part in a conversation of the mesh. Raises BadCommand."""
    if args.pin_ends:
        raise BadCommand(
            "--pin-ends is for talks of your own: what is said in a conversation that the mesh keeps (--in) is told "
            "to all its peers; leave one of the two out"
        )
    check_settings(args)
    return asyncio.run(_talk(args))


async def _talk(args: argparse.Namespace) -> int:
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            mesh = await stack.enter_async_context(asker(args, ctrl))
            name = asked_model(mesh.view.state, args.model)
            asked = await mesh.answering(name)
            if not asked.answers_questions:
                raise CannotServe(
                    f"{name} writes what is said and answers no questions: shoal transcribe asks it"
                )
            made = await stack.enter_async_context(room(args, mesh, _manner(args, asked, name)))
            follow_coordinator(mesh, say)
            if args.within is not None:
                made.enter_or_begin(args.within)
            else:
                await made.enter_with(args.entry)
            if args.model is not None:
                made.answer_with(name or "")
            await _typed_lines(made, mesh, ctrl.asked)
            if mesh.ended.is_set() and not ctrl.asked.is_set():
                raise CannotServe(mesh.why_ended)
    return 0


async def _typed_lines(made: Room, mesh: MeshMember, asked: asyncio.Event) -> None:
    """Until the end of input, /quit or Ctrl-C; a pipe that ends waits for what was asked."""
    lines = PipedLines() if not made.screen.live else None
    prompt = _prompt(made) if lines is None else None
    refused, before = False, made.failed()
    while not any(event.is_set() for event in (mesh.ended, asked, made.over)):
        if lines is not None:
            line = await first_of(asyncio.ensure_future(lines.next()), mesh.ended, asked)
        else:
            assert prompt is not None
            with patch_stdout(raw=True):
                reading = asyncio.ensure_future(prompt.prompt_async("> ", handle_sigint=False))
                line = await first_of(reading, mesh.ended, asked)
        if line is None:
            break
        typed = read_line(line)
        try:
            if typed is not None:
                await made.do(typed)
        except (BadCommand, MeshError) as error:
            say(str(error))
            refused = True
    if lines is not None and not (asked.is_set() or mesh.ended.is_set()):
        settled = asyncio.ensure_future(_settled(made))
        await first_of(settled, mesh.ended, asked)
        if refused or made.failed() - before:
            raise CannotServe("not every line did what it asks for, see above")


async def _settled(made: Room) -> None:
    await made.talking.said()
    await made.until(made.settled)
    await made.talking.said()


def _prompt(made: Room) -> PromptSession[str]:
    prompt = prompt_session(bottom_toolbar=made.toolbar, refresh_interval=0.5)

    def typing(_: Any) -> None:
        text = prompt.default_buffer.text
        if text and not text.startswith("/") and made.open:
            made.talking.write(made.open, typing=True)

    prompt.default_buffer.on_text_changed += typing
    return prompt


async def _about_entry(args: argparse.Namespace, mesh: MeshMember, made: Room, conversation: str) -> bool:
    """Does what was asked about who comes in; False when nothing was."""
    talk = made.known[conversation]
    if args.entry_by is not None:
        await conversation_invites.choose_entry(mesh, conversation, talk, args.entry_by)
    if args.withdraw is not None:
        await conversation_invites.withdraw(mesh, conversation, talk, args.withdraw)
    if args.invite is not None:
        out.print(
            await conversation_invites.invite(mesh, conversation, args.invite), markup=False, soft_wrap=True
        )
    if args.invites:
        for line in conversation_invites.listed(talk):
            out.print(line, markup=False)
    return args.entry_by is not None or args.withdraw is not None or args.invite is not None or args.invites


async def conversations(args: argparse.Namespace) -> int:
    """Lists the conversations of a mesh, keeps one in a file, or brings one back."""
    with interrupts() as ctrl:
        async with asker(args, ctrl) as mesh, room(args, mesh, Manner("")) as made:
            if args.bring is not None:
                await made.bring(args.bring)
            found = made.found(args.within) if args.within is not None else None
            if found is None and args.within is not None:
                raise BadCommand(
                    f"there is no conversation {plain(args.within)!r:.80}: shoal conversations LINK lists them"
                )
            if found is None and (args.invite or args.invites or args.withdraw or args.entry_by):
                raise BadCommand("say which conversation with --in: its number, id or title")
            if args.export is not None:
                if found is None and len(made.known) == 1 and args.within is None:
                    found = next(iter(made.known))
                if found is None:
                    raise BadCommand("say which one with --in: its number, id or title")
                await asyncio.to_thread(export, made.known[found], args.export, {})
                say(f"kept in {args.export}")
            elif found is not None and await _about_entry(args, mesh, made, found):
                pass
            elif args.json:
                shown_ones = made.known if found is None else {found: made.known[found]}
                kept = {each: json.loads(as_json(transcript(talk))) for each, talk in shown_ones.items()}
                out.print(json.dumps(kept), markup=False, soft_wrap=True)
            elif args.bring is None:
                for line in made.listed(found):
                    out.print(line, markup=False)
    return 0
