"""One subject of `shoal bench pipeline` in a process of its own: runs what it is told on standard input.

`unsplit STORE MODEL` is the plain onnxruntime loop over the whole model; `mesh STORE MODEL CUTS TRANSPORT` founds a
mesh, starts the other peers as processes, and asks from the founder, which holds the first stage. Each line in is a
JSON task {"prompt": [...], "tokens": N, "sessions": S}, each line out its JSON result.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import numpy as np

from peer.launch.local_mesh import joined
from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions, PeerOptions
from peer.origin.answer_stream import Delta, Finished, Settings
from peer.runtime.arithmetic import proven
from peer.runtime.execution import Execution, Row
from peer.runtime.kv_slots import KvSlots
from peer.runtime.piece_sizes import PIECE_TOKENS
from peer.session.sampling import GREEDY, sample
from planner.model.lowering import make_shard
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.keys import SEED_BYTES, identity_from_seed
from signaling.server import ServerOptions

CONTEXT = 1024
SESSIONS = 8
PLEDGE_BYTES = 4 << 30
SERVE_WITHIN_S = 120.0


def unsplit_task(execution: Execution, prompt: list[int], tokens: int) -> dict[str, Any]:
    """Greedy decode by one thread, nothing in between: embedding, blocks, head, the likeliest token."""
    slots = KvSlots(1, CONTEXT, execution.form)
    slots.admit(b"bench")
    greedy = GREEDY
    begun = time.perf_counter()
    hidden = np.zeros((0, 0), dtype=np.float32)
    for start in range(0, len(prompt), PIECE_TOKENS):
        piece = execution.embed(np.asarray(prompt[start : start + PIECE_TOKENS], dtype=np.int64))
        execution.ensure(slots, 1, start + execution.form.filled_tokens(start, len(piece)))
        hidden = execution.prompt(piece, Row(0, start))[-1:].copy()
        slots.set_length(b"bench", start + len(piece))
    answer = [sample(execution.head(hidden)[0], greedy, len(prompt))]
    first_s = time.perf_counter() - begun
    for position in range(len(prompt), len(prompt) + tokens - 1):
        execution.ensure(slots, slots.rows, position + 1)
        token = execution.embed(np.asarray(answer[-1:], dtype=np.int64))
        hidden = execution.alone(token, Row(0, position))
        slots.set_length(b"bench", position + 1)
        answer.append(sample(execution.head(hidden)[0], greedy, position + 1))
    seconds = time.perf_counter() - begun
    return {"first_s": first_s, "tok_s": _rate(len(answer), seconds - first_s), "answer": answer}


async def mesh_task(mesh: MeshMember, prompt: list[int], tokens: int, sessions: int) -> dict[str, Any]:
    """`sessions` answers at once; rates over the time in which all of them decode."""
    chosen = Settings(GREEDY, tokens, ignore_end=True)
    conversations = [mesh.conversation() for _ in range(sessions)]

    async def answer(index: int) -> tuple[list[int], Finished, float]:
        got: list[int] = []
        async for piece in conversations[index].tokens(prompt, chosen):
            match piece:
                case Delta(_, token) if token >= 0:
                    got.append(token)
                case Finished():
                    return got, piece, time.perf_counter()
        raise AssertionError("an answer ends with Finished")

    begun = time.perf_counter()
    answers = await asyncio.gather(*(answer(index) for index in range(sessions)))
    for conversation in conversations:
        conversation.close()
    first_s = max(finished.first_token_s for _, finished, _ in answers)
    last_s = max(at for _, _, at in answers) - begun
    count = sum(len(got) for got, _, _ in answers)
    return {
        "first_s": answers[0][1].first_token_s,
        "tok_s": answers[0][1].tokens_per_s if sessions == 1 else (count - sessions) / (last_s - first_s),
        "answer": answers[0][0],
        "same": all(got == answers[0][0] for got, _, _ in answers),
    }


async def run_mesh(store: Store, model_id: str, cuts: tuple[int, ...], transport: str) -> None:
    """Founds, waits for everyone, and answers tasks until the end of input."""
    options = PeerOptions("founder", PLEDGE_BYTES, 1, "cpu", transport, ("127.0.0.1",))
    promise = Founding(model_id, MeshOptions(CONTEXT, SESSIONS, "latency", cuts), ServerOptions())
    key = identity_from_seed(os.urandom(SEED_BYTES))
    async with AsyncExitStack() as stack:
        mesh = await stack.enter_async_context(found(promise, options, store, key))
        assert mesh.link is not None
        for number in range(len(cuts)):
            args = argparse.Namespace(threads=1, transport=transport, store=store.root)
            await stack.enter_async_context(
                joined(args, mesh.link.url(), f"peer {number}", Lent(PLEDGE_BYTES))
            )
        await mesh.until_serving(SERVE_WITHIN_S)
        _tell({"ready": True})
        while line := await asyncio.to_thread(sys.stdin.readline):
            task = json.loads(line)
            _tell(await mesh_task(mesh, task["prompt"], task["tokens"], task["sessions"]))


def main() -> None:
    """Entry of the child process."""
    kind, root, model_id, *rest = sys.argv[1:]
    store = Store(Path(root))
    if kind == "unsplit":
        manifest = decode_manifest(store.manifest_bytes(model_id))
        form = proven(store, manifest, "cpu", 1).form
        shard = make_shard(manifest, store, 0, len(manifest.units), "cpu", exact=form.plain)
        execution = Execution(shard, threads=1, context=CONTEXT, form=form)
        _tell({"ready": True})
        while line := sys.stdin.readline():
            task = json.loads(line)
            _tell(unsplit_task(execution, task["prompt"], task["tokens"]))
        return
    cuts = tuple(int(part) for part in rest[0].split(",") if part)
    asyncio.run(run_mesh(store, model_id, cuts, rest[1]))


def _rate(count: int, seconds: float) -> float:
    return (count - 1) / seconds if count > 1 else 0.0


def _tell(result: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(result) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
