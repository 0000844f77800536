"""What the command line says when something is wrong, and how its commands end: real processes, a tiny model."""

from __future__ import annotations

import http.server
import json
import os
import re
import resource
import signal
import socket
import subprocess
import threading
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

from peer.storage.peer_keys import copy_of
from planner.model.manifest import Manifest, decode_manifest
from planner.model.store import Store
from signaling.invites import Role, make_invite
from signaling.keys import identity_from_seed
from tests.e2e.command import Result, Running, command_line, environment, run, running
from tests.patience import WITHIN_S, soon
from tests.planner.plain_bert import TinyBert
from tests.planner.tiny_models import TinyModel

MEMORY = "1GiB"
AT_ONCE = 3  # commands of a table
LONG = "hello " * 400  # more tokens than the tiny model's 512


@dataclass
class World:
    """A mesh of one founder that keeps its key, and folders for everybody else."""

    home: Path
    gguf: Path
    store: Path
    state: Path
    served: Running
    link: str
    expired: str
    used_up: str
    revoked: str
    guest: str

    @property
    def manifest(self) -> Manifest:
        return decode_manifest(Store(self.store).manifest_bytes(only_model(self.store)))

    def asker(self, name: str) -> list[object]:
        """Where an asker of that name keeps its key."""
        return ["--store", self.store, "--state", self.home / "askers" / name, "--bind", "127.0.0.1"]

    def generate(self, link: str, *more: object, prompt: str = "hello", who: str = "one") -> Result:
        words = ["generate", link, prompt, "--max-tokens", "4", "--temperature", "0", *self.asker(who), *more]
        return run(self.home, *words)


def only_model(store: Path) -> str:
    """The id of the one model of a store."""
    (model_id,) = Store(store).models()
    return model_id


def serve_words(world_store: Path, state: Path, *more: object) -> list[object]:
    words: list[object] = ["serve", only_model(world_store), "--port", "0", "--store", world_store]
    words += ["--state", state] if "--keep" in more else []
    return [*words, "--memory", MEMORY, "--bind", "127.0.0.1", "--name", "founder", *more]


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, tiny_model: TinyModel) -> Iterator[World]:
    home = tmp_path_factory.mktemp("cli")
    gguf = tiny_model.write_gguf(home / "tiny.gguf")
    store, state = home / "store", home / "state"
    imported = run(home, "import", gguf, "--store", store)
    assert imported.status == 0, imported.err
    assert imported.out.startswith("tiny  8bit  6 units  ")
    with running(home, *serve_words(store, state, "--keep")) as served:
        link = served.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]

        def invite(*words: object) -> str:
            made = run(home, "invite", "--state", state, *words)
            assert made.status == 0, made.err
            return made.out.strip()

        expired, used_up, revoked = (
            invite("--expires", "1s"),
            invite("--uses", "1"),
            invite("--expires", "24h"),
        )
        guest = invite("--role", "guest")
        listed = run(home, "invite", "--list", "--state", state).out
        assert all(made.rpartition(".")[2] not in listed for made in (expired, used_up, revoked, guest))
        revoked_id = listed.splitlines()[5].split()[0]
        served.until("plan 1: founder holds units 0-5")
        assert run(home, "invite", "--revoke", revoked_id, "--state", state).status == 0
        yield World(home, gguf, store, state, served, link, expired, used_up, revoked, guest)
        ended = served.end(signal.SIGTERM)
        assert ended.status == 0
        assert ended.err.splitlines()[-1] == "leaving"
    for path in home.rglob("*"):
        if path.is_file() and path.stat().st_size > 1 << 16:
            path.unlink()


@pytest.fixture(scope="module")
def tiny_model() -> TinyModel:
    return TinyModel()


def one_line(result: Result, pattern: str, status: int = 1) -> None:
    """Exactly one clear line on stderr, and nothing that looks like a defect."""

    assert result.status == status, result
    assert "Traceback" not in result.err
    assert "a defect" not in result.err
    assert len(result.complaints) == 1, result.err
    assert re.search(pattern, result.complaints[0]), result.complaints[0]
    assert not result.err.rstrip("\n").partition(result.complaints[0])[2]  # it is the last line


