"""Picture files for meshes that see."""

from __future__ import annotations

import io
from typing import Any, Final

from PIL import Image

from tests.planner.importers.vision.checkpoints import picture_of


def png(pixels: Any) -> bytes:
    """The file of colours (height, width, 3)."""
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


PICTURE: Final = png(picture_of("llava"))
