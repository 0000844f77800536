"""Files become what a model takes; what cannot is refused by the name of the file."""

from __future__ import annotations

import json
import wave
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from peer.errors import BadCommand
from peer.launch.item_files import ItemFiles, Shown, has_texts, is_written, items_of, read_item, write_outputs
from peer.model.text_inputs import TextReader
from planner.model.graph_manifest import GraphManifest, Size, Value, ValueType, decode_graph_manifest

PLAIN = Shown()


def model(**inputs: tuple[ValueType, tuple[Size, ...]]) -> GraphManifest:
    values = tuple(Value(name, dtype, shape, ()) for name, (dtype, shape) in inputs.items())
    return GraphManifest("m", tuple(inputs), tuple(inputs), {}, values, ())


PICTURE = model(x=("float32", ("n", 3, "height", "width")))
VECTORS: Any = json.loads((Path(__file__).parents[2] / "vectors" / "text_inputs.json").read_text("utf-8"))
PAIR = model(ids=("int64", (1, "n")), mask=("int64", (1, "n")))


def item(**files: Path) -> ItemFiles:
    return ItemFiles("item", files)


def test_arrays_json_and_text_come_in_the_type_of_the_input(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.array([[1, 2]]))
    (tmp_path / "b.json").write_text("[[3, 4]]")
    (tmp_path / "c.txt").write_text("5\n6\n")
    np.savez(tmp_path / "d.npz", ids=np.array([[7]]), mask=np.array([[8]]))
    assert read_item(item(ids=tmp_path / "a.npy", mask=tmp_path / "b.json"), PAIR, PLAIN)[
        "mask"
    ].tolist() == [[3, 4]]
    found = read_item(item(ids=tmp_path / "c.txt", mask=tmp_path / "d.npz"), PAIR, PLAIN)
    assert found["ids"].dtype == np.int64
    assert (found["ids"].tolist(), found["mask"].tolist()) == ([[5, 6]], [[8]])
    (whole,) = items_of([str(tmp_path / "d.npz")], PAIR)
    assert {name: array.tolist() for name, array in read_item(whole, PAIR, PLAIN).items()} == {
        "ids": [[7]],
        "mask": [[8]],
    }


def test_lines_of_text_are_strings_where_the_model_takes_them(tmp_path: Path) -> None:
    (tmp_path / "words.txt").write_text("one\ntwo\n")
    found = read_item(item(words=tmp_path / "words.txt"), model(words=("string", (1, "n"))), PLAIN)
    assert found["words"].tolist() == [["one", "two"]]


def test_lines_of_text_become_all_inputs_where_the_model_says_how(tmp_path: Path) -> None:
    case = VECTORS["texts"][0]
    encoder = decode_graph_manifest(case["manifest"].encode())
    (tmp_path / "words.txt").write_text("\n".join(case["texts"]) + "\n")
    (tmp_path / "numbers.npz").write_bytes(b"")
    items = items_of([str(tmp_path / "words.txt")], encoder)
    assert has_texts(items)
    assert not has_texts(items_of([str(tmp_path / "numbers.npz")], encoder))
    found = read_item(items[0], encoder, PLAIN, TextReader(encoder, VECTORS["tokenizer"][0].encode()))
    assert {name: array.tolist() for name, array in found.items()} == case["arrays"]
    with pytest.raises(BadCommand, match=r"or a \.txt file with a text a line"):
        read_item(item(**{"": tmp_path / "words.json"}), encoder, PLAIN)
    named = items_of([f"{name}={tmp_path / 'words.txt'}" for name in encoder.inputs], encoder)
    assert not has_texts(named), "these are files of numbers"


@pytest.mark.parametrize(
    ("dtype", "shape", "wanted"),
    [
        ("float32", ("n", 3, "height", "width"), (1, 3, 20, 30)),
        ("float32", (3, "height", "width"), (3, 20, 30)),
        ("uint8", (1, "height", "width", 3), (1, 20, 30, 3)),
        ("float32", (1, 1, 8, 16), (1, 1, 8, 16)),
    ],
)
def test_pictures_take_the_axes_of_the_input(
    tmp_path: Path, dtype: ValueType, shape: tuple[Size, ...], wanted: tuple[int, ...]
) -> None:
    Image.new("RGB", (30, 20), (255, 0, 51)).save(tmp_path / "p.png")
    found = read_item(item(x=tmp_path / "p.png"), model(x=(dtype, shape)), PLAIN)["x"]
    assert found.shape == wanted
    assert found.dtype == np.dtype(dtype)
    if dtype == "uint8":
        assert found[0, 0, 0].tolist() == [255, 0, 51]


