"""How far a result may be from what a judge computes, by the class of what it computes with."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from peer.audit.recomputation import Recomputing, _Loaded
from peer.errors import CannotServe
from peer.session.evidence import ALIKE, SAME, SAME_CLASS
from peer.state.generated.commands import Member, PlanRecord, PlanStage, Profile

RUN = (2, 4)
VNNI = "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755"
AVX2 = "cpu/avx2/rows-1/0123456789abcdef"
PLAIN = "cpu/avx2/rows-2x2-plain/abcdef0123456789"
TAB = "wasm/simd128/wide/fedcba9876543210"


def member(peer: str, arithmetic: str, provider: str = "cpu") -> Member:
    profile = Profile(1 << 30, 0, {}, {}, {}, 1, provider, 1, arithmetic=arithmetic)
    return Member(peer, peer, True, "measured", profile)


class Judge(Recomputing):
    """Serves RUN, or not; loads units in a class that is given. No runtime is real: none is asked to compute."""

    def __init__(
        self,
        mine: str,
        theirs: Member,
        *,
        weights: str = "4bit",
        serves: bool = True,
        loads: str | None = None,
        plan: PlanRecord | None = None,
    ) -> None:
        units = SimpleNamespace(
            runtime=lambda run: "served" if run == RUN and serves else None,
            private={},
            room=SimpleNamespace(provider="cpu"),
        )
        members = {"me": member("me", mine), theirs.peer: theirs}
        view: Any = SimpleNamespace(me="me", state=SimpleNamespace(members=members, plan=plan, proposed=None))
        model: Any = SimpleNamespace(manifest=SimpleNamespace(weights=weights))
        super().__init__(view, cast(Any, SimpleNamespace(units=units)), model, lambda step: step.close())
        self._loads = loads
        self.loaded: list[bool] = []

    async def _load(self, run: tuple[int, int], *, exact: bool) -> _Loaded:
        self.loaded.append(exact)
        if self._loads is None:
            raise CannotServe("there is no memory for that")
        timer = SimpleNamespace(cancel=lambda: None)
        made = self._loaded[run, exact] = _Loaded(cast(Any, "loaded"), cast(Any, timer), self._loads)
        return made

    async def means_of(self, peer: str) -> tuple[object, float, bool, bool]:
        means = await self.means(RUN, peer)
        for loaded in self._loaded.values():
            loaded.timer.cancel()
        return means.runtime, means.most, means.in_order, means.repeated


@pytest.mark.parametrize(
    ("weights", "mine", "theirs", "most", "repeated"),
    [
        ("4bit", VNNI, VNNI, SAME_CLASS, True),
        ("4bit", VNNI, AVX2, ALIKE, False),
        ("f32", VNNI, AVX2, SAME, False),
        ("4bit", "", AVX2, SAME, True),  # as before there were classes
        ("4bit", VNNI, "", SAME, True),
        ("4bit", PLAIN, PLAIN, SAME_CLASS, True),
    ],
)
async def test_what_is_served_is_of_the_class_of_the_profile(
    weights: str, mine: str, theirs: str, most: float, repeated: bool
) -> None:
    judge = Judge(mine, member("p", theirs), weights=weights)
    assert await judge.means_of("p") == ("served", most, True, repeated)
    assert judge.served_most("p", RUN) == most
    assert not judge.loaded


@pytest.mark.parametrize(
    ("loads", "theirs", "most", "repeated"),
    [
        (VNNI, VNNI, SAME_CLASS, True),
        ("", VNNI, SAME, True),  # other threads than the profile's: its class says nothing of them
        (AVX2, VNNI, ALIKE, False),
    ],
)
async def test_what_is_loaded_for_a_check_is_of_a_class_of_its_own(
    loads: str, theirs: str, most: float, repeated: bool
) -> None:
    judge = Judge(VNNI, member("p", theirs), serves=False, loads=loads)
    assert await judge.means_of("p") == ("loaded", most, True, repeated)
    assert judge.loaded == [False]


async def test_weights_that_are_not_packed_are_loaded_in_the_class_of_those_who_serve_them() -> None:
    judge = Judge("", member("p", VNNI), weights="f32", serves=False, loads=VNNI)
    assert await judge.means_of("p") == ("loaded", SAME_CLASS, True, True)
    assert judge.loaded == [False]


async def test_of_a_process_that_does_not_round_units_are_loaded_so() -> None:
    judge = Judge(VNNI, member("p", PLAIN), loads=PLAIN)
    assert await judge.means_of("p") == ("loaded", SAME_CLASS, True, True)
    assert judge.loaded == [True]
    without = Judge(VNNI, member("p", PLAIN))
    assert await without.means_of("p") == ("served", ALIKE, False, False)


async def test_a_tab_has_no_order_to_repeat() -> None:
    judge = Judge(VNNI, member("p", TAB, "wasm"), loads=PLAIN)
    assert await judge.means_of("p") == ("loaded", SAME, False, False)
    assert judge.loaded == [True]
    assert judge.served_most("p", RUN) == ALIKE


@pytest.mark.parametrize(("weights", "most"), [("f32", SAME), ("8bit", ALIKE), ("4bit", ALIKE)])
async def test_a_team_adds_up_in_an_order_of_its_own(weights: str, most: float) -> None:
    plan = PlanRecord(3, (PlanStage(*RUN, "p", helpers=("q",), shares=(1, 1)),), 1, 1)
    judge = Judge(VNNI, member("p", VNNI), weights=weights, plan=plan)
    assert await judge.means_of("p") == ("served", most, True, False)
    assert judge.served_most("p", RUN) == most
    assert judge.served_most("p", (RUN[0], RUN[1] + 1)) == SAME_CLASS, "other units, which it computes alone"
