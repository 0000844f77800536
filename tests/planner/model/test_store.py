"""What the store keeps, refuses and forgets."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import random
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from planner.errors import CorruptStore, NotInStore, StoreError, StoreFull
from planner.model.store import PIECE_BYTES, BlobRef, Store


def blob(size: int, seed: int = 1) -> bytes:
    return random.Random(seed).randbytes(size)


def ref_of(content: bytes) -> BlobRef:
    pieces = tuple(
        hashlib.sha256(content[at : at + PIECE_BYTES]).hexdigest()
        for at in range(0, len(content), PIECE_BYTES)
    )
    return BlobRef(hashlib.sha256(content).hexdigest(), len(content), pieces)


def piece(content: bytes, index: int) -> bytes:
    return content[index * PIECE_BYTES : (index + 1) * PIECE_BYTES]


def files(root: Path) -> set[str]:
    return {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


@pytest.mark.parametrize("size", [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 2 * PIECE_BYTES + 5])
@pytest.mark.parametrize("cut", [1 << 20, PIECE_BYTES, 7_000_001])
def test_put_blob_names_blob_and_pieces_by_their_hashes(store: Store, size: int, cut: int) -> None:
    content = blob(size)
    ref = store.put_blob(memoryview(content)[at : at + cut] for at in range(0, size, cut))
    assert ref == ref_of(content)
    assert store.blob_path(ref.sha256).read_bytes() == content
    assert store.has_blob(ref)
    store.verify_blob(ref)
    assert files(store.root) == {f"blobs/{ref.sha256}"}


def test_putting_a_blob_twice_keeps_one_and_heals_a_bad_one(store: Store) -> None:
    ref = store.put_blob([b"abc"])
    assert store.put_blob([b"a", b"bc"]) == ref
    store.blob_path(ref.sha256).write_bytes(b"axc")
    assert store.put_blob([b"abc"]) == ref
    store.verify_blob(ref)


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda b: b[:-1], "expected 4194305 bytes, the file has 4194304"),
        (lambda b: b[:-1] + b"\0", "piece 1"),
        (lambda b: b"\0" + b[1:], "piece 0"),
    ],
)
def test_verify_names_the_bad_piece(store: Store, damage, says: str) -> None:  # type: ignore[no-untyped-def]
    content = b"x" * (PIECE_BYTES + 1)
    ref = store.put_blob([content])
    store.blob_path(ref.sha256).write_bytes(damage(content))
    with pytest.raises(CorruptStore, match=says):
        store.verify_blob(ref)


@pytest.mark.parametrize(
    "name",
    ["../../etc/passwd", "..", "", "A" * 64, "0" * 63, "0" * 65, "/etc/passwd", "0" * 63 + "\n", "é" * 64],
)
def test_a_name_that_is_no_hash_is_refused(store: Store, name: str) -> None:
    with pytest.raises(NotInStore, match="64 lower-case hex digits"):
        store.blob_path(name)
    with pytest.raises(NotInStore, match="64 lower-case hex digits"):
        store.manifest_bytes(name)
    with pytest.raises(CorruptStore):
        store.writer(BlobRef(name, 1, ("0" * 64,)))


@pytest.mark.parametrize(("size", "pieces"), [(-1, 0), (0, 1), (1, 0), (PIECE_BYTES + 1, 1)])
def test_a_reference_whose_pieces_do_not_fit_is_refused(store: Store, size: int, pieces: int) -> None:
    with pytest.raises(CorruptStore):
        store.writer(BlobRef("0" * 64, size, ("0" * 64,) * pieces))


def test_an_absent_blob_is_named(store: Store) -> None:
    with pytest.raises(NotInStore, match=r"0{64}"):
        store.blob_path("0" * 64)


def test_writer_takes_pieces_in_any_order(store: Store) -> None:
    content = blob(2 * PIECE_BYTES + 100)
    ref = ref_of(content)
    with store.writer(ref) as writer:
        assert writer.missing() == [0, 1, 2]
        for index in (2, 0, 1):
            writer.write_piece(index, piece(content, index))
        assert writer.missing() == []
        assert writer.commit().read_bytes() == content
    assert files(store.root) == {f"blobs/{ref.sha256}"}
    with store.writer(ref) as again:
        assert again.missing() == []
        assert again.commit() == store.blob_path(ref.sha256)


def test_threads_that_bring_pieces_of_one_blob_do_not_mix_them_up(store: Store) -> None:
    whole = random.Random(5).randbytes(12 * PIECE_BYTES)
    pieces = [whole[at : at + PIECE_BYTES] for at in range(0, len(whole), PIECE_BYTES)]
    ref = BlobRef(
        hashlib.sha256(whole).hexdigest(), len(whole), tuple(hashlib.sha256(p).hexdigest() for p in pieces)
    )
    with store.writer(ref) as writer:
        threads = [threading.Thread(target=writer.write_piece, args=one) for one in enumerate(pieces)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert writer.commit().read_bytes() == whole


def test_writer_continues_with_what_was_verified(store: Store) -> None:
    content = blob(3 * PIECE_BYTES)
    ref = ref_of(content)
    with store.writer(ref) as writer:
        writer.write_piece(2, piece(content, 2))
        writer.write_piece(0, piece(content, 0))
        with pytest.raises(CorruptStore, match=r"1 of 3 pieces are missing, the first is 1"):
            writer.commit()
    assert not store.has_blob(ref)
    with Store(store.root).writer(ref) as writer:
        assert writer.missing() == [1]
        writer.write_piece(1, piece(content, 1))
        assert writer.commit().read_bytes() == content


def test_writer_checks_recorded_pieces_again(store: Store) -> None:
    content = blob(2 * PIECE_BYTES)
    ref = ref_of(content)
    with store.writer(ref) as writer:
        writer.write_piece(0, piece(content, 0))
        writer.write_piece(1, piece(content, 1))
    part = store.root / "blobs" / f"{ref.sha256}.part"
    with part.open("r+b") as file:
        file.seek(PIECE_BYTES + 7)
        file.write(b"flip")
    with store.writer(ref) as writer:
        assert writer.missing() == [1]
        writer.write_piece(1, piece(content, 1))
        writer.commit()
    store.verify_blob(ref)


@pytest.mark.parametrize("bad", [b"", b"x", b"\0" * PIECE_BYTES, b"\0" * (PIECE_BYTES + 1)])
def test_a_wrong_piece_is_never_written(store: Store, bad: bytes) -> None:
    content = blob(2 * PIECE_BYTES)
    ref = ref_of(content)
    with store.writer(ref) as writer:
        with pytest.raises(CorruptStore, match="piece 1: expected hash"):
            writer.write_piece(1, bad)
        with pytest.raises(CorruptStore, match="piece 2"):
            writer.write_piece(2, bad)
        assert (store.root / "blobs" / f"{ref.sha256}.part").stat().st_size == 0
        assert writer.missing() == [0, 1]
    assert files(store.root) == set()


def test_pieces_that_match_under_a_wrong_name_are_refused(store: Store) -> None:
    content = blob(100)
    lie = BlobRef("0" * 64, 100, ref_of(content).pieces)
    with store.writer(lie) as writer:
        writer.write_piece(0, content)
        with pytest.raises(CorruptStore, match="manifest is wrong"):
            writer.commit()
    assert files(store.root) == set()


def test_a_stored_blob_that_went_bad_is_fetched_again(store: Store) -> None:
    ref = store.put_blob([b"good"])
    store.blob_path(ref.sha256).write_bytes(b"evil")
    with store.writer(ref) as writer:
        assert writer.missing() == [0]
        writer.write_piece(0, b"good")
        writer.commit()
    store.verify_blob(ref)


def test_two_writers_of_one_blob_do_not_meet(store: Store) -> None:
    content = blob(2 * PIECE_BYTES)
    ref = ref_of(content)
    with store.writer(ref) as first, Store(store.root).writer(ref) as second:
        first.write_piece(0, piece(content, 0))
        assert second.missing() == [0, 1]
        second.write_piece(0, piece(content, 0))
        second.write_piece(1, piece(content, 1))
        second.commit()
        first.write_piece(1, piece(content, 1))
        first.commit()
    store.verify_blob(ref)
    assert files(store.root) == {f"blobs/{ref.sha256}"}


def test_many_threads_put_and_fetch_the_same_blob(store: Store) -> None:
    content = blob(PIECE_BYTES + 10)
    ref = ref_of(content)
    failures: list[BaseException] = []

    def put() -> None:
        store.put_blob([content])

    def fetch() -> None:
        with store.writer(ref) as writer:
            for index in writer.missing():
                writer.write_piece(index, piece(content, index))
            writer.commit()

    def guarded(work) -> None:  # type: ignore[no-untyped-def]
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(work,)) for work in (put, fetch) * 6]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    store.verify_blob(ref)
    assert files(store.root) == {f"blobs/{ref.sha256}"}


def run_child(code: str, *args: str) -> subprocess.Popen[str]:
    here = Path(__file__).resolve().parents[3]
    return subprocess.Popen(
        [sys.executable, "-c", code, *args],
        cwd=here,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


KILLED_PUT = """
import sys, pathlib
from planner.model.store import Store
def chunks():
    yield b"x" * 100_000
    print("half", flush=True)
    sys.stdin.read()
