"""`shoal bench checks --browsers`: how far honest results of tabs are from what a check by a process computes.

Real tabs serve stages of a mesh of this machine and answer; this process asks, gets the evidence of each position as a
judge does, and computes it again with one thread, then with two.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from peer.audit.judge import PAGE_BYTES, testimony_of
from peer.audit.recomputation import Recomputing
from peer.bench.pipeline import balanced_cuts
from peer.bench.wrong_results import wrongs
from peer.errors import PeerError
from peer.launch.local_mesh import needed_bytes
from peer.launch.model_import import find_or_import
from peer.launch.terminal import interrupts, say
from peer.limits import SESSION_BYTES
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import Lent, MeshOptions
from peer.origin.answer_stream import Conversation, Finished, Settings
from peer.session.evidence import Floats, distance
from peer.session.sampling import Sampling
from peer.validation.world.mesh import Rig, Shape, rig
from peer.validation.world.wrong_results import Lie
from peer.wire.generated.requests import WitnessSide
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store

SESSIONS: Final = 4  # at once
PROMPT: Final = 48  # tokens, drawn by chance: no text is needed to compare numbers
TOKENS: Final = 80  # of an answer
CONTEXT: Final = 256
STAGES: Final = 3
TAB_BYTES: Final = 1_500_000_000
THREADS: Final = (1, 2)  # of this process, in turns


def bench_tab_checks(args: argparse.Namespace) -> dict[str, Any]:
    """The figures. Raises NotInStore, NoBrowser, and what founding raises."""
    store = Store(args.store)
    model_id = find_or_import(store, args.model, (args.weights or ["8bit"])[0])
    manifest = decode_manifest(store.manifest_bytes(model_id))
    return asyncio.run(_measure(manifest, model_id, store, args.browsers, args.checks))


async def _measure(
    manifest: Manifest, model_id: str, store: Store, browsers: list[str], checks: int
) -> dict[str, Any]:
    cuts = tuple(map(int, balanced_cuts(len(manifest.units), STAGES).split(",")))
    memory = Lent(needed_bytes(manifest, CONTEXT), beside_program=True)
    mesh = MeshOptions(CONTEXT, SESSIONS, "latency", cuts)
    peers = max(STAGES, len(browsers) + 1)
    shape = Shape(model_id, mesh, peers, memory, 1, "auto", tuple(browsers), TAB_BYTES)
    with interrupts() as ctrl:
        async with rig(shape, store, relayed=False, seed=1, last_words=ctrl.last_words) as made:
            await made.need_a_tab()
            series = _Series(made, manifest)
            begun, trouble = time.perf_counter(), ""
            try:
                while series.made < checks and not ctrl.asked.is_set():  # after Ctrl-C the figures so far
                    await series.round()
                    say(f"{series.made} checks, {series.alarms} false alarms, at most {series.worst:.2g}")
            except PeerError as error:  # a busy machine may lose a tab: what was compared until then counts
                trouble = str(error)
            finally:
                await series.close()
            return {
                "model": manifest.name,
                "weights": manifest.weights,
                "browsers": browsers,
                **series.figures(),
                "trouble": trouble,
                "seconds": round(time.perf_counter() - begun, 1),
            }


class _Series:
    """Checks of the stages that tabs serve; `made` positions were compared."""

    def __init__(self, made: Rig, manifest: Manifest) -> None:
        self._rig = made
        self._mesh: MeshMember = made.founder
        self._manifest = manifest
        self._rng = np.random.default_rng(1)
        mesh = self._mesh
        self._again = {
            count: Recomputing(mesh.view, mesh.stage, mesh.model, mesh.start, threads=count)
            for count in THREADS
        }
        self._rounds = 0
        self._least: dict[Lie, float] = {}
        self._gaps: list[float] = []
        self._most = 0.0
        self._given = 0
        self._disputed = 0
        self._unable = 0

    @property
    def made(self) -> int:
        return len(self._gaps)

    @property
    def alarms(self) -> int:
        return sum(gap > self._most for gap in self._gaps)

    @property
    def worst(self) -> float:
        return max(self._gaps, default=0.0)

    def figures(self) -> dict[str, Any]:
        gaps = np.asarray(self._gaps)
        return {
            "checks": self.made,
            "of_given_positions": self._given,
            "false_alarms": self.alarms,
            "disputed": self._disputed,
            "unable": self._unable,
            "worst_honest": self.worst,
            "median_honest": float(np.median(gaps)) if len(gaps) else None,
            "limit": self._most,
            "least_wrong": {
                lie.value: gap for lie, gap in sorted(self._least.items(), key=lambda item: item[0].value)
            },
            "threads": list(THREADS),
        }

    async def round(self) -> None:
        """Some answers at once, of which every position is checked."""
        threads = THREADS[self._rounds % len(THREADS)]
        self._rounds += 1
        sessions = self._mesh.sessions
        talks = [
            Conversation(sessions, self._mesh.model.prompts, os.urandom(SESSION_BYTES))
            for _ in range(SESSIONS)
        ]
        try:
            told = await asyncio.gather(*(self._answer(talk) for talk in talks))
            for talk, (tokens, route) in zip(talks, told, strict=True):
                for stage, peer in enumerate(route[:-1]):
                    if self._rig.name(peer) in self._rig.tabs():
                        await self._check(talk.session, stage, route, tokens, self._again[threads])
        finally:
            for talk in talks:
                talk.close()

    async def _answer(self, talk: Conversation) -> tuple[list[int], tuple[str, ...]]:
        vocab = self._manifest.vocab
        prompt = [int(token) for token in self._rng.integers(0, vocab, PROMPT)]
        sampling = Sampling(temperature=1.0, seed=int(self._rng.integers(1 << 31)))
        route: tuple[str, ...] = ()
        async for piece in talk.tokens(prompt, Settings(sampling, TOKENS, ignore_end=True)):
            if isinstance(piece, Finished):
                route = piece.route
        return [*self._mesh.sessions.tokens(talk.session)], route

    async def _check(
        self, session: bytes, stage: int, route: tuple[str, ...], tokens: list[int], again: Recomputing
    ) -> None:
        count = PROMPT + TOKENS - 1  # the last token was sampled and never run
        plan = self._rig.plan().stages[stage]
        inputs: Any = np.asarray(tokens[:count], np.int32)
        if stage:
            inputs = await self._rows(session, route[stage - 1], stage - 1, "out", count)
        seen = await self._rows(session, route[stage + 1], stage + 1, "in", count)
        told = await self._rows(session, route[stage], stage, "out", count)
        if seen is None or told is None or inputs is None:
            self._unable += count
            return
        means = await again.means((plan.first, plan.stop), route[stage])
        rows = await again.rows(means, inputs, (PROMPT, count - PROMPT))
        self._most = max(self._most, means.most)
        own = [a.tobytes() == b.tobytes() for a, b in zip(seen, told, strict=True)]
        self._gaps += [distance(a, b) for a, b, mine in zip(seen, rows, own, strict=True) if mine]
        self._disputed += own.count(False)  # handed on by another peer before the answer went over this one
        self._given += sum(own[:PROMPT])
        wrongs(self._least, self._rng, inputs if stage else None, seen, rows)

    async def _rows(
        self, session: bytes, peer: str, stage: int, side: WitnessSide, count: int
    ) -> Floats | None:
        page = PAGE_BYTES // (4 * self._manifest.hidden)
        ask: Callable[[int], Any] = lambda first: testimony_of(  # noqa: E731
            self._mesh.links, peer, session, stage, side, first, min(first + page, count)
        )
        parts = [await ask(first) for first in range(0, count, page)]
        if any(part is None for part in parts):
            return None  # of an answer that began on another route
        whole: Floats = np.concatenate(parts)
        return whole

    async def close(self) -> None:
        for again in self._again.values():
            await again.close()
