"""Who a process is: kept keys, one for each process of a machine, and what a founder keeps."""

from __future__ import annotations

import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from peer.errors import StateUnusable
from peer.member.peer_options import PROVIDER_NAMES, TRANSPORTS
from peer.runtime.execution import PROVIDERS
from peer.state.display_names import named, names
from peer.state.generated.commands import Member
from peer.storage.founder_file import KeptMeshFile, new_invite, server_address
from peer.storage.peer_keys import copy_of, kept_identity, thrown_away, viewer
from peer.transport.engines.choose import ENGINES
from signaling.errors import WrongLink
from signaling.invites import Admissions, Role, make_membership
from signaling.keys import identity_from_seed
from tests.seeds import seeds

MESH_KEY = identity_from_seed(bytes(32))
MESH = MESH_KEY.id


def test_each_process_is_the_first_peer_that_is_free(tmp_path: Path) -> None:
    with kept_identity(tmp_path, MESH) as first:
        with kept_identity(tmp_path, MESH) as second:
            assert first.identity.id != second.identity.id
        with kept_identity(tmp_path, MESH) as again:
            assert again.identity.id == second.identity.id
        with kept_identity(tmp_path, "a" * 32) as elsewhere:
            assert elsewhere.identity.id != first.identity.id
    with kept_identity(tmp_path, MESH) as later:
        assert later.identity.id == first.identity.id


def test_a_second_process_that_only_asks_is_a_viewer_of_the_first(tmp_path: Path) -> None:
    grant = new_invite(MESH_KEY, Role.PEER, 0, 1).grant
    with kept_identity(tmp_path, MESH) as first:
        first.keep(make_membership(MESH_KEY, first.identity.public.encoded, grant))
        assert viewer(first) is first
        with kept_identity(tmp_path, MESH) as second:
            seen = viewer(second)
            assert seen.voucher is not None
            assert seen.voucher.identity.id == first.identity.id
            assert seen.identity.id == second.identity.id
            membership = seen.membership(grant.key)
            assert membership is not None  # the person's, by which it comes in when the invite is used up
            assert second.membership(grant.key) is None
    assert viewer(thrown_away()).voucher is None


def test_memberships_are_kept_by_invite(tmp_path: Path) -> None:
    one, other = (new_invite(MESH_KEY, Role.PEER, 0, 1).grant for _ in range(2))
    with kept_identity(tmp_path, MESH) as mine:
        for grant in (one, one):
            mine.keep(make_membership(MESH_KEY, mine.identity.public.encoded, grant))
    with kept_identity(tmp_path, MESH) as mine:
        assert len(mine.memberships) == 1
        membership = mine.membership(one.key)
        assert membership is not None
        assert membership.via == one.key
        assert mine.membership(other.key) is None
    assert thrown_away().membership(one.key) is None


@pytest.mark.parametrize("text", ["", "{", "{}", '{"format":1,"seed":"AAAA","memberships":[]}', "\0"])
def test_a_key_file_that_is_damaged_with_its_copy_is_named_and_stays(tmp_path: Path, text: str) -> None:
    with kept_identity(tmp_path, MESH):
        pass
    path = tmp_path / "peers" / MESH / "0.json"
    for each in (path, copy_of(path)):
        each.write_text(text)
    with (
        pytest.raises(StateUnusable, match=r"0\.json is damaged .* move both away"),
        kept_identity(tmp_path, MESH),
    ):
        pass
    assert path.read_text() == text


DAMAGES: dict[str, Callable[[bytes, int], bytes]] = {
    "flipped": lambda data, at: data[:at] + bytes([data[at] ^ (1 << at % 7)]) + data[at + 1 :],
    "zeroed": lambda data, at: data[:at] + bytes(1) + data[at + 1 :],
    "zeroed from here": lambda data, at: data[:at] + bytes(len(data) - at),
    "cut": lambda data, at: data[:at],
    "doubled": lambda data, at: data[:at] + data,
}


