"""Meshes that are found on the network: what is announced, what it takes to come in, and who announces nonsense."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest

from peer.cli.main import main
from peer.cli.nearby import link_of
from peer.errors import BadCommand, CannotServe
from peer.launch.nearby import Nearby, announced, look, new_code, seal, told_by, unseal

LINK = f"http://192.0.2.7:8765/#{'m' * 32}.{'s' * 52}"
CODE = "4f7k-2m9x-h3wd"
LOOPBACK = ("127.0.0.1",)  # nothing of a test leaves this machine


@pytest.fixture(scope="module")
def found() -> Nearby:
    return Nearby("ada@laptop", "toy", "http://192.0.2.7:8765", seal(LINK, CODE))


@pytest.mark.parametrize("typed", [CODE, CODE.upper(), " 4f7k2m9xh3wd", "4f7k 2m9x h3wd"])
def test_the_code_opens_it_however_it_is_typed(found: Nearby, typed: str) -> None:
    assert unseal(found, typed) == LINK


@pytest.mark.parametrize("typed", ["", "4f7k-2m9x-h3we", "x" * 1000, "\ud83d"])
def test_another_code_does_not(found: Nearby, typed: str) -> None:
    with pytest.raises(BadCommand, match="not the code of ada@laptop"):
        unseal(found, typed)


def test_a_seal_that_was_changed_does_not_open(found: Nearby) -> None:
    for at in (0, 20, len(found.sealed) - 1):
        flipped = bytearray(found.sealed)
        flipped[at] ^= 1
        with pytest.raises(BadCommand):
            unseal(replace(found, sealed=bytes(flipped)), CODE)


def test_codes_are_long_enough_and_new() -> None:
    codes = {new_code() for _ in range(100)}
    assert len(codes) == 100
    assert all(len(code.replace("-", "")) == 12 for code in codes)


@pytest.mark.parametrize(
    "properties",
    [
        {},
        {b"name": b"a", b"model": b"b", b"server": b"c"},
        {b"name": b"a", b"model": b"b", b"server": b"c", b"link0": b"AAAA"},
        {b"name": b"a", b"model": b"b", b"server": b"c", b"link0": b"!" * 100},
        {b"name": b"a", b"model": b"b", b"server": b"c", b"link1": b"A" * 100},
        {b"name": b"\xff", b"model": b"b", b"server": b"c", b"link0": b"A" * 100},
        {b"name": b"a", b"model": b"b", b"server": b"c", **{b"link%d" % n: b"A" * 200 for n in range(50)}},
        {b"name": None, b"model": None, b"server": None, b"link0": None},
    ],
)
def test_an_announcement_of_somebody_else_is_passed_over(properties: dict[bytes, bytes | None]) -> None:
    assert told_by(properties) is None


def test_a_name_moves_no_cursor() -> None:
    told = told_by({b"name": b"\x1b[2J" * 40, b"model": b"b", b"server": b"c", b"link0": b"A" * 100})
    assert told is not None
    assert "\x1b" not in str(told)
    assert len(told.name) <= 48


async def test_a_mesh_is_found_by_multicast_and_its_secret_is_not_announced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Real multicast DNS, on loopback alone: needs a loopback interface with multicast, as Linux and macOS have."""
    monkeypatch.setattr("secrets.token_hex", lambda count: "5a" * count)
    async with announced(LINK, "ada@laptop", "toy", LOOPBACK) as code:
        (mesh,) = await look(10.0, LOOPBACK, enough=1)
        assert (mesh.name, mesh.model, mesh.server) == ("ada@laptop", "toy", "http://192.0.2.7:8765")
        assert b"s" * 52 not in mesh.sealed
        assert unseal(mesh, code) == LINK


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]"])
async def test_a_server_that_nobody_else_reaches_is_not_announced(host: str) -> None:
    with pytest.raises(BadCommand, match="give --host"):
        async with announced(f"http://{host}:1/#x.y", "ada", "toy"):
            raise AssertionError("announced")


def test_one_is_picked_by_number_and_code(found: Nearby, monkeypatch: pytest.MonkeyPatch) -> None:
    other = replace(found, name="ben@desk", sealed=seal("http://192.0.2.8:1/#other", "0000-0000-0000"))
    monkeypatch.setattr(sys, "stdin", io.StringIO(f"{CODE}\n"))
    assert link_of([found]) == LINK
    monkeypatch.setattr(sys, "stdin", io.StringIO("2\nOOOO-OOOO-OOOO\n"))
    assert link_of([found, other]) == "http://192.0.2.8:1/#other"
    for typed in ("3\n", "x\n", ""):
        monkeypatch.setattr(sys, "stdin", io.StringIO(typed))
        with pytest.raises(BadCommand, match="a number from 1 to 2"):
            link_of([found, other])
    with pytest.raises(CannotServe, match="no mesh is announced"):
        link_of([])


@pytest.mark.parametrize("words", [["join"], ["join", LINK, "--nearby"]])
def test_a_link_or_nearby(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(words) == 1
    assert "expected a LINK, or --nearby" in capsys.readouterr().err


async def test_a_missing_library_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "zeroconf", None)
    with pytest.raises(CannotServe, match=r"pip install 'shoal-mesh\[nearby\]'"):
        await look(0.0, LOOPBACK)
