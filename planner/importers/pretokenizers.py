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
DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼι"
    "ῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
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
