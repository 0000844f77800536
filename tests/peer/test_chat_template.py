"""Chat templates: what published ones use works, what a hostile one tries ends in one clear line."""

from __future__ import annotations

from datetime import date

import pytest

from peer.chat_template import MAX_TEMPLATE_CHARACTERS, ChatTemplate, ChatTemplateError, Message

TALK = [Message("user", "hi <b>"), Message("assistant", "yo")]

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def render(source: str, today: date | None = None) -> str:
    return ChatTemplate(source, bos_token="<s>", eos_token="</s>", turns=20_000).render(TALK, today=today)


@pytest.mark.parametrize(
    ("source", "wanted"),
    [
        (
            CHATML,
            "<|im_start|>user\nhi <b><|im_end|>\n<|im_start|>assistant\nyo<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        ("{{ bos_token ~ messages[0].content | trim ~ eos_token }}", "<s>hi <b></s>"),
        ("  {% if true %}\na\n  {% endif %}\nb", "a\nb"),
        ("{{ messages[0] | tojson }}", '{"role": "user", "content": "hi <b>"}'),
        ("{{ {'b': 'é', 'a': 1} | tojson(indent=1, sort_keys=true) }}", '{\n "a": 1,\n "b": "é"\n}'),
        ("{% generation %}words{% endgeneration %}!", "words!"),
        ("{% for i in [1, 2, 3] %}{% if i == 2 %}{% continue %}{% endif %}{{ i }}{% endfor %}", "13"),
        (
            "{% set n = namespace(i=0) %}{% for m in messages %}{% set n.i = n.i + 1 %}{% endfor %}{{ n.i }}",
            "2",
        ),
        (
            "{% macro f(m) %}[{{ m.role }}]{% endmacro %}{% for m in messages %}{{ f(m) }}{% endfor %}",
            "[user][assistant]",
        ),
        ("{{ messages[::-1] | map(attribute='role') | join(', ') }}", "assistant, user"),
        ("{{ messages | selectattr('role', 'equalto', 'user') | list | length }}", "1"),
        ("{{ 'a-b'.replace('-', '+') }}{{ 'a,b'.split(',')[-1].upper() }}{{ 'x{}'.format(1) }}", "a+bBx1"),
        ("{{ strftime_now('%d') if strftime_now is defined else 'no date' }}", "no date"),
        ("{% for i in range(3) if i %}{{ loop.index }}{% endfor %}{{ none }}{{ 2 ** 10 }}", "12None1024"),
        ("{% set x %}{% for i in range(2) %}ab{% endfor %}{% endset %}{{ x | replace('b', 'c') }}", "acac"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
    ],
)
def test_what_published_templates_use(source: str, wanted: str) -> None:
    assert render(source) == wanted


def test_the_date_is_the_one_passed_in() -> None:
    assert render("{{ strftime_now('%Y-%m-%d') }}", date(2026, 1, 2)) == "2026-01-02"


def test_an_answer_that_goes_on_has_no_generation_prompt() -> None:
    template = ChatTemplate(CHATML, bos_token="", eos_token="")
    assert template.render(TALK, answer=False).endswith("yo<|im_end|>\n")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{% if %}", "does not compile"),
        ("{{" * 2000, "does not compile"),
        ("{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}", "does not compile"),
        ("x" * (MAX_TEMPLATE_CHARACTERS + 1), "characters"),
        ("{{ raise_exception('roles must alternate') }}", "refuses these messages: roles must alternate"),
        ("{{ missing() }}", "'missing' is undefined"),
        ("{{ missing.field }}", "'missing' is undefined"),
        ("{% include 'other' %}", "failed"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{% for i in range(9999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}", "turns of loops"),
        (
            "{% for i in range(9999) if not range(9999) | select('odd') | list %}{% endfor %}",
            "turns of loops",
        ),
        ("{% for i in range(9999) recursive %}{{ loop(range(9)) }}{% endfor %}", "without end"),
        ("{% macro f(n) %}{{ f(n) }}{% endmacro %}{{ f(1) }}", "without end"),
        (
            "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
            "turns of loops",
        ),
        ("{{ 'a' * 10 ** 10 }}", "grew beyond"),
        ("{{ ['a' * 1000000] * 1000 }}", "grew beyond"),
        ("{{ (['a' * 1000000] * 1000) | join }}", "grew beyond"),
        ("{{ ''.join(['a' * 1000000] * 1000) }}", "grew beyond"),
        ("{{ ['a' * 1000000] * 1000 ~ '' }}", "grew beyond"),
        ("{{ (['a' * 1000000] * 1000) | string }}", "grew beyond"),
        ("{{ (['a' * 1000000] * 1000) | tojson }}", "grew beyond"),
        ("{{ 9 ** 9 ** 9 }}", "whole number"),
        (
            "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x ~ n.x %}{% endfor %}",
            "grew beyond",
        ),
        (
            "{% set n = namespace(x='a') %}{% for i in range(99) %}{% set n.x = n.x + n.x %}{% endfor %}",
            "grew beyond",
        ),
        (
            "{% set n = namespace(x='a') %}{% for i in [1] * 30 %}"
            "{% set n.x = n.x.replace('a', 'aa') %}{% endfor %}",
            "grew",
        ),
        ("{% for i in range(90000) %}{{ 'a' * 1000 }}{% endfor %}", "grew beyond"),
        ("{{ '%1000000000d' % 1 }}", "not available"),
        ("{{ '{:1000000000}'.format(1) }}", "not available"),
        ("{{ 'a'.center(1000000000) }}", "unsafe"),
        ("{{ 'a' | center(1000000000) }}", "No filter named 'center'"),
        ("{{ messages | tojson(indent=100000000) }}", "indents"),
        ("{{ range(100000000) | list }}", "Range too big"),
    ],
)
def test_a_template_that_fails_or_has_no_end_is_one_clear_line(source: str, told: str) -> None:
    with pytest.raises(ChatTemplateError) as caught:
        render(source)
    assert told in str(caught.value)
    assert "\n" not in str(caught.value)
    assert len(str(caught.value)) < 600


def test_the_budget_is_fresh_for_every_rendering() -> None:
    template = ChatTemplate("{% for i in range(900) %}{% endfor %}x", bos_token="", eos_token="", turns=1000)
    assert [template.render(TALK) for _ in range(4)] == ["x"] * 4
