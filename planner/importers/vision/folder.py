"""How a Hugging Face folder of a model that sees reads: towers as an ONNX file, and the decoder that they belong to.

Towers alone (ViT, DINOv2), towers for pictures and texts (CLIP, SigLIP), and decoders with a tower and a projector
(LLaVA, Idefics3, SmolVLM, Qwen2-VL, Qwen2.5-VL). Everything else is refused, tensors without a place included.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture
from planner.importers.hf_config import Json, Numbers, read_json, tokenizer_of
from planner.importers.layout import check_tensors
from planner.importers.onnx.asked import PictureSource, SourceGraph
from planner.importers.safetensors import FolderTensor, SafetensorsModel, open_tensors, read_files
from planner.importers.vision import texts
from planner.importers.vision.blocks import activated, linear
from planner.importers.vision.configs import activation_of, tower_numbers
from planner.importers.vision.graph_file import WEIGHTS, Floats, GraphFile, float_value, token_value
from planner.importers.vision.preparing import FILE as PREPARING
from planner.importers.vision.preparing import Preparing, picture_graph, preparing_of
from planner.importers.vision.qwen import MOST_POSITIONS, qwen_numbers, qwen_rows
from planner.importers.vision.tower import (
    TowerNumbers,
    first_row,
    probe_shapes,
    probed,
    tower,
    without_first,
)
from planner.model.graph_manifest import MAX_POSITIONS
from planner.model.manifest import MOST_AXES, Sight

PIXELS: Final = "pixel_values"
TOKENS: Final = "input_ids"
PICTURES: Final = 2  # with which the import is tried
SQUARES: Final = (6, 10)  # of a picture that keeps its form, likewise
TEXTS: Final = (("texts", 3), ("tokens", 8))
COMPARING: Final = ("clip", "siglip")
SEEING: Final = ("vit", "dinov2")
QWEN: Final = ("qwen2_vl", "qwen2_5_vl")
TALKING: Final = ("llava", "idefics3", "smolvlm", *QWEN)
KNOWN: Final = (*TALKING, *COMPARING, *SEEING)
REFUSED: Final = (
    "qwen3_vl",
    "llava_next",
    "llava_onevision",
    "mllama",
    "paligemma",
    "idefics2",
)
FOLDER_FILES: Final = (PREPARING, "processor_config.json")
_HARMLESS: Final = re.compile(r".*(position_ids|mask_token|rotary_emb\.inv_freq)")
_TEXT_USUAL: Final[
    Mapping[str, Mapping[str, object]]
] = {  # what transformers takes where a config leaves it out
    "llama": {
        "hidden_size": 4096,
        "intermediate_size": 11008,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "vocab_size": 32000,
        "max_position_embeddings": 2048,
    },
    "qwen2": {
        "hidden_size": 8192,
        "intermediate_size": 29568,
        "num_hidden_layers": 80,
        "num_attention_heads": 64,
        "num_key_value_heads": 8,
        "vocab_size": 152064,
        "max_position_embeddings": 32768,
        "rope_theta": 1000000.0,
        "rms_norm_eps": 1e-5,
    },
    "mistral": {
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 32000,
        "max_position_embeddings": 131072,
        "sliding_window": 4096,
    },
}

Files = Mapping[str, FolderTensor]
Write = Callable[[GraphFile], tuple[tuple[str, ...], "Outputs"]]


@dataclass(frozen=True, slots=True)
class Outputs:
    """What the graph of a model gives, by name and shape; and which of it is what (planner.model.graph_manifest)."""

    shapes: Mapping[str, tuple[int | str, ...]]
    rows: str | None = None
    vectors: tuple[str, str] | None = None
    scores: str | None = None


@dataclass(frozen=True, slots=True)
class SourceVision:
    """A folder that was opened. `size`: pixels of the square that it takes. `text`: of which all texts are as long as
    `length`, where that is set. `decoder`, `sight`: what answers in words, and how it is given pictures, the id of the
    graph left out.
    """

    name: str
    preparing: Preparing
    write: Write
    tokenizer: Path | None = None
    text_axis: int | str | None = None
    longest: int = 0
    pad: int | None = None
    decoder: SafetensorsModel | None = None
    sight: Sight | None = None

    @contextmanager
    def graph(self, scratch: Path) -> Iterator[SourceGraph]:
        """The ONNX file of towers and projector, as long as the block lasts. Raises CorruptModel."""
        with TemporaryDirectory(prefix="vision-", dir=scratch) as made:
            folder = Path(made)
            with (folder / WEIGHTS).open("wb") as weights:
                graph = GraphFile(folder, self.name, weights)
                inputs, outputs = self.write(graph)
            sides = self.preparing.sides
            given = {PIXELS: float_value(PIXELS, "pictures", 3, *sides)}
            square = self.preparing.size
            free = zip(sides, SQUARES, strict=True)
            tried = [(side, square * count) for side, count in free if isinstance(side, str)]
            if self.text_axis is not None:
                given[TOKENS] = token_value(TOKENS, "texts", self.text_axis)
            shown = [float_value(name, *shape) for name, shape in outputs.shapes.items()]
            path = graph.finish([given[name] for name in inputs], shown)
            tried += TEXTS if isinstance(self.text_axis, str) else TEXTS[:1] if self.text_axis else ()
            yield SourceGraph(
                path,
                self.name,
                sizes=(("pictures", PICTURES), *tried),
                tokenizer=self.tokenizer,
                longest=self.longest,
                pad=self.pad,
                picture=PictureSource(
                    picture_graph(self.preparing), PIXELS, outputs.rows, outputs.vectors, outputs.scores
                ),
            )


def is_vision(folder: Path) -> bool:
    """Whether the folder says that it holds a model that sees."""
    config = read_json(folder, "config.json")
    kind = config.get("model_type") if config is not None else None
    return kind in (*KNOWN, *REFUSED)


def open_vision(folder: Path, name: str | None = None) -> SourceVision:
    """Raises a ModelError that says what was expected."""
    config = read_json(folder, "config.json")
    if config is None:
        raise NoSuchModel(f"{folder} has no config.json: expected a Hugging Face model folder")
    kind, called = config.get("model_type"), name or folder.resolve().name
    if kind in REFUSED:
        known = ", ".join(KNOWN)
        raise UnknownArchitecture(
            f"{folder.name}: model_type {kind!r} is not supported; models that see here are {known}"
        )
    read = read_json(folder, PREPARING)
    if read is None:  # newer exports have it inside another file
        inner = (read_json(folder, FOLDER_FILES[1]) or {}).get("image_processor")
        read = inner if isinstance(inner, dict) else None
    opened = _Folder(folder, called, config, read_files(folder, _HARMLESS), read)
    if kind in SEEING:
        return _seeing(opened, str(kind))
    if kind in COMPARING:
        return _comparing(opened, clip=kind == "clip")
    if kind in QWEN:
        return _qwen(opened, newer=kind == "qwen2_5_vl")
    return _llava(opened) if kind == "llava" else _idefics(opened)


@dataclass(frozen=True, slots=True)
class _Folder:
    path: Path
    name: str
    config: Json
    files: Files
    preparing: Json | None

    @property
    def where(self) -> str:
        return self.path.name

    def said(self, key: str = "") -> Numbers:
        """The numbers of config.json, or of an object in it."""
        if not key:
            return Numbers(self.config, self.where)
        inner = self.config.get(key)
        if not isinstance(inner, dict):
            raise CorruptModel(f"{self.where}: config.json should have an object {key}")
        return Numbers(inner, f"{self.where}: {key}")

    def check(self, shapes: Mapping[str, tuple[int, ...]], besides: Callable[[str], bool]) -> None:
        """Raises unless all tensors are there in these shapes, and no others but those `besides` knows."""

        def shape(name: str) -> tuple[int, ...] | None:
            return None if name not in self.files else self.files[name].shape

        check_tensors(dict(shapes), shape, lambda name: name, self.where)
        for stranger in sorted(self.files.keys() - shapes.keys()):
            if not besides(stranger):
                raise UnknownArchitecture(
                    f"{self.where}: tensor {stranger[:80]} has no place in this model as known here; this variant "
                    "is not supported"
                )

    def weights(self, prefix: str) -> Callable[[str], Floats]:
        """Tensors by their names behind `prefix`."""
        return lambda name: self.files[prefix + name].float32()

    def prefix(self, end: str) -> str:
        """What stands before the name `end` of a tensor of the vision tower."""
        found = [name.removesuffix(end) for name in self.files if name.endswith(end) and "text" not in name]
        if len(found) != 1:
            raise CorruptModel(f"{self.where}: one tensor …{end} expected, found {len(found)}")
        return found[0]


def _placed(prefix: str, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    return {prefix + name: shape for name, shape in shapes.items()}


def _side(said: Json | None, otherwise: int) -> int:
    """The side of the square that a preprocessor makes."""
    for key in ("crop_size", "size"):
        value = (said or {}).get(key)
        side = value.get("height") if isinstance(value, dict) else value
        if isinstance(side, int) and 0 < side <= 4096:
            return side
    return otherwise


# --- towers alone -----------------------------------------------------------------------------------------


def _seeing(f: _Folder, kind: str) -> SourceVision:
    """ViT and DINOv2: the rows of a picture, one vector, and the logits of labels where there is a classifier."""
    said = f.said()
    dino = kind == "dinov2"
    n = tower_numbers(said, kind, _side(f.preparing, said.whole("image_size", 224)) if dino else None)
    prefix, h = f.prefix(f"{n.patches}.weight"), n.blocks.hidden
    shapes = _placed(prefix, n.shapes(n.blocks.blocks))
    pooler, classifier = f"{prefix}pooler.dense", "classifier"
    labels = f.files[f"{classifier}.weight"].shape[:1] if f"{classifier}.weight" in f.files else ()
    if f"{pooler}.weight" in f.files:
        shapes |= {f"{pooler}.weight": (h, h), f"{pooler}.bias": (h,)}
    if labels:
        shapes |= {f"{classifier}.weight": (*labels, h * (1 + dino)), f"{classifier}.bias": labels}
    f.check(shapes, lambda _: False)
    own, all_ = f.weights(prefix), f.weights("")

    def write(graph: GraphFile) -> tuple[tuple[str, ...], Outputs]:
        rows = tower(graph, n, own, PIXELS, n.blocks.blocks, last_norm=True)
        rows = graph.add("Identity", [rows], "rows")
        outputs: dict[str, tuple[int | str, ...]] = {"rows": ("pictures", n.rows, h)}
        row = first_row(graph, rows, "/vision/row")
        if f"{pooler}.weight" in f.files:
            read = linear(graph, row, "/vision/pooler", all_(f"{pooler}.weight"), all_(f"{pooler}.bias"))
            graph.add("Tanh", [read], "vector")
        else:
            graph.add("Identity", [row], "vector")
        outputs["vector"] = ("pictures", h)
        if labels:
            if dino:
                patches = without_first(graph, rows, "/vision/patches.only")
                over = graph.numbers("/place/1.on", [1])
                mean = graph.add("ReduceMean", [patches, over], "/vision/mean", keepdims=0)
                row = graph.add("Concat", [row, mean], "/vision/both", axis=1)
            weight, bias = all_(f"{classifier}.weight"), all_(f"{classifier}.bias")
            made = linear(graph, row, "/vision/classifier", weight, bias)
            graph.add("Identity", [made], "logits")
            outputs["logits"] = ("pictures", *labels)
        return (PIXELS,), Outputs(outputs)

    return SourceVision(f.name, preparing_of(f.preparing, n.image, f.where), write)


# --- towers for pictures and texts ------------------------------------------------------------------------


def _comparing(f: _Folder, *, clip: bool) -> SourceVision:
    """CLIP and SigLIP: vectors of pictures and of texts, and how well each pair fits."""
    n = tower_numbers(f.said("vision_config"), "clip_vision_model" if clip else "siglip_vision_model")
    width = f.said().whole("projection_dim", 512) if clip else n.blocks.hidden
    r = texts.reader_numbers(f.said("text_config"), clip, width)
    h = n.blocks.hidden
    shapes = {
        **_placed("vision_model.", n.shapes(n.blocks.blocks)),
        **_placed("text_model.", r.shapes()),
        "logit_scale": f.files["logit_scale"].shape if "logit_scale" in f.files else (),
        f"{r.head}.weight": (r.width, r.blocks.hidden),
    }
    if clip:
        shapes["visual_projection.weight"] = (width, h)
    else:
        shapes |= _placed("vision_model.", probe_shapes(n.blocks)) | {
            "logit_bias": (1,),
            f"{r.head}.bias": (r.width,),
        }
        if r.width != h:
            raise CorruptModel(f"{f.where}: vectors of texts of {h} numbers expected, got {r.width}")
    f.check(shapes, lambda _: False)
    if f.files["logit_scale"].shape not in ((), (1,)):
        raise CorruptModel(f"{f.where}: one number expected as logit_scale")
    see, read, all_ = f.weights("vision_model."), f.weights("text_model."), f.weights("")

    def write(graph: GraphFile) -> tuple[tuple[str, ...], Outputs]:
        rows = tower(graph, n, see, PIXELS, n.blocks.blocks, last_norm=not clip)
        if clip:
            row = texts_norm(graph, n, see, first_row(graph, rows, "/vision/row"))
            picture = texts.projected(graph, row, "/vision/projection", all_, "visual_projection", bias=False)
        else:
            picture = probed(graph, n, see, rows)
        row = texts.reader(graph, r, read, TOKENS)
        text = texts.projected(graph, row, "/text/projection", all_, r.head, bias=not clip)
        scale = float(all_("logit_scale").reshape(-1)[0])
        bias = None if clip else float(all_("logit_bias")[0])
        seen, said, scores = texts.compared(graph, picture, text, scale, bias)
        shapes: dict[str, tuple[int | str, ...]] = {
            seen: ("pictures", r.width),
            said: ("texts", r.width),
            "logits": ("pictures", "texts"),
            scores: ("pictures", "texts"),
        }
        return (PIXELS, TOKENS), Outputs(shapes, vectors=(seen, said), scores=scores)

    tokenizer_of(f.path, r.vocab)
    pad = f.said("text_config").whole("pad_token_id", 1)
    return SourceVision(
        f.name,
        preparing_of(f.preparing, n.image, f.where),
        write,
        f.path / "tokenizer.json",
        r.length if r.filled else "tokens",
        r.length,
        pad if pad < r.vocab else 0,
    )


def texts_norm(graph: GraphFile, n: TowerNumbers, weights: Callable[[str], Floats], row: str) -> str:
    """CLIP's norm of the one row of a picture that is kept."""
    both = [
        graph.weight(f"/vision/last_norm.{kind}", weights(f"post_layernorm.{kind}"))
        for kind in ("weight", "bias")
    ]
    return graph.add(
        "LayerNormalization", [row, *both], "/vision/last_norm", axis=-1, epsilon=n.blocks.epsilon
    )


