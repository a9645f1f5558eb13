"""What Gemma's packages do not carry beside the weights."""

from __future__ import annotations

from puna.registry.creation.go_json import go_json

# Gemma knows no system role: what the system says goes before what the user says first.
GEMMA_LAYERS = {
    "template": """\
{{- $system := "" }}
{{- range .Messages }}
{{- if eq .Role "system" }}{{ $system = printf "%s%s\\n\\n" $system .Content }}
{{- else if eq .Role "user" }}<start_of_turn>user
{{ $system }}{{ .Content }}<end_of_turn>
{{ $system = "" }}
{{- else if eq .Role "assistant" }}<start_of_turn>model
{{ .Content }}<end_of_turn>
{{ end }}
{{- end }}<start_of_turn>model
""",
    "params": go_json({"stop": ["<end_of_turn>"], "temperature": 1, "top_k": 64, "top_p": 0.95}).decode(),
    "license": (
        "Gemma is provided under and subject to the Gemma Terms of Use found at ai.google.dev/gemma/terms"
    ),
}
"""Layers of text by kind, as Ollama has them: its Go template, the sampling that Google recommends, and the
notice that Google's terms demand.
"""