Store(pathlib.Path(sys.argv[1])).put_blob(chunks())
"""

KILLED_FETCH = """
import sys, pathlib
from planner.model.store import PIECE_BYTES, Store, BlobRef
content = pathlib.Path(sys.argv[2]).read_bytes()
import hashlib
cuts = [content[at:at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
pieces = tuple(hashlib.sha256(cut).hexdigest() for cut in cuts)
ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content), pieces)
writer = Store(pathlib.Path(sys.argv[1])).writer(ref)
writer.write_piece(0, content[:PIECE_BYTES])
print("half", flush=True)
sys.stdin.read()
"""


def test_what_a_killed_writer_left_is_removed_but_not_what_a_living_one_writes(
    store: Store, tmp_path: Path
) -> None:
    def kill_in_the_middle() -> None:
        with subprocess.Popen(
            [sys.executable, "-c", KILLED_PUT, str(store.root)],
            cwd=Path(__file__).resolve().parents[3],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child:
            assert child.stdout is not None
            assert child.stdout.readline() == b"half\n"
            assert len(files(store.root)) == 1
            Store(store.root)
            assert len(files(store.root)) == 1, "a living writer lost its file"
            child.send_signal(signal.SIGKILL)

    kill_in_the_middle()
    assert len(files(store.root)) == 1
    Store(store.root)
    assert files(store.root) == set()


def test_a_download_goes_on_after_sigkill(store: Store, tmp_path: Path) -> None:
    content = blob(2 * PIECE_BYTES)
    (tmp_path / "content").write_bytes(content)
    with subprocess.Popen(
        [sys.executable, "-c", KILLED_FETCH, str(store.root), str(tmp_path / "content")],
        cwd=Path(__file__).resolve().parents[3],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    ) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"half\n"
        child.send_signal(signal.SIGKILL)
    with Store(store.root).writer(ref_of(content)) as writer:
        assert writer.missing() == [1]
        writer.write_piece(1, piece(content, 1))
        assert writer.commit().read_bytes() == content


FULL_DISK = """
import hashlib, pathlib, resource, sys
from planner.errors import StoreFull
from planner.model.store import PIECE_BYTES, BlobRef, Store
root = pathlib.Path(sys.argv[1])
store = Store(root)
resource.setrlimit(resource.RLIMIT_FSIZE, (PIECE_BYTES + 1000, resource.RLIM_INFINITY))
content = bytes(PIECE_BYTES) + b"y" * PIECE_BYTES
try:
    store.put_blob([content])
    raise SystemExit("not refused")
