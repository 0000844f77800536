"""The numbers and the features of a decoder, and what an importer of one opens.

An importer (GGUF, safetensors) yields a `SourceModel`; `planner.importers.decoder_units` alone knows how its tensors
become units.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, Literal, Protocol

from planner.model.manifest import SHIFT_COLUMNS
from planner.model.sampling_defaults import SamplingDefaults
from planner.model.sources import SourceTensor, TokenizerSource

MOST_COUNTS: Final = {  # of an architecture, each at least 1
    "blocks": 2000,
    "hidden": 1 << 17,
    "heads": 1024,
    "kv_heads": 1024,
    "head_size": 1024,
    "ffn": 1 << 20,
    "vocab": 1 << 24,
    "context": 1 << 24,
    "rope_dims": 1024,
}

NormKind = Literal["rms", "layer"]  # "layer": the mean is taken away first
Activation = Literal["silu", "gelu", "gelu_tanh", "relu"]
Scores = Literal["softmax", "sigmoid"]
HeadNorm = Literal[
    "head", "row"
]  # of q and k: over each head with the same weights, or over all heads at once


@dataclass(frozen=True, slots=True)
class RopeScaling:
    """Llama 3 frequency scaling (kind "llama3"), "linear" division of positions by `factor`, or "yarn": that division
    for frequencies that turn less than `slow` times within the original context, none for those that turn more than
    `fast` times, and a ramp between; its ends are whole pairs where `truncate`.
    """

    kind: str
    factor: float
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_context: int = 8192
    fast: float = 32.0
    slow: float = 1.0
    truncate: bool = True
    amplitude: float = 1.0  # of what turns, in q and in k


@dataclass(frozen=True, slots=True)
class Latent:
    """Multi-head latent attention (arXiv 2405.04434, section 2.1): of each token `rank` numbers are cached, of which
    keys and values of all heads are made, and the `rope_dims` numbers of a key that turn, which all heads share.

    A head compares `plain` numbers that do not turn beside these, and makes `value` numbers. `query_rank`: queries are
    made of so many numbers; 0: of the row itself. `joint`: the file has what makes keys and values in one tensor.
    """

    rank: int
    plain: int
    value: int
    query_rank: int
    epsilon: float  # of the norms of `rank` and of `query_rank` numbers
    joint: bool = True


@dataclass(frozen=True, slots=True)
class Routing:
    """How a router chooses experts. `groups`: they lie in so many of one size, of which `groups_chosen` with the best
    scores are looked at: the best of a group counts, of sigmoid scores the best two. `corrected`: a number of each
    expert is added to its score where it is chosen, not to its share. `scale`: of shares. `on_input`: the one expert
    that is chosen takes the row times the sigmoid of its score, and its share is 1.
    """

    scores: Scores = "softmax"
    groups: int = 1
    groups_chosen: int = 1
    corrected: bool = False
    scale: float = 1.0
    on_input: bool = False


@dataclass(frozen=True, slots=True)
class Tempering:
    """Queries are multiplied by 1 + `scale` · ln(1 + n), where n counts the `floor` tokens that are whole up to theirs
    (arXiv 2501.19399).
    """

    floor: int
    scale: float


@dataclass(frozen=True, slots=True)
class BlockKind:
    """What sets blocks of one model apart. `window`: only so many last tokens are looked at; `chunked`: of these, those
    alone of the token's own chunk of so many. `table`: the rotary table that turns q and k, -1 for none.
    """

    window: int | None = None
    table: int = 0
    chunked: bool = False


@dataclass(frozen=True, slots=True)
class Architecture:
    """Shapes and features of one model. All counts are per model, `head_size` is per attention head; with latent
    attention, of the one head that is cached.

    The defaults of features are those of Llama. A block adds o(attention(norm(x))) to x, then down(act(gate) * up) of
    norm(x). Where `parallel`, both take the same x and both are added to it.
    """

    family: str  # as its file calls it: "llama", "mistral", "qwen2", …
    blocks: int
    hidden: int
    heads: int
    kv_heads: int
    head_size: int
    ffn: int
    vocab: int
    context: int  # longest context the model was trained for, tokens
    norm_epsilon: float
    rope_base: float
    rope_dims: int  # leading dimensions of each head that rotate
    rope_scaling: RopeScaling | None
    rope_factors: (
        tuple[float, ...] | None
    )  # divisors per frequency (GGUF's rope_freqs.weight), rope_dims/2 of them
    qkv_bias: bool
    qk_norm: bool
    tied_embedding: bool
    unit_heads: bool = (
        False  # q and k of blocks that turn are divided by the root of the mean of their squares
    )
    tempering: Tempering | None = None  # of blocks that do not turn
    norm: NormKind = "rms"
    norm_bias: bool = False
    norm_before: bool = True  # of what attention and feed-forward take
    norm_after: bool = False  # of what they make, before it is added
    norm_sum: bool = False  # of the sum, instead of one before
    norm_last: bool = True  # of what the head takes
    embed_norm: bool = False  # of embeddings with their positions
    head_norm: HeadNorm = "head"
    parallel: bool = False
    one_norm: bool = False  # of a parallel block: feed-forward takes what attention takes
    activation: Activation = "silu"
    gated: bool = True
    o_bias: bool = False
    ffn_bias: bool = False  # of gate, up and down
    experts: int = 0  # of each feed-forward, `ffn` wide; 0: it is one and no router chooses
    experts_chosen: int = 0  # for each token
    router_bias: bool = False
    expert_bias: bool = False  # of gate, up and down of each expert
    expert_limit: float = 0.0  # of gate and up, to which 1 is added then; 0: none
    expert_alpha: float = 1.0  # of the gate's sigmoid
    experts_normed: bool = False  # shares of those that are chosen add up to 1
    expert_units: int = (
        1  # of a block, each with some of its experts, so that these can lie on different peers
    )
    shared_ffn: int = 0  # width of an expert that every token has; 0: none
    shared_gated: bool = True  # its share of a token is a sigmoid; else 1
    routing: Routing = Routing()
    dense: frozenset[int] = frozenset()  # blocks without experts, where there are some in others
    dense_ffn: int = 0  # width of these
    latent: Latent | None = None
    embedding_scale: float = 1.0
    residual_scale: float = 1.0  # of what is added to the rows
    attention_scale: float | None = None  # of scores; None: one over the root of the head size
    attention_softcap: float | None = None
    sinks: bool = False  # a score of each head beside those of tokens, of which nothing is taken
    logit_scale: float = 1.0
    logit_softcap: float | None = None
    positions: int = 0  # rows of a table of positions that is added to the embedding; 0: none
    encoded: int = (
        0  # rows of an encoder that a conversation begins with; every token looks at them (cross-attention)
    )
    marked: bool = False  # as many as they are, with a mark in each; `encoded`: at most
    buckets: int = 0  # of distances of tokens that have a bias of their own in each head; 0: none has
    far: int = 128  # from which distance on all are one bucket
    logit_bias: bool = False
    rope_amplitude: float = 1.0  # of dimensions that rotary table 0 turns, in q and in k
    rope_base_1: float | None = None  # of rotary table 1, which has no scaling; None: there is none
    axes: tuple[
        int, ...
    ] = ()  # pairs of a head that each axis of a token's place turns; (): places have one axis
    pattern: tuple[BlockKind, ...] = (BlockKind(),)  # block i is of kind i modulo their number

    @property
    def row(self) -> int:
        """Values of a row that crosses borders: where experts of a block are in several units, what a block's experts
        take stands before the sum of what they made so far.
        """
        return 2 * self.hidden if self.expert_units > 1 else self.hidden + self.behind

    @property
    def behind(self) -> int:
        """Values behind the `hidden` ones of a row: the mark of encoded rows, or the shifts of places with axes."""
        return SHIFT_COLUMNS if self.axes else int(self.marked)

    def experts_of(self, part: int) -> range:
        """The experts of a block that lie in its unit `part`."""
        first, more = divmod(self.experts, self.expert_units)
        start = part * first + min(part, more)
        return range(start, start + first + (part < more))

    def of_block(self, block: int) -> Architecture:
        """The numbers of a block: without experts where it has none."""
        return replace(self, experts=0, ffn=self.dense_ffn) if block in self.dense else self

    def parts(self, block: int) -> range:
        """Numbers of the units that the feed-forward of a block is divided among."""
        return range(0 if self.parallel else 1 if block in self.dense else self.expert_units)

    def kind(self, block: int) -> BlockKind:
        """Of which kind a block is."""
        return self.pattern[block % len(self.pattern)]


class SourceModel(Protocol):
    """A model opened for import. Tensor names are ours:

    embed.weight, embed.positions (positions), embed.norm (embed_norm), embed.relative (buckets), head.weight (absent
    when tied), head.norm (norm_last), head.bias (logit_bias), and per block i:
    attn.{i}.norm, attn.{i}.q|k|v|o, attn.{i}.q_bias|k_bias|v_bias (qkv_bias), attn.{i}.o_bias, attn.{i}.q_norm|k_norm
    (qk_norm), ffn.{i}.norm, ffn.{i}.gate (gated), ffn.{i}.up|down, ffn.{i}.gate_bias|up_bias|down_bias (ffn_bias),
    instead of q, k and v of a latent attention attn.{i}.q (or attn.{i}.q_a|q_a_norm|q_b: query_rank), attn.{i}.kv_a,
    attn.{i}.kv_a_norm and attn.{i}.k_b|v_b, rows of each head below one another, attn.{i}.sinks (sinks),
    attn.{i}.after, ffn.{i}.after (norm_after). Each norm may have a bias: attn.{i}.norm_bias, head.norm_bias.
    Where there are experts: ffn.{i}.router, ffn.{i}.gate_e{N}|up_e{N}|down_e{N} instead of gate, up and down, and
    ffn.{i}.shared_gate|shared_up|shared_down|shared_share (shared_ffn), ffn.{i}.router_bias (router_bias),
    ffn.{i}.router_correction (corrected) and ffn.{i}.gate_bias_e{N}|up_bias_e{N}|down_bias_e{N} (expert_bias). Where
    rows are encoded: cross.{i}.norm|q|k|v|o with biases as those of attn.{i}.
    """

    @property
    def name(self) -> str:
        """What the model is called, for people."""

    @property
    def architecture(self) -> Architecture:
        """The numbers of the model."""

    @property
    def tokenizer(self) -> TokenizerSource:
        """The tokenizer with its special tokens and the chat template."""

    @property
    def sampling(self) -> SamplingDefaults | None:
        """How its answers are drawn by its own settings; None where its files say nothing of that."""

    def tensor(self, name: str) -> SourceTensor:
        """Raises planner.errors.MissingTensor, naming it, when the file lacks it."""
