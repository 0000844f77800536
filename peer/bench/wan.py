"""`shoal bench wan`: three stages with a delay between all peers, against what the delay and the computing allow.

Edge. The peers are processes; every datagram between them, and between them and the asker, comes by a relay that holds
it back. Rounds alternate between the model in one piece, one conversation and eight; figures are medians of the rounds.
"""

from __future__ import annotations

import argparse
import asyncio
import platform
import statistics
from contextlib import ExitStack
from typing import Any, Final

from peer.bench.pipeline import Child, Subject, balanced_cuts, running
from peer.bench.pipeline_child import mesh_task
from peer.launch.local_mesh import QUESTION
from peer.launch.model_import import find_or_import
from peer.launch.terminal import say
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions
from peer.model.chat_template import Message
from peer.model.tokenizer import text_of
from peer.origin.answer_stream import Finished, Settings
from peer.session.sampling import GREEDY
from peer.state.protection import chosen
from peer.validation.scenarios.link_conditions import Conditions
from peer.validation.world.mesh import Shape, rig
from planner.model.manifest import decode_manifest
from planner.model.onnxruntime_import import ort
from planner.model.store import Store

STAGES: Final = 3
CONVERSATIONS: Final = 8
CONTEXT: Final = 1024
PLEDGE_BYTES: Final = 2 << 30
FIRST_TOKENS: Final = 800  # of the first question of a conversation
NEXT_TOKENS: Final = 24  # of the second
SHARED_TOKENS: Final = 400  # of a system prompt that two conversations begin with
ANSWER_TOKENS: Final = 8


def bench_wan(args: argparse.Namespace) -> dict[str, Any]:
    """The figures by name."""
    store = Store(args.store)
    model_id = find_or_import(store, args.model, "8bit")
    with ExitStack() as stack:
        whole = stack.enter_context(running(Subject("unsplit", ("unsplit", str(args.store), model_id), 1)))
        last_words: list[Any] = []
        try:
            return asyncio.run(_measure(args, store, model_id, whole, last_words))
        finally:
            for word in last_words:
                word()


async def _measure(
    args: argparse.Namespace, store: Store, model_id: str, whole: Child, last_words: list[Any]
) -> dict[str, Any]:
    manifest = decode_manifest(store.manifest_bytes(model_id))
    cuts = tuple(int(cut) for cut in balanced_cuts(len(manifest.units), STAGES).split(","))
    promise = MeshOptions(CONTEXT, CONVERSATIONS, "latency", cuts, chosen("basic", None, None, None, ()))
    shape = Shape(model_id, promise, STAGES, Lent(PLEDGE_BYTES), 1, "auto")
    # Before there is a mesh here whose heartbeats it could hold up.
    prompt = text_of(store, manifest).encode_chat([Message("user", QUESTION)])
    long = (prompt * (FIRST_TOKENS // len(prompt) + 1))[:FIRST_TOKENS]
    away = Conditions(delay_s=args.delay_ms / 1000, loss=args.loss)
    seen: dict[str, list[float]] = {}
    same: list[bool] = []
    say("starting three peers behind a relay")
    async with rig(shape, store, relayed=True, seed=1, last_words=last_words) as made:
        assert made.relay is not None
        mesh = made.founder
        await mesh_task(mesh, prompt, 8, 1)  # warms caches and connections; not counted
        await made.relay.set_links(away)
        await mesh_task(mesh, prompt, 8, 1)
        for number in range(args.rounds):
            say(f"round {number + 1} of {args.rounds}")
            alone = await asyncio.to_thread(whole.ask, prompt, args.tokens)
            one = await mesh_task(mesh, prompt, args.tokens, 1)
            many = await mesh_task(mesh, prompt, args.tokens, CONVERSATIONS)
            first_s, second_s = await _two_questions(mesh, long, prompt)
            own_s, shared_s = await _shared_front(mesh, long, prompt, number)
            for name, value in (
                ("unsplit_tok_s", alone["tok_s"]),
                ("one_tok_s", one["tok_s"]),
                (f"{CONVERSATIONS}_tok_s", many["tok_s"]),
                ("first_question_s", first_s),
                ("second_question_s", second_s),
                ("own_front_s", own_s),
                ("shared_front_s", shared_s),
            ):
                seen.setdefault(name, []).append(value)
            same.append(one["answer"] == alone["answer"] == many["answer"] and many["same"])
    medians = {name: statistics.median(values) for name, values in seen.items()}
    bound = 1 / (1 / medians["unsplit_tok_s"] + STAGES * away.delay_s)
    return {
        "single_vs_bound": round(medians["one_tok_s"] / bound, 3),
        "ratio_8_conversations": round(medians[f"{CONVERSATIONS}_tok_s"] / medians["one_tok_s"], 2),
        "ttft_second_vs_first": round(medians["second_question_s"] / medians["first_question_s"], 3),
        "ttft_shared_vs_own": round(medians["shared_front_s"] / medians["own_front_s"], 3),
        "same_tokens": all(same),
        "bound_tok_s": round(bound, 2),
        "stages": STAGES,
        "delay_ms": args.delay_ms,
        "loss": args.loss,
        "first_question_tokens": FIRST_TOKENS,
        "shared_tokens": SHARED_TOKENS,
        "rounds": args.rounds,
        "medians": {name: round(value, 4) for name, value in medians.items()},
        "versions": {"python": platform.python_version(), "onnxruntime": ort.__version__},
    }


async def _shared_front(
    mesh: MeshMember, long: list[int], prompt: list[int], number: int
) -> tuple[float, float]:
    """Seconds to the first token of two conversations that begin with the same tokens, which no other round has."""
    front = [*long[number + 1 : SHARED_TOKENS], *long[: number + 1]]
    found = []
    for at in range(2):
        conversation = mesh.conversation()
        asked = [*front, *prompt[at : at + NEXT_TOKENS]]
        try:
            settings = Settings(GREEDY, ANSWER_TOKENS, ignore_end=True, front=len(front))
            async for piece in conversation.tokens(asked, settings):
                if isinstance(piece, Finished):
                    found.append(piece.first_token_s)
        finally:
            conversation.close()
    return found[0], found[1]


async def _two_questions(mesh: MeshMember, long: list[int], prompt: list[int]) -> tuple[float, float]:
    """Seconds to the first token of a conversation's first question, and of its second."""
    conversation = mesh.conversation()
    chosen_ = Settings(GREEDY, ANSWER_TOKENS, ignore_end=True)
    asked, found = list(long), []
    try:
        for _ in range(2):
            async for piece in conversation.tokens(asked, chosen_):
                if isinstance(piece, Finished):
                    found.append(piece.first_token_s)
                elif piece.token >= 0:
                    asked.append(piece.token)
            asked += prompt[:NEXT_TOKENS]
    finally:
        conversation.close()
    return found[0], found[1]
