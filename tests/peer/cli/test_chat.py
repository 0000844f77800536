"""The terminal of a conversation: Ctrl-C at the prompt, and keys typed during an answer."""

from __future__ import annotations

import asyncio
import os
import sys
import termios
from dataclasses import replace

import pytest
from prompt_toolkit import PromptSession
from prompt_toolkit.application import create_app_session
from prompt_toolkit.input import create_pipe_input
from prompt_toolkit.output import DummyOutput

from peer.cli.chat import first_of, prompt_session, settings
from peer.cli.main import parser
from peer.launch.terminal import Interrupts, unechoed
from peer.session.sampling import GREEDY, Sampling
from planner.model.sampling_defaults import SamplingDefaults
from tests.patience import WITHIN_S

OWN = SamplingDefaults(0.6, 20, 0.9, 0.05, 1.1)  # a model's


@pytest.mark.parametrize("command", ["chat LINK", "generate LINK hello"])
@pytest.mark.parametrize(
    ("words", "drawn"),
    [
        ("", Sampling(0.6, 20, 0.9, 0.05, 1.1)),
        ("--temperature 1 --top-k 0", Sampling(1.0, 0, 0.9, 0.05, 1.1)),
        ("--temperature 0", GREEDY),
        ("--frequency-penalty 0.5", Sampling(0.6, 20, 0.9, 0.05, 1.1, frequency_penalty=0.5)),
    ],
)
def test_sampling_that_the_arguments_leave_out_is_the_models(
    command: str, words: str, drawn: Sampling
) -> None:
    args = parser().parse_args([*command.split(), *words.split(), "--seed", "7"])
    assert settings(args, OWN).sampling == replace(drawn, seed=7)


def test_a_seed_that_the_arguments_leave_out_is_another_one_each_time() -> None:
    args = parser().parse_args(["chat", "LINK"])
    assert settings(args, OWN).sampling.seed != settings(args, OWN).sampling.seed


async def test_ctrl_c_at_the_prompt_cancels_no_other_task() -> None:
    """A connection that such a task serves is there when this peer says that it leaves."""
    connection = asyncio.ensure_future(asyncio.Event().wait())
    with create_pipe_input() as keys, create_app_session(input=keys, output=DummyOutput()):
        session: PromptSession[str] = prompt_session()
        keys.send_text("\x03\x03")
        async with asyncio.timeout(WITHIN_S):
            reading = asyncio.ensure_future(session.prompt_async("> ", handle_sigint=False))
            assert await first_of(reading, asyncio.Event()) is None
    assert not connection.done()
    connection.cancel()


def echoes(terminal: int) -> bool:
    return bool(termios.tcgetattr(terminal)[3] & termios.ECHO)


def test_keys_typed_during_an_answer_wait_for_the_prompt(monkeypatch: pytest.MonkeyPatch) -> None:
    person, process = os.openpty()
    ctrl = Interrupts()
    with os.fdopen(process, "r+b", buffering=0) as terminal:
        monkeypatch.setattr(sys, "stdin", terminal)
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
        assert echoes(process)
        with unechoed(ctrl):
            assert not echoes(process)
            os.write(person, b"typed\n")
            assert len(ctrl.last_words) == 1
        assert echoes(process)
        assert ctrl.last_words == []
        assert terminal.read(100) == b"typed\n"
        with unechoed(ctrl):
            ctrl.last_words[0]()  # a second Ctrl-C ends the process at once
            assert echoes(process)
        monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp() + 1)
        with unechoed(ctrl):
            assert echoes(process)
    os.close(person)