@pytest.mark.series
@pytest.mark.parametrize("how", DAMAGES)
@pytest.mark.parametrize("copied", [False, True])
def test_damage_anywhere_of_one_file_changes_neither_keys_nor_invites(
    how: str, copied: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "fsync", lambda _: None)
    founder = KeptMeshFile(tmp_path)
    invite = new_invite(founder.read_or_make().key, Role.PEER, 0, 1)
    founder.add(invite)
    mesh = founder.read()
    assert mesh is not None
    with kept_identity(tmp_path, mesh.key.id) as mine:
        peer = mine.identity.id
        mine.keep(make_membership(mesh.key, mine.identity.public.encoded, invite.grant))
    for path in (tmp_path / "mesh.json", tmp_path / "peers" / mesh.key.id / "0.json"):
        right = path.read_bytes()
        for at in random.Random(20261129).sample(range(len(right)), seeds(len(right))):
            spoilt = DAMAGES[how](right, at)
            (copy_of(path) if copied else path).write_bytes(spoilt)
            with kept_identity(tmp_path, mesh.key.id) as mine:
                assert mine.identity.id == peer, at
                assert mine.membership(invite.grant.key) is not None
            assert founder.read() == mesh, at
            for aside in path.parent.glob(f"{path.name}.aside-*"):
                assert aside.read_bytes() == spoilt
                aside.unlink()
            for each in (path, copy_of(path)):
                each.write_bytes(right)


def test_a_membership_of_somebody_else_is_not_believed(tmp_path: Path) -> None:
    grant = new_invite(MESH_KEY, Role.PEER, 0, 1).grant
    with kept_identity(tmp_path, MESH) as mine:
        mine.keep(make_membership(MESH_KEY, thrown_away().identity.public.encoded, grant))
    with pytest.raises(StateUnusable, match="for another key"), kept_identity(tmp_path, MESH):
        pass


@pytest.mark.skipif(os.name != "posix", reason="permissions of files")
def test_secrets_that_others_can_read_are_refused(tmp_path: Path) -> None:
    file = KeptMeshFile(tmp_path)
    kept = file.read_or_make()
    assert file.read() == kept
    (tmp_path / "mesh.json").chmod(0o640)
    with pytest.raises(StateUnusable, match="chmod 600"):
        file.read()


def test_what_a_founder_keeps(tmp_path: Path) -> None:
    file = KeptMeshFile(tmp_path)
    assert file.read() is None
    key = file.read_or_make().key
    once, always = new_invite(key, Role.GUEST, 0, 1), new_invite(key, Role.PEER, 60, 0)
    file.add(once)
    file.add(always)
    file.revoke(always)
    file.listens("https://example.org", "http://127.0.0.1:1")
    kept = file.read()
    assert kept is not None
    assert kept.key.id == key.id
    assert [invite.short_id for invite in kept.invites] == [once.short_id, always.short_id]
    admissions = Admissions(key.id)
    assert kept.invites[0].usable(admissions, 0)
    assert not kept.invites[1].usable(admissions, 0)
    admissions.admit(once.grant, "somebody")
    assert not kept.invites[0].usable(admissions, 0)
    assert kept.invites[0].link(kept.public_url).url().startswith(f"https://example.org/#{key.id}.")
    assert str(once.seed) not in repr(kept)
    assert str(kept.seed) not in repr(kept)


def test_one_process_serves_a_kept_mesh(tmp_path: Path) -> None:
    file = KeptMeshFile(tmp_path)
    with file.serving(), pytest.raises(StateUnusable, match="another process serves"), file.serving():
        pass
    with file.serving():
        pass


def test_addresses_in_links() -> None:
    assert server_address("https://Example.org/") == "https://example.org"
    with pytest.raises(WrongLink):
        server_address("http://example.org")


def test_people_read_names() -> None:
    members = {
        peer * 32: Member(peer * 32, name, True, "joining") for peer, name in zip("abc", "xyy", strict=True)
    }
    assert list(names(members).values()) == ["x", "y (bbbb)", "y (cccc)"]
    text = f"needs 1 MiB on {'a' * 32}, 2 MiB on {'c' * 32}, 3 MiB on {'d' * 32}"
    assert named(text, members) == "needs 1 MiB on x, 2 MiB on y (cccc), 3 MiB on somebody who left (dddd)"


def test_who_asks_changes_no_name_of_who_computes() -> None:
    members = {peer * 32: Member(peer * 32, "x", peer == "a", "joining") for peer in "ab"}
    assert list(names(members).values()) == ["x", "x (bbbb)"]


def test_choices_are_what_there_is() -> None:
    assert TRANSPORTS == ENGINES
    assert tuple(PROVIDERS) == PROVIDER_NAMES
