"""A model for agents: Gemma's weights and vocabulary, and a template with tools in the way of Hermes."""

from __future__ import annotations

from pathlib import Path

from tests.e2e.clients.tool_model import write_with_template

NAME = "agent:270m"

_TEMPLATE = """\
{%- if tools -%}
<start_of_turn>system
Functions that you may call:
<tools>
{%- for tool in tools %}
{{ tool | tojson }}
{%- endfor %}
</tools>
A call is <tool_call>{"name": NAME, "arguments": OBJECT}</tool_call>.<end_of_turn>
{% endif -%}
{%- for message in messages -%}
<start_of_turn>{{ message.role }}
{{ message.content or "" }}
{%- for call in message.tool_calls or [] %}
<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>
{%- endfor -%}
<end_of_turn>
{% endfor -%}
{%- if add_generation_prompt -%}
<start_of_turn>model
{% endif -%}
"""


def write_agent_model(gemma: Path, target: Path) -> None:
    """gemma: the file of Gemma 3 270M."""
    write_with_template(gemma, target, "gemma3", _TEMPLATE)