# --- decoders that see ------------------------------------------------------------------------------------


def _decoder(f: _Folder, prefixes: Mapping[str, str], known: Callable[[str], bool]) -> SafetensorsModel:
    """The decoder of a folder. `prefixes`: how its tensors are called, and how the decoder's family calls them;
    `known`: names of tensors that are not its.
    """
    text = f.config.get("text_config")
    if not isinstance(text, dict):
        raise CorruptModel(f"{f.where}: config.json should have an object text_config")
    usual = _TEXT_USUAL.get(str(text.get("model_type")), {})
    tied = f.config.get("tie_word_embeddings")
    config = {**usual, **({"tie_word_embeddings": tied} if isinstance(tied, bool) else {}), **text}
    found: dict[str, FolderTensor] = {}
    for name, tensor in f.files.items():
        if known(name):
            continue
        before = next((each for each in prefixes if name.startswith(each)), None)
        found[name if before is None else prefixes[before] + name.removeprefix(before)] = tensor
    if "lm_head.weight" not in found:
        config["tie_word_embeddings"] = True
    ids = {key: f.config[key] for key in ("bos_token_id", "eos_token_id") if key in f.config}
    return open_tensors(f.path, f.name, {**config, **ids}, found)


def _picture_token(f: _Folder, keys: tuple[str, ...], vocab: int) -> int:
    said = f.said()
    found = next((said.whole(key) for key in keys if key in f.config), None)
    if found is None or found >= vocab:
        raise CorruptModel(
            f"{f.where}: config.json should name the token of a picture ({keys[0]}), below {vocab}"
        )
    return found


