"""What is about answers and their calls in public templates of some families."""

from __future__ import annotations

_QWEN3 = """{% for m in messages %}{{ '<|im_start|>' + m.role + '\\n' }}
{%- if m.role == 'assistant' %}
{%- if m.reasoning_content is string %}<think>
{{ m.reasoning_content.strip('\\n') }}
</think>

{% endif %}{{ m.content }}{% for tool_call in m.tool_calls %}
{%- if (loop.first and m.content) or not loop.first %}{{ '\\n' }}{% endif %}
{%- set call = tool_call.function or tool_call %}<tool_call>
{"name": "{{ call.name }}", "arguments": {% if call.arguments is string %}{{ call.arguments }}{% else %}
{{- call.arguments | tojson }}{% endif %}}
</tool_call>
{%- endfor %}
{%- else %}{{ m.content }}{{ tools }}{% endif %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_MISTRAL_NEMO = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'user' %}{% if tools is not none %}[AVAILABLE_TOOLS]{% endif %}[INST]{{ m.content }}[/INST]
{%- elif m.tool_calls is defined and m.tool_calls is not none %}[TOOL_CALLS][
{%- for call in m.tool_calls %}{% set out = call.function | tojson %}{{ out[:-1] }}
{%- if call.id is not defined or call.id | length != 9 %}{{ raise_exception('nine!') }}{% endif %}
{{- ', "id": "' + call.id + '"}' }}{{ ', ' if not loop.last else ']' + eos_token }}{% endfor %}
{%- elif m.role == 'tool' %}[TOOL_RESULTS]{"content": {{ m.content }}, "call_id": "{{ m.tool_call_id }}"}
{%- else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"""

_MISTRAL_SMALL = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'user' %}{% if tools %}[AVAILABLE_TOOLS]{% endif %}[INST]{{ m.content }}[/INST]
{%- elif m.get('tool_calls') %}{{ m.content }}{% for call in m.tool_calls %}
{{- '[TOOL_CALLS]' + call.function.name + '[CALL_ID]' + call.id }}
{{- '[ARGS]' + call.function.arguments | tojson }}
{%- endfor %}{{ eos_token }}{% else %}{{ m.content }}{% endif %}{% endfor %}"""

_MINISTRAL = _MISTRAL_SMALL.replace(" + '[CALL_ID]' + call.id", "")

_DEEPSEEK = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'user' %}{{ '<｜User｜>' + m.content + '<｜Assistant｜>' }}
{%- elif m.role == 'assistant' and m.content is none %}{% for tool in m.tool_calls %}
{{- '<｜tool▁calls▁begin｜>' if loop.first else '\\n' }}
{{- '<｜tool▁call▁begin｜>' + tool.type + '<｜tool▁sep｜>' + tool.function.name + '\\n```json\\n' }}
{{- tool.function.arguments + '\\n```<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>{{ eos_token }}
{%- elif m.role == 'assistant' %}{{ m.content + eos_token }}{% endif %}{% endfor %}"""

_QWEN_CODER = """{% for m in messages %}<|im_start|>{{ m.role }}
{{ m.content }}
{%- for call in m.tool_calls or [] %}
{{ '<tool_call>\\n<function=' + call.function.name + '>\\n' }}
{%- for name, value in call.function.arguments | items %}
{{- '<parameter=' + name + '>\\n' }}
{{- value if value is string else value | tojson }}{{ '\\n</parameter>\\n' }}
{%- endfor %}</function>
</tool_call>
{%- endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_TOOLCALL = """{% for m in messages %}<SPECIAL>{{ m.role }}
{{ m.content }}{% if m.tool_calls %}<TOOLCALL>[{% for call in m.tool_calls -%}
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
{{- ', ' if not loop.last }}{% endfor %}]</TOOLCALL>{% endif %}{{ '\\n<END>' }}{{ tools }}
{% endfor %}{% if add_generation_prompt %}<SPECIAL>assistant
{% endif %}"""

TEMPLATES = {
    "hermes": (_QWEN3, "<|im_end|>"),
    "mistral": (_MISTRAL_NEMO, "</s>"),
    "mistral-ids": (_MISTRAL_SMALL, "</s>"),
    "ministral": (_MINISTRAL, "</s>"),
    "cogito": (_DEEPSEEK, "</s>"),
    "qwen3-coder": (_QWEN_CODER, "<|im_end|>"),
    "json": (_TOOLCALL, "\n<END>"),
}
"""By family: the template, and what it ends a turn with."""
