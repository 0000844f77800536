"""The models of a mesh, for people: which one is asked in words, and where offered ones run, or why nowhere."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from peer.errors import BadCommand
from peer.member.peer_options import bytes_text
from peer.state.display_names import name_of, named, plain
from peer.state.mesh_state import MeshState
from peer.state.readiness import NOTHING, why_no_words
from planner.model.store import PREFIX_DIGITS


def check_asked(state: MeshState, asked: str | None) -> None:
    """Raises BadCommand unless the model that was `asked` (None: that of the mesh) answers in words. A model goes by
    its name in this mesh, or by its id or the beginning of that.
    """
    own = state.model
    if own is not None and (asked is None or _is(asked, own.name, own.model)):
        return
    if asked is None:
        raise BadCommand(why_no_words(state))
    for name, offer in sorted(state.offers.items()):
        if _is(asked, name, offer.model):
            instead = f"; {plain(own.name)} answers in words here" if own is not None else ""
            raise BadCommand(
                f"{name} computes outputs of inputs and answers no questions: shoal run LINK {name} --input FILE "
                f"asks it{instead}"
            )
    raise BadCommand(f"this mesh serves no model {plain(asked)!r:.80}: {served_line(state)}")


def served_line(state: MeshState) -> str:
    """What the mesh serves, in the middle of a sentence."""
    answers = f"{plain(state.model.name)} answers in words" if state.model is not None else ""
    runs = f"shoal run asks {', '.join(sorted(state.offers))}" if state.offers else ""
    return ", and ".join(filter(None, (answers, runs))) or NOTHING


def _is(asked: str, name: str, model: str) -> bool:
    return asked == name or (len(asked) >= PREFIX_DIGITS and model.startswith(asked))


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
