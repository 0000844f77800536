"""Decides what a page about a plan holds: figures, the chain, schedules, memory, links, other plans, and who may leave.

Pure: from a request and its answer to HTML that needs nothing else. Plans it compares with are made by the planner
itself, so a page of many peers takes as long as a few plans.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from html import escape
from typing import Final

from planner.cost import evaluator, schedules
from planner.cost.objectives import CHUNK_TOKENS, PROMPT_TOKENS
from planner.cost.wording import ms
from planner.reports.page_kit import figure, figures, key, listed, page, section, table
from planner.reports.plan_charts import Choice, Leaving, chain, front, leaving, memory, schedule, size
from planner.solvers.placement import plan
from planner.solvers.portfolio import Effort, Outcome, solve
from planner.types import Infeasible, Plan, PlanRequest, Stage

COMPARED_PEERS: Final = 10  # of a request: beyond that one plan takes seconds, and few others are made
MOST_CHOICES: Final = 9
MOST_REFUSED: Final = 6
EFFORT: Final = Effort(search=400_000)  # for plans to compare with: a fraction of a second
MOST_LINKED: Final = 12  # peers in the table of links


def plan_page(
    request: PlanRequest,
    answer: Plan | Infeasible,
    title: str = "Where the model runs",
    running: Sequence[str] = (),
    beside: str = "",
) -> str:
    """A page of HTML. `running`: lines about another plan that a mesh computes by meanwhile; `beside`: sections of
    planner.reports.graph_charts about other models. Raises RequestError when the plan is not one for this request.
    """
    shown = (
        _refused(request, answer, title)
        if isinstance(answer, Infeasible)
        else _planned(request, answer, title)
    )
    other = section("Running now", "The mesh computes by this plan, not by the one above.", listed(running))
    return page(title, shown + (other if running else "") + beside + _FOOT)


def _planned(request: PlanRequest, found: Plan, title: str) -> str:
    stages = found.stages
    numbers = evaluator.evaluate(request, stages)
    first_s = evaluator.prefill_s(request, stages, PROMPT_TOKENS, CHUNK_TOKENS)
    serving = len({name for stage in stages for name in stage.team})
    turns = f" in {len(stages)} stages" if len(stages) > serving else ""
    goal = "the fastest answer" if found.objective == "latency" else "the most tokens a second"
    body = f"<h1>{escape(title)}</h1>"
    body += (
        f'<p class="lead">{len(request.units)} units{turns} on {serving} of {len(request.peers)} peers, for {goal}; '
        f"{request.sessions} session{'s' * (request.sessions != 1)} of {request.context} tokens promised. "
        "All times are predictions from what the peers measured.</p>"
    )
    body += figures(
        (ms(found.decode_s), "a token, one session"),
        (f"{figure(found.tokens_per_s)} /s", "tokens, all sessions"),
        (f"{first_s:.2f} s" if first_s >= 1 else ms(first_s), f"to the first token after {PROMPT_TOKENS}"),
        (_slowest(numbers), "limits the rate"),
    )
    body += section("Why this plan", "", listed(found.why))
    body += section(
        "Stages",
        "Units in order, each stage on one peer or on a team. The filled part is its share of a token's time.",
        chain(request, stages),
    )
    body += _schedules(request, stages, numbers)
    body += section(
        "Memory",
        "What each peer lends, and what this plan puts there.",
        memory(request, stages),
        key(
            ("a", "weights"),
            ("striped", "KV of all promised sessions"),
            ("dotted", "standby"),
            ("ink", "the program"),
            ("no", "free"),
        ),
    )
    if len(request.peers) > 1:
        body += _others(request, found)
        body += _leaving(request, found)
        body += _links(request, stages)
    return body


_FOOT: Final = (
    "<footer>Times: a stage's computing, and half a round trip, software and transfer for each hop. "
    "Drawn by <code>shoal plan --html</code>.</footer>"
)


def _slowest(numbers: evaluator.Evaluation) -> str:
    if numbers.slowest == "round":
        return "the round"
    return numbers.slowest.split(" (")[0].replace("link ", "").replace("->", "→")


def _refused(request: PlanRequest, answer: Infeasible, title: str) -> str:
    body = f"<h1>{escape(title)}</h1>" + '<p class="lead">No plan exists for these peers.</p>'
    if answer.missing_bytes:
        body += figures((size(answer.missing_bytes), "of memory missing at least"))
    body += section("Why not", "", f"<p>{escape(answer.reason)}.</p>")
    if request.peers:
        body += section(
            "Memory",
            "What each peer lends.",
            memory(request, ()),
            key(("no", "lent")),
        )
    return body


def _schedules(request: PlanRequest, stages: Sequence[Stage], numbers: evaluator.Evaluation) -> str:
    bars = schedules.answers(request, stages)
    batches = len({bar.group for bar in bars})
    each = "one session" if numbers.rows == 1 else f"a batch of {numbers.rows} sessions"
    words = (
        f"Two tokens of every session. Each letter is {each}; thin lines are hops."
        if batches > 1
        else f"Two tokens of {each}; thin lines are hops."
    )
    prompt = schedules.chunks(request, stages, PROMPT_TOKENS, CHUNK_TOKENS)
    return section(
        "Answers running",
        words,
        schedule(stages, bars, "When each stage works on which answer"),
    ) + section(
        "A prompt coming in",
        f"{PROMPT_TOKENS} tokens in pieces of {CHUNK_TOKENS}: a stage works on one while the one before has the next.",
        schedule(stages, prompt, "When each stage works on which piece of a prompt"),
    )


def _others(request: PlanRequest, found: Plan) -> str:
    outcome = solve(request, None, EFFORT) if len(request.peers) <= COMPARED_PEERS else None
    choices = ranked(request, found, outcome)
    if len(choices) < 2:
        return ""
    rows = [
        (
            f"{count}. {choice.words}{' (chosen)' if choice.chosen else ''}: "
            + " → ".join(" + ".join(stage.team) for stage in choice.stages),
            ms(choice.decode_s),
            f"{figure(choice.tokens_per_s)} /s",
        )
        for count, choice in enumerate(choices, start=1)
    ]
    refused = (
        [(entry.plan, entry.reason) for entry in outcome.refused[:MOST_REFUSED]]
        if outcome is not None
        else []
    )
    return section(
        "Other plans",
        "Filled points are plans that no other one beats in both; the chosen one has a ring.",
        front(choices),
        table(("plan", "one session", "all sessions"), rows, frozenset({0})),
        "<p>Looked at and not taken:</p>" + table(("plan", "why not"), refused, frozenset({0, 1}))
        if refused
        else "",
    )


def ranked(request: PlanRequest, found: Plan, outcome: Outcome | None) -> list[Choice]:
    """The plan, and others worth a look, each marked when no other beats it in both figures; fastest first."""
    choices = [Choice("this plan", found.stages, found.decode_s, found.tokens_per_s, chosen=True)]

    def add(stages: tuple[Stage, ...], words: str) -> None:
        if (
            any(_same(stages, other.stages) for other in choices)
            or evaluator.refuse(request, stages) is not None
        ):
            return
        numbers = evaluator.evaluate(request, stages)
        choices.append(Choice(words, stages, numbers.decode_s, numbers.tokens_per_s))

    def add_best(asked: PlanRequest, words: str) -> None:
        answer = plan(asked)
        if isinstance(answer, Plan):
            add(answer.stages, words)

    add_best(replace(request, objective="latency"), "fastest for one")
    add_best(replace(request, objective="throughput"), "most for all")
    if outcome is not None:
        if outcome.knee is not None:
            add(outcome.knee.stages, "a bit of both")
        for option in outcome.front:
            add(option.stages, "between the two")
        for peer in sorted(request.peers, key=lambda peer: peer.peer):
            add_best(replace(request, peers=(peer,), objective="latency"), f"{peer.peer} alone")
        for name in dict.fromkeys(stage.peer for stage in found.stages):
            add_best(without(request, name), f"without {name}")
    marked = [
        replace(choice, on_front=not any(_beats(other, choice) for other in choices)) for choice in choices
    ]
    marked.sort(key=lambda choice: (choice.decode_s, -choice.tokens_per_s, choice.words))
    kept = [choice for choice in marked if choice.chosen or choice.on_front]
    rest = [choice for choice in marked if choice not in kept]
    return sorted([*kept, *rest[: max(0, MOST_CHOICES - len(kept))]], key=marked.index)


def _same(one: Sequence[Stage], other: Sequence[Stage]) -> bool:
    return [(s.first, s.stop, s.team) for s in one] == [(s.first, s.stop, s.team) for s in other]


def _beats(one: Choice, other: Choice) -> bool:
    """At least as good in both, and better in one."""
    no_worse = one.decode_s <= other.decode_s and one.tokens_per_s >= other.tokens_per_s
    return no_worse and (one.decode_s < other.decode_s or one.tokens_per_s > other.tokens_per_s)


def without(request: PlanRequest, name: str) -> PlanRequest:
    """The request when `name` is gone. An asker that is gone is followed by the first stage."""
    return replace(
        request,
        peers=tuple(peer for peer in request.peers if peer.peer != name),
        links=tuple(link for link in request.links if name not in (link.src, link.dst)),
        origin=None if request.origin == name else request.origin,
    )


def losses(request: PlanRequest, found: Plan) -> list[Leaving]:
    """What each peer's leaving would change, those that serve first."""
    held = evaluator.runs_by_peer(found.stages)
    names = dict.fromkeys([*(name for stage in found.stages for name in stage.team), *sorted(held)])
    rows = []
    for name in names:
        serves = [stage for stage in found.stages if name in stage.team]
        ready = bool(serves) and all(stage.standbys for stage in serves)
        if not serves:
            rows.append(Leaving(name, found.decode_s, 0, "only stands by: answers do not notice"))
            continue
        answer = plan(without(request, name))
        if isinstance(answer, Infeasible):
            short = f"; {size(answer.missing_bytes)} more would be needed" if answer.missing_bytes else ""
            rows.append(Leaving(name, None, 0, f"nothing could be served{short}"))
            continue
        moved = sum(
            request.units[at].weight_bytes
            for stage in answer.stages
            for at in range(stage.first, stage.stop)
            if not any(run[0] <= at < run[1] for run in held.get(stage.peer, ()))
        )
        taker = ", ".join(dict.fromkeys(stage.standbys[0] for stage in serves if stage.standbys))
        at_once = f"{taker} takes over at once; " if ready else "answers wait; "
        where = " → ".join(" + ".join(stage.team) for stage in answer.stages)
        move = f"then {where}, {size(moved)} to load" if moved else f"then {where}, nothing to load"
        rows.append(Leaving(name, answer.decode_s, moved, at_once + move))
    return rows


