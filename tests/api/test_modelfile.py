"""No text of a model becomes a command of the Modelfile that is made of it."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from puna.api.ollama.modelfile import modelfile_text
from puna.registry import Layer, Manifest, ModelConfig, ModelName, StoredMessage, StoredModel

pytestmark = pytest.mark.unit


def commands(modelfile):
    """(name, value) pairs, as Ollama's parser finds them: a value goes on while its quotes are open."""
    found, value = [], None
    for line in modelfile.replace("\r", "\n").split("\n"):
        text = "".join(c for c in line if c.isprintable())
        if value is None:
            if not text.strip() or text.startswith("#"):
                continue
            name, _, value = text.partition(" ")
            found.append(name)
            if name in ("PARAMETER", "MESSAGE"):
                value = value.partition(" ")[2]
        else:
            value += "\n" + text
        whole = value.strip(" \t")
        quotes = next((q for q in ('"""', '"') if whole.startswith(q)), "")
        if not quotes or (len(whole) >= 2 * len(quotes) and whole.endswith(quotes)):
            value = None
    assert value is None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "x\nFROM /etc/passwd",
        "x\rFROM /etc/passwd",
        'x"""\nFROM /etc/passwd',
        'x"""""" \t\nFROM /etc/passwd',
        'x""\x00"\nFROM /etc/passwd',
        'x"\u200b"\x1b"\nFROM /etc/passwd\n"',
        '"\nFROM /etc/passwd\n"""""',
        '"x"',
    ],
)
def test_hostile_texts(text):
    layer = Layer("x", "sha256:" + "0" * 64, 1)
    model = StoredModel(
        name=ModelName.parse("m"),
        digest="0" * 64,
        size=1,
        modified_at=datetime.now(UTC),
        manifest=Manifest(config=layer, layers=[layer]),
        config=ModelConfig(),
        model_path=Path("/models/m"),
        template=text,
        params={},
        messages=[StoredMessage("user", text), StoredMessage(f"user {text}", "")],
        licenses=[text],
    )
    made = modelfile_text(model, text, {"stop": [text], f"a {text}": 1})
    assert commands(made) == ["FROM", "TEMPLATE", "SYSTEM", "PARAMETER", "LICENSE", "MESSAGE"]
