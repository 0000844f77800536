"""How each named pre-tokenizer cuts text before byte-level BPE, as Hugging Face `tokenizers` objects.

The names are those GGUF files carry in `tokenizer.ggml.pre`; the patterns are those of the models' own
tokenizer.json.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tokenizers import Regex, normalizers, pre_tokenizers

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
WORD = r"[^\r\n\p{L}\p{N}]?\p{L}+"
SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n]*"
SPACES = r"\s*[\r\n]+|\s+(?!\S)|\s+"
GPT2_NO_DIGITS_RULE = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
CASED_WORD = rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+", rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*"
PATH_SYMBOLS = r" ?[^\s\p{L}\p{N}]+[\r\n/]*"
CJK = "[一-龥\u3040-ゟ゠-ヿ]+"
# cased letters as the model's own pattern lists them; by code point, because normalizing would change some
DEEPSEEK_LETTER_RANGES = (
    "41-5A 61-7A B5 C0-D6 D8-F6 F8-1BA 1BC-1BF 1C4-293 295-2AF 370-373 376 377 37B-37D 37F 386 "
    "388-38A 38C 38E-3A1 3A3-3F5 3F7-481 48A-52F 531-556 10A0-10C5 13A0-13F5 13F8-13FD 1C90-1CBA "
    "1CBD-1CBF 1D00-1D2B 1D6B-1D77 1D79-1D9A 1E00-1F15 1F18-1F1D 1F20-1F45 1F48-1F4D 1F50-1F57 1F59 "
    "1F5B 1F5D 1F5F-1F7D 1F80-1FB4 1FB6-1FBC 1FBE 1FC2-1FC4 1FC6-1FCC 1FD0-1FD3 1FD6-1FDB 1FE0-1FEC "
    "1FF2-1FF4 1FF6-1FFC 2102 2107 210A-2113 2115 2119-211D 2124 2126 2128 212A-212D 212F-2134 2139 "
    "213C-213F 2145-2149 214E 2183 2184 2C00-2C7B 2C7E-2CE4 2CEB-2CEE 2CF2 2CF3 A640-A66D A680-A69B "
    "A722-A76F A771-A787 A78B-A78E AB70-ABBF FB00-FB06 FB13-FB17 FF21-FF3A FF41-FF5A 10400-1044F "
    "104B0-104D3 104D8-104FB 10C80-10CB2 10CC0-10CF2 118A0-118DF 1E900-1E943 "
)
DEEPSEEK_LETTERS = "".join(
    "-".join(chr(int(end, 16)) for end in span.split("-")) for span in DEEPSEEK_LETTER_RANGES.split()
)
DEEPSEEK_HAN = "[一-龥ࠀ-一가-퟿]+"


@dataclass(frozen=True, slots=True)
class PreTokenizer:
    """`cuts`: patterns applied one after another to the pieces so far; each match and each gap is a piece."""

    cuts: tuple[str, ...]
    ignore_merges: bool = False  # a piece that is a whole token is taken as it is
    add_bos: bool = False  # what the model does when the file does not say
    nfc: bool = False  # text is put into Unicode normal form C first


GPT2 = PreTokenizer((GPT2_NO_DIGITS_RULE,))
SINGLE_DIGITS = PreTokenizer((r"\p{N}", GPT2_NO_DIGITS_RULE))
LLAMA3 = PreTokenizer((rf"{CONTRACTIONS}|{WORD}|\p{{N}}{{1,3}}|{SYMBOLS}|{SPACES}",), True, True)
DBRX = PreTokenizer(LLAMA3.cuts)
QWEN2 = PreTokenizer((rf"{CONTRACTIONS}|{WORD}|\p{{N}}|{SYMBOLS}|{SPACES}",), nfc=True)
STABLELM2 = PreTokenizer(QWEN2.cuts)
TEKKEN = PreTokenizer((rf"{CASED_WORD[0]}|{CASED_WORD[1]}|\p{{N}}|{PATH_SYMBOLS}|{SPACES}",), True, True)
GPT4O = PreTokenizer(
    (
        rf"{CASED_WORD[0]}{CONTRACTIONS}?|{CASED_WORD[1]}{CONTRACTIONS}?|\p{{N}}{{1,3}}|{PATH_SYMBOLS}|{SPACES}",
    )
)
DEEPSEEK_LLM = PreTokenizer(
    (
        r"[\r\n]",
        rf"\s?[{DEEPSEEK_LETTERS}]+",
        r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+",
        r"\s+$",
        DEEPSEEK_HAN,
        r"\p{N}+",
    )
)
DEEPSEEK_CODER = PreTokenizer((r"[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", DEEPSEEK_HAN, r"\p{N}"))
DEEPSEEK_V3 = PreTokenizer(
    (
        r"\p{N}{1,3}",
        CJK,
        r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+"
        rf"| ?[\p{{P}}\p{{S}}]+[\r\n]*|{SPACES}",
    )
)
FALCON = PreTokenizer((r"[\p{P}\$\+<=>\^~\|`]+", GPT2_NO_DIGITS_RULE, r"[0-9][0-9][0-9]"))
DEFAULT = PreTokenizer((r"[\p{P}\$\+<=>\^~\|]+", GPT2_NO_DIGITS_RULE, r"\p{N}+", r"[0-9][0-9][0-9]"))
SEED_CODER = PreTokenizer((rf"{CONTRACTIONS}|{WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|{SPACES}",))
BAILING = PreTokenizer(
    (rf"'(?i:[sdmt]|ll|ve|re)|{WORD}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+",)
)

PRE_TOKENIZERS: Mapping[str, PreTokenizer] = {
    "default": DEFAULT,
    "gpt-2": GPT2,
    "phi-2": GPT2,
    "mpt": GPT2,
    "olmo": GPT2,
    "jais": GPT2,
    "gigachat": GPT2,
    "a.x-4.0": GPT2,
    "mellum": GPT2,
    "exaone4": GPT2,
    "trillion": GPT2,
    "granite-docling": GPT2,
    "smollm": SINGLE_DIGITS,
    "starcoder": SINGLE_DIGITS,
    "refact": SINGLE_DIGITS,
    "command-r": SINGLE_DIGITS,
    "codeshell": SINGLE_DIGITS,
    "exaone": SINGLE_DIGITS,
    "minerva-7b": SINGLE_DIGITS,
    "mellum2": SINGLE_DIGITS,
    "llama-bpe": LLAMA3,
    "llama3": LLAMA3,
    "llama-v3": LLAMA3,
    "falcon3": LLAMA3,
    "falcon-h1": LLAMA3,
    "pixtral": LLAMA3,
    "midm-2.0": LLAMA3,
    "lfm2": LLAMA3,
    "dbrx": DBRX,
    "smaug-bpe": DBRX,
    "glm4": DBRX,
    "chatglm-bpe": DBRX,
    "qwen2": QWEN2,
    "deepseek-r1-qwen": QWEN2,
    "kormo": QWEN2,
    "megrez": QWEN2,
    "stablelm2": STABLELM2,
    "hunyuan": STABLELM2,
    "grok-2": STABLELM2,
    "solar-open": STABLELM2,
    "tekken": TEKKEN,
    "gpt-4o": GPT4O,
    "llama4": GPT4O,
    "kanana2": GPT4O,
    "deepseek-llm": DEEPSEEK_LLM,
    "deepseek-coder": DEEPSEEK_CODER,
    "deepseek-v3": DEEPSEEK_V3,
    "hunyuan-dense": DEEPSEEK_V3,
    "joyai-llm": DEEPSEEK_V3,
    "falcon": FALCON,
    "seed-coder": SEED_CODER,
    "bailingmoe": BAILING,
    "bailingmoe2": BAILING,
    "llada-moe": BAILING,
}


def pre_tokenizer(kind: PreTokenizer) -> pre_tokenizers.PreTokenizer:
    """The cuts in order, then bytes as printable characters."""
    steps: list[pre_tokenizers.PreTokenizer] = []
    use_regex = False
    for cut in kind.cuts:
        if cut == r"\p{N}":
            steps.append(pre_tokenizers.Digits(individual_digits=True))
        elif cut == GPT2_NO_DIGITS_RULE and cut == kind.cuts[-1]:
            use_regex = True  # ByteLevel's own pattern is this one
        else:
            steps.append(pre_tokenizers.Split(Regex(cut), "isolated"))
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=use_regex))
    return pre_tokenizers.Sequence(steps) if len(steps) > 1 else steps[0]


def normalizer(kind: PreTokenizer) -> normalizers.Normalizer | None:
    """NFC where the model's own tokenizer has it."""
    return normalizers.NFC() if kind.nfc else None
