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

_GLM = """[gMASK]<sop>{{ tools }}{% for m in messages %}<|{{ m.role }}|>
{%- if m.role == 'assistant' %}{{ '\\n<think></think>' }}{% for call in m.tool_calls %}
{{ '<tool_call>' + call.function.name }}
{% for k, v in call.function.arguments.items() %}<arg_key>{{ k }}</arg_key>
<arg_value>{{ v | tojson if v is not string else v }}</arg_value>
{% endfor %}</tool_call>{% endfor %}<|user|>
{%- else %}
{{ m.content }}{% endif %}{% endfor %}{% if add_generation_prompt %}<|assistant|>
<think></think>{% endif %}"""

_DEEPSEEK31 = """{{ bos_token }}{% for m in messages %}
{%- if m.role == 'user' %}{{ '<｜User｜>' + m.content }}<｜Assistant｜></think>
{%- elif m.tool_calls %}{{ m.content }}<｜tool▁calls▁begin｜>{% for call in m.tool_calls %}
{{- '<｜tool▁call▁begin｜>' + call.function.name + '<｜tool▁sep｜>' + call.function.arguments | tojson }}
{{- '<｜tool▁call▁end｜>' }}{% endfor %}<｜tool▁calls▁end｜>{{ eos_token }}
{%- else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"""

_GEMMA4 = """{% macro value(v) %}{% if v is string %}<|"|>{{ v }}<|"|>{% elif v is boolean or v is none %}
{{- v | tojson }}{% elif v is mapping %}{{ '{' }}{% for k, x in v.items() %}{{ k }}:{{ value(x) }}
{{- ',' if not loop.last }}{% endfor %}{{ '}' }}{% elif v is sequence %}[{% for x in v %}{{ value(x) }}
{{- ',' if not loop.last }}{% endfor %}]{% else %}{{ v }}{% endif %}{% endmacro %}
{{- bos_token }}{{ tools }}{% for m in messages %}<|turn>{{ 'model' if m.role == 'assistant' else m.role }}
{% for call in m.tool_calls %}<|tool_call>call:{{ call.function.name }}{{ value(call.function.arguments) }}
{{- '<tool_call|>' }}{% endfor %}{{ m.content }}<turn|>
{% endfor %}{% if add_generation_prompt %}<|turn>model
{% endif %}"""

_FUNCTION_GEMMA = (
    _GEMMA4.replace("<|tool_call>", "<start_function_call>")
    .replace("<tool_call|>", "<end_function_call>")
    .replace('<|"|>', "<escape>")
)

_LFM2 = """{{ bos_token }}List of tools: <|tool_list_start|>{{ tools }}<|tool_list_end|>
{%- for m in messages %}
{{- '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}{% endfor %}
{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

_COHERE = """{{ tools }}{% for m in messages %}<|START_OF_TURN_TOKEN|><|{{ m.role }}|>{{ m.content }}
{%- if m.tool_calls %}<|START_ACTION|>[
    {% for call in m.tool_calls %}
    {"tool_call_id": "{{ loop.index0 }}", "tool_name": "{{ call.function.name }}", "parameters": {{ '' }}
    {{- call.function.arguments | tojson }}}{{ ',' if not loop.last }}
{% endfor %}
]<|END_ACTION|>{% endif %}<|END_OF_TURN_TOKEN|>{% endfor %}
{%- if add_generation_prompt %}<|START_OF_TURN_TOKEN|><|assistant|>{% endif %}"""

_GPT_OSS = """{% for m in messages %}{% if m.role == 'assistant' %}<|start|>assistant
{%- if m.tool_calls %}{% set call = m.tool_calls[0].function %}{{ ' to=functions.' + call.name }}
{{- '<|channel|>commentary json<|message|>' + call.arguments | tojson + '<|call|>' }}
{%- else %}<|channel|>final<|message|>{{ m.content }}<|end|>{% endif %}
{%- else %}<|start|>{{ m.role }}<|message|>{{ m.content }}{{ tools }}<|end|>{% endif %}{% endfor %}
{%- if add_generation_prompt %}<|start|>assistant{% endif %}"""

TEMPLATES = {
    "harmony": (_GPT_OSS, "<|call|>"),
    "glm-4.7": (_GLM, "<|user|>"),
    "deepseek3": (_DEEPSEEK31, "</s>"),
    "gemma4": (_GEMMA4, "<turn|>"),
    "functiongemma": (_FUNCTION_GEMMA, "<turn|>"),
    "lfm2": (_LFM2, "<|im_end|>"),
    "cohere": (_COHERE, "<|END_OF_TURN_TOKEN|>"),
    "hermes": (_QWEN3, "<|im_end|>"),
    "mistral": (_MISTRAL_NEMO, "</s>"),
    "mistral-ids": (_MISTRAL_SMALL, "</s>"),
    "ministral": (_MINISTRAL, "</s>"),
    "cogito": (_DEEPSEEK, "</s>"),
    "qwen3-coder": (_QWEN_CODER, "<|im_end|>"),
    "json": (_TOOLCALL, "\n<END>"),
}
"""By family: the template, and what it ends a turn with."""