def _leaving(request: PlanRequest, found: Plan) -> str:
    if len(request.peers) > COMPARED_PEERS:
        return ""
    rows = losses(request, found)
    return section(
        "If a peer left",
        "The best plan of those who stay, against the present one. Longer is slower.",
        leaving(rows, found.decode_s),
    )


def _links(request: PlanRequest, stages: Sequence[Stage]) -> str:
    known = evaluator.link_table(request)
    order = dict.fromkeys([*(stage.peer for stage in stages), *sorted(peer.peer for peer in request.peers)])
    names = list(order)[:MOST_LINKED]
    if request.origin is not None and request.origin not in names:
        names.append(request.origin)
    route = [stage.peer for stage in stages]
    used = set(zip(route, [*route[1:], route[0]], strict=True))
    longest = max([link.rtt_s for link in known.values()], default=0.0) or 1.0
    head = "<tr><th>from \\ to</th>" + "".join(f"<th>{escape(name)}</th>" for name in names) + "</tr>"
    rows = ""
    for src in names:
        cells = ""
        for dst in names:
            link = known.get((src, dst))
            if src == dst:
                cells += "<td></td>"
            elif link is None:
                cells += "<td>none</td>"
            else:
                shade = round(45 * link.rtt_s / longest)
                mark = ' class="used"' if (src, dst) in used else ""
                cells += (
                    f'<td{mark} style="background:color-mix(in srgb, var(--b) {shade}%, transparent)">'
                    f"{ms(link.rtt_s / 2)}<br><small>{_rate(link.bytes_per_s)}</small></td>"
                )
        rows += f"<tr><th>{escape(src)}</th>{cells}</tr>"
    return section(
        "Links",
        "One-way delay and rate as measured; more colour is slower, outlined hops are used by the plan.",
        f'<div class="scroll"><table>{head}{rows}</table></div>',
    )


def _rate(bytes_per_s: float) -> str:
    megabits = bytes_per_s * 8 / 1e6
    return f"{megabits / 1000:.1f} Gbit/s" if megabits >= 1000 else f"{figure(megabits)} Mbit/s"
