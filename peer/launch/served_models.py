"""The models of a mesh, for people: which one is asked in words, and where offered ones run, or why nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peer.errors import BadCommand
from peer.member.byte_sizes import bytes_text
from peer.state.decoder_sight import seen_as
from peer.state.display_names import name_of, named, plain
from peer.state.generated.commands import PlanStage
from peer.state.mesh_state import MeshState
from peer.state.plan_record import team_of
from peer.state.readiness import NOTHING, why_no_words
from planner.model.store import PREFIX_DIGITS


def asked_model(state: MeshState, asked: str | None) -> str | None:
    """The name of the further model that was `asked`; None where that is the mesh's own. Without a name that is asked,
    or the only further one of a mesh without. A model goes by its name in this mesh, or by its id or the beginning of
    that. Raises BadCommand unless it answers in words.
    """
    own = state.model
    if own is not None and (asked is None or _is(asked, own.name, own.model)):
        return None
    if asked is None:
        if len(state.decoders) == 1:
            return next(iter(state.decoders))
        if state.decoders:
            raise BadCommand(f"say which model is asked, with --model: {served_line(state)}")
        raise BadCommand(why_no_words(state))
    for name, decoder in sorted(state.decoders.items()):
        if _is(asked, name, decoder.model):
            return name
    for name, offer in sorted(state.offers.items()):
        if _is(asked, name, offer.model):
            words = ", ".join(_in_words(state))
            instead = f"; {words} {'answer' if ', ' in words else 'answers'} in words here" if words else ""
            raise BadCommand(
                f"{name} computes outputs of inputs and answers no questions: shoal run LINK {name} --input FILE "
                f"asks it{instead}"
            )
    raise BadCommand(f"this mesh serves no model {plain(asked)!r:.80}: {served_line(state)}")


def _in_words(state: MeshState) -> list[str]:
    own = [plain(state.model.name)] if state.model is not None else []
    return [*own, *sorted(state.decoders)]


def served_line(state: MeshState) -> str:
    """What the mesh serves, in the middle of a sentence."""
    words = _in_words(state)
    answers = f"{', '.join(words)} {'answers' if len(words) == 1 else 'answer'} in words" if words else ""
    runs = f"shoal run asks {', '.join(sorted(state.offers))}" if state.offers else ""
    return ", and ".join(filter(None, (answers, runs))) or NOTHING


def _is(asked: str, name: str, model: str) -> bool:
    return asked == name or (len(asked) >= PREFIX_DIGITS and model.startswith(asked))


def decoders_shown(state: MeshState) -> list[dict[str, Any]]:
    """The further models that answer in words as plain data, by name."""
    return [decoder_shown(state, name) for name in sorted(state.decoders)]


def decoder_shown(state: MeshState, name: str) -> dict[str, Any]:
    """One of them as plain data."""
    found, seen = state.decoders[name], seen_as(state, name)
    plan = found.plan or found.proposed
    serving = seen.serving() is not None
    return {
        "name": name,
        "model_id": found.model,
        "units": found.units,
        "context": found.context,
        "sessions": found.sessions,
        "serving": serving,
        "version": plan.version if plan is not None else 0,
        "stages": [
            {
                "first": stage.first,
                "stop": stage.stop,
                "primary": stage.primary,
                "standbys": list(stage.standbys),
                "bytes": stage.weight_bytes + stage.kv_bytes,
                "held": [
                    peer
                    for peer in (stage.primary, *stage.standbys)
                    if (stage.first, stage.stop) in found.held.get(peer, ())
                ],
            }
            for stage in (plan.stages if plan is not None else ())
        ],
        "predicted_ms_per_token": plan.predicted_token_us / 1000 if plan is not None else 0,
        "predicted_tokens_per_s": plan.predicted_rate_milli / 1000 if plan is not None else 0,
        "refused": "" if serving else named(found.refused, state.members),
        "why": [named(line, state.members) for line in (plan.why if plan is not None else ())],
    }


def decoder_line(shown: dict[str, Any], called: Mapping[str, str]) -> str:
    """Where a further model that answers in words runs, for people; why nowhere where that is so."""
    name = shown["name"]
    if shown["refused"]:
        return f"{name} answers in words, but runs nowhere: {shown['refused']}"
    if not shown["stages"]:
        return f"{name} answers in words, but has no plan yet"
    stages = ", ".join(_stage_line(stage, called) for stage in shown["stages"])
    more = "" if shown["serving"] else "; its peers are loading"
    return (
        f"{name} answers in words, too, {shown['sessions']} conversations of {shown['context']} tokens: {stages}; "
        f"{shown['predicted_ms_per_token']:.1f} ms a token, {shown['predicted_tokens_per_s']:.0f} tokens/s{more}"
    )


def offers_shown(state: MeshState) -> list[dict[str, Any]]:
    """The offers as plain data, by name."""
    return [offer_shown(state, name) for name in sorted(state.offers)]


def offer_shown(state: MeshState, name: str) -> dict[str, Any]:
    """One offer as plain data."""
    found = state.offers[name]
    return {
        "name": name,
        "model_id": found.model,
        "version": found.version,
        "stages": [
            {
                "first": stage.first,
                "stop": stage.stop,
                "primary": stage.primary,
                "standbys": list(stage.standbys),
                "bytes": stage.bytes,
            }
            for stage in found.stages
        ],
        "predicted_ms": found.latency_us / 1000,
        "predicted_runs_per_s": found.rate_milli / 1000,
        "why": [named(line, state.members) for line in found.why],
    }


def offer_line(name: str, shown: dict[str, Any], called: Mapping[str, str]) -> str:
    """Where an offered model runs, for people; why nowhere where that is so."""
    if not shown["stages"]:
        why = shown["why"][0] if shown["why"] else "the mesh has found no place for it yet"
        return f"offers {name}, which runs nowhere: {why}"
    stages = ", ".join(_stage_line(stage, called) for stage in shown["stages"])
    return f"offers {name}: {stages}; {shown['predicted_ms']:.1f} ms a run, {shown['predicted_runs_per_s']:.1f} runs/s"


def _stage_line(stage: dict[str, Any], called: Mapping[str, str]) -> str:
    last = stage["stop"] - 1
    units = f"unit {last}" if stage["first"] == last else f"units {stage['first']}-{last}"
    behind = ", ".join(name_of(peer, called) for peer in stage["standbys"])
    standby = f", standby {behind}" if behind else ""
    return f"{name_of(stage['primary'], called)} runs {units} ({bytes_text(stage['bytes'])}{standby})"


def holding_words(stage: PlanStage, called: dict[str, str]) -> str:
    """Who holds which units: "ada holds units 0-3", or, of a team, "ada and eva hold units 0-3 together"."""
    *others, last = (name_of(peer, called) for peer in team_of(stage))
    units = f"units {stage.first}-{stage.stop - 1}"
    return f"{', '.join(others)} and {last} hold {units} together" if others else f"{last} holds {units}"
