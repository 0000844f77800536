"""The `shoal` command: reads arguments and environment, and turns every error into one clear line."""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

from peer.cli.arguments.bench import bench_arguments
from peer.cli.arguments.classify import classify_arguments
from peer.cli.arguments.combinations import check_combinations, given_options
from peer.cli.arguments.conversations import talk_arguments, title
from peer.cli.arguments.embed import embed_arguments
from peer.cli.arguments.failure_domains import surroundings_arguments
from peer.cli.arguments.gateway import api_arguments, beside_arguments
from peer.cli.arguments.graphs import graph_arguments
from peer.cli.arguments.history import history_arguments
from peer.cli.arguments.ice import ice_arguments, relay_argument
from peer.cli.arguments.offer import offer_arguments, withdraw_arguments
from peer.cli.arguments.parser import Parser
from peer.cli.arguments.pinned_ends import pin_argument
from peer.cli.arguments.placement import placement_arguments
from peer.cli.arguments.plan_goal import wish_arguments
from peer.cli.arguments.rerank import rerank_arguments
from peer.cli.arguments.role import role_arguments
from peer.cli.arguments.run import run_arguments
from peer.cli.arguments.transcribe import transcribe_arguments
from peer.cli.arguments.validate import validate_arguments
from peer.cli.fairness_view import fairness_arguments
from peer.conversation.entry_links import split_link
from peer.errors import BadCommand, Interrupted, PeerError
from peer.launch import json_lines
from peer.launch.defaults import cache_folder, default_name, default_pledge, state_folder
from peer.launch.streams import take_any_text
from peer.member.peer_options import (
    BROKEN_PIPE,
    INTERRUPTED,
    PROVIDER_NAMES,
    TRANSPORTS,
    Lent,
    address,
    browsers,
    cuts,
    lent,
    port,
    positive,
    redundancy,
    size,
    span,
    text,
    unit_names,
    uses,
)
from peer.state.display_names import plain_lines
from peer.state.protection import LEVELS, SHADOWS, STRATEGIES
from peer.version import VERSION
from planner.errors import PlannerError
from signaling.errors import SignalingError
from signaling.invites import parse_link

DEFAULT_MODEL = "smollm2-135m"


def main(argv: Sequence[str] | None = None) -> int:
    """Runs one command; returns its exit status: 0 done, 1 a clear error, 2 wrong arguments, 130 Ctrl-C."""
    take_any_text()
    words = sys.argv[1:] if argv is None else argv
    args = parser().parse_args(words)
    set_logging(args.verbose, args.log_format)
    signal.signal(signal.SIGTERM, _terminated)
    try:
        check_combinations(args, given_options(words))
        status = run(args)
        sys.stdout.flush()
        return status
    except (KeyboardInterrupt, Interrupted):
        return INTERRUPTED
    except BrokenPipeError:
        return nobody_reads()
    except Exception as error:
        if args.verbose:
            logging.exception("the command failed")
        said = plain_lines(what_went_wrong(error))
        if json_lines.chosen:
            json_lines.tell("error", said)
        else:
            sys.stderr.write(f"shoal: {said}\n")
        return 1


def set_logging(verbose: bool, form: str = "text") -> None:
    """Without --verbose only what nobody else would tell a person; never prompts or secrets."""
    level = logging.INFO if verbose else logging.ERROR
    logging.basicConfig(level=level, format="%(asctime)s %(name)s: %(message)s")
    if form == "json":
        json_lines.choose()
    if not verbose:
        # peer.stage.unit_loader logs what then ends the command with the same words.
        for noisy in ("aioice", "aiortc", "aiohttp", "asyncio", "peer.stage.unit_loader"):
            logging.getLogger(noisy).setLevel(logging.CRITICAL)


def nobody_reads() -> int:
    """The end of a command whose standard output was closed, as by `| head`."""
    os.dup2(
        os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno()
    )  # or the interpreter complains when it flushes
    return BROKEN_PIPE


def _terminated(number: int, _: object) -> None:
    raise SystemExit(128 + number)


def what_went_wrong(error: BaseException) -> str:
    """One line for people. An error that is not of ours is a defect and says so, with how to see more."""
    known = expected(error)
    if known is not None:
        return " ".join(str(known).split()) or type(known).__name__
    first = error
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    if isinstance(first, OSError) and first.strerror:
        where = f"{first.filename}: " if first.filename else ""
        return f"{where}{first.strerror}"
    if isinstance(first, MemoryError):
        return "this machine has not enough memory: end other programs, or choose a smaller model"
    text = " ".join(str(first).split())[:300]
    return f"a defect, please report it with what --verbose prints: {type(first).__name__}: {text}"


