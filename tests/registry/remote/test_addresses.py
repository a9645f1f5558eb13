"""Where names lead: with and without TLS, and by mirrors."""

from __future__ import annotations

import pytest

from puna.registry import InvalidModelName, ModelName
from puna.registry.errors import InsecureProtocol
from puna.registry.remote.addresses import registry_of, sources_of

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "insecure", "url"),
    [
        ("llama3", False, "https://registry.ollama.ai"),
        ("llama3", True, "http://registry.ollama.ai"),
        ("hf.co/user/repo:Q4_K_M", False, "https://hf.co"),
        ("localhost:5000/library/m", True, "http://localhost:5000"),
        ("https://h.example/n/m", True, "http://h.example"),  # as Ollama understands `insecure`
        ("http://h.example/n/m", True, "http://h.example"),
    ],
)
def test_names_lead_to_their_hosts(text, insecure, url):
    assert str(registry_of(ModelName.parse(text), insecure=insecure)) == url


def test_http_has_to_be_allowed():
    with pytest.raises(InsecureProtocol, match="insecure protocol http"):
        registry_of(ModelName.parse("http://h.example/n/m"), insecure=False)


@pytest.mark.parametrize("host", ["a:b", "a:1:2", "h:0", "h:99999"])
def test_hosts_that_are_none_are_an_invalid_name(host):
    with pytest.raises(InvalidModelName):
        registry_of(ModelName.parse(f"{host}/n/m"), insecure=False)


def test_mirrors_come_before_the_registry_that_they_are_of():
    mirrors = (
        ("HF.co", "https://one.example/hf"),
        ("other.example", "https://x.example"),
        ("hf.co", "http://two"),
    )
    urls = sources_of(ModelName.parse("hf.co/user/repo"), mirrors)
    assert list(map(str, urls)) == ["https://one.example/hf", "http://two", "https://hf.co"]
    assert len(sources_of(ModelName.parse("llama3"), mirrors)) == 1
