"""Which model of a mesh a person asks in words, and what is said where that one does not answer."""

from __future__ import annotations

from peer.errors import BadCommand
from peer.state.display_names import plain
from peer.state.mesh_state import MeshState
from planner.model.store import PREFIX_DIGITS


def check_asked(state: MeshState, asked: str | None) -> None:
    """Raises BadCommand unless the model that was `asked` (None: that of the mesh) answers in words. A model goes by
    its name in this mesh, or by its id or the beginning of that.
    """
    own = state.model
    if own is not None and (asked is None or _is(asked, own.name, own.model)):
        return
    if asked is None:
        raise BadCommand(f"no model of this mesh answers in words: {served_line(state)}")
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
    return ", and ".join(filter(None, (answers, runs))) or "nothing is offered yet, which shoal offer does"


def _is(asked: str, name: str, model: str) -> bool:
    return asked == name or (len(asked) >= PREFIX_DIGITS and model.startswith(asked))
