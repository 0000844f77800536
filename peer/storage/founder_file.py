"""Decides what a founder keeps over restarts: the mesh key, the invites it made with their secrets, its addresses.

Edge. `mesh.json` in the state folder; the uses of each invite are counted by the signaling server in `signaling/`.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final

from peer.errors import DamagedStore, StateUnusable
from peer.storage.peer_keys import private_folder, read_sealed, write_sealed
from planner.model.durable_files import open_locked
from signaling.errors import IdentityError, InviteError, MessageError
from signaling.generated.messages import GRANT
from signaling.invites import Admissions, Grant, InviteLink, Role, make_invite, verify_grant
from signaling.keys import SEED_BYTES, Identity, from_text, identity_from_seed, to_text
from signaling.state import StateFolder

FORMAT: Final = 1
SHORT_DIGITS: Final = 8  # of an invite's short id; it says nothing about the secret
LOCK_PATIENCE_S: Final = 5.0
ANYWHERE: Final = "http://localhost"  # an invite is signed without the address of its link


@dataclass(frozen=True)
class KeptInvite:
    """An invite with its secret."""

    seed: bytes = field(repr=False)
    grant: Grant
    made_unix: int
    revoked: bool = False

    @property
    def short_id(self) -> str:
        """What people call this invite when they revoke it."""
        return hashlib.sha256(self.grant.key).hexdigest()[:SHORT_DIGITS]

    def link(self, server: str) -> InviteLink:
        """The link of this invite, for a server at that address."""
        return InviteLink(server, self.grant.mesh, self.seed)

    def usable(self, admissions: Admissions, now_unix: float) -> bool:
        """Whether somebody new could still come in with it."""
        grant = self.grant
        if self.revoked or grant.key in admissions.revocations:
            return False
        if grant.expires_unix and now_unix > grant.expires_unix:
            return False
        return not grant.uses or len(admissions.admitted.get(grant.key, {})) < grant.uses


@dataclass(frozen=True)
class KeptMesh:
    """One founded mesh."""

    seed: bytes = field(repr=False)
    public_url: str = ""  # how others reach the server, as links say it; "" before the first serve
    local_url: str = ""  # how this machine reaches it
    invites: tuple[KeptInvite, ...] = ()

    @property
    def key(self) -> Identity:
        """The key pair of the mesh."""
        return identity_from_seed(self.seed)


def new_invite(mesh_key: Identity, role: Role, expires_s: int, uses: int) -> KeptInvite:
    """Draws and signs an invite; it works at whatever address the server has."""
    now = int(time.time())
    seed = os.urandom(SEED_BYTES)
    _, grant = make_invite(mesh_key, ANYWHERE, seed, role, now + expires_s if expires_s else 0, uses)
    return KeptInvite(seed, grant, now)


def server_address(url: str) -> str:
    """scheme://host[:port] as links have it. Raises WrongLink when `url` cannot be part of a link."""
    link, _ = make_invite(identity_from_seed(bytes(SEED_BYTES)), url, bytes(SEED_BYTES), Role.PEER)
    return link.server


class KeptMeshFile:
    """`mesh.json` of a state folder. Changes are made under a lock, so that two commands do not lose each other's."""

    def __init__(self, state: Path) -> None:
        self.state = state
        self._path = state / "mesh.json"
        self.signaling = state / "signaling"

    def read(self) -> KeptMesh | None:
        """What is kept; None when no mesh was founded here. Raises StateUnusable."""
        return read_sealed(self._path, self._decode)

    def read_or_make(self) -> KeptMesh:
        """What is kept, with a fresh mesh key when there was none."""
        with self._alone():
            kept = self.read()
            if kept is None:
                kept = KeptMesh(os.urandom(SEED_BYTES))
                self._write(kept)
            return kept

    def add(self, invite: KeptInvite) -> None:
        """Keeps another invite."""
        self._change(lambda kept: replace(kept, invites=(*kept.invites, invite)))

    def revoke(self, invite: KeptInvite) -> None:
        """Keeps that an invite was withdrawn."""

        def marked(kept: KeptMesh) -> KeptMesh:
            mark = (replace(i, revoked=True) if i.seed == invite.seed else i for i in kept.invites)
            return replace(kept, invites=tuple(mark))

        self._change(marked)

    def listens(self, public_url: str, local_url: str) -> None:
        """Keeps where the server can be reached."""
        self._change(lambda kept: replace(kept, public_url=public_url, local_url=local_url))

    def admissions(self, mesh: str) -> Admissions:
        """What the signaling server counted, as of its last change. Raises CorruptState."""
        for admissions in StateFolder(self.signaling).load() if self.signaling.is_dir() else ():
            if admissions.mesh == mesh:
                return admissions
        return Admissions(mesh)

    @contextmanager
    def serving(self) -> Iterator[None]:
        """Held while a process serves this mesh: a mesh has one founder. Raises StateUnusable when it has one."""
        private_folder(self.state)
        fd = open_locked(self.state / "serve.lock")
        if fd is None:
            raise StateUnusable(
                f"another process serves the mesh kept in {self.state}: stop it, or give another --state folder"
            )
        try:
            yield
        finally:
            os.close(fd)

    def _change(self, change: Callable[[KeptMesh], KeptMesh]) -> None:
        with self._alone():
            kept = self.read()
            if kept is None:
                raise StateUnusable(f"{self._path} is gone: run shoal serve --keep again")
            self._write(change(kept))

    @contextmanager
    def _alone(self) -> Iterator[None]:
        private_folder(self.state)
        give_up_s = time.monotonic() + LOCK_PATIENCE_S
        while (fd := open_locked(self.state / "mesh.lock")) is None:
            if time.monotonic() > give_up_s:
                raise StateUnusable(f"another process holds {self.state / 'mesh.lock'}: try again")
            time.sleep(0.02)
        try:
            yield
        finally:
            os.close(fd)

    def _write(self, kept: KeptMesh) -> None:
        raw = {
            "format": FORMAT,
            "seed": to_text(kept.seed),
            "public_url": kept.public_url,
            "local_url": kept.local_url,
            "invites": [
                {
                    "seed": to_text(invite.seed),
                    "grant": GRANT.write(invite.grant),
                    "made_unix": invite.made_unix,
                    "revoked": invite.revoked,
                }
                for invite in kept.invites
            ],
        }
        write_sealed(self._path, raw)

    def _decode(self, raw: dict[str, Any]) -> KeptMesh:
        try:
            if raw.get("format") != FORMAT:
                raise ValueError("not of this format")
            seed = from_text(str(raw["seed"]))
            mesh = identity_from_seed(seed).id
            invites = tuple(
                KeptInvite(
                    from_text(str(item["seed"])),
                    GRANT.read(item["grant"], "grant"),
                    int(item["made_unix"]),
                    item["revoked"] is True,
                )
                for item in raw["invites"]
            )
            for invite in invites:
                verify_grant(invite.grant, mesh)
            return KeptMesh(seed, str(raw["public_url"]), str(raw["local_url"]), invites)
        except (MessageError, IdentityError, InviteError, ValueError, KeyError, TypeError) as error:
            raise DamagedStore(str(error)) from error
