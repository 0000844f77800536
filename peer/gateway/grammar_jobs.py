"""Grammars in processes: each is compiled and followed in one of its own, within time and memory.

Edge. What a grammar costs is known when it is spent (planner.jobs).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from peer.errors import AnswerFailed, ApiError, GrammarFailed
from peer.gateway.grammars import Grammars, Guided, schema_refused
from peer.gateway.tool_calls import Style, Tool
from peer.model.tokenizer import TextFile
from planner.errors import JobError, JobTooLarge, JobTooLong
from planner.jobs.jobs import Budget, Held, Jobs

BUDGET: Final = Budget(cpu_s=3.0, memory_bytes=256 << 20)  # of compiling one, and of each token after
MOST_KNOWN: Final = 256


@dataclass(frozen=True, slots=True)
class JsonForm:
    """JSON that `schema` allows; None: any object."""

    schema: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class CallForm:
    """One call of one of `tools`, or with `parallel` one or more where the style has room for them."""

    style: Style
    tools: tuple[Tool, ...]
    parallel: bool


Form = JsonForm | CallForm


class GrammarJobs:
    """The grammars of one model, each compiled and followed in a process of its own. For one event loop."""

    def __init__(self, text: TextFile) -> None:
        """Reading `text` takes a moment, in the process that jobs come from."""
        self._jobs = Jobs(_grammars, text, budget=BUDGET)
        self._known: dict[bytes, ApiError | None] = {}  # by form: why it was refused; None: it was not

    async def check(self, form: Form) -> None:
        """Raises ApiError for a form that an answer cannot be held to, AnswerFailed where too many wait for that."""
        key = repr(form).encode()
        if key not in self._known:
            self._known[key] = await self._checked(form)
            if len(self._known) > MOST_KNOWN:
                del self._known[next(iter(self._known))]
        if (refusal := self._known[key]) is not None:
            raise refusal.with_traceback(None)

    async def _checked(self, form: Form) -> ApiError | None:
        param = "response_format" if isinstance(form, JsonForm) else "tools"
        try:
            await self._jobs.run(_check, form)
        except JobTooLong:
            return schema_refused(
                f"it takes more than {BUDGET.cpu_s:g} s of computing; ask for a simpler one", param
            )
        except JobTooLarge:
            megabytes = BUDGET.memory_bytes >> 20
            return schema_refused(
                f"it takes more than {megabytes} MiB of memory; ask for a simpler one", param
            )
        except ApiError as error:
            if error.code != "invalid_schema":
                raise
            return error
        except JobError as error:
            raise AnswerFailed(f"the form of the answer could not be prepared: {error}") from error
        return None

    def guided(self, form: Form) -> GuidedAnswer:
        """What holds one answer to a form that was checked."""
        return GuidedAnswer(self._jobs, form)

    async def close(self) -> None:
        """Ends the process that jobs come from."""
        await self._jobs.close()


class GuidedAnswer:
    """One answer under a grammar (peer.origin.answer_stream.Guide). Its process begins with the first call."""

    def __init__(self, jobs: Jobs, form: Form) -> None:
        self._jobs = jobs
        self._form = form
        self._held: Held | None = None

    async def next(self, taken: Sequence[int]) -> tuple[int, ...] | None:
        """The mask of what may come after `taken`, the tokens since the last call; None: nothing may follow.

        Raises GrammarFailed where the grammar cannot go on.
        """
        try:
            if self._held is None:
                self._held = await self._jobs.hold(_followed, self._form)
            mask: tuple[int, ...] | None = await self._held.call("next", tuple(taken))
            return mask
        except JobError as error:
            raise GrammarFailed(f"the grammar cannot follow this answer any further ({error})") from error

    def close(self) -> None:
        """Ends its process. A later call begins it anew: for an answer that began anew."""
        if self._held is not None:
            self._held.close()
            self._held = None


def _grammars(text: TextFile) -> Grammars:
    return Grammars(text.read())


class _Followed:
    """One answer in its process."""

    def __init__(self, guided: Guided) -> None:
        self._guided = guided

    def next(self, taken: Sequence[int]) -> tuple[int, ...] | None:
        for token in taken:
            self._guided.take(token)
        return None if self._guided.over() else self._guided.allowed()


def _followed(grammars: Grammars, form: Form) -> _Followed:
    match form:
        case JsonForm(schema):
            return _Followed(grammars.json(schema))
        case CallForm(style, tools, parallel):
            return _Followed(grammars.calls(style, tools, parallel=parallel))


def _check(grammars: Grammars, form: Form) -> None:
    _followed(grammars, form).next(())