def each(table: Mapping[str, object], check: Callable[[str], None]) -> None:
    """Checks every case of a table, some at the same time; the failures say which."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        waiting = {case: pool.submit(check, case) for case in table}
    failed = {case: done.exception() for case, done in waiting.items() if done.exception() is not None}
    assert not failed, "\n".join(f"{case}: {error}" for case, error in failed.items())


# --- models -------------------------------------------------------------------------------------------------


def truncated(gguf: Path) -> bytes:
    return gguf.read_bytes()[: gguf.stat().st_size // 2]


MODELS: dict[str, tuple[Callable[[Path, TinyModel], Path | str], str]] = {
    "no such model": (lambda folder, tiny: "nosuch", r"there is no model 'nosuch'"),
    "not a GGUF": (lambda folder, tiny: written(folder, b"MZ" + bytes(5000)), r"GGUF"),
    "empty": (lambda folder, tiny: written(folder, b""), r"is empty"),
    "truncated": (
        lambda folder, tiny: written(folder, truncated(tiny.write_gguf(folder / "whole.gguf"))),
        r"broken\.gguf",
    ),
    "missing tensor": (
        lambda folder, tiny: tiny.write_gguf(folder / "x.gguf", without=("blk.1.ffn_up.weight",)),
        r"blk\.1\.ffn_up\.weight",
    ),
    "unknown architecture": (
        lambda folder, tiny: tiny.but(family="mamba").write_gguf(folder / "x.gguf"),
        r"'?mamba'?",
    ),
    "empty folder": (lambda folder, tiny: folder, r"config\.json"),
}


def written(folder: Path, content: bytes) -> Path:
    path = folder / "broken.gguf"
    path.write_bytes(content)
    return path


def test_models_that_cannot_be_imported(tmp_path: Path, tiny_model: TinyModel) -> None:
    def check(case: str) -> None:
        make, pattern = MODELS[case]
        home = tmp_path / case
        (home / "source").mkdir(parents=True)
        source = make(home / "source", tiny_model)
        one_line(run(home, "import", source, "--store", home / "store"), pattern)
        assert not [path for path in (home / "store").rglob("*") if path.is_file()]

    each(MODELS, check)


def small_files() -> None:
    """A disk that takes no file above 64 KiB."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))


def test_a_full_disk_during_import_leaves_nothing(tmp_path: Path, world: World) -> None:
    store = tmp_path / "store"
    result = run(tmp_path, "import", world.gguf, "--store", store, limits=small_files)
    one_line(result, r"the disk under .* is full .*: free some space")
    assert not list((store / "blobs").iterdir())
    assert not list((store / "models").iterdir())
    assert not list((store / "tmp").iterdir())


def test_a_store_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    one_line(
        run(tmp_path, "import", "x.gguf", "--store", tmp_path / "file" / "store"), "cannot be a model store"
    )


# --- founding -----------------------------------------------------------------------------------------------


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        yield taken.getsockname()[1]


FOUNDING: dict[str, tuple[list[object], int, str]] = {
    "no such model": (["nosuch"], 1, r"there is no model 'nosuch'"),
    "cuts outside": (["--cuts", "9"], 1, r"cuts must rise and lie between 1 and 5, got \[9\]"),
    "cuts falling": (["--cuts", "4,2"], 1, r"cuts must rise"),
    "cuts no numbers": (["--cuts", "a"], 2, ""),
    "context": (["--context", "9999"], 1, r"trained for 512 tokens of context, got --context 9999: give 512"),
    "provider": (["--provider", "cuda"], 1, r"provider cuda needs .* or use --provider cpu"),
    "transport unknown": (["--transport", "pigeon"], 2, ""),
    "host": (["--host", "192.0.2.77"], 1, r"cannot listen on port \d+ on 192\.0\.2\.77"),
    "public URL": (["--public-url", "ftp://example.org"], 1, r"a link starts with https://host/"),
    "public URL without TLS": (["--public-url", "http://example.org"], 1, r"starts with https://"),
    "memory": (["--memory", "lots"], 2, ""),
    "port": (["--port", "99999"], 2, ""),
    "name": (["--name", "a\x1b[31m"], 1, r"choose another with --name"),
}


def test_meshes_that_cannot_be_founded(tmp_path: Path, world: World) -> None:
    each(FOUNDING, lambda case: check_founding(tmp_path, world, *FOUNDING[case]))


