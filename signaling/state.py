"""Decides what the server remembers over a restart: one small JSON file per mesh, written whole or not at
all, twice, and with a checksum.

Grants and revocations are checked by signature when they are read, so an altered file lets nobody in. A damaged file is
set aside whole, and its copy is used.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from planner.model.durable_files import free_name
from signaling.errors import CorruptState, IdentityError, InviteError, MessageError
from signaling.generated.messages import GRANT, REVOCATION
from signaling.invites import MAX_ADMITTED, MAX_GRANTS, Admissions
from signaling.keys import from_text, is_id, to_text
from signaling.messages import load_json

FORMAT = 1
SEAL = "sha256"  # of the other fields

log = logging.getLogger(__name__)


def encode_admissions(admissions: Admissions) -> str:
    """The JSON text of what is known about one mesh."""
    content = {
        "format": FORMAT,
        "mesh": admissions.mesh,
        "grants": [GRANT.write(g) for g in admissions.grants.values()],
        "revocations": [REVOCATION.write(r) for r in admissions.revocations.values()],
        "admitted": {to_text(key): list(peers) for key, peers in admissions.admitted.items()},
    }
    return _compact({**content, SEAL: _sum(content)})


def decode_admissions(text: str, mesh: str) -> Admissions:
    """Undo `encode_admissions`; CorruptState when the text breaks its rules or a signature does not hold."""
    try:
        raw = load_json(text)
        seal = raw.pop(SEAL, None)  # files of earlier versions have none
        if seal not in (None, _sum(raw)):
            raise CorruptState("it fails its checksum")
        if raw.get("format") != FORMAT or raw.get("mesh") != mesh:
            raise CorruptState(f"format {FORMAT} of mesh {mesh} expected")
        grants, revocations, admitted = raw.get("grants"), raw.get("revocations"), raw.get("admitted")
        if (
            not isinstance(grants, list)
            or not isinstance(revocations, list)
            or not isinstance(admitted, dict)
        ):
            raise CorruptState("lists of grants and revocations and an object of admitted peers expected")
        if max(len(grants), len(revocations)) > MAX_GRANTS:
            raise CorruptState(f"at most {MAX_GRANTS} grants and revocations expected")
        made = Admissions(mesh)
        for i, item in enumerate(grants):
            made.register(GRANT.read(item, f"grants[{i}]"))
        for i, item in enumerate(revocations):
            made.revoke(REVOCATION.read(item, f"revocations[{i}]"))
        for key, peers in admitted.items():
            if not isinstance(peers, list) or len(peers) > MAX_ADMITTED:
                raise CorruptState("a list of peer ids expected")
            if not all(isinstance(p, str) and is_id(p) for p in peers):
                raise CorruptState("peer ids expected")
            made.admitted[from_text(key)] = dict.fromkeys(peers)
    except (MessageError, IdentityError, InviteError, ValueError) as error:
        raise CorruptState(str(error)) from error
    return made


class StateFolder:
    """Where the server keeps what it must not forget."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self) -> list[Admissions]:
        """Everything that was kept, oldest first; CorruptState names the file."""
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            paths = [p for p in self._folder.iterdir() if p.suffix == ".json" and is_id(p.stem)]
            paths.sort(key=lambda p: (p.stat().st_mtime_ns, p.name))
            return [self._read(path) for path in paths]
        except OSError as error:
            raise CorruptState(f"the state folder {self._folder} cannot be read: {error}") from error

    def _read(self, path: Path) -> Admissions:
        try:
            return _decoded(path.read_bytes(), path.stem)
        except CorruptState as error:
            copy = _copy_of(path)
            try:
                data = copy.read_bytes() if copy.is_file() else b""
                found = _decoded(data, path.stem)
            except CorruptState:
                raise CorruptState(
                    f"{path} is damaged ({error}) and has no good copy: restore it, or delete it to forget it"
                ) from error
            aside = free_name(path)
            os.replace(path, aside)
            _write(path, data.decode())
            log.warning("%s is damaged (%s): it is kept as %s, and its copy is used", path, error, aside.name)
            return found

    def save(self, mesh: str, text: str) -> None:
        """Write one mesh: another name, flush, rename; then its copy likewise. OSError when the disk refuses; the old
        file then stays.
        """
        path = self._folder / f"{mesh}.json"
        for each in (path, _copy_of(path)):
            _write(each, text)

    def forget(self, mesh: str) -> None:
        """Removes the file of that mesh, if there is one."""
        path = self._folder / f"{mesh}.json"
        for each in (path, _copy_of(path)):
            each.unlink(missing_ok=True)


def _decoded(data: bytes, mesh: str) -> Admissions:
    try:
        return decode_admissions(data.decode(), mesh)
    except UnicodeDecodeError as error:
        raise CorruptState("not UTF-8") from error


def _copy_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-copy")


def _write(path: Path, text: str) -> None:
    draft = path.with_suffix(".new")
    try:
        with open(draft, "w", encoding="utf-8", opener=_private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        os.replace(draft, path)
    except OSError:
        with suppress(OSError):
            draft.unlink()
        raise


def _compact(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _sum(content: dict[str, Any]) -> str:
    return hashlib.sha256(_compact(content).encode()).hexdigest()


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
