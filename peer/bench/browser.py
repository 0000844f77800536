"""What one tab reaches alone: the whole model in a browser's WebAssembly on one thread, against wllama (llama.cpp in
WebAssembly) on the same GGUF and the same page, in alternating rounds.

Needs a checkout, node, an installed Chromium, and the packages of web_peer (`npm ci` there): both sides are built into
one page, which a browser of its own opens from a server on loopback.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import statistics
import subprocess
from pathlib import Path
from typing import Any, Final

from aiohttp import web

from peer.bench.mixed import mixed_tok_s
from peer.bench.single import CONTEXT, QUESTION, SYSTEM
from peer.errors import CannotServe
from peer.launch.model_import import find_or_import
from peer.model.chat_template import Message
from peer.model.tokenizer import text_of
from planner.importers.registry import SHORT_NAMES, fetch_short_name
from planner.model.manifest import decode_manifest
from planner.model.store import Store
from signaling.app_files import WEB_PEER, in_checkout

BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
DRIVE_S: Final = 1200.0  # for all rounds; a slow machine takes minutes

ANSWER_BYTES: Final = 256 << 20  # logits as base64 are long

Figures = dict[str, Any]


def bench_browser(args: argparse.Namespace) -> Figures:
    """`shoal bench browser`: uses args.store, args.model, args.rounds, args.tokens. Raises CannotServe."""
    if not in_checkout():
        raise CannotServe("shoal bench browser builds its page from a checkout of Shoal: run it there")
    executable = browser_path()
    store = Store(args.store)
    model_id = find_or_import(store, args.model, "4bit")
    path = fetch_short_name(args.model, store.root) if args.model in SHORT_NAMES else Path(args.model)
    if path.suffix != ".gguf":
        raise CannotServe(f"wllama reads GGUF files only; give one instead of {args.model}")
    page = build_page()
    ids, text = _prompt(store, model_id)
    sides = {
        "shoal": {"call": "openShoal", "args": [model_id, CONTEXT, "wasm"]},
        "wllama": {"call": "openWllama", "args": ["/model.gguf", CONTEXT]},
    }
    order = {
        "executable": executable,
        "sides": sides,
        "prompt": {"ids": ids, "text": text},
        "tokens": args.tokens,
        "rounds": args.rounds,
    }
    found = asyncio.run(drive(store, page, order, path))
    mixed = asyncio.run(mixed_tok_s(store, model_id, ids, args.tokens, args.rounds))
    return summary(found, mixed, len(ids), args.tokens)


def summary(found: Figures, mixed: float, prompt_tokens: int, tokens: int) -> Figures:
    """Medians of both sides and their ratios, from what the driver printed. The slower part of the mixed mesh is the
    tab, which alone decodes `decode_tok_s`.
    """
    figures: Figures = {"prompt_tokens": prompt_tokens, "tokens": tokens}
    for kind in ("decode", "prefill"):
        here, there = (
            statistics.median(one[kind] for one in found[side]["rounds"]) for side in ("shoal", "wllama")
        )
        figures[f"{kind}_vs_wllama"] = round(here / there, 3)
        figures[f"{kind}_tok_s"] = round(here, 1)
        figures[f"{kind}_wllama_tok_s"] = round(there, 1)
    figures["mixed_tok_s"] = round(mixed, 1)
    figures["mixed_vs_slower_part"] = round(mixed / figures["decode_tok_s"], 3)
    figures["memory_bytes"] = found["shoal"]["opened"]["memory"]
    figures["versions"] = {"browser": found["browser"], **_versions()}
    figures["rounds"] = {
        side: [
            {**{kind: round(one[kind], 1) for kind in ("decode", "prefill")}, "tokens": one["found"]}
            for one in found[side]["rounds"]
        ]
        for side in ("shoal", "wllama")
    }
    return figures


def build_page() -> Path:
    """The benchmark's page, built from what is checked out. Raises CannotServe."""
    npx = _program("npx")
    if not (WEB_PEER / "node_modules").is_dir():
        raise CannotServe(f"the packages of {WEB_PEER.name} are not installed; run: npm ci --prefix web_peer")
    command = [npx, "--no-install", "vite", "build", "--config", "vite.bench.config.ts", "--logLevel", "warn"]
    built = subprocess.run(command, cwd=WEB_PEER, capture_output=True, text=True, check=False)
    if built.returncode:
        raise CannotServe(f"the benchmark's page does not build: {built.stderr.strip()[-500:]}")
    return WEB_PEER / "build" / "bench"


async def drive(store: Store, page: Path, order: Figures, gguf: Path | None = None) -> Figures:
    """Serves page, store and GGUF on loopback while web_peer/bench/drive.js carries out `order`. Raises CannotServe."""

    async def model(_: web.Request) -> web.StreamResponse:
        return web.Response(status=404) if gguf is None else web.FileResponse(gguf)

    node = _program("node")
    app = web.Application()
    app.router.add_get("/model.gguf", model)
    for prefix, folder in (
        ("/bench", page),
        ("/models", store.root / "models"),
        ("/blobs", store.root / "blobs"),
    ):
        app.router.add_static(prefix, folder)
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        url = f"http://127.0.0.1:{runner.addresses[0][1]}/bench/index.html"
        process = await asyncio.create_subprocess_exec(
            node,
            str(WEB_PEER / "bench" / "drive.js"),
            json.dumps({**order, "url": url}),
            limit=ANSWER_BYTES,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        try:
            async with asyncio.timeout(DRIVE_S):
                out, err = await process.communicate()
        except TimeoutError:
            process.kill()
            await process.wait()
            raise CannotServe(f"the browser did not finish within {DRIVE_S:.0f} s") from None
    finally:
        await runner.cleanup()
    if process.returncode:
        raise CannotServe(f"the browser benchmark broke off: {err.decode(errors='replace').strip()[-800:]}")
    found: Figures = json.loads(out)
    return found


def _prompt(store: Store, model_id: str) -> tuple[list[int], str]:
    """The benchmark's question as token ids and as the text they stand for."""
    manifest = decode_manifest(store.manifest_bytes(model_id))
    text = text_of(store, manifest)
    messages = [Message("system", SYSTEM), Message("user", QUESTION)]
    return text.encode_chat(messages), text.render_chat(messages)


def _versions() -> dict[str, str]:
    found = {}
    for package in ("onnxruntime-web", "@wllama/wllama"):
        described = json.loads((WEB_PEER / "node_modules" / package / "package.json").read_text("utf-8"))
        found[package] = described["version"]
    return found


def _program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise CannotServe(f"{name} is needed for the browser benchmark and is not installed")
    return found


def browser_path() -> str:
    """An installed Chromium. Raises CannotServe."""
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        raise CannotServe(
            f"a Chromium is needed for the browser benchmark; none of {', '.join(BROWSERS)} is here"
        )
    return found
