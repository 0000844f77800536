"""Decides what the server remembers over a restart: one small JSON file per mesh, written whole or not at
all.

Grants and revocations are checked by signature when they are read, so an altered file lets nobody in.
"""

from __future__ import annotations

import json
import os
from contextlib import suppress
from pathlib import Path

from signaling.errors import CorruptState, IdentityError, InviteError, MessageError
from signaling.generated.messages import GRANT, REVOCATION
from signaling.invites import MAX_ADMITTED, MAX_GRANTS, Admissions
from signaling.keys import from_text, is_id, to_text
from signaling.messages import load_json

FORMAT = 1


def encode_admissions(admissions: Admissions) -> str:
    """The JSON text of what is known about one mesh."""
    return json.dumps(
        {
            "format": FORMAT,
            "mesh": admissions.mesh,
            "grants": [GRANT.write(g) for g in admissions.grants.values()],
            "revocations": [REVOCATION.write(r) for r in admissions.revocations.values()],
            "admitted": {to_text(key): list(peers) for key, peers in admissions.admitted.items()},
        },
        separators=(",", ":"),
    )


def decode_admissions(text: str, mesh: str) -> Admissions:
    """Undo `encode_admissions`; CorruptState when the text breaks its rules or a signature does not hold."""
    try:
        raw = load_json(text)
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
            texts = [
                (p, p.read_text("utf-8")) for p in sorted(paths, key=lambda p: (p.stat().st_mtime_ns, p.name))
            ]
        except (OSError, UnicodeDecodeError) as error:
            raise CorruptState(f"the state folder {self._folder} cannot be read: {error}") from error
        made = []
        for path, text in texts:
            try:
                made.append(decode_admissions(text, path.stem))
            except CorruptState as error:
                raise CorruptState(
                    f"{path} is damaged ({error}): restore it, or delete it to forget it"
                ) from error
        return made

    def save(self, mesh: str, text: str) -> None:
        """Write one mesh: another name, flush, rename. OSError when the disk refuses; the old file then
        stays.
        """
        path = self._folder / f"{mesh}.json"
        draft = self._folder / f"{mesh}.new"
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

    def forget(self, mesh: str) -> None:
        """Removes the file of that mesh, if there is one."""
        (self._folder / f"{mesh}.json").unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)
