"""What each unit of a decoder computes, as graphs, from the features of its architecture alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np
from onnx import TensorProto, helper

from planner.importers.architecture import Architecture, BlockKind, Latent, Tempering
from planner.importers.distance_buckets import buckets_behind
from planner.importers.rotary import turning
from planner.importers.unit_graphs import INPUT, MICROSOFT, UnitGraph
from planner.model.lowering import kernel_head_size
from planner.model.manifest import SHIFT_COLUMNS, SHIFT_STEP

LEAST_SHARES: Final = 1e-20  # of all that are chosen together, where each is a sigmoid
NEVER: Final = -1e30  # the score of an expert in a group that is not chosen
MARK_VALUES: Final = 2  # of a head that counts marks
MARK: Final = 1 / 1024  # of a row for each row that was encoded: no row grows long by it
FAR: Final = -1e18  # added to the score of a position that is not looked at: its share is exactly 0


@dataclass(frozen=True, slots=True)
class _Taken:
    """What a unit takes. `rows`: (batch, tokens, hidden); `behind`: the mark or the shifts that stand behind them, ""
    where nothing does.
    `border`: int64 (batch, tokens, 1), how many encoded rows the conversation of a token begins with, "" where it has
    none; `is_token`: whether a row is a token's, and was not encoded.
    """

    rows: str
    behind: str = ""
    border: str = ""
    is_token: str = ""


def embed_graph(a: Architecture) -> bytes:
    """Rows of tokens."""
    graph = UnitGraph()
    rows = _scaled(graph, graph.embedding("embed", a.vocab, a.hidden), a.embedding_scale)
    if a.behind:
        return graph.finish(graph.one("Pad", rows, graph.sizes(0, a.behind), "", graph.sizes(-1)))
    return graph.finish(_row(graph, a, rows, rows))


def attn_graph(a: Architecture, kind: BlockKind, first: bool = False) -> bytes:
    """Attention of a block. `first`: of the first one, where positions, their norm and what counts encoded rows are."""
    graph = UnitGraph()
    taken = _taken(graph, a, first)
    rows = _placed(graph, a, taken) if first else taken.rows
    normed = _norm(graph, a, rows, "norm") if a.norm_before else rows
    made = _sum(graph, a, rows, _after(graph, a, _attention(graph, a, kind, normed, taken), "after"))
    made = _row(graph, a, made, made)
    return graph.finish(_of_tokens(graph, taken, made))


def cross_graph(a: Architecture) -> bytes:
    """Attention of the tokens of a block to the encoded rows, whose keys and values are made as these rows pass."""
    graph = UnitGraph()
    taken, width = _taken(graph, a), a.heads * a.head_size
    rows = taken.rows
    bias = "{}.bias".format if a.qkv_bias else (lambda _: "")
    normed = _norm(graph, a, rows, "norm") if a.norm_before else rows
    q = graph.linear(normed, "q", width, a.hidden, bias=bias("q"))
    kv = graph.linear(rows, "kv", 2 * width, a.hidden, bias=bias("kv"))
    k, v = graph.add("Split", kv, graph.sizes(width, width), outputs=2, axis=-1)
    more = {} if a.attention_scale is None else {"scale": a.attention_scale}
    seen = _seen(graph, taken, encoded=True)
    attended = graph.attention(
        q, k, v, "", seen, heads=a.heads, kv_heads=a.heads, head_size=a.head_size, rotary=-1, **more
    )
    looked = graph.linear(attended, "o", a.hidden, width, bias="o.bias" if a.o_bias else "")
    return graph.finish(_of_tokens(graph, taken, _sum(graph, a, rows, looked)))


def ffn_graph(a: Architecture, part: int = 0) -> bytes:
    """Feed-forward of a block; of one with experts in several units, that of unit `part`."""
    graph = UnitGraph()
    if a.experts:
        rows, sums = _halves(graph, a)
        normed = _norm(graph, a, rows, "norm") if a.norm_before else rows
        made = _experts(graph, a, normed, sums, part)
        return graph.finish(_row(graph, a, made if part == a.expert_units - 1 else rows, made))
    taken = _taken(graph, a)
    rows = taken.rows
    normed = _norm(graph, a, rows, "norm") if a.norm_before else rows
    made = _sum(graph, a, rows, _after(graph, a, _feed_forward(graph, a, normed), "after"))
    return graph.finish(_row(graph, a, *[_of_tokens(graph, taken, made)] * 2))


def block_graph(a: Architecture, kind: BlockKind, first: bool = False) -> bytes:
    """A block whose halves take the same rows."""
    graph = UnitGraph()
    taken = _taken(graph, a)
    rows = _placed(graph, a, taken) if first else taken.rows
    normed = _norm(graph, a, rows, "norm") if a.norm_before else rows
    other = _norm(graph, a, rows, "ffn_norm") if a.norm_before and not a.one_norm else normed
    attended = _after(graph, a, _attention(graph, a, kind, normed, taken), "after")
    inner = _after(graph, a, _feed_forward(graph, a, other), "ffn_after")
    return graph.finish(graph.one("Add", rows, graph.one("Add", attended, inner)))


def head_graph(a: Architecture) -> bytes:
    """Logits of rows."""
    graph = UnitGraph()
    normed = _norm(graph, a, _split(graph, a)[0], "norm") if a.norm_last else _split(graph, a)[0]
    weight, bias = "embed" if a.tied_embedding else "head", "logits" if a.logit_bias else ""
    logits = graph.linear(normed, weight, a.vocab, a.hidden, bias=bias)
    logits = _scaled(graph, logits, a.logit_scale)
    if a.logit_softcap is not None:
        cap = graph.constant(np.array(a.logit_softcap, np.float32))
        logits = graph.one("Mul", graph.one("Tanh", graph.one("Div", logits, cap)), cap)
    return graph.finish(logits)


def _norm(graph: UnitGraph, a: Architecture, rows: str, weight: str) -> str:
    if a.norm == "rms":
        return graph.norm(rows, weight, a.norm_epsilon)
    return graph.layer_norm(rows, weight, a.norm_epsilon, f"{weight}.bias" if a.norm_bias else "")


def _scaled(graph: UnitGraph, rows: str, factor: float) -> str:
    return rows if factor == 1 else graph.one("Mul", rows, graph.constant(np.array(factor, np.float32)))


def _after(graph: UnitGraph, a: Architecture, made: str, weight: str) -> str:
    """What is added to the rows."""
    normed = _norm(graph, a, made, weight) if a.norm_after else made
    return _scaled(graph, normed, a.residual_scale)


def _sum(graph: UnitGraph, a: Architecture, rows: str, made: str) -> str:
    """`made` added to the rows."""
    found = graph.one("Add", rows, made)
    return _norm(graph, a, found, "norm") if a.norm_sum else found


def _taken(graph: UnitGraph, a: Architecture, first: bool = False) -> _Taken:
    """`first`: the unit counts the encoded rows, and makes that the mark of tokens."""
    rows, behind = _split(graph, a)
    if not a.encoded:
        return _Taken(rows, behind)
    if not a.marked:
        places = graph.one("Unsqueeze", graph.positions(), graph.sizes(-1))
        border = graph.constant(np.full((1, 1, 1), a.encoded, np.int64))
        return _Taken(rows, "", border, graph.one("GreaterOrEqual", places, border))
    mark = _counted(graph, behind) if first else behind
    unit = graph.constant(np.array(1 / MARK, np.float32))
    rounded = graph.one("Round", graph.one("Mul", mark, unit))
    border = graph.one("Cast", rounded, to=TensorProto.INT64)
    return _Taken(rows, mark, border, graph.one("Greater", border, graph.sizes(0)))


def _counted(graph: UnitGraph, mark: str) -> str:
    """The marks of rows where those that were encoded came with 1 and tokens with 0: 0 for the former, for a token how
    many of them its conversation begins with, times MARK. It is the mean over all positions so far, times their number.
    """
    both = graph.one("Concat", mark, mark, axis=-1)
    alike = graph.one("Mul", both, graph.constant(np.array(0, np.float32)))
    means = graph.attention(
        alike, alike, both, heads=1, kv_heads=1, head_size=MARK_VALUES, rotary=-1, state=1, scale=1.0
    )
    mean = graph.one("Gather", means, graph.sizes(0), axis=-1)
    places = graph.one("Unsqueeze", graph.positions(), graph.sizes(-1))
    behind = graph.one("Add", places, graph.sizes(1))
    count = graph.one("Mul", mean, graph.one("Cast", behind, to=TensorProto.FLOAT))
    of_tokens = graph.one("Sub", graph.constant(np.array(1, np.float32)), mark)
    whole = graph.one("Mul", graph.one("Round", count), of_tokens)
    return graph.one("Mul", whole, graph.constant(np.array(MARK, np.float32)))


def _placed(graph: UnitGraph, a: Architecture, taken: _Taken) -> str:
    """The rows with what is added by their position, and the norm of both."""
    rows = taken.rows
    if a.positions:
        places = graph.positions()
        last = graph.constant(np.array(a.positions - 1, np.int64))
        if taken.border:
            begun = graph.one("Sub", places, graph.one("Squeeze", taken.border, graph.sizes(-1)))
            places = graph.one("Max", begun, graph.constant(np.array(0, np.int64)))
        added = graph.one("Gather", "positions", graph.one("Min", places, last), axis=0)
        rows = graph.one("Add", rows, added)
    return _norm(graph, a, rows, "embed_norm") if a.embed_norm else rows


def _of_tokens(graph: UnitGraph, taken: _Taken, made: str) -> str:
    """`made` of tokens, with what stands behind rows; rows that were encoded pass as they are."""
    kept = graph.one("Where", taken.is_token, made, taken.rows) if taken.is_token else made
    return graph.one("Concat", kept, taken.behind, axis=-1) if taken.behind else kept


def _seen(graph: UnitGraph, taken: _Taken, *, encoded: bool) -> str:
    """What is added to scores so that encoded rows, or tokens, alone are looked at: (batch, 1, tokens, total)."""
    cached = graph.cached()
    before = graph.one("Less", cached, taken.border)
    none, far = (graph.constant(np.array(value, np.float32)) for value in (0, FAR))
    added = graph.one("Where", before, *((none, far) if encoded else (far, none)))
    if not taken.behind:  # the border is the same for all
        sizes = graph.one("Shape", graph.positions()), graph.one("Shape", cached)
        axes = graph.one("Concat", *sizes, axis=0)
        added = graph.one("Expand", added, axes)
    return graph.one("Unsqueeze", added, graph.sizes(1))


def _by_distance(graph: UnitGraph, a: Architecture) -> str:
    """What is added to scores by how far back a token is looked at: (batch, heads, tokens, total)."""
    places = graph.one("Unsqueeze", graph.positions(), graph.sizes(-1))
    back = graph.one("Sub", places, graph.cached())
    held = graph.one("Max", back, graph.constant(np.array(0, np.int64)))
    held = graph.one("Min", held, graph.constant(np.array(a.far, np.int64)))
    bucket = graph.one("Gather", graph.constant(buckets_behind(a.buckets, a.far)), held, axis=0)
    found = graph.one("Gather", "relative", bucket, axis=0)
    return graph.one("Transpose", found, perm=(0, 3, 1, 2))


def _attention(graph: UnitGraph, a: Architecture, kind: BlockKind, normed: str, taken: _Taken) -> str:
    if a.latent is not None:
        return _latent_attention(graph, a, a.latent, normed)
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    qkv = graph.linear(normed, "qkv", queries + 2 * keys, a.hidden, bias="qkv.bias" if a.qkv_bias else "")
    operands = [qkv]
    if a.qk_norm:
        operands = _normed_heads(graph, a, qkv, ("q_norm", "k_norm"))
    elif a.unit_heads and kind.table >= 0:  # turning changes no length
        ones = graph.constant(np.ones(a.head_size, np.float32))
        operands = _normed_heads(graph, a, qkv, (ones, ones))
    elif a.tempering is not None and kind.table < 0:
        q, *others = graph.add("Split", qkv, graph.sizes(queries, keys, keys), outputs=3, axis=-1)
        operands = [graph.one("Mul", q, _temperatures(graph, a.tempering)), *others]
    if a.axes:
        operands = _turned(graph, a, operands, taken.behind)
    more: dict[str, float] = {}
    scale = a.attention_scale
    if a.rope_amplitude != 1 and kind.table == 0:
        if a.rope_dims == a.head_size:
            scale = (scale or a.head_size**-0.5) * a.rope_amplitude**2
        else:
            operands = _louder(graph, a, operands)
    if scale is not None:
        more["scale"] = scale
    if a.attention_softcap is not None:
        more["softcap"] = a.attention_softcap
    if kind.chunked and kind.window is not None:
        more["chunk"] = kind.window
    biases = [_seen(graph, taken, encoded=False)] if taken.border else []
    biases += [_by_distance(graph, a)] if a.buckets else []
    if a.sinks or biases:
        operands = [*operands, *[""] * (3 - len(operands)), "sinks" if a.sinks else ""]
    if biases:
        operands.append(biases[0] if len(biases) == 1 else graph.one("Add", *biases))
    table = -1 if a.axes else kind.table
    attended = graph.attention(
        *operands, heads=a.heads, kv_heads=a.kv_heads, head_size=a.head_size, rotary=table, **more
    )
    return graph.linear(attended, "o", a.hidden, queries, bias="o.bias" if a.o_bias else "")


def _latent_attention(graph: UnitGraph, a: Architecture, latent: Latent, normed: str) -> str:
    """Attention to what is cached of tokens as it is: what would make keys of it is applied to queries, what would make
    values to what was taken of it (arXiv 2405.04434, section 2.1.2).
    """
    heads, turns = a.heads, a.rope_dims
    queries = heads * (latent.plain + turns)
    first = latent.query_rank or queries
    both = graph.linear(normed, "q_kv", first + latent.rank + turns, a.hidden)
    q, kept, key = graph.add("Split", both, graph.sizes(first, latent.rank, turns), outputs=3, axis=-1)
    if latent.query_rank:
        q = graph.linear(graph.norm(q, "q_norm", latent.epsilon), "q_b", queries, latent.query_rank)
    by_head = graph.one("Reshape", q, graph.sizes(0, 0, heads, latent.plain + turns))
    plain, turned = graph.add("Split", by_head, graph.sizes(latent.plain, turns), outputs=2, axis=-1)
    compared = graph.one("MatMul", graph.one("Transpose", plain, perm=[0, 2, 1, 3]), "k_b")
    compared = graph.one("Transpose", compared, perm=[0, 2, 1, 3])
    turned, key = (_scaled(graph, each, a.rope_amplitude) for each in (turned, key))
    q = graph.one("Reshape", graph.one("Concat", turned, compared, axis=-1), graph.sizes(0, 0, -1))
    key = graph.one("Concat", key, graph.norm(kept, "kv_norm", latent.epsilon), axis=-1)
    attended = graph.attention(
        q,
        key,
        heads=heads,
        kv_heads=1,
        head_size=a.head_size,
        scale=a.attention_scale or (latent.plain + turns) ** -0.5,
    )
    seen = graph.one("Reshape", attended, graph.sizes(0, 0, heads, a.head_size))
    _, seen = graph.add("Split", seen, graph.sizes(turns, latent.rank), outputs=2, axis=-1)
    values = graph.one("MatMul", "v_b", graph.one("Transpose", seen, perm=[0, 2, 3, 1]))
    values = graph.one("Transpose", values, perm=[0, 3, 1, 2])
    flat = graph.one("Reshape", values, graph.sizes(0, 0, -1))
    return graph.linear(flat, "o", a.hidden, heads * latent.value)


def _temperatures(graph: UnitGraph, tempering: Tempering) -> str:
    """What queries are multiplied by, (batch, tokens, 1)."""

    def number(value: float) -> str:
        return graph.constant(np.array(value, np.float32))

    counted = graph.one("Cast", graph.positions(), to=TensorProto.FLOAT)
    whole = graph.one("Div", graph.one("Add", counted, number(1)), number(tempering.floor))
    grown = graph.one("Log", graph.one("Add", graph.one("Floor", whole), number(1)))
    factors = graph.one("Add", graph.one("Mul", grown, number(tempering.scale)), number(1))
    return graph.one("Unsqueeze", factors, graph.sizes(-1))


def _apart(graph: UnitGraph, a: Architecture, qkv: str) -> list[str]:
    """q, k, v from packed rows."""
    queries, keys = a.heads * a.head_size, a.kv_heads * a.head_size
    return graph.add("Split", qkv, graph.sizes(queries, keys, keys), outputs=3, axis=-1)


def _turned(graph: UnitGraph, a: Architecture, operands: list[str], shifts: str) -> list[str]:
    """q, k and v, of which q and k are turned by the places of their tokens, each pair of a head by its axis."""
    q, k, v = operands if len(operands) == 3 else _apart(graph, a, operands[0])
    far = graph.one("Mul", shifts, graph.constant(np.array(1 / SHIFT_STEP, np.float32)))
    whole = graph.one("Cast", graph.one("Round", far), to=TensorProto.INT64)
    columns = graph.add("Split", whole, graph.sizes(*[1] * SHIFT_COLUMNS), outputs=SHIFT_COLUMNS, axis=-1)
    stand, half = graph.positions(), kernel_head_size(a.head_size) // 2
    sections = [*a.axes, half - sum(a.axes)] if half > sum(a.axes) else [*a.axes]
    parts: tuple[list[str], list[str]] = ([], [])
    for axis, column in enumerate(columns[: len(a.axes)]):
        places = graph.one("Add", stand, graph.one("Squeeze", column, graph.sizes(-1)))
        for found, table in zip(parts, graph.rotary(places), strict=True):
            cut = graph.add("Split", table, graph.sizes(*sections), outputs=len(sections), axis=-1)
            found.append(cut[axis])
    cos, sin = (graph.one("Unsqueeze", graph.one("Concat", *each, axis=-1), graph.sizes(2)) for each in parts)
    flat = graph.sizes(0, 0, -1)
    made = []
    for rows, heads in ((q, a.heads), (k, a.kv_heads)):
        split = graph.one("Reshape", rows, graph.sizes(0, 0, heads, a.head_size))
        one, two = graph.add(
            "Split", split, graph.sizes(a.head_size // 2, a.head_size // 2), outputs=2, axis=-1
        )
        first = graph.one("Sub", graph.one("Mul", one, cos), graph.one("Mul", two, sin))
        second = graph.one("Add", graph.one("Mul", two, cos), graph.one("Mul", one, sin))
        made.append(graph.one("Reshape", graph.one("Concat", first, second, axis=-1), flat))
    return [*made, v]


def _normed_heads(graph: UnitGraph, a: Architecture, qkv: str, weights: tuple[str, str]) -> list[str]:
    """q, k, v from packed rows, q and k normalized."""
    q, k, v = _apart(graph, a, qkv)
    if a.head_norm == "row":
        return [
            *(graph.norm(part, weight, a.norm_epsilon) for part, weight in zip((q, k), weights, strict=True)),
            v,
        ]
    heads, flat = graph.sizes(0, 0, -1, a.head_size), graph.sizes(0, 0, -1)
    found = []
    for part, weight in zip((q, k), weights, strict=True):
        normed = graph.norm(graph.one("Reshape", part, heads), weight, a.norm_epsilon)
        found.append(graph.one("Reshape", normed, flat))
    return [*found, v]


def _louder(graph: UnitGraph, a: Architecture, operands: list[str]) -> list[str]:
    """q and k with the amplitude of the dimensions that rotate, others as they are."""
    head = np.where(turning(a), a.rope_amplitude, 1.0).astype(np.float32)
    factors = [np.tile(head, a.heads), np.tile(head, a.kv_heads)]
    if len(operands) == 1:
        factors = [np.concatenate([*factors, np.ones(a.kv_heads * a.head_size, np.float32)])]
    louder = [
        graph.one("Mul", part, graph.constant(each)) for part, each in zip(operands, factors, strict=False)
    ]
    return [*louder, *operands[len(louder) :]]


def _feed_forward(graph: UnitGraph, a: Architecture, normed: str) -> str:
    name = "gate_up" if a.gated else "up"
    bias = f"{name}.bias" if a.ffn_bias else ""
    inner = graph.linear(normed, name, (1 + a.gated) * a.ffn, a.hidden, bias=bias)
    if a.gated:
        gate, up = graph.add("Split", inner, graph.sizes(a.ffn, a.ffn), outputs=2, axis=-1)
        inner = graph.one("Mul", _active(graph, a, gate), up)
    else:
        inner = _active(graph, a, inner)
    return graph.linear(inner, "down", a.hidden, a.ffn, bias="down.bias" if a.ffn_bias else "")


def _split(graph: UnitGraph, a: Architecture) -> tuple[str, str]:
    """Of the rows that a unit takes: what stands in front, (batch, tokens, hidden), and what is behind it, "" where
    nothing is.
    """
    if a.behind:
        rows, behind = graph.add("Split", INPUT, graph.sizes(a.hidden, a.behind), outputs=2, axis=-1)
        return rows, behind
    return _halves(graph, a)[0], ""


def _halves(graph: UnitGraph, a: Architecture) -> tuple[str, str]:
    """Of the rows that a unit takes: what experts take, and the sum that they add to; mostly both are the same."""
    if a.expert_units == 1:
        return INPUT, INPUT
    rows, sums = graph.add("Split", INPUT, graph.sizes(a.hidden, a.hidden), outputs=2, axis=-1)
    return rows, sums


def _row(graph: UnitGraph, a: Architecture, rows: str, sums: str) -> str:
    """What crosses a border, as `_halves` takes it apart."""
    return sums if a.expert_units == 1 else graph.one("Concat", rows, sums, axis=-1)


def _experts(graph: UnitGraph, a: Architecture, normed: str, sums: str, part: int) -> str:
    """`sums` plus what those experts of the unit make that each token's router chooses."""
    taken, shares = (
        _chosen_one(graph, a, normed) if a.routing.on_input else (normed, _shares(graph, a, normed))
    )
    base = graph.one("Add", sums, _shared(graph, a, normed)) if a.shared_ffn and not part else sums
    own = a.experts_of(part)
    if len(own) < a.experts:
        bounds = graph.sizes(own.start), graph.sizes(own.stop), graph.sizes(-1)
        shares = graph.one("Slice", shares, *bounds)
    limit = [graph.constant(np.array(a.expert_limit, np.float32))] if a.expert_limit else []
    return graph.experts(
        taken,
        shares,
        base,
        *limit,
        weight="experts",
        count=len(own),
        rows=a.ffn,
        columns=a.hidden,
        **({} if a.expert_alpha == 1 else {"alpha": a.expert_alpha}),
    )


