"""Where model bytes live on disk, and when they count as stored: whole, and with the hash they are named by.

    root/blobs/<sha256>            one blob, immutable once it has its name
    root/blobs/<sha256>.part       a download under way: pieces at their places, holes between
    root/blobs/<sha256>.good       one byte per piece of the .part: 1 where the piece was verified and written
    root/models/<model id>/manifest.json
    root/tmp/                      files that have no name yet; those of dead processes are removed on opening

Every file is written under another name, flushed, and renamed. Writers hold an advisory lock on what they
write, so two processes (or threads) never write one file, and a file without a lock has no living owner.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType

from planner.errors import CorruptStore, NotInStore, StoreError, StoreFull
from planner.model.blob_ref import PIECE_BYTES as PIECE_BYTES
from planner.model.blob_ref import BlobRef as BlobRef
from planner.model.durable_files import (
    BINARY,
    create_locked,
    free_name,
    full_disk_is_named,
    open_locked,
    rename_durably,
    sync_folder,
    try_lock,
    write_all,
)

MANIFEST_LIMIT_BYTES = 64 << 20  # a manifest of a 70 B model with its tensors is under 2 MiB
PREFIX_DIGITS = 4  # a shorter prefix of a model id is more likely a mistake than a choice

_SHA256 = re.compile(r"[0-9a-f]{64}")


class Store:
    """A folder of models. Many processes may open the same one."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._blobs = root / "blobs"
        self._models = root / "models"
        self._tmp = root / "tmp"
        self._sound: set[str] = set()  # blobs whose bytes this process has read and checked
        try:
            with full_disk_is_named(root):
                for folder in (self._blobs, self._models, self._tmp):
                    folder.mkdir(parents=True, exist_ok=True)
            self._remove_orphans()
        except OSError as error:
            raise StoreError(
                f"{root} cannot be a model store: {error.strerror}; choose another folder"
            ) from error

    def put_blob(self, chunks: Iterable[bytes | memoryview]) -> BlobRef:
        """Stores the concatenation of `chunks`. StoreFull, or an error of `chunks`, leaves nothing behind."""
        with self._unnamed() as (path, fd):
            hashes = _Hashes()
            for chunk in chunks:
                write_all(fd, chunk)
                hashes.update(chunk)
            return self._named(path, fd, hashes.ref())

    def fill_blob(
        self, size: int, fill: Callable[[Callable[[int, bytes | memoryview], None]], None]
    ) -> BlobRef:
        """Stores `size` bytes that `fill` writes, in any order, by calling what it is given with an offset and bytes;
        what it leaves out is zeros. StoreFull, or an error of `fill`, leaves nothing behind.
        """
        with self._unnamed() as (path, fd):
            os.ftruncate(fd, size)
            fill(lambda offset, part: write_all(fd, part, offset))
            hashes = _Hashes()
            os.lseek(fd, 0, os.SEEK_SET)
            while part := os.read(fd, PIECE_BYTES):
                hashes.update(part)
            return self._named(path, fd, hashes.ref())

    def blob_path(self, sha256: str) -> Path:
        """The file of a stored blob. Its bytes were verified when stored; `verify_blob` checks them again."""
        path = self._blobs / _hash_name(sha256, "blob")
        if not path.is_file():
            raise NotInStore(
                f"blob {sha256} is not in the store {self.root}: fetch or import the model first"
            )
        return path

    def has_blob(self, ref: BlobRef) -> bool:
        """Whether a blob of this name and length is stored (its bytes are not read)."""
        path = self._blobs / _hash_name(ref.sha256, "blob")
        return path.is_file() and path.stat().st_size == ref.bytes

    def is_sound(self, ref: BlobRef) -> bool:
        """Whether the blob is here and every piece of it has its hash: disks flip bits, too. Read once by a process."""
        if ref.sha256 not in self._sound:
            try:
                self.verify_blob(ref)
            except (NotInStore, CorruptStore):
                return False
            self._sound.add(ref.sha256)
        return True

    def verify_blob(self, ref: BlobRef) -> None:
        """Raises CorruptStore naming the first bad piece; NotInStore when the blob is absent."""
        ref.check()
        path = self.blob_path(ref.sha256)
        size = path.stat().st_size
        if size != ref.bytes:
            raise CorruptStore(
                f"blob {ref.sha256[:12]}: expected {ref.bytes} bytes, the file has {size}; fetch it again"
            )
        whole = hashlib.sha256()
        with path.open("rb") as file:
            for index, expected in enumerate(ref.pieces):
                piece = file.read(PIECE_BYTES)
                whole.update(piece)
                _check_piece(ref, index, piece, expected)
        if whole.hexdigest() != ref.sha256:
            raise CorruptStore(
                f"blob {ref.sha256[:12]}: the pieces match but the whole hashes to {whole.hexdigest()[:12]}"
            )

    def writer(self, ref: BlobRef) -> BlobWriter:
        """A download of `ref`, continued where an earlier one stopped. Close it, or use it as a context."""
        ref.check()
        if self._holds(ref):
            return BlobWriter(self, ref, None, None, [True] * len(ref.pieces))
        part = self._blobs / f"{ref.sha256}.part"
        with full_disk_is_named(self.root):
            fd = open_locked(part)
            if (
                fd is None
            ):  # another writer is at it: work on a file of our own, whoever is first names the blob
                path, fd = create_locked(self._tmp)
                return BlobWriter(self, ref, fd, path, [False] * len(ref.pieces))
            return BlobWriter(self, ref, fd, part, _verified_pieces(fd, _good_path(part), ref))

    def put_manifest(self, data: bytes) -> str:
        """Stores a manifest under its own hash, which is the model id."""
        model_id = hashlib.sha256(data).hexdigest()
        folder = self._models / model_id
        with full_disk_is_named(self.root):
            path, fd = create_locked(self._tmp)
        try:
            with full_disk_is_named(self.root):
                write_all(fd, data)
                os.fsync(fd)
                folder.mkdir(exist_ok=True)
                final = folder / "manifest.json"
                if final.is_file() and final.read_bytes() != data:
                    rename_durably(final, free_name(final))  # damaged: it is set aside
                rename_durably(path, final)
                sync_folder(self._models)
        except BaseException:
            path.unlink(missing_ok=True)
            with suppress(OSError):
                folder.rmdir()  # refuses when another writer has put the manifest there
            raise
        finally:
            os.close(fd)
        return model_id

    def manifest_bytes(self, model_id: str) -> bytes:
        """The manifest of one model, its hash checked."""
        path = self._models / _hash_name(model_id, "model") / "manifest.json"
        if not path.is_file():
            raise NotInStore(f"model {model_id} is not in the store {self.root}: import it first")
        size = path.stat().st_size
        if size > MANIFEST_LIMIT_BYTES:
            raise CorruptStore(
                f"manifest of {model_id[:12]}: expected at most {MANIFEST_LIMIT_BYTES} bytes, got {size}"
            )
        data = path.read_bytes()
        if hashlib.sha256(data).hexdigest() != model_id:
            raise CorruptStore(
                f"manifest of {model_id[:12]} does not hash to the model id: import the model again"
            )
        return data

    def beside_manifest(self, model_id: str, name: str) -> Path:
        """Where a file about a model lies that is no part of it, whether it is there or not."""
        return self._models / _hash_name(model_id, "model") / name

    def models(self) -> list[str]:
        """Ids of the stored models, sorted."""
        return sorted(
            folder.name
            for folder in self._models.iterdir()
            if _SHA256.fullmatch(folder.name) and (folder / "manifest.json").is_file()
        )

    def find(self, prefix: str) -> str:
        """The id of the one model whose id begins so, with 4 digits or more. Raises NotInStore.

        Names of models are no way to find one: different files may have the same.
        """
        ids = self.models()
        found = [i for i in ids if len(prefix) >= PREFIX_DIGITS and i.startswith(prefix)]
        if not found:
            have = ", ".join(f"{i[:12]} ({self._name_of(i)})" for i in ids)
            raise NotInStore(
                f"no model in the store {self.root} has an id that begins with {prefix[:80]!r}; "
                f"it has: {have or 'none yet'}"
            )
        if len(found) > 1:
            raise NotInStore(
                f"{prefix!r} begins the ids of several models: {', '.join(i[:12] for i in found)}; "
                "give more digits"
            )
        return found[0]

    def _name_of(self, model_id: str) -> str:
        try:
            return _manifest_name(self.manifest_bytes(model_id))
        except (NotInStore, CorruptStore):
            return "damaged"

    @contextmanager
    def _unnamed(self) -> Iterator[tuple[Path, int]]:
        """A new file without a name, open for writing; an error removes it."""
        with full_disk_is_named(self.root):
            path, fd = create_locked(self._tmp)
        try:
            with full_disk_is_named(self.root):
                yield path, fd
        except BaseException:
            path.unlink(missing_ok=True)
            raise
        finally:
            os.close(fd)

    def _named(self, path: Path, fd: int, ref: BlobRef) -> BlobRef:
        """Gives what was written its name, unless the store has it."""
        os.fsync(fd)
        if self._holds(ref):
            path.unlink()
        else:
            rename_durably(path, self._blobs / ref.sha256)
        self._sound.add(ref.sha256)
        return ref

    def _holds(self, ref: BlobRef) -> bool:
        try:
            self.verify_blob(ref)
        except (NotInStore, CorruptStore):
            return False
        return True

    def _remove_orphans(self) -> None:
        for path in self._tmp.iterdir():
            with suppress(OSError):
                fd = os.open(path, os.O_RDWR)
                try:
                    if try_lock(fd):
                        path.unlink()
                finally:
                    os.close(fd)


