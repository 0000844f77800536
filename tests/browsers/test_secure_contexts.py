"""Tabs on other machines than the founder's: over HTTPS they are full peers, over plain HTTP the page says what lacks.

A name that the browser resolves to 127.0.0.1 stands for the other machine: it is no loopback name to the browser, so
a page there is a secure context over HTTPS only.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from peer.member.joining import Founding, found
from peer.member.mesh_member import MeshMember
from peer.member.peer_options import MeshOptions, PeerOptions
from peer.state.plan_record import route_of
from signaling.keys import identity_from_seed
from signaling.server import ServerOptions, Tls
from tests.browsers.harness import CONTEXT, PLEDGE, Driver, Models, launch
from tests.browsers.page import Page
from tests.patience import WITHIN_S

NAME = "founder.internal"
CUTS = (31,)  # two stages: the tab has to compute
FLAGS = (f"--host-resolver-rules=MAP {NAME} 127.0.0.1", "--ignore-certificate-errors")


@pytest.fixture
def certificate(tmp_path: Path) -> Tls:
    """Signed by itself, for the name and for the founder's own way to its server."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, NAME)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(NAME), x509.DNSName("localhost")]), False)
        .sign(key, hashes.SHA256())
    )
    files = Tls(tmp_path / "cert.pem", tmp_path / "key.pem")
    files.certificate.write_bytes(made.public_bytes(serialization.Encoding.PEM))
    files.key.write_bytes(
        key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return files


@asynccontextmanager
async def served(models: Models, web_app: Path, tls: Tls | None) -> AsyncIterator[tuple[MeshMember, str]]:
    """A founder whose server answers to the name, and the link by that name."""
    server = ServerOptions(web_app=web_app, allow_hosts=frozenset({NAME}), tls=tls)
    promise = Founding(models.ids["8bit"], MeshOptions(CONTEXT, 4, "latency", CUTS), server)
    options = PeerOptions("founder", PLEDGE, 1, "cpu", "aiortc", ("127.0.0.1",))
    async with found(promise, options, models.store, identity_from_seed(os.urandom(32))) as mesh:
        assert mesh.link is not None
        scheme, _, address = mesh.link.server.partition("://")
        assert scheme == ("https" if tls is not None else "http")
        yield mesh, mesh.link.url().replace(address.rpartition(":")[0], NAME, 1)


async def test_a_tab_of_another_machine_is_a_full_peer_over_https(
    driver: Driver, harness: Path, models: Models, tmp_path: Path, certificate: Tls
) -> None:
    async with served(models, harness, certificate) as (mesh, link):
        made = await launch(driver, "chromium", tmp_path / "profile", FLAGS)
        tab = await made.tab(link.partition("#")[0])
        assert await tab.run("location.origin") == link.partition("/#")[0]
        assert await tab.run("isSecureContext && crossOriginIsolated")
        status = await tab.join(link, lends=True)
        assert status["state"] == "in", status
        await mesh.until_serving(WITHIN_S)
        status = await tab.until("s.runs.length > 0")
        answer = await tab.run("shoal.complete('The capital of France is', 4)")
        assert len(answer["tokens"]) == 4
        assert mesh.view.state.plan is not None
        assert status["me"] in route_of(mesh.view.state.plan)
        await made.close()


async def test_over_plain_http_the_page_says_that_it_needs_a_secure_connection(
    driver: Driver, app: Path, models: Models, tmp_path: Path
) -> None:
    async with served(models, app, None) as (_, link):
        made = await launch(driver, "chromium", tmp_path / "profile", FLAGS)
        page = Page(await made.tab(link))
        assert not await page.run("isSecureContext")
        await page.until_says("This address is not secure enough")
        await page.until_says("https://")
        await page.until_says("--cert")
        await made.close()
