"""Teams of threads of one process, whose frames go from one to the other as they are on the wire."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from peer.runtime.execution import Execution
from peer.runtime.forms import Form
from peer.runtime.stage_runtime import Done, Refused, StageRuntime
from peer.runtime.teams.helper_worker import HelperWorker
from peer.runtime.teams.mailbox import Mailbox
from peer.runtime.teams.member_execution import Channel, MemberExecution, load_member
from peer.runtime.teams.team import Team, joint_form
from peer.runtime.teams.team_execution import TeamExecution
from peer.wire.frame_codec import decode, encode
from peer.wire.generated.frames import TeamPart, TeamRows, TeamStep
from planner.model.lowering import make_shard
from planner.model.manifest import Manifest
from planner.model.store import Store

SESSION = bytes(16)
Delay = Callable[[int], None]  # of a member, before it sends


def _no_delay(_: int) -> None:
    return


class Members:
    """The loaded slices of a team, to be opened once."""

    def __init__(self, manifest: Manifest, store: Store, team: Team, context: int) -> None:
        self.manifest, self.store, self.team, self.context = manifest, store, team, context
        self.loaded: list[MemberExecution] = [
            load_member(manifest, store, team, place, threads=1, context=context)
            for place in range(len(team.shares))
        ]
        self.form: Form = joint_form([member.form for member in self.loaded])

    @contextmanager
    def opened(
        self, deliver: Callable[[Done | Refused], None], slots: int = 8, delay: Delay = _no_delay
    ) -> Iterator[StageRuntime]:
        """The runtime of the lead; helpers run on threads of their own."""
        boxes = [Mailbox() for _ in self.loaded]
        ended = threading.Event()

        def to(sender: int) -> Callable[[int, TeamPart], None]:
            def send(member: int, part: TeamPart) -> None:
                delay(sender)
                got = decode(encode(part))
                assert isinstance(got, TeamPart)
                boxes[member].put(got)

            return send

        channels = [Channel(SESSION, place, len(boxes), to(place), box) for place, box in enumerate(boxes)]

        def over(why: str) -> None:
            ended.set()
            for box in boxes:
                box.end(why)

        hidden = self.manifest.hidden
        helpers = [
            HelperWorker(member, channels[place], self.form, hidden, slots, self.context, over)
            for place, member in enumerate(self.loaded)
            if place
        ]

        def tell(frame: TeamStep | TeamRows) -> None:
            delay(0)
            for helper in helpers:
                got = decode(encode(frame))
                assert isinstance(got, TeamStep | TeamRows)
                helper.take(got)

        run = self.team.run
        shard = make_shard(self.manifest, self.store, *run, exact=self.form.plain)
        embedding = None
        if not run[0]:
            first = make_shard(self.manifest, self.store, 0, 1, exact=self.form.plain)
            embedding = Execution(first, threads=1, context=self.context, form=self.form, brief=True)
        has_head = run[1] == len(self.manifest.units)
        execution = TeamExecution(
            self.loaded[0], embedding, channels[0], self.form, tell, over, has_head=has_head
        )
        runtime = StageRuntime(
            replace(shard, weight_bytes=self.loaded[0].weight_bytes),
            threads=1,
            slots=slots,
            context=self.context,
            form=self.form,
            deliver=deliver,
            execution=execution,
        )
        try:
            yield runtime
        finally:
            runtime.close()
            for helper in helpers:
                helper.close("the test is over")
            for member in self.loaded:
                member.close()