def expected(error: BaseException) -> BaseException | None:
    """The error of ours inside `error`, which may be a group of a task's errors; None for a defect."""
    if isinstance(error, BaseExceptionGroup):
        found = [expected(inner) for inner in error.exceptions]
        return found[0] if found and None not in found else None
    return error if isinstance(error, PlannerError | SignalingError | PeerError) else None


def run(args: argparse.Namespace) -> int:
    """Imports what the command needs, and only that: `shoal --help` must not wait for a runtime."""
    if getattr(args, "link", None) == "-":
        args.link = sys.stdin.readline().strip()
    if args.command == "join":
        if (args.link is None) is not args.nearby:
            raise BadCommand(
                "expected a LINK, or --nearby to look for meshes on this network: one of the two"
            )
        if args.nearby:
            from peer.cli.nearby import link_nearby

            args.link = link_nearby()
    if hasattr(args, "link"):
        args.link, args.entry = split_link(args.link)
        parse_link(args.link)  # what is wrong with a link is said at once
    if args.until_stdin_closes:
        from peer.launch.tether import end_with_parent

        end_with_parent()
    match args.command:
        case "import":
            from peer.launch.model_import import run_import

            return run_import(args)
        case "models":
            from peer.cli.models import models

            return models(args)
        case "serve":
            from peer.cli.serve_join import serve

            return serve(args)
        case "signaling":
            from peer.cli.serve_join import signaling

            return asyncio.run(signaling(args))
        case "recover":
            from peer.cli.serve_join import run_recover

            return run_recover(args)
        case "invite":
            from peer.cli.invite import invite

            return invite(args)
        case "join":
            from peer.cli.serve_join import run_join

            return asyncio.run(run_join(args))
        case "tabs":
            from peer.cli.tabs import run_tabs

            return asyncio.run(run_tabs(args))
        case "chat" if args.within is not None or args.entry is not None:
            from peer.cli.conversations import talk

            return talk(args)
        case "chat":
            from peer.cli.chat import chat

            return chat(args)
        case "conversations":
            from peer.cli.conversations import conversations

            return asyncio.run(conversations(args))
        case "generate":
            from peer.cli.chat import generate

            return asyncio.run(generate(args))
        case "offer":
            from peer.cli.offers import offer

            return asyncio.run(offer(args))
        case "withdraw":
            from peer.cli.offers import withdraw

            return asyncio.run(withdraw(args))
        case "run":
            from peer.cli.run import run_items

            return asyncio.run(run_items(args))
        case "embed":
            from peer.cli.embed import embed

            return asyncio.run(embed(args))
        case "transcribe":
            from peer.cli.speech.transcribe import transcribe

            return asyncio.run(transcribe(args))
        case "rerank":
            from peer.cli.embed import rerank

            return asyncio.run(rerank(args))
        case "classify":
            from peer.cli.embed import classify

            return asyncio.run(classify(args))
        case "api":
            from peer.cli.api import api

            return asyncio.run(api(args))
        case "plan":
            from peer.cli.status_plan import run_plan

            return asyncio.run(run_plan(args))
        case "analyze":
            from peer.cli.plan.analyze import analyze

            return analyze(args)
        case "status":
            from peer.cli.status_plan import status

            return asyncio.run(status(args))
        case "wish":
            from peer.cli.plan.plan_goal import wish

            return asyncio.run(wish(args))
        case "role":
            from peer.cli.role import role

            return asyncio.run(role(args))
        case "rename":
            from peer.cli.serve_join import rename

            return asyncio.run(rename(args))
        case "demo":
            from peer.cli.demo import demo

            return demo(args)
        case "bench":
            from peer.cli.bench import bench

            return bench(args)
        case "history":
            from peer.cli.history import history

            return history(args)
        case "validate":
            from peer.cli.validate.command import validate

            return validate(args)
        case _:
            raise AssertionError(args.command)


