"""Writes mesh_state.json: commands, the states they build, and bytes that are refused, for both languages."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

from tracing import beside, written

from peer.errors import BadCommand
from peer.state.decoder_sight import seen_as
from peer.state.failure_domains import UNKNOWN, Surroundings
from peer.state.generated.commands import (
    MAX_DECODERS,
    MAX_MODELS,
    ChoiceRecord,
    DecoderActivated,
    DecoderCommand,
    DecoderHeld,
    DecoderOffered,
    DecoderPlanned,
    DecoderRefused,
    HeldSlice,
    LinkFacts,
    MemberDraining,
    MemberJoined,
    MemberLeaving,
    MemberLeft,
    MemberMeasured,
    MemberPaused,
    MemberRenamed,
    ModelChosen,
    ModelOffered,
    ModelPlaced,
    ModelWithdrawn,
    PlanActivated,
    PlanProposed,
    PlanRecord,
    PlanRefused,
    PlanStage,
    Profile,
    Protection,
    ProtectionChosen,
    RunStage,
    UnitsHeld,
)
from peer.state.member_commands import Command, decode_command, encode_command
from peer.state.mesh_state import MeshState, apply, decode_state, encode_state, state_digest
from peer.state.protection import PRESETS

PATH = beside(__file__, "mesh_state.json")
SEED = 20260713
TRACES = 10
OPS = 24
PEERS = ("pb", "pa", "pc", "10", "9")  # some look like numbers, which JavaScript objects would reorder
SURROUNDINGS = (
    UNKNOWN,
    Surroundings(21, "a2" * 16, "", "c4" * 16),
    Surroundings(12_000, "", "b3" * 16, "d5" * 16),
)
ARITHMETICS = ("", "cpu/avx512_vnni/rows-1/9f3ac1d2e4b07755", "webgpu/intel-gen-12lp/packed/0123456789abcdef")
MODEL = ModelChosen("a" * 64, 'toy, größer 😀 "\\\n\x7f\u2028', 6, 128, 2, "latency")

MODELS = ("other", "pp-ocr", "10", "9")  # the first is a name that the mesh's own model has at times


def some_profile(rng: random.Random) -> Profile:
    kinds = {kind: rng.randrange(10**6) for kind in ("embed", "attn", "ffn", "head")}
    return Profile(
        rng.randrange(2**40),
        rng.randrange(2**30),
        kinds,
        kinds,
        {},
        5,
        "cpu",
        rng.randint(1, 8),
        rng.choice(SURROUNDINGS),
        rng.choice(ARITHMETICS),
    )


def some_plan(rng: random.Random, version: int) -> PlanRecord:
    peers = rng.sample(PEERS, 2)
    spare = tuple(rng.sample(PEERS, rng.randint(0, 2)))
    stages = (PlanStage(0, 3, peers[0], spare, 1, 2, 3), PlanStage(3, 6, peers[1]))
    why = ("eins", "zwei: ä")[: rng.randint(0, 2)]
    taken = ChoiceRecord(f"{peers[0]} 0-3 > {peers[1]} 3-6", 9, 8, 7, 6, True, True, False, "")
    unable = ChoiceRecord("ä alone", 0, 0, 0, 0, False, False, False, "ä alone is 1 MiB short")
    choices = (taken, unable) if rng.random() < 0.5 else ()
    return PlanRecord(version, stages, rng.randrange(10**6), rng.randrange(10**6), why, choices)


def some_placement(rng: random.Random, state: MeshState) -> ModelPlaced:
    peers = rng.sample(PEERS, 2)
    stages = (
        RunStage(0, 2, peers[0], tuple(rng.sample(PEERS, rng.randint(0, 2))), 5),
        RunStage(2, 3, peers[1]),
    )
    version = max(0, state.index + rng.randint(-4, 1))
    why = ("one: ä",)[: rng.randint(0, 1)]
    found = rng.choice((stages, stages[:1], stages[1:], ()))
    return ModelPlaced(rng.choice(MODELS), version, found, rng.randrange(10**6), rng.randrange(10**6), why)


def some_of_a_decoder(rng: random.Random, state: MeshState) -> DecoderCommand:
    name = rng.choice(MODELS)
    decoder = state.decoders.get(name)
    proposed = decoder.proposed.version if decoder is not None and decoder.proposed is not None else 0
    return rng.choice(
        (
            DecoderOffered(name, rng.choice("bc") * 64, 6, 128, 2, rng.choice(("latency", "throughput"))),
            DecoderPlanned(name, some_plan(rng, state.index)),
            DecoderActivated(name, proposed),
            DecoderRefused(name, "no peer has room for the head: 80 MB wanted"),
            DecoderHeld(name, rng.choice(PEERS), rng.choice((((0, 3),), ((0, 3), (3, 6)), ()))),
        )
    )


def some_command(rng: random.Random, state: MeshState) -> Command:
    peer = rng.choice(PEERS)
    proposed = state.proposed.version if state.proposed else 0
    links = tuple(
        LinkFacts(
            rng.choice(PEERS),
            rng.choice(PEERS),
            rng.randrange(9999),
            rng.randrange(10**9),
            0,
            rng.choice((None, True, False)),
        )
        for _ in range(rng.randint(0, 3))
    )
    return rng.choices(
        (
            MODEL if rng.random() < 0.5 else replace(MODEL, name="other", objective="throughput"),
            MemberJoined(peer, f"machine {peer}", rng.random() < 0.9, rng.random() < 0.3, rng.random() < 0.3),
            MemberMeasured(peer, some_profile(rng), links),
            PlanProposed(some_plan(rng, state.last_version + 1)),
            UnitsHeld(peer, rng.choice((((0, 3),), ((0, 3), (3, 6)), ()))),
            PlanActivated(proposed if rng.random() < 0.8 else proposed + 1),
            PlanRefused("no peer has room for the head: 80 MB wanted"),
            MemberDraining(peer, rng.choice(("the tab is hidden", "the battery is low"))),
            MemberPaused(peer, "the network is gone"),
            MemberLeaving(peer),
            MemberLeft(peer, "left"),
            ProtectionChosen(PRESETS[rng.choice(("basic", "standard", "high", "critical"))]),
            ModelOffered(rng.choice("bc") * 64, rng.choice(MODELS)),
            ModelWithdrawn(rng.choice(MODELS)),
            some_placement(rng, state),
            MemberRenamed(peer, rng.choice(("Ada's desk", "größer", "😀" * 64, "x" * 65, "", "a\u202eb"))),
            some_of_a_decoder(rng, state),
        ),
        (1, 6, 6, 4, 8, 4, 1, 3, 1, 1, 1, 1, 3, 1, 3, 3, 12),
    )[0]


def lends_less(rng: random.Random) -> list[Command]:
    """Every way into draining and pausing, and out again."""
    back = MemberMeasured("pa", some_profile(rng), ())
    drains, pauses = MemberDraining("pa", "the battery is low"), MemberPaused("pa", "the network is gone")
    asks = (MemberJoined("10", "asks", False), MemberDraining("10", "no"), MemberPaused("10", "no"))
    return [
        *asks,
        *(MemberJoined("pa", "tab", True), drains, pauses, back, drains, replace(drains, reason="hidden")),
        *(
            pauses,
            replace(pauses, reason="frozen"),
            drains,
            back,
            pauses,
            MemberLeaving("pa"),
            drains,
            pauses,
        ),
        *(back, MemberLeft("pa", "left"), drains, pauses),
    ]


def offers() -> list[Command]:
    """Names that are taken, too many models, placements that are old, out of order, or of what nobody offers."""
    whole = (RunStage(0, 2, "pa", ("pb", "9"), 2**53 - 1), RunStage(2, 3, "pb", (), 7), RunStage(3, 9, "pa"))
    placed = ModelPlaced("a.b", 4, whole, 12, 34_000, ("ä one", "two"))
    return [
        ModelPlaced("a.b", 1, (), 0, 0, ()),
        ModelWithdrawn("a.b"),
        ModelOffered("b" * 64, "a.b"),
        ModelOffered("c" * 64, "a.b"),
        ModelOffered("b" * 64, "other"),
        replace(MODEL, name="other"),
        ModelOffered("b" * 64, "other"),
        replace(placed, version=0),
        replace(placed, stages=whole[1:]),
        replace(placed, stages=(whole[0], whole[2])),
        replace(placed, stages=(whole[0], RunStage(2, 2, "pb"))),
        replace(placed, stages=(RunStage(0, 3, "pa"), RunStage(2, 4, "pb"))),
        placed,
        placed,
        replace(placed, version=3),
        ModelPlaced("a.b", 5, (), 0, 0, ("peers of this mesh are 5 MiB short",)),
        replace(placed, version=2**53 - 1, stages=whole[:1]),
        ModelWithdrawn("a.b"),
        ModelWithdrawn("a.b"),
        ModelOffered("c" * 64, "a.b"),
        *(ModelOffered("d" * 64, f"m{number}") for number in range(MAX_MODELS)),
        ModelWithdrawn("m0"),
        ModelOffered("d" * 64, "one-more"),
    ]


def decoders() -> list[Command]:
    """Names that are taken on either side, too many models, plans of what nobody offers, members that go and come."""
    offered = DecoderOffered("a.b", "b" * 64, 6, 128, 2, "latency")
    plan = some_plan(random.Random(SEED), 4)
    held = DecoderHeld("a.b", "pa", ((0, 3),))
    return [
        held,
        DecoderPlanned("a.b", plan),
        offered,
        offered,
        ModelOffered("c" * 64, "a.b"),
        ModelOffered("c" * 64, "graph"),
        replace(offered, name="graph"),
        held,
        MemberJoined("pa", "one", True),
        held,
        DecoderPlanned("a.b", plan),
        DecoderActivated("a.b", 3),
        DecoderActivated("a.b", 4),
        DecoderActivated("a.b", 4),
        MemberJoined("pa", "one", True, incarnation=2),
        held,
        DecoderPlanned("a.b", replace(plan, version=9)),
        DecoderRefused("a.b", "5 MiB are missing"),
        MemberLeft("pa", "left"),
        replace(offered, name="other"),
        replace(MODEL, name="other"),
        replace(offered, name="other"),
        *(replace(offered, name=f"m{number}") for number in range(MAX_DECODERS)),
        ModelWithdrawn("a.b"),
        ModelWithdrawn("a.b"),
        replace(offered, name="one-more"),
    ]


def teams() -> list[Command]:
    """Teams that cannot be, one that loads, serves, loses a helper and has it again; slices of other cuts."""
    stage = PlanStage(0, 3, "pa", ("pc",), 1, 2, 3, ("pb", "9"), (500, 300, 200))
    plan = PlanRecord(1, (stage, PlanStage(3, 6, "pc")), 5, 9, ())

    def planned(**changes: Any) -> PlanProposed:
        return PlanProposed(replace(plan, stages=(replace(stage, **changes), plan.stages[1])))

    def held(peer: str, place: int, shares: tuple[int, ...] = stage.shares) -> UnitsHeld:
        return UnitsHeld(peer, (), (HeldSlice(0, 3, place, shares),))

    joined = [MemberJoined(peer, peer, True, incarnation=1) for peer in ("pa", "pb", "pc", "9")]
    return [
        MODEL,
        *joined[:-1],
        PlanProposed(plan),
        joined[-1],
        planned(shares=()),
        planned(shares=(1, 2)),
        planned(shares=(1, 0, 1)),
        planned(shares=(1, 1001, 1)),
        planned(helpers=()),
        planned(helpers=("pb", "pb")),
        planned(helpers=("pb", "pa")),
        planned(helpers=("pc", "9")),
        PlanProposed(plan),
        UnitsHeld("pc", ((3, 6),)),
        held("pb", 1),
        UnitsHeld("pa", ((0, 3),)),
        held("9", 2, (500, 200, 300)),
        PlanActivated(1),
        held("pa", 0),
        held("9", 2),
        MemberPaused("pb", "hidden"),
        MemberLeft("9", "lost"),
        joined[-1],
        held("9", 1),
        held("9", 2),
        DecoderOffered("a.b", "b" * 64, 6, 128, 2, "latency"),
        DecoderPlanned("a.b", plan),
    ]


def protections() -> list[Command]:
    """Every level, and settings given alone."""
    alone = Protection(1250, False, "off", "simple", False, ("head", "größer 😀"), False, 1, 2)
    return [ProtectionChosen(each) for each in (*PRESETS.values(), alone)]


def traces() -> list[dict[str, Any]]:
    made = [
        traced("who lends less", 0, lends_less(random.Random(SEED))),
        traced("how answers are protected", 0, protections()),
        traced("models beside the mesh's own", 0, offers()),
        traced("further models that answer in words", 0, decoders()),
        traced("stages that teams compute", 0, teams()),
    ]
    for number in range(TRACES):
        rng = random.Random(SEED + number)
        state = MeshState(term=number)
        commands = []
        for _ in range(OPS):
            commands.append(some_command(rng, state))
            state = apply(state, commands[-1])
        made.append(traced(f"random log of seed {SEED + number}", number, commands))
    return made


def traced(name: str, term: int, commands: list[Command]) -> dict[str, Any]:
    state = MeshState(term=term)
    ops = []
    for command in commands:
        state = apply(state, command)
        serving = state.serving()
        ops.append(
            {
                "command": encode_command(command).decode(),
                "state": encode_state(state).decode(),
                "serving": None if serving is None else serving.version,
                "seen": {name: state_digest(seen_as(state, name)) for name in ("a.b", *MODELS)}
                if state.decoders
                else {},
            }
        )
    return {"name": name, "term": term, "ops": ops}


PLAN = '{"predicted_rate_milli":1,"predicted_token_us":2,"stages":[],"version":1,"why":[]}'
CHOICE = (
    '{"best":true,"chosen":true,"knee":false,"memory_bytes":2,"name":"pa 0-6","prefill_us":3,"rate_milli":4,'
    '"token_us":5,"why_not":""}'
)


def among(others: int) -> str:
    return PLAN.replace("{", '{"choices":[' + ",".join([CHOICE] * others) + "],", 1)


PROTECTION = encode_command(ProtectionChosen(Protection())).decode().split('"protection":')[1][:-1]
HALF_KEY = (
    '{"batch_ns":{"\\ud83d":1},"decode_ns":{},"memory_bytes":1,"overhead_bytes":1,"prefill_ns":{},"provider":"cpu",'
    '"step_ns":1,"threads":1}'
)


def measured(surroundings: str, link: str = "", arithmetic: str = "") -> str:
    more = (("surroundings", surroundings), ("arithmetic", arithmetic))
    profile = (
        '{"batch_ns":{},"decode_ns":{},"memory_bytes":1,"overhead_bytes":1,"prefill_ns":{},"provider":"cpu",'
        '"step_ns":1,"threads":1' + "".join(f',"{name}":{value}' for name, value in more if value) + "}"
    )
    return '{"kind":"MemberMeasured","peer":"a","links":[' + link + '],"profile":' + profile + "}"


def said(hazard: str = "21", machine: str = "", network: str = "", owner: str = "") -> str:
    names = f'"machine":"{machine}","network":"{network}","owner":"{owner}"'
    return f'{{"hazard_milli":{hazard},{names}}}'


def placed(stages: int, standbys: int = 0) -> str:
    others = ",".join(['"b"'] * standbys)
    each = '{"bytes":1,"first":0,"primary":"a","standbys":[' + others + '],"stop":1}'
    listed = ",".join([each] * stages)
    figures = '"latency_us":1,"rate_milli":2'
    return f'{{"kind":"ModelPlaced",{figures},"name":"x","stages":[{listed}],"version":3,"why":[]}}'


def teamed(helpers: int) -> str:
    names = ",".join(f'"b{number}"' for number in range(helpers))
    shares = ",".join(["7"] * (helpers + 1))
    more = f'"helpers":[{names}],"kv_bytes":0,"overhead_bytes":0,"shares":[{shares}],"weight_bytes":0'
    stage = '{"first":0,"primary":"a","standbys":[],"stop":1,' + more + "}"
    return '{"kind":"PlanProposed","plan":' + PLAN.replace("[]", f"[{stage}]", 1) + "}"


SLICES = '{"kind":"UnitsHeld","peer":"a","held":[],"slices":[{"first":0,"stop":3,"place":1,"shares":[1,2]}]}'
LINK = '{"src":"a","dst":"b","rtt_us":1,"bytes_per_s":2,"overhead_us":3%}'
PLACE = "a2" * 16
COMMANDS: tuple[tuple[str, str], ...] = (
    ("good, a profile of before surroundings", measured("", LINK.replace("%", ""))),
    ("good, surroundings", measured(said("1000000", PLACE, PLACE, PLACE))),
    ("good, unknown surroundings", measured(said("null"))),
    ("an owner that can be read", measured(said(owner="anna"))),
    ("an owner that is a number", measured(said().replace('"owner":""', '"owner":1'))),
    ("a hazard beyond the bound", measured(said("1000001"))),
    ("a hazard below zero", measured(said("-1"))),
    ("a hazard that is true", measured(said("true"))),
    ("a machine of 31 characters", measured(said(machine=PLACE[1:]))),
    ("a machine of other characters", measured(said(machine="A1" * 16))),
    ("a network with a line break behind it", measured(said(network=PLACE + "\\n"))),
    ("surroundings without an owner", measured(said().replace(',"owner":""', ""))),
    ("surroundings that are null", measured("null")),
    ("good, a class of arithmetic", measured("", arithmetic='"cpu/avx2/rows-1/9f3ac1d2e4b07755"')),
    ("good, an unknown class of arithmetic", measured("", arithmetic='""')),
    ("good, a class of 96 characters", measured("", arithmetic=f'"{"a" * 96}"')),
    ("a class of 97 characters", measured("", arithmetic=f'"{"a" * 97}"')),
    ("a class with a capital letter", measured("", arithmetic='"cpu/AVX2/rows-1/9f3ac1d2e4b07755"')),
    ("a class with a space", measured("", arithmetic='"cpu avx2"')),
    ("a class with a line break behind it", measured("", arithmetic='"cpu/avx2\\n"')),
    ("a class that is a number", measured("", arithmetic="1")),
    ("a class that is null", measured("", arithmetic="null")),
    ("good, a link of which it is not known", measured("", LINK.replace("%", ',"relayed":null'))),
    ("good, a link through a relay", measured("", LINK.replace("%", ',"relayed":true'))),
    ("a number for a relay", measured("", LINK.replace("%", ',"relayed":1'))),
    ("good", '{"kind":"PlanActivated","version":1}'),
    ("good, with spaces and another order", ' {"version": 1, "kind": "PlanActivated"} '),
    ("good, the largest integer", '{"kind":"PlanActivated","version":9007199254740991}'),
    ("good, a text of 512 characters beyond 16 bits", '{"kind":"MemberLeaving","peer":"' + "😀" * 512 + '"}'),
    ("good, a name that is a property of every object", '{"kind":"MemberLeaving","peer":"__proto__"}'),
    ("good, a plan", '{"kind":"PlanProposed","plan":' + PLAN + "}"),
    ("nothing", ""),
    ("half of it", '{"kind":"PlanActivated","ver'),
    ("a list", "[]"),
    ("a text", '"PlanActivated"'),
    ("no kind", '{"version":1}'),
    ("good, an unknown kind", '{"kind":"Vote","version":1}'),
    ("good, a kind that is a property of every object", '{"kind":"constructor","version":1}'),
    ("a kind that is a number", '{"kind":1,"version":1}'),
    ("a field missing", '{"kind":"PlanActivated"}'),
    ("good, a field too many", '{"kind":"PlanActivated","version":1,"more":1}'),
    ("good, a field of every object", '{"kind":"PlanActivated","version":1,"__proto__":{}}'),
    ("a text for a number", '{"kind":"PlanActivated","version":"1"}'),
    ("a fraction", '{"kind":"PlanActivated","version":1.5}'),
    ("a whole number written as a fraction", '{"kind":"PlanActivated","version":1.0}'),
    ("a whole number with an exponent", '{"kind":"PlanActivated","version":1e3}'),
    ("below zero", '{"kind":"PlanActivated","version":-1}'),
    ("2^53", '{"kind":"PlanActivated","version":9007199254740992}'),
    ("true for a number", '{"kind":"PlanActivated","version":true}'),
    ("null for a number", '{"kind":"PlanActivated","version":null}'),
    ("not a number", '{"kind":"PlanActivated","version":NaN}'),
    ("a text too long", '{"kind":"MemberLeaving","peer":"' + "x" * 513 + '"}'),
    ("good, a surrogate pair", '{"kind":"MemberLeaving","peer":"\\ud83d\\ude00"}'),
    ("half of a surrogate pair", '{"kind":"MemberLeaving","peer":"\\ud83d"}'),
    ("the other half of one", '{"kind":"MemberDraining","peer":"a","reason":"x\\ude00"}'),
    ("halves in the wrong order", '{"kind":"MemberLeaving","peer":"\\ude00\\ud83d"}'),
    ("half of a pair as a key", '{"kind":"MemberMeasured","peer":"a","links":[],"profile":' + HALF_KEY + "}"),
    ("a number for a text", '{"kind":"MemberLeaving","peer":1}'),
    ("a run that ends before it begins", '{"kind":"UnitsHeld","peer":"a","held":[[3,3]]}'),
    ("a run of three", '{"kind":"UnitsHeld","peer":"a","held":[[1,2,3]]}'),
    ("a run that is a map", '{"kind":"UnitsHeld","peer":"a","held":[{"0":1,"1":2}]}'),
    ("too many runs", '{"kind":"UnitsHeld","peer":"a","held":[' + ",".join(["[0,1]"] * 4097) + "]}"),
    (
        "a word that is no objective",
        '{"kind":"ModelChosen","model":"m","name":"n","units":1,"context":1,"sessions":1,"objective":"speed"}',
    ),
    ("number for true", '{"kind":"MemberJoined","peer":"a","name":"n","compute":1}'),
    ("good, a team", teamed(1)),
    ("good, as large a team as there may be", teamed(8)),
    ("a helper too many", teamed(9)),
    ("a helper that is a number", teamed(1).replace('"b0"', "1")),
    ("a share below zero", teamed(1).replace("[7,", "[-7,")),
    ("null for helpers", teamed(0).replace('"helpers":[]', '"helpers":null')),
    ("good, a slice", SLICES),
    ("a slice without shares", SLICES.replace(',"shares":[1,2]', "")),
    ("a slice that is a run", SLICES.replace("{", "[", 2).replace("[", "{", 1)),
    ("null for slices", '{"kind":"UnitsHeld","peer":"a","held":[],"slices":null}'),
    ("good, a plan among others", '{"kind":"PlanProposed","plan":' + among(1) + "}"),
    ("a plan among too many others", '{"kind":"PlanProposed","plan":' + among(17) + "}"),
    (
        "a choice without a reason",
        '{"kind":"PlanProposed","plan":' + among(1).replace(',"why_not":""', "") + "}",
    ),
    (
        "a choice of a fraction of a microsecond",
        '{"kind":"PlanProposed","plan":' + among(1).replace('"token_us":5', '"token_us":0.5') + "}",
    ),
    ("null for choices", '{"kind":"PlanProposed","plan":' + PLAN.replace("{", '{"choices":null,', 1) + "}"),
    ("a plan that is a list", '{"kind":"PlanProposed","plan":[]}'),
    ("a plan without stages", '{"kind":"PlanProposed","plan":' + PLAN.replace('"stages":[],', "") + "}"),
    ("good, a protection", '{"kind":"ProtectionChosen","protection":' + PROTECTION + "}"),
    (
        "an unknown strategy",
        '{"kind":"ProtectionChosen","protection":' + PROTECTION.replace("progressive", "hopeful") + "}",
    ),
    (
        "an unknown shadow",
        '{"kind":"ProtectionChosen","protection":' + PROTECTION.replace('"log"', '"some"') + "}",
    ),
    (
        "a fraction for a redundancy",
        '{"kind":"ProtectionChosen","protection":' + PROTECTION.replace("1500", "1.5") + "}",
    ),
    ("no protection", '{"kind":"ProtectionChosen","protection":null}'),
    ("good, an offer", '{"kind":"ModelOffered","model":"' + "a" * 64 + '","name":"PP-OCRv4_det:1.0+x"}'),
    ("good, a name of 64 characters", '{"kind":"ModelWithdrawn","name":"' + "x" * 64 + '"}'),
    ("a name of 65 characters", '{"kind":"ModelWithdrawn","name":"' + "x" * 65 + '"}'),
    ("a name of none", '{"kind":"ModelWithdrawn","name":""}'),
    ("a name that begins with a dot", '{"kind":"ModelWithdrawn","name":".."}'),
    ("a name with a slash", '{"kind":"ModelWithdrawn","name":"a/b"}'),
    ("a name with a line break behind it", '{"kind":"ModelWithdrawn","name":"a\\n"}'),
    ("a name that is not ASCII", '{"kind":"ModelWithdrawn","name":"größe"}'),
    ("a model of 63 digits", '{"kind":"ModelOffered","model":"' + "a" * 63 + '","name":"x"}'),
    ("a model in capitals", '{"kind":"ModelOffered","model":"' + "A" * 64 + '","name":"x"}'),
    ("good, a placement", placed(1)),
    ("good, as many stages as there may be", placed(256)),
    ("a stage too many", placed(257)),
    ("good, as many standbys as there may be", placed(1, 8)),
    ("a standby too many", placed(1, 9)),
    ("a stage without bytes", placed(1).replace('"bytes":1,', "")),
    ("a placement without words", placed(1).replace(',"why":[]', "")),
    ("null for a plan", '{"kind":"PlanProposed","plan":null}'),
)
OFFER = f'{{"latency_us":0,"model":"{"a" * 64}","rate_milli":0,"stages":[],"version":0,"why":[]}}'
MANY = ",".join(f'"m{number}":{OFFER}' for number in range(MAX_MODELS + 1))
STATES: tuple[tuple[str, str], ...] = (
    ("good, empty", encode_state(MeshState()).decode()),
    ("no fields", "{}"),
    ("members as a list", encode_state(MeshState()).decode().replace('"members":{}', '"members":[]')),
    (
        "a member of no fields",
        encode_state(MeshState()).decode().replace('"members":{}', '"members":{"a":{}}'),
    ),
    ("good, before models were offered", encode_state(MeshState()).decode().replace('"offers":{},', "")),
    ("offers as a list", encode_state(MeshState()).decode().replace('"offers":{}', '"offers":[]')),
    ("too many offers", encode_state(MeshState()).decode().replace('"offers":{}', f'"offers":{{{MANY}}}')),
    ("null for the index", encode_state(MeshState()).decode().replace('"index":0', '"index":null')),
)


def refusals() -> list[dict[str, Any]]:
    rows = []
    for what, cases, decode in (("command", COMMANDS, decode_command), ("state", STATES, decode_state)):
        for why, body in cases:
            try:
                decode(body.encode())
                error = "none"
            except BadCommand:
                error = "BadCommand"
            rows.append({"why": why, "what": what, "body": body, "error": error})
    return rows


def text() -> str:
    about = (
        "Traces of apply from an empty state of `term`: canonical JSON of each command, of the state after it, and the "
        "version of the plan that serves then. wire: bytes and whether decoding them raises BadCommand."
    )
    return written(about, {"wire": refusals(), "traces": traces()})


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
