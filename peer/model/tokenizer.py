"""Decides how words become tokens and tokens become words: prompts in, streamed text out, stop strings."""

from __future__ import annotations

import codecs
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

from tokenizers import AddedToken, Tokenizer

from peer.errors import ChatTemplateError, TextTooLong
from peer.errors import TextError as TextError
from peer.model.chat_template import MAX_TURNS, ChatTemplate, Message, plain_chat
from peer.model.control_tokens import ControlTokens, Written, free_mark, unmarked
from planner.model.manifest import Manifest, Sight
from planner.model.sources import TokenizerSource
from planner.model.store import Store

MAX_STOP_STRINGS: Final = 16
MAX_STOP_CHARACTERS: Final = 256  # what may be held back while a stop string could still complete


class Text:
    """A model's tokenizer, chat template and special tokens."""

    def __init__(self, source: TokenizerSource, sight: Sight | None = None) -> None:
        """`sight`: how the model is given pictures; None: it sees none."""
        self.sight = sight
        try:
            rules = json.loads(source.tokenizer_json)
            changed = _with_control(rules, source, sight)
            content = json.dumps(rules).encode() if changed else source.tokenizer_json
            self._tokenizer = Tokenizer.from_buffer(content)
        except Exception as problem:  # the library raises bare Exception
            raise TextError(f"the model's tokenizer.json cannot be read: {_line(problem)}") from problem
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self._words = _without_control(self._tokenizer)
        self._pieces = _Pieces(self._tokenizer, rules)
        added = self._tokenizer.get_added_tokens_decoder()
        self._added = {each.content: token for token, each in added.items()}
        self._control = ControlTokens({each.content: token for token, each in added.items() if each.special})
        self.vocab_size: int = self._tokenizer.get_vocab_size(with_added_tokens=True)
        self.end_tokens = source.end_tokens
        self._bos = source.bos_token if source.add_bos else None
        self._source = source.chat_template
        self._template: ChatTemplate | None = None
        if source.chat_template is not None:
            bos = self._name(source.bos_token)
            end = self._name(source.end_tokens[0] if source.end_tokens else None)
            self._template = ChatTemplate(source.chat_template, bos_token=bos, eos_token=end)
        # Templates of models that see read the parts of a content, where those of others read a text.
        self._shows_parts = sight is not None and "image" in (source.chat_template or "")
        self._longest = _longest(rules)
        self._most: int | None = None  # characters that may be put into tokens now

    def most_characters(self, context: int) -> int:
        """Returns how many characters a prompt of `context` tokens has at most: more of them need not be counted."""
        return context * self._longest

    def check_length(self, characters: int) -> None:
        """Raises TextTooLong where that many may not be put into tokens now (`within`)."""
        if self._most is not None and characters > self._most:
            raise TextTooLong(characters)

    @contextmanager
    def within(self, characters: int, turns: int = MAX_TURNS) -> Iterator[None]:
        """While it lasts, TextTooLong is raised for a text of more `characters`, TemplateSpent where the chat template
        takes more `turns`.
        """
        self._most = characters
        if self._template is not None:
            self._template.turns = turns
        try:
            yield
        finally:
            self._most = None
            if self._template is not None:
                self._template.turns = MAX_TURNS

    def encode(self, text: str) -> list[int]:
        """Tokens of plain text, with the begin-of-text token where the model wants one."""
        return self._with_bos(self._ids(text))

    def encode_words(self, text: str) -> list[int]:
        """Tokens of text in which nothing is a control token, whatever it spells; no begin-of-text token."""
        return self._ids(text, self._words)

    def encode_chat(self, messages: Sequence[Message], today: date | None = None) -> list[int]:
        """Tokens of a conversation, ending where the assistant's answer begins.

        Through the model's chat template; without one, ChatML if the vocabulary has its marks, else plain
        `Role: words` paragraphs. ChatTemplateError when the template fails or refuses the messages. Control tokens are
        those of the template: what a message spells is words. `today` is the day that the template reads, by default
        this one in UTC, as for everybody in the mesh.
        """
        return self.encode_turns(
            [{"role": each.role, "content": each.content} for each in messages], today=today
        )

    def render_chat(self, messages: Sequence[Message], today: date | None = None) -> str:
        """The prompt text that encode_chat puts into tokens."""
        if self._template is not None:
            return self._template.render(messages, today=today or _today())
        if all(self._tokenizer.token_to_id(mark) is not None for mark in ("<|im_start|>", "<|im_end|>")):
            turns = [f"<|im_start|>{message.role}\n{message.content}<|im_end|>\n" for message in messages]
            return "".join(turns) + "<|im_start|>assistant\n"
        return plain_chat(messages)

    def encode_turns(
        self,
        turns: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None = None,
        today: date | None = None,
    ) -> list[int]:
        """As encode_chat, for turns as chat templates read them, and with tools where the template knows them."""
        control = self._control
        turns = [self._of_parts(turn) for turn in turns]
        told = [{name: value for name, value in turn.items() if name != "role"} for turn in turns]
        mark = control.mark_for(told, tools)
        marked = [
            self._spelled({**turn, **control.marked(words, mark)})
            for turn, words in zip(turns, told, strict=True)
        ]
        if self._template is None:
            rendered = self.render_chat([Message(turn["role"], turn["content"]) for turn in marked], today)
        else:
            rendered = self._template.render_turns(
                marked, control.marked(tools, mark), today=today or _today()
            )
        text, places = unmarked(rendered, mark)
        written = control.written(text, places)
        return self._with_bos(self._ids(text) if written is None else self._ids_of(text, written))

    def with_pictures(self, prompt: Sequence[int], count: int) -> tuple[list[int], list[int]]:
        """The prompt with as many tokens in the place of each of `count` pictures as it has rows, and where the rows of
        each begin; one token where it depends on the picture how many these are. Raises ChatTemplateError where the
        template has not shown them all.
        """
        sight = self.sight
        if sight is None or not count:
            return list(prompt), []
        found: list[int] = []
        firsts: list[int] = []
        for token in prompt:
            if token != sight.token:
                found.append(token)
                continue
            firsts.append(len(found) + len(sight.before))
            found += [*sight.before, *[token] * (1 if sight.square else sight.positions), *sight.behind]
        if len(firsts) != count:
            raise ChatTemplateError(
                f"the model's chat template has shown {len(firsts)} of {count} pictures: put them into the question"
            )
        return found, firsts

    def _of_parts(self, turn: Mapping[str, Any]) -> Mapping[str, Any]:
        """A turn whose content is a list of parts, where the template reads these."""
        content = turn.get("content")
        if not self._shows_parts or not isinstance(content, str):
            return turn
        return {**turn, "content": [{"type": "text", "text": content}]}

    def _spelled(self, turn: Mapping[str, Any]) -> Mapping[str, Any]:
        """A turn whose content is text, where the template reads that: a picture is its place holder on a line."""
        content = turn.get("content")
        if self._shows_parts or not isinstance(content, list):
            return turn
        shown = f"{self._name(self.sight.token if self.sight is not None else None)}\n"
        return {**turn, "content": "".join(part.get("text", shown) for part in content)}

    @property
    def tool_template(self) -> str | None:
        """The source of a chat template that knows tools; None where there is none, or it knows none."""
        return self._source if self._template is not None and self._template.knows_tools else None

    def token_text(self, token: int) -> str:
        """One token by itself, with U+FFFD for half a character. Control tokens by their name."""
        utf8 = self._pieces.bytes_of(token)
        return self._name(token) if utf8 is None else utf8.decode(errors="replace")

    def control_name(self, token: int) -> str:
        """The text that stands for a control token; "" for every other token."""
        return self._name(token) if self._pieces.bytes_of(token) is None else ""

    def token_bytes(self, token: int) -> bytes | None:
        """The UTF-8 bytes that a token adds to a text, maybe part of a character; None for control tokens."""
        return self._pieces.bytes_of(token)

    def added_token(self, name: str) -> int | None:
        """The id of an added token, control or not, by the text that stands for it whole; None where there is none."""
        return self._added.get(name)

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of `tokens`; special tokens are left out. Equals what a stream of them shows."""
        stream = self.stream()
        return "".join([stream.push(token) for token in tokens]) + stream.flush()

    def stream(self) -> StreamingDetokenizer:
        """A detokenizer for one answer."""
        return StreamingDetokenizer(self._pieces)

    def _ids(self, text: str, tokenizer: Tokenizer | None = None) -> list[int]:
        self.check_length(len(text))
        try:
            text.encode()
        except UnicodeEncodeError as problem:
            raise TextError(
                f"text must be Unicode characters, got half a surrogate pair: {problem}"
            ) from None
        ids: list[int] = (tokenizer or self._tokenizer).encode(text, add_special_tokens=False).ids
        return ids

    def _ids_of(self, text: str, written: Sequence[Written]) -> list[int]:
        """Tokens of text whose control tokens are those of `written` alone.

        A tokenizer for which control tokens are words reads the text with a fence in the place of each of these: cuts
        and spaces around them stay as they are.
        """
        fence = free_mark(text)
        fences = {token: f"{fence}{token}{fence}" for token in {each.token for each in written}}
        tokenizer = _without_control(self._tokenizer, fences)
        parts, at = [], 0
        for each in written:
            parts += [text[at : each.start], fences[each.token]]
            at = each.stop
        ids = self._ids("".join([*parts, text[at:]]), tokenizer)
        control = {tokenizer.token_to_id(name): token for token, name in fences.items()}
        return [control.get(token, token) for token in ids]

    def _with_bos(self, ids: list[int]) -> list[int]:
        """Exactly one begin-of-text token, also where the template writes its own."""
        if self._bos is None or ids[:1] == [self._bos]:
            return ids
        return [self._bos, *ids]

    def _name(self, token: int | None) -> str:
        return "" if token is None else self._tokenizer.id_to_token(token) or ""


def _longest(rules: Mapping[str, Any]) -> int:
    """Characters of the longest token. Those of a byte-level vocabulary stand for bytes, of which a text has more."""
    vocab = rules.get("model", {}).get("vocab") or ()
    names = vocab if isinstance(vocab, dict) else (piece for piece, _ in vocab)
    added = (entry["content"] for entry in rules.get("added_tokens") or ())
    return max(max(map(len, names), default=1), max(map(len, added), default=1))


class StreamingDetokenizer:
    """Text of one answer, token by token, at a cost that does not grow with the answer.

    Never shows half a character: bytes wait until they make one, and bytes that never can become U+FFFD.
    """

    def __init__(self, pieces: _Pieces) -> None:
        self._pieces = pieces
        self._utf8 = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._first = True  # no token that carries bytes has come yet
        self._strip = pieces.strip_start

    def push(self, token: int) -> str:
        """The text that `token` completes; empty while a character is incomplete, and for special tokens."""
        piece = self._pieces.bytes_of(token)
        if piece is None:
            return ""
        if self._first and self._pieces.drops_first_mark:
            piece = self._pieces.without_marks(token)
        self._first = False
        return self._stripped(self._utf8.decode(piece))

    def flush(self) -> str:
        """What is left at the end: U+FFFD for a character that never completed."""
        return self._stripped(self._utf8.decode(b"", final=True))

    def _stripped(self, text: str) -> str:
        while self._strip and text:
            if not text.startswith(" "):
                self._strip = 0
            else:
                text = text[1:]
                self._strip -= 1
        return text


class StopStrings:
    """Watches streamed text for stop strings, in whatever pieces the text arrives.

    The stop string that completes first ends the answer; of several that complete at the same character, the
    longest. It is not shown, nor is what follows it. A control token counts by its name, which is not shown either: a
    stop string may be in the text with the names, or in what is shown of it.
    """

    def __init__(self, stops: Sequence[str]) -> None:
        if len(stops) > MAX_STOP_STRINGS:
            raise TextError(f"at most {MAX_STOP_STRINGS} stop strings, got {len(stops)}")
        for stop in stops:
            if not 0 < len(stop) <= MAX_STOP_CHARACTERS:
                raise TextError(f"a stop string has 1 to {MAX_STOP_CHARACTERS} characters, got {len(stop)}")
        self._stops = tuple(stops)
        self._held: list[tuple[str, bool]] = []  # (character, whether it is shown)
        self._stopped = False
        self.completed = ""  # the stop string that ended the answer

    def push(self, text: str, control: str = "") -> tuple[str, bool]:
        """(what can be shown now, whether a stop string ended the answer).

        `control`: the name of a control token that came behind `text`.
        """
        if self._stopped:
            return "", True
        if not self._stops:
            return text, False
        spelled = [*self._held, *((each, True) for each in text), *((each, False) for each in control)]
        shown = [at for at, (_, is_shown) in enumerate(spelled) if is_shown]
        views = [range(len(spelled)), shown] if len(shown) < len(spelled) else [shown]
        found: list[tuple[int, int, str]] = []  # (end, begin) of stop strings, places in `spelled`
        hold = len(spelled)
        for view in views:
            seen = "".join(spelled[at][0] for at in view)
            for stop in self._stops:
                if (place := seen.find(stop)) >= 0:
                    found.append((view[place + len(stop) - 1], view[place], stop))
                elif keep := _overlap(seen, stop):
                    hold = min(hold, view[len(view) - keep])
        self._stopped = bool(found)
        _, cut, self.completed = min(found) if found else (0, hold, "")
        self._held = [] if found else spelled[cut:]
        return _shown(spelled[:cut]), self._stopped

    def flush(self) -> str:
        """What was held back, when the answer ends without completing a stop string."""
        held, self._held = self._held, []
        return _shown(held)


class _Pieces:
    """The bytes of each token, by the rules of tokenizer.json's decoder: byte-level BPE or SentencePiece."""

    def __init__(self, tokenizer: Tokenizer, rules: dict[str, Any]) -> None:
        self._tokenizer = tokenizer
        self._special = {entry["id"] for entry in rules.get("added_tokens") or () if entry.get("special")}
        self._cache: dict[int, bytes | None] = {}
        self._byte_level = False
        self._byte_fallback = False
        self._spaces: list[tuple[str, str]] = []
        self.strip_start = 0
        self.drops_first_mark = False
        decoder = rules.get("decoder") or {"type": "missing"}
        for part in decoder["decoders"] if decoder["type"] == "Sequence" else [decoder]:
            self._add_rule(part)

    def _add_rule(self, part: dict[str, Any]) -> None:
        match part:
            case {"type": "ByteLevel"}:
                self._byte_level = True
            case {"type": "ByteFallback"}:
                self._byte_fallback = True
            case {"type": "Fuse"}:
                pass
            case {"type": "Replace", "pattern": {"String": str(old)}, "content": str(new)}:
                self._spaces.append((old, new))
            case {"type": "Strip", "content": " ", "start": int(start), "stop": 0}:
                self.strip_start = start
            case {"type": "Metaspace", "replacement": str(mark)}:
                self._spaces.append((mark, " "))
                self.drops_first_mark = part.get("prepend_scheme", "always") != "never"
            case _:
                raise TextError(
                    "expected a tokenizer whose decoder is ByteLevel, or made of Metaspace, Replace, "
                    f"ByteFallback, Fuse and Strip; got {part.get('type')!r}"
                )

    def bytes_of(self, token: int) -> bytes | None:
        """UTF-8 bytes of `token`, maybe part of a character; None for special and unknown tokens."""
        if token not in self._cache:
            self._cache[token] = self._look_up(token)
        return self._cache[token]

    def without_marks(self, token: int) -> bytes:
        """The first token of a Metaspace text: its word-start marks are not spaces."""
        name = str(self._tokenizer.id_to_token(token))
        for mark, _ in self._spaces:
            name = name.replace(mark, "")
        return name.encode()

    def _look_up(self, token: int) -> bytes | None:
        name = self._tokenizer.id_to_token(token) if 0 <= token < 2**32 else None
        if name is None or token in self._special:
            return None
        if self._byte_level:
            values = [_BYTE_OF.get(character) for character in name]
            known = [value for value in values if value is not None]
            return bytes(known) if len(known) == len(values) else name.encode()
        if self._byte_fallback and len(name) == 6 and name.startswith("<0x") and name.endswith(">"):
            try:
                return bytes([int(name[3:5], 16)])
            except ValueError:
                pass
        for old, new in self._spaces:
            name = name.replace(old, new)
        return name.encode()


