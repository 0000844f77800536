"""Computes a step of another peer again, and says whether its result is what its units make of the input.

Edge around `peer.session.evidence`. The inputs come from the peer before (or the asker, who knows the tokens), the
result from the peer after; marks of the peer itself decide whether it got those inputs at all.
"""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from peer.audit.recomputation import Means, Recomputing
from peer.errors import BadCommand
from peer.model.local_model import LocalModel
from peer.session.evidence import (
    MARK_BYTES,
    SAME,
    Floats,
    distance,
    first_other,
    marks_of,
    span_of,
)
from peer.session.pinned_ends_evidence import digest_of, rows_answer
from peer.session.position_spans import cut_spans, extended
from peer.session.sampling import BadSampling, Sampling, needs_history
from peer.session.sampling_check import fits
from peer.session.seat import Run_, Seat
from peer.stage.stage_host import StageHost
from peer.transport.peer_links import PeerLinks
from peer.wire.generated.requests import (
    WITNESS,
    CheckRequest,
    CheckVerdict,
    WitnessAnswer,
    WitnessRequest,
    WitnessSide,
)
from peer.wire.tensors import tensor_of

PAGE_BYTES: Final = 64 * 1024  # of activations that are asked for at once: tokens wait behind them
MOST_TOKENS: Final = 32  # of a last stage that one check looks at: each needs the head
CALL_S: Final = 20.0


@dataclass(frozen=True, slots=True)
class Place:
    """One stage at one position of a session, as its asker knows it. `before`, `after`: "" for the asker itself.

    Of the last stage, unless its asker keeps its ends, also `token`, which it drew from that position, with which
    settings, and how many tokens of the answer were `sampled` before it; of all others another position before it
    that is compared `also` (-1: none).
    """

    session: bytes
    stage: int
    position: int
    units: Run_
    peer: str
    before: str
    after: str
    spans: tuple[int, ...]
    token: int = -1
    sampling: tuple[int, ...] = ()
    sampled: int = 0
    also: int = -1
    pinned: bool = False  # its asker keeps embedding, head and sampling (peer.session.pinned_ends_evidence)

    @property
    def keeps_ids(self) -> bool:
        """Whether its inputs tell which tokens an asker has that keeps them."""
        return self.pinned and not self.before

    def to_request(self) -> CheckRequest:
        """The `check` request of this place."""
        rest = {field.name: getattr(self, field.name) for field in fields(self) if field.name != "session"}
        return CheckRequest(session=self.session.hex(), **rest)


def place_of(said: CheckRequest) -> Place:
    """The place of a `check` request. Raises BadCommand."""
    if not -1 <= said.also < said.position + (said.also == -1):
        raise BadCommand("check: expected as `also` a position before the one that is checked, or -1")
    rest = {field.name: getattr(said, field.name) for field in fields(said) if field.name != "session"}
    return Place(session=bytes.fromhex(said.session), **rest)


def spans_up_to(spans: Sequence[int], known: int, stop: int) -> tuple[int, ...]:
    """How positions [0, stop) were computed: below `known` by `spans` of given and sampled ones, the others alone."""
    cut = tuple(cut_spans(spans, min(stop, known)))
    return extended(cut, max(0, stop - known), given=False)


def testimony(seat: Seat, side: str, first: int, stop: int, seen: str) -> WitnessAnswer:
    """What a seat can show of positions [first, stop): "marks" of its inputs, whether they "match" those of which
    `seen` is the digest, the newest inputs themselves ("in"), what it handed on ("out"), the "token" that it drew for
    `first`, or its "place": units, neighbours ("": the asker), and in which spans positions up to `stop` were given
    and sampled. Nulls for what is there no more.
    """
    match side:
        case "place":
            opening = seat.opening
            return WitnessAnswer(
                units=seat.run,
                before=seat.upstream if opening.stage else "",
                after=seat.downstream or "",
                spans=spans_up_to(opening.spans, opening.prompt_tokens, stop),
            )
        case "token":
            known = seat.sampled.get(first)
            return WitnessAnswer(token=known[0] if known is not None else None)
        case "marks":
            marks = seat.evidence.marked(first, stop)
            return WitnessAnswer(marks=b"".join(marks).hex() if marks is not None else None)
        case "match":
            marks = seat.evidence.marked(0, stop) if not first else None
            return WitnessAnswer(same=digest_of(marks) == seen if marks is not None else None)
        case "in" | "out":
            return rows_answer(span_of(seat.log if side == "out" else seat.evidence.newest, first, stop))
        case _:
            raise BadCommand("witness: expected place, marks, match, in, out, token or tokens")


