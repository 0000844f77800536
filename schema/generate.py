"""Writes what the schema says into both languages and into docs/protocol.md: `python -m schema.generate [--check]`.

With --check nothing is written: files that are not what the schema says are named, and the status is 1.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Final

from schema import (
    consensus_messages,
    protocol_tables,
    python_code,
    python_records,
    requests,
    signaling_messages,
    typescript_code,
    typescript_records,
)
from schema.definitions import numbers_of, read_frames, read_limits
from schema.records import read_commands

ROOT: Final = Path(__file__).parents[1]
PROTOCOL: Final = "docs/protocol.md"


def written() -> dict[str, str]:
    """Returns every generated file by its path from the root of the repository, and docs/protocol.md. Raises
    SchemaError.
    """
    groups = read_limits()
    limits = numbers_of(groups)
    frames = read_frames(limits)
    commands = read_commands(limits)
    asked = requests.read_requests(limits)
    raft = consensus_messages.read_raft_messages()
    signaling = signaling_messages.read_signaling_messages()
    tables = {
        **protocol_tables.frame_tables(frames),
        **protocol_tables.command_tables(commands),
        **requests.request_tables(asked),
        **signaling_messages.signaling_tables(signaling),
        "consensus messages": consensus_messages.message_table(raft),
    }
    return {
        "peer/limits.py": formatted(python_code.limits_module(groups)),
        "peer/wire/generated/frames.py": formatted(python_code.frames_module(frames, limits)),
        "peer/state/generated/commands.py": formatted(python_records.commands_module(commands, limits)),
        "web_peer/src/state/generated/commands.ts": typescript_records.commands_module(commands, limits),
        "peer/wire/generated/requests.py": formatted(requests.python_module(asked, limits)),
        "web_peer/src/wire/generated/requests.ts": requests.typescript_module(asked, limits),
        "peer/consensus/messages.py": formatted(consensus_messages.python_module(raft)),
        "web_peer/src/consensus/messages.ts": consensus_messages.typescript_module(raft),
        "signaling/generated/messages.py": formatted(signaling_messages.python_module(signaling)),
        "web_peer/src/signaling/generated/messages.ts": signaling_messages.typescript_module(signaling),
        "web_peer/src/limits.ts": typescript_code.limits_module(groups),
        "web_peer/src/wire/generated/frames.ts": typescript_code.frames_module(frames, limits),
        PROTOCOL: protocol_tables.filled((ROOT / PROTOCOL).read_text(encoding="utf-8"), tables),
    }


def formatted(source: str) -> str:
    """Returns a Python module as the checks of the repository want it laid out."""
    for words in (["check", "--fix-only", "--quiet", "--select", "I"], ["format", "--quiet"]):
        source = subprocess.run(
            [sys.executable, "-m", "ruff", *words, "--stdin-filename", "generated.py", "-"],
            input=source,
            capture_output=True,
            check=True,
            cwd=ROOT,
            text=True,
        ).stdout
    return source


def main(words: list[str]) -> int:
    """Returns the exit status."""
    stale = []
    for name, text in written().items():
        path = ROOT / name
        if path.is_file() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(name)
        if "--check" not in words:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if "--check" not in words:
        sys.stdout.write("".join(f"wrote {name}\n" for name in stale) or "nothing to write\n")
        return 0
    if stale:
        sys.stderr.write(f"not what schema/ says (make generate): {', '.join(stale)}\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
