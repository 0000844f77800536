"""A process that runs is called otherwise by a command from beside."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

import pytest

from peer.cli.main import parser
from peer.errors import BadCommand, CannotServe
from peer.launch.renaming import ALWAYS, BY_MESH, BY_OPTION, RUNNING, ask_to_rename, naming, renamable
from peer.state.display_names import names
from peer.storage.peer_keys import kept_identity
from planner.model.durable_files import open_locked
from tests.peer.town import town

MESH = "m" * 32


async def test_everybody_reads_the_new_name_and_the_command_says_the_old_one(tmp_path: Path) -> None:
    async with town() as here:
        founder, joined = await here.found("a"), await here.join("q")
        async with renamable(tmp_path, MESH, naming("q", "machine", None), joined.rename):
            assert (await ask_to_rename(tmp_path, MESH, "Ada's desk", None)).before == "q"
            await here.until(lambda: names(founder.view.state.members).get("q") == "Ada's desk")
            assert (await ask_to_rename(tmp_path, MESH, "Ada's lap", "Ada's desk")).before == "Ada's desk"
            with pytest.raises(BadCommand, match="1 to 64 characters"):
                await ask_to_rename(tmp_path, MESH, "x" * 65, None)
            assert (await ask_to_rename(tmp_path, MESH, "q", None)).before == "Ada's lap"


async def test_a_later_start_has_the_name_unless_its_command_line_says_another(tmp_path: Path) -> None:
    async def in_mesh(_: str) -> None:
        pass

    async def refused(_: str) -> None:
        raise CannotServe("nobody coordinates")

    with kept_identity(tmp_path, MESH) as own:
        async with renamable(tmp_path, MESH, naming(None, "machine", own), in_mesh):
            done = await ask_to_rename(tmp_path, MESH, "Ada's desk", None)
        assert (done.before, done.lasts) == ("machine", ALWAYS)
        with kept_identity(tmp_path, MESH) as beside:
            assert naming(None, "machine", beside).name == "machine", "each process has its own name"
    with kept_identity(tmp_path, MESH) as own:
        assert naming(None, "machine", own).name == "Ada's desk"
        by_option = naming("Grace", "machine", own)
        assert (by_option.name, by_option.lasts) == ("Grace", BY_OPTION)
        async with renamable(tmp_path, MESH, naming(None, "machine", own), refused):
            with pytest.raises(BadCommand, match="nobody coordinates"):
                await ask_to_rename(tmp_path, MESH, "Ada's lap", None)
        assert naming(None, "machine", own).name == "Ada's desk", "what the mesh refused is not kept"
        assert own.beside is not None
        own.beside.with_suffix(".name").write_text("two\nlines")
        assert naming(None, "machine", own).name == "machine"
    assert naming(None, "machine", None).lasts == BY_MESH


def test_serve_and_join_know_whether_their_command_line_says_a_name() -> None:
    for words in (["serve"], ["join", "link"]):
        assert parser().parse_args(words).name is None
        assert parser().parse_args([*words, "--name", "Ada's desk"]).name == "Ada's desk"


async def test_a_name_that_cannot_be_kept_is_not_taken(tmp_path: Path) -> None:
    async def in_mesh(_: str) -> None:
        raise AssertionError

    with kept_identity(tmp_path, MESH) as own:
        assert own.beside is not None
        own.beside.with_suffix(".new").mkdir()  # as little as a full disk takes it
        async with renamable(tmp_path, MESH, naming(None, "machine", own), in_mesh):
            with pytest.raises(BadCommand, match="cannot be used"):
                await ask_to_rename(tmp_path, MESH, "new", None)
        assert naming(None, "machine", own).name == "machine"


async def test_of_several_it_is_said_which(tmp_path: Path) -> None:
    taken: list[tuple[str, str]] = []

    def taking(who: str) -> object:
        async def rename(name: str) -> None:
            taken.append((who, name))

        return rename

    async with (
        renamable(tmp_path, MESH, naming("one", "machine", None), taking("one")),  # type: ignore[arg-type]
        renamable(tmp_path, MESH, naming("two", "machine", None), taking("two")),  # type: ignore[arg-type]
    ):
        with pytest.raises(BadCommand, match="--from NAME: one, two"):
            await ask_to_rename(tmp_path, MESH, "new", None)
        with pytest.raises(BadCommand, match="--from NAME: one, two"):
            await ask_to_rename(tmp_path, MESH, "new", "three")
        assert (await ask_to_rename(tmp_path, MESH, "new", "two")).before == "two"
    assert taken == [("two", "new")]


async def test_who_does_not_run_takes_no_name(tmp_path: Path) -> None:
    async def rename(_: str) -> None:
        raise AssertionError

    with pytest.raises(BadCommand, match="no shoal serve or join runs in that mesh"):
        await ask_to_rename(tmp_path, MESH, "new", None)
    async with renamable(tmp_path, MESH, naming("one", "machine", None), rename):
        pass
    (tmp_path / RUNNING / MESH / "7.name").write_text("killed")
    with pytest.raises(BadCommand, match="no shoal serve or join runs in that mesh"):
        await ask_to_rename(tmp_path, MESH, "new", None)


async def test_who_does_not_answer_is_waited_for_so_long(tmp_path: Path) -> None:
    folder = tmp_path / RUNNING / MESH
    folder.mkdir(parents=True)
    held = open_locked(folder / "0.lock")
    assert held is not None
    (folder / "0.name").write_text("stuck")
    with pytest.raises(CannotServe, match="stuck did not take the name"):
        await ask_to_rename(tmp_path, MESH, "new", None, within_s=0.2)
    assert not (folder / "0.rename").exists(), "it takes it later no more"
    os.close(held)


async def test_the_watch_ends_with_its_block(tmp_path: Path) -> None:
    async def rename(_: str) -> None:
        raise AssertionError

    before = asyncio.all_tasks()
    with pytest.raises(ZeroDivisionError):
        async with renamable(tmp_path, MESH, naming("one", "machine", None), rename):
            raise ZeroDivisionError  # comes out as it is
    assert asyncio.all_tasks() == before
    assert not (tmp_path / RUNNING / MESH / "0.name").exists()
