"""People in the conversations of one real mesh: two browsers and two terminals, three stages, and what is killed.

Chromium, Firefox and two `shoal chat` behind pseudo-terminals talk in two conversations at once. Then the founder's
process is killed while an answer is made, and the asker's as well. `python -m tests.browsers.together --messages 50`
runs the long form and prints its figures; tests/browsers/test_together.py runs a short one.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import re
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Protocol

from peer.conversation.conversation_client import new_id
from peer.conversation.turn_order import running, waiting
from peer.errors import MeshError
from peer.launch.defaults import cache_folder
from peer.launch.model_import import find_or_import
from peer.member.joining import join
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, PeerOptions
from peer.state.conversations import Conversation
from peer.state.generated.commands import Message, MessageAdded
from peer.validation.world.child_processes import FoundingProcess, How, JoinedProcess
from planner.model.store import Store
from signaling.server import ServerOptions, serve
from tests.browsers.again import as_asked, from_text
from tests.browsers.harness import Browser, Driver, built, driving, launch
from tests.browsers.page import Page
from tests.browsers.typist import Typist
from tests.patience import WITHIN_S

TRY_S: Final = 0.5  # between tries of a person at a terminal
MEMORY: Final = 1500 << 20
CUTS: Final = "21,42"  # of the 62 units of SmolLM2-135M: three stages
CONTEXT: Final = 2048
COMPUTE: Final = 4  # processes that hold stages: the founder and three that joined
VOTERS: Final = 3  # so that the founder may go
LONG: Final = 120  # tokens of the answer that is disturbed, at most
STORY: Final = "Write a long story about a cat who likes tea and goes to sea."
ASKED: Final = (
    *("What do fish say?", "Why is the sea salty?", "Name a fruit.", "What is tea?"),
    *("Who sleeps in trees?", "What is two and two?", "Tell me a word.", "Is it late?"),
)
WATCHED: Final = (  # files that the page makes are kept
    "globalThis.kept = []; { const make = URL.createObjectURL;"
    " URL.createObjectURL = (blob) => { kept.push(blob); return make.call(URL, blob); }; }"
)
WRITES: Final = ".composer textarea, .reads"
GROWN: Final = (
    "[...document.querySelectorAll('.answer[aria-busy=true] .prose')]"
    ".reduce((most, one) => Math.max(most, one.innerText.length), 0)"
)


@dataclass
class Figures:
    """What one run showed."""

    messages: int = 0  # said by people
    conversations: int = 0
    answers: int = 0
    roles_obeyed: bool = False
    transcripts: int = 0  # kept by those who were left, and by one who came late
    transcripts_equal: bool = False
    founder_killed_after: int = -1  # characters of the answer that another person had read
    asker_killed_after: int = -1
    asker: str = ""
    answer_tokens: int = 0
    answer_completed: bool = False
    same_tokens: bool = False
    others: int = 0  # answers that nobody disturbed, made again in the end,
    others_as_asked: int = 0  # of which so many are the same in a session with the same turns,
    others_from_text: int = 0  # and in a session that is given all of the conversation at once
    seconds_talking: float = 0.0
    seconds_after_kills: float = 0.0
    failed: list[str] = field(default_factory=list)  # answers that did

    @property
    def held(self) -> bool:
        """Roles were obeyed, answers are the same tokens when they go on or are made again as they were asked, and
        everybody has the same transcripts.
        """
        return (
            self.roles_obeyed
            and self.answer_completed
            and self.same_tokens
            and self.transcripts_equal
            and self.others_as_asked == self.others
            and not self.failed
            and min(self.founder_killed_after, self.asker_killed_after) >= 0
        )


class Person(Protocol):
    """Somebody who takes part, however."""

    name: str

    async def enter(self, title: str) -> None:
        """Has that conversation in front of them."""

    async def ask(self, text: str, *, to_people: bool = False) -> None:
        """Says something there."""

    async def transcript(self, path: Path) -> bytes:
        """The open conversation as they keep it, in Markdown."""


class AtTerminal:
    """A person at a terminal."""

    def __init__(self, typist: Typist) -> None:
        self.name = typist.name
        self.typist = typist
        self._open = ""

    async def enter(self, title: str) -> None:
        if self._open == title:
            return
        inside, unknown = f"in {title}", "there is no such conversation"
        found = unknown  # as long as the log here does not have it yet, somebody tries again
        async with asyncio.timeout(WITHIN_S):
            while found == unknown:
                self.typist.shown = ""
                self.typist.type(f"/open {title}")
                found = await self.typist.until_matches(f"{re.escape(inside)}|{unknown}", WITHIN_S)
                if found == unknown:
                    await asyncio.sleep(TRY_S)
        self._open = title

    async def ask(self, text: str, *, to_people: bool = False) -> None:
        self.typist.type(f"//{text}" if to_people else text)

    async def transcript(self, path: Path) -> bytes:
        self.typist.type(f"/export {path}")
        await self.typist.until_shows(f"kept in {path}", WITHIN_S)
        return await asyncio.to_thread(path.read_bytes)


class AtPage:
    """A person at a tab."""

    def __init__(self, name: str, page: Page) -> None:
        self.name = name
        self.page = page

    async def enter(self, title: str) -> None:
        line = (
            "[...document.querySelectorAll('.talk-lines .talk-open')]"
            f".find((one) => one.querySelector('.talk-title').innerText.trim() === {json.dumps(title)})"
        )
        await self.page.click(line, WITHIN_S)
        named = f"document.querySelector('.talk-bar h2').innerText.trim() === {json.dumps(title)}"
        await self.page.until(named, WITHIN_S)
        outside = f"document.querySelector('.reads button') ?? document.querySelector({WRITES!r})"
        await self.page.click(outside, WITHIN_S)  # "Take part", where this person does not yet

    async def ask(self, text: str, *, to_people: bool = False) -> None:
        pressed = "document.querySelector('.to-whom')?.getAttribute('aria-pressed')"
        await self.page.until(f"{pressed} !== undefined", WITHIN_S)
        if (await self.page.run(pressed) == "true") is not to_people:
            await self.page.click("document.querySelector('.to-whom')")
            await self.page.until(f"{pressed} === '{json.dumps(to_people)}'", WITHIN_S)
        await self.page.ask(text)

    async def transcript(self, path: Path) -> bytes:
        await self.page.click("document.querySelector('.who-is-in')")
        await self.page.run("kept.length = 0")
        await self.page.press("Markdown")
        text: str = await self.page.run("kept[0].text()")
        await self.page.key("Escape")
        return text.encode()


class Town:
    """The mesh of one run, as somebody sees it who only watches."""

    def __init__(self, watch: MeshMember, peers: dict[str, JoinedProcess], link: str, home: Path) -> None:
        self.watch = watch
        self.peers = peers
        self.link = link
        self.home = home

    async def until(self, holds: Callable[[], bool], what: str, within_s: float = WITHIN_S) -> None:
        """Waits for something that the log may bring about."""
        news = asyncio.Event()
        view = self.watch.view
        ends = (view.subscribe(news.set), view.on_role(news.set))
        try:
            async with asyncio.timeout(within_s):
                while not holds():
                    news.clear()
                    with suppress(TimeoutError):
                        await asyncio.wait_for(news.wait(), 0.5)
                    self._check()
        except TimeoutError:
            raise AssertionError(
                f"{what} did not come about within {within_s:.0f} s: {self.said()}"
            ) from None
        finally:
            for end in ends:
                end()

    def _check(self) -> None:
        for name, child in self.peers.items():
            assert child.running, f"{name} ended by itself: {child.complaint()}"

    def said(self) -> str:
        """What the log says, for people."""
        state = self.watch.view.state
        talks = [
            f"{talk.title}: "
            + ", ".join(f"{m.form} {m.state} {m.tokens}" for m in list(talk.messages)[-6:])
            + f" of {len(talk.messages)}, in it {[(p.name, p.role) for p in talk.participants.values()]}"
            for talk in state.conversations.values()
        ]
        here = [(member.name, member.status) for member in state.members.values()]
        return f"{talks}; here: {here}; plan: {state.plan}; refused: {state.refused!r}"

    def find(self, title: str) -> tuple[str, Conversation]:
        """The conversation of that title, with its id."""
        every = self.watch.view.state.conversations
        return next((key, talk) for key, talk in every.items() if talk.title == title)

    def talk(self, title: str) -> Conversation:
        return self.find(title)[1]

    def messages(self, title: str) -> list[Message]:
        return list(self.talk(title).messages)

    def peer(self, name: str, title: str) -> str:
        people = self.talk(title).participants
        return next(peer for peer, each in people.items() if each.name == name)

    async def say(self, who: Person, title: str, text: str, *, to_people: bool = False) -> None:
        """Somebody says something in a conversation; returns once the log has it."""
        await self.until(lambda: len(waiting(self.talk(title))) <= 1, f"room for another question in {title}")
        await who.enter(title)
        await who.ask(text, to_people=to_people)
        await self.until(
            lambda: any(each.text == text for each in self.messages(title)), f"{who.name}: {text}"
        )

    async def quiet(self, *titles: str) -> None:
        """Until every question has its answer."""

        def over(title: str) -> bool:
            return running(self.talk(title)) is None and not waiting(self.talk(title))

        await self.until(lambda: all(map(over, titles)), "answers to all questions")

    def whole(self) -> bool:
        """Three of those who compute vote, and each stage has a standby that holds it."""
        state, replica = self.watch.view.state, self.watch.view.replica
        plan = state.serving()
        here = {peer for peer, member in state.members.items() if member.compute}
        return (
            plan is not None
            and replica is not None
            and len(here) == COMPUTE
            and len(replica.config.voters) >= VOTERS
            and set(replica.config.voters) <= here
            and all(
                any((stage.first, stage.stop) in state.members[peer].held for peer in stage.standbys)
                for stage in plan.stages
            )
        )


@asynccontextmanager
async def town(app: Path, store: Store, model: str, home: Path) -> AsyncIterator[Town]:
    """Four processes that compute over three stages, the founder among them, and one member that watches."""
    async with AsyncExitStack() as stack:
        meeting = await stack.enter_async_context(serve(ServerOptions(web_app=app), store))
        how = How("", store.root, home, Lent(MEMORY), 1, "auto", "")
        more = ["--cuts", CUTS, "--context", str(CONTEXT), "--sessions", "8"]
        more += ["--protection", "high", "--shadow", "log"]
        founder = FoundingProcess("founder", how, meeting.url, model, more)
        stack.push_async_callback(founder.end)
        await founder.start()
        link = await founder.link()
        how = How(link, store.root, home, Lent(MEMORY), 1, "auto", "")
        peers: dict[str, JoinedProcess] = {founder.name: founder}
        for number in range(2, COMPUTE + 1):
            peers[f"peer {number}"] = JoinedProcess(f"peer {number}", how)
            stack.push_async_callback(peers[f"peer {number}"].end)
        await asyncio.gather(*(each.start() for each in peers.values() if each is not founder))
        asks = PeerOptions("watcher", 0, 1, "cpu", "auto", ("127.0.0.1",))
        watch = await stack.enter_async_context(join(link, asks, store))
        yield Town(watch, peers, await guest_link(founder.state), home)


async def guest_link(state: Path) -> str:
    """A link for those who ask, from `shoal invite` beside the founder."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "peer.cli.main", "invite", "--role", "guest", "--state", str(state)),
        stdout=asyncio.subprocess.PIPE,
    )
    told, _ = await process.communicate()
    assert process.returncode == 0, "shoal invite"
    return told.decode().strip()