def check_founding(tmp_path: Path, world: World, words: list[object], status: int, pattern: str) -> None:
    model = [] if words[0] == "nosuch" else [world.gguf]
    result = run(tmp_path, "serve", *model, "--port", "0", "--store", world.store, *words)
    if status == 2:
        assert result.status == 2
        reason, usage = result.err.splitlines()
        assert reason.startswith("shoal serve: argument ")
        assert usage == "usage: shoal serve MODEL MODEL… [options]; shoal serve --help lists them"
    else:
        one_line(result, pattern)
    assert not result.out


def test_a_port_that_is_taken(tmp_path: Path, world: World, taken_port: int) -> None:
    words = ["serve", world.gguf, "--port", taken_port, "--store", world.store]
    one_line(run(tmp_path, *words), rf"port {taken_port} on 127\.0\.0\.1 is taken .* --port")


def test_one_founder_at_a_time(world: World) -> None:
    result = run(world.home, *serve_words(world.store, world.state, "--keep"))
    one_line(result, r"another process serves the mesh kept in .* --state")


def test_a_transport_that_is_not_installed(tmp_path: Path, world: World) -> None:
    from importlib.util import find_spec

    if find_spec("aiolibdatachannel") is not None:
        pytest.skip("it is installed here")
    one_line(
        world.generate(world.link, "--transport", "libdatachannel"),
        r"transport libdatachannel is not installed; install shoal-mesh\[fast\] .* or use --transport aiortc",
    )


# --- links --------------------------------------------------------------------------------------------------


def mistyped(link: str) -> str:
    return link[:-3] + ("A" if link[-3] != "A" else "B") + link[-2:]


def gone(link: str) -> str:
    """A link to a mesh that this server does not know."""
    made, _ = make_invite(identity_from_seed(bytes(32)), link.partition("/#")[0], bytes(32), Role.PEER)
    return made.url()


LINKS: dict[str, tuple[Callable[[World], str], str]] = {
    "no link": (lambda world: "hello", r"a link starts with https://host/"),
    "without secret": (lambda world: world.link.partition("#")[0], r"ends before its secret part"),
    "truncated": (lambda world: world.link[:-5], r"has 48 characters, this one has 43: copy it again"),
    "mistyped": (lambda world: mistyped(world.link), r"mistyped .*: copy it again"),
    "nobody there": (
        lambda world: "http://127.0.0.1:9/#" + world.link.partition("#")[2],
        r"no signaling server answers at http://127\.0\.0\.1:9",
    ),
    "mesh gone": (
        lambda world: gone(world.link),
        r"not know the mesh of this link: it is not running now, or",
    ),
    "expired": (lambda world: world.expired, r"this invite expired .* ago: ask for a new link"),
    "revoked": (lambda world: world.revoked, r"this invite was withdrawn by the founder: ask for a new link"),
}


def test_links_that_lead_nowhere(world: World) -> None:
    each(LINKS, lambda case: one_line(world.generate(LINKS[case][0](world), who=case), LINKS[case][1]))


