"""Logs on disk that tests write at random, and what a damaged one may be read as."""

from __future__ import annotations

import random
from collections.abc import Iterator

from peer.consensus.events import (
    Config,
    Entry,
    Persist,
    Server,
    Snapshot,
    StoreSnapshot,
)
from peer.storage.log_store import FileStore, MemoryStore

Step = Persist | StoreSnapshot


def entry(index: int, term: int = 1, data: bytes | None = None) -> Entry:
    return Entry(index, term, "command", f"entry {index} of {term}".encode() if data is None else data)


def persist(term: int, vote: str, *entries: Entry, truncate_from: int = 0) -> Persist:
    return Persist(0, term, vote, entries, truncate_from)


def snapshot(index: int, term: int, first: int, last: int, data: bytes = b"state") -> StoreSnapshot:
    config = Config((Server("pa", 7, True), Server("pb", 2**53 - 1, False)))
    return StoreSnapshot(0, Snapshot(index, term, config, data), first, last)


def do(store: FileStore | MemoryStore, step: Step) -> None:
    if isinstance(step, Persist):
        store.persist(step)
    else:
        store.store_snapshot(step)


def random_steps(seed: int, count: int) -> Iterator[Step]:
    """Steps that follow from one another, as a core would ask for them."""
    rng = random.Random(seed)
    first, last, base, term, vote = 1, 0, 0, 1, ""
    for _ in range(count):
        if rng.random() < 0.1:
            term, vote = term + 1, rng.choice(("", "pa", "pb"))
        if rng.random() < 0.05 and last > base:
            base = rng.randint(base + 1, last)
            first = rng.randint(first, base + 1)
            yield snapshot(base, term, first, last, rng.randbytes(rng.randrange(3000)))
            continue
        cut = rng.randint(base + 1, last) if rng.random() < 0.1 and last > base else 0
        if cut:
            last = cut - 1
        entries = [
            entry(last + 1 + more, term, rng.randbytes(rng.randrange(700)))
            for more in range(rng.randrange(4))
        ]
        last += len(entries)
        yield persist(term, vote, *entries, truncate_from=cut)
