"""Chat templates: what published ones use works, what a hostile one tries ends in one clear line."""

from __future__ import annotations

import contextlib
import json
from datetime import date
from pathlib import Path

import pytest
from jinja2.sandbox import ImmutableSandboxedEnvironment

from peer.model.chat_template import (
    MAX_TEMPLATE_CHARACTERS,
    ChatTemplate,
    ChatTemplateError,
    Message,
    not_in_tabs,
)

TALK = [Message("user", "hi <b>"), Message("assistant", "yo")]

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content']"
    " + '<|im_end|>' + '\n'}}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


TODAY = date(2026, 1, 2)


def render(source: str, today: date = TODAY) -> str:
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
        ("{{ strftime_now('%d') if strftime_now is defined else 'no date' }}", "02"),
        ("{% for i in range(3) if i %}{{ loop.index }}{% endfor %}{{ none }}{{ 2 ** 10 }}", "12None1024"),
        ("{% set x %}{% for i in range(2) %}ab{% endfor %}{% endset %}{{ x | replace('b', 'c') }}", "acac"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
    ],
)
def test_what_published_templates_use(source: str, wanted: str) -> None:
    assert render(source) == wanted


def test_the_date_is_the_one_passed_in() -> None:
    assert render("{{ strftime_now('%Y-%m-%d') }}", date(2025, 3, 4)) == "2025-03-04"


def test_an_answer_that_goes_on_has_no_generation_prompt() -> None:
    template = ChatTemplate(CHATML, bos_token="", eos_token="")
    assert template.render(TALK, today=TODAY, answer=False).endswith("yo<|im_end|>\n")


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
        ("{{ '%1000000000d' % 1 }}", "three digits of width"),
        ("{{ '%*d' % (1000000000, 1) }}", "three digits of width"),
        ("{{ '%1000000000d' | format(1) }}", "three digits of width"),
        ("{{ '{:1000000000}'.format(1) }}", "three digits of width"),
        ("{{ '{:{}}'.format(1, 1000000000) }}", "three digits of width"),
        ("{{ 'a'.center(1000000000) }}", "grew beyond"),
        ("{{ 'a'.zfill(1000000000) }}", "grew beyond"),
        ("{{ 'a' | center(1000000000) }}", "grew beyond"),
        ("{{ [1] | batch(1000000000, 1) | list }}", "grew beyond"),
        ("{{ [1] | slice(1000000000) | list }}", "grew beyond"),
        ("{{ [[1], [2]] | sum(start=[]) }}", "sum adds numbers"),
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
    assert [template.render(TALK, today=TODAY) for _ in range(4)] == ["x"] * 4


