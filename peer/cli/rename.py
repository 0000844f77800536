"""`shoal rename`: a `shoal serve` or `shoal join` of this machine that runs gets another name."""

from __future__ import annotations

import argparse

from peer.errors import BadCommand
from peer.launch.renaming import ask_to_rename
from peer.launch.terminal import out
from peer.state.display_names import name_fault
from signaling.invites import parse_link


async def rename(args: argparse.Namespace) -> int:
    """Raises BadCommand for a name that no peer may have, or where it is not clear whose."""
    if fault := name_fault(args.new):
        raise BadCommand(fault)
    mesh = parse_link(args.link).mesh
    before = await ask_to_rename(args.state, mesh, args.new, args.called_now)
    out.print(f"{before} is called {args.new} from now on", markup=False)
    return 0
