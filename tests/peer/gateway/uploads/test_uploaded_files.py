"""Pictures that are sent to the gateway: whose they are, how many, for how long."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import FormData, web
from aiohttp.test_utils import TestClient, TestServer

from peer.errors import ApiError
from peer.gateway.uploads import uploaded_files
from peer.gateway.uploads.file_requests import Uploaded
from peer.gateway.uploads.uploaded_files import UploadedFiles
from peer.model.picture_parts import MAX_BYTES
from tests.e2e.pictures import PICTURE


@web.middleware
async def refusals(request: web.Request, handler: Any) -> web.StreamResponse:
    try:
        made: web.StreamResponse = await handler(request)
    except ApiError as error:
        return web.json_response({"error": str(error)}, status=error.status)
    return made


class Asker:
    """Programs that send and name files."""

    def __init__(self, client: TestClient[web.Request, web.Application], files: UploadedFiles) -> None:
        self.client = client
        self.files = files

    async def send(self, who: str, file: bytes = PICTURE, **fields: str) -> tuple[int, dict[str, Any]]:
        form = FormData({"purpose": "vision", **fields})
        form.add_field("file", file, filename="cat.png")
        async with self.client.post("/v1/files", data=form, headers={"who": who}) as answer:
            return answer.status, await answer.json()

    async def ask(self, method: str, who: str, path: str = "", **headers: str) -> tuple[int, Any]:
        async with self.client.request(method, f"/v1/files{path}", headers={"who": who, **headers}) as answer:
            kind = answer.content_type
            return answer.status, await (answer.json() if kind == "application/json" else answer.read())


@asynccontextmanager
async def asker() -> AsyncIterator[Asker]:
    files = UploadedFiles(lambda request: request.headers["who"], lambda request: "beta" in request.headers)

    async def pictures(request: web.Request) -> web.Response:
        (found,) = await files.pictures(request, [Uploaded(request.query["id"], "messages[0]")])
        return web.Response(body=found)

    app = web.Application(middlewares=[refusals])
    files.add_to(app.router)
    app.router.add_get("/asked", pictures)
    async with TestClient(TestServer(app)) as client:
        yield Asker(client, files)
    files.close()


async def test_a_file_is_there_for_whoever_sent_it_alone() -> None:
    async with asker() as programs:
        status, sent = await programs.send("ann")
        assert (status, sent["bytes"], sent["filename"]) == (200, len(PICTURE), "cat.png")
        assert sent["expires_at"] - sent["created_at"] == 86400
        path = f"/{sent['id']}"
        assert await programs.ask("GET", "ann", path) == (200, sent)
        assert await programs.ask("GET", "ann", f"{path}/content") == (200, PICTURE)
        assert [each["id"] for each in (await programs.ask("GET", "ann"))[1]["data"]] == [sent["id"]]
        assert (await programs.ask("GET", "ben"))[1]["data"] == []
        for method, where in (("GET", path), ("GET", f"{path}/content"), ("DELETE", path)):
            assert (await programs.ask(method, "ben", where))[0] == 404
        for who, expected in (("ann", 200), ("ben", 404)):
            async with programs.client.get(
                "/asked", params={"id": sent["id"]}, headers={"who": who}
            ) as answer:
                assert answer.status == expected
        assert (await programs.ask("DELETE", "ann", path))[1] == {
            "id": sent["id"],
            "object": "file",
            "deleted": True,
        }
        assert (await programs.ask("GET", "ann", path))[0] == 404


async def test_the_other_apis_form() -> None:
    async with asker() as programs:
        _, sent = await programs.send("ann")
        _, told = await programs.ask("GET", "ann", f"/{sent['id']}", beta="files")
        assert (told["type"], told["mime_type"], told["size_bytes"]) == ("file", "image/png", len(PICTURE))
        _, listed = await programs.ask("GET", "ann", beta="files")
        assert (listed["data"], listed["first_id"], listed["has_more"]) == ([told], sent["id"], False)
        _, gone = await programs.ask("DELETE", "ann", f"/{sent['id']}", beta="files")
        assert gone == {"id": sent["id"], "type": "file_deleted"}


async def test_what_is_no_picture_or_too_much_is_refused_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with asker() as programs:
        assert (await programs.send("ann", b"%PDF-1.7"))[0] == 400
        assert (await programs.send("ann", purpose="fine-tune"))[0] == 400
        monkeypatch.setattr(uploaded_files, "MOST_OF_CLIENT", 1)
        assert (await programs.send("ann"))[0] == 200
        assert (await programs.send("ann"))[0] == 413
        assert (await programs.send("ben"))[0] == 200
        monkeypatch.setattr(uploaded_files, "MOST_BYTES", MAX_BYTES)
        assert (await programs.send("cam"))[0] == 503
        folder = programs.files._folder
        assert folder is not None
        assert len([*programs.files._path("x").parent.iterdir()]) == 2
    assert not programs.files._path("x").exists()
    programs.files.close()


async def test_a_file_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    async with asker() as programs:
        _, sent = await programs.send("ann", **{"expires_after[seconds]": "3600"})
        later = time.time() + 3601
        monkeypatch.setattr(time, "time", lambda: later)
        assert (await programs.ask("GET", "ann", f"/{sent['id']}"))[0] == 404
        assert (await programs.ask("GET", "ann"))[1]["data"] == []
