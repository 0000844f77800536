"""The arguments of the gateway: of `shoal api`, and of members that have one beside."""

from __future__ import annotations

import argparse
from pathlib import Path

from peer.member.peer_options import port, positive

API_PORT = 8000
EMBEDDING_MODEL = "a sentence-transformers folder with a BERT encoder, hf:owner/repo, or all-minilm-l6-v2"
OPENAI_DEFAULTS = (
    "where a request leaves sampling out, temperature 1 and top_p 1 as at OpenAI [as the model's settings]"
)


def api_arguments(made: argparse.ArgumentParser) -> None:
    """Of `shoal api`."""
    made.add_argument(
        "--host", default="127.0.0.1", help="address to listen on [%(default)s: this machine only]"
    )
    made.add_argument("--port", type=port, default=API_PORT, help="[%(default)s] 0: any free one")
    made.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="programs must send this key; repeatable"
    )
    made.add_argument("--key-file", type=Path, metavar="FILE", help="more keys, one a line")
    made.add_argument(
        "--allow-origin",
        action="append",
        default=[],
        metavar="ORIGIN",
        help="scripts of these pages may ask, such as http://localhost:3000 [none]",
    )
    made.add_argument("--openai-defaults", action="store_true", help=OPENAI_DEFAULTS)
    made.add_argument(
        "--embedding-model",
        metavar="MODEL",
        help=f"make embeddings on this machine with this model, imported if need be: {EMBEDDING_MODEL} [none]",
    )
    made.add_argument(
        "--embedding-threads", type=positive, default=1, metavar="N", help="for that model [%(default)s]"
    )


def beside_arguments(made: argparse.ArgumentParser) -> None:
    """Of members that compute and have a gateway beside."""
    made.add_argument(
        "--api",
        type=port,
        nargs="?",
        const=API_PORT,
        metavar="PORT",
        help=f"serve OpenAI's API to programs of this machine, too [{API_PORT}]",
    )
    made.add_argument("--api-host", default="127.0.0.1", metavar="HOST", help="address of that [%(default)s]")
    made.add_argument("--api-key-file", type=Path, metavar="FILE", help="keys that programs must send")
    made.add_argument("--api-openai-defaults", action="store_true", help=OPENAI_DEFAULTS)
    made.add_argument(
        "--api-embedding-model",
        metavar="MODEL",
        help=f"make embeddings there with this model, whole on this machine: {EMBEDDING_MODEL} [none]",
    )