class Judge:
    """`own(asker, body)` is this peer's testimony. Checks come one after the other; `again` computes."""

    def __init__(
        self,
        links: PeerLinks,
        stage: StageHost,
        model: LocalModel,
        again: Recomputing,
        own: Callable[[str, WitnessRequest], WitnessAnswer],
    ) -> None:
        self._links = links
        self._stage = stage
        self._model = model
        self._own = own
        self._turn = asyncio.Lock()
        self.again = again
        self.kept = 0  # checks of what this peer had computed already, as a shadow
        self.worst = 0.0  # the largest distance that counted as the same

    async def compare(self, asker: str, place: Place) -> CheckVerdict:
        """Computes the place again. Raises PeerError, PlannerError or TimeoutError where that cannot be done."""
        async with self._turn:
            return await self._compare(asker, place)

    async def _compare(self, asker: str, place: Place) -> CheckVerdict:
        stop = place.position + 1
        marks = None
        if not place.keeps_ids:
            marks = await self._of(place.peer, asker, place, place.stage, "marks", 0, stop)
            if marks is None:
                return "unable"
        theirs = await self._said(place.peer, asker, _asking(place.session, place.stage, "place", 0, stop))
        known = WitnessAnswer(units=place.units, before=place.before, after=place.after, spans=place.spans)
        if theirs != known:
            return "disputed"  # about what was to be computed at all
        if (kept := await self._kept(asker, place, marks)) is not None:
            return await self._compare_rows(
                asker, place, kept, self.again.served_most(place.peer, place.units)
            )
        inputs = await self._inputs(asker, place, stop)
        if inputs is None or len(inputs) != stop:
            return "unable"
        agreed = await self._agreed(asker, place, marks, await asyncio.to_thread(marks_of, tensor_of(inputs)))
        if not agreed:  # about what went from the peer before to this one
            return "unable" if agreed is None else "disputed"
        means = await self.again.means(place.units, place.peer)
        if not (place.after or place.pinned):
            return await self._compare_tokens(asker, place, inputs, means)
        rows = await self.again.rows(means, inputs, place.spans)
        return await self._compare_rows(asker, place, lambda at: rows[at], means.most)

    async def _agreed(
        self, asker: str, place: Place, marks: list[bytes] | None, mine: list[bytes] | None
    ) -> bool | None:
        """Whether the peer in question, which said `marks`, got the inputs with the marks `mine`; None: nobody knows
        any more. Of inputs that tell tokens it says no marks, but whether all are the same.
        """
        if mine is None:
            return None
        if not place.keeps_ids:
            return None if marks is None else first_other(marks, mine) is None
        asks = _asking(place.session, place.stage, "match", 0, place.position + 1, digest_of(mine))
        return (await self._said(place.peer, asker, asks)).same

    async def _kept(
        self, asker: str, place: Place, marks: list[bytes] | None
    ) -> Callable[[int], Floats | None] | None:
        """Where this peer shadows the stage, as the peer in question computes, it has the rows already, from the same
        inputs: nothing is computed again.
        """
        seat, stop = self._stage.core.seat_at(place.session, place.stage), place.position + 1
        if seat is None or seat.serves or seat.computed < stop or not (place.after or place.pinned):
            return None
        own = testimony(seat, "place", 0, stop, "").spans
        if seat.run != place.units or own != place.spans:
            return None
        if self.again.served_most(place.peer, place.units) > SAME:
            return None
        if span_of(seat.log, place.position, stop) is None:
            return None
        if not await self._agreed(asker, place, marks, seat.evidence.marked(0, stop)):
            return None

        def row(at: int) -> Floats | None:
            found = span_of(seat.log, at, at + 1)
            return found[0] if found is not None else None

        self.kept += 1
        return row

    async def _compare_rows(
        self, asker: str, place: Place, row_at: Callable[[int], Floats | None], most: float
    ) -> CheckVerdict:
        """The row of the position, and that of another one before it where both neighbours still tell the same."""
        for at in (place.position, *([place.also] if place.also >= 0 else [])):
            after = place.after or asker
            side: WitnessSide = "in" if place.after else "back"
            seen = await self._of(after, asker, place, place.stage + 1, side, at, at + 1)
            told = await self._of(place.peer, asker, place, place.stage, "out", at, at + 1)
            row = row_at(at)
            if row is None or seen is None or (told is None and at != place.position):
                if at == place.position:
                    return "unable"
                continue
            gap = distance(seen[0], row)
            if gap <= most:
                self.worst = max(self.worst, gap)
            elif told is not None and told[0].tobytes() == seen[0].tobytes():
                return "differs"
            elif at == place.position:
                return "unable" if told is None else "disputed"
        return "same"

    async def _compare_tokens(self, asker: str, place: Place, inputs: Any, means: Means) -> CheckVerdict:
        """A last stage hands on tokens alone: each must be one that these settings draw from the logits. Those before
        that of the position are looked at as well, as far as this peer says that it drew them: slight errors move few.
        """
        try:
            sampling = Sampling.from_wire(list(place.sampling))
        except BadSampling:
            return "unable"
        first = max(
            0, place.position - min(place.sampled, MOST_TOKENS - 1)
        )  # logits of this one draw the next token
        start = 0 if needs_history(sampling) else first + 1
        tokens: Any = [place.token]
        if start <= place.position:
            before = await self._of(asker, asker, place, 0, "tokens", start, place.position + 1)
            if before is None:
                return "unable"
            tokens = [*before, place.token]
        logits = await self.again.logits(means, inputs, place.spans, first)
        for at in range(place.position, first - 1, -1):
            known = tokens[: at + 1] if start == 0 else ()
            drawn = place.sampled - (place.position - at)
            answer = known[len(known) - drawn :] if drawn and known else ()
            token = tokens[at + 1 - start]
            if fits(
                logits[at - first],
                token,
                sampling,
                at + 1,
                known,
                answer,
                most=means.most,
                repeated=means.repeated,
            ):
                continue
            told = await self._of(place.peer, asker, place, place.stage, "token", at + 1, at + 2)
            if told == token:
                return "differs"
            if at == place.position:
                return "unable" if told is None else "disputed"
        return "same"

    # --- what others say

    async def _inputs(self, asker: str, place: Place, stop: int) -> Any:
        """What the peer before handed on for positions [0, stop), in pages; of a first stage the tokens, or what the
        asker sent in their place.
        """
        if not place.before and not place.pinned:
            tokens = await self._of(asker, asker, place, 0, "tokens", 0, stop)
            return None if tokens is None else np.asarray(tokens, dtype=np.int32)
        manifest = self._model.manifest
        page = max(1, PAGE_BYTES // (4 * manifest.hidden)) if manifest is not None else 1
        parts = []
        for first in range(0, stop, page):
            last = min(first + page, stop)
            before, stage = (place.before, place.stage - 1) if place.before else (asker, 0)
            side: WitnessSide = "out" if place.before else "sent"
            part = await self._of(before, asker, place, stage, side, first, last)
            if part is None:
                return None
            parts.append(part)
        return np.concatenate(parts)

    async def _of(
        self, peer: str, asker: str, place: Place, stage: int, side: WitnessSide, first: int, stop: int
    ) -> Any:
        """A peer's testimony: rows (float32), marks, tokens or a token; None where it has them no more."""
        said = await self._said(peer, asker, _asking(place.session, stage, side, first, stop))
        return _checked(said, side, stop - first)

    async def _said(self, peer: str, asker: str, asks: WitnessRequest) -> WitnessAnswer:
        return self._own(peer, asks) if peer == self._links.me else await _witnessed(self._links, peer, asks)

    async def close(self) -> None:
        """Gives back what was loaded."""
        await self.again.close()


async def testimony_of(
    links: PeerLinks, peer: str, session: bytes, stage: int, side: WitnessSide, first: int, stop: int
) -> Any:
    """What another peer says of positions [first, stop), as Judge wants it. Raises PeerError or TimeoutError."""
    said = await _witnessed(links, peer, _asking(session, stage, side, first, stop))
    return _checked(said, side, stop - first)


async def _witnessed(links: PeerLinks, peer: str, asks: WitnessRequest) -> WitnessAnswer:
    return await links.ask(peer, WITNESS, asks, CALL_S)


def _asking(
    session: bytes, stage: int, side: WitnessSide, first: int, stop: int, seen: str = ""
) -> WitnessRequest:
    return WitnessRequest(session.hex(), stage, side, first, stop, seen)


def _checked(said: WitnessAnswer, side: str, count: int) -> Any:
    try:
        return _read(said, side, count)
    except (ValueError, TypeError) as error:
        raise BadCommand(f"witness: expected {side} of {count} positions") from error


def _read(said: WitnessAnswer, side: str, count: int) -> Any:
    match side:
        case "marks":
            marks = None if said.marks is None else bytes.fromhex(said.marks)
            return marks and [marks[at : at + MARK_BYTES] for at in range(0, len(marks), MARK_BYTES)]
        case "tokens":
            return said.tokens
        case "token":
            return said.token
        case _:
            if said.rows is None:
                return None
            return np.frombuffer(base64.b64decode(said.rows), dtype=np.float32).reshape(count, -1)
