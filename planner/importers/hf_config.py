"""What config.json and its neighbours in a Hugging Face folder say: numbers, tokenizer, chat template."""

from __future__ import annotations

import json
import math
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from planner.errors import CorruptModel, NoSuchModel, UnknownArchitecture, UnknownTokenizer
from planner.importers.architecture import Architecture, RopeScaling
from planner.importers.tokenizer import END_OF_TURN, chosen_by_tools, end_tokens
from planner.model.sources import TokenizerSource

KNOWN = ("llama", "mistral", "qwen2", "qwen3")
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


def architecture_from_config(config: Json, tensors: Collection[str], where: str) -> Architecture:
    """`tensors`: names in the weight files; they settle what the config leaves out (biases, tying)."""
    family = config.get("model_type")
    if family not in KNOWN:
        raise UnknownArchitecture(
            f"{where}: model_type {family!r} is not supported; known are {', '.join(KNOWN)}"
        )
    if config.get("quantization_config"):
        raise UnknownArchitecture(
            f"{where}: quantized exports are not supported: use the original or a GGUF file"
        )
    activation = config.get("hidden_act", "silu")
    if activation not in ("silu", "swish"):
        raise UnknownArchitecture(
            f"{where}: expected hidden_act silu, got {activation!r}; this variant is not supported"
        )
    numbers = Numbers(config, where)
    heads = numbers.whole("num_attention_heads")
    hidden = numbers.whole("hidden_size")
    head_size = numbers.whole("head_dim", hidden // max(heads, 1) if family != "qwen3" else 128)
    tied = config.get("tie_word_embeddings")
    if not isinstance(tied, bool):
        tied = "lm_head.weight" not in tensors
    base, scaling = _rope(config, where)
    context = numbers.whole("max_position_embeddings")
    window = config.get("sliding_window")
    slides = config.get("use_sliding_window", family == "mistral")
    if slides and isinstance(window, int) and window > 0:
        context = min(context, window)  # inside the window, sliding equals full attention
    return Architecture(
        family=family,
        blocks=numbers.whole("num_hidden_layers"),
        hidden=hidden,
        heads=heads,
        kv_heads=numbers.whole("num_key_value_heads", heads),
        head_size=head_size,
        ffn=numbers.whole("intermediate_size"),
        vocab=numbers.whole("vocab_size"),
        context=context,
        norm_epsilon=numbers.real("rms_norm_eps", 1e-6),
        rope_base=base,
        rope_dims=head_size,
        rope_scaling=scaling,
        rope_factors=None,
        qkv_bias="model.layers.0.self_attn.q_proj.bias" in tensors,
        qk_norm="model.layers.0.self_attn.q_norm.weight" in tensors,
        tied_embedding=tied,
    )


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
    try:
        tokenizer = Tokenizer.from_str(content.decode("utf-8"))
    except Exception as error:  # tokenizers raises bare Exception
        raise UnknownTokenizer(f"{folder.name}: tokenizer.json cannot be read: {str(error)[:200]}") from error
    if tokenizer.get_vocab_size() > vocab:
        size = tokenizer.get_vocab_size()
        raise CorruptModel(f"{folder.name}: {size} tokens do not fit into an embedding of {vocab} rows")
    return content, tokenizer


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


def _rope(config: Json, where: str) -> tuple[float, RopeScaling | None]:
    """Both spellings: rope_theta with rope_scaling, and the newer rope_parameters that holds everything."""
    newer = config.get("rope_parameters")
    settings = newer if isinstance(newer, dict) else config.get("rope_scaling")
    settings = settings if isinstance(settings, dict) else {}
    numbers = Numbers(settings, where)
    older = Numbers(config, where).real("rope_theta", 10_000.0)
    base = numbers.real("rope_theta", older)
    if numbers.real("partial_rotary_factor", 1.0) != 1.0 or config.get("partial_rotary_factor", 1.0) != 1.0:
        raise UnknownArchitecture(f"{where}: heads that rotate in part are not supported")
    kind = settings.get("rope_type", settings.get("type", "default"))
    match kind:
        case "default" | None:
            return base, None
        case "linear":
            return base, RopeScaling("linear", numbers.positive("factor"))
        case "llama3":
            return base, RopeScaling(
                "llama3",
                numbers.positive("factor"),
                numbers.positive("low_freq_factor"),
                numbers.positive("high_freq_factor"),
                numbers.whole("original_max_position_embeddings"),
            )
        case _:
            raise UnknownArchitecture(
                f"{where}: rope scaling {kind!r} is not supported; known are default, linear and llama3"
            )


class Numbers:
    """Checked access to the numbers of one JSON object."""

    def __init__(self, source: Json, where: str) -> None:
        self._source = source
        self._where = where

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """Returns a whole number of at least 0, or `otherwise` where it is missing. Raises CorruptModel."""
        value = self._source.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise CorruptModel(f"{self._where}: {key} should be a whole number, is {str(value)[:40]!r}")
        return value

    def real(self, key: str, otherwise: float | None = None) -> float:
        """Returns a finite number, or `otherwise` where it is missing. Raises CorruptModel."""
        value = self._source.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
            raise CorruptModel(f"{self._where}: {key} should be a finite number, is {str(value)[:40]!r}")
        return float(value)

    def positive(self, key: str) -> float:
        """Returns a finite number above 0. Raises CorruptModel."""
        value = self.real(key)
        if value <= 0:
            raise CorruptModel(f"{self._where}: {key} should be above 0, is {value}")
        return value


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
