"""Which tensors an architecture needs and their shapes; which numbers make an architecture at all."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from planner.errors import CorruptModel, MissingTensor
from planner.importers.architecture import MOST_COUNTS, Architecture, Latent
from planner.importers.rotary import rotary_frequencies
from planner.model.lowering import MAX_EXPERTS

MAX_BLOCKS = 1024  # the deepest dense decoders have some 130; a header that says more is broken
MAX_WIDTH = 1 << 20  # heads * head_size
MAX_VOCAB = 1 << 22
MOST_EXPERTS = 1 << 16  # of a whole model; the largest known have some 25,000
TURNING_GROUP = 16  # of latent attention: the rotary kernel takes whole groups
MOST_BUCKETS = 1 << 8  # of distances
MOST_FAR = 1 << 16
MOST_SCALE = 1e6  # of factors and caps; a peer takes no larger one
LEAST_YARN, MOST_YARN = 1e-6, 1e9
LEAST_EPSILON = float(np.finfo(np.float32).tiny)  # a smaller one is 0 once it is float32


def tensor_shapes(architecture: Architecture) -> dict[str, tuple[int, ...]]:
    """Every tensor of the model in unit order: our name -> (rows, columns) or (n,)."""
    a = architecture
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    shapes: dict[str, tuple[int, ...]] = {"embed.weight": (a.vocab, a.hidden)}
    if a.positions:
        shapes["embed.positions"] = (a.positions, a.hidden)

    def norm(name: str, wanted: bool = True) -> None:
        if wanted:
            shapes[name] = (a.hidden,)
            if a.norm_bias:
                shapes[f"{name}_bias"] = (a.hidden,)

    norm("embed.norm", a.embed_norm)
    if a.buckets:
        shapes["embed.relative"] = (a.buckets, a.heads)
    first = a.norm_before or a.norm_sum
    for i in range(a.blocks):
        attn, ffn = f"attn.{i}", f"ffn.{i}"
        norm(f"{attn}.norm", first)
        for part, rows in () if a.latent else (("q", queries), ("k", keys), ("v", keys)):
            shapes[f"{attn}.{part}"] = (rows, a.hidden)
            if a.qkv_bias:
                shapes[f"{attn}.{part}_bias"] = (rows,)
        if a.latent is not None:
            shapes.update(_latent_shapes(a, a.latent, attn))
        if a.qk_norm:
            shapes[f"{attn}.q_norm"] = (a.head_size if a.head_norm == "head" else queries,)
            shapes[f"{attn}.k_norm"] = (a.head_size if a.head_norm == "head" else keys,)
        if a.sinks:
            shapes[f"{attn}.sinks"] = (a.heads,)
        shapes[f"{attn}.o"] = (a.hidden, a.heads * a.latent.value if a.latent else queries)
        if a.o_bias:
            shapes[f"{attn}.o_bias"] = (a.hidden,)
        norm(f"{attn}.after", a.norm_after)
        if a.encoded:
            norm(f"cross.{i}.norm")
            for part, rows in (("q", queries), ("k", queries), ("v", queries), ("o", a.hidden)):
                shapes[f"cross.{i}.{part}"] = (rows, a.hidden if part != "o" else queries)
                if a.qkv_bias if part != "o" else a.o_bias:
                    shapes[f"cross.{i}.{part}_bias"] = (rows,)
        norm(f"{ffn}.norm", first and not a.one_norm)
        if a.of_block(i).experts:
            shapes[f"{ffn}.router"] = (a.experts, a.hidden)
            if a.router_bias:
                shapes[f"{ffn}.router_bias"] = (a.experts,)
            if a.routing.corrected:
                shapes[f"{ffn}.router_correction"] = (a.experts,)
            for expert in range(a.experts):
                shapes[f"{ffn}.gate_e{expert}"] = (a.ffn, a.hidden)
                shapes[f"{ffn}.up_e{expert}"] = (a.ffn, a.hidden)
                shapes[f"{ffn}.down_e{expert}"] = (a.hidden, a.ffn)
                for part, width in (
                    (("gate", a.ffn), ("up", a.ffn), ("down", a.hidden)) if a.expert_bias else ()
                ):
                    shapes[f"{ffn}.{part}_bias_e{expert}"] = (width,)
            if a.shared_ffn:
                shapes[f"{ffn}.shared_gate"] = (a.shared_ffn, a.hidden)
                shapes[f"{ffn}.shared_up"] = (a.shared_ffn, a.hidden)
                shapes[f"{ffn}.shared_down"] = (a.hidden, a.shared_ffn)
                if a.shared_gated:
                    shapes[f"{ffn}.shared_share"] = (1, a.hidden)
            norm(f"{ffn}.after", a.norm_after)
            continue
        width = a.of_block(i).ffn
        for part in ("gate", "up") if a.gated else ("up",):
            shapes[f"{ffn}.{part}"] = (width, a.hidden)
            if a.ffn_bias:
                shapes[f"{ffn}.{part}_bias"] = (width,)
        shapes[f"{ffn}.down"] = (a.hidden, width)
        if a.ffn_bias:
            shapes[f"{ffn}.down_bias"] = (a.hidden,)
        norm(f"{ffn}.after", a.norm_after)
    norm("head.norm", a.norm_last)
    if not a.tied_embedding:
        shapes["head.weight"] = (a.vocab, a.hidden)
    if a.logit_bias:
        shapes["head.bias"] = (a.vocab,)
    return shapes


def _latent_shapes(a: Architecture, latent: Latent, attn: str) -> dict[str, tuple[int, ...]]:
    queries = a.heads * (latent.plain + a.rope_dims)
    made: dict[str, tuple[int, ...]] = {f"{attn}.q": (queries, a.hidden)}
    if latent.query_rank:
        made = {
            f"{attn}.q_a": (latent.query_rank, a.hidden),
            f"{attn}.q_a_norm": (latent.query_rank,),
            f"{attn}.q_b": (queries, latent.query_rank),
        }
    return made | {
        f"{attn}.kv_a": (latent.rank + a.rope_dims, a.hidden),
        f"{attn}.kv_a_norm": (latent.rank,),
        f"{attn}.k_b": (a.heads * latent.plain, latent.rank),
        f"{attn}.v_b": (a.heads * latent.value, latent.rank),
    }


def check_numbers(architecture: Architecture, file: str) -> None:
    """Raises CorruptModel when the numbers contradict each other or are out of all proportion."""
    a = architecture
    most = MOST_COUNTS
    for what, value, limit in (
        ("blocks", a.blocks, MAX_BLOCKS),
        ("hidden size", a.hidden, most["hidden"]),
        ("heads", a.heads, most["heads"]),
        ("key/value heads", a.kv_heads, a.heads),
        ("head size", a.head_size, most["head_size"]),
        ("heads times head size", a.heads * a.head_size, MAX_WIDTH),
        ("feed-forward size", a.ffn, most["ffn"]),
        ("vocabulary", a.vocab, MAX_VOCAB),
        ("context", a.context, most["context"]),
    ):
        if not 1 <= value <= limit:
            raise CorruptModel(f"{file}: expected {what} between 1 and {limit}, got {value}")
    if a.experts and not 1 <= a.experts_chosen <= a.experts <= MAX_EXPERTS:
        raise CorruptModel(
            f"{file}: expected between 1 and {MAX_EXPERTS} experts of which some are chosen, got "
            f"{a.experts_chosen} of {a.experts}"
        )
    if a.experts * a.blocks > MOST_EXPERTS:
        raise CorruptModel(
            f"{file}: expected at most {MOST_EXPERTS} experts in all blocks, got {a.experts * a.blocks}"
        )
    if not 0 <= a.shared_ffn <= most["ffn"]:
        raise CorruptModel(
            f"{file}: expected a shared expert of width up to {most['ffn']}, got {a.shared_ffn}"
        )
    if a.dense and not 1 <= a.dense_ffn <= most["ffn"]:
        raise CorruptModel(
            f"{file}: expected blocks without experts between 1 and {most['ffn']} wide, got {a.dense_ffn}"
        )
    _check_routing(a, file)
    _check_latent(a, file)
    if a.buckets and not (2 <= a.buckets <= MOST_BUCKETS and a.buckets // 2 < a.far <= MOST_FAR):
        raise CorruptModel(
            f"{file}: expected 2 to {MOST_BUCKETS} buckets of distances up to {MOST_FAR}, got {a.buckets} up to {a.far}"
        )
    if a.heads % a.kv_heads:
        raise CorruptModel(f"{file}: {a.heads} heads cannot share {a.kv_heads} key/value heads evenly")
    if a.head_size % 2:
        raise CorruptModel(f"{file}: rotary embedding needs an even head size, got {a.head_size}")
    if not (0 < a.rope_dims <= a.head_size and a.rope_dims % 2 == 0):
        raise CorruptModel(
            f"{file}: expected an even number of rotary dimensions, at most the {a.head_size} of a head, "
            f"got {a.rope_dims}"
        )
    for what, number in (
        ("embedding scale", a.embedding_scale),
        ("residual scale", a.residual_scale),
        ("attention scale", a.attention_scale),
        ("attention soft cap", a.attention_softcap),
        ("logit scale", a.logit_scale),
        ("logit soft cap", a.logit_softcap),
        ("rotary amplitude", a.rope_amplitude),
        ("limit of experts", a.expert_limit or None),
        ("factor of experts' sigmoid", a.expert_alpha),
        ("factor of experts' shares", a.routing.scale),
    ):
        if number is not None and not 0 < number <= MOST_SCALE:
            raise CorruptModel(f"{file}: expected {what} above 0 and at most {MOST_SCALE}, got {number}")
    for kind in a.pattern:
        if kind.window is not None and not 1 <= kind.window <= most["context"]:
            raise CorruptModel(f"{file}: expected a window of at least one token, got {kind.window}")
    if a.tempering is not None and not (
        1 <= a.tempering.floor <= most["context"] and 0 <= a.tempering.scale <= MOST_SCALE
    ):
        raise CorruptModel(
            f"{file}: expected a floor of temperatures between 1 and {most['context']} and their scale from 0 to "
            f"{MOST_SCALE}, got {a.tempering.floor} and {a.tempering.scale}"
        )
    if not LEAST_EPSILON <= a.norm_epsilon < 1:
        raise CorruptModel(f"{file}: expected norm epsilon above 0 and below 1, got {a.norm_epsilon}")
    if not (math.isfinite(a.rope_base) and a.rope_base >= 1):
        raise CorruptModel(f"{file}: expected rope base of at least 1, got {a.rope_base}")
    _check_rope(a, file)


def _check_routing(a: Architecture, file: str) -> None:
    routing = a.routing
    if routing.on_input and a.experts_chosen != 1:
        raise CorruptModel(f"{file}: expected one expert for each token, got {a.experts_chosen}")
    if not 1 <= routing.groups_chosen <= routing.groups <= max(a.experts, 1) or a.experts % routing.groups:
        raise CorruptModel(
            f"{file}: expected the {a.experts} experts in groups of one size of which some are chosen, got "
            f"{routing.groups_chosen} of {routing.groups}"
        )
    each = a.experts // routing.groups
    best = 2 if routing.scores == "sigmoid" and routing.groups > 1 else 1
    if a.experts and (each < best or each * routing.groups_chosen < a.experts_chosen):
        raise CorruptModel(
            f"{file}: expected groups of at least {best} experts, and {a.experts_chosen} of them in those that are "
            f"chosen, got {routing.groups_chosen} groups of {each}"
        )


def _check_latent(a: Architecture, file: str) -> None:
    latent = a.latent
    if latent is None:
        return
    for what, value, least in (
        ("numbers that are cached", latent.rank, 1),
        ("numbers of a head that do not turn", latent.plain, 1),
        ("numbers that a head makes", latent.value, 1),
        ("numbers that queries are made of", latent.query_rank, 0),
    ):
        if not least <= value <= MOST_COUNTS["hidden"]:
            raise CorruptModel(
                f"{file}: expected {what} between {least} and {MOST_COUNTS['hidden']}, got {value}"
            )
    if a.rope_dims % TURNING_GROUP:
        raise CorruptModel(
            f"{file}: expected a multiple of {TURNING_GROUP} for the numbers of a key that turn, got {a.rope_dims}"
        )


def _check_rope(a: Architecture, file: str) -> None:
    scaling = a.rope_scaling
    if (
        scaling is not None
        and scaling.kind == "llama3"
        and scaling.high_freq_factor < scaling.low_freq_factor
    ):
        raise CorruptModel(
            f"{file}: expected a high_freq_factor of at least the low_freq_factor {scaling.low_freq_factor} in rope "
            f"scaling, got {scaling.high_freq_factor}"
        )
    if scaling is not None and scaling.kind == "yarn":
        numbers = (scaling.factor, scaling.fast, scaling.slow, float(scaling.original_context))
        if not all(LEAST_YARN <= number <= MOST_YARN for number in numbers) or a.rope_base <= 1:
            raise CorruptModel(
                f"{file}: expected a rope base above 1 and, of YaRN, factor, beta_fast, beta_slow and original context "
                f"between {LEAST_YARN} and {MOST_YARN:.0f}, got {a.rope_base} and {', '.join(map(str, numbers))}"
            )
    with np.errstate(all="ignore"):
        angles = rotary_frequencies(a) * a.context
    if not np.isfinite(angles).all():
        raise CorruptModel(
            f"{file}: rope scaling turns positions by no finite angle: download the model again"
        )


def check_tensors(
    expected: dict[str, tuple[int, ...]],
    found: Callable[[str], tuple[int, ...] | None],
    file_name: Callable[[str], str],
    file: str,
) -> None:
    """Raises MissingTensor or CorruptModel for the first tensor that is absent or has another shape."""
    for name, shape in expected.items():
        got = found(name)
        if got is None:
            raise MissingTensor(
                f"{file}: tensor {file_name(name)} ({name}) is missing; the model is incomplete"
            )
        if got != shape:
            raise CorruptModel(f"{file}: tensor {file_name(name)} should be {shape}, is {got}")