def _chosen_one(graph: UnitGraph, a: Architecture, normed: str) -> tuple[str, str]:
    """What the expert takes that a token's router chooses, and the shares of all."""
    logits = graph.linear(normed, "router", a.experts, a.hidden)
    best, which = graph.add("TopK", logits, graph.sizes(1), outputs=2, axis=-1)
    none = graph.one("ConstantOfShape", graph.one("Shape", logits))
    shares = graph.one("ScatterElements", none, which, _ones_like(graph, best), axis=-1)
    return graph.one("Mul", normed, graph.one("Sigmoid", best)), shares


def _ones_like(graph: UnitGraph, other: str) -> str:
    one = helper.make_tensor("", TensorProto.FLOAT, [1], [1.0])
    return graph.one("ConstantOfShape", graph.one("Shape", other), value=one)


def _shares(graph: UnitGraph, a: Architecture, normed: str) -> str:
    """Of each token the share of every expert, 0 where it is not chosen."""
    routing = a.routing
    bias = "router.bias" if a.router_bias else ""
    logits = graph.linear(normed, "router", a.experts, a.hidden, bias=bias)
    is_soft = routing.scores == "softmax"
    likely = graph.one("Softmax", logits, axis=-1) if is_soft else graph.one("Sigmoid", logits)
    ranked = graph.one("Add", likely, "router.correction") if routing.corrected else likely
    if routing.groups > 1:
        ranked = _in_groups(graph, a, ranked)
    best, which = graph.add("TopK", ranked, graph.sizes(a.experts_chosen), outputs=2, axis=-1)
    if ranked != likely:
        best = graph.one("GatherElements", likely, which, axis=-1)
    if a.experts_normed:
        total = graph.one("ReduceSum", best, graph.sizes(-1), keepdims=1)
        if not is_soft:
            total = graph.one("Add", total, graph.constant(np.array(LEAST_SHARES, np.float32)))
        best = graph.one("Div", best, total)
    best = _scaled(graph, best, routing.scale)
    none = graph.one("ConstantOfShape", graph.one("Shape", likely))
    return graph.one("ScatterElements", none, which, best, axis=-1)


