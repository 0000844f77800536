"""Keys, links, grants, memberships, revocations, presence and signals, as pure functions with times passed in."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from signaling.errors import (
    BadDescription,
    BadKey,
    ForgedGrant,
    ForgedPresence,
    ForgedRevocation,
    InviteExpired,
    InviteRevoked,
    InviteUsedUp,
    ReplayedDescription,
    ReplayedJoin,
    SwappedDescription,
    TooManyGrants,
    WrongLink,
    WrongMesh,
)
from signaling.ice import TurnService
from signaling.invites import (
    MAX_GRANTS,
    Admissions,
    Role,
    founder_grant,
    make_invite,
    make_membership,
    make_revocation,
    parse_link,
    verify_grant,
    verify_revocation,
)
from signaling.keys import (
    from_text,
    identity_from_seed,
    is_id,
    p256_identity_from_seed,
    public_key,
    to_text,
    transcript,
)
from signaling.presence import (
    SignalKind,
    Vouch,
    fingerprint_of,
    make_presence,
    make_signal,
    verify_presence,
    verify_signal,
)
from signaling.roster import MAX_CANDIDATES, Roster

VECTORS = json.loads((Path(__file__).parent.parent / "vectors" / "signaling.json").read_text("ascii"))


# --- keys


@pytest.mark.parametrize("case", VECTORS["keys"], ids=lambda c: c["name"])
def test_key_vectors(case: dict[str, str]) -> None:
    identity = identity_from_seed(bytes.fromhex(case["seed"]))
    assert identity.public.encoded.hex() == case["public"]
    assert identity.id == case["id"]
    assert is_id(identity.id)


def test_ed25519_is_rfc_8032() -> None:
    """RFC 8032 section 7.1, test 1."""
    identity = identity_from_seed(
        bytes.fromhex("9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60")
    )
    assert identity.public.encoded[1:].hex() == (
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a"
    )
    assert (
        identity.sign(b"")
        .hex()
        .startswith("e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155")
    )


def test_both_key_types_sign_and_refuse() -> None:
    case = VECTORS["p256"]
    browser = public_key(bytes.fromhex(case["public"]))
    assert browser.id == case["id"]
    assert browser.verifies(bytes.fromhex(case["signature"]), bytes.fromhex(case["message"]))
    for identity in (identity_from_seed(b"a" * 32), p256_identity_from_seed(b"a" * 32)):
        signature = identity.sign(b"text")
        key = public_key(identity.public.encoded)
        assert key == identity.public
        assert key.verifies(signature, b"text")
        assert not key.verifies(signature, b"other")
        assert not key.verifies(signature[:-1], b"text")
        assert not key.verifies(bytes(64), b"text")
        assert not key.verifies(b"\xff" * 64, b"text")
        for byte in range(0, 64, 7):
            broken = bytearray(signature)
            broken[byte] ^= 1
            assert not key.verifies(bytes(broken), b"text")


def test_the_private_half_never_shows() -> None:
    seed = b"s" * 32
    shown = repr(identity_from_seed(seed)) + repr(p256_identity_from_seed(seed))
    assert "private" not in shown.lower()
    assert seed.hex() not in shown


@pytest.mark.parametrize(
    "encoded",
    [b"", b"\x01", b"\x03" + b"a" * 32, b"\x01" + b"a" * 31, b"\x02" + b"\x04" * 65, b"\x02" + b"a" * 32],
)
def test_bad_keys(encoded: bytes) -> None:
    with pytest.raises(BadKey):
        public_key(encoded)


def test_bad_seeds() -> None:
    for make in (identity_from_seed, p256_identity_from_seed):
        with pytest.raises(BadKey):
            make(b"short")


def test_transcripts_do_not_collide() -> None:
    case = VECTORS["transcript"]
    assert transcript("text", 258, b"\0\1").hex() == case["bytes"]
    assert len({transcript("a", *p) for p in ((), ("",), ("", ""), ("ab", "c"), ("a", "bc"), ("abc",))}) == 6
    assert transcript("a", "x") != transcript("b", "x")


@pytest.mark.parametrize("text", ["A", "AA==", "A A", "AB", "A+", "é"])
def test_only_canonical_base64url(text: str) -> None:
    with pytest.raises(ValueError):
        from_text(text)


def test_base64url_round_trip() -> None:
    for size in range(70):
        assert from_text(to_text(bytes(range(size)))) == bytes(range(size))


# --- links


def test_link_vector() -> None:
    case = VECTORS["link"]
    link = parse_link(case["url"])
    assert (link.server, link.mesh, link.seed.hex()) == (case["server"], case["mesh"], case["seed"])
    assert link.url() == case["url"]
    assert parse_link(f"  {case['url']}\n") == link


@pytest.mark.parametrize(
    ("server", "shown"),
    [
        ("https://shoal.example/", "https://shoal.example"),
        ("https://SHOAL.example:8443", "https://shoal.example:8443"),
        ("http://127.0.0.1:8080", "http://127.0.0.1:8080"),
        ("http://localhost:1", "http://localhost:1"),
        ("http://[::1]:8080/", "http://[::1]:8080"),
        ("http://192.168.1.7:8080", "http://192.168.1.7:8080"),
    ],
)
def test_servers_that_a_link_may_name(kit: Any, server: str, shown: str) -> None:
    link, _ = kit.invite(server)
    assert link.server == shown
    assert parse_link(link.url()) == link


GOOD: str = VECTORS["link"]["url"]


@pytest.mark.parametrize(
    ("link", "says"),
    [
        ("", "starts with https"),
        ("hello", "starts with https"),
        ("ftp://host/#a.b", "starts with https"),
        ("https://host:port/#a.b", "host or port"),
        ("https://host:99999/#a.b", "host or port"),
        ("https://user:pw@host/#a.b", "starts with https"),
        ("https://host/page#a.b", "between the host"),
        ("https://host/?q#a.b", "between the host"),
        ("http://example.com/#a.b", "https://"),
        ("http://8.8.8.8/#a.b", "https://"),
        (GOOD.partition("#")[0], "secret part"),
        (GOOD.partition("#")[0] + "#", "secret part"),
        (GOOD.partition(".")[0], "no dot|secret part|between|starts"),
        (GOOD.replace("#", "#x"), "32 characters"),
        (GOOD.rpartition(".")[0], "no dot"),
        (GOOD[:-1], "48 characters|cannot have"),
        (GOOD[:-4], "48 characters"),
        (GOOD + "AAAA", "48 characters"),
        (GOOD[:-2] + "!!", "cannot have"),
        (GOOD[:-2] + ("AA" if GOOD[-2:] != "AA" else "BB"), "checksum"),
        (
            GOOD.replace(
                "#" + GOOD.partition("#")[2][0], "#" + ("a" if GOOD.partition("#")[2][0] != "a" else "b")
            ),
            "checksum",
        ),
    ],
)
def test_wrong_links(link: str, says: str) -> None:
    with pytest.raises(WrongLink, match=says) as error:
        parse_link(link)
    assert "\n" not in str(error.value)


def test_any_one_mistyped_character_is_found() -> None:
    head, _, fragment = GOOD.partition("#")
    for at, old in enumerate(fragment):
        new = "a" if old != "a" else "b"
        with pytest.raises(WrongLink):
            parse_link(f"{head}#{fragment[:at]}{new}{fragment[at + 1 :]}")


# --- grants, uses, dates, revocations


def test_grants_and_revocations_hold_only_as_signed(kit: Any) -> None:
    _, grant = kit.invite(uses=2, expires=kit.now)
    mesh = kit.mesh.id
    verify_grant(grant, mesh)
    verify_grant(founder_grant(kit.mesh), mesh)
    other = identity_from_seed(b"o" * 32)
    for changed in (
        replace(grant, uses=3),
        replace(grant, expires_unix=0),
        replace(grant, role=Role.GUEST),
        replace(grant, role=Role.FOUNDER),
        replace(grant, via=grant.key),
        replace(grant, key=other.public.encoded),
        replace(grant, signature=other.sign(b"x")),
        replace(founder_grant(kit.mesh), role=Role.PEER),
    ):
        with pytest.raises(ForgedGrant):
            verify_grant(changed, mesh)
    with pytest.raises(WrongMesh):
        verify_grant(kit.invite(mesh=other)[1], mesh)
    with pytest.raises(ForgedGrant):
        make_invite(kit.mesh, "https://h", b"i" * 32, Role.FOUNDER)
    revocation = make_revocation(kit.mesh, grant.key)
    verify_revocation(revocation, mesh)
    with pytest.raises(ForgedRevocation):
        verify_revocation(replace(revocation, key=other.public.encoded), mesh)
    with pytest.raises(WrongMesh):
        verify_revocation(make_revocation(other, grant.key), mesh)


def test_admissions_count_peers_and_know_the_date(kit: Any) -> None:
    admissions = Admissions(kit.mesh.id)
    _, grant = kit.invite(uses=2, expires=kit.now)
    admissions.check(grant, "a", kit.now)
    assert admissions.admit(grant, "a")
    assert not admissions.admit(grant, "a")
    admissions.admit(grant, "b")
    with pytest.raises(InviteUsedUp, match="2 peer"):
        admissions.check(grant, "c", kit.now)
    with pytest.raises(InviteExpired, match="90 s ago"):
        admissions.check(grant, "c", kit.now + 90)
    admissions.check(grant, "a", kit.now + 90)  # was in already
    membership = make_membership(kit.mesh, kit.key("c").public.encoded, grant)
    admissions.check(grant, "c", kit.now + 90, membership)
    assert admissions.revoke(make_revocation(kit.mesh, grant.key))
    assert not admissions.revoke(make_revocation(kit.mesh, grant.key))
    for peer, proof in (("a", None), ("c", membership)):
        with pytest.raises(InviteRevoked):
            admissions.check(grant, peer, kit.now, proof)
        with pytest.raises(InviteRevoked):
            admissions.check(membership, peer, kit.now, proof)
    with pytest.raises(ForgedGrant):
        admissions.register(membership)


@pytest.mark.parametrize(("late", "says"), [(1, "1 s"), (600, "10 min"), (9000, "2 h"), (700_000, "8 days")])
def test_how_long_ago_reads_well(kit: Any, late: int, says: str) -> None:
    with pytest.raises(InviteExpired, match=f"expired {says} ago"):
        Admissions(kit.mesh.id).check(kit.invite(expires=kit.now)[1], "a", kit.now + late)


def test_admissions_are_bounded(kit: Any) -> None:
    admissions = Admissions(kit.mesh.id)
    _, expired = kit.invite(letter="e", expires=kit.now)
    admissions.register(expired)
    for i in range(MAX_GRANTS - 1):
        admissions.grants[i.to_bytes(33, "big")] = expired
    _, grant = kit.invite()
    with pytest.raises(TooManyGrants):
        admissions.register(grant)
    admissions.forget_expired(kit.now + 1)
    admissions.register(grant)
    for i in range(5000):
        admissions.admit(grant, str(i))
    assert len(admissions.admitted[grant.key]) == 4096


# --- presence


def test_presence_is_checked_in_every_part(kit: Any) -> None:
    mesh, now = kit.mesh.id, kit.now
    good = kit.presence("p")
    assert verify_presence(good, mesh, now).id == good.peer
    verify_presence(kit.founder_presence(), mesh, now)
    browser = make_presence(
        p256_identity_from_seed(b"b" * 32), kit.key("i"), good.grant, "tab", (b"r" * 16, b"n" * 16)
    )
    verify_presence(browser, mesh, now)
    other = kit.presence("q")
    for changed in (
        replace(good, name="else"),
        replace(good, room_nonce=b"x" * 16),
        replace(good, join_nonce=b"x" * 16),
        replace(good, key=other.key),
        replace(good, key=b"\x01" * 33),
        replace(good, peer_proof=other.peer_proof),
        replace(good, invite_proof=other.invite_proof),
        replace(good, invite_proof=good.peer_proof),
        kit.presence("p", invite="x"),  # proved with another invite's secret
    ):
        with pytest.raises((ForgedPresence, BadKey)):
            verify_presence(changed, mesh, now)
    with pytest.raises(WrongMesh):
        verify_presence(good, kit.key("o").id, now)


def test_presence_and_dates(kit: Any) -> None:
    mesh, now = kit.mesh.id, kit.now
    _, grant = kit.invite(expires=now)
    record = kit.presence("p", grant)
    verify_presence(record, mesh, now)
    with pytest.raises(InviteExpired):
        verify_presence(record, mesh, now + 1)
    verify_presence(record, mesh, now + 1, admitted=True)
    membership = make_membership(kit.mesh, record.key, grant)
    verify_presence(kit.presence("p", grant, membership=membership), mesh, now + 1)
    wrong = (
        make_membership(kit.mesh, kit.key("q").public.encoded, grant),
        make_membership(kit.mesh, record.key, kit.invite(letter="x")[1]),
        replace(membership, uses=0),
    )
    for forged in wrong:
        with pytest.raises(ForgedGrant):
            verify_presence(kit.presence("p", grant, membership=forged), mesh, now)
    with pytest.raises(ForgedGrant):  # a membership is no invite
        verify_presence(kit.presence("p", membership, invite="p"), mesh, now)


def test_a_vouch_holds_only_for_the_join_it_was_made_for(kit: Any) -> None:
    mesh, now = kit.mesh.id, kit.now
    viewer = kit.presence("v", voucher="p")
    assert verify_presence(viewer, mesh, now).id == viewer.peer
    assert (viewer.person, viewer.role) == (kit.key("p").id, Role.GUEST)
    person = kit.key("p").public.encoded
    later = kit.presence("v", nonces=("s", "t"), voucher="p")
    own, founder = kit.presence("p"), kit.founder_presence()
    for forged in (
        replace(viewer, vouch=later.vouch),  # of another join of the same viewer
        replace(viewer, vouch=kit.presence("w", voucher="p").vouch),  # of another viewer
        replace(viewer, vouch=Vouch(kit.key("q").public.encoded, viewer.vouch.proof)),
        replace(viewer, vouch=Vouch(person, viewer.peer_proof)),
        replace(viewer, vouch=Vouch(person, own.peer_proof)),  # what that key signed for itself
        replace(viewer, vouch=Vouch(b"\x01" * 33, viewer.vouch.proof)),
        replace(own, vouch=kit.presence("p", voucher="p").vouch),  # for itself
        replace(founder, vouch=viewer.vouch),
    ):
        with pytest.raises(ForgedPresence):
            verify_presence(forged, mesh, now)
    grant = kit.invite(expires=now)[1]
    theirs = make_membership(kit.mesh, person, grant)
    verify_presence(kit.presence("v", grant, membership=theirs, voucher="p"), mesh, now + 1)
    with pytest.raises(InviteExpired):
        verify_presence(kit.presence("v", grant, voucher="p"), mesh, now + 1)
    wrong = make_membership(kit.mesh, viewer.key, grant)  # a membership is for the person
    with pytest.raises(ForgedGrant):
        verify_presence(kit.presence("v", grant, membership=wrong, voucher="p"), mesh, now)


# --- offers, answers, candidates


@pytest.mark.parametrize(
    ("sdp", "says"),
    [
        ("v=0\r\n", "no a=fingerprint"),
        ("a=fingerprint:sha-1 00:11\r\n", "no a=fingerprint"),
        ("a=fingerprint:sha-256 00:11\r\n", "32 hex bytes"),
        ("a=fingerprint:sha-256 " + "zz:" * 31 + "zz\r\n", "32 hex bytes"),
        (
            "a=fingerprint:sha-256 " + "aa:" * 31 + "aa\r\na=fingerprint:sha-256 " + "ab:" * 31 + "ab\r\n",
            "2 different",
        ),
        ("x a=fingerprint:sha-256 " + "aa:" * 31 + "aa\r\n", "no a=fingerprint"),
    ],
)
def test_descriptions_without_one_fingerprint(sdp: str, says: str) -> None:
    with pytest.raises(BadDescription, match=says):
        fingerprint_of(sdp)


@pytest.mark.parametrize("end", ["\r\n", "\n", ""])
@pytest.mark.parametrize(
    "start", ["a=fingerprint:sha-256 ", "a=fingerprint:SHA-256 ", "A=Fingerprint:sha-256  "]
)
def test_fingerprints_are_read_whatever_their_case(start: str, end: str) -> None:
    value = ":".join(["Ab"] * 32)
    assert fingerprint_of(f"v=0{end or chr(10)}{start}{value}{end}") == value.upper()
    twice = f"{start}{value}\r\nm=x\r\na=fingerprint:sha-512 00\r\n{start}{value.lower()}\r\n"
    assert fingerprint_of(twice) == value.upper()


def test_signals_hold_only_as_signed(kit: Any) -> None:
    one, two = kit.presence("p"), kit.presence("q", nonces=("s", "t"))
    key = public_key(one.key)
    offer = make_signal(kit.key("p"), one, two, SignalKind.OFFER, b"c" * 16, kit.sdp())
    verify_signal(offer, one, two, key)
    for changed in (
        replace(offer, text=kit.sdp("CD")),
        replace(offer, text=offer.text + "a=x\r\n"),
        replace(offer, kind=SignalKind.ANSWER),
        replace(offer, kind=SignalKind.CANDIDATE),
        replace(offer, connection=b"d" * 16),
        replace(offer, receiver=one.peer),
        replace(offer, sender=two.peer),
        replace(offer, signature=bytes(64)),
    ):
        with pytest.raises(SwappedDescription):
            verify_signal(changed, one, two, key)
    for changed in (replace(offer, sender_nonce=b"x" * 16), replace(offer, receiver_nonce=b"x" * 16)):
        with pytest.raises(ReplayedDescription):
            verify_signal(changed, one, two, key)
    with pytest.raises(BadDescription):
        verify_signal(replace(offer, text="v=0"), one, two, key)


# --- what a member remembers


def test_roster_refuses_what_it_saw_before(kit: Any) -> None:
    own = kit.presence("o", nonces=("a", "b"))
    roster = Roster(kit.mesh.id, own.peer)
    first, second = kit.presence("p", nonces=("1", "2")), kit.presence("p", nonces=("3", "4"))
    assert roster.arrived(first, kit.now)
    assert not roster.arrived(first, kit.now)
    assert roster.arrived(second, kit.now)
    with pytest.raises(ReplayedJoin):
        roster.arrived(first, kit.now)
    assert roster.members() == {first.peer: second}
    assert roster.left(first.peer)
    assert not roster.left(first.peer)
    with pytest.raises(ReplayedJoin):
        roster.arrived(second, kit.now)
    assert roster.arrived(kit.presence("p", nonces=("5", "6")), kit.now)


def test_roster_counts_uses_and_candidates(kit: Any) -> None:
    own = kit.presence("o", nonces=("a", "b"))
    roster = Roster(kit.mesh.id, own.peer)
    _, once = kit.invite(letter="1", uses=1)
    member = kit.presence("p", once, "1", ("1", "2"))
    roster.arrived(member, kit.now)
    with pytest.raises(InviteUsedUp):
        roster.arrived(kit.presence("q", once, "1", ("3", "4")), kit.now)
    candidate = make_signal(kit.key("p"), member, own, SignalKind.CANDIDATE, b"c" * 16, "candidate:1")
    for _ in range(MAX_CANDIDATES):
        roster.accept(candidate, own)
    with pytest.raises(ReplayedDescription):
        roster.accept(candidate, own)
    assert roster.revoked(make_revocation(kit.mesh, once.key)) == [member.peer]
    with pytest.raises(InviteRevoked):
        roster.arrived(kit.presence("p", once, "1", ("5", "6")), kit.now)


def test_roster_counts_a_person_once(kit: Any) -> None:
    roster = Roster(kit.mesh.id, kit.presence("o").peer)
    _, once = kit.invite(letter="1", uses=1)
    viewer = kit.presence("v", once, "1", ("1", "2"), voucher="p")
    person = kit.presence("p", once, "1", ("3", "4"))
    assert roster.arrived(viewer, kit.now)
    assert roster.arrived(person, kit.now)
    for stranger in (
        kit.presence("q", once, "1", ("5", "6")),
        kit.presence("w", once, "1", ("7", "8"), voucher="q"),
    ):
        with pytest.raises(InviteUsedUp):
            roster.arrived(stranger, kit.now)
    assert roster.admitted(make_membership(kit.mesh, person.key, once))
    assert all(member.membership is not None for member in roster.members().values())
    assert roster.members().keys() == {viewer.peer, person.peer}


def test_turn_credentials_are_what_coturn_expects() -> None:
    ice = TurnService(("turn:relay.example",), b"north", 600).lend("peer", 1000.9)
    assert ice.username == "1600:peer"
    assert ice.credential == "3c+gYvmGcrLxHcl0RKyNpYm7DBw="  # as openssl dgst -sha1 -hmac makes it
    assert ice.credential not in repr(ice)
