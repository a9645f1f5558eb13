"""Go templates that are known say in Jinja what they say in Go."""

from __future__ import annotations

import pytest

from puna.chat.go_templates import as_jinja
from puna.chat.messages import Message
from puna.chat.template import ChatTemplate
from puna.registry.sources.gemma import GEMMA_LAYERS

pytestmark = pytest.mark.native


def test_gemma_reads_what_the_system_says_before_the_users_first_turn():
    source = as_jinja(GEMMA_LAYERS["template"])
    assert source is not None
    messages = [
        Message("system", "Be brief."),
        Message("user", " a\n"),
        Message("assistant", "b"),
        Message("user", "c"),
    ]
    template = ChatTemplate(source, bos_token="<bos>", eos_token="<eos>")
    assert template.render(messages) == (
        "<start_of_turn>user\nBe brief.\n\n a\n<end_of_turn>\n<start_of_turn>model\nb<end_of_turn>\n"
        "<start_of_turn>user\nc<end_of_turn>\n<start_of_turn>model\n"
    )


def test_others_are_not_guessed_at():
    assert as_jinja("{{ .Prompt }}") is None
