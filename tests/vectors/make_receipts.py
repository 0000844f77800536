"""Writes receipts.json: what an asker acknowledges of its answers, and at what price, for both languages."""

from __future__ import annotations

import random
from typing import Any

from tracing import beside, shown, written

from peer.audit.receipts import Receipts, priced, unit_costs
from peer.state.fairness import Fairness
from peer.state.work_ledger import Ledger, tally
from peer.wire.generated.frames import Open

PATH = beside(__file__, "receipts.json")
SEED = 20261128
TRACES = 8
OPS = 60
RUNS = ((0, 2), (2, 5), (5, 6))
KINDS = ("embed", "attn", "ffn", "attn", "ffn", "head")
TABLES = ({"embed": 3, "attn": 700, "ffn": 1300}, {"attn": 500, "ffn": 9000, "head": 4100}, {"ffn": 1200})


PINNED = 0.2  # of turns, whose asker keeps its ends


def turn(rng: random.Random, session: bytes, number: int, answer: int, start: int) -> Open:
    route = tuple(rng.choices(("pa", "pb", "pc"), k=3))
    sampling = () if rng.random() < PINNED else (0,) * 8
    return Open(
        *(session, number, 1, route, 0, "me", start, start + 4, 50, sampling, (), 0, 0),
        *(answer, 0, 0, (), (), (), ()),
    )


def opened(receipts: Receipts, now: int, frame: Open) -> dict[str, Any]:
    receipts.opened(1000 + now, frame, RUNS)
    said = [frame.session, frame.answer, frame.start, frame.route, not frame.sampling]
    return {"do": "opened", "turn": shown(said)}


def trace(number: int) -> dict[str, Any]:
    rng = random.Random(SEED + number)
    receipts, ledger, ops = Receipts(), Ledger(), list[dict[str, Any]]()
    costs = unit_costs(KINDS, TABLES)
    at = {bytes([n]) * 16: [0, 0, 0] for n in range(3)}  # turn, answer, position
    for now in range(OPS):
        session = rng.choice(list(at))
        place = at[session]
        beside = session[:15] + b"\x07"  # to which its answer may move
        match rng.choice(
            ("opened", "opened again", "opened beside", *["token"] * 4, "token beside", "ended", "due")
        ):
            case "opened":
                place[0] += 1
                place[1], place[2] = place[0], rng.randrange(9)
                op = opened(receipts, now, turn(rng, session, *place))
            case "opened again":
                place[0] += 1
                op = opened(receipts, now, turn(rng, session, *place))
            case "opened beside":
                op = opened(receipts, now, turn(rng, beside, place[0] + 1, place[1], 0))
            case "token beside":
                place[2] += 1
                receipts.token(beside, place[2])
                op = {"do": "token", "session": beside.hex(), "position": place[2]}
            case "token":
                place[2] += rng.randint(1, 3)
                receipts.token(session, place[2])
                op = {"do": "token", "session": session.hex(), "position": place[2]}
            case "ended":
                receipts.ended(session)
                op = {"do": "ended", "session": session.hex()}
            case _:
                claims = receipts.due(ledger, Fairness())
                works = [priced(claim, "me", costs) for claim in claims]
                taken = tuple(work for work in works if rng.random() < 0.6)  # the others are lost on the way
                ledger, why = tally(ledger, taken)
                assert not any(why)
                op = {"do": "due", "works": shown(works), "taken": shown(taken)}
        ops.append({"now": 1000 + now, **op})
    return {"name": f"answers of seed {SEED + number}", "ops": ops}


def text() -> str:
    about = (
        "costs: of `kinds` of units, by what peers measured. traces: what happened to answers that `me` asks for, at "
        "`now` in ms; a turn is session, answer, start, route and whether its asker keeps its ends. At `due`, `works` "
        "is what is said then, with its price, and `taken` is what the ledger takes of it."
    )
    prices = [{"kinds": KINDS, "tables": TABLES, "costs": unit_costs(KINDS, TABLES)}]
    return written(about, {"costs": prices, "traces": [trace(number) for number in range(TRACES)]})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
