"""A small model whose answers are written down: which token follows which, whatever came before."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

from planner.model.sources import TokenizerSource
from tests.peer.made_up_models import MadeUpModel, small_architecture

HIDDEN = 256  # so wide that random directions are nearly at right angles
SHARE = 40.0  # of a follower's logit; what is not written down has less than 10
END = "<|im_end|>"


def scripted_model(
    name: str,
    template: str,
    control: Sequence[str],
    user: Sequence[str],
    follows: Mapping[bytes, Sequence[tuple[bytes, float]]],
) -> MadeUpModel:
    """`follows`: a token's text to those that may come next, each with its part of SHARE. Texts that are no names of
    `control` or `user` defined tokens are tokens of their own, or bytes.
    """
    spelled = dict(zip(range(256), _byte_characters(), strict=True))
    added = [END, *control, *user]
    vocab = {spelled[byte]: byte for byte in range(256)}
    texts = dict.fromkeys(
        text for first, then in follows.items() for text in (first, *(each for each, _ in then))
    )
    for text in texts:
        if text.decode(errors="replace") not in added:
            vocab.setdefault("".join(spelled[byte] for byte in text), len(vocab))
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken(each, special=each not in user, normalized=False) for each in added])

    def token(text: bytes) -> int:
        known = text.decode(errors="replace")
        found = tokenizer.token_to_id(known if known in added else "".join(spelled[byte] for byte in text))
        assert found is not None
        return found

    size = tokenizer.get_vocab_size()
    rng = np.random.default_rng(1)
    embedding = rng.standard_normal((size, HIDDEN)).astype(np.float32)
    embedding /= np.linalg.norm(embedding, axis=1, keepdims=True)
    head = np.zeros((size, HIDDEN), np.float32)
    for first, then in follows.items():
        for text, part in then:
            head[token(text)] += embedding[token(first)] * np.float32(part * SHARE / np.sqrt(HIDDEN))
    source = TokenizerSource(tokenizer.to_str().encode(), template, None, (token(END.encode()),), False)
    architecture = small_architecture(hidden=HIDDEN, blocks=1, vocab=size, tied_embedding=False)
    tensors = {
        "embed.weight": embedding,
        "head.weight": head,
        "head.norm": np.ones(HIDDEN, np.float32),
        "attn.0.o": np.zeros((HIDDEN, architecture.heads * architecture.head_size), np.float32),
        "ffn.0.down": np.zeros((HIDDEN, architecture.ffn), np.float32),
    }
    return MadeUpModel(architecture, tensors, name, source)


def _byte_characters() -> list[str]:
    """GPT-2's spelling of bytes as characters."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = iter(range(256, 512))
    return [chr(byte) if byte in shown else chr(next(hidden)) for byte in range(256)]