def _in_groups(graph: UnitGraph, a: Architecture, scores: str) -> str:
    """Scores, so low that none is chosen in groups that are not."""
    routing = a.routing
    grouped = graph.one("Reshape", scores, graph.sizes(0, 0, routing.groups, a.experts // routing.groups))
    if routing.scores == "softmax":
        of_group = graph.one("ReduceMax", grouped, graph.sizes(-1), keepdims=0)
    else:
        two, _ = graph.add("TopK", grouped, graph.sizes(2), outputs=2, axis=-1)
        of_group = graph.one("ReduceSum", two, graph.sizes(-1), keepdims=0)
    best, which = graph.add("TopK", of_group, graph.sizes(routing.groups_chosen), outputs=2, axis=-1)
    none = graph.one("ConstantOfShape", graph.one("Shape", of_group))
    marked = graph.one("ScatterElements", none, which, _ones_like(graph, best), axis=-1)
    marks = graph.one("Cast", marked, to=TensorProto.BOOL)
    kept = graph.one("Unsqueeze", marks, graph.sizes(-1))
    least = graph.constant(np.array(NEVER, np.float32))
    return graph.one("Reshape", graph.one("Where", kept, grouped, least), graph.sizes(0, 0, -1))


def _shared(graph: UnitGraph, a: Architecture, normed: str) -> str:
    """What the expert makes that every token has, times the token's share."""
    width = a.shared_ffn
    both = graph.linear(normed, "shared.gate_up", 2 * width, a.hidden)
    gate, up = graph.add("Split", both, graph.sizes(width, width), outputs=2, axis=-1)
    made = graph.linear(graph.one("Mul", _active(graph, a, gate), up), "shared.down", a.hidden, width)
    if not a.shared_gated:
        return made
    return graph.one("Mul", made, graph.one("Sigmoid", graph.linear(normed, "shared.share", 1, a.hidden)))


def _active(graph: UnitGraph, a: Architecture, rows: str) -> str:
    match a.activation:
        case "silu":
            return graph.one("QuickGelu", rows, domain=MICROSOFT, alpha=1.0)
        case "gelu":
            return graph.one("Gelu", rows, approximate="none")
        case "gelu_tanh":
            return graph.one("Gelu", rows, approximate="tanh")
        case "relu":
            return graph.one("Relu", rows)
