"""The server's HTTP side on real sockets: store with ranges, plans, health, metrics, guards, state files."""

from __future__ import annotations

import asyncio
import datetime
import hashlib
import json
import logging
import os
import random
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from planner.errors import JobsBusy, JobTooLarge, PlannerError, RequestError
from planner.model.store import Store
from planner.service.planning_jobs import PlanningJobs
from signaling.app_files import policy
from signaling.errors import BadCertificate, CorruptState, ServerError
from signaling.invites import Admissions, make_revocation
from signaling.limits import Limits
from signaling.planning import Planning
from signaling.room import Policy
from signaling.server import ServerOptions, Tls, own_certificate, serve
from signaling.state import StateFolder, decode_admissions, encode_admissions
from tests.descriptors import no_descriptor_left
from tests.patience import WITHIN_S
from tests.seeds import seeds

BLOB = bytes(range(256)) * 3000  # 750 KiB: three reads


@asynccontextmanager
async def site(
    options: ServerOptions | None = None,
    store: Store | None = None,
    planning: Planning | None = None,
    placing: Callable[[PlanningJobs, bytes], Awaitable[bytes]] | None = None,
) -> AsyncIterator[aiohttp.ClientSession]:
    async with (
        serve(options or ServerOptions(), store, planning, placing) as server,
        aiohttp.ClientSession(server.url) as http,
    ):
        yield http


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "store")


async def test_blobs_and_ranges(store: Store) -> None:
    ref = store.put_blob([BLOB])
    async with site(store=store) as http:
        path = f"/blobs/{ref.sha256}"
        async with http.get(path) as whole:
            assert (whole.status, await whole.read()) == (200, BLOB)
            assert whole.headers["ETag"] == f'"{ref.sha256}"'
            assert "immutable" in whole.headers["Cache-Control"]
            assert whole.headers["Accept-Ranges"] == "bytes"
        async with http.head(path) as head:
            assert (head.status, head.content_length, await head.read()) == (200, len(BLOB), b"")
        for asked, start, stop in (
            ("bytes=0-0", 0, 1),
            ("bytes=1000-600000", 1000, 600_001),
            ("bytes=700000-", 700_000, len(BLOB)),
            ("bytes=-5", len(BLOB) - 5, len(BLOB)),
        ):
            async with http.get(path, headers={"Range": asked}) as part:
                assert (part.status, await part.read()) == (206, BLOB[start:stop])
                assert part.headers["Content-Range"] == f"bytes {start}-{stop - 1}/{len(BLOB)}"
        async with http.get(path, headers={"Range": f"bytes={len(BLOB)}-"}) as outside:
            assert outside.status == 416
            assert outside.headers["Content-Range"] == f"bytes */{len(BLOB)}"
        async with http.get(path, headers={"If-None-Match": f'"{ref.sha256}"'}) as known:
            assert (known.status, await known.read()) == (304, b"")
        async with http.get(path, headers={"Range": "bytes=0-1", "If-Range": '"other"'}) as changed:
            assert (changed.status, await changed.read()) == (200, BLOB)
        metrics = await (await http.get("/metrics")).text()
        assert "shoal_served_bytes_total" in metrics


async def test_manifests(store: Store) -> None:
    data = json.dumps({"name": "tiny"}, separators=(",", ":")).encode()
    model = store.put_manifest(data)
    async with site(store=store) as http:
        async with http.get(f"/models/{model}/manifest.json") as got:
            assert (got.status, await got.read(), got.content_type) == (200, data, "application/json")
            assert hashlib.sha256(data).hexdigest() == model == got.headers["ETag"].strip('"')
        async with http.get(
            f"/models/{model}/manifest.json", headers={"If-None-Match": f'"{model}"'}
        ) as known:
            assert known.status == 304


