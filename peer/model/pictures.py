"""Pictures as a model takes them: read, resized and normalized in a process of its own, within bounds.

Edge. A picture comes from a stranger and the graph that prepares it from a model file: neither is read in this process.
Bytes are counted before anything is decoded, pixels by the picture's head before they are.
"""

from __future__ import annotations

import io
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from peer.errors import BadPicture, MeshFull
from peer.model.picture_parts import MAX_PIXELS, PICTURE, check_bytes, check_count, check_size, from_data_url
from peer.session.evidence import Floats
from planner.errors import JobError, JobTooLarge, JobTooLong
from planner.jobs.jobs import Budget, Jobs

FORMATS: Final = ("PNG", "JPEG", "WEBP", "GIF", "BMP")
BUDGET: Final = Budget(cpu_s=20.0, memory_bytes=1 << 30)
AGAIN_S: Final = 5.0  # told to whoever finds too many waiting


class PictureJobs:
    """Prepares pictures. For one event loop."""

    def __init__(self) -> None:
        self._jobs = Jobs(load, budget=BUDGET, quick_cpu_s=BUDGET.cpu_s)

    async def pixels(self, file: bytes, graph: bytes) -> Floats:
        """What `graph` (planner.model.graph_manifest) makes of the picture in `file`: float32 (1, 3, side, side).

        Raises BadPicture, MeshFull.
        """
        check_bytes(len(file))
        try:
            return await self._jobs.run(prepared, file, graph)
        except (JobTooLong, JobTooLarge) as error:
            raise BadPicture(f"this picture cannot be read: {error}; take a smaller one") from error
        except JobError as error:
            raise MeshFull(f"this picture cannot be read now: {error}", AGAIN_S) from error

    async def close(self) -> None:
        """Ends the process that jobs come from."""
        await self._jobs.close()


def file_bytes(picture: str | Path | bytes) -> bytes:
    """The bytes of a picture file. Raises BadPicture for one that cannot be read."""
    if isinstance(picture, bytes):
        return picture
    try:
        check_bytes(Path(picture).stat().st_size)
        return Path(picture).read_bytes()
    except OSError as error:
        raise BadPicture(f"the picture {str(picture)[:200]} cannot be read: {error.strerror}") from None


def apart(turns: Sequence[Mapping[str, Any]]) -> tuple[list[Mapping[str, Any]], list[bytes]]:
    """The turns as chat templates read them, and the files of their pictures in order.

    A picture is a part of a content, {"type": "image", "image": file}, where `file` is a path or bytes, or as OpenAI's
    API has it. Raises BadPicture.
    """
    found: list[bytes] = []
    made: list[Mapping[str, Any]] = []
    for turn in turns:
        content = turn.get("content")
        if not isinstance(content, list | tuple):
            made.append(turn)
            continue
        parts: list[Mapping[str, Any]] = []
        for part in content:
            file = _file_of(part)
            if file is not None:
                found.append(file)
            parts.append({"type": PICTURE} if file is not None else _words(part))
        made.append({**turn, "content": parts})
    check_count(found)
    if not found:  # templates of models that see nothing read text
        return [{**turn, "content": words_of(turn.get("content"))} for turn in made], found
    return made, found


def words_of(content: Any) -> Any:
    """The text of a content without pictures."""
    return content if not isinstance(content, list) else "".join(part["text"] for part in content)


def _words(part: object) -> dict[str, str]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str):
        return {"type": "text", "text": part["text"]}
    raise BadPicture(
        'a part of a message is text, {"type": "text", ...}, or {"type": "image", "image": file}'
    )


def _file_of(part: object) -> bytes | None:
    """The file of a part that is a picture."""
    match part:
        case {"type": "image", "image": str() | bytes() | Path() as file}:
            return file_bytes(file)
        case {"type": "image_url", "image_url": {"url": str(url)}}:
            return from_data_url(url)
        case _:
            return None


def load() -> None:
    """What all jobs need in memory."""
    from PIL import Image

    import planner.model.onnxruntime_import  # noqa: F401

    Image.init()


def prepared(_: None, file: bytes, graph: bytes) -> Floats:
    """In the process of a job. Raises BadPicture."""
    from planner.model.onnxruntime_import import ort

    picture = read_picture(file)
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.log_severity_level = 3
    try:
        session = ort.InferenceSession(graph, options, ["CPUExecutionProvider"])
        (found,) = session.run(["pixels"], {"picture": picture})
    except Exception as error:  # of onnxruntime's own kinds, which derive from nothing in common
        raise BadPicture(f"the model's own steps fail on this picture: {str(error)[:200]}") from None
    if found.dtype != np.float32 or not np.isfinite(found).all():
        raise BadPicture("the model's own steps make no finite numbers of this picture")
    return np.asarray(found)


def read_picture(file: bytes) -> npt.NDArray[np.uint8]:
    """The colours of a picture file, uint8 (height, width, 3), the way up that it says; of a film its first frame.
    Raises BadPicture.
    """
    from PIL import Image, ImageOps

    check_bytes(len(file))
    try:
        with (
            warnings.catch_warnings(action="ignore"),
            Image.open(io.BytesIO(file), formats=FORMATS) as opened,
        ):
            check_size(*opened.size)
            turned: Any = ImageOps.exif_transpose(opened)
            return np.asarray(turned.convert("RGB"), np.uint8)
    except BadPicture:
        raise
    except Image.DecompressionBombError:
        most = MAX_PIXELS // 1_000_000
        raise BadPicture(
            f"at most {most} million pixels expected, got far more: take a smaller picture"
        ) from None
    except Exception as error:  # Pillow raises bare and own kinds for damaged files
        why = "it is none of them" if type(error).__name__ == "UnidentifiedImageError" else str(error)[:160]
        raise BadPicture(
            f"a picture ({', '.join(FORMATS)}) expected, and this cannot be read: {why}"
        ) from None
