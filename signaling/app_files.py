"""Decides which files of the built web app are served, and under which rules a browser runs them.

The app is what `npm run build` left in web_peer/dist of a checkout, which an installed package has in web_app beside
this module. Its files are listed once, so no path of a request ever reaches the disk.
"""

from __future__ import annotations

import asyncio
import mimetypes
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from aiohttp import web

from signaling.page import PAGE, PAGE_HEADERS

MAX_FILES = 2000
INSTALLED: Final = Path(__file__).resolve().parent / "web_app"  # pyproject.toml puts it there in a wheel
WEB_PEER: Final = Path(__file__).resolve().parents[1] / "web_peer"  # in a checkout
_HOST = re.compile(r"[A-Za-z0-9.\-\[\]:]{1,255}")
_TYPES = {
    ".mjs": "text/javascript",
    ".js": "text/javascript",
    ".wasm": "application/wasm",
    ".webmanifest": "application/manifest+json",
}


def built_app() -> Path | None:
    """The app of the installed package or of the checkout; None when there is none."""
    places = (INSTALLED, WEB_PEER / "dist")
    return next((folder for folder in places if (folder / "index.html").is_file()), None)


def in_checkout() -> bool:
    """Whether the sources of the app stand beside this package."""
    return (WEB_PEER / "package.json").is_file()


def no_app() -> str:
    """What a person is told when `built_app` is None: what follows from that, and what to do."""
    if in_checkout():
        return "browsers cannot join, since the page is not built: run `make setup` in the checkout, then start again"
    return (
        "browsers cannot join, since this package was made without the page: install a wheel that `make dist` made, "
        "then start again"
    )


def app_files(folder: Path) -> Mapping[str, Path]:
    """Every file under `folder` by its URL path; links that lead elsewhere are left out."""
    root = folder.resolve()
    found: dict[str, Path] = {}
    for path in sorted(root.rglob("*")):
        if path.is_file() and path.resolve().is_relative_to(root) and len(found) < MAX_FILES:
            found["/" + path.relative_to(root).as_posix()] = path
    return found


def policy(host: str) -> str:
    """The content security policy of the app: nothing from anywhere but this server, no inline script, no frame.

    `host` is what the request called this server: some browsers do not count its WebSocket as 'self'.
    """
    sockets = f" ws://{host} wss://{host}" if _HOST.fullmatch(host) else ""
    return "; ".join(
        (
            "default-src 'none'",
            "script-src 'self' 'wasm-unsafe-eval'",
            "worker-src 'self' blob:",
            f"connect-src 'self'{sockets}",
            "style-src 'self' 'unsafe-inline'",
            "img-src 'self' data: blob:",
            "font-src 'self'",
            "manifest-src 'self'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'none'",
        )
    )


def app_headers(host: str) -> dict[str, str]:
    """Of every file of the app. Isolation from other origins lets WebAssembly use threads."""
    return {
        "Content-Security-Policy": policy(host),
        "Cross-Origin-Opener-Policy": "same-origin",
        "Cross-Origin-Embedder-Policy": "require-corp",
        "Cross-Origin-Resource-Policy": "same-origin",
        "Permissions-Policy": "camera=(), microphone=(self), geolocation=()",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }


def add_app_routes(app: web.Application, folder: Path | None) -> None:
    """GET / and, with a built app, GET of each of its files."""
    files = app_files(folder) if folder is not None else {}

    async def plain(_: web.Request) -> web.Response:
        return web.Response(text=PAGE, content_type="text/html", headers=PAGE_HEADERS)

    async def file(request: web.Request) -> web.Response:
        name = "/index.html" if request.path == "/" else request.path
        path = files[name]
        try:
            body = await asyncio.to_thread(path.read_bytes)
        except OSError as error:
            raise web.HTTPNotFound(text=f"{name} is gone: build the app again and restart\n") from error
        headers = app_headers(request.headers.get("Host", ""))
        hashed = name.startswith("/assets/")
        headers["Cache-Control"] = "public, max-age=31536000, immutable" if hashed else "no-cache"
        kind = _TYPES.get(path.suffix) or mimetypes.guess_type(path.name)[0] or "application/octet-stream"
        charset = "utf-8" if kind.startswith("text/") else None
        return web.Response(body=body, content_type=kind, charset=charset, headers=headers)

    if "/index.html" not in files:
        app.router.add_get("/", plain)
        return
    app.router.add_get("/", file)
    for name in files:
        app.router.add_get(name.replace("{", "%7B"), file)