async def test_what_was_recorded_of_a_model_is_served_beside_its_manifest(store: Store) -> None:
    model = store.put_manifest(b'{"name":"tiny"}')
    path = f"/models/{model}/envelopes.json"
    async with site(store=store) as http:
        async with http.get(path) as missing:
            assert missing.status == 404
        store.beside_manifest(model, "envelopes.json").write_bytes(b'{"format":"x"}')
        async with http.get(path) as got:
            assert (got.status, await got.read(), got.content_type) == (
                200,
                b'{"format":"x"}',
                "application/json",
            )
        store.beside_manifest(model, "envelopes.json").write_bytes(b" " * ((1 << 20) + 1))
        async with http.get(path) as long:
            assert long.status == 404


@pytest.mark.parametrize(
    "path",
    [
        "/models/" + "0" * 64 + "/envelopes.json",
        "/models/..%2f../envelopes.json",
        "/blobs/" + "0" * 64,
        "/blobs/" + "A" * 64,
        "/blobs/..%2f..%2fetc%2fpasswd",
        "/blobs/%2e%2e/secret",
        "/blobs/" + "0" * 63 + "%00",
        "/models/" + "0" * 64 + "/manifest.json",
        "/models/..%2f../manifest.json",
        "/nothing",
    ],
)
async def test_what_is_not_there_is_404_in_one_line(store: Store, tmp_path: Path, path: str) -> None:
    (tmp_path / "secret").write_text("secret")
    for there in (store, None):
        async with site(store=there) as http, http.get(path) as got:
            text = await got.text()
            assert got.status == 404
            assert text.count("\n") <= 1
            assert "secret" not in text.replace("/secret", "")


async def test_a_part_of_a_download_is_not_served(store: Store) -> None:
    data = b"x" * 100
    ref = store.put_blob([data])
    other = Store(store.root.parent / "other")
    with other.writer(ref):
        async with site(store=other) as http, http.get(f"/blobs/{ref.sha256}") as got:
            assert got.status == 404


async def test_plans(store: Store) -> None:
    async def planning(body: bytes) -> bytes:
        if body == b"bad":
            raise PlannerError("field units: a list expected")
        if body == b"much":
            raise JobTooLarge("this took more than 1 MiB of memory")
        if body == b"many":
            raise JobsBusy("32 others wait already: try again later")
        return b'{"plan":' + body + b"}"

    options = ServerOptions(policy=Policy(Limits(plan_bytes=1000)))
    async with site(options, planning=planning) as http:
        json_type = {"Content-Type": "application/json"}
        for body, headers, status, says in (
            (b"{}", json_type, 200, '{"plan":{}}'),
            (b"bad", json_type, 400, "field units: a list expected\n"),
            (b"much", json_type, 503, "ask with fewer peers\n"),
            (b"many", json_type, 503, "no plan can be made now: 32 others wait"),
            (b"{}", {"Content-Type": "text/plain"}, 415, "application/json"),
            (b"x" * 1001, json_type, 413, "at most 1000 bytes"),
        ):
            async with http.post("/plan", data=body, headers=headers) as got:
                assert (got.status, says in await got.text()) == (status, True)

        async def chunks() -> AsyncIterator[bytes]:
            for _ in range(20):
                yield b"x" * 100

        async with http.post("/plan", data=chunks(), headers=json_type) as got:
            assert got.status == 413
    async with site() as http, http.post("/plan", data=b'{"units":7}', headers=json_type) as got:
        assert got.status == 400
        assert (await got.text()).count("\n") == 1


async def test_placements_are_answered_where_somebody_makes_them() -> None:
    async def placing(jobs: PlanningJobs, body: bytes) -> bytes:
        if body == b"{}":
            raise RequestError("expected a state")
        return b"[" + body + b"]"

    json_type = {"Content-Type": "application/json"}
    async with site(placing=placing) as http:
        for body, status, text in ((b"1", 200, "[1]"), (b"{}", 400, "expected a state\n")):
            async with http.post("/place", data=body, headers=json_type) as got:
                assert (got.status, await got.text()) == (status, text)
        async with http.post("/place", data=b"1", headers={"Content-Type": "text/plain"}) as got:
            assert got.status == 415
    async with site() as http, http.post("/place", data=b"1", headers=json_type) as got:
        assert got.status == 404


