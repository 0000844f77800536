"""The gateway as a part of a command: beside a member that computes, or alone."""

from __future__ import annotations

import argparse
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path

from peer.cli.gateway_embedder import embedder
from peer.errors import BadCommand, CannotServe
from peer.gateway.embedder import Embedder
from peer.gateway.prometheus import serving_metrics
from peer.gateway.server import GatewayOptions, gateway
from peer.member.mesh_member import MeshMember
from planner.model.store import Store


def embedder_beside(args: argparse.Namespace) -> AbstractAsyncContextManager[Embedder | None]:
    """The embedding model of a member that is started with --api, made ready before it is in the mesh: an import takes
    the time of heartbeats.
    """
    return embedder(
        Store(args.store), args.api_embedding_model if args.api is not None else None, args.threads
    )


@asynccontextmanager
async def beside(
    args: argparse.Namespace, mesh: MeshMember, loaded: Embedder | None, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """The gateway of a member that was started with --api; nothing without that."""
    if args.api is None:
        yield
        return
    options = GatewayOptions(
        args.api_host, args.api, keys_of(args.api_key_file), openai_defaults=args.api_openai_defaults
    )
    async with opened(mesh, options, loaded) as url:
        tell(f"programs may ask at {url}")
        yield


@asynccontextmanager
async def measured(
    args: argparse.Namespace, mesh: MeshMember, tell: Callable[[str], None]
) -> AsyncIterator[None]:
    """The figures of a member that was started with --metrics; nothing without that. Raises CannotServe."""
    if args.metrics is None:
        yield
        return
    async with serving_metrics(mesh, *args.metrics) as url:
        tell(f"figures for Prometheus are at {url}")
        yield


@asynccontextmanager
async def opened(mesh: MeshMember, options: GatewayOptions, loaded: Embedder | None) -> AsyncIterator[str]:
    """Opens the gateway while the block runs and yields its URL. Raises CannotServe where the port is not free."""
    async with AsyncExitStack() as stack:
        try:
            url = await stack.enter_async_context(gateway(mesh, options, loaded))
        except OSError as error:
            raise CannotServe(
                f"cannot listen on {options.host} port {options.port} ({error.strerror}): give another with --port"
            ) from error
        yield url


def keys_of(file: Path | None) -> tuple[str, ...]:
    """Raises BadCommand for a file without keys."""
    if file is None:
        return ()
    keys = tuple(line.strip() for line in file.read_text(encoding="utf-8").splitlines() if line.strip())
    if not keys:
        raise BadCommand(f"expected keys in {file}, one a line, got none")
    return keys
