"""How many positions prepared pictures have: a model that takes all pictures in one form says it itself."""

from __future__ import annotations

import numpy as np

from peer.member.sight import Prepared
from peer.model.prompts import Prompt
from planner.model.manifest import Sight


def test_only_pictures_that_keep_their_form_have_a_grid() -> None:
    pixels = tuple(np.zeros((1, 3, high, 56), np.float32) for high in (28, 84))
    one_form, kept = (Sight("0" * 64, 3, 16, square=square) for square in (0, 28))
    assert Prepared(Prompt((1,)), one_form, "towers", None, pixels).grids == [(0, 0), (0, 0)]
    assert Prepared(Prompt((1,)), kept, "towers", None, pixels).grids == [(1, 2), (3, 2)]