async def test_a_plan_ends_with_its_time_or_with_who_asked() -> None:
    begun, ended = asyncio.Event(), asyncio.Event()

    async def planning(body: bytes) -> bytes:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            ended.set()
        return b"{}"

    headers = {"Content-Type": "application/json"}
    options = ServerOptions(policy=Policy(Limits(plan_within_s=0.05)))
    async with site(options, planning=planning) as http:
        async with http.post("/plan", data=b"{}", headers=headers) as late:
            assert (late.status, "no plan within" in await late.text()) == (503, True)
        assert ended.is_set()
    begun.clear()
    ended.clear()
    async with asyncio.timeout(WITHIN_S):
        async with site(planning=planning) as http:
            asking = asyncio.ensure_future(http.post("/plan", data=b"{}", headers=headers))
            await begun.wait()
            asking.cancel()
            await ended.wait()


async def test_page_health_metrics() -> None:
    async with site() as http:
        async with http.get("/") as page:
            assert "shoal join" in await page.text()
            assert "default-src 'none'" in page.headers["Content-Security-Policy"]
            assert page.headers["Referrer-Policy"] == "no-referrer"
        async with http.get("/healthz") as health:
            assert await health.json() == {"ok": True, "rooms": 0, "members": 0}
        async with http.get("/ws") as plain:
            assert plain.status == 426


async def test_foreign_pages_and_names_are_refused() -> None:
    options = ServerOptions(
        allow_origins=frozenset({"https://app.example"}), allow_hosts=frozenset({"shoal.example"})
    )
    async with site(options) as http:
        for headers, status in (
            ({"Host": "evil.example"}, 403),
            ({"Host": "shoal.example"}, 200),
            ({"Origin": "http://evil.example"}, 403),
            ({"Origin": "null"}, 403),
            ({"Origin": "https://app.example"}, 200),
            ({"Host": "localhost:5", "Origin": "http://localhost:5"}, 200),
        ):
            async with http.get("/healthz", headers=headers) as got:
                assert got.status == status
                assert (await got.text()).count("\n") <= 1
        with pytest.raises(aiohttp.WSServerHandshakeError) as refused:
            await http.ws_connect("/ws", headers={"Origin": "http://evil.example"})
        assert refused.value.status == 403
        async with http.ws_connect("/ws", headers={"Origin": "https://app.example"}) as ws:
            assert json.loads(await ws.receive_str())["kind"] == "challenge"
        assert 'reason="OriginRefused"} 3.0' in await (await http.get("/metrics")).text()


async def test_an_address_that_is_not_ours() -> None:
    with pytest.raises(ServerError, match="cannot listen"):
        async with serve(ServerOptions(host="203.0.113.1")):
            pass


# --- what is kept on disk


def test_state_round_trip(kit: Any) -> None:
    admissions = Admissions(kit.mesh.id)
    _, grant = kit.invite(uses=2)
    admissions.register(grant)
    admissions.admit(grant, kit.key("p").id)
    admissions.revoke(make_revocation(kit.mesh, kit.key("r").public.encoded))
    again = decode_admissions(encode_admissions(admissions), kit.mesh.id)
    assert (again.grants, again.revocations, again.admitted) == (
        admissions.grants,
        admissions.revocations,
        admissions.admitted,
    )
    text = encode_admissions(admissions)
    for broken in (
        text[:-1],
        text.replace('"uses":2', '"uses":3'),
        text.replace(kit.mesh.id, kit.key("o").id),
        text.replace('"format":1', '"format":2'),
        text.replace('"admitted":{', '"admitted":{"!":[],'),
        text.replace(kit.key("p").id, "me"),
        "{}",
        "[]",
    ):
        with pytest.raises(CorruptState):
            decode_admissions(broken, kit.mesh.id)


