"""Components of a model by the paths of its values."""

from __future__ import annotations

import pytest

from planner.importers.onnx.components import components, named_parts


@pytest.mark.parametrize(
    ("units", "expected"),
    [
        ([["/encoder/a/X"], ["/decoder/a/X"]], ["encoder", "decoder"]),
        ([["/model/encoder/a/X"], ["/model/decoder/a/X"]], ["encoder", "decoder"]),
        ([["/encoder/X", "y"], ["y"], ["/decoder/X"]], ["encoder", "model", "decoder"]),
        ([["/a/X", "/b/X", "/b/Y"], ["/a/X"]], ["b", "a"]),
        ([["/a/X"], ["/a/Y"]], ["model", "model"]),
        ([["x"], ["y"]], ["model", "model"]),
        ([["/X"], ["/Y"]], ["model", "model"]),
        ([[f"/layer{n}/X"] for n in range(8)], [f"layer{n}" for n in range(8)]),
        ([[f"/layer{n}/X"] for n in range(9)], ["model"] * 9),
        ([["/a b/X"], ["/" + "c" * 65 + "/X"], ["/../X"], ["/ä/X"]], ["model"] * 4),
        ([["/a//X"], ["/b/X"]], ["model", "model"]),
        ([[], ["/a/X"], ["/b/X"]], ["model", "a", "b"]),
    ],
)
def test_components_are_the_first_modules_that_differ(units: list[list[str]], expected: list[str]) -> None:
    assert components([[(name, 1.0) for name in unit] for unit in units]) == expected


def test_a_unit_is_of_the_component_of_most_of_its_work() -> None:
    assert components([[("/a/X", 1.0), ("/a/Y", 1.0), ("/b/X", 3.0), ("y", 99.0)], [("/a/X", 0.0)]]) == [
        "b",
        "a",
    ]


def test_parts_stand_after_those_that_they_need() -> None:
    """Also where a part's last step comes late, as one that is left over for another part does."""
    steps = [
        ((), ("/a/0",)),
        (("/a/0",), ("/b/0",)),
        (("/b/0",), ("/c/0",)),
        (("/a/0",), ("/a/1",)),
        (("/c/0", "/a/1"), ("sum",)),
    ]
    assert named_parts(steps) == [[0, 3], [1], [2, 4]]
    assert named_parts([*steps, (("sum",), ("/a/2",))]) is None
