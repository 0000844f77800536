"""What a command tells on standard error, as one JSON object a line, for programs that collect logs. Edge.

Fields: `time` (RFC 3339, UTC), `level`, `logger` and `message`; `error` with the trace where there is one.
"""

from __future__ import annotations

import json
import logging
import sys
from datetime import UTC, datetime

chosen = False  # for the whole process, by --log-format


class JsonLines(logging.Formatter):
    """A log record as one line of JSON."""

    def format(self, record: logging.LogRecord) -> str:
        """Returns the record as one line of JSON."""
        trace = self.formatException(record.exc_info) if record.exc_info else ""
        return line(record.levelname.lower(), record.name, record.getMessage(), trace, record.created)


def line(level: str, logger: str, message: str, error: str = "", unix: float | None = None) -> str:
    """One object, without its newline."""
    now = datetime.now(UTC) if unix is None else datetime.fromtimestamp(unix, UTC)
    body = {
        "time": now.isoformat(timespec="milliseconds"),
        "level": level,
        "logger": logger,
        "message": message,
    }
    return json.dumps(body | ({"error": error} if error else {}))


def choose() -> None:
    """From now on everything on standard error is JSON."""
    global chosen
    chosen = True
    for handler in logging.getLogger().handlers:
        handler.setFormatter(JsonLines())


def tell(level: str, message: str) -> None:
    """What else goes to standard error."""
    sys.stderr.write(line(level, "shoal", message) + "\n")
    sys.stderr.flush()
