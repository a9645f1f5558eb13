"""Templates of one model in both languages, as short as their families allow."""

from __future__ import annotations

from typing import NamedTuple

from puna.registry.sources.gemma import GEMMA_LAYERS


class Pair(NamedTuple):
    go: str
    jinja: str


# Qwen 3 and others: ChatML, calls and results between tags, thoughts.
_CHATML = Pair(
    """\
{{- if or .System .Tools }}<|im_start|>system
{{ .System }}
{{- if .Tools }}

<tools>
{{- range .Tools }}
{{ . }}
{{- end }}
</tools>
{{- end }}<|im_end|>
{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 -}}
{{- if eq .Role "user" }}<|im_start|>user
{{ .Content }}<|im_end|>
{{ else if eq .Role "assistant" }}<|im_start|>assistant
{{ if .Thinking }}<think>{{ .Thinking }}</think>
{{ end }}{{ .Content }}
{{- range .ToolCalls }}
<tool_call>
{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}
</tool_call>
{{- end }}<|im_end|>
{{ else if eq .Role "tool" }}<|im_start|>user
<tool_response>
{{ .Content }}
</tool_response><|im_end|>
{{ end }}
{{- if and (ne .Role "assistant") $last }}<|im_start|>assistant
{{ if and $.IsThinkSet (not $.Think) }}<think>

</think>

{{ end }}{{ end }}
{{- end }}""",
    """\
{%- set system = messages[0].content if messages and messages[0].role == "system" else "" %}
{%- if system or tools %}{{ "<|im_start|>system\\n" + system }}
{%- if tools %}{{ "\\n\\n<tools>" }}{% for tool in tools %}{{ "\\n" + tool | tojson(separators=(",", ":")) }}
{%- endfor %}{{ "\\n</tools>" }}{% endif %}{{ "<|im_end|>\\n" }}{% endif %}
{%- for message in messages %}
{%- if message.role == "user" %}{{ "<|im_start|>user\\n" + message.content + "<|im_end|>\\n" }}
{%- elif message.role == "assistant" %}{{ "<|im_start|>assistant\\n" + message.content }}
{%- for call in message.tool_calls or [] %}
{{- "\\n<tool_call>\\n{\\"name\\": \\"" + call.function.name + "\\", \\"arguments\\": " }}
{{- call.function.arguments | tojson(separators=(",", ":"), sort_keys=true) + "}\\n</tool_call>" }}
{%- endfor %}{{ "<|im_end|>\\n" }}
{%- elif message.role == "tool" %}
{{- "<|im_start|>user\\n<tool_response>\\n" + message.content + "\\n</tool_response><|im_end|>\\n" }}
{%- endif %}{% endfor %}
{%- if add_generation_prompt %}{{ "<|im_start|>assistant\\n" }}
{%- if enable_thinking is defined and not enable_thinking %}{{ "<think>\\n\\n</think>\\n\\n" }}{% endif %}
{%- endif %}""",
)

_LLAMA3 = Pair(
    """\
{{- if .System }}<|start_header_id|>system<|end_header_id|>

{{ .System }}<|eot_id|>{{ end }}
{{- range $i, $_ := .Messages }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if eq .Role "user" }}<|start_header_id|>user<|end_header_id|>

{{ if and $.Tools $last }}{{ range $.Tools }}{{ . }}

{{ end }}{{ end }}{{ .Content }}<|eot_id|>
{{- else if eq .Role "assistant" }}<|start_header_id|>assistant<|end_header_id|>

{{ if .ToolCalls }}
{{- range .ToolCalls }}{"name": "{{ .Function.Name }}", "parameters": {{ .Function.Arguments }}}{{ end }}
{{- else }}{{ .Content }}{{ end }}<|eot_id|>
{{- else if eq .Role "tool" }}<|start_header_id|>ipython<|end_header_id|>

{{ .Content }}<|eot_id|>
{{- end }}
{{- if and $last (ne .Role "assistant") }}<|start_header_id|>assistant<|end_header_id|>

{{ end }}
{{- end }}""",
    """\
{%- macro turn(role, content) %}
{{- "<|start_header_id|>" + role + "<|end_header_id|>\\n\\n" + content + "<|eot_id|>" }}{% endmacro %}
{%- for message in messages %}
{%- if message.role == "user" and tools and loop.last %}
{%- set shown %}
{%- for tool in tools %}{{ tool | tojson(separators=(",", ":")) + "\\n\\n" }}{% endfor %}{% endset %}
{{- turn("user", shown + message.content) }}
{%- elif message.role == "tool" %}{{ turn("ipython", message.content) }}
{%- elif message.tool_calls %}
{%- set calls %}
{%- for call in message.tool_calls %}{{ '{"name": "' + call.function.name + '", "parameters": ' }}
{{- call.function.arguments | tojson(separators=(",", ":"), sort_keys=true) + "}" }}{% endfor %}{% endset %}
{{- turn("assistant", calls) }}
{%- else %}{{ turn(message.role, message.content) }}{% endif %}{% endfor %}
{%- if add_generation_prompt %}{{ "<|start_header_id|>assistant<|end_header_id|>\\n\\n" }}{% endif %}""",
)

