"""What config.json and its neighbours in a Hugging Face folder say: numbers, tokenizer, chat template."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any, Final

from tokenizers import Tokenizer

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture, UnknownTokenizer
from planner.importers.architecture import MOST_COUNTS, Activation, Architecture, RopeScaling
from planner.importers.families.family import Family
from planner.importers.rotary import yarn_amplitude
from planner.importers.tokenizer import END_OF_TURN, chosen_by_tools, end_tokens
from planner.model.sources import TokenizerSource

_NO_KEYS: Final[Mapping[str, str]] = {}
CONFIG_LIMIT_BYTES = 64 << 20  # tokenizer.json of large vocabularies reaches some 20 MiB

Json = Mapping[str, Any]  # as parsed, before each value is checked on its way into a dataclass


def read_json(folder: Path, name: str) -> Json | None:
    """The object in a JSON file, None when there is no such file."""
    content = read_file(folder, name)
    if content is None:
        return None
    try:
        value = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise CorruptModel(f"{folder.name}: {name} is not JSON: download it again") from error
    if not isinstance(value, dict):
        raise CorruptModel(f"{folder.name}: {name} should be an object, is a {type(value).__name__}")
    return value


_PACKINGS: Final = ("mxfp4", "fp8")  # of weights that are read
ACTIVATIONS: Final[Mapping[str, Activation]] = {
    "silu": "silu",
    "swish": "silu",
    "gelu": "gelu",
    "gelu_new": "gelu_tanh",
    "gelu_fast": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
    "relu": "relu",
}


def architecture_from_config(
    config: Json, family: Family, tensors: Collection[str], where: str
) -> Architecture:
    """`tensors`: names in the weight files; they settle what the config leaves out (biases, tying)."""
    packing = config.get("quantization_config")
    if packing and not (isinstance(packing, dict) and packing.get("quant_method") in _PACKINGS):
        raise UnknownArchitecture(
            f"{where}: quantized exports are not supported: use the original or a GGUF file"
        )
    said = Numbers(config, where, family.folder.keys, tensors)
    heads = said.whole("num_attention_heads")
    hidden = said.whole("hidden_size")
    head_size = said.whole("head_dim", 0) or family.head_size or hidden // max(heads, 1)
    tied = config.get("tie_word_embeddings")
    if not isinstance(tied, bool):
        tied = family.folder.place("head.weight")[1] not in tensors
    base, scaling, part = _rope(said, family, where)
    if part != 1 and not family.partial:
        raise UnknownArchitecture(f"{where}: heads that rotate in part are not supported")
    architecture = Architecture(
        family=said.word("model_type", ""),
        blocks=said.whole("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=said.whole("num_key_value_heads", heads),
        head_size=head_size,
        ffn=said.whole("intermediate_size", family.ffn and family.ffn * hidden),
        vocab=said.whole("vocab_size"),
        context=said.whole("max_position_embeddings", family.context),
        norm_epsilon=said.real("rms_norm_eps", 1e-6),
        rope_base=base,
        rope_dims=head_size if part == 1 else int(min(head_size, MOST_COUNTS["head_size"]) * part),
        rope_scaling=scaling,
        rope_factors=None,
        qkv_bias=False,
        qk_norm=False,
        tied_embedding=tied,
        rope_amplitude=1.0 if scaling is None else scaling.amplitude,
        activation=_activation(said, family, where),
    )
    return family.folder.features(architecture, said)


def _activation(said: Numbers, family: Family, where: str) -> Activation:
    usual = next(name for name, known in ACTIVATIONS.items() if known == family.activations[0])
    called = said.word("hidden_act", usual)
    found = ACTIVATIONS.get(called)
    if found not in family.activations:
        raise UnknownArchitecture(
            f"{where}: expected hidden_act {usual}, got {called[:80]!r}; this variant is not supported"
        )
    assert found is not None
    return found


def tokenizer_from_folder(folder: Path, config: Json, vocab: int) -> TokenizerSource:
    """tokenizer.json as it is, with what tokenizer_config.json and generation_config.json say of its use."""
    content, tokenizer = tokenizer_of(folder, vocab)
    settings = read_json(folder, "tokenizer_config.json") or {}
    generation = read_json(folder, "generation_config.json") or {}

    def token_id(text: object) -> int | None:
        text = text.get("content") if isinstance(text, dict) else text
        return tokenizer.token_to_id(text) if isinstance(text, str) else None

    bos = token_id(settings.get("bos_token"))
    if bos is None:
        bos = next(iter(_ids(config.get("bos_token_id"), vocab)), None)
    stated = [token_id(settings.get("eos_token")), *_ids(generation.get("eos_token_id"), vocab)]
    well_known = {token for text in END_OF_TURN if (token := tokenizer.token_to_id(text)) is not None}
    return TokenizerSource(
        tokenizer_json=content,
        chat_template=_chat_template(folder, settings),
        bos_token=bos,
        end_tokens=end_tokens([*stated, *_ids(config.get("eos_token_id"), vocab)], well_known),
        add_bos=bos is not None and _adds_bos(tokenizer, settings, bos),
    )


def tokenizer_of(folder: Path, vocab: int) -> tuple[bytes, Tokenizer]:
    """tokenizer.json, read and as it is. `vocab`: rows of the embedding."""
    content = read_file(folder, "tokenizer.json")
    if content is None:
        raise UnknownTokenizer(
            f"{folder.name} has no tokenizer.json: save a fast tokenizer with transformers' save_pretrained"
        )
    return content, check_tokenizer(content, vocab, folder.name)


def check_tokenizer(content: bytes, vocab: int, where: str) -> Tokenizer:
    """A tokenizer.json, read. `vocab`: rows of the embedding. Raises UnknownTokenizer, CorruptModel."""
    try:
        tokenizer = Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # tokenizers raises bare Exception
        raise UnknownTokenizer(f"{where}: tokenizer.json cannot be read: {str(error)[:200]}") from error
    if tokenizer.get_vocab_size() > vocab:
        size = tokenizer.get_vocab_size()
        raise CorruptModel(f"{where}: {size} tokens do not fit into an embedding of {vocab} rows")
    return tokenizer


def _adds_bos(tokenizer: Tokenizer, settings: Json, bos: int) -> bool:
    stated = settings.get("add_bos_token")
    if isinstance(stated, bool):
        return stated
    return tokenizer.encode("a").ids[:1] == [bos]


def _chat_template(folder: Path, settings: Json) -> str | None:
    """As transformers finds it: files win over the setting; the one named tool_use is for questions with tools."""
    stated = settings.get("chat_template")
    named: dict[str, str] = {}
    if isinstance(stated, str):
        named["default"] = stated
    elif isinstance(stated, dict):
        named = {name: text for name, text in stated.items() if isinstance(text, str)}
    elif isinstance(stated, list):
        items = [item for item in stated if isinstance(item, dict)]
        named = {
            str(item.get("name")): item["template"] for item in items if isinstance(item.get("template"), str)
        }
    files = {"default": "chat_template.jinja", "tool_use": "additional_chat_templates/tool_use.jinja"}
    read = {name: read_file(folder, file) for name, file in files.items()}
    found = {
        name: content.decode("utf-8-sig", "replace").replace("\r\n", "\n").replace("\r", "\n")
        for name, content in read.items()
        if content is not None
    }
    named = found if "default" in found else {**named, **found}
    if not named:
        beside = (read_json(folder, "chat_template.json") or {}).get("chat_template")
        return beside if isinstance(beside, str) else None
    default = named.get("default", next(iter(named.values())))
    return chosen_by_tools(default, named.get("tool_use"))


def _rope(said: Numbers, family: Family, where: str) -> tuple[float, RopeScaling | None, float]:
    """Base, scaling and which part of a head rotates. Both spellings: rope_theta with rope_scaling, and the newer
    rope_parameters that holds everything.
    """
    numbers = said.rope() or Numbers({}, where)
    numbers = numbers.within("full_attention") or numbers
    base = numbers.real("rope_theta", said.real("rope_theta", 10_000.0))
    part = numbers.real("partial_rotary_factor", said.real("partial_rotary_factor", family.part))
    if not 0 < part <= 1:
        raise CorruptModel(f"{where}: partial_rotary_factor should be above 0 and at most 1, is {part}")
    kind = numbers.word("rope_type", numbers.word("type", "default"))
    if kind in family.scalings:
        return base, None, part
    match kind:
        case "default":
            return base, None, part
        case "linear":
            return base, RopeScaling("linear", numbers.positive("factor")), part
        case "llama3":
            scaling = RopeScaling(
                "llama3",
                numbers.positive("factor"),
                numbers.positive("low_freq_factor"),
                numbers.positive("high_freq_factor"),
                numbers.whole("original_max_position_embeddings"),
            )
            return base, scaling, part
        case "yarn":
            return base, _yarn(said, numbers), part
        case _:
            raise UnknownArchitecture(
                f"{where}: rope scaling {kind!r} is not supported; known are default, linear, llama3 and yarn"
            )


def _yarn(said: Numbers, numbers: Numbers) -> RopeScaling:
    """As transformers reads it: what is left out follows from the rest."""
    original = numbers.whole("original_max_position_embeddings", said.whole("max_position_embeddings", 0))
    factor = numbers.real("factor", said.whole("max_position_embeddings", 0) / max(original, 1))
    scale, over_all = numbers.real("mscale", 0.0), numbers.real("mscale_all_dim", 0.0)
    loud = yarn_amplitude(factor)
    if scale and over_all:
        loud = (scale * (loud - 1) + 1) / (over_all * (loud - 1) + 1)
    return RopeScaling(
        "yarn",
        factor,
        original_context=original,
        fast=numbers.real("beta_fast", 32.0) or 32.0,
        slow=numbers.real("beta_slow", 1.0) or 1.0,
        truncate=numbers.flag("truncate", True),
        amplitude=numbers.real("attention_factor", loud),
    )


class Numbers:
    """Checked access to the numbers of one JSON object, as planner.importers.families.family.Said."""

    def __init__(
        self,
        source: Json,
        where: str,
        keys: Mapping[str, str] = _NO_KEYS,
        tensors: Collection[str] = (),
    ) -> None:
        """`keys`: by the usual key, how this object calls it; `tensors`: names in the weights beside it."""
        self._source = source
        self._keys = keys
        self._tensors = tensors
        self.where = where

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """Returns a whole number of at least 0, or `otherwise` where it is missing. Raises CorruptModel."""
        value = self._value(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise self._wrong(key, "a whole number", value)
        return value

    def real(self, key: str, otherwise: float | None = None) -> float:
        """Returns a finite number, or `otherwise` where it is missing. Raises CorruptModel."""
        value = self._value(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not _is_finite(value):
            raise self._wrong(key, "a finite number", value)
        return float(value)

    def flag(self, key: str, otherwise: bool) -> bool:
        """Returns a truth value, or `otherwise` where it is missing. Raises CorruptModel."""
        value = self._value(key)
        if value is None:
            return otherwise
        if not isinstance(value, bool):
            raise self._wrong(key, "true or false", value)
        return value

    def word(self, key: str, otherwise: str) -> str:
        """Returns a text, or `otherwise` where it is missing. Raises CorruptModel."""
        value = self._value(key)
        if value is None:
            return otherwise
        if not isinstance(value, str):
            raise self._wrong(key, "a text", value)
        return value

    def reals(self, key: str) -> tuple[float, ...] | None:
        """Returns a list of finite numbers, or None where it is missing. Raises CorruptModel."""
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(
            isinstance(each, (int, float)) and not isinstance(each, bool) and _is_finite(each)
            for each in value
        ):
            raise self._wrong(key, "a list of finite numbers", value)
        return tuple(map(float, value))

    def words(self, key: str) -> tuple[str, ...] | None:
        """Returns a list of texts, or None where it is missing. Raises CorruptModel."""
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            raise self._wrong(key, "a list of texts", value)
        return tuple(value)

    def rope(self) -> Numbers | None:
        """Returns what the object says of rotary embedding by itself, in either spelling."""
        for key in ("rope_parameters", "rope_scaling"):
            value = self._source.get(key)
            if isinstance(value, dict):
                return Numbers(value, self.where)
        return None

    def within(self, key: str) -> Numbers | None:
        """Returns the object that lies at `key`, or None where there is none. Raises CorruptModel."""
        value = self._value(key)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self._wrong(key, "an object", value)
        return Numbers(value, self.where)

    def has_tensor(self, name: str) -> bool:
        """Whether the weights have a tensor of that name."""
        return name in self._tensors

    def _value(self, key: str) -> object:
        return self._source.get(self._keys.get(key, key))

    def _wrong(self, key: str, expected: str, value: object) -> CorruptModel:
        called = self._keys.get(key, key)
        return CorruptModel(f"{self.where}: {called} should be {expected}, is {str(value)[:40]!r}")

    def positive(self, key: str) -> float:
        """Returns a finite number above 0. Raises CorruptModel."""
        value = self.real(key)
        if value <= 0:
            raise self._wrong(key, "above 0", value)
        return value


def _is_finite(value: float) -> bool:
    """Whether it is a finite number, as float64."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _ids(value: object, vocab: int) -> list[int]:
    """Token ids from an id, a list of ids or nothing; ids outside the vocabulary are dropped."""
    found = value if isinstance(value, list) else [value]
    return [
        token
        for token in found
        if isinstance(token, int) and not isinstance(token, bool) and 0 <= token < vocab
    ]


def read_file(folder: Path, name: str) -> bytes | None:
    """The bytes of a file of a sane size, None when there is no such file."""
    path = folder / name
    try:
        if path.stat().st_size > CONFIG_LIMIT_BYTES:
            raise CorruptModel(f"{folder.name}: {name} should be under {CONFIG_LIMIT_BYTES} bytes")
        return path.read_bytes()
    except FileNotFoundError:
        return None
    except OSError as error:
        raise NoSuchModel(f"{path} cannot be read: {error.strerror}") from error
