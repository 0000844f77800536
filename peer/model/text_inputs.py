"""Texts as inputs of a model that is a graph: tokens, a mask of them, types. As docs/format.md says it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from tokenizers import Tokenizer

from peer.dataflow.value_codec import NUMPY, Array
from peer.errors import BadCommand, CannotServe
from planner.model.graph_manifest import GraphManifest

CHARACTERS_PER_TOKEN: Final = 128  # a text with more of them is refused before it is cut into tokens
MAX_TEXTS: Final = 4096  # of one item


@dataclass(frozen=True, slots=True)
class TextRow:
    """The tokens of a text, or of a pair of texts, with the marks at their ends. `types`: by token, 1 for the second
    text of a pair and 0 for all others; empty: 0 for all.
    """

    ids: Sequence[int]
    types: Sequence[int] = ()

    def __len__(self) -> int:
        return len(self.ids)


class TextReader:
    """Of a model that says how; `tokenizer`: the bytes of its tokenizer.json. Raises CannotServe."""

    def __init__(self, manifest: GraphManifest, tokenizer: bytes) -> None:
        if manifest.text is None:
            raise CannotServe(f"{manifest.name} does not say how texts become its inputs")
        self._name = manifest.name
        self._text = manifest.text
        self._values = {name: manifest.value(name) for name in manifest.text.inputs}
        try:
            self._tokenizer = Tokenizer.from_buffer(tokenizer)
        except Exception as error:  # the library raises bare Exception
            raise CannotServe(f"the tokenizer of {self._name} cannot be read: {str(error)[:200]}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._tokenizer.encode_special_tokens = True  # a text that spells [SEP] has these words

    def arrays(self, texts: Sequence[str]) -> dict[str, Array]:
        """The inputs, a row for each text. Raises BadCommand for texts that are too long or too many."""
        if not 1 <= len(texts) <= MAX_TEXTS:
            raise BadCommand(f"expected 1 to {MAX_TEXTS} texts, one a line, got {len(texts)}")
        return self.filled(self.rows(texts))

    def rows(self, texts: Sequence[str]) -> list[TextRow]:
        """The tokens of each text. Raises BadCommand for one that is too long, or of no token."""
        return [self._row(f"text {place}", text) for place, text in enumerate(texts, start=1)]

    def pairs(self, first: str, others: Sequence[str]) -> list[TextRow]:
        """The tokens of the pair of one text with each other one. Raises BadCommand for a pair that is too long."""
        return [self._row(f"text {place}", other, first) for place, other in enumerate(others, start=1)]

    @property
    def vocab(self) -> int:
        """How many tokens the tokenizer knows."""
        return self._tokenizer.get_vocab_size()

    def ids(self, text: str) -> list[int]:
        """The tokens of a text, with the marks at its ends."""
        found: list[int] = self._tokenizer.encode_batch([text])[0].ids  # a batch lets other threads run
        return found

    def pair(self, first: str, second: str) -> TextRow:
        """The tokens of two texts, as the tokenizer joins them."""
        found = self._tokenizer.encode_batch([(first, second)])[0]
        return TextRow(found.ids, found.type_ids)

    def filled(self, rows: Sequence[TextRow]) -> dict[str, Array]:
        """The inputs of rows of token ids, which the caller has checked: each of 1 to `longest` tokens."""
        axis = self._values[self._text.tokens].shape[1]
        wide = axis if isinstance(axis, int) else max(map(len, rows))
        tokens = np.full((len(rows), wide), self._text.pad, np.int64)
        mask, types = np.zeros_like(tokens), np.zeros_like(tokens)
        for place, row in enumerate(rows):
            tokens[place, : len(row)] = row.ids
            mask[place, : len(row)] = 1
            types[place, : len(row.types)] = row.types
        made = {self._text.tokens: tokens, self._text.mask: mask, self._text.types: types}
        return {
            name: array.astype(NUMPY[self._values[name].dtype])
            for name, array in made.items()
            if name is not None
        }

    def _row(self, where: str, text: str, before: str | None = None) -> TextRow:
        """Of a text, or of the pair of another one and it."""
        most = self._text.longest
        characters = len(text) + len(before or "")
        if characters > CHARACTERS_PER_TOKEN * most:
            raise BadCommand(
                f"{where}: {characters} characters, and {self._name} takes {most} tokens of a text"
            )
        row = TextRow(self.ids(text)) if before is None else self.pair(before, text)
        if len(row) > most:
            whole = "" if before is None else " with the one that it is compared with"
            raise BadCommand(f"{where}: {len(row)} tokens{whole}, and {self._name} takes {most} of a text")
        if not row.ids:
            raise BadCommand(f"{where}: {self._name} makes no token of it")
        return row