def test_state_folder(kit: Any, tmp_path: Path) -> None:
    folder = StateFolder(tmp_path / "state")
    assert folder.load() == []
    folder.save(kit.mesh.id, encode_admissions(Admissions(kit.mesh.id)))
    path = tmp_path / "state" / f"{kit.mesh.id}.json"
    assert path.stat().st_mode & 0o077 == 0
    assert [a.mesh for a in folder.load()] == [kit.mesh.id]
    (tmp_path / "state" / "README.json").write_text("not ours")
    (tmp_path / "state" / f"{kit.mesh.id}.new").write_text("half written by a process that died")
    assert [a.mesh for a in folder.load()] == [kit.mesh.id]
    for each in (path, path.with_name(f"{path.name}-copy")):
        each.write_text("{")
    with pytest.raises(CorruptState, match=f"{kit.mesh.id}.json is damaged"):
        folder.load()
    folder.forget(kit.mesh.id)
    folder.forget(kit.mesh.id)
    assert folder.load() == []
    with pytest.raises(OSError, match="No such file"):
        StateFolder(tmp_path / "gone").save(kit.mesh.id, "{}")
    with pytest.raises(CorruptState, match="cannot be read"):
        StateFolder(tmp_path / "state" / "README.json").load()


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ (1 << at % 8)]) + data[at + 1 :],
    "zeroed": lambda data, at: data[:at] + bytes(1) + data[at + 1 :],
    "zeroed from here": lambda data, at: data[:at] + bytes(len(data) - at),
    "cut": lambda data, at: data[:at],
    "doubled": lambda data, at: data[:at] + data,
}


@pytest.mark.series
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("copied", [False, True])
def test_damage_anywhere_of_one_file_costs_no_invite(
    how: str,
    copied: bool,
    kit: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    admissions = Admissions(kit.mesh.id)
    _, grant = kit.invite(uses=2)
    admissions.register(grant)
    admissions.admit(grant, kit.key("p").id)
    admissions.revoke(make_revocation(kit.mesh, kit.key("r").public.encoded))
    folder = StateFolder(tmp_path)
    folder.save(kit.mesh.id, encode_admissions(admissions))
    path = tmp_path / f"{kit.mesh.id}.json"
    copy, right = path.with_name(f"{path.name}-copy"), path.read_bytes()
    for at in random.Random(20261129).sample(range(len(right)), seeds(len(right))):
        spoilt = DAMAGES[how](right, at)
        (copy if copied else path).write_bytes(spoilt)
        caplog.clear()
        (found,) = folder.load()
        assert (found.grants, found.revocations, found.admitted) == (
            admissions.grants,
            admissions.revocations,
            admissions.admitted,
        ), at
        for aside in tmp_path.glob("*.aside-*"):
            assert not copied
            assert aside.read_bytes() == spoilt
            assert f"it is kept as {aside.name}, and its copy is used" in caplog.text
            aside.unlink()
        for each in (path, copy):
            each.write_bytes(right)


async def test_a_damaged_state_stops_the_start(kit: Any, tmp_path: Path) -> None:
    (tmp_path / f"{kit.mesh.id}.json").write_text("{")
    with pytest.raises(CorruptState, match="delete it to forget it"):
        async with serve(ServerOptions(state_folder=tmp_path)):
            pass


@pytest.fixture
def app_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "dist"
    (folder / "assets").mkdir(parents=True)
    (folder / "index.html").write_text("<!doctype html><title>the app</title>")
    (folder / "assets" / "main-1a2b.js").write_text("export {};")
    (folder / "assets" / "ort.wasm").write_bytes(b"\0asm")
    (tmp_path / "secret").write_text("not for everyone")
    (folder / "link").symlink_to(tmp_path / "secret")
    return folder


async def test_built_app_is_served_isolated_and_alone(app_folder: Path) -> None:
    async with site(ServerOptions(web_app=app_folder)) as http:
        async with http.get("/") as page:
            assert "the app" in await page.text()
            assert page.headers["Cross-Origin-Opener-Policy"] == "same-origin"
            assert page.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
            assert page.headers["Cache-Control"] == "no-cache"
            rules = page.headers["Content-Security-Policy"]
            assert "default-src 'none'" in rules
            assert "script-src 'self' 'wasm-unsafe-eval';" in rules
            assert f"ws://127.0.0.1:{page.url.port}" in rules
        for path, kind in (("main-1a2b.js", "text/javascript"), ("ort.wasm", "application/wasm")):
            async with http.get(f"/assets/{path}") as asset:
                assert asset.content_type == kind
                assert "immutable" in asset.headers["Cache-Control"]
                assert asset.headers["Cross-Origin-Embedder-Policy"] == "require-corp"
        for absent in ("/link", "/assets/", "/assets/other.js", "/../secret", "/%2e%2e/secret"):
            async with http.get(absent) as response:
                assert response.status == 404
        (app_folder / "assets" / "ort.wasm").unlink()
        async with http.get("/assets/ort.wasm") as gone:
            assert gone.status == 404


async def test_without_a_built_app_the_plain_page_stands(tmp_path: Path) -> None:
    async with site(ServerOptions(web_app=tmp_path)) as http, http.get("/") as page:
        assert "shoal join" in await page.text()


@pytest.mark.parametrize(
    ("host", "sockets"),
    [("localhost:8765", True), ("[::1]:1", True), ("a;script-src *", False), ("a b", False), ("", False)],
)
def test_policy_takes_no_rules_from_a_request(host: str, sockets: bool) -> None:
    rules = policy(host)
    assert (f"ws://{host}" in rules) is sockets or not host
    assert rules.count("script-src") == 1


def _certificate(folder: Path) -> Tls:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "shoal.example")])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    tls = Tls(folder / "cert.pem", folder / "key.pem")
    tls.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    tls.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return tls