def parser() -> argparse.ArgumentParser:
    """Every command and its options."""
    top = Parser(
        prog="shoal", description="One AI model across the machines of a group of people.", allow_abbrev=False
    )
    top.add_argument("--version", action="version", version=f"shoal {VERSION}")
    commands = top.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def command(name: str, about: str) -> argparse.ArgumentParser:
        made = commands.add_parser(name, help=about, description=about, allow_abbrev=False)
        made.add_argument(
            "--verbose", action="store_true", help="log what happens (never prompts or secrets)"
        )
        made.add_argument(
            "--log-format",
            choices=("text", "json"),
            default="text",
            help="of what goes to standard error: json has one object a line [%(default)s]",
        )
        made.add_argument("--store", type=Path, default=cache_folder(), help="folder of models [%(default)s]")
        # For programs that start peers, see peer.launch.tether.
        made.add_argument("--until-stdin-closes", action="store_true", help=argparse.SUPPRESS)
        return made

    bring = command("import", "bring a model into the local store")
    _model(bring, nargs=None)
    graph_arguments(bring)
    bring.add_argument(
        "--expert-units",
        type=positive,
        default=1,
        metavar="N",
        help="the experts of each block of a mixture in so many units, which plans can place on N peers [%(default)s]",
    )
    listed = command("models", "list the models in the local store")
    listed.add_argument("--json", action="store_true", help="one JSON list instead of a table")
    listed.add_argument(
        "--families", action="store_true", help="list the families of models that can be imported instead"
    )
    serve = command("serve", "found a mesh: signaling server, model store and first peer")
    _model(serve, nargs="?")
    serve.add_argument(
        "more",
        metavar="MODEL…",
        nargs="*",
        type=text,
        help="more of them: one that answers in words at most, others as .onnx files, or ids of shoal models",
    )
    _founder(serve)
    _invited(serve)
    serve.add_argument(
        "--keep", action="store_true", help="keep the mesh key, its invites and a history over restarts"
    )
    serve.add_argument(
        "--no-history",
        dest="history",
        action="store_false",
        help="with --keep: keep no history of what was measured",
    )
    serve.add_argument(
        "--nearby",
        action="store_true",
        help="announce the mesh to this network; who types the code that is printed comes in, by shoal join --nearby",
    )
    serve.add_argument("--no-qr", action="store_true", help="print the link without a QR code")
    beside_arguments(serve)
    _state(serve)
    _peer(serve)
    _injected(serve)
    meeting = command("signaling", "only a place to meet: for meshes whose peers come and go")
    meeting.add_argument("--host", default="127.0.0.1", help="address to listen on [%(default)s]")
    meeting.add_argument("--port", type=port, default=8765, help="[%(default)s] 0: any free one")
    meeting.add_argument("--allow-host", action="append", default=[], help="another host name of this server")
    _proxy(meeting)
    meeting.add_argument("--cert", type=Path, metavar="FILE", help="certificate in PEM, for HTTPS")
    meeting.add_argument("--key", type=Path, metavar="FILE", help="private key of the certificate, in PEM")
    meeting.add_argument("--keep", action="store_true", help="remember invites over restarts")
    ice_arguments(meeting)
    _state(meeting)
    again = command("recover", "go on without voters that are gone for good")
    again.add_argument(
        "mesh", metavar="MESH", nargs="?", default="", help="its id or a link [the only one here]"
    )
    again.add_argument("--yes", action="store_true", help="without asking")
    _state(again)
    invite = command("invite", "another link to the mesh that shoal serve --keep keeps here")
    what = invite.add_mutually_exclusive_group()
    what.add_argument("--list", action="store_true", help="show the invites, without their secrets")
    what.add_argument(
        "--revoke", metavar="ID", help="withdraw an invite of the list; who came with it is out"
    )
    _invited(invite)
    _state(invite)
    join = command("join", "lend this machine to a mesh")
    _link(join, nargs="?")
    join.add_argument(
        "--nearby", action="store_true", help="in place of LINK: one of the meshes announced on this network"
    )
    _peer(join)
    _state(join)
    join.add_argument("--quiet", action="store_true", help="print errors only")
    beside_arguments(join)
    _injected(join)
    tabs = command("tabs", "lend tabs of this machine's browsers to a mesh")
    _link(tabs)
    tabs.add_argument(
        "--browsers",
        type=browsers,
        default=["chromium"],
        metavar="LIST",
        help="such as chromium,firefox [chromium]",
    )
    tabs.add_argument("--headless", action="store_true", help="without windows")
    tabs.add_argument("--memory", type=size, help="each tab lends, such as 500MB [what the page lends]")
    tabs.add_argument(
        "--profiles",
        type=Path,
        metavar="FOLDER",
        help="keep the browsers' profiles here, weights included [thrown away]",
    )
    for name, about in (("chat", "talk to the model of a mesh"), ("generate", "answer one prompt")):
        asking = command(name, about)
        _link(asking)
        if name == "generate":
            asking.add_argument(
                "prompt", type=text, metavar="PROMPT", help="the question; - reads standard input"
            )
            asking.add_argument(
                "--raw", action="store_true", help="continue the text as it is, without chat template"
            )
            asking.add_argument(
                "--image",
                type=Path,
                action="append",
                default=[],
                metavar="FILE",
                help="a picture that the question is about, for a model that sees; may stand several times",
            )
            asking.add_argument(
                "--json", action="store_true", help="one JSON object instead of streamed text"
            )
            asking.add_argument("--stats", action="store_true", help="say how fast it was")
        else:
            asking.add_argument(
                "--in",
                dest="within",
                type=title,
                metavar="TITLE",
                help="in a conversation that the mesh keeps, by title, id or number; a new title begins one",
            )
        asking.add_argument(
            "--model",
            type=text,
            metavar="NAME",
            help="which model of the mesh, as shoal status LINK lists it [the one that answers in words]",
        )
        pin_argument(asking)
        _sampling(asking)
        _way(asking)
        _state(asking)
    offering = command(
        "offer", "have a mesh run another model beside its own, as its owner: beside shoal serve --keep"
    )
    _link(offering)
    offer_arguments(offering)
    _way(offering, named=False)
    _state(offering)
    taken = command("withdraw", "have a mesh run a model no more that it offers, as its owner")
    _link(taken)
    withdraw_arguments(taken)
    _way(taken, named=False)
    _state(taken)
    items = command("run", "run files through a model that a mesh offers beside its own")
    _link(items)
    run_arguments(items)
    _way(items)
    _state(items)
    meant = command("embed", "make vectors of texts by a model that a mesh offers beside its own")
    _link(meant)
    embed_arguments(meant)
    _way(meant)
    _state(meant)
    heard = command("transcribe", "write what is said in files, by a model that a mesh offers")
    _link(heard)
    transcribe_arguments(heard)
    _way(heard)
    _state(heard)
    sorts = command("rerank", "sort documents by how well they answer a query, by a model that a mesh offers")
    _link(sorts)
    rerank_arguments(sorts)
    _way(sorts)
    _state(sorts)
    classes = command("classify", "say how well labels fit texts, by a model that a mesh offers")
    _link(classes)
    classify_arguments(classes)
    _way(classes)
    _state(classes)
    talks = command(
        "conversations",
        "conversations that a mesh keeps: list them, keep one in a file, say who comes in",
    )
    _link(talks)
    talk_arguments(talks)
    _way(talks)
    _state(talks)
    opened = command("api", "let programs ask a mesh, over HTTP as OpenAI's API")
    _link(opened)
    api_arguments(opened)
    pin_argument(opened)
    _way(opened)
    _state(opened)
    plan = command("plan", "explain a plan")
    plan.add_argument("what", metavar="LINK|FILE", help="an invite link, or a JSON file with a plan request")
    plan.add_argument(
        "--model",
        type=text,
        metavar="MODEL",
        help="draw who runs what of this model alone: one that the mesh offers, or an .onnx file or an id of the "
        "store, as it would be placed in the mesh, or on the peers of FILE",
    )
    plan.add_argument("--json", action="store_true", help="print the plan as JSON")
    plan.add_argument("--html", type=Path, metavar="FILE", help="draw the plan as a page, too")
    wish_arguments(plan)
    placement_arguments(plan)
    plan.set_defaults(called={})
    _way(plan)
    _state(plan)
    looked = command("analyze", "show what a model is made of and where it can be split")
    _model(looked, nargs=None)
    looked.add_argument(
        "--on",
        type=Path,
        metavar="FILE",
        help="a JSON file with a plan request: what teams of its peers would take",
    )
    looked.add_argument("--json", action="store_true", help="print it as JSON")
    looked.add_argument("--html", type=Path, metavar="FILE", help="draw it as a page, too")
    status = command("status", "show peers, stages, memory, delays and speed")
    _link(status)
    status.add_argument("--once", action="store_true", help="print once instead of live")
    status.add_argument("--json", action="store_true", help="print once, as JSON")
    _way(status)
    _state(status)
    wish = command(
        "wish", "change by what the plans of a running mesh are made, as its owner: beside shoal serve --keep"
    )
    _link(wish)
    wish_arguments(wish)
    wish.add_argument("--json", action="store_true", help="print the wish and the plan that followed as JSON")
    wish.add_argument(
        "--wait", type=float, default=10.0, help="seconds in which a plan may follow [%(default)s]"
    )
    _way(wish)
    _state(wish)
    role = command("role", "as an owner of a mesh, say who is one, too: beside shoal serve --keep")
    _link(role)
    role_arguments(role)
    _way(role)
    _state(role)
    rename = command("rename", "call a shoal serve or join of this machine otherwise, while it runs")
    _link(rename)
    rename.add_argument("new", metavar="NEW", help="the new name, also for later starts without --name")
    rename.add_argument(
        "--from",
        dest="called_now",
        metavar="NAME",
        help="which one, where several of this machine run in the mesh",
    )
    _state(rename)
    demo = command("demo", "three peers on this machine answer a question")
    _model(demo, nargs="?")
    demo.add_argument("--once", action="store_true", help="end after the first answer")
    demo.add_argument("--peers", type=positive, default=3, help="how many peers [%(default)s]")
    demo.add_argument("--port", type=port, default=0, help="of the signaling server [any free one]")
    demo.add_argument("--threads", type=positive, default=1, help="of each peer [%(default)s]")
    demo.add_argument(
        "--browsers",
        type=browsers,
        default=[],
        metavar="LIST",
        help="tabs of these among the peers, such as chromium,firefox [none]",
    )
    demo.add_argument("--headless", action="store_true", help="the browsers without windows")
    _protected(demo)
    _transport(demo)
    bench_arguments(command("bench", "measure this machine; figures are medians of one run"), DEFAULT_MODEL)
    history_arguments(command("history", "what was measured in the meshes founded here"), state_folder())
    hurting = command("validate", "hurt a mesh on this machine, and see whether answers survive")
    validate_arguments(hurting, DEFAULT_MODEL)
    _protected(hurting, "--level")
    return top


