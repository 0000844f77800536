"""The check of parity finds what differs, also what differed before it was made, and accepts what does not."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.parity.compare import Finding, differences
from tests.parity.exceptions import BadLine, judged, parse
from tests.parity.names import Module, python, typescript
from tests.parity.vectors import exported_functions, reached_in_typescript

ROOT = Path(__file__).parents[2]
Case = tuple[str, str, str]  # Python, TypeScript, and the name of Python that another file uses
Found = list[tuple[str, str]]  # kinds and names of findings

DIFFER: list[tuple[str, str, str]] = [
    # Faults that the check was made for, as they stood.
    ("CALL_TIMEOUT_S = 20.0", "const CALL_TIMEOUT_S = 9;", "CALL_TIMEOUT~"),
    ("PROBE_TIMEOUT_S = 10.0", "const PROBE_TIMEOUT_S = 9;", "PROBE_TIMEOUT~"),
    ("PLAN_WAIT_S: Final = 60.0", "const PLAN_WAIT_S = 8;", "PLAN_WAIT~"),
    ("SOMEBODY_WAIT_S: Final = 10.0", "const SOMEBODY_WAIT_S = 8;", "SOMEBODY_WAIT~"),
    ("STATE_WAIT_S: Final = 10.0", "const STATE_WAIT_S = 8;", "STATE_WAIT~"),
    ("TOLD_WITHIN_S: Final = 2.5", "const TOLD_WITHIN_MS = 1500;", "TOLD_WITHIN~"),
    ("ANSWER_WITHIN_S = 10.0", "const ANSWER_WITHIN_MS = 8000;", "ANSWER_WITHIN~"),
    ("DRAIN_S: Final = (\n    150.0\n)", "const DRAIN_MS = 20_000;", "DRAIN~"),
    ("MAX_LATE = 8", "const MAX_LATE = 2;", "MAX_LATE"),
    ("TOGETHER: Final = 32", "const TOGETHER = 64;", "TOGETHER"),
    ("MOST_TOKENS: Final = 32", "const MOST_TOKENS = 8;", "MOST_TOKENS"),
    (
        "class Times:\n    connect_s: float = 20.0",
        "export const TIMES: Times = { connectS: 9 };",
        "TIMES.connect~",
    ),
    # Others of their kind.
    ("MAX = 16 << 20", "const MAX = 16 * 2 ** 10;", "MAX"),
    ("BASE = 2\nMAX = 3 * BASE", "const BASE = 2;\nexport const MAX = 4 * BASE;", "MAX"),
    ("ORDER = ('a', 'b')", "const ORDER = ['b', 'a'] as const;", "ORDER"),
    ("KINDS = frozenset({'a'})", "const KINDS = new Set(['a', 'b']);", "KINDS"),
]
ALIKE: list[tuple[str, str]] = [
    ("PATIENCE_S = 1.0", "const PATIENCE_MS = 1000;"),
    ("PAUSE_MS = 250", "export const PAUSE_S = 0.25;"),
    ("_HIDDEN: Final = 5", "const HIDDEN = 5;"),
    ("MAX = 2**53 - 1", "const MAX = Number.MAX_SAFE_INTEGER;"),
    ("MIB = 1 << 20\nMOST = 8 * MIB", "const MOST = 8 * 1024 * 1024;\nconst MIB = 2 ** 20;"),
    ("KINDS = frozenset({'b', 'a'})", "const KINDS: ReadonlySet<string> = new Set(['a', 'b']);"),
    (
        "class Times:\n    connect_s: float = 20.0\n    more: int = 3",
        "export const TIMES: Times = { connectMs: 20_000, other: 4 };",
    ),
]
MEMBERS: list[tuple[str, str, Found]] = [
    ("class Phase(Enum):\n    IDLE = 'idle'", "export type Phase = 'idle' | 'done';", [("members", "Phase")]),
    ("Phase = Literal['idle', 'a-b']", "export type Phase = 'a-b' | 'idle';", []),
    ("class Finish(IntEnum):\n    MORE = 0", "export const FINISH = { more: 0 } as const;", []),
    (
        "class Finish(IntEnum):\n    MORE = 0",
        "export const FINISH = { end: 0 } as const;",
        [("members", "Finish")],
    ),
]
MADE = "Pure. Generated from schema/x.toml by `make generate`."
NAMES: list[tuple[str, str, str, Found]] = [
    ("def may_ask(): ...", "export function mayAsk(): void {}", "may_ask", []),
    ("def may_ask(): ...", "function mayAsk(): void {}", "may_ask", []),
    ("def may_ask(): ...", "export const mayAsk = (): void => {};", "may_ask", []),
    ("def may_ask(): ...", "", "may_ask", [("python", "may_ask")]),
    ("def may_ask(): ...", "", "", []),  # nobody else uses it
    ("def _may_ask(): ...", "", "", []),
    ("class Seat: ...", "export interface Seat {}", "Seat", []),
    ("class Seat: ...", "export type Said = { kind: 'seat' };", "Seat", []),
    ("class Seat: ...", "", "Seat", [("python", "Seat")]),
    ("seat_codec = Codec()", "export const seat = codec();", "seat_codec", []),
    (f'"""{MADE}"""\ndef may_ask(): ...', f"/* {MADE} */", "may_ask", []),
    (f'"""{MADE}"""\ndef may_ask(): ...', "", "may_ask", [("python", "may_ask")]),
]
ONLY_HERE = "FEWER = 3\nLEAST = 2\nONLY = 4\nNAME = 'x'\n"
ONLY_THERE = "export function mayAsk(): void {}\nexport function unused(): void {}\n"
LISTED: Case = (
    "WAIT_S = 2.0\ndef may_ask(): ...\n",
    "export const WAIT_MS = 3000;\nexport function mayQuery(): void {}\n",
    "may_ask",
)
CASES: list[Case] = [
    *((one, other, "") for one, other, _ in DIFFER),
    *((one, other, "") for one, other in ALIKE),
    *((one, other, "") for one, other, _ in MEMBERS),
    *((one, other, user) for one, other, user, _ in NAMES),
    (ONLY_HERE, "", ""),
    ("", ONLY_THERE, ""),
    LISTED,
]


def place_of(case: Case) -> str:
    return f"session/case_{CASES.index(case)}"


@pytest.fixture(scope="module")
def twins(tmp_path_factory: pytest.TempPathFactory) -> tuple[dict[str, Module], dict[str, Module]]:
    """A tree with a twin for each case, read once."""
    root = tmp_path_factory.mktemp("tree")
    files = {
        "web_peer/src/stage/elsewhere.ts": "export const FEWER = 3; export const LEAST = 1;",
        "web_peer/ui/user.ts": "import { mayAsk } from '../src/"
        + place_of(("", ONLY_THERE, ""))
        + "';\nmayAsk();\n",
    }
    for case in CASES:
        name, (in_python, in_typescript, user) = place_of(case), case
        files[f"peer/{name}.py"] = in_python
        files[f"web_peer/src/{name}.ts"] = in_typescript
        if user:
            files[f"peer/{name}_user.py"] = f"from peer.{name.replace('/', '.')} import {user}"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text, encoding="utf-8")
    return python(root), typescript(root)[0]


Twins = tuple[dict[str, Module], dict[str, Module]]


def found(twins: Twins, case: Case) -> Found:
    return [(one.kind, one.name) for one in differences(*twins) if one.place == place_of(case)]


@pytest.mark.parametrize(("in_python", "in_typescript", "name"), DIFFER)
def test_a_constant_with_two_values(twins: Twins, in_python: str, in_typescript: str, name: str) -> None:
    assert found(twins, (in_python, in_typescript, "")) == [("differs", name)]


@pytest.mark.parametrize(("in_python", "in_typescript"), ALIKE)
def test_a_constant_with_one_value(twins: Twins, in_python: str, in_typescript: str) -> None:
    assert found(twins, (in_python, in_typescript, "")) == []


@pytest.mark.parametrize(("in_python", "in_typescript", "wanted"), MEMBERS)
def test_members(twins: Twins, in_python: str, in_typescript: str, wanted: Found) -> None:
    assert found(twins, (in_python, in_typescript, "")) == wanted


@pytest.mark.parametrize(("in_python", "in_typescript", "user", "wanted"), NAMES)
def test_names(twins: Twins, in_python: str, in_typescript: str, user: str, wanted: Found) -> None:
    assert found(twins, (in_python, in_typescript, user)) == wanted


def test_a_number_that_one_language_has_may_stand_elsewhere_with_its_value(twins: Twins) -> None:
    assert found(twins, (ONLY_HERE, "", "")) == [("python", "LEAST"), ("python", "ONLY")]


def test_a_name_of_typescript_alone(twins: Twins) -> None:
    assert found(twins, ("", ONLY_THERE, "")) == [("typescript", "mayAsk")]


PLACE = place_of(LISTED)


@pytest.mark.parametrize(
    ("line", "left", "faults"),
    [
        ("", ["WAIT~", "may_ask"], 0),
        (f"{PLACE} | differs | WAIT~ | a person watches a tab", ["may_ask"], 0),
        (f"{PLACE} | same | may_ask = mayQuery", ["WAIT~"], 0),
        (f"{PLACE} | same | may_ask = mayAsk", ["WAIT~", "may_ask"], 1),
        (f"{PLACE} | same | WAIT_S = WAIT_MS", ["WAIT~", "may_ask"], 1),  # two values
        (f"{PLACE} | python | may_ask, gone | nobody asks in a tab", ["WAIT~"], 1),  # not needed any more
        (f"{PLACE} | vector | may_ask | nobody asks in a tab", ["WAIT~", "may_ask"], 1),
    ],
)
def test_the_list_covers_what_it_says_and_says_no_more(
    twins: Twins, line: str, left: list[str], faults: int
) -> None:
    here, there = twins
    findings = [one for one in differences(here, there) if one.place == PLACE]
    missing, wrong, needed = judged(findings, parse(line), here, there)
    assert [one.name for one in missing] == left
    assert len(wrong) == faults
    assert not judged(findings, needed, here, there)[1]


@pytest.mark.parametrize(
    "line", [f"{PLACE} | python | x", f"{PLACE} | python | x | so", f"{PLACE} | other | x | a b c d"]
)
def test_a_line_without_a_reason_is_no_line(line: str) -> None:
    with pytest.raises(BadLine):
        parse(line)


def test_a_function_is_missed_once_its_vector_is_gone() -> None:
    names, users = typescript(ROOT)
    assert "wire/bundles:framesOf" in reached_in_typescript(names, users)
    blind = {name: user for name, user in users.items() if "wire_rules" not in user.vectors}
    left = reached_in_typescript(names, blind)
    missed = [f"{place}:{name}" for place, name in exported_functions(names) if f"{place}:{name}" not in left]
    assert "wire/bundles:framesOf" in missed


def test_findings_read_as_sentences() -> None:
    assert (
        str(Finding("a/b", "differs", "X~", "Python 1, TypeScript 2"))
        == "a/b: differs X~: Python 1, TypeScript 2"
    )
