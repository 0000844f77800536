"""`shoal embed`, `shoal rerank` and `shoal classify`: what models of texts that a mesh offers make of them."""

from __future__ import annotations

import argparse
import json
import sys
from contextlib import AsyncExitStack, suppress
from pathlib import Path

import numpy as np

from peer.cli.chat import asker
from peer.errors import BadCommand
from peer.gateway.rerank_requests import ranked
from peer.launch.counting import counting
from peer.launch.terminal import interrupts, reporting, say, write
from peer.member.text_models import embeddings, text_classes, text_scores
from peer.session.evidence import Floats


async def embed(args: argparse.Namespace) -> int:
    """Prints or writes the vectors. Ctrl-C leaves no file."""
    texts = _texts(args)
    if args.out is not None and args.out.suffix != ".npy":
        raise BadCommand(f"--out {args.out}: the name of a .npy file expected")
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            with reporting() as report:
                mesh = await stack.enter_async_context(asker(args, ctrl, report=report))
            with ctrl.cancelling(), counting("embeddings", len(texts), 0) as advance:
                vectors = await embeddings(mesh, texts, args.model, advance)
    if args.out is not None:
        _keep(args.out, vectors)
        say(f"{len(texts)} vectors of {vectors.shape[1]} numbers in {args.out}")
        return 0
    for text, vector in zip(texts, vectors, strict=True):
        write(json.dumps({"text": text, "embedding": vector.tolist()}) + "\n")
    return 0


async def rerank(args: argparse.Namespace) -> int:
    """Prints a line of JSON for each document, the best first."""
    texts = _texts(args)
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            with reporting() as report:
                mesh = await stack.enter_async_context(asker(args, ctrl, report=report))
            with ctrl.cancelling(), counting("pairs", len(texts), 0) as advance:
                scores = await text_scores(mesh, args.query, texts, args.model, advance)
    for place in ranked(scores)[: args.top]:
        line = {"index": place, "score": float(scores[place]), "text": texts[place]}
        write(json.dumps(line, ensure_ascii=False) + "\n")
    return 0


async def classify(args: argparse.Namespace) -> int:
    """Prints a line of JSON for each text with its labels, the best first."""
    texts = _texts(args)
    with interrupts() as ctrl:
        async with AsyncExitStack() as stack:
            with reporting() as report:
                mesh = await stack.enter_async_context(asker(args, ctrl, report=report))
            with ctrl.cancelling(), counting("texts", len(texts), 0) as advance:
                found = await text_classes(mesh, texts, args.model, advance)
    for text, labels in zip(texts, found, strict=True):
        best = dict(list(labels.items())[: args.top])
        write(json.dumps({"text": text, "labels": best}, ensure_ascii=False) + "\n")
    return 0


def _texts(args: argparse.Namespace) -> list[str]:
    """The texts of the command line, or of the file that it names. Raises BadCommand."""
    if bool(args.texts) == (args.file is not None):
        raise BadCommand("give texts, or --file with a text a line, and not both")
    if args.file is None:
        return list(args.texts)
    try:
        content = sys.stdin.buffer.read() if args.file == "-" else Path(args.file).read_bytes()
        lines = content.decode("utf-8-sig").splitlines()
    except OSError as error:
        raise BadCommand(f"--file {args.file}: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadCommand(f"--file {args.file}: UTF-8 expected, byte {error.start} is none") from None
    texts = [line for line in lines if line.strip()]
    if not texts:
        raise BadCommand(f"--file {args.file} has no text")
    return texts


def _keep(file: Path, vectors: Floats) -> None:
    """The whole file or none."""
    part = file.with_name(f".{file.name}.part")
    try:
        with part.open("wb") as made:
            np.save(made, vectors)
        part.replace(file)
    except OSError as error:
        raise BadCommand(f"--out {file}: {error.strerror}") from None
    finally:
        with suppress(OSError):
            part.unlink()