class BlobWriter:
    """Pieces of one blob, in any order. What was verified survives the process; nothing else is written."""

    def __init__(
        self, store: Store, ref: BlobRef, fd: int | None, path: Path | None, good: list[bool]
    ) -> None:
        self.ref = ref
        self._store = store
        self._fd = fd
        self._path = path  # None: the blob is stored already
        self._good = good
        self._writing = threading.Lock()  # several threads bring pieces; the file has one position

    def missing(self) -> list[int]:
        """Indexes of the pieces still to be written, ascending."""
        return [index for index, good in enumerate(self._good) if not good]

    def write_piece(self, index: int, piece: bytes | memoryview) -> None:
        """Checks the hash, then writes. CorruptStore: nothing was written. StoreFull: earlier pieces stay."""
        if not 0 <= index < len(self.ref.pieces):
            raise CorruptStore(
                f"blob {self.ref.sha256[:12]} has {len(self.ref.pieces)} pieces, got piece {index}"
            )
        _check_piece(self.ref, index, piece, self.ref.pieces[index])
        with self._writing:
            self._write_checked(index, piece)

    def _write_checked(self, index: int, piece: bytes | memoryview) -> None:
        if self._good[index]:
            return
        if self._fd is None or self._path is None:
            raise ValueError("this writer is closed")
        try:
            with full_disk_is_named(self._store.root):
                write_all(self._fd, piece, index * PIECE_BYTES)
                if self._path.suffix == ".part":
                    _mark_good(_good_path(self._path), index)
        except StoreFull:
            self._drop_unverified()
            raise
        self._good[index] = True

    def commit(self) -> Path:
        """Gives the blob its name once every piece is there and the whole hashes to it."""
        if self._path is None:
            return self._store.blob_path(self.ref.sha256)
        if self._fd is None:
            raise ValueError("this writer is closed")
        if missing := self.missing():
            raise CorruptStore(
                f"blob {self.ref.sha256[:12]}: {len(missing)} of {len(self.ref.pieces)} pieces are missing, "
                f"the first is {missing[0]}"
            )
        final = self._path.parent.parent / "blobs" / self.ref.sha256
        with full_disk_is_named(self._store.root):
            os.ftruncate(self._fd, self.ref.bytes)
            try:
                self._check_whole(self._fd)
            except CorruptStore:
                self.discard()
                raise
            os.fsync(self._fd)
            rename_durably(self._path, final)
        self._store._sound.add(self.ref.sha256)
        _good_path(self._path).unlink(missing_ok=True)
        self._path = None
        self.close()
        return final

    def discard(self) -> None:
        """Gives up: removes what was written."""
        if self._path is not None and self._fd is not None:
            self._path.unlink(missing_ok=True)
            _good_path(self._path).unlink(missing_ok=True)
        self.close()

    def close(self) -> None:
        """Lets go of the file; verified pieces of a .part stay for the next writer."""
        if self._fd is None:
            return
        fd, self._fd = self._fd, None
        if self._path is not None and (self._path.suffix != ".part" or not any(self._good)):
            self._path.unlink(missing_ok=True)
            _good_path(self._path).unlink(missing_ok=True)
        os.close(fd)

    def __enter__(self) -> BlobWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _check_whole(self, fd: int) -> None:
        whole = hashlib.sha256()
        for index in range(len(self.ref.pieces)):
            piece = _read_piece(fd, self.ref, index)
            _check_piece(self.ref, index, piece, self.ref.pieces[index])
            whole.update(piece)
        if whole.hexdigest() != self.ref.sha256:
            raise CorruptStore(
                f"blob {self.ref.sha256[:12]}: every piece matches but the whole hashes to "
                f"{whole.hexdigest()[:12]}; the manifest is wrong, get it again"
            )

    def _drop_unverified(self) -> None:
        if self._fd is not None:
            good = [index for index, good in enumerate(self._good) if good]
            end = good[-1] * PIECE_BYTES + self.ref.piece_bytes(good[-1]) if good else 0
            with suppress(OSError):
                os.ftruncate(self._fd, end)


