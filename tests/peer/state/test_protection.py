"""Levels are presets that only rise; settings that nobody can keep to are refused by name."""

from __future__ import annotations

import argparse
from dataclasses import replace
from itertools import pairwise

import pytest

from peer.errors import BadCommand
from peer.member.peer_options import redundancy, unit_names
from peer.state.generated.commands import Protection
from peer.state.protection import LEVELS, PRESETS, SHADOWS, STANDARD, check_protection, chosen, level_of


def test_levels_rise() -> None:
    assert tuple(PRESETS) == LEVELS
    for lower, higher in pairwise(PRESETS.values()):
        assert lower.redundancy_milli < higher.redundancy_milli
        assert SHADOWS.index(lower.shadow) <= SHADOWS.index(higher.shadow)
        assert lower.log_total_bytes <= higher.log_total_bytes
        assert lower.spare <= higher.spare


def test_what_nobody_chose_is_the_level_standard() -> None:
    assert Protection() == STANDARD == PRESETS["standard"]
    assert [level_of(preset) for preset in PRESETS.values()] == list(LEVELS)
    assert level_of(replace(STANDARD, together=False)) is None


def test_each_setting_can_be_given_alone() -> None:
    assert [chosen(level) for level in LEVELS] == list(PRESETS.values())
    assert chosen("high", redundancy_milli=1500) == replace(
        PRESETS["high"], redundancy_milli=1500, spare=False
    )
    assert chosen("basic", None, "shadow", "parallel", ("head",)) == replace(
        PRESETS["basic"], shadow="shadow", strategy="parallel", priority=("head",)
    )


@pytest.mark.parametrize(
    ("typed", "milli"), [("1", 1000), ("1.5", 1500), ("2.0", 2000), ("8", 8000), ("1.2345", 1234)]
)
def test_copies_as_people_type_them(typed: str, milli: int) -> None:
    assert redundancy(typed) == milli


@pytest.mark.parametrize("typed", ["", "0.9", "8.1", "two", "nan", "inf", "-1", "1e400"])
def test_copies_that_make_no_sense_are_refused(typed: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError, match=r"half of the stages doubled"):
        redundancy(typed)


def test_units_as_people_type_them() -> None:
    assert unit_names("head, embed,") == ("head", "embed")
    with pytest.raises(argparse.ArgumentTypeError, match="embed,head"):
        unit_names(" ,")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"redundancy_milli": 999}, "expected 1 to 8 copies, got 0.999"),
        ({"redundancy_milli": 8001}, "expected 1 to 8 copies, got 8.001"),
        ({"priority": ("attn.7",)}, "the model has no unit 'attn.7'"),
        ({"priority": ("head",) * 65}, "at most 64 units"),
        ({"log_session_bytes": 2, "log_total_bytes": 1}, "no more bytes for a session"),
    ],
)
def test_settings_that_make_no_sense_are_refused(change: dict[str, object], says: str) -> None:
    check_protection(STANDARD, ("embed", "head"))
    with pytest.raises(BadCommand, match=says):
        check_protection(replace(STANDARD, **change), ("embed", "head"))  # type: ignore[arg-type]
