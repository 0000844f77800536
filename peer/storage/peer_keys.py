"""Decides who this process is in a mesh: the first kept key that no other process of this machine uses now.

Edge. One folder per mesh under the state folder; in it `<slot>.json` holds a key seed and the memberships the founder
signed for it, `<slot>.lock` is locked for as long as a process is that peer, and its transaction logs lie beside. A
peer that comes back is the same peer, takes up no further place of a counted invite, and may come when the invite has
expired or is used up. A process that only asks while the first one is there comes as that one's viewer, and takes no
place either.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from hashlib import sha256
from pathlib import Path
from typing import Any, Final, TypeVar

from peer.errors import DamagedStore, StateUnusable
from peer.state.display_names import name_fault
from planner.model.durable_files import free_name, open_locked, rename_durably
from signaling.errors import IdentityError, InviteError, MessageError
from signaling.generated.messages import GRANT
from signaling.invites import Grant, verify_grant
from signaling.keys import SEED_BYTES, Identity, from_text, identity_from_seed, to_text
from signaling.messages import load_json

T = TypeVar("T")

FORMAT: Final = 1
SEAL: Final = "sha256"  # of the other fields, in the file
OWNERS: Final = "owners"  # in a state folder: who speaks for the founder from a command line beside it
MAX_SLOTS: Final = 256  # processes of one machine in one mesh at the same time
MAX_MEMBERSHIPS: Final = 64  # invites that one key came with, the latest kept
MODEL_DIGITS: Final = 16  # of a model's id in the name of a file

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class KeptIdentity:
    """A key, the memberships it was given by invite key, and how to keep another one."""

    identity: Identity
    memberships: tuple[Grant, ...]
    keep: Callable[[Grant], None]
    voucher: KeptIdentity | None = None  # of the first process here: who only asks may come as its viewer
    beside: Path | None = None  # files that this peer alone keeps have names that begin so

    def transactions(self, model_id: str) -> Path | None:
        """Where its log of operations on that model lies; None for a peer that nobody keeps."""
        own = self.beside
        return (
            own.with_name(f"{own.name}-{model_id[:MODEL_DIGITS]}.transactions") if own is not None else None
        )

    @property
    def name(self) -> str:
        """What it was renamed to; empty where it was not, or nobody keeps it. Raises StateUnusable."""
        text = _read_text(self._name_path) if self.beside is not None else None
        name = (text or b"").decode("utf-8", "replace")
        if name and (fault := name_fault(name)):
            log.error("%s holds no name and is passed over: %s", self._name_path, fault)
            return ""
        return name

    def keep_name(self, name: str) -> None:
        """Has later starts take that name; an empty one: none. Raises StateUnusable."""
        write_private(self._name_path, name)

    @property
    def _name_path(self) -> Path:
        if self.beside is None:
            raise ValueError("a peer that is kept expected")
        return self.beside.with_name(f"{self.beside.name}.name")

    def membership(self, invite_key: bytes) -> Grant | None:
        """What lets this key come back with that invite; None before the founder signed it."""
        return next((grant for grant in reversed(self.memberships) if grant.via == invite_key), None)


def viewer(own: KeptIdentity) -> KeptIdentity:
    """For a process that only asks beside another one: it takes no further place of a counted invite."""
    first = own.voucher
    if first is None:
        return own
    return KeptIdentity(own.identity, first.memberships, lambda _: None, first)


def thrown_away() -> KeptIdentity:
    """A fresh key that nobody keeps."""
    return KeptIdentity(identity_from_seed(os.urandom(SEED_BYTES)), (), lambda _: None)


@contextmanager
def kept_identity(state: Path, mesh: str) -> Iterator[KeptIdentity]:
    """This process's identity in `mesh`, its own until the block ends. Raises StateUnusable."""
    folder = state / "peers" / mesh
    private_folder(folder)
    path, fd = _first_free(folder)
    try:
        seed, memberships = _read(path, mesh)

        def keep(membership: Grant) -> None:
            nonlocal memberships
            others = tuple(grant for grant in memberships if grant.via != membership.via)
            memberships = (*others, membership)[-MAX_MEMBERSHIPS:]
            try:
                _write(path, seed, memberships)
            except StateUnusable as error:
                log.error("%s", error)

        first, beside = _first(folder, path, mesh), path.with_suffix("")
        yield KeptIdentity(identity_from_seed(seed), memberships, keep, first, beside)
    finally:
        os.close(fd)


def owner_beside(state: Path, mesh: str) -> str:
    """The peer id of who speaks for the owner of a mesh that is kept in `state`. Raises StateUnusable."""
    folder = state / OWNERS / "peers" / mesh
    private_folder(folder)
    return identity_in(folder / "0.json", mesh).id


def identity_in(path: Path, mesh: str) -> Identity:
    """The key that is kept in that file. Raises StateUnusable."""
    return identity_from_seed(_read(path, mesh)[0])