_GEMMA = Pair(
    GEMMA_LAYERS["template"],
    """\
{%- set system = namespace(text="") -%}
{%- for message in messages -%}
{%- if message.role == "system" -%}
{%- set system.text = system.text + message.content + "\\n\\n" -%}
{%- elif message.role == "user" -%}
{{ "<start_of_turn>user\\n" + system.text + message.content + "<end_of_turn>\\n" }}
{%- set system.text = "" -%}
{%- elif message.role == "assistant" -%}
{{ "<start_of_turn>model\\n" + message.content + "<end_of_turn>\\n" }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{ "<start_of_turn>model\\n" }}{%- endif -%}""",
)

# Mistral: tools before the last question, the system's text in it.
_MISTRAL = Pair(
    """\
{{- range $i, $_ := .Messages }}
{{- if eq .Role "user" }}
{{- $last := eq (len (slice $.Messages $i)) 1 }}
{{- if and $last $.Tools }}[AVAILABLE_TOOLS] {{ $.Tools }}[/AVAILABLE_TOOLS]{{ end -}}
[INST] {{ if and $.System $last }}{{ $.System }}

{{ end }}{{ .Content }}[/INST]
{{- else if eq .Role "assistant" }}
{{- if .ToolCalls }}[TOOL_CALLS] [
{{- range .ToolCalls }}{"name": "{{ .Function.Name }}", "arguments": {{ .Function.Arguments }}}{{ end }}]
{{- else }} {{ .Content }}{{ end }}</s>
{{- else if eq .Role "tool" }}[TOOL_RESULTS] {"content": {{ json .Content }}}[/TOOL_RESULTS]
{{- end }}
{{- end }}""",
    """\
{%- set system = messages[0].content if messages and messages[0].role == "system" else "" %}
{%- for message in messages %}
{%- if message.role == "user" %}
{%- if tools and loop.last %}
{{- "[AVAILABLE_TOOLS] " + tools | tojson(separators=(",", ":")) + "[/AVAILABLE_TOOLS]" }}{% endif %}
{{- "[INST] " + (system + "\\n\\n" if system and loop.last else "") + message.content + "[/INST]" }}
{%- elif message.role == "assistant" and message.tool_calls %}{{ "[TOOL_CALLS] [" }}
{%- for call in message.tool_calls %}{{ '{"name": "' + call.function.name + '", "arguments": ' }}
{{- call.function.arguments | tojson(separators=(",", ":"), sort_keys=true) + "}" }}{% endfor %}{{ "]</s>" }}
{%- elif message.role == "assistant" %}{{ " " + message.content + "</s>" }}
{%- elif message.role == "tool" %}
{{- '[TOOL_RESULTS] {"content": ' + message.content | tojson + "}[/TOOL_RESULTS]" }}
{%- endif %}{% endfor %}""",
)

# Phi 3, whose Go template knows one turn only.
_PHI = Pair(
    """\
{{ if .System }}<|system|>
{{ .System }}<|end|>
{{ end }}{{ if .Prompt }}<|user|>
{{ .Prompt }}<|end|>
{{ end }}<|assistant|>
{{ .Response }}<|end|>
""",
    """\
{%- for message in messages %}{{ "<|" + message.role + "|>\\n" + message.content + "<|end|>\\n" }}{% endfor %}
{%- if add_generation_prompt %}{{ "<|assistant|>\\n" }}{% endif %}""",
)

PAIRS = {"chatml": _CHATML, "llama3": _LLAMA3, "gemma": _GEMMA, "mistral": _MISTRAL, "phi": _PHI}
WITH_TOOLS = ("chatml", "llama3", "mistral")