def _llava(f: _Folder) -> SourceVision:
    said, vision = f.said(), f.said("vision_config")
    kind = vision.word("model_type", "clip_vision_model")
    if kind not in ("clip_vision_model", "siglip_vision_model"):
        raise UnknownArchitecture(f"{f.where}: a tower of CLIP or SigLIP expected, got {kind[:80]!r}")
    n = tower_numbers(vision, kind)
    layer = f.config.get("vision_feature_layer", -2)
    if (
        not isinstance(layer, int)
        or isinstance(layer, bool)
        or not -n.blocks.blocks <= layer <= n.blocks.blocks
    ):
        raise UnknownArchitecture(
            f"{f.where}: vision_feature_layer of one number expected, got {str(layer)[:40]}"
        )
    used = layer if layer >= 0 else n.blocks.blocks + 1 + layer
    select = said.word("vision_feature_select_strategy", "default")
    if select not in ("default", "full"):
        raise UnknownArchitecture(
            f"{f.where}: vision_feature_select_strategy {select[:40]!r} is not supported"
        )
    positions = n.rows - (select == "default")
    prefix, h = f.prefix(f"{n.patches}.weight"), n.blocks.hidden
    projector = f.prefix("multi_modal_projector.linear_1.weight") + "multi_modal_projector."
    decoder = _decoder(
        f,
        {"language_model.": "", "model.language_model.": "model."},
        lambda name: name.startswith((prefix, projector)),
    )
    hidden = decoder.architecture.hidden
    shapes = _placed(prefix, n.shapes(n.blocks.blocks))
    bias = said.flag("multimodal_projector_bias", True)
    for which, wide in (("linear_1", h), ("linear_2", hidden)):
        shapes[f"{projector}{which}.weight"] = (hidden, wide)
        if bias:
            shapes[f"{projector}{which}.bias"] = (hidden,)
    unused = {
        name: shape for name, shape in shapes.items() if name.startswith(f"{prefix}post_layernorm")
    }  # of a row that is not read
    f.check(
        {name: shape for name, shape in shapes.items() if name not in unused},
        lambda name: (
            name in unused or not name.startswith((prefix, projector)) or name.startswith(f"{prefix}head.")
        ),
    )
    own, all_ = f.weights(prefix), f.weights(projector)
    activation = Numbers({"hidden_act": f.config.get("projector_hidden_act", "gelu")}, f.where)
    act = activation_of(activation, "gelu")

    def write(graph: GraphFile) -> tuple[tuple[str, ...], Outputs]:
        rows = tower(graph, n, own, PIXELS, used, last_norm=False)
        if select == "default":
            rows = without_first(graph, rows, "/vision/patches.only")
        first = linear(
            graph,
            rows,
            "/projector/linear_1",
            all_("linear_1.weight"),
            all_("linear_1.bias") if bias else None,
        )
        wide = activated(graph, first, "/projector/wide", act)
        made = linear(
            graph,
            wide,
            "/projector/linear_2",
            all_("linear_2.weight"),
            all_("linear_2.bias") if bias else None,
        )
        graph.add("Identity", [made], "rows")
        return (PIXELS,), Outputs({"rows": ("pictures", positions, hidden)}, rows="rows")

    token = _picture_token(f, ("image_token_index", "image_token_id"), decoder.architecture.vocab)
    sight = Sight("", token, positions)
    return SourceVision(
        f"{f.name}.sight",
        preparing_of(f.preparing, n.image, f.where),
        write,
        decoder=decoder,
        sight=_checked(sight, f.where),
    )