def _first(folder: Path, own: Path, mesh: str) -> KeptIdentity | None:
    """Who the first process of this machine is in the mesh; None for itself. It is only read, never kept."""
    first = folder / "0.json"
    if first == own or not first.exists():
        return None
    seed, memberships = _read(first, mesh)
    return KeptIdentity(identity_from_seed(seed), memberships, lambda _: None)


def _first_free(folder: Path) -> tuple[Path, int]:
    for slot in range(MAX_SLOTS):
        try:
            fd = open_locked(folder / f"{slot}.lock")
        except OSError as error:
            raise _unusable(folder, error) from error
        if fd is not None:
            return folder / f"{slot}.json", fd
    raise StateUnusable(
        f"{MAX_SLOTS} processes of this machine are in the mesh already: end some, or give another --state folder"
    )


def _read(path: Path, mesh: str) -> tuple[bytes, tuple[Grant, ...]]:
    kept = read_sealed(path, partial(_decode, mesh))
    if kept is None:
        kept = os.urandom(SEED_BYTES), ()
        _write(path, *kept)
    return kept


def _decode(mesh: str, raw: dict[str, Any]) -> tuple[bytes, tuple[Grant, ...]]:
    try:
        if raw.get("format") != FORMAT or not isinstance(raw.get("memberships"), list):
            raise ValueError("not of this format")
        seed = from_text(str(raw.get("seed")))
        identity = identity_from_seed(seed)
        memberships = tuple(GRANT.read(item, "membership") for item in raw["memberships"][:MAX_MEMBERSHIPS])
        for membership in memberships:
            verify_grant(membership, mesh)
            if membership.key != identity.public.encoded:
                raise ValueError("a membership is for another key")
    except (MessageError, IdentityError, InviteError, ValueError) as error:
        raise DamagedStore(str(error)) from error
    return seed, memberships


def _write(path: Path, seed: bytes, memberships: tuple[Grant, ...]) -> None:
    kept: dict[str, Any] = {
        "format": FORMAT,
        "seed": to_text(seed),
        "memberships": [GRANT.write(grant) for grant in memberships],
    }
    write_sealed(path, kept)


def private_folder(folder: Path) -> None:
    """Makes the folder, for its owner only. Raises StateUnusable."""
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise _unusable(folder, error) from error


def _read_text(path: Path) -> bytes | None:
    """The bytes of a file with secrets; None when there is none. Raises StateUnusable, also when others may read it."""
    try:
        if os.name == "posix" and path.stat().st_mode & 0o077:
            raise StateUnusable(f"{path} holds secrets and can be read by others: run chmod 600 {path}")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unusable(path, error) from error


def write_private(path: Path, text: str) -> None:
    """Writes a file that only its owner can read, whole or not at all. Raises StateUnusable."""
    draft = path.with_suffix(".new")
    try:
        with open(draft, "w", encoding="utf-8", opener=_private) as file:
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        rename_durably(draft, path)
    except OSError as error:
        with suppress(OSError):
            draft.unlink()
        raise _unusable(path, error) from error


def write_sealed(path: Path, content: dict[str, Any]) -> None:
    """Writes what must outlive a damaged byte: with a checksum, and twice. Raises StateUnusable."""
    text = _compact(content)
    sealed = _compact({**content, SEAL: sha256(text.encode()).hexdigest()})
    for each in (path, copy_of(path)):
        write_private(each, sealed)


def read_sealed(path: Path, decode: Callable[[dict[str, Any]], T]) -> T | None:
    """What `decode` makes of the file, or of its copy where that is damaged, which is then set aside; None where there
    is no file. `decode` raises DamagedStore. Raises StateUnusable.
    """
    text = _read_text(path)
    if text is None:
        return None
    try:
        return decode(_unsealed(text))
    except DamagedStore as error:
        spare = _read_text(copy_of(path))
        try:
            if spare is None:
                raise DamagedStore("there is no copy of it") from error
            found = decode(_unsealed(spare))
        except DamagedStore as worse:
            raise StateUnusable(
                f"{path} is damaged ({error}), and so is its copy ({worse}): move both away to begin anew"
            ) from error
        aside = free_name(path)
        try:
            os.replace(path, aside)
        except OSError as refusal:
            raise _unusable(path, refusal) from refusal
        write_private(path, spare.decode())
        log.error("%s is damaged (%s): it is kept as %s, and its copy is used", path, error, aside.name)
        return found


def copy_of(path: Path) -> Path:
    """Where the second copy of a sealed file lies."""
    return path.with_name(f"{path.name}-copy")


def _unsealed(text: bytes) -> dict[str, Any]:
    try:
        raw = load_json(text.decode())
    except (MessageError, UnicodeDecodeError) as error:
        raise DamagedStore("not JSON") from error
    seal = raw.pop(SEAL, None)  # files of earlier versions have none
    if seal is not None and seal != sha256(_compact(raw).encode()).hexdigest():
        raise DamagedStore("it fails its checksum")
    return raw


def _compact(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _unusable(path: Path, error: OSError) -> StateUnusable:
    return StateUnusable(
        f"{path} cannot be used: {error.strerror or error}; free or allow it, or give another --state folder"
    )