def _with_control(rules: dict[str, Any], source: TokenizerSource, sight: Sight | None) -> bool:
    """Makes the tokens that begin a text, end an answer or hold a picture's place control tokens, whatever the file
    says. Returns whether that changed the rules.
    """
    known = {source.bos_token, *source.end_tokens, *((sight.token,) if sight is not None else ())}
    others = [
        entry
        for entry in rules.get("added_tokens") or ()
        if entry["id"] in known and not entry.get("special")
    ]
    for entry in others:
        entry["special"] = True
    return bool(others)


def _without_control(tokenizer: Tokenizer, fences: Mapping[int, str] = MappingProxyType({})) -> Tokenizer:
    """The same tokenizer, which shares the vocabulary, for text in which control tokens are words.

    `fences`: names that stand for control tokens in that text, each cut out as its token would be.
    """
    words = Tokenizer(tokenizer.model)
    if tokenizer.normalizer is not None:
        words.normalizer = tokenizer.normalizer
    if tokenizer.pre_tokenizer is not None:
        words.pre_tokenizer = tokenizer.pre_tokenizer
    added = tokenizer.get_added_tokens_decoder()
    words.add_tokens([added[token] for token in sorted(added)])
    for token, name in fences.items():
        like = added[token]
        words.add_tokens(
            [
                AddedToken(
                    name,
                    single_word=like.single_word,
                    lstrip=like.lstrip,
                    rstrip=like.rstrip,
                    normalized=like.normalized,
                    special=False,
                )
            ]
        )
    words.encode_special_tokens = True
    return words


