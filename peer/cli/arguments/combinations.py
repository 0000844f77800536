"""Options that have no effect beside others of the same command, or without them: refused, never passed over."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from peer.errors import BadCommand

Arguments = argparse.Namespace


@dataclass(frozen=True, slots=True)
class Idle:
    """`options` of `commands` do nothing where `when` holds; `why` says so, and what to do, behind their names."""

    commands: tuple[str, ...]
    options: tuple[str, ...]
    when: Callable[[Arguments], bool]
    why: str


_SERVER: Final = ("--host", "--port", "--cert", "--key", "--behind-proxy", "--allow-host")
_ICE: Final = ("--stun", "--turn", "--turn-secret", "--turn-lifetime")
_BENCHES: Final = {
    "--grain": ("plans",),
    "--quick": ("plans",),
    "--part": ("planner",),
    "--checks": ("checks",),
    "--browsers": ("checks",),
    "--weights": ("checks", "memory"),
    "--shapes": ("memory",),
    "--contexts": ("memory",),
    "--sessions": ("memory",),
    "--largest": ("memory",),
    "--seconds": ("consensus",),
    "--messages": ("consensus",),
    "--delay-ms": ("wan",),
    "--loss": ("wan",),
    "--rounds": ("single", "pipeline", "browser", "planner", "plans", "wan", "run"),
    "--tokens": ("single", "pipeline", "browser", "plans", "wan"),
    "--model": ("single", "pipeline", "browser", "plans", "wan", "consensus", "checks", "run"),
}


def _asks_about_one(args: Arguments) -> bool:
    return bool(args.export or args.bring or args.invite or args.invites or args.withdraw or args.entry_by)


def _of_benches(option: str, benches: tuple[str, ...]) -> Idle:
    return Idle(
        ("bench",),
        (option,),
        lambda args: args.what not in benches,
        f"is for shoal bench {', '.join(benches)}",
    )


RULES: Final = (
    Idle(
        ("serve", "signaling"),
        ("--state", "--no-history"),
        lambda args: not args.keep,
        "is about what is kept over restarts: give --keep, too",
    ),
    Idle(
        ("serve",),
        (*_SERVER, *_ICE),
        lambda args: args.signaling is not None,
        "is about a server of this process, and --signaling meets at another one: give it there",
    ),
    Idle(
        ("serve",),
        ("--objective",),
        lambda args: args.goal is not None,
        "and --goal both say what plans are to be good at: give one",
    ),
    Idle(
        ("serve", "signaling"),
        ("--turn-lifetime",),
        lambda args: not args.turn,
        "is about a relay: give its address with --turn, too",
    ),
    Idle(
        ("serve",),
        ("--allowance",),
        lambda args: args.fairness != "fair",
        "is about --fairness fair: give that, too",
    ),
    Idle(
        ("serve", "join"),
        ("--api-host", "--api-key-file", "--api-openai-defaults", "--api-embedding-model"),
        lambda args: args.api is None,
        "is for the API beside this peer: give --api, too",
    ),
    Idle(
        ("serve", "join"),
        ("--provider",),
        lambda args: args.memory.bytes == 0,
        "is about computing, and --memory 0 lends nothing",
    ),
    Idle(
        ("api",),
        ("--embedding-threads",),
        lambda args: args.embedding_model is None,
        "is about embeddings: give --embedding-model, too",
    ),
    Idle(
        ("invite",),
        ("--role", "--uses", "--expires"),
        lambda args: args.list or args.revoke is not None,
        "is about a new link: leave it out with --list and --revoke",
    ),
    Idle(
        ("generate",),
        ("--system",),
        lambda args: args.raw,
        "is about a conversation, and --raw continues the text as it is",
    ),
    Idle(
        ("generate", "chat"),
        ("--top-k", "--top-p", "--min-p"),
        lambda args: args.temperature == 0,
        "is about drawing tokens, and temperature 0 takes the likeliest: give --temperature above 0",
    ),
    Idle(
        ("conversations",),
        ("--json",),
        _asks_about_one,
        "is about the list: leave it out with --export, --import, --invite, --invites, --withdraw and --entry",
    ),
    Idle(
        ("plan",),
        ("--state", "--transport", "--bind", "--relay-only", "--name"),
        lambda args: "#" not in args.what,
        "is about joining the mesh of a link, and a file needs no mesh",
    ),
    Idle(
        ("plan",),
        ("--store",),
        lambda args: "#" not in args.what and args.model is None,
        "is about models of the mesh of a link, or of --model: a file with peers alone has none",
    ),
    Idle(
        ("plan",),
        ("--strategy", "--component"),
        lambda args: args.model is not None,
        "is about the mesh's own model: leave it out with --model",
    ),
    Idle(
        ("plan",),
        ("--goal",),
        lambda args: args.model is not None and "#" in args.what,
        "is that of the mesh: leave it out with --model",
    ),
    Idle(
        ("plan",),
        ("--placement", "--compare"),
        lambda args: args.model is not None,
        "is about the mesh's own model, or that of FILE: leave it out with --model",
    ),
    Idle(
        ("plan",),
        ("--placement", "--html"),
        lambda args: args.compare,
        "is about one plan, and --compare tells of every placement: leave one of them out",
    ),
    Idle(
        ("plan",),
        ("--iterations", "--seed"),
        lambda args: not args.compare and args.placement not in ("annealing", "genetic"),
        "is about a search with draws: give --placement annealing or genetic, or --compare",
    ),
    Idle(
        ("plan",),
        ("--population",),
        lambda args: not args.compare and args.placement != "genetic",
        "is about breeding: give --placement genetic, or --compare",
    ),
    Idle(
        ("demo",),
        ("--headless",),
        lambda args: not args.browsers,
        "is about tabs of browsers: give --browsers, too",
    ),
    Idle(("history",), ("--days",), lambda args: args.what != "forget", "is for `shoal history forget`"),
    Idle(("history",), ("--rows",), lambda args: args.what != "measure", "is for `shoal history measure`"),
    Idle(
        ("history",),
        ("--json",),
        lambda args: args.what in ("report", "forget"),
        "is for words that print rows",
    ),
    Idle(("history",), ("--state",), lambda args: args.file is not None, "and --file both name the history"),
    Idle(("validate",), ("--out",), lambda args: args.what != "report", "is for `shoal validate report`"),
    Idle(
        ("validate",),
        (
            "--json",
            "--scenario",
            "--count",
            "--cost",
            "--soak",
            "--seed",
            "--peers",
            "--stages",
            "--browsers",
        ),
        lambda args: args.what == "report",
        "is for a run, and report shows what was kept",
    ),
    Idle(
        ("validate",), ("--results",), lambda args: args.no_results, "and --no-results contradict each other"
    ),
    Idle(("validate",), ("--rounds",), lambda args: not args.cost, "is for --cost: give that, too"),
    *(_of_benches(option, benches) for option, benches in _BENCHES.items()),
)


def given_options(argv: Sequence[str]) -> frozenset[str]:
    """The long options of a command line, by name; all of ours are long, and none is shortened."""
    options = argv[: argv.index("--")] if "--" in argv else argv
    return frozenset(word.partition("=")[0] for word in options if word.startswith("--"))


def check_combinations(args: Arguments, given: frozenset[str]) -> None:
    """Raises BadCommand for an option that was `given` and has no effect."""
    for rule in RULES:
        idle = sorted(given.intersection(rule.options)) if args.command in rule.commands else []
        if idle and rule.when(args):
            raise BadCommand(f"{idle[0]} {rule.why}")
