"""Writes prefixes.json: which fronts of prompts a stage keeps, and which sessions begin with one, event by event."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import numpy as np
from make_pipeline import Trace, opened
from tracing import beside, shown_frame, written

from peer.session.effects import StageEffect
from peer.session.prefix import Prefix
from peer.session.prefix_cache import ENTRY_BYTES, MARK_BYTES, Prefixes, hash_of, named, prefix_of, split
from peer.wire.generated.frames import Cancel, Open, Release, Step
from peer.wire.tensors import Tensor, tensor_of

PATH = beside(__file__, "prefixes.json")
SEED = 20261129
TRACES = 8
POSITION_BYTES = 16
FRONTS = (8, 12)  # positions
PLACES: dict[
    int, tuple[int, tuple[str, ...], str]
] = {  # stage: plan and route with this peer there, who sends
    0: (2, ("p1", "p2"), "asker"),
    1: (1, ("p0", "p1", "p2"), "p0"),
    2: (3, ("p0", "p1"), "p0"),
}


def rows(first: int, stop: int, kind: int, stage: int) -> Tensor:
    """What goes into a stage for these positions, of prompts of that `kind`."""
    if stage == 0:
        return tensor_of(np.array([kind * 100 + at for at in range(first, stop)], dtype=np.int32))
    return tensor_of(np.array([[at, kind / 4] for at in range(first, stop)], dtype=np.float32))


class Fronts(Trace):
    def __init__(self, name: str, fronts: int = 4) -> None:
        super().__init__(name)
        each = FRONTS[0] * (POSITION_BYTES + MARK_BYTES + 8) + ENTRY_BYTES
        self.most_bytes = fronts * each
        self.core.prefixes = Prefixes(self.most_bytes)
        self.core.prefixes.resize(lambda _: POSITION_BYTES, self.most_bytes)

    def note(self, do: str, effects: list[StageEffect], **given: Any) -> list[StageEffect]:
        super().note(do, effects, **given)
        kept = self.core.prefixes
        self.ops[-1]["fronts"] = [len(kept), kept.kept_bytes, kept.reused, kept.log_bytes]
        return effects

    def as_json(self) -> dict[str, Any]:
        row = {"most_bytes": self.most_bytes, "position_bytes": POSITION_BYTES}
        return {**super().as_json(), **row}

    def begin(
        self, number: int, stage: int, front: int, kind: int = 0, said: int | None = None, **more: Any
    ) -> None:
        """A session that begins with `front` positions of that kind, named as they are (or as `said` are)."""
        plan, route, sender = PLACES[stage]
        place = 1 if stage == 2 else stage
        named_as = prefix_of(rows(0, front, kind if said is None else said, stage))
        prompt = more.get("prompt_tokens", front + 4)
        bare = opened(place, session=bytes([number]) * 16, plan=plan, route=route, prompt_tokens=prompt)
        frame = replace(bare, **{"spans": (prompt,), **more})
        self.frame(sender, named(frame, named_as if said != NOT_SAID else Prefix(front)))

    def feeds(self, number: int, stage: int, first: int, stop: int, kind: int = 0, turn: int = 1) -> None:
        _, _, sender = PLACES[stage]
        place = 1 if stage == 2 else stage
        session = bytes([number]) * 16
        count = stop - first
        self.frame(sender, Step(session, turn, place, first, count, 1, rows(first, stop, kind, stage)))

    def whole(self, number: int, stage: int, front: int, kind: int = 0) -> None:
        """All of a session's prompt, in two steps, computed."""
        self.begin(number, stage, front, kind)
        self.feeds(number, stage, 0, front - 1, kind)
        self.feeds(number, stage, front - 1, front + 4, kind)
        self.all_ran()

    def over(self, number: int) -> None:
        self.frame("asker", Release(bytes([number]) * 16))


NOT_SAID = -1


