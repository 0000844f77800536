"""Which files count as unchanged, and what an import made of them."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from planner.errors import CorruptModel, NoSuchModel
from planner.model import import_index
from planner.model.import_index import RACY_NS, Contents, ImportIndex
from tests.seeds import seeds

LATER_NS = 60_000_000_000


class Reads:
    """Counts which files are read, by the bytes that progress tells."""

    def __init__(self) -> None:
        self.totals: list[int] = []

    def __call__(self, done: int, total: int) -> None:
        if done == total:
            self.totals.append(total)


def later(path: Path) -> ImportIndex:
    """An index whose clock stands long behind every write of a model's file, whatever is written to the store."""

    def now_ns() -> int:
        return max(file.stat().st_ctime_ns for file in path.parent.iterdir() if file.is_file()) + LATER_NS

    return ImportIndex(path, now_ns)


def test_an_unchanged_file_is_read_once(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    reads = Reads()
    first = later(tmp_path / "store").contents({"model.gguf": file}, reads)
    later(tmp_path / "store").keep("model", "8bit", first, "a" * 64, "model.gguf")
    assert later(tmp_path / "store").contents({"model.gguf": file}, reads) == first
    assert reads.totals == [3]


def replaced(file: Path) -> None:
    file.with_name("other").write_bytes(b"two")
    file.with_name("other").replace(file)


def rewritten_with_its_old_time(file: Path) -> None:
    seen = file.stat()
    file.write_bytes(b"two")
    os.utime(file, ns=(seen.st_atime_ns, seen.st_mtime_ns))


def grown(file: Path) -> None:
    file.write_bytes(b"two!")


@pytest.mark.parametrize("change", [replaced, rewritten_with_its_old_time, grown])
def test_a_changed_file_is_another_one(tmp_path: Path, change: object) -> None:
    assert callable(change)
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    index = later(tmp_path / "store")
    before = index.contents({"model.gguf": file})
    index.keep("model", "8bit", before, "a" * 64, "model.gguf")
    change(file)
    assert index.contents({"model.gguf": file}).hashes != before.hashes


def test_a_file_written_just_before_it_was_read_is_read_again(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    now = file.stat().st_ctime_ns + RACY_NS
    reads = Reads()
    for _ in range(2):
        index = ImportIndex(tmp_path / "store", lambda: now)
        index.keep("model", "8bit", index.contents({"model.gguf": file}, reads), "a" * 64, "model.gguf")
    assert reads.totals == [3, 3], "a clock that ticks slowly hides a second write"


def test_contents_lead_to_a_model_wherever_they_lie(tmp_path: Path) -> None:
    index = ImportIndex(tmp_path / "store")
    found = []
    for folder in ("one", "two", "three"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "model.gguf").write_bytes(b"x" if folder == "two" else b"o")
        found.append(index.contents({"model.gguf": tmp_path / folder / "model.gguf"}))
    index.keep("model", "8bit", found[0], "a" * 64, "one/model.gguf")
    assert index.model("model", "8bit", found[0]) == "a" * 64
    assert index.model("model", "8bit", found[2]) == "a" * 64, "a copy"
    assert index.model("model", "8bit", found[1]) is None, "another file of that name"
    assert index.model("model", "4bit", found[0]) is None
    assert index.model("other", "8bit", found[0]) is None
    assert index.sources() == {"a" * 64: ["one/model.gguf"]}


def test_a_copy_is_read_once_too_and_what_led_to_no_model_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "model.gguf").write_bytes(b"one")
    (tmp_path / "copy.gguf").write_bytes(b"one")
    index, reads = later(tmp_path / "store"), Reads()
    index.contents({"model.gguf": tmp_path / "model.gguf"})
    assert not (tmp_path / "store").exists()
    index.keep("model", "8bit", index.contents({"m": tmp_path / "model.gguf"}, reads), "a" * 64, "model.gguf")
    for _ in range(2):
        assert index.model("model", "8bit", index.contents({"m": tmp_path / "copy.gguf"}, reads)) == "a" * 64
    assert reads.totals == [3, 3]


def test_another_importer_imports_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    index, contents = ImportIndex(tmp_path / "store"), Contents((("a", "0" * 64),))
    index.keep("model", "8bit", contents, "a" * 64, "model")
    monkeypatch.setattr(import_index, "IMPORTER", import_index.IMPORTER + 1)
    assert index.model("model", "8bit", contents) is None


def test_a_file_that_changes_meanwhile_is_named(tmp_path: Path) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    index = ImportIndex(tmp_path / "store")
    contents = index.contents({"model.gguf": file})
    contents.check()
    file.write_bytes(b"more")
    with pytest.raises(CorruptModel, match=r"model\.gguf changed while it was imported"):
        contents.check()
    with pytest.raises(CorruptModel, match=r"model\.gguf changed while it was imported"):
        index.contents({"model.gguf": file}, lambda *_: file.write_bytes(b"even more"))
    file.unlink()
    with pytest.raises(NoSuchModel, match=r"model\.gguf cannot be read: No such file"):
        index.contents({"model.gguf": file})


@pytest.mark.parametrize("damage", [b"", b"{", b"[]", b"[" * 100_000, b'{"model": 3, "sha256": 3}'])
def test_a_damaged_index_costs_a_read_only(tmp_path: Path, damage: bytes) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    index = later(tmp_path / "store")
    contents = index.contents({"model.gguf": file})
    index.keep("model", "8bit", contents, "a" * 64, "model.gguf")
    for entry in (tmp_path / "store").rglob("*.json"):
        entry.write_bytes(damage)
    assert index.contents({"model.gguf": file}) == contents
    assert index.model("model", "8bit", contents) is None
    assert index.sources() == {}


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ (1 << at % 7)]) + data[at + 1 :],
    "zeroed": lambda data, at: data[:at] + bytes(1) + data[at + 1 :],
    "zeroed from here": lambda data, at: data[:at] + bytes(len(data) - at),
    "cut": lambda data, at: data[:at],
    "doubled": lambda data, at: data[:at] + data,
}


@pytest.mark.series
@pytest.mark.parametrize("how", DAMAGES)
def test_damage_anywhere_never_leads_to_another_model(
    how: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = tmp_path / "model.gguf"
    file.write_bytes(b"one")
    index = later(tmp_path / "store")
    contents = index.contents({"model.gguf": file})
    index.keep("model", "8bit", contents, "a" * 64, "model.gguf")
    for entry in (tmp_path / "store").rglob("*.json"):
        right = entry.read_bytes()
        for at in random.Random(20261129).sample(range(len(right)), seeds(len(right))):
            spoilt = DAMAGES[how](right, at)
            entry.write_bytes(spoilt)
            caplog.clear()
            assert index.contents({"model.gguf": file}) == contents, at
            assert index.model("model", "8bit", contents) in (None, "a" * 64), at
            for aside in entry.parent.glob("*.aside-*"):
                assert aside.read_bytes() == spoilt
                assert f"{entry} is damaged: it is {aside.name} now" in caplog.text
                aside.unlink()
            entry.write_bytes(right)
    assert index.model("model", "8bit", contents) == "a" * 64


def test_a_disk_that_refuses_does_not_end_an_import(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "imports").write_text("in the way")
    (tmp_path / "model.gguf").write_bytes(b"one")
    index = ImportIndex(tmp_path / "store")
    contents = index.contents({"model.gguf": tmp_path / "model.gguf"})
    index.keep("model", "8bit", contents, "a" * 64, "model.gguf")
    assert index.model("model", "8bit", contents) is None
