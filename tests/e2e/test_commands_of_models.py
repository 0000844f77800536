"""What people do with models that are graphs, by commands alone: three processes, texts, shared weights, a picture."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tokenizers import Tokenizer

from peer.cli.main import main
from planner.importers.encoders.file import encoder_file
from planner.importers.encoders.folder import open_encoder
from planner.model.graph_manifest import decode_graph_manifest
from planner.model.store import Store
from tests.e2e.command import ROOT, environment, running
from tests.e2e.real_models import IN_THE_PICTURE
from tests.patience import WITHIN_S, soon
from tests.planner.plain_bert import TinyBert, plain_bert

TEXTS = ("blue sky", "a mesh of", "peers", "mesh answers")  # few words: what a tiny tokenizer allows
LOOKS = 200
READERS = ("ppocr-v4-det", "ppocr-v4-cls", "ppocr-v4-rec")


@contextmanager
def three_processes(home: Path, *models: object) -> Iterator[str]:
    """The link of a mesh that runs these models, a founder and two that joined, each with a thread
    and a store of its own.
    """
    here = ("--bind", "127.0.0.1", "--memory", "2GiB", "--threads", "1")
    kept = ("--keep", "--state", home / "state", "--store", home / "store")
    with ExitStack() as stack:
        founder = stack.enter_context(running(home, "serve", *models, *here, *kept, "--port", "0"))
        link = founder.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        for name in ("left", "right"):
            apart = ("--store", home / name, "--state", home / f"{name}-state", "--name", name)
            stack.enter_context(running(home, "join", link, *here, *apart))
        yield link


class Shoal:
    """Commands that end, in this process: each of its own would take its imports, a second, every time."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    def __call__(self, *words: object) -> str:
        """What the command prints, once it ended well."""
        self._capsys.readouterr()
        status = main(list(map(str, words)))
        said = self._capsys.readouterr()
        assert status == 0, said.err
        return said.out

    def status(self, link: str, *more: str) -> str:
        return self("status", link, *more, "--store", self.home / "asker")

    def until(self, link: str, holds: Callable[[dict[str, Any]], bool]) -> dict[str, Any]:
        """The status as soon as that holds of it."""
        for _ in range(LOOKS):
            shown: dict[str, Any] = json.loads(self.status(link, "--json"))
            if holds(shown):
                return shown
        raise AssertionError(f"not in {LOOKS} looks: {json.dumps(shown)}")


@pytest.fixture
def shoal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Shoal:
    return Shoal(tmp_path, capsys)


def exported(folder: Path, source: Path, name: str) -> Path:
    """An embedding model as an exporter writes it: an ONNX file with its weights and its tokenizer beside it."""
    store = Store(folder / "made")
    target = folder / name
    target.mkdir()
    with encoder_file(open_encoder(source, name), store) as file:
        for path in file.source.parent.iterdir():
            shutil.copyfile(path, target / path.name)
    shutil.copyfile(source / "tokenizer.json", target / "tokenizer.json")
    return target / "encoder.onnx"


def weights_of(shown: dict[str, Any]) -> dict[str, int]:
    """What each peer says that the weights occupy that it has loaded, bytes."""
    return {each["peer"]: each["report"]["weight_bytes"] for each in shown["members"] if each["report"]}


def placed(shown: dict[str, Any], *names: str) -> bool:
    """Whether three processes lend, these models have places, and whoever holds units of them has loaded weights."""
    offers = {each["name"]: each["stages"] for each in shown["offers"]}
    holders = {
        peer
        for stages in offers.values()
        for stage in stages
        for peer in (stage["primary"], *stage["standbys"])
    }
    loaded = weights_of(shown)
    lend = sum(each["surroundings"] is not None for each in shown["members"])
    return lend == 3 and all(offers.get(name) for name in names) and all(loaded.get(peer) for peer in holders)


def imported(shoal: Shoal, file: Path, name: str) -> str:
    """The id of the model."""
    sizes = ("--size", "batch=2", "--size", "length=8")
    return shoal("import", file, "--name", name, *sizes, "--store", shoal.home / "store").split()[-1]