class _Hashes:
    """The hash of a stream, and of each 4 MiB of it."""

    def __init__(self) -> None:
        self._whole = hashlib.sha256()
        self._piece = hashlib.sha256()
        self._room = PIECE_BYTES
        self._bytes = 0
        self._pieces: list[str] = []

    def update(self, chunk: bytes | memoryview) -> None:
        view = memoryview(chunk).cast("B")
        self._whole.update(view)
        self._bytes += len(view)
        while view:
            part, view = view[: self._room], view[self._room :]
            self._piece.update(part)
            self._room -= len(part)
            if not self._room:
                self._next_piece()

    def ref(self) -> BlobRef:
        if self._room < PIECE_BYTES:
            self._next_piece()
        return BlobRef(self._whole.hexdigest(), self._bytes, tuple(self._pieces))

    def _next_piece(self) -> None:
        self._pieces.append(self._piece.hexdigest())
        self._piece = hashlib.sha256()
        self._room = PIECE_BYTES


def _hash_name(text: str, what: str) -> str:
    if not _SHA256.fullmatch(text):
        raise NotInStore(f"expected a {what} id of 64 lower-case hex digits, got {text[:80]!r}")
    return text


def _manifest_name(data: bytes) -> str:
    try:
        manifest = json.loads(data)
    except (ValueError, RecursionError):
        return "?"
    name = manifest.get("name") if isinstance(manifest, dict) else None
    return name if isinstance(name, str) else "?"


