"""OLLAMA_HOST as Ollama's servers and clients understand it."""

from __future__ import annotations

import pytest

from puna.config.host import parse_host

pytestmark = pytest.mark.unit


@pytest.mark.parametrize(
    ("text", "bound", "base_url"),
    [
        ("1.2.3.4", "1.2.3.4:11434", "http://1.2.3.4:11434"),
        (":1234", ":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "0.0.0.0:11434", "http://127.0.0.1:11434"),
        ("[::]:1234", "[::]:1234", "http://[::1]:1234"),
        ("1.2.3.4:", "1.2.3.4:11434", "http://1.2.3.4:11434"),
        ("example.com:1234", "example.com:1234", "http://example.com:1234"),
        ("http://1.2.3.4", "1.2.3.4:80", "http://1.2.3.4:80"),
        ("https://1.2.3.4", "1.2.3.4:443", "https://1.2.3.4:443"),
        ("https://example.com:8443/ollama/", "example.com:8443", "https://example.com:8443/ollama"),
        ("example.com/ollama", "example.com:11434", "http://example.com:11434/ollama"),
        ("ollama.com", "ollama.com:443", "https://ollama.com:443"),
        ("[::1]", "[::1]:11434", "http://[::1]:11434"),
        ("::1", "[::1]:11434", "http://[::1]:11434"),
        ("[2001:db8::1]:1337", "[2001:db8::1]:1337", "http://[2001:db8::1]:1337"),
        ("1.2.3.4:66000", "1.2.3.4:11434", "http://1.2.3.4:11434"),
        ("http://1.2.3.4:-1", "1.2.3.4:80", "http://1.2.3.4:80"),
        ("1.2.3.4:port", "1.2.3.4:11434", "http://1.2.3.4:11434"),
        ("1.2.3.4:0", "1.2.3.4:0", "http://1.2.3.4:0"),
    ],
)
def test_host_forms(text, bound, base_url):
    host = parse_host(text)
    assert str(host) == bound
    assert host.base_url == base_url