def _model(made: argparse.ArgumentParser, nargs: str | None) -> None:
    models = "a .gguf file, a Hugging Face folder, hf:owner/repo, or a short name such as smollm2-135m"
    if nargs is None:
        made.add_argument(
            "model",
            metavar="MODEL",
            help=f"{models}; for embeddings all-minilm-l6-v2, or the folder of an encoder; any other model as "
            "an .onnx file",
        )
    else:
        made.add_argument(
            "model", metavar="MODEL", nargs="?", default=DEFAULT_MODEL, help=f"{models} [%(default)s]"
        )
    made.add_argument(
        "--weights", choices=("8bit", "4bit", "f32", "f16"), default="8bit", help="[%(default)s]"
    )


def _link(made: argparse.ArgumentParser, nargs: str | None = None) -> None:
    made.add_argument(
        "link", nargs=nargs, metavar="LINK", help="the invite link, in quotes; - reads it from standard input"
    )


def _transport(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--transport", choices=TRANSPORTS, default="auto", help="[%(default)s: the fastest installed]"
    )


def _reach(made: argparse.ArgumentParser) -> None:
    """How this peer reaches the mesh."""
    _transport(made)
    made.add_argument(
        "--bind", action="append", default=[], metavar="ADDR", help="only this address of this machine"
    )
    relay_argument(made)


