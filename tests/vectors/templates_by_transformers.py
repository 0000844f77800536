"""Writes templates.json: what transformers makes of small chat templates, one idiom of published ones each.

Both languages must render the same, and Python must tell beforehand of those that a tab refuses. No test needs
transformers, which is not among our packages; the vectors are written again by an environment of its own:

    python3 -m venv /tmp/transformers && /tmp/transformers/bin/pip install transformers jinja2
    /tmp/transformers/bin/python tests/vectors/templates_by_transformers.py
"""

# ruff: noqa: E501
from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Any

PATH = Path(__file__).with_name("templates.json")
TODAY = datetime(2026, 3, 4)
MESSAGES = [
    {"role": "system", "content": " Be brief. "},
    {"role": "user", "content": "Hi"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nHello"},
    {"role": "user", "content": "naïve 😀"},
]
TOKENS = {"bos_token": "<s>", "eos_token": "</s>"}

TEMPLATES = [
    # what is there
    "{{ strftime_now('%d %b %Y') }}|{{ strftime_now('%Y-%m-%d, %A %B %j %H:%M') }}|{{ strftime_now('%-d/%-m/%y %p %%') }}",
    "{{ strftime_now(format='%Y') }}",
    "{% if strftime_now is defined %}{{ strftime_now('%Y') }}{% else %}2024{% endif %}",
    "{% if tools is not none %}T{% else %}-{% endif %}{% if tools is none %}-{% else %}T{% endif %}",
    "{% if tools is defined and tools is not none and tools | length > 0 %}T{% endif %}x{% if not tools is defined %}U{% endif %}",
    "{% if documents is not none %}D{% else %}-{% endif %}{% if tools != none %}T{% endif %}{% if tools %}T{% endif %}",
    "{% if not tools is defined %}{% set tools = none %}{% endif %}{{ tools }}",
    "{{ eos_token }}{{ bos_token }}{{ pad_token }}x{% if add_generation_prompt %}A{% endif %}",
    "{% if enable_thinking is defined and enable_thinking is false %}N{% endif %}x",
    "{{ date_string if date_string is defined else 'none' }}",
    "{{ raise_exception('no') }}",
    "{{ nope | default('d') }}{{ '' | default('d', true) }}{{ nope | d }}|{{ none | default('x') }}",
    "{{ messages[0].nope }}x{{ messages[0]['nope'] }}y{{ messages[9] }}z",
    "{{ messages[0].nope.x }}",
    "{{ 'a' + nope }}",
    "{{ nope() }}",
    "{{ nope is defined and nope }}{{ nope is undefined }}{{ nope or 'x' }}{{ not nope }}",
    "{% for x in nope %}{{ x }}{% else %}none{% endfor %}{{ 'a' in nope }}{{ nope == nope }}{{ nope | length }}",
    # values as text
    "{{ true }}{{ True }}{{ none }}{{ None }}{{ false }}{{ 1.0 }}{{ 3 }}{{ 1e20 }}|{{ 1e15 }}|{{ 0.1 + 0.2 }}|{{ 1e-5 }}|{{ 0.0001 }}",
    "{{ [1, 'a', none, true, 1.5, [], {}] }}{{ {'a': 1, 'b': [true]} }}{{ (1, 2) }}{{ (1,) }}{{ () }}",
    "{{ [\"it's\", 'say \"x\"', 'both \\' and \"', 'line\\n\\t\\\\', 'é😀\\x00\\u200b'] }}",
    "{{ messages }}",
    "{{ messages[0].items() }}{{ messages[0].keys() }}{{ messages[0].values() }}",
    "{{ 1 ~ 'a' ~ none ~ true ~ 1.0 ~ [1] }}",
    "{{ 'a' ~ 1 + 2 }}",
    "{{ 3 | string + 'x' }}{{ [1, 'a'] | string }}{{ {'a': none} | string }}{{ true | string }}",
    # numbers
    "{{ 7 // 2 }}{{ 7 / 2 }}{{ 7 % 2 }}{{ 2 ** 3 }}{{ 2 ** -1 }}{{ -7 // 2 }}{{ -7 % 3 }}{{ 7.5 // 2 }}{{ 4 / 2 }}",
    "{{ -3 | abs }}{{ -2 ** 2 }}{{ (-3) | abs }}{{ +3 }}{{ 2 ** 3 ** 2 }}{{ 1 + 2 * 3 - 4 }}{{ true + 1 }}",
    "{{ '7' | int + 1 }}{{ '1.5' | float }}{{ 'x' | int }}{{ 'x' | int(5) }}{{ '3.9' | int }}{{ ' 8 ' | int }}{{ 2.9 | int }}{{ -2.9 | int }}",
    "{{ 2.5 | round }}{{ 3.5 | round }}{{ 2.675 | round(2) }}{{ 1.25 | round(1) }}{{ 7 | round }}{{ 2.1 | round(0, 'ceil') }}{{ -2.5 | round }}",
    "{{ 1 / 0 }}",
    "{{ 1 < 2 < 3 }}{{ 1 < 3 < 2 }}{{ 1 == 1.0 }}{{ 1 == true }}{{ '1' == 1 }}{{ none == false }}{{ 'a' < 'b' }}{{ [1, 2] < [1, 3] }}",
    "{{ 1 < 'a' }}",
    "{{ [1] == [1] }}{{ {'a': 1} == {'a': 1} }}{{ (1, 2) == [1, 2] }}{{ messages[0] == messages[0] }}{{ [1] != [2] }}",
    # text
    "{% for m in messages %}{{ m.content.split('</think>')[-1].lstrip('\\n') }}|{% endfor %}",
    "{% set c = messages[2].content %}{{ c.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') }}",
    "{{ messages[0]['content'].rstrip() }}|{{ messages[0].content.strip() }}|{{ messages[0].content | trim }}|{{ '--a-' | trim('-') }}",
    "{{ messages[0].role.title() }}{{ messages[0].role | upper }}{{ 'abC dE' | capitalize }}{{ 'abC dE'.capitalize() }}",
    "{{ \"they're bill's\".title() }}{{ \"they're bill's x-ray (abc)\" | title }}{{ 'ABC' | lower }}{{ 'straße'.upper() }}",
    "{{ 'aXa'.replace('a', 'b') }}{{ 'aaa'.replace('a', 'b', 1) }}{{ 'aaa' | replace('a', 'b', 2) }}{{ 'ab'.replace('', '-') }}",
    "{{ 'abc'.startswith(('a', 'x')) }}{{ 'abc'.startswith('b') }}{{ 'abc'.endswith('bc') }}{{ 'abc'.startswith('b', 1) }}",
    "{{ 'x' in 'xyz' }}{{ 'role' in messages[0] }}{{ 'q' not in ['a'] }}{{ 'user' in messages[1].values() }}{{ 2 in [1, 2.0] }}",
    "{{ 1 in 'x' }}",
    "{{ 'a b  c'.split() }}{{ 'a,b,c'.split(',', 1) }}{{ ' a b c '.split(none, 1) }}{{ 'a b c'.rsplit(' ', 1) }}{{ ' a b c '.rsplit(none, 1) }}",
    "{{ 'a\\nb\\r\\nc\\n'.splitlines() }}{{ 'a:b:c'.partition(':')[2] }}{{ 'a:b:c'.rpartition(':') }}{{ 'ab'.partition(':') }}",
    "{{ 'abcb'.find('b') }}{{ 'abcb'.rfind('b') }}{{ '😀b'.find('b') }}{{ 'abc'.find('x') }}{{ 'abc'.index('c') }}{{ 'abab'.count('ab') }}",
    "{{ '7'.isdigit() }}{{ 'a'.isalpha() }}{{ ''.isdigit() }}{{ 'A'.isupper() }}{{ ' '.isspace() }}{{ 'a1'.isalnum() }}{{ 'aB'.islower() }}",
    "{{ 'abc'.removeprefix('a') }}{{ 'abc'.removesuffix('c') }}{{ 'abc'.removesuffix('x') }}",
    "{{ 'a'.ljust(3) }}|{{ 'a'.rjust(3, '.') }}|{{ '7'.zfill(3) }}|{{ '-7'.zfill(4) }}|{{ 'ab' | center(5) }}|{{ 'a'.center(4) }}|",
    "{{ ', '.join(['a', 'b']) }}{{ '-'.join('abc') }}",
    "{{ ','.join([1]) }}",
    "{{ messages[3].content | length }}{{ messages[3].content[6] }}{{ messages[3].content[-1:] }}{{ messages[3].content[::-1] }}",
    "{{ 'abcdef'[1:4] }}{{ 'abcdef'[::2] }}{{ 'abcdef'[-2:] }}{{ 'abc'[5:] }}{{ 'abc'[9] }}{{ 'abc' | first }}{{ 'abc' | last }}",
    "{{ '{} {}'.format(messages[0].role, 3) }}{{ '{a}{b!r}'.format(a=1, b='x') }}{{ '{1}{0}'.format(1, 2) }}{{ '{{}}'.format() }}",
    "{{ '{:s}'.format('a') }}{{ '{:>5}|{:<5}|{:^5}'.format('a', 'b', 'c') }}{{ '{:.2f}'.format(1.255) }}{{ '{:03d}'.format(7) }}{{ '{:d}'.format(3) }}",
    "{{ '%s-%d' % ('a', 3) }}{{ '%s' % 'x' }}{{ '%5.1f|%-4s|%03d%%' % (1.25, 'a', 7) }}{{ '%s' | format('a') }}{{ '%r' % ['x'] }}",
    "{{ '%s' % ('a', 'b') }}",
    "{{ 'a' * 3 }}{{ [1] * 2 }}{{ 'a' 'b' }}{{ 'abcdefghij' | truncate(5, true, '') }}|{{ 'a bc def ghi jkl' | truncate(9) }}",
    "{{ 'a\\nb\\n\\nc' | indent(2) }}|{{ 'a\\nb' | indent(2, true) }}|{{ 'a\\n\\nb' | indent(2, false, true) }}|{{ 'a\\n \\nb' | indent('> ') }}",
    "{{ 'a b, c' | wordcount }}{{ 'abc' | reverse }}{{ 'abc' | list }}{{ 'x' | upper | lower }}",
    "{{ '\\x41\\u00e9\\'\\\"\\\\' }}{{ \"it's\" }}",
    # lists and dicts
    "{% for m in messages[::-1] %}{{ m.role }}{% endfor %}{{ messages[1:] | length }}{{ messages[:-1] | length }}{{ messages[-1].content }}",
    "{{ messages | selectattr('role', 'equalto', 'user') | map(attribute='content') | join(',') }}",
    "{{ messages | rejectattr('role', 'equalto', 'system') | list | length }}{{ messages | selectattr('role', 'in', ['user']) | list | length }}",
    "{{ messages | selectattr('tool_calls', 'defined') | list }}{{ messages | map(attribute='role') | unique | join('+') }}",
    "{{ messages | map(attribute='name', default='x') | list }}{{ ['a'] | map('upper') | join }}{{ ['a-b'] | map('replace', '-', '+') | list }}",
    "{{ [0, 1, none, 2] | select | list }}{{ [1, 2, 3] | select('odd') | list }}{{ [1, 2, 3] | reject('gt', 2) | list }}",
    "{{ messages | join(', ', attribute='role') }}{{ [1, none, true] | join('-') }}{{ ['a', 'b'] | join }}",
    "{{ messages | first | tojson }}{{ (messages | last).role }}{{ [] | first }}{{ [] | last }}",
    "{{ [3, 1, 2] | sort }}{{ ['b', 'A', 'c'] | sort }}{{ ['b', 'A'] | sort(case_sensitive=true) }}{{ [1, 3] | sort(reverse=true) }}",
    "{{ messages | sort(attribute='role') | map(attribute='role') | list }}{{ [1, 3] | max }}{{ [3, 1] | min }}{{ [1, 2.5] | sum }}",
    "{% for g in messages | groupby('role') %}{{ g.grouper }}{{ g.list | length }};{% endfor %}{% for k, v in messages | groupby('role') %}{{ k }}{% endfor %}",
    "{% for b in [1, 2, 3] | batch(2) %}{{ b }}{% endfor %}{% for b in [1, 2, 3] | slice(2) %}{{ b }}{% endfor %}{% for b in [1] | batch(2, 'x') %}{{ b }}{% endfor %}",
    "{% for k, v in messages[0].items() %}{{ k }}={{ v }};{% endfor %}{% for k, v in messages[0] | items %}{{ k }}={{ v }};{% endfor %}",
    "{% for k, v in messages[0] | dictsort %}{{ k }}{% endfor %}{% for k, v in {'b': 1, 'a': 2} | dictsort(false, 'value') %}{{ k }}{% endfor %}",
    "{% for k in messages[0] %}{{ k }}{% endfor %}{{ messages[0] | length }}{{ messages[0] | list }}{{ messages[0].get('name', 'none') }}{{ messages[0].get('x') }}",
    "{{ {'items': 1}['items'] }}{{ {'a': {'b': [1, 2]}}.a.b[1] }}{{ {'a': 1}['a'] }}{{ {1: 'x'}[1] }}{{ [[1, 2]][0].1 }}",
    "{{ dict(a=1)['a'] }}{{ dict({'x': 1}, y=2) }}{{ range(3) | list }}{{ range(1, 9, 3) | list }}{{ range(3, 0, -1) | list }}",
    "{{ [1, 2] + [3] }}{{ (1,) + (2,) }}{{ [1, 2].index(2) }}{{ [1, 1].count(1) }}{{ ['a', 'b'][0] }}{{ ['a'][-1] }}",
    "{% set l = [] %}{% set _ = l.append(1) %}{{ l }}",
    "{% set d = {} %}{% set _ = d.update({'a': 1}) %}{{ d }}",
    "{% set l = [1] %}{{ l.pop() }}",
    "{{ [1] + 'a' }}",
    "{{ {'a': 1} + {'b': 2} }}",
    # json
    "{{ messages | tojson }}{{ messages[0] | tojson(indent=2) }}{{ [] | tojson(indent=2) }}{{ {'a': []} | tojson(indent=4) }}",
    "{{ messages[3] | tojson(ensure_ascii=True) }}{{ messages[0] | tojson(separators=(',', ':')) }}{{ {'b': 1, 'a': 2} | tojson(sort_keys=true) }}",
    "{{ [1.0, 1e20, true, none, 'a\"\\\\\\n\\x7f\\u2028<&>', (1, 2), {1: 2}] | tojson }}{{ 0.1 | tojson }}{{ 'x' | tojson | length }}",
    "{{ nope | tojson }}",
    "{{ {'a': 1} | tojson(indent=0) }}{{ [1, [2]] | tojson(indent=1) }}{{ [1] | tojson(true) }}",
    # statements
    "{% set ns = namespace(a=0, b=[]) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% set ns.b = ns.b + [m.role] %}{% endfor %}{{ ns.a }}{{ ns.b }}",
    "{% for m in messages %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.first }}{{ loop.last }}{{ loop.length }}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem.role if loop.previtem is defined }}<{{ loop.nextitem.role if not loop.last }}{{ loop.cycle('a', 'b') }}{% endfor %}",
    "{% for m in messages %}{{ loop.previtem }}{% endfor %}",
    "{% for m in messages if m.role == 'user' %}{{ loop.index }}{{ m.content }}{{ loop.last }}{% endfor %}{% for x in [] %}{% else %}e{% endfor %}",
    "{% for m in messages %}{% if loop.index == 3 %}{% break %}{% endif %}{% if m.role == 'system' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for a, b in [(1, 2), [3, 4]] %}{{ a }}{{ b }}{% endfor %}{% for a, (b, c) in [(1, (2, 3))] %}{{ c }}{% endfor %}{% set a, b = 1, 2 %}{{ b }}",
    "{% for x in [1, [2, [3]]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}{{ loop.depth }}{% endif %}{% endfor %}",
    "{% for x in [1, 1, 2] %}{{ loop.changed(x) }}{% endfor %}{% for i in range(2) %}{% for j in range(2) %}{{ loop.index }}{% endfor %}{{ loop.index }}{% endfor %}",
    "{% set x = 1 %}{% for i in range(2) %}{{ x }}{% set x = 5 %}{{ x }}{% endfor %}{{ x }}{% if true %}{% set y = 2 %}{% endif %}{{ y }}",
    "{% set messages = messages[1:] %}{{ messages | length }}{% set x %}abc{% endset %}{{ x }}{% set y | upper %}abc{% endset %}{{ y }}",
    "{% macro f(x, y=2) %}{{ x }}{{ y }}{% endmacro %}{{ f(1) }}{{ f(1, y=3) }}{{ f(x=7) }}{{ f() }}",
    "{% macro f(x) %}{{ x }}{% endmacro %}{{ f(1, 2) }}",
    "{% macro f() %}{{ varargs }}{{ kwargs }}{% endmacro %}{{ f(1, a=2) }}{% macro g(n) %}{{ n }}{% if n > 0 %}{{ g(n - 1) }}{% endif %}{% endmacro %}{{ g(3) }}",
    "{% macro f() %}<{{ caller() }}>{% endmacro %}{% call f() %}x{% endcall %}{% macro g() %}{{ caller(1) }}{% endmacro %}{% call(a) g() %}{{ a }}{% endcall %}",
    "{% set z = 1 %}{% macro f() %}{{ z }}{{ messages | length }}{% endmacro %}{{ f() }}{{ f() | length }}{% set t = f() %}{{ t }}",
    "{% filter upper %}abc{% endfilter %}{% filter trim | upper %} a {% endfilter %}{% with a = 1, b = 2 %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% raw %}{{ x }}{% if %}{% endraw %}{# c #}x{#- c -#} y{% generation %}g{% set q = 1 %}{% endgeneration %}{{ q }}",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.next() }}{% set j = joiner(',') %}{{ j() }}a{{ j() }}b",
    "{{ 'a' if false }}x{{ 'a' if true else 'b' }}{{ 'a' if false else 'b' if false else 'c' }}{{ (1 if false) is defined }}",
    "{{ messages[0] is mapping }}{{ messages is sequence }}{{ 'a' is string }}{{ messages is iterable }}{{ 1 is number }}{{ true is boolean }}{{ 1 is integer }}{{ 1.0 is float }}",
    "{{ messages[0] is sequence }}{{ messages[0] is iterable }}{{ none is iterable }}{{ true is number }}{{ true is integer }}{{ range is callable }}{{ 'a' is mapping }}",
    "{{ 'a' is in ['a'] }}{{ 1 is eq 1 }}{{ 2 is even }}{{ 3 is odd }}{{ none is sameas none }}{{ 4 is divisibleby 2 }}{{ 4 is divisibleby(3) }}{{ 'a' is lower }}{{ 1 is not none }}",
    "{{ true is true }}{{ 1 is true }}{{ false is false }}{{ 2 is gt 1 }}{{ 2 is ne 2 }}{{ not 1 is none }}{{ 1 is defined and 2 is defined }}",
    "{{ 1 and 2 }}{{ 0 or 'x' }}{{ '' or none }}{{ not '' }}{{ [] and 1 }}{{ not not 1 }}{{ 1 == 1 and 2 == 2 }}",
    "{{ messages[0].content is string and messages[0].content | length > 3 }}{{ 'a' ~ 'b' | upper }}{{ ('a' ~ 'b') | upper }}",
    "{{ messages[0]['role'] | attr('upper') is defined }}{{ messages[0] | attr('role') }}x",
    "{% set x = [1, '<'] | tojson | safe if true else 'y' %}{{ x }}{{ '<' ~ x }}{{ x + '>' }}{{ x is string }}{{ x | length }}",
    "{{ [none, none] | sort }}{{ [nope, nope] | sort | length }}{{ nope is callable }}{{ {nope: 1, 'a': 2}['a'] }}",
    "{{ (messages[0] | items)[1:] }}",
    "{{ '<a>' | e }}{{ '<a>' | safe }}{{ '\"' | escape }}",
    # white space
    "  {%- if true -%}  x  {%- endif -%}  y",
    "  {% if true %}\n  x\n  {% endif %}\ny\n",
    "a\n\n  {{ 'x' }}  \n  {{- 'y' -}}  \n z",
    "a\n  {#- c #}\n  b\n  {# d #}\n  c {# e #}\n",
    "  {%+ if true %}x{% endif +%}\n  y",
    "a\r\nb\r{% if true %}\r\nc{% endif %}",
    "\n\n{% if true %}\n\na\n{% endif %}\n\n",
    "{% if true %} \n a{% endif %}  {% if true %} b{% endif %}\n\n",
    "{{ '\\ufeffx\\x85' | trim }}|{{ ' \\x1c x \\u3000' | trim }}|\ufeffy",
    "{{ {'a': {'b': 1}}['a']['b'] }}{{ {'a': 1}}}",
    "{%- for m in messages -%}\n  {{ m.role }}\n{%- endfor -%}\n",
    # parts of well-known ones
    "{%- set ns = namespace(multi_step_tool=true, last_query_index=messages|length - 1) %}{%- for message in messages[::-1] %}"
    "{%- set index = (messages|length - 1) - loop.index0 %}{%- if ns.multi_step_tool and message.role == \"user\" and "
    "message.content is string and not(message.content.startswith('<tool_response>') and "
    "message.content.endswith('</tool_response>')) %}{%- set ns.multi_step_tool = false %}"
    "{%- set ns.last_query_index = index %}{%- endif %}{%- endfor %}{{ ns.last_query_index }}",
    "{%- if messages[0]['role'] == 'system' %}{%- set system_message = messages[0]['content']|trim %}{%- set loop_messages = "
    "messages[1:] %}{%- endif %}{%- for message in loop_messages %}{%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{- raise_exception('roles must alternate') }}{%- endif %}{{- '[INST] ' + system_message + '\\n\\n' + message['content'] + '[/INST]' }}"
    "{%- endfor %}",
    "{%- macro render_extra_keys(json_dict, handled_keys) -%}{%- if json_dict is mapping %}{%- for json_key in json_dict if json_key not in "
    "handled_keys %}{{- '\\n<' ~ json_key ~ '>' ~ (json_dict[json_key] | string) ~ '</' ~ json_key ~ '>' }}{%- endfor %}{%- endif %}"
    "{%- endmacro -%}{{ render_extra_keys(messages[0], ['role']) }}",
    "{%- set today = strftime_now('%Y-%m-%d') %}{%- set default_system_message = 'Today is ' + today + '.' %}{{ default_system_message }}"
    "{%- set yesterday = 'x' %}{{ default_system_message.replace('{today}', today) | replace('-', '/') }}",
    "{%- for message in messages %}{%- if message.content is string %}{{ message.content }}{%- else %}{%- for part in message.content %}"
    "{%- if part.type == 'text' %}{{ part.text }}{%- endif %}{%- endfor %}{%- endif %}{%- endfor %}",
    "{%- for message in messages | list %}{{ message['role'] | capitalize }}: {{ message.content | trim }}\n{%- endfor %}",
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}{% endfor %}",
    # one idiom each
    "{% set ns = namespace(a=0) %}{% for m in messages %}{% set ns.a = ns.a + 1 %}{% endfor %}{{ ns.a }}",
    "{{ messages[0] | tojson(ensure_ascii=True) }}{{ '{a}'.format(a=1) }}{{ 'abC' | capitalize }}{{ [1, 2] | sum }}",
    "{% for m in messages %}{% if loop.index == 2 %}{% break %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for m in messages %}{% if m.role == 'user' %}{% continue %}{% endif %}{{ m.role }}{% endfor %}",
    "{% for i in range(3) %}{{ i }}{% endfor %}{% for b in [1,2,3]|batch(2) %}{{ b|length }}{% endfor %}{% for b in [1,2,3]|slice(2) %}{{ b|length }}{% endfor %}",
    "{{ ['a','a']|unique|list }}{{ [3,1]|sort }}{{ 'a b'|wordcount }}{{ messages[0].content|length }}{{ [0,1]|select|list }}",
    "{{ [1, 'a', none, true] }}{{ 1 ~ 'a' ~ none }}{% with a = 1 %}{{ a }}{% endwith %}{{ 'a'|center(3) }}|{{ 'a\nb'.splitlines() }}",
    "{{ 'a' is in ['a'] }}{{ 1 is eq 1 }}{{ 2 is even }}{{ 'a' is sameas 'a' }}{{ 4 is divisibleby 2 }}",
    "{{ 'a:b'.partition(':')[2] }}{{ 'abc'.find('c') }}{{ 'a\nb'|indent(2) }}{{ 'a\nb'|indent(2, true) }}",
    "{% if messages[0].content is string %}S{% else %}P{% endif %}",
    "{% for p in messages[0].content %}{% if p.type == 'text' %}{{ p.text }}{% endif %}{% endfor %}|",
    # what is refused everywhere
    "{% if %}",
    "{{ 'a' | nofilter }}",
    "{{ 'a' is notest }}",
    "{% do messages %}",
    "{% for x in 5 %}{% endfor %}",
    "{{ messages.append(1) }}",
    "{{ none.x.y }}",
    "{% set x.y = 1 %}",
    "{{ 'a' if }}",
    "{{ (1 }}",
]  # fmt: skip
# What Jinja has, published templates do not use, and a tab refuses; Python renders it or refuses it, too.
REFUSED_BY_TABS = [
    "{% if true %}x{% else %}{{ 'a' | pprint }}{% endif %}",
    "{{ 'a'.encode() }}",
    "{{ 'a'.swapcase() }}",
    "{% block b %}x{% endblock %}",
    "{{ '%(a)s' % {'a': 1} }}",
    "{{ '{:,}'.format(1000) }}",
    "{{ strftime_now('%W') }}",
    "{{ {(1, 2): 'x'}[(1, 2)] }}",
    "{{ 'a b' | wordwrap(1) }}",
    "{{ '<a>x' | striptags }}",
    "{{ 2 ** 70 }}",
    "<a{{ {'b': 1}|xmlattr }}>",
    "{{ 'x'|urlize }}",
    "{{ 1|pprint }}",
]


def rendered(source: str) -> str | None:
    """What transformers gives, None where it fails."""
    from transformers.utils import chat_template_utils

    class Fixed(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return TODAY

    chat_template_utils.datetime = Fixed
    try:
        template = chat_template_utils._compile_jinja_template(source)
        found: str = template.render(
            messages=[dict(message) for message in MESSAGES],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **TOKENS,
        )
    except Exception:
        return None
    return found


def text() -> str:
    """The vectors as JSON, one template a line."""
    rows = [[source, rendered(source)] for source in TEMPLATES]
    refused = [[source, rendered(source)] for source in REFUSED_BY_TABS]
    about = "rows: a template, and what transformers makes of it (null: an error); refused: those that a tab refuses"
    head = {"about": about, "today": [TODAY.year, TODAY.month, TODAY.day], "messages": MESSAGES}
    lines = [f"{json.dumps(key)}: {json.dumps(value, ensure_ascii=False)}" for key, value in head.items()]
    for key, table in (("rows", rows), ("refused", refused)):
        held = ",\n".join(json.dumps(row, ensure_ascii=False) for row in table)
        lines.append(f"{json.dumps(key)}: [\n{held}\n]")
    return "{" + ",\n".join(lines) + "}\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