# The parts of well-known templates that use more of Jinja than a loop: what they do, in fewer words.
KNOWN = {
    "Llama 3": (
        "{{- bos_token }}{%- if not date_string is defined %}{%- if strftime_now is defined %}"
        "{%- set date_string = strftime_now('%d %b %Y') %}{%- else %}{%- set date_string = '26 Jul 2024' %}{%- endif %}"
        "{%- endif %}{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}"
        "{%- set messages = messages[1:] %}{%- else %}{%- set system_message = '' %}{%- endif %}"
        "{{- '<|start_header_id|>system<|end_header_id|>\n\n' }}{{- 'Today Date: ' + date_string + '\n\n' }}"
        "{{- system_message }}{{- '<|eot_id|>' }}{%- for message in messages %}"
        "{%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}"
        "{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim "
        "+ '<|eot_id|>' }}"
        "{%- elif 'tool_calls' in message %}{%- if not message.tool_calls|length == 1 %}"
        "{{- raise_exception('This model only supports single tool-calls at once!') }}{%- endif %}{%- endif %}"
        "{%- endfor %}{%- if add_generation_prompt %}"
        "{{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{%- endif %}"
    ),
    "Qwen3": (
        "{%- if messages[0].role == 'system' %}{{- '<|im_start|>system\n' + messages[0].content + '<|im_end|>\n' }}"
        "{%- endif %}{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}"
        "{%- for message in messages[::-1] %}{%- set index = (messages|length - 1) - loop.index0 %}"
        "{%- if ns.multi_step_tool and message.role == 'user' and message.content is string and not"
        "(message.content.startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}"
        "{%- set ns.multi_step_tool = false %}{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}"
        "{%- for message in messages %}{%- if message.content is string %}{%- set content = message.content %}"
        "{%- else %}{%- set content = '' %}{%- endif %}"
        "{%- if (message.role == 'user') or (message.role == 'system' and not loop.first) %}"
        "{{- '<|im_start|>' + message.role + '\n' + content + '<|im_end|>' + '\n' }}"
        "{%- elif message.role == 'assistant' %}{%- set reasoning_content = '' %}"
        "{%- if message.reasoning_content is string %}{%- set reasoning_content = message.reasoning_content %}"
        "{%- else %}{%- if '</think>' in content %}"
        "{%- set reasoning_content = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}"
        "{%- set content = content.split('</think>')[-1].lstrip('\n') %}{%- endif %}{%- endif %}"
        "{%- if loop.index0 > ns.last_query_index %}{%- if loop.last or (not loop.last and reasoning_content) %}"
        "{{- '<|im_start|>' + message.role + '\n<think>\n' + reasoning_content.strip('\n') + '\n</think>\n\n' "
        "+ content.lstrip('\n') }}{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}"
        "{%- else %}{{- '<|im_start|>' + message.role + '\n' + content }}{%- endif %}{{- '<|im_end|>\n' }}{%- endif %}"
        "{%- endfor %}{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}"
        "{%- if enable_thinking is defined and enable_thinking is false %}{{- '<think>\n\n</think>\n\n' }}"
        "{%- endif %}{%- endif %}"
    ),
    "Mistral": (
        "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content'] %}"
        "{%- set loop_messages = messages[1:] %}{%- else %}{%- set loop_messages = messages %}{%- endif %}"
        "{%- set user_messages = loop_messages | selectattr('role', 'equalto', 'user') | list %}{{- bos_token }}"
        "{%- for message in loop_messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
        "{{- raise_exception('roles must alternate user/assistant/user/assistant/...') }}{%- endif %}"
        "{%- if message['role'] == 'user' %}{%- if loop.last and system_message is defined %}"
        "{{- '[INST] ' + system_message + '\n\n' + message['content'] + '[/INST]' }}{%- else %}"
        "{{- '[INST] ' + message['content'] + '[/INST]' }}{%- endif %}{%- elif message['role'] == 'assistant' %}"
        "{{- ' ' + message['content'] + eos_token}}{%- endif %}{%- endfor %}{{- user_messages | length }}"
    ),
}
LONGER = [
    Message("system", " Be brief. "),
    Message("user", "Hi\n"),
    Message("assistant", "<think>\nhm\n</think>\n\nHello"),
    Message("user", "Bye"),
]


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize("talk", [LONGER, LONGER[1:], LONGER[:2], LONGER[1:3]])
def test_bounds_do_not_change_what_known_templates_say(name: str, talk: list[Message]) -> None:
    """Rendered by Jinja alone, set up as transformers does, and within bounds: the same text."""
    plain = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
    turns = [{"role": message.role, "content": message.content} for message in talk]
    wanted = plain.from_string(KNOWN[name]).render(
        messages=turns,
        add_generation_prompt=True,
        bos_token="<s>",
        eos_token="</s>",
        strftime_now=TODAY.strftime,
    )
    assert ChatTemplate(KNOWN[name], bos_token="<s>", eos_token="</s>").render(talk, today=TODAY) == wanted
    assert talk[-1].content.strip() in wanted


@pytest.mark.parametrize("name", KNOWN)
@pytest.mark.parametrize(("turns", "characters"), [(1000, 1000), (10, 100_000)])
def test_a_long_conversation_is_within_the_bounds(name: str, turns: int, characters: int) -> None:
    talk = [Message(("user", "assistant")[turn % 2], "x" * characters) for turn in range(turns)]
    shown = ChatTemplate(KNOWN[name], bos_token="<s>", eos_token="</s>").render(talk, today=TODAY)
    assert shown.count("x" * characters) == turns


VECTORS = json.loads((Path(__file__).parents[2] / "vectors" / "templates.json").read_text(encoding="utf-8"))


def as_transformers_shows(source: str) -> str | None:
    template = ChatTemplate(source, bos_token="<s>", eos_token="</s>")
    return template.render_turns(VECTORS["messages"], today=date(*VECTORS["today"]))


@pytest.mark.parametrize(("source", "wanted"), VECTORS["rows"])
def test_the_prompt_is_that_of_transformers(source: str, wanted: str | None) -> None:
    if wanted is None:
        with pytest.raises(ChatTemplateError):
            as_transformers_shows(source)
    else:
        assert as_transformers_shows(source) == wanted
        assert not_in_tabs(source) is None


@pytest.mark.parametrize(("source", "wanted"), VECTORS["refused"])
def test_what_a_tab_refuses_is_known_beforehand(source: str, wanted: str | None) -> None:
    assert not_in_tabs(source) is not None
    with contextlib.suppress(ChatTemplateError):
        assert as_transformers_shows(source) == wanted


@pytest.mark.parametrize("name", KNOWN)
def test_a_tab_shows_what_known_templates_say(name: str) -> None:
    assert not_in_tabs(KNOWN[name]) is None


def test_tools_are_none_where_there_are_none() -> None:
    template = ChatTemplate(
        "{% if tools is not none %}{{ tools | length }}{% else %}-{% endif %}", bos_token="", eos_token=""
    )
    turns = [{"role": "user", "content": "x"}]
    shown = [template.render_turns(turns, tools, today=TODAY) for tools in (None, [], [{"type": "function"}])]
    assert shown == ["-", "-", "1"]
