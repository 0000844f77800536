"""`shoal api`: a member that asks for other programs, over HTTP in the form of OpenAI's API."""

from __future__ import annotations

import argparse
from contextlib import AsyncExitStack

from peer.cli.chat import asker
from peer.cli.gateway_beside import keys_of, opened
from peer.cli.gateway_embedder import embedder
from peer.cli.serve_join import ending, follow_coordinator, follow_loading
from peer.gateway.server import GatewayOptions
from peer.launch.terminal import either, interrupts, out, reporting, say
from planner.model.store import Store


async def api(args: argparse.Namespace) -> int:
    """Serves a mesh over HTTP until Ctrl-C."""
    keys = (*args.key, *keys_of(args.key_file))
    options = GatewayOptions(
        args.host, args.port, keys, frozenset(args.allow_origin), openai_defaults=args.openai_defaults
    )
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            making = embedder(Store(args.store), args.embedding_model, args.embedding_threads)
            with ctrl.cancelling():
                loaded = await stack.enter_async_context(making)
            say("starting: joining the mesh")
            report = stack.enter_context(reporting())
            asking = asker(args, ctrl, pin_ends=args.pin_ends, report=report)
            mesh = await stack.enter_async_context(asking)
            url = await stack.enter_async_context(opened(mesh, options, loaded))
            model = mesh.view.state.model
            say(f"programs may ask {model.name if model else 'the mesh'} here; Ctrl-C ends it")
            out.print(url, markup=False)
            follow_loading(mesh, say)
            follow_coordinator(mesh, say)
            await either(ctrl.asked, mesh.ended)
            return ending(mesh, ctrl.asked, say)