def settings_of(tokens: int) -> str:
    """What a page is to find as its person's settings."""
    chosen = json.dumps({"temperature": 0, "repetitionPenalty": 1, "maxTokens": tokens})
    return f"localStorage.setItem('shoal.settings', {json.dumps(chosen)}); {WATCHED}"


async def talk_in_turns(made: Town, people: Sequence[Person], count: int) -> None:
    """`count` messages, each round one in each of two conversations by two people at the same time."""
    for number in range(0, count, 2):
        turn = number // 2
        first = people[turn % len(people)]
        second = people[(turn + 1 + turn // len(people) % (len(people) - 1)) % len(people)]
        words = ASKED[turn % len(ASKED)]
        await asyncio.gather(
            made.say(first, "tea", f"{words} ({number})", to_people=turn % 4 == 3),
            made.say(second, "fish", f"{words} ({number + 1})", to_people=turn % 4 == 2),
        )


async def roles(made: Town, owner: AtTerminal, at_page: AtPage, other: AtTerminal) -> bool:
    """Who was made a viewer, or was taken out, cannot ask: at the page, in a terminal, by a program of their own."""
    before = len(made.messages("tea"))
    for each in (owner, at_page, other):
        await each.enter("tea")

    async def give(name: str, role: str) -> None:
        owner.typist.type(f"/role {name} {role}")
        talk = made.talk
        who = made.peer(name, "tea")
        await made.until(lambda: talk("tea").participants[who].role == role, f"{name} as {role}")

    await give(at_page.name, "viewer")
    out = made.peer(other.name, "tea")
    owner.typist.type(f"/kick {other.name}")
    await made.until(lambda: out in made.talk("tea").entry.barred, f"{other.name} out")
    await at_page.page.until_says("You can read this conversation", WITHIN_S)
    silent = await at_page.page.run("document.querySelector('.composer textarea') === null")
    other.typist.type("May I?")
    await other.typist.until_shows("you read here", WITHIN_S)
    conversation, _ = made.find("tea")
    stranger = MessageAdded(
        *(conversation, new_id(), "", made.watch.me, "to-model", "Let me in.", 1, "", "", (), 0)
    )
    try:
        await made.watch.propose(stranger)
        refused = False
    except MeshError:
        refused = True
    await give(at_page.name, "member")
    owner.typist.type(f"/role {other.name} member")
    await made.until(lambda: out in made.talk("tea").participants, f"{other.name} in again")
    await at_page.page.until("document.querySelector('.composer textarea')", WITHIN_S)
    return bool(silent) and refused and len(made.messages("tea")) == before


async def disturbed(
    made: Town,
    asker: AtTerminal | AtPage,
    reader: AtPage,
    kill: Callable[[], Awaitable[None]],
    figures: Figures,
) -> Message:
    """The founder's process, then the asker's is killed while `asker`'s answer is made; that answer in the end."""
    figures.asker = asker.name

    async def read_on(beyond: int) -> int:
        """Until more is read by another person; -1 when the answer was over first."""
        while running(made.talk("story")) is not None:
            shown: int = await reader.page.run(GROWN)
            if shown > beyond:
                return shown
            await asyncio.sleep(0.05)
        return -1

    number = 0
    while figures.asker_killed_after < 0:
        number += 1
        assert number <= 4, "each answer was over before its asker was killed"
        asked = f"{STORY} ({number})"
        await made.say(asker, "story", asked)
        await made.until(
            lambda: running(made.talk("story")) is not None or not waiting(made.talk("story")), "an answer"
        )
        read = await read_on(8)
        if "founder" in made.peers and read >= 0:
            founder = made.peers.pop("founder")
            await founder.end()  # SIGKILL
            figures.founder_killed_after = read
            read = await read_on(read + 8)
        if read >= 0 and running(made.talk("story")) is not None:
            figures.asker_killed_after = read
            await kill()
    answer = made.messages("story")[-1]
    begun = time.monotonic()
    await made.until(lambda: made.messages("story")[-1].state != "running", "the end of the answer")
    figures.seconds_after_kills = round(time.monotonic() - begun, 1)
    ended = made.messages("story")[-1]
    assert ended.id == answer.id
    figures.answer_tokens = ended.tokens
    at_length = (ended.state, ended.reason) == ("stopped", "length")
    figures.answer_completed = (ended.state == "done" or at_length) and ended.author != answer.author
    return ended


async def late_comer(made: Town, title: str) -> bytes:
    """What somebody keeps who was never here."""
    path = made.home / f"late-{title}.md"
    process = await asyncio.create_subprocess_exec(
        *(
            sys.executable,
            "-m",
            "peer.cli.main",
            "conversations",
            made.link,
            "--in",
            title,
            "--export",
            str(path),
        ),
        *("--bind", "127.0.0.1", "--state", str(made.home / "late"), "--store", str(made.home / "none")),
        stdin=asyncio.subprocess.DEVNULL,
    )
    assert await process.wait() == 0, "shoal conversations"
    return await asyncio.to_thread(path.read_bytes)


async def together(
    driver: Driver,
    app: Path,
    store: Store,
    model: str,
    home: Path,
    *,
    messages: int,
    tokens: int,
    tab_asks: bool = False,
    compare_others: bool = False,
) -> Figures:
    """One run. `tab_asks`: the asker who is killed is Chromium, not a terminal."""
    figures = Figures()
    async with AsyncExitStack() as stack:
        made = await stack.enter_async_context(town(app, store, model, home))
        terminals = [Typist(name, home / name) for name in ("Tess", "Tom")]
        for each, title in zip(terminals, ("tea", "fish"), strict=True):
            stack.push_async_callback(each.close)
            await each.start(made.link, title, "--max-tokens", str(tokens), "--temperature", "0")
        opened: list[Browser] = await asyncio.gather(
            *(launch(driver, browser, home / browser) for browser in ("chromium", "firefox"))
        )
        how = {"early": settings_of(LONG), "width": 1280, "height": 800}
        ann = AtPage("Ann", Page(await opened[0].tab(f"{made.link}&name=Ann", **how)))
        tess, tom = map(AtTerminal, terminals)
        await asyncio.gather(
            *(each.until_shows("here: ", WITHIN_S) for each in terminals)
        )  # beneath the prompt
        await made.until(lambda: len(made.watch.view.state.conversations) == 2, "two conversations")
        await asyncio.gather(*(each.enter("tea") for each in (ann, tess, tom)))
        await made.until(lambda: len(made.talk("tea").participants) == 3, "three in one conversation")
        # Nobody else comes in from here on, but who has a link into this conversation.
        terminals[0].type("/entry invited")
        await made.until(lambda: made.talk("tea").entry.by_invite, "a conversation of those who are invited")
        terminals[0].type("/invite member")
        invite = await terminals[0].until_matches(r"http\S+&in=[0-9a-f]+\.[0-9A-Za-z_-]{43}", WITHIN_S)
        bob = AtPage("Bob", Page(await opened[1].tab(f"{invite}&name=Bob", **how)))
        people: list[Person] = [tess, ann, tom, bob]
        await made.until(lambda: len(made.talk("tea").participants) == 4, "four in one conversation")
        await made.until(lambda: made.watch.view.state.serving() is not None, "a plan")

        begun = time.monotonic()
        await talk_in_turns(made, people, messages)
        await made.quiet("tea", "fish")
        figures.seconds_talking = round(time.monotonic() - begun, 1)
        figures.roles_obeyed = await roles(made, tess, bob, tom)

        # Begun by a tab, with its own settings: an answer that is long enough to be hit twice.
        await ann.page.press("New conversation")
        await ann.page.click("document.querySelector('input[name=audience][value=mesh]')")
        await ann.ask("story", to_people=True)
        await made.until(lambda: len(made.watch.view.state.conversations) == 3, "a third conversation")
        await asyncio.gather(*(each.enter("story") for each in people))
        await made.until(lambda: len(made.talk("story").participants) == 4, "four in the third")
        await made.until(made.whole, "voters and standbys")
        asker = ann if tab_asks else tess

        async def kill() -> None:
            await (opened[0].kill() if tab_asks else terminals[0].kill())

        answer = await disturbed(made, asker, bob, kill, figures)
        left = [each for each in people if each is not asker]
        await made.until(lambda: made.watch.view.state.serving() is not None, "a plan without the founder")
        again = await as_asked(made.watch, made.talk("story"))
        figures.same_tokens = next(each.same for each in again if each.answer.id == answer.id)

        titles = ("tea", "fish", "story")
        equal = True
        for title in titles:
            kept = []
            for one in left:
                await one.enter(title)
                kept.append(await one.transcript(home / f"{one.name}-{title}.md"))
            kept.append(await late_comer(made, title))
            figures.transcripts += len(kept)
            equal = equal and len(set(kept)) == 1
        figures.transcripts_equal = equal
        every = [message for title in titles for message in made.messages(title)]
        figures.conversations = len(titles)
        figures.messages = sum(message.form != "answer" for message in every)
        figures.answers = sum(message.form == "answer" for message in every)
        figures.failed = [m.reason for m in every if m.form == "answer" and m.state == "failed"]
        if compare_others:
            await others_again(made, answer, figures)
        for browser in opened[1:] if tab_asks else opened:
            await browser.close()
    return figures


async def others_again(made: Town, but: Message, figures: Figures) -> None:
    """Makes the answers that nobody disturbed again, by somebody who did not ask them and over another plan."""
    for title in ("tea", "fish", "story"):
        talk = made.talk(title)
        for each in await as_asked(made.watch, talk):
            if each.answer.id == but.id:
                continue
            figures.others += 1
            figures.others_as_asked += each.same
            figures.others_from_text += (await from_text(made.watch, talk, each.answer)).same


async def runs(messages: int, tokens: int, count: int, home: Path, store: Store, model: str) -> bool:
    """So many runs, the asker who is killed by turns at a terminal and at a tab. Whether everything held."""
    app = built(home / "app")
    held = True
    for number in range(count):
        folder = home / str(number)
        folder.mkdir()
        with driving() as driver:
            figures = await together(
                *(driver, app, store, model, folder),
                messages=messages,
                tokens=tokens,
                tab_asks=number % 2 == 1,
                compare_others=True,
            )
        print(json.dumps(asdict(figures)), flush=True)
        held = held and figures.held
    return held


def main() -> int:
    """The long form. Exit status 0: everything held."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument("--messages", type=int, default=50, help="said by people [%(default)s]")
    words.add_argument("--tokens", type=int, default=16, help="of each answer, at most [%(default)s]")
    words.add_argument("--runs", type=int, default=2, help="[%(default)s]")
    words.add_argument("--store", type=Path, default=cache_folder(), help="folder of models [%(default)s]")
    words.add_argument("--model", default="smollm2-135m", help="[%(default)s]")
    args = words.parse_args()
    store = Store(args.store)
    model = find_or_import(store, args.model, "8bit")
    with tempfile.TemporaryDirectory(prefix="shoal-together-", ignore_cleanup_errors=True) as home:
        held = asyncio.run(runs(args.messages, args.tokens, args.runs, Path(home), store, model))
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