def assert_texts_are_read_and_equal_weights_are_held_once(shoal: Shoal, source: Path) -> None:
    """Runs lines of text through the encoder of a folder, over each peer, and offers it again under another name."""
    home = shoal.home
    file = exported(home, source, "sentences")
    first = imported(shoal, file, "sentences")
    (home / "lines.txt").write_text("\n".join(TEXTS))
    tokenizer = Tokenizer.from_file(str(source / "tokenizer.json"))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    expected = plain_bert(source, *(tokenizer.encode(text).ids for text in TEXTS))
    with three_processes(home, first) as link:
        alone = shoal.until(link, lambda shown: placed(shown, "sentences"))
        assert alone["saved"] == {"stored_bytes": 0, "sent_bytes": 0, "loaded_bytes": 0, "unknown": []}

        def vectors(model: str) -> np.ndarray[Any, Any]:
            where = ("--store", home / "asker", "--out", home / model)
            shoal("run", link, model, "--input", home / "lines.txt", *where)
            with np.load(home / model / "lines.npz") as found:
                (array,) = found.values()
                return np.asarray(array)

        found = vectors("sentences")
        np.testing.assert_allclose(found, expected, atol=1e-5)
        second = imported(shoal, file, "paragraphs")
        assert second != first
        shoal("offer", link, second, "--store", home / "store", "--state", home / "state")
        np.testing.assert_array_equal(vectors("paragraphs"), found)
        both = shoal.until(link, lambda shown: placed(shown, "sentences", "paragraphs"))
        assert_saved(Store(home / "store"), both)
        assert "weights that models share save" in shoal.status(link, "--once")


def assert_saved(store: Store, shown: dict[str, Any]) -> None:
    """That the status says what two offers of equal weights save, and that peers that hold them hold them once."""
    offers = {each["name"]: each for each in shown["offers"]}
    units = decode_graph_manifest(store.manifest_bytes(offers["paragraphs"]["model_id"])).units
    one, other = (
        {
            (peer, stage["first"], stage["stop"])
            for stage in offers[name]["stages"]
            for peer in (stage["primary"], *stage["standbys"])
        }
        for name in ("sentences", "paragraphs")
    )
    assert one & other

    def stored(spans: set[tuple[str, int, int]], peer: str = "") -> dict[str, int]:
        """Bytes by blob, of what all peers have of these or that one."""
        return {
            blob.sha256: blob.bytes
            for holder, first, stop in spans
            if peer in ("", holder)
            for unit in units[first:stop]
            for blob in (unit.graph, *unit.weights)
        }

    peers = {peer for peer, *_ in one | other}
    common = {peer: stored(one, peer).keys() & stored(other, peer).keys() for peer in peers}
    resident = sum(unit.resident_bytes for _, first, stop in one & other for unit in units[first:stop])
    saved = shown["saved"]
    assert saved["stored_bytes"] == sum(stored(one).values())
    assert saved["sent_bytes"] == sum(stored(one, peer)[name] for peer in peers for name in common[peer])
    assert saved["loaded_bytes"] == resident
    loaded = weights_of(shown)
    for peer in peers:
        if {span for span in one if span[0] == peer} == {span for span in other if span[0] == peer}:
            assert loaded[peer] <= 1.1 * sum(stored(one, peer).values())


def test_texts_are_read_and_equal_weights_are_held_once(tmp_path: Path, shoal: Shoal) -> None:
    assert_texts_are_read_and_equal_weights_are_held_once(shoal, TinyBert().write(tmp_path / "tiny"))


@pytest.mark.soak
def test_texts_are_read_by_a_real_model_whose_weights_are_held_once(
    minilm_folder: Path, shoal: Shoal
) -> None:
    assert_texts_are_read_and_equal_weights_are_held_once(shoal, minilm_folder)


@pytest.mark.soak
def test_the_example_reads_a_picture_over_three_processes(
    graph_file: Callable[[str], Path], tmp_path: Path, shoal: Shoal
) -> None:
    sources = tmp_path / ".cache" / "shoal" / "sources"
    sources.mkdir(parents=True)
    for name in READERS:
        file = graph_file(name)
        (sources / file.name).symlink_to(file)
    with three_processes(tmp_path, *READERS) as link:
        shoal.until(link, lambda shown: placed(shown, *READERS))
        done = subprocess.run(
            [sys.executable, ROOT / "examples" / "ocr.py", link],
            capture_output=True,
            text=True,
            timeout=soon(WITHIN_S),
            env=environment(tmp_path),
            check=False,
        )
    assert (done.returncode, done.stdout.splitlines()) == (0, list(IN_THE_PICTURE)), done.stderr
