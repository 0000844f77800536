"""`shoal invite`: makes, lists and withdraws links of the mesh that `shoal serve --keep` keeps on this machine."""

from __future__ import annotations

import argparse
import asyncio
import os
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace
from datetime import UTC, datetime

from rich import box
from rich.table import Table

from peer.errors import StateUnusable
from peer.launch.terminal import out, say
from peer.storage.founder_file import KeptInvite, KeptMesh, KeptMeshFile, new_invite
from peer.transport.credentials import Credentials
from peer.transport.signaling_client import ClientSettings, SignalingClient
from signaling.errors import ServerUnreachable
from signaling.invites import Admissions, Role, make_invite, make_revocation
from signaling.keys import SEED_BYTES, identity_from_seed

ERRAND_S = 60  # how long the invite lasts with which this command itself enters the mesh's room
PATIENCE_S = 0.5  # the server is on this machine, or it is not running

Errand = Callable[[SignalingClient], Awaitable[None]]


def invite(args: argparse.Namespace) -> int:
    """Does what was asked with the kept mesh. Raises StateUnusable when none is kept here."""
    file = KeptMeshFile(args.state)
    kept = file.read()
    if kept is None or not kept.local_url:
        raise StateUnusable(
            f"no mesh is kept in {args.state}: run shoal serve --keep first, or give its folder with --state"
        )
    if args.list:
        show(kept, file.admissions(kept.key.id))
        return 0
    if args.revoke is not None:
        return asyncio.run(_revoke(file, kept, args.revoke))
    return asyncio.run(_make(args, file, kept))


async def _make(args: argparse.Namespace, file: KeptMeshFile, kept: KeptMesh) -> int:
    made = new_invite(kept.key, Role(args.role), args.expires, args.uses)
    file.add(made)
    if not await _run_errand(kept, lambda client: client.register(made.grant)):
        say(f"no server answers at {kept.local_url}: the link works once shoal serve --keep runs again")
    out.print(made.link(kept.public_url).url(), markup=False)
    return 0


async def _revoke(file: KeptMeshFile, kept: KeptMesh, short_id: str) -> int:
    chosen = next((invite for invite in kept.invites if invite.short_id == short_id), None)
    if chosen is None:
        have = ", ".join(invite.short_id for invite in kept.invites if not invite.revoked)
        raise StateUnusable(
            f"there is no invite {short_id!r:.40}: shoal invite --list shows {have or 'none'}"
        )
    file.revoke(chosen)
    revocation = make_revocation(kept.key, chosen.grant.key)
    if await _run_errand(kept, lambda client: client.withdraw(revocation)):
        say(f"invite {short_id} is withdrawn; who came with it is out")
    else:
        say(f"invite {short_id} is withdrawn; no server answers at {kept.local_url}, the next one is told")
    return 0


async def _run_errand(kept: KeptMesh, errand: Errand) -> bool:
    """Tells the running server; False when none runs.

    The mesh key signs what is told, so any member may bring it: this command comes as a guest with an invite of its own
    making, which nobody mistakes for the founder.
    """
    seed = os.urandom(SEED_BYTES)
    expires = int(time.time()) + ERRAND_S
    link, grant = make_invite(kept.key, kept.local_url, seed, Role.GUEST, expires, 1)
    identity = identity_from_seed(os.urandom(SEED_BYTES))
    credentials = replace(Credentials.from_link(link, identity, "shoal invite"), grant=grant)
    try:
        async with SignalingClient(
            kept.local_url, credentials, settings=ClientSettings(patience_s=PATIENCE_S)
        ) as client:
            await errand(client)
    except ServerUnreachable:
        return False
    return True


def show(kept: KeptMesh, admissions: Admissions) -> None:
    """A table of invites without their secrets."""
    now = time.time()
    table = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for heading in ("id", "role", "uses left", "expires", "made", ""):
        table.add_column(heading, justify="right" if heading == "uses left" else "left")
    for kept_invite in kept.invites:
        grant = kept_invite.grant
        used = len(admissions.admitted.get(grant.key, {}))
        table.add_row(
            kept_invite.short_id,
            grant.role.value,
            f"{max(0, grant.uses - used)} of {grant.uses}" if grant.uses else "any",
            _moment(grant.expires_unix) if grant.expires_unix else "never",
            _moment(kept_invite.made_unix),
            _standing(kept_invite, admissions, now),
        )
    out.print(table)


def _standing(invite: KeptInvite, admissions: Admissions, now: float) -> str:
    if invite.revoked or invite.grant.key in admissions.revocations:
        return "withdrawn"
    if invite.usable(admissions, now):
        return ""
    return "expired" if invite.grant.expires_unix and now > invite.grant.expires_unix else "used up"


def _moment(unix: int) -> str:
    return datetime.fromtimestamp(unix, UTC).astimezone().strftime("%Y-%m-%d %H:%M")