def _way(made: argparse.ArgumentParser, *, named: bool = True) -> None:
    """How this peer reaches the mesh while the command runs; `named`: and under which name."""
    _reach(made)
    if named:
        made.add_argument("--name", type=text, default=default_name(), help="shown to others [%(default)s]")
    else:
        made.set_defaults(name=default_name())


def _peer(made: argparse.ArgumentParser) -> None:
    _reach(made)
    machine = default_name().replace("%", "%%")
    made.add_argument(
        "--name", type=text, help=f"shown to others [as shoal rename said last, else {machine}]"
    )
    surroundings_arguments(made)
    made.add_argument(
        "--memory",
        type=lent,
        default=Lent(default_pledge()),
        help="to lend, such as 2GiB, or +300MiB beside the program's own; 0: nothing [half of what is free]",
    )
    made.add_argument("--threads", type=positive, default=1, help="for the model [%(default)s]")
    made.add_argument(
        "--provider", choices=PROVIDER_NAMES, default="cpu", help="of onnxruntime [%(default)s]"
    )
    made.add_argument(
        "--metrics",
        type=address,
        metavar="[HOST:]PORT",
        help="figures for Prometheus at /metrics, and /healthz [none; the host is this machine]",
    )


def _proxy(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--behind-proxy", action="store_true", help="limits are by the last address in X-Forwarded-For"
    )


