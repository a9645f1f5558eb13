"""A chat template comes with a model from anywhere: it must not reach Python."""

from __future__ import annotations

from contextlib import suppress

import pytest

from puna.chat.errors import TemplateError
from puna.chat.messages import Message
from puna.chat.templates.template import ChatTemplate

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


def test_ordinary_string_work_is_left_alone():
    source = (
        "{{ messages[0].content.replace('x', 'ab') | length }} {{ 'a'.center(5) }} {{ '%02d' % 7 }} "
        "{{ '{}-{:>4}'.format('a', 'b') }} {{ ['a', 'b'] | join(', ') }} {{ ', '.join(['c', 'd']) }} "
        "{{ 'a\nb' | indent(2) }} {{ 2 ** 10 }} {{ [1] + [2] }} {{ 'a' ~ 1 ~ none }} "
        "{% set s %}{{ 'x' }}!{% endset %}{{ s }} {{ [{'n': 1}] | join(attribute='n') }}"
    )
    assert render(source) == "2000   a   07 a-   b a, b c, d a\n  b 1024 [1, 2] a1None x! 1"


def test_lists_may_grow_but_not_those_of_the_request():
    template = ChatTemplate(
        "{% set ids = [] %}{% for message in messages %}{% set _ = ids.append(message.role) %}{% endfor %}"
        "{% set _ = tools[0].names.append('b') %}{{ ids | join }} {{ tools[0].names | tojson }}",
        bos_token="",
        eos_token="",
    )
    tools = [{"names": ["a"]}]
    for _ in range(2):
        assert template.render([Message("user", "x")], tools=tools) == 'user ["a", "b"]'
    assert tools == [{"names": ["a"]}]


def test_json_of_what_filters_give():
    assert render("{{ [1, 2] | map('string') | tojson }} {{ [3] | select | tojson }}") == '["1", "2"] [3]'
    with pytest.raises(TemplateError, match="Undefined is not JSON"):
        render("{{ nothing | tojson }}")
