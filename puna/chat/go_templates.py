"""Go templates of the store that are known, in the language of those that are rendered.

By the SHA-256 of the Go template's text. No other Go template can be used.
"""

from __future__ import annotations

import hashlib

# puna/registry/sources/gemma.py has it in Go.
_GEMMA = """\
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
{%- if add_generation_prompt -%}
{{ "<start_of_turn>model\\n" }}
{%- endif -%}
"""

_JINJA = {"0f22ff914d8f509ce35add72fbf01976adfd9f099856a9b0fb2039af5cec5143": _GEMMA}


def as_jinja(go_template: str) -> str | None:
    """The same in Jinja; None for one that is not known."""
    return _JINJA.get(hashlib.sha256(go_template.encode()).hexdigest())
