"""The parser of `shoal`: what is wrong is said first, and a line says how the command is called."""

from __future__ import annotations

import argparse
from typing import NoReturn


class Parser(argparse.ArgumentParser):
    """Of a command; `error` is two lines instead of every option before the reason."""

    def error(self, message: str) -> NoReturn:
        """Ends the process with status 2."""
        words = [
            action.metavar if isinstance(action.metavar, str) else action.dest.upper()
            for action in self._actions
            if not action.option_strings
        ]
        called = " ".join([self.prog, *words])
        self.exit(2, f"{self.prog}: {message}\nusage: {called} [options]; {self.prog} --help lists them\n")