def _check_piece(ref: BlobRef, index: int, piece: bytes | memoryview, expected: str) -> None:
    if (got := hashlib.sha256(piece).hexdigest()) != expected:
        raise CorruptStore(
            f"blob {ref.sha256[:12]}, piece {index}: expected hash {expected[:12]}, got {got[:12]}; "
            "fetch it again"
        )


def _good_path(part: Path) -> Path:
    return part.with_suffix(".good")


def _mark_good(path: Path, index: int) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | BINARY, 0o666)
    try:
        write_all(fd, b"\1", index)
    finally:
        os.close(fd)


def _verified_pieces(fd: int, record: Path, ref: BlobRef) -> list[bool]:
    """Which pieces of a .part are there: those on record whose bytes still hash to their name."""
    try:
        marks = record.read_bytes()[: len(ref.pieces)]
    except FileNotFoundError:
        marks = b""
    good = [False] * len(ref.pieces)
    for index, mark in enumerate(marks):
        if mark == 1:
            piece = _read_piece(fd, ref, index)
            good[index] = hashlib.sha256(piece).hexdigest() == ref.pieces[index]
    return good


def _read_piece(fd: int, ref: BlobRef, index: int) -> bytes:
    os.lseek(fd, index * PIECE_BYTES, os.SEEK_SET)
    parts: list[bytes] = []
    left = ref.piece_bytes(index)
    while left and (part := os.read(fd, left)):
        parts.append(part)
        left -= len(part)
    return b"".join(parts)