def kept(stage: int) -> Fronts:
    t = Fronts(f"a front that a second session begins with, at stage {stage}")
    front = FRONTS[0]
    t.whole(1, stage, front)
    t.over(1)
    t.begin(2, stage, front)
    t.feeds(2, stage, 0, front + 4)  # what it has is dropped
    t.all_ran()
    t.over(2)
    t.begin(3, stage, front, kind=1)  # another one
    t.feeds(3, stage, 0, front + 4, kind=1)
    t.all_ran()
    t.over(3)
    t.begin(
        4, stage, front, said=1
    )  # the sender is wrong: it is known by what comes, which is dropped up to there
    t.feeds(4, stage, front, front + 4)
    t.all_ran()
    t.over(4)
    t.begin(5, stage, front, said=NOT_SAID)  # nobody knows what comes: it is computed, and known afterwards
    t.feeds(5, stage, 0, front + 4)
    t.all_ran()
    t.drop((0, 4) if stage == 0 else (2, 5) if stage == 1 else (3, 8))
    return t


def answers() -> Fronts:
    t = Fronts("another answer of a session, with another front")
    front = FRONTS[0]
    t.whole(1, 0, front)
    t.frame("asker", Cancel(bytes([1]) * 16, 1, front + 4, "end"))
    t.begin(1, 0, front, kind=1, turn=2, answer=2, before=1, keep=0)
    t.feeds(1, 0, 0, front + 4, kind=1, turn=2)
    t.all_ran()
    t.over(1)
    t.begin(2, 0, front, kind=1)
    t.begin(3, 0, front, kind=1, role=1, shadow_stages=(0,), shadows=("p1",))
    t.over(2)
    t.over(3)
    t.begin(4, 0, front, kind=1, max_tokens=0)  # it warms: its cache is that of another answer
    return t


def bounded() -> Fronts:
    t = Fronts("what was used least goes first", fronts=2)
    for number, (front, kind) in enumerate(((8, 0), (8, 1), (8, 0), (8, 2), (8, 0), (8, 1)), 1):
        t.whole(number, 0, front, kind)
        t.over(number)
    return t


def schedule(seed: int) -> Fronts:
    rng = random.Random(seed)
    t = Fronts(f"random schedule of seed {seed}", fronts=rng.randint(1, 5))
    for number in range(1, 15):
        stage, front, kind = rng.randrange(3), rng.choice(FRONTS), rng.randrange(3)
        t.begin(number, stage, front, kind, said=rng.choice((None, None, None, NOT_SAID)))
        cut = rng.randint(1, front + 3)
        t.feeds(number, stage, 0, cut, kind)
        if rng.random() < 0.3:
            t.all_ran()
        t.feeds(number, stage, cut, front + 4, kind)
        t.all_ran()
        if rng.random() < 0.8:
            t.over(number)
        if rng.random() < 0.1:
            t.drop(rng.choice(((0, 4), (2, 5), (3, 8))))
    return t


def words() -> list[dict[str, Any]]:
    """OPENs that name a front, and those that do not."""
    bare = opened(0, plan=2, route=("p1", "p2"), prompt_tokens=20, spans=(12, 3, 5))
    digest = hash_of([bytes([at]) * 8 for at in range(12)])
    given = [
        named(bare, Prefix(12, digest)),
        named(bare, Prefix(1)),
        named(replace(bare, sampling=()), Prefix(5, digest)),
        named(replace(bare, sampling=(*bare.sampling, 1, 0, 0)), Prefix(5, digest)),
        named(bare, Prefix(13, digest)),  # beyond what was given
        replace(bare, sampling=(*bare.sampling, 13, 1, 2, 3)),
        replace(bare, sampling=(*bare.sampling, 0, 1, 2, 3)),
        replace(bare, sampling=(*bare.sampling, 5, 1, 2, 1 << 48)),
        replace(bare, sampling=(*bare.sampling, 5, 1, 2)),
        replace(bare, sampling=(5, 1, 2, 3)),
    ]

    def said(frame: Open) -> dict[str, Any]:
        rest, prefix = split(frame)
        front = None if prefix is None else [prefix.count, prefix.digest.hex()]
        return {"frame": shown_frame(frame), "rest": list(rest.sampling), "front": front}

    return [said(frame) for frame in given]


def text() -> str:
    about = (
        "Traces of StageCore as in pipeline.json, with most_bytes for fronts and position_bytes of cache for each "
        "position; fronts: how many are kept, their bytes, positions not computed again, bytes of activations. words: "
        "OPENs, their settings without the front, and the front that they name."
    )
    made = [*(kept(stage) for stage in PLACES), answers(), bounded()]
    made += [schedule(SEED + number) for number in range(TRACES)]
    return written(about, {"words": words(), "traces": [trace.as_json() for trace in made]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