async def test_https(tmp_path: Path) -> None:
    tls = _certificate(tmp_path)
    async with serve(ServerOptions(tls=tls)) as server, aiohttp.ClientSession() as http:
        assert server.url.startswith("https://127.0.0.1:")
        async with http.get(f"{server.url}/healthz", ssl=own_certificate(tls)) as health:
            assert (await health.json())["ok"] is True
        with pytest.raises(aiohttp.ClientConnectorCertificateError):
            await http.get(f"{server.url}/healthz")


@pytest.mark.parametrize("broken", ["absent", "no certificate", "another key"])
async def test_https_says_which_file_is_wrong(tmp_path: Path, broken: str) -> None:
    tls = _certificate(tmp_path)
    match broken:
        case "absent":
            tls.key.unlink()
        case "no certificate":
            tls.certificate.write_text("hello")
        case _:
            (tmp_path / "other").mkdir()
            tls = Tls(tls.certificate, _certificate(tmp_path / "other").key)
    with pytest.raises(BadCertificate, match="--key"):
        async with serve(ServerOptions(tls=tls)):
            pass


@pytest.mark.skipif(os.name != "posix", reason="limits of descriptors")
async def test_a_server_that_had_no_free_descriptor_answers_who_came_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(
        logging.ERROR, "asyncio"
    )  # commands that ran before in this process may have silenced it
    loop = asyncio.get_running_loop()
    async with serve(ServerOptions()) as server:
        port = int(server.url.rpartition(":")[2])
        client = socket.socket()
        client.setblocking(False)
        with no_descriptor_left():
            await loop.sock_connect(client, ("127.0.0.1", port))
            async with asyncio.timeout(WITHIN_S):
                while "out of system resource" not in caplog.text:  # noqa: ASYNC110 - asyncio's own words
                    await asyncio.sleep(0.01)
        request = f"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"
        await loop.sock_sendall(client, request.encode())
        async with asyncio.timeout(WITHIN_S):
            assert (await loop.sock_recv(client, 64)).startswith(b"HTTP/1.1 200")
        client.close()
