"""`shoal plan --placement` and `--compare`: plans by a chosen algorithm, and all algorithms beside one another."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, Final

from planner.adapt.serving_plan import covered, default_wish
from planner.cost.objectives import Wish
from planner.cost.wording import ms
from planner.reports.plan_text import table
from planner.solvers.choices.settings import PLACEMENTS, Placement, Settings
from planner.solvers.choices.table import Placed, behind, placed_by, plan_of
from planner.types import Infeasible, Plan, PlanRequest

HEADINGS: Final = ("placement", "took", "stages", "decode", "tokens/s", "fullest", "behind", "", "how")


@dataclass(frozen=True, slots=True)
class Comparison:
    """What each algorithm found, and in how many seconds."""

    wish: Wish
    made: tuple[Placed, ...]
    took_s: tuple[float, ...]

    @property
    def lines(self) -> tuple[str, ...]:
        """For people."""
        against, shares, kind = behind(self.wish, self.made)
        rows = [HEADINGS]
        for placed, took, share in zip(self.made, self.took_s, shares, strict=True):
            found = placed.found
            figures = ("-", "-", "-", "-", "-")
            if found is not None and share is not None:
                figures = (
                    str(found.stages),
                    ms(found.decode_s),
                    f"{found.tokens_per_s:.1f}",
                    f"{float(found.used):.0%}",
                    f"{share:.1%}",
                )
            proof = "proven" if placed.proven else ""
            rows.append((placed.by, ms(took), *figures, proof, placed.why or placed.detail))
        said = {
            "optimum": "behind: how much worse than the proven optimum",
            "bound": "behind: how much above a bound that no plan beats",
            "best": "behind: how much worse than the best of these; nothing is proven",
        }
        goal = f"strategy {self.wish.strategy}, for {self.wish.goal}"
        return (goal, *table(rows), *(() if against is None else (said[kind],)))

    @property
    def fields(self) -> dict[str, Any]:
        """For programs."""
        against, shares, kind = behind(self.wish, self.made)
        rows = []
        for placed, took, share in zip(self.made, self.took_s, shares, strict=True):
            found = placed.found
            rows.append(
                {
                    "placement": placed.by,
                    "seconds": took,
                    "stages": [[stage.peer, stage.first, stage.stop] for stage in placed.stages],
                    "decode_s": None if found is None else found.decode_s,
                    "tokens_per_s": None if found is None else found.tokens_per_s,
                    "behind": share,
                    "proven": placed.proven,
                    "detail": placed.detail,
                    "why_not": placed.why,
                }
            )
        return {
            "goal": self.wish.goal,
            "strategy": self.wish.strategy,
            "against": kind,
            "against_figure": against,
            "placements": rows,
        }


def compared(request: PlanRequest, wish: Wish | None, settings: Settings) -> Comparison:
    """Runs every algorithm, one after the other. May take seconds. Raises RequestError."""
    wished = default_wish(request) if wish is None else wish
    made: list[Placed] = []
    took: list[float] = []
    for name in PLACEMENTS:
        begins = time.perf_counter()
        made.append(placed_by(name, request, wished, settings))
        took.append(time.perf_counter() - begins)
    return Comparison(wished, tuple(made), tuple(took))


def chosen(
    request: PlanRequest, wish: Wish | None, placement: Placement, settings: Settings
) -> Plan | Infeasible:
    """The plan of one algorithm, with who stands by. Raises RequestError."""
    wished = default_wish(request) if wish is None else wish
    found = plan_of(placed_by(placement, request, wished, settings), request, wished)
    return found if isinstance(found, Infeasible) else covered(request, found)
