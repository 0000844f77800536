"""Writes turns.json: whose turn it is, what the model reads, who adopts, what is shown; conversations at random."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.conversation.turn_order import (
    adopters,
    branch_key,
    leaf_of,
    may_ask,
    next_turn,
    prompt_of,
    rank,
    running,
    waiting,
    waits_for,
)
from peer.conversation.turn_order import (
    shown as shown_of,
)
from peer.state.conversations import Conversation, Conversations, conversations_codec, converse
from peer.state.generated.commands import (
    ConversationStarted,
    MessageAdded,
    MessageEnded,
    MessageExtended,
    ParticipantSet,
)

PATH = beside(__file__, "turns.json")
SEED = 20261128
CONVERSATIONS = 40
PEERS = ("ann", "bob", "cho", "dee")
NAME = "c"


def started(rng: random.Random) -> Conversations:
    """A conversation of Ann's with some others in it."""
    system = rng.choice(("", " \n\ufeff", "\u3000be brief\u2009\n"))
    made = converse({}, ConversationStarted(NAME, "t", "", system, (), 1, "ann", "Ann", "#000000"))
    assert not isinstance(made, str)
    for peer, role in (("bob", "member"), ("cho", "viewer"), ("dee", "owner")):
        if rng.random() < 0.8:
            made = converse(made, ParticipantSet(NAME, peer, peer, "#ffffff", role))  # type: ignore[arg-type]
            assert not isinstance(made, str)
    return made


def random_move(rng: random.Random, known: Conversations, number: int) -> Conversations:
    """The next thing that is said, mostly at the end, sometimes in an earlier place."""
    every = list(known[NAME].messages)
    open_ = [message for message in every if message.state == "running"]
    questions = [message for message in every if message.form == "to-model"]
    command: MessageAdded | MessageExtended | MessageEnded
    roll = rng.random()
    if open_ and roll < 0.3:
        answer = rng.choice(open_)
        command = MessageExtended(NAME, answer.id, answer.tokens, answer.tokens + 2, f"word{number} ")
    elif open_ and roll < 0.5:
        answer = rng.choice(open_)
        state = rng.choice(("done", "stopped", "failed"))
        text = rng.choice((None, f"all of {number}"))
        command = MessageEnded(NAME, answer.id, state, 9, text, "")  # type: ignore[arg-type]
    elif questions and roll < 0.7:
        parent = rng.choice((*questions[-2:], questions[0]))
        command = MessageAdded(
            NAME,
            f"a{number}",
            parent.id,
            rng.choice(PEERS),
            "answer",
            "",
            number,
            f"{number:032x}",
            "",
            (),
            9,
        )
    else:
        parent_id = rng.choice([*(message.id for message in every[-3:]), every[-1].id if every else ""])
        if every and rng.random() < 0.15:
            parent_id = rng.choice(every).parent  # an edit, if the author is the same
        form = rng.choice(("to-model", "to-model", "to-people"))
        author = rng.choice(PEERS)
        said = f"text {number}"
        command = MessageAdded(NAME, f"q{number}", parent_id, author, form, said, number, "", "", (), 0)  # type: ignore[arg-type]
    made = converse(known, command)
    return known if isinstance(made, str) else made


def decided(rng: random.Random, conversation: Conversation) -> dict[str, Any]:
    present = sorted(rng.sample(PEERS, rng.randint(0, 4)))
    every = list(conversation.messages)
    turn = next_turn(conversation, present)
    under = running(conversation)
    chosen = {branch_key(message): message.id for message in every if rng.random() < 0.1}
    turns = shown_of(conversation.messages, chosen)
    return {
        "present": present,
        "may_ask": [peer for peer in PEERS if may_ask(conversation, peer)],
        "running": under.id if under is not None else None,
        "waiting": [message.id for message in waiting(conversation)],
        "next_turn": [turn[0].id, turn[1]] if turn is not None else None,
        "adopters": {m.id: adopters(conversation, m, present) for m in every if m.state == "running"},
        "prompts": {
            message.id: [[read.role, read.content] for read in prompt_of(conversation, message.id)]
            for message in every
            if message.form == "to-model"
        },
        "chosen": chosen,
        "shown": [
            [
                each.message.id,
                list(each.branches),
                each.answer.id if each.answer else None,
                list(each.answers),
            ]
            for each in turns
        ],
        "leaf": leaf_of(turns),
        "waits_for": {message.id: waits_for(conversation, message) for message in waiting(conversation)},
    }


def cases() -> list[dict[str, Any]]:
    made = []
    for number in range(CONVERSATIONS):
        rng = random.Random(SEED + number)
        known = started(rng)
        for said in range(rng.randint(0, 24)):
            known = random_move(rng, known, said)
        row = {"conversations": conversations_codec.encode(known), **decided(rng, known[NAME])}
        made.append(shown(row))
    return made


def ranks() -> list[dict[str, Any]]:
    many = [f"peer{number}" for number in range(9)]
    return [{"id": name, "peers": many, "gives": rank(name, many)} for name in ("a1", "", "ü.:-")]


def text() -> str:
    about = (
        "of conversations (peer/state/conversations.py) what peer/conversation/turn_order.py decides; "
        "written by make_turns.py"
    )
    return written(about, {"ranks": ranks(), "cases": cases()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