def _founder(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--host", default="127.0.0.1", help="address to listen on [%(default)s: this machine only]"
    )
    made.add_argument("--port", type=port, default=8765, help="[%(default)s] 0: any free one")
    made.add_argument(
        "--public-url", metavar="URL", help="how others reach this server, if not by host and port"
    )
    made.add_argument(
        "--signaling", metavar="URL", help="meet at this signaling server instead of running one"
    )
    made.add_argument("--allow-host", action="append", default=[], help="another host name of this server")
    _proxy(made)
    made.add_argument(
        "--cert",
        type=Path,
        metavar="FILE",
        help="certificate in PEM, for HTTPS: browsers of other machines need it",
    )
    made.add_argument("--key", type=Path, metavar="FILE", help="private key of the certificate, in PEM")
    made.add_argument(
        "--context", type=positive, help="tokens promised to each session [2048, or what the model can]"
    )
    made.add_argument("--sessions", type=positive, default=4, help="promised at the same time [%(default)s]")
    made.add_argument(
        "--objective", choices=("latency", "throughput"), default="latency", help="[%(default)s]"
    )
    made.add_argument("--cuts", type=cuts, metavar="N,N", help="fix the stage borders by hand, in units")
    wish_arguments(made)
    ice_arguments(made)
    fairness_arguments(made)
    _protected(made)


def _protected(made: argparse.ArgumentParser, *names: str) -> None:
    """What happens when peers are lost: a level, also by `names`, and settings given in place of its own."""
    made.add_argument(
        *("--protection", *names),
        choices=LEVELS,
        default="standard",
        help="level of protection [%(default)s]",
    )
    made.add_argument(
        "--redundancy",
        type=redundancy,
        metavar="N",
        help="copies of stages, such as 1.5: half of them doubled [as the level]",
    )
    made.add_argument(
        "--shadow",
        choices=SHADOWS,
        help="what standbys do: nothing, keep inputs, compute behind [as the level]",
    )
    made.add_argument(
        "--recovery", choices=STRATEGIES, help="what is tried first after a loss [as the level]"
    )
    made.add_argument(
        "--priority",
        type=unit_names,
        default=(),
        metavar="UNITS",
        help="repair stages with these first, such as head,embed",
    )


def _invited(made: argparse.ArgumentParser) -> None:
    """What the link allows."""
    made.add_argument("--role", choices=("peer", "guest"), default="peer", help="of who joins [%(default)s]")
    made.add_argument(
        "--uses", type=uses, default=0, help="how many peers may join with the link [any number]"
    )
    made.add_argument("--expires", type=span, default=0, help="of the link, such as 24h [never]")


def _state(made: argparse.ArgumentParser) -> None:
    made.add_argument(
        "--state", type=Path, default=state_folder(), help="folder of this machine's keys [%(default)s]"
    )


def _injected(made: argparse.ArgumentParser) -> None:
    """Of validation, see peer.validation.world.injection."""
    made.add_argument("--inject", type=Path, help=argparse.SUPPRESS)


def _sampling(made: argparse.ArgumentParser) -> None:
    made.add_argument("--system", type=text, default="", help="instructions before the conversation")
    made.add_argument("--max-tokens", type=positive, help="[as many as the context has room for]")
    made.add_argument(
        "--temperature", type=float, help="0: always the likeliest token [as the model's settings]"
    )
    made.add_argument(
        "--top-k", type=int, help="only the K likeliest tokens, 0: all [as the model's settings]"
    )
    made.add_argument(
        "--top-p",
        type=float,
        help="only the likeliest with this probability together [as the model's settings]",
    )
    made.add_argument(
        "--min-p",
        type=float,
        help="only those with this share of the likeliest's probability [as the model's settings]",
    )
    made.add_argument(
        "--repetition-penalty",
        type=float,
        help="above 1: against any repetition [as the model's settings]",
    )
    made.add_argument("--frequency-penalty", type=float, help="for each time a token came in the answer [0]")
    made.add_argument("--presence-penalty", type=float, help="once a token came in the answer [0]")
    made.add_argument("--seed", type=int, help="same seed, same answer [another one each time]")
    made.add_argument(
        "--stop",
        type=text,
        action="append",
        default=[],
        metavar="TEXT",
        help="end before this text; repeatable",
    )
    made.add_argument(
        "--wait", type=float, default=120.0, help="seconds to wait for peers that load [%(default)s]"
    )


if __name__ == "__main__":
    raise SystemExit(main())
