"""What a peer does that lends this machine: measures, loads what plans give it, and tells how fast it is. Edge."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Collection, Coroutine, Sequence
from contextlib import suppress
from typing import Any, Final

from peer.coordination.repair_order import load_order
from peer.errors import PeerError
from peer.member.failure_domain_watch import Around, with_surroundings
from peer.member.peer_options import PeerOptions
from peer.member.peer_parts import PeerParts
from peer.member.progress import Phase, Report, fetching
from peer.member.rate_meter import Meter
from peer.model.fetcher import Fetcher, Progress
from peer.runtime.self_benchmark import UnitTimes
from peer.runtime.shared_sessions import SharedSessions
from peer.session.prefix_cache import LENT_SHARE, MOST_BYTES
from peer.session.seat import Run_
from peer.stage.slowdown_reports import Pacing
from peer.stage.team_slices import Slices
from peer.stage.unit_host import Room, Serving
from peer.stage.unit_loader import Holding
from peer.state.display_names import names
from peer.state.generated.commands import LinkFacts, MemberMeasured, Profile
from peer.state.mesh_state import AWAY
from peer.state.plan_record import route_of
from peer.storage.journal import Journal
from peer.transport.link_probe import both_ways, link_words
from peer.wire.generated.requests import MEASURE_LINK
from planner.model.manifest import Manifest

HELD_WITHIN_S: Final = 60.0  # units that were held before a restart are loaded before anything is planned
METER_S: Final = 0.5  # between readings of the token counter

log = logging.getLogger(__name__)


class Lending:
    """This machine as it is lent in `mesh`. `start` runs a task of the owner's; `failed(why)` ends the membership."""

    def __init__(
        self,
        parts: PeerParts,
        mesh: str,
        options: PeerOptions,
        journal: Journal,
        report: Report,
        start: Callable[[Coroutine[Any, Any, None]], object],
        failed: Callable[[str], None],
    ) -> None:
        self.options = options
        self.journal = journal
        self.meter = Meter()
        self._parts = parts
        self._report = report
        self._start = start
        self._failed = failed
        self._around = Around(mesh, options, parts.links, parts.view)
        self._holding: Holding | None = None
        self._shared = SharedSessions()

    def begin(self, fetcher: Fetcher) -> None:
        """Begins to hold what placements of offered models give this peer, and what plans of the model that answers do,
        where the mesh has one.
        """
        self._parts.flow.lend(fetcher, self.options.threads)
        self._parts.decoders.lend(self.options, fetcher, self._shared, self._report)
        self._start(self._around.follow(self._parts.ticks.after))
        if self._parts.model.manifest is not None:
            self._hold(fetcher, self._parts.model.manifest)

    def _hold(self, fetcher: Fetcher, manifest: Manifest) -> None:
        parts, options, view = self._parts, self.options, self._parts.view
        chosen = view.state.model
        assert chosen is not None
        before_call = options.disturbance.before_call if options.disturbance is not None else None
        room = Room(
            options.provider,
            options.threads,
            chosen.sessions,
            chosen.context,
            options.memory_bytes,
            before_call,
            self._shared,
        )
        pacing = Pacing(view.me, manifest, lambda: view.state, view.measured)
        units = Serving(
            parts.model.store, fetcher, manifest, room, parts.stage.results, parts.stage.core.asker, pacing
        )
        parts.stage.lend(units, self.journal, min(MOST_BYTES, options.memory_bytes // LENT_SHARE))
        holding = self._holding = Holding(
            parts.links, view, parts.stage, units, self.journal, chosen.sessions, self, parts.teams
        )
        parts.teams.lend(
            Slices(parts.model.store, fetcher, manifest, room),
            units,
            lost=holding.team_lost,
            changed=holding.look_again,
        )
        self._follow_protection()
        if self.journal.kept:
            holding.keep(self._held_before(manifest, options.memory_bytes))
        view.subscribe(self._follow_protection)
        self._start(self._meter_tokens())
        self._start(pacing.follow(parts.ticks.after))
        holding.start()

    async def measured(self, times: UnitTimes) -> MemberMeasured:
        """Returns this peer's profile and its links to the other compute members, as one command."""
        links, view = self._parts.links, self._parts.view
        members = sorted(view.state.members.items())  # of those who are away each measures when it is back
        others = [p for p, m in members if m.compute and m.status not in AWAY and p != view.me]
        facts: list[LinkFacts] = []
        for peer in others:
            self._report(Phase(f"measure the link to {names(view.state.members)[peer]}", 0, 0))
            try:
                await links.dialer.dial(peer)
                there = await links.prober.measure(peer)
                back = await links.call(peer, MEASURE_LINK, None)
                words = link_words(there, links.dialer.relayed(peer))
                facts += both_ways(view.me, peer, words, back)
            except (PeerError, TimeoutError) as error:
                log.info("no link to %s: %s", peer[:8], error)
                continue
        profile = with_surroundings(profile_of(self.options, times), self._around)
        return MemberMeasured(view.me, profile, tuple(facts))

    async def held_again(self) -> None:
        """Waits until what was held before a restart serves again and the leader knows, or that takes too long."""
        if self._holding is None or not self.journal.core.kept:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(HELD_WITHIN_S):
                await self._holding.given_back.wait()

    def report_again(self) -> None:
        """The leader was lost: tells it again what is held here."""
        if self._holding is not None:
            self._holding.forget_report()

    def leave(self) -> None:
        """Loads and unloads nothing any more: what is held now is what the log tells after a restart."""
        self._parts.decoders.leave()
        if self._holding is not None:
            self._holding.leave()

    async def close(self) -> None:
        """Unloads everything."""
        if self._holding is not None:
            await self._holding.close()
        await self.journal.close()

    # --- HoldingOwner

    def order(self, runs: Collection[Run_]) -> Sequence[Run_]:
        """Earlier stages first, before all others those with units that the mesh repairs first."""
        state, manifest = self._parts.view.state, self._parts.model.manifest
        plan = state.proposed or state.plan
        stages = [(stage.first, stage.stop) for stage in plan.stages] if plan is not None else []
        units = [unit.name for unit in manifest.units] if manifest is not None else []
        return load_order(stages, runs, units, state.protection.priority)

    def progress(self, run: Run_) -> Progress:
        """What is told how far the fetching of `run` is."""
        return fetching(self._report, f"units {run[0]}-{run[1] - 1}")

    def reported(self) -> None:
        """Says that this peer is ready, where a plan gives it a stage: the leader knows what it holds."""
        state = self._parts.view.state
        if any(
            plan is not None and self._parts.me in route_of(plan) for plan in (state.proposed, state.plan)
        ):
            self._report(Phase("ready", 1, 1))

    def failed(self, why: str) -> None:
        """Ends the membership: what the plan wants cannot be held."""
        self._failed(why)

    # --- inner moves

    def _follow_protection(self) -> None:
        self.journal.turn(self._parts.view.state.protection.transactions)

    def _held_before(self, manifest: Manifest, most_bytes: int) -> list[Run_]:
        """The runs of units that this peer held when it ended, of which every blob is still in its store."""
        found: list[Run_] = []
        for run in self.journal.recovered.held:
            blobs = manifest.blobs(run.first, run.stop) if run.stop <= len(manifest.units) else ()
            most_bytes -= sum(ref.bytes for ref in blobs)
            if blobs and most_bytes >= 0 and all(self._parts.model.store.has_blob(ref) for ref in blobs):
                found.append((run.first, run.stop))
                text = f"units {run.first}-{run.stop - 1} were held before; they load again"
                self._report(Phase(text, 0, 0))
        return found

    async def _meter_tokens(self) -> None:
        while True:
            self.meter.read(time.monotonic(), self._parts.stage.core.tokens_sampled)
            await self._parts.ticks.after(METER_S)


def profile_of(options: PeerOptions, times: UnitTimes) -> Profile:
    """What was measured here, as it goes into the log."""

    def nanoseconds(table: Any) -> dict[str, int]:
        return {str(kind): round(seconds * 1e9) for kind, seconds in sorted(table.items())}

    return Profile(
        memory_bytes=options.memory_bytes,
        overhead_bytes=times.lasting_bytes,
        decode_ns=nanoseconds(times.decode_s),
        prefill_ns=nanoseconds(times.prefill_s),
        batch_ns=nanoseconds(times.batch_s),
        step_ns=round(times.step_s * 1e9),
        provider=options.provider,
        threads=options.threads,
        arithmetic="" if options.older else times.arithmetic,
    )