def _idefics(f: _Folder) -> SourceVision:
    """Idefics3 and SmolVLM: each picture whole, as one tile."""
    said, vision = f.said(), f.said("vision_config")
    n = tower_numbers(vision, vision.word("model_type", "idefics3_vision"))
    factor = said.whole("scale_factor", 2)
    if not 0 < factor <= n.side or n.side % factor:
        raise CorruptModel(f"{f.where}: a scale_factor that divides {n.side} expected, got {factor}")
    positions, h = (n.side // factor) ** 2, n.blocks.hidden
    prefix = f.prefix(f"{n.patches}.weight")
    connector = f.prefix("connector.modality_projection.proj.weight") + "connector.modality_projection.proj."
    decoder = _decoder(
        f,
        {"model.text_model.": "model.", "text_model.": "model."},
        lambda name: name.startswith((prefix, connector)),
    )
    hidden = decoder.architecture.hidden
    shapes = _placed(prefix, n.shapes(n.blocks.blocks)) | {f"{connector}weight": (hidden, h * factor**2)}
    f.check(shapes, lambda name: not name.startswith((prefix, connector)))
    own, all_ = f.weights(prefix), f.weights(connector)

    def write(graph: GraphFile) -> tuple[tuple[str, ...], Outputs]:
        rows, side, at = (
            tower(graph, n, own, PIXELS, n.blocks.blocks, last_norm=True),
            n.side,
            "/projector/shuffle",
        )
        steps = (
            ([0, side, side // factor, h * factor], (0, 2, 1, 3)),
            ([0, side // factor, side // factor, h * factor**2], (0, 2, 1, 3)),
        )
        for step, (shape, order) in enumerate(steps):
            split = graph.add("Reshape", [rows, graph.numbers(f"{at}.{step}", shape)], f"{at}/{step}.split")
            rows = graph.add("Transpose", [split], f"{at}/{step}.turned", perm=order)
        whole = graph.numbers(f"{at}.whole", [0, positions, h * factor**2])
        rows = graph.add("Reshape", [rows, whole], f"{at}/whole")
        graph.add("Identity", [linear(graph, rows, "/projector/proj", all_("weight"))], "rows")
        return (PIXELS,), Outputs({"rows": ("pictures", positions, hidden)}, rows="rows")

    _, tokenizer = tokenizer_of(f.path, decoder.architecture.vocab)
    fake = tokenizer.token_to_id("<fake_token_around_image>")
    whole = tokenizer.token_to_id("<global-img>")
    around = tuple(each for each in (fake, whole) if each is not None)
    token = _picture_token(f, ("image_token_id",), decoder.architecture.vocab)
    sight = Sight("", token, positions, around, around[:1] if fake is not None else ())
    return SourceVision(
        f"{f.name}.sight",
        preparing_of(f.preparing, n.image, f.where),
        write,
        decoder=decoder,
        sight=_checked(sight, f.where),
    )


def _qwen(f: _Folder, *, newer: bool) -> SourceVision:
    """Qwen2-VL and 2.5: pictures keep their form, and places of tokens have three axes."""
    n = qwen_numbers(f.said("vision_config"), newer=newer)
    prefix = f.prefix("patch_embed.proj.weight")
    text = f.config.get("text_config", f.config)  # older folders have the decoder's numbers among all others
    if not isinstance(text, dict):
        raise CorruptModel(f"{f.where}: config.json should have an object text_config")
    axes, text = _axes(text, f.where)
    decoder = _decoder(
        replace(f, config={**f.config, "text_config": {**text, "model_type": "qwen2"}}),
        {"model.language_model.": "model.", "language_model.model.": "model.", "language_model.": ""},
        lambda name: name.startswith(prefix),
    )
    a = decoder.architecture
    if sum(axes) * 2 != a.head_size:
        raise CorruptModel(
            f"{f.where}: mrope_section of {a.head_size // 2} pairs expected, got {', '.join(map(str, axes))}"
        )
    if n.width != a.hidden:
        raise CorruptModel(f"{f.where}: a tower of rows of {a.hidden} numbers expected, got {n.width}")
    f.check(_placed(prefix, n.shapes()), lambda name: not name.startswith(prefix))
    own = f.weights(prefix)

    def write(graph: GraphFile) -> tuple[tuple[str, ...], Outputs]:
        graph.add("Identity", [qwen_rows(graph, n, own, PIXELS)], "rows")
        return (PIXELS,), Outputs({"rows": ("pictures", "positions", n.width)}, rows="rows")

    token = _picture_token(f, ("image_token_id",), a.vocab)
    sight = Sight("", token, MOST_POSITIONS, square=n.square, axes=len(axes))
    return SourceVision(
        f"{f.name}.sight",
        preparing_of(f.preparing, n.square, f.where, MOST_POSITIONS),
        write,
        decoder=replace(decoder, architecture=replace(a, axes=axes)),
        sight=_checked(sight, f.where),
    )


def _axes(text: Json, where: str) -> tuple[tuple[int, ...], Json]:
    """How many pairs of a head each axis of a place turns, and the config without that."""
    for key in ("rope_parameters", "rope_scaling"):
        said = text.get(key)
        if not isinstance(said, dict):
            continue
        axes = said.get("mrope_section", [16, 24, 24])
        whole = isinstance(axes, list) and all(type(each) is int and 0 < each <= 512 for each in axes)
        kind = said.get("rope_type", said.get("type", "default"))
        if not whole or len(axes) != MOST_AXES or kind not in ("default", "mrope"):
            raise UnknownArchitecture(
                f"{where}: mrope_section of {MOST_AXES} numbers without scaling expected, got {str(said)[:120]}"
            )
        plain = {name: value for name, value in said.items() if name == "rope_theta"}
        return tuple(axes), {**text, key: plain}
    raise CorruptModel(f"{where}: config.json should say mrope_section")


def _checked(sight: Sight, where: str) -> Sight:
    if not 0 < sight.positions <= MAX_POSITIONS:
        raise CorruptModel(
            f"{where}: 1 to {MAX_POSITIONS} positions of a picture expected, got {sight.positions}"
        )
    return sight