def _byte_characters() -> dict[str, int]:
    """GPT-2's spelling of bytes as characters: printable ones are themselves, the rest U+0100 and on."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in set(shown)]
    return {chr(byte): byte for byte in shown} | {chr(256 + place): byte for place, byte in enumerate(hidden)}


_BYTE_OF: Final = _byte_characters()


def _shown(spelled: Sequence[tuple[str, bool]]) -> str:
    return "".join(character for character, is_shown in spelled if is_shown)


def _overlap(text: str, stop: str) -> int:
    """Length of the longest end of `text` that is a beginning of `stop`, and not all of it."""
    for length in range(min(len(stop) - 1, len(text)), 0, -1):
        if text.endswith(stop[:length]):
            return length
    return 0


def _today() -> date:
    return datetime.now(UTC).date()


def _line(problem: BaseException) -> str:
    return " ".join(str(problem).split())[:300]


@dataclass(frozen=True, slots=True)
class TextFile:
    """Where a stored model's tokenizer.json is, and what else makes its Text: it travels to other processes."""

    tokenizer: Path
    chat_template: str | None
    bos_token: int | None
    end_tokens: tuple[int, ...]
    add_bos: bool
    sight: Sight | None = None

    def read(self) -> Text:
        """Reads the tokenizer and compiles the chat template."""
        return Text(
            TokenizerSource(
                tokenizer_json=self.tokenizer.read_bytes(),
                chat_template=self.chat_template,
                bos_token=self.bos_token,
                end_tokens=self.end_tokens,
                add_bos=self.add_bos,
            ),
            self.sight,
        )


def text_file(store: Store, manifest: Manifest) -> TextFile:
    """The tokenizer and chat template of a stored model, not read yet."""
    return TextFile(
        store.blob_path(manifest.tokenizer.sha256),
        manifest.chat_template,
        manifest.bos_token,
        manifest.end_tokens,
        manifest.add_bos,
        manifest.sight,
    )


def text_of(store: Store, manifest: Manifest) -> Text:
    """The tokenizer and chat template of a stored model."""
    return text_file(store, manifest).read()