def test_pixels_are_scaled_and_open_sides_rounded(tmp_path: Path) -> None:
    Image.new("RGB", (70, 45), (255, 0, 51)).save(tmp_path / "p.png")
    shown = Shown(mean=(0.5, 0.5, 0.5), std=(0.5, 0.25, 1.0), multiple=32)
    found = read_item(item(x=tmp_path / "p.png"), PICTURE, shown)["x"]
    assert found.shape == (1, 3, 32, 64)
    np.testing.assert_allclose(found[0, :, 0, 0], [1.0, -2.0, -0.3], atol=1e-6)


def test_sound_is_one_channel_at_the_wanted_rate(tmp_path: Path) -> None:
    with wave.open(str(tmp_path / "s.wav"), "wb") as file:
        file.setnchannels(2)
        file.setsampwidth(2)
        file.setframerate(8000)
        tone = (np.sin(np.arange(8000) / 10) * 20000).astype("<i2")
        file.writeframes(np.stack([tone, tone], 1).tobytes())
    found = read_item(item(x=tmp_path / "s.wav"), model(x=("float32", (1, "n"))), PLAIN)["x"]
    assert found.shape[0] == 1
    assert abs(found.shape[1] - 16000) < 200
    assert 0.5 < np.abs(found).max() < 0.7


def test_items_are_named_by_their_files_and_one_file_is_for_all(tmp_path: Path) -> None:
    for name in ("b", "a", "c"):
        np.save(tmp_path / f"{name}.npy", np.zeros((1, 1), np.int64))
    np.save(tmp_path / "mask.npy", np.ones((1, 1), np.int64))
    found = items_of([f"ids={tmp_path}/[abc].npy", f"mask={tmp_path}/mask.npy"], PAIR)
    assert [each.name for each in found] == ["a", "b", "c"]
    assert {each.files["mask"].name for each in found} == {"mask.npy"}


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (["ids=a.npy"], "give --input mask=FILE, too"),
        (["ids=a.npy", "ids=a.npy"], "once"),
        (["what=a.npy"], "takes ids, mask"),
        (["ids=absent.npy"], "absent.npy"),
        (["ids=?.npy", "mask=??.npy"], "as many files"),
    ],
)
def test_inputs_that_do_not_fit_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b", "a1", "b1", "c1"):
        np.save(tmp_path / f"{name}.npy", np.zeros((1, 1), np.int64))
    with pytest.raises(BadCommand, match=said):
        items_of(given, PAIR)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("x.png", b"no picture"),
        ("x.npy", b"no array"),
        ("x.npz", b"no archive"),
        ("x.json", b"[[1, 2], [3]]"),
        ("x.json", b"[" * 100_000),
        ("x.wav", b"no sound"),
        ("x.bin", b"\0"),
        ("x.txt", b"words"),
    ],
)
def test_a_file_that_is_not_what_it_claims_is_named(tmp_path: Path, name: str, data: bytes) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(BadCommand, match=name):
        read_item(item(x=tmp_path / name), PICTURE, PLAIN)


def test_pickles_are_never_loaded(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.array([{"a": 1}], object), allow_pickle=True)
    with pytest.raises(BadCommand, match="x\\.npy"):
        read_item(item(x=tmp_path / "x.npy"), PICTURE, PLAIN)


def test_outputs_are_written_whole(tmp_path: Path) -> None:
    assert not is_written(tmp_path, "a")
    write_outputs(tmp_path, "a", {"y": np.arange(3), "words": np.array(["é"], object)})
    assert is_written(tmp_path, "a")
    assert np.load(tmp_path / "a.npz")["y"].tolist() == [0, 1, 2]
    assert json.loads((tmp_path / "a.json").read_text()) == {"words": ["é"]}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "a.npz"]