def test_a_host_that_is_something_else(world: World) -> None:
    class Quiet(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_error(404)

        def log_message(self, format: str, *args: object) -> None:
            return

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as other:
        thread = threading.Thread(target=other.serve_forever)
        thread.start()
        address = f"http://127.0.0.1:{other.server_address[1]}"
        result = world.generate(f"{address}/#{world.link.partition('#')[2]}")
        other.shutdown()
        thread.join()
    one_line(result, r"answers, but not as a signaling server \(HTTP 404\)")


def test_a_counted_invite_is_for_that_many_machines_and_they_may_come_back(world: World) -> None:
    assert world.generate(world.used_up, who="first").status == 0
    one_line(world.generate(world.used_up, who="second"), r"was for 1 peer\(s\), who have all come")
    assert world.generate(world.used_up, who="first").status == 0
    (kept,) = (world.home / "askers" / "first" / "peers").rglob("*.json")
    assert kept.stat().st_mode & 0o777 == 0o600


def test_a_guest_may_ask_and_not_lend(world: World) -> None:
    assert world.generate(world.guest, who="guest").status == 0
    one_line(
        run(world.home, "join", world.guest, "--memory", MEMORY, *world.asker("guest")),
        r"lets you ask, not lend memory; ask for an invite with the role peer",
    )


def test_a_damaged_key_file(world: World) -> None:
    world.generate(world.link, who="damaged")
    (kept,) = (world.home / "askers" / "damaged" / "peers").rglob("*.json")
    for each in (kept, copy_of(kept)):
        each.write_text("{}")
    one_line(world.generate(world.link, who="damaged"), r"0\.json is damaged .* move both away")
    kept.chmod(0o644)
    one_line(world.generate(world.link, who="damaged"), r"can be read by others: run chmod 600")


# --- asking -------------------------------------------------------------------------------------------------

ASKING: dict[str, tuple[list[object], str]] = {
    "temperature": (["--temperature", "-1"], r"temperature"),
    "not a number": (["--temperature", "nan"], r"temperature"),
    "top-p": (["--temperature", "1", "--top-p", "1.5"], r"top_p"),
    "seed": (["--seed", "-1"], r"seed"),
    "prompt too long": (["--system", LONG], r"512"),
}


def test_settings_that_no_token_can_be_drawn_with(world: World) -> None:
    each(ASKING, lambda case: one_line(world.generate(world.link, *ASKING[case][0]), ASKING[case][1]))


def test_an_answer(world: World) -> None:
    first = world.generate(world.link, "--stats")
    assert first.status == 0
    assert first.out.endswith("\n")
    assert first.err.startswith("4 tokens, ")
    assert world.generate(world.link).out == first.out


def test_an_answer_is_drawn_as_usual_where_nothing_is_said_of_it(world: World) -> None:
    asked = ["generate", world.link, "hello", "--max-tokens", "8", "--json", *world.asker("one")]
    drawn = json.loads(run(world.home, *asked).out)
    again = run(world.home, *asked, "--seed", drawn["seed"], "--temperature", "0.7", "--top-p", "0.95")
    assert json.loads(again.out)["text"] == drawn["text"]


def test_peers_without_enough_memory(tmp_path: Path, world: World) -> None:
    words = serve_words(world.store, tmp_path, "--memory", "10MiB")
    with running(tmp_path, *words) as served:
        link = served.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        served.until(r"^no plan: needs \d+ MiB more on founder")
        one_line(
            world.generate(link, "--wait", "1"),
            r"cannot answer yet: needs \d+ MiB more on founder, for 4 sessions of 512 tokens; or fewer sessions",
        )


# --- pieces -------------------------------------------------------------------------------------------------


def flip(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def copied(store: Path, target: Path) -> Path:
    """A store of its own, to be damaged."""
    for path in store.rglob("*"):
        if path.is_file() and path.parent.name != "tmp":
            there = target / path.relative_to(store)
            there.parent.mkdir(parents=True, exist_ok=True)
            there.write_bytes(path.read_bytes())
    return target


def test_a_founder_does_not_run_damaged_weights(tmp_path: Path, world: World) -> None:
    store = copied(world.store, tmp_path / "store")
    flip(store / "blobs" / world.manifest.units[3].blob.sha256)
    with running(tmp_path, *serve_words(store, tmp_path)) as served:
        one_line(served.end(0), r"blob \w+, piece 0: expected hash \w+, got \w+")


@pytest.fixture(scope="module")
def halved(world: World, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Running, str, Path]]:
    """A mesh whose second half waits for somebody to join."""
    home = tmp_path_factory.mktemp("halved")
    store = copied(world.store, home / "store")
    with running(home, *serve_words(store, home, "--cuts", "3")) as served:
        link = served.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        yield served, link, store
    for path in home.rglob("*"):
        if path.is_file() and path.stat().st_size > 1 << 16:
            path.unlink()


def join_words(link: str, folder: Path, store: Path | None = None) -> list[object]:
    words: list[object] = ["join", link, "--name", "second", "--memory", MEMORY, "--bind", "127.0.0.1"]
    return [*words, "--store", store or folder / "store", "--state", folder / "state"]


def test_a_joiner_heals_its_own_damaged_pieces(
    tmp_path: Path, world: World, halved: tuple[Running, str, Path]
) -> None:
    _, link, _ = halved
    store = copied(world.store, tmp_path / "store")
    blob = store / "blobs" / world.manifest.units[4].blob.sha256
    flip(blob)
    with running(tmp_path, *join_words(link, tmp_path)) as second:
        second.until(r"plan \d+: founder holds units 0-2, second holds units 3-5")
        assert world.generate(link, who="halves").status == 0
        ended = second.end()
    assert ended.status == 0
    assert blob.read_bytes() == (world.store / "blobs" / blob.name).read_bytes()


def test_a_joiner_refuses_the_servers_damaged_pieces(
    tmp_path: Path, world: World, halved: tuple[Running, str, Path]
) -> None:
    _, link, store = halved
    blob = store / "blobs" / world.manifest.units[4].blob.sha256
    flip(blob)
    try:
        result = run(tmp_path, *join_words(link, tmp_path))
    finally:
        flip(blob)
    one_line(result, r"blob \w+, piece 0: expected hash \w+, got \w+")
    assert not list((tmp_path / "store" / "blobs").glob(f"{blob.name}*"))


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = os.geteuid() == 0 and subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=300k", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if not mounted or mounted.returncode:
        pytest.skip("only the superuser can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_a_full_disk_during_fetch(
    tmp_path: Path, small_disk: Path, halved: tuple[Running, str, Path]
) -> None:
    _, link, _ = halved
    result = run(tmp_path, *join_words(link, tmp_path, small_disk / "store"))
    one_line(result, r"the disk under .* is full .*: free some space")


# --- ends ---------------------------------------------------------------------------------------------------


def test_ctrl_c_while_joining(world: World, tmp_path: Path) -> None:
    with socket.socket() as silent:  # takes connections and says nothing
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        link = f"http://127.0.0.1:{silent.getsockname()[1]}/#{world.link.partition('#')[2]}"
        with running(tmp_path, *join_words(link, tmp_path)) as second:
            second.until("^connect$")
            silent.accept()[0].close()
            result = second.end(within_s=soon(5))
    assert result.status == 130
    assert not result.complaints


def test_ctrl_c_during_an_import(tmp_path: Path, tiny_model: TinyModel) -> None:
    gguf = tiny_model.but(blocks=48).write_gguf(tmp_path / "deep.gguf")
    for attempt in range(20):  # where this process waits for the processor, an import is over meanwhile
        store = tmp_path / f"store{attempt}"
        with running(tmp_path, "import", gguf, "--store", store) as importing:
            while not any((store / "blobs").glob("*")) and importing.process.poll() is None:
                pass
            importing.process.send_signal(signal.SIGSTOP)
            while importing.process.poll() is None and not stopped(importing.process.pid):
                pass
            was_over = importing.process.poll() is not None or any((store / "models").iterdir())
            importing.process.send_signal(signal.SIGINT)
            importing.process.send_signal(signal.SIGCONT)
            result = importing.end(0, within_s=soon(10))
        was_over |= result.status == 0  # nothing was left to interrupt
        if not was_over:
            break
    assert not was_over, "every import was over before it could be interrupted"
    assert (result.status, result.out) == (130, "")
    assert all(re.match("(read|import) deep", line) for line in result.err.splitlines()), result.err
    assert not list((store / "models").iterdir())
    assert run(tmp_path, "import", gguf, "--store", store).status == 0
    assert not list((store / "tmp").iterdir())


def stopped(pid: int) -> bool:
    """Whether SIGSTOP has come to hold."""
    try:
        return psutil.Process(pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return True


def test_a_second_ctrl_c_does_not_wait(tmp_path: Path, world: World) -> None:
    with running(tmp_path, *serve_words(world.store, tmp_path)) as served:
        served.until("^plan 1")
        served.process.send_signal(signal.SIGSTOP)  # so that both come at once
        served.process.send_signal(signal.SIGINT)
        served.process.send_signal(signal.SIGTERM)
        result = served.end(signal.SIGCONT, within_s=soon(10))
    assert result.status in (0, 130)
    assert "Traceback" not in result.err


def test_closed_standard_output(world: World) -> None:
    words = command_line("status", world.link, "--once", *world.asker("head"))
    reading, writing = os.pipe()
    process = subprocess.Popen(words, stdout=writing, stderr=subprocess.PIPE, env=environment(world.home))
    os.close(writing)
    os.close(reading)
    _, err = process.communicate(timeout=WITHIN_S)
    assert process.returncode in (1, 141)
    assert err == b""


def test_chat_over_a_pipe(world: World) -> None:
    words = ["chat", world.link, "--max-tokens", "3", "--temperature", "0", *world.asker("chat")]
    result = run(world.home, *words, typed="hello\n\nhello again\n")
    assert result.status == 0, result.err
    assert result.err.count("[3 tokens") == 2


def test_a_conversation_is_kept_in_a_file_and_brought_back(world: World) -> None:
    few = ["--max-tokens", "3", "--temperature", "0"]
    chat = ["chat", world.link, "--in", "tea", *few, *world.asker("talk")]
    said = run(world.home, *chat, typed="hello\n//an aside\n/nothing\n/people\n/title about tea\n")
    assert said.status == 1, said.err
    assert "shoal: not every line did what it asks for" in said.err
    assert "hello" in said.out
    assert "(to people): an aside" in said.out
    assert "[stopped: length]" in said.out, "three tokens were allowed"
    assert "there is no /nothing" in said.err
    assert ": owner, here, you" in said.err
    kept, again = world.home / "tea.json", world.home / "again.md"
    talks = ["conversations", world.link, *world.asker("talk")]
    assert run(world.home, *talks, "--in", "about tea", "--export", kept).status == 0
    transcript = json.loads(kept.read_text("utf-8"))
    tokens = {message["form"]: message["tokens"] for message in transcript["messages"]}
    assert tokens == {"to-model": 0, "to-people": 0, "answer": 3}
    brought = run(world.home, *talks, "--import", kept, "--in", "2", "--export", again)
    assert brought.status == 0, brought.err
    assert again.read_text("utf-8").startswith("# about tea\n")
    one_line(run(world.home, *talks, "--in", "no such"), r"there is no conversation 'no such'")


def test_chat_leaves_on_ctrl_c_though_its_input_stays_open(world: World) -> None:
    with running(world.home, "chat", world.link, *world.asker("chat"), typed=True) as chat:
        chat.until("talking to tiny")
        assert chat.end(within_s=soon(10)).status == 0


def test_a_process_that_runs_is_called_otherwise(tmp_path: Path, world: World) -> None:
    words = ["join", world.link, "--memory", "256MiB", "--store", tmp_path / "joined", "--state", tmp_path]
    with running(tmp_path, *words, "--name", "desk") as joined:
        joined.until("joined as desk")
        said = run(tmp_path, "rename", world.link, "lap", "--state", tmp_path)
        assert said.status == 0, said.err
        assert said.out.startswith("desk is called lap from now on, until it ends: "), said.out
        shown = run(tmp_path, "status", world.link, "--json", "--state", tmp_path / "other")
        called = {member["name"] for member in json.loads(shown.out)["members"]}
        assert "lap" in called
        assert "desk" not in called
    with running(tmp_path, *words) as again:
        again.until("joined as lap")
    one_line(
        run(tmp_path, "rename", world.link, "x", "--state", tmp_path),
        "no shoal serve or join runs in that mesh",
    )


def test_serving_again_is_the_same_mesh_and_old_links_work(tmp_path: Path, world: World) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    words = serve_words(world.store, tmp_path, "--keep", "--port", port)
    with running(tmp_path, *words) as served:
        link = served.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0]
        once = run(tmp_path, "invite", "--uses", "1", "--state", tmp_path).out.strip()
        served.until("^plan 1")
        assert world.generate(once, who="member").status == 0
        assert served.end().status == 0
    offline = run(tmp_path, "invite", "--role", "guest", "--state", tmp_path)
    assert "the link works once shoal serve --keep runs again" in offline.err
    with running(tmp_path, *words) as served:
        assert served.until(r"^http://127\.0\.0\.1:\d+/#\S+")[0] == link
        served.until(r"^plan \d+")
        assert world.generate(offline.out.strip(), who="guest").status == 0
        assert world.generate(once, who="member").status == 0
        one_line(world.generate(once, who="other"), "who have all come")


def test_who_came_with_a_withdrawn_invite_is_out(tmp_path: Path, world: World) -> None:
    link = run(world.home, "invite", "--state", world.state).out.strip()
    short_id = run(world.home, "invite", "--list", "--state", world.state).out.splitlines()[-1].split()[0]
    with running(tmp_path, *join_words(link, tmp_path)) as second:
        second.until("^joined as second")
        assert run(world.home, "invite", "--revoke", short_id, "--state", world.state).status == 0
        one_line(second.end(0), r"the founder withdrew the invite you came with: ask for a new link")
    world.served.until("^second left")
    assert world.generate(world.link).status == 0


def test_a_member_tells_machines(world: World, tmp_path: Path) -> None:
    words = [*join_words(world.link, tmp_path), "--metrics", 0, "--log-format", "json"]
    with running(tmp_path, *words) as second:
        address = second.until(r"http://127\.0\.0\.1:\d+/metrics")[0]
        with urllib.request.urlopen(address, timeout=WITHIN_S) as answer:
            figures = answer.read().decode()
        assert re.search(r"^shoal_mesh_members [2-9]", figures, re.MULTILINE)
        assert "shoal_peer_tokens_total" in figures
        ended = second.end()
        assert ended.status == 0
    told = [json.loads(line) for line in ended.err.splitlines()]
    assert all(line.keys() == {"time", "level", "logger", "message"} for line in told)
    assert "leaving" in [line["message"] for line in told]
    taken = run(tmp_path, *join_words(world.link, tmp_path), "--metrics", "nobody")
    assert taken.status == 2
    assert "expected HOST:PORT" in taken.err


def test_a_gateway_makes_embeddings(world: World, tmp_path: Path) -> None:
    folder, store = TinyBert().write(tmp_path / "tinybert"), tmp_path / "store"
    own = ["--store", store, "--state", tmp_path / "state", "--bind", "127.0.0.1"]
    imported = run(tmp_path, "import", folder, "--store", store)
    assert imported.out.startswith("tinybert  onnx  embedding model, 6 units  "), imported
    with running(tmp_path, "api", world.link, "--port", 0, "--embedding-model", folder, *own) as gateway:
        url = gateway.until(r"^http://127\.0\.0\.1:\d+/v1$")[0]
        asked = json.dumps({"model": "tinybert", "input": ["a mesh", "sky"]}).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/embeddings", asked, headers)
        with urllib.request.urlopen(request, timeout=WITHIN_S) as answer:
            made = json.load(answer)
        assert made["usage"] == {"prompt_tokens": 7, "total_tokens": 7}
        assert [len(one["embedding"]) for one in made["data"]] == [32, 32]
        ended = gateway.end()
        assert ended.status == 0
        assert "tinybert makes embeddings of 32 dimensions on this machine" in ended.err


def test_invite_without_a_kept_mesh(tmp_path: Path) -> None:
    one_line(
        run(tmp_path, "invite", "--state", tmp_path), r"no mesh is kept in .*: run shoal serve --keep first"
    )
    one_line(run(tmp_path, "invite", "--list", "--state", tmp_path), r"no mesh is kept in")


def test_plan_and_status(world: World, tmp_path: Path) -> None:
    explained = run(world.home, "plan", world.link, *world.asker("plan"))
    assert explained.status == 0, explained.err
    assert "founder" in explained.out
    shown = run(world.home, "status", world.link, "--once", *world.asker("plan"))
    assert shown.status == 0, shown.err
    assert "tiny, 4 conversations of 512 tokens" in shown.out
    one_line(run(tmp_path, "plan", tmp_path / "none.json"), r"neither an invite link .* nor a file")
    (tmp_path / "bad.json").write_text("{")
    one_line(run(tmp_path, "plan", tmp_path / "bad.json"), r"JSON")


def test_an_owner_changes_the_wish_of_a_running_mesh_and_nobody_else_does(world: World) -> None:
    own = ["--store", world.store, "--state", world.state, "--bind", "127.0.0.1"]
    refused = {
        "nothing": ([], own, "nothing is wished for: give --goal, --strategy or --component"),
        "no owner": (
            ["--goal", "memory"],
            world.asker("wish"),
            "only an owner changes by what plans are made",
        ),
        "no such units": (
            ["--component", "low=0-9"],
            own,
            "component low: expected units from 0 to at most 5",
        ),
    }

    for more, who, why in refused.values():  # a state folder speaks for the owner once at a time
        one_line(run(world.home, "wish", world.link, *more, *who), re.escape(why))
    no_owner = run(world.home, "role", world.link, "founder", "member", *world.asker("wish"))
    one_line(no_owner, r"only an owner gives roles")
    words = ["--goal", "memory", "--strategy", "layer", "--json", "--wait", "1"]
    made = run(world.home, "wish", world.link, *words, *own)
    assert made.status == 0, made.err
    found = json.loads(made.out)
    wish = {"strategy": "layer", "goal": "memory", "components": [], "min_tensor_bytes": 0}
    assert found["wish"] == wish
    assert found["serves"]
    assert "founder holds units 0-5" in found["said"]  # one peer alone has no other plan
