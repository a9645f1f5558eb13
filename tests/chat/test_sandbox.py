"""A chat template comes with a model from anywhere: it must not reach Python, hang, or fill the memory."""

from __future__ import annotations

from contextlib import suppress

import pytest

from puna.chat import sandbox
from puna.chat.messages import Message
from puna.chat.template import ChatTemplate, TemplateError

pytestmark = pytest.mark.unit


def render(source):
    return ChatTemplate(source, bos_token="", eos_token="").render([Message("user", "x" * 1000)])


@pytest.mark.parametrize(
    "source",
    [
        "{{ ''.__class__.__mro__ }}",
        "{{ messages.__class__ }}",
        "{{ (messages | attr('__class__')).__subclasses__() }}",
        "{{ raise_exception.__globals__ }}",
        "{{ messages.append(1) }}",
        "{{ messages[0].update({'role': 'system'}) }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ self.__init__.__globals__ }}",
        "{{ lipsum(n=1000) }}",
    ],
)
def test_python_is_out_of_reach(source):
    # Jinja answers some of these with nothing instead of an error.
    with suppress(TemplateError):
        assert render(source) in ("", "None")


NESTED = "{% for a in range(99999) %}{% for b in range(99999) %}{% for c in range(99999) %}{{ '' }}"
TEXT = "{% set n = namespace(s='x') %}{% for i in range(60) %}"
LIST = "{% set n = namespace(l=[]) %}{% for i in range(60) %}{% set n.l = [n.l, n.l] %}"
NUMBER = "{% set n = namespace(n=3) %}{% for i in range(60) %}"
MACRO = "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}"


@pytest.mark.parametrize("source", [NESTED + "{% endfor %}" * 3, MACRO], ids=["loops", "macros"])
def test_endless_work_is_stopped(source, monkeypatch):
    monkeypatch.setattr(sandbox, "MAX_CPU_SECONDS", 0.05)
    with pytest.raises(TemplateError, match="too long"):
        render(source)


@pytest.mark.parametrize(
    "source",
    [
        "{{ 'x' * 10 ** 12 }}",
        "{{ ['x'] * 10 ** 12 }}",
        TEXT + "{% set n.s = n.s + n.s %}{% endfor %}{{ n.s }}",
        TEXT + "{% set n.s = n.s ~ n.s %}{% endfor %}{{ n.s }}",
        TEXT + "{% set t %}{{ n.s }}{{ n.s }}{% endset %}{% set n.s = t %}{% endfor %}{{ n.s }}",
        LIST + "{% endfor %}{{ n.l }}",
        LIST + "{% endfor %}{{ n.l | tojson }}",
        LIST + "{% endfor %}{{ n.l | string | length }}",
        NUMBER + "{% set n.n = n.n * n.n %}{% endfor %}{{ n.n }}",
        "{{ 3 ** (10 ** 9) }}",
        "{% set s = 'x' * 100000 %}{{ s.replace('x', s) | length }}",
        "{% set s = 'x' * 100000 %}{{ s | replace('x', s) | length }}",
        "{% set s = 'x' * 100000 %}{{ s.join(s) | length }}",
        "{% set s = 'x' * 100000 %}{{ s | join(s) | length }}",
        "{% set s = '\n' * 100000 %}{{ s | indent(100000, blank=true) | length }}",
        "{{ 'x'.center(10 ** 12) }}",
        "{{ 'x'.zfill(10 ** 12) }}",
        "{{ '\t'.expandtabs(10 ** 12) }}",
        "{{ '%1000000000000d' % 1 }}",
        "{{ '%*d' % (1000000000000, 1) }}",
        "{{ '%1000000000000d' | format(1) }}",
        "{{ '{:1000000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000000) }}",
        "{{ messages | tojson(indent=1000000000000) }}",
        "{% for i in range(90000) %}{{ messages[0].content }}{% endfor %}",
        "{{ range(10 ** 12) | list | length }}",
        "{% for i in [[[]]] recursive %}{{ loop(i) }}{% endfor %}",
    ],
)
def test_much_out_of_little_is_refused(source):
    with pytest.raises(TemplateError):
        render(source)


def test_ordinary_string_work_is_left_alone():
    source = (
        "{{ messages[0].content.replace('x', 'ab') | length }} {{ 'a'.center(5) }} {{ '%02d' % 7 }} "
        "{{ '{}-{:>4}'.format('a', 'b') }} {{ ['a', 'b'] | join(', ') }} {{ ', '.join(['c', 'd']) }} "
        "{{ 'a\nb' | indent(2) }} {{ 2 ** 10 }} {{ [1] + [2] }} {{ 'a' ~ 1 ~ none }} "
        "{% set s %}{{ 'x' }}!{% endset %}{{ s }} {{ [{'n': 1}] | join(attribute='n') }}"
    )
    assert render(source) == "2000   a   07 a-   b a, b c, d a\n  b 1024 [1, 2] a1None x! 1"