except StoreFull as error:
    print(error)
assert [p for p in root.rglob("*") if p.is_file()] == []
cuts = [content[at:at + PIECE_BYTES] for at in range(0, len(content), PIECE_BYTES)]
pieces = tuple(hashlib.sha256(cut).hexdigest() for cut in cuts)
ref = BlobRef(hashlib.sha256(content).hexdigest(), len(content), pieces)
with store.writer(ref) as writer:
    writer.write_piece(0, content[:PIECE_BYTES])
    try:
        writer.write_piece(1, content[PIECE_BYTES:])
        raise SystemExit("not refused")
    except StoreFull as error:
        print(error)
assert (root / "blobs" / (ref.sha256 + ".part")).stat().st_size == PIECE_BYTES
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
with store.writer(ref) as writer:
    assert writer.missing() == [1]
    writer.write_piece(1, content[PIECE_BYTES:])
    writer.commit()
store.verify_blob(ref)
"""


@pytest.mark.skipif(sys.platform == "win32", reason="RLIMIT_FSIZE is POSIX")
def test_a_file_the_system_refuses_to_grow_is_store_full_and_the_download_goes_on_later(store: Store) -> None:
    with run_child(FULL_DISK, str(store.root)) as child:
        out, err = child.communicate()
    assert (child.returncode, err) == (0, "")
    assert out.count("is full (File too large): free some space and try again") == 2


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_no_space_left_leaves_nothing(store: Store, monkeypatch: pytest.MonkeyPatch, number: int) -> None:
    real = os.write

    def small_disk(fd: int, chunk: bytes | memoryview) -> int:
        if len(chunk) < 10:
            raise OSError(number, os.strerror(number))
        return real(fd, chunk[: len(chunk) // 2])

    monkeypatch.setattr(os, "write", small_disk)
    with pytest.raises(StoreFull, match="is full"):
        store.put_blob([b"x" * 1000])
    with pytest.raises(StoreFull, match="is full"):
        store.put_manifest(b"x" * 1000)
    with store.writer(ref_of(b"x" * 1000)) as writer, pytest.raises(StoreFull):
        writer.write_piece(0, b"x" * 1000)
    assert files(store.root) == set()
    assert store.models() == []


@pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0, reason="mounting a small disk needs root on Linux"
)
def test_a_disk_that_is_really_full(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("this container may not mount")
    try:
        store = Store(disk / "store")
        with pytest.raises(StoreFull, match="No space left"):
            store.put_blob([blob(5 << 20), blob(5 << 20)])
        assert files(store.root) == set()
        content = blob(2 * PIECE_BYTES)
        with store.writer(ref_of(content)) as writer:
            writer.write_piece(0, piece(content, 0))
            with pytest.raises(StoreFull, match="No space left"):
                writer.write_piece(1, piece(content, 1))
        with store.writer(ref_of(content)) as writer:
            assert writer.missing() == [1]
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def test_an_error_of_the_source_leaves_nothing(store: Store) -> None:
    def chunks():  # type: ignore[no-untyped-def]
        yield b"x" * 1000
        raise KeyError("source")

    with pytest.raises(KeyError):
        store.put_blob(chunks())
    assert files(store.root) == set()


def test_manifests_are_named_by_their_hash_and_found(store: Store) -> None:
    one, two = b'{"name":"tiny"}', b'{"name":"other"}'
    first, second = store.put_manifest(one), store.put_manifest(two)
    assert first == hashlib.sha256(one).hexdigest()
    assert store.put_manifest(one) == first
    assert store.models() == sorted([first, second])
    assert store.manifest_bytes(first) == one
    assert store.find(first) == store.find(first[:8]) == first
    for absent in ("ffff", first[:3], "tiny"):  # a name finds nothing: other models may have the same
        with pytest.raises(NotInStore, match=rf"begins with '{absent}'; it has: .*{first[:12]} \(tiny\)"):
            store.find(absent)


def test_an_id_is_given_with_enough_digits(store: Store) -> None:
    twins = [f"abcd{digit * 60}" for digit in "01"]
    for model_id in twins:
        (store.root / "models" / model_id).mkdir()
        (store.root / "models" / model_id / "manifest.json").write_bytes(b"{}")
    with pytest.raises(NotInStore, match="several models: abcd00000000, abcd11111111; give more digits"):
        store.find("abcd")
    assert store.find("abcd1") == twins[1]


@pytest.mark.parametrize("odd", [b"not json", b"[]", b'{"name":3}', b"[" * 100_000])
def test_a_manifest_without_a_name_does_not_break_the_list(store: Store, odd: bytes) -> None:
    model_id = store.put_manifest(odd)
    assert store.models() == [model_id]
    with pytest.raises(NotInStore, match=r"it has: .*\(\?\)"):
        store.find("absent")


def test_a_changed_manifest_is_refused(store: Store) -> None:
    model_id = store.put_manifest(b"{}")
    (store.root / "models" / model_id / "manifest.json").write_bytes(b"{ }")
    with pytest.raises(CorruptStore, match="does not hash"):
        store.manifest_bytes(model_id)
    with pytest.raises(NotInStore, match="import it first"):
        store.manifest_bytes("0" * 64)


def test_a_damaged_manifest_is_set_aside_and_hides_no_other(store: Store) -> None:
    ids = [store.put_manifest(json.dumps({"name": name}).encode()) for name in ("one", "two")]
    path = store.root / "models" / ids[0] / "manifest.json"
    right = path.read_bytes()
    for at in range(len(right)):
        for spoilt in (
            flipped(right, at),
            right[:at],
            right[:at] + bytes(len(right) - at),
            right[:at] + right,
        ):
            if spoilt == right:
                continue
            path.write_bytes(spoilt)
            with pytest.raises(CorruptStore, match="does not hash"):
                store.manifest_bytes(ids[0])
            with pytest.raises(NotInStore, match=r"\(damaged\).*\(two\)|\(two\).*\(damaged\)"):
                store.find("0123456789")
            assert store.put_manifest(right) == ids[0]
            assert store.manifest_bytes(ids[0]) == right
            (aside,) = path.parent.glob("*.aside-1")
            assert aside.read_bytes() == spoilt
            aside.unlink()


def flipped(data: bytes, at: int) -> bytes:
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def test_every_damaged_byte_of_a_blob_is_found(store: Store) -> None:
    right = blob(300)
    ref = store.put_blob([right])
    path = store.blob_path(ref.sha256)
    for at in range(len(right)):
        zeroed = right[:at] + bytes(len(right) - at)
        for spoilt in (flipped(right, at), right[:at], right[:at] + right, zeroed):
            path.write_bytes(spoilt)
            assert Store(store.root).is_sound(ref) is (spoilt == right)
    path.write_bytes(right)
    assert store.is_sound(ref)


def test_strangers_in_the_folder_are_ignored(store: Store) -> None:
    (store.root / "models" / "README").write_text("hello")
    (store.root / "models" / ("0" * 64)).mkdir()
    assert store.models() == []


def test_a_root_that_is_a_file_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot be a model store: .*choose another folder"):
        Store(tmp_path / "file")
