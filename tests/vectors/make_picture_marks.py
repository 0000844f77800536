"""Writes picture_marks.json: how messages say that pictures were asked with, for both languages."""

from __future__ import annotations

from tracing import beside, shown_fields, written

from peer.conversation.picture_marks import Marked, PictureMark, marked_text, told_text, unmarked_text

PATH = beside(__file__, "picture_marks.json")
CAT, DOG = "a" * 64, "0123456789abcdef" * 4
SAID = (
    Marked((), "hello"),
    Marked((PictureMark(CAT, "a cat"),), "What is it?"),
    Marked(
        (
            PictureMark(CAT, ""),
            PictureMark(DOG, "[a]\ndog \u2003\ufeff]("),
        ),
        "Which is older?\nSay it.",
    ),
    Marked((PictureMark(CAT, "\U0001f408" * 230),), ""),
    Marked(tuple(PictureMark(CAT, str(number)) for number in range(16)), "x"),
)
TEXTS = (
    *map(marked_text, SAID),
    f"words ![a]({CAT})",
    f"words\n![a](picture:{CAT})\n",
    f"![a](picture:{CAT})",
    f"![a](picture:{CAT[:-1]})\nshort",
    f"![a](picture:{CAT.upper()})\nupper",
    f"![{'x' * 201}](picture:{CAT})\nlong",
    f"![a](picture:{CAT})\n" * 17 + "more than may be",
    f"![a](picture:{CAT})\n\n![b](picture:{DOG})\nafter a line",
    "",
)


def text() -> str:
    about = (
        "`said`: pictures and words of a message, and its text. `read`: a text, its pictures and words, and what a "
        "model reads that is not shown them."
    )
    said = [{**shown_fields(each), "pictures": _pictures(each), "text": marked_text(each)} for each in SAID]
    read = [
        {"text": text, "words": unmarked_text(text).words, "told": told_text(text)}
        | {"pictures": _pictures(unmarked_text(text))}
        for text in TEXTS
    ]
    return written(about, {"said": said, "read": read})


def _pictures(marked: Marked) -> list[dict[str, str]]:
    return [shown_fields(each) for each in marked.pictures]


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
