"""Where the daemon listens, and what it says when it can't."""

from __future__ import annotations

import socket
import subprocess
import sys

import pytest

from puna.api.app import create_app
from puna.config.host import Host
from puna.config.settings import Settings
from puna.daemon.listening import bind
from puna.daemon.server import serve

pytestmark = pytest.mark.native


def test_port_zero_lets_the_system_choose():
    with bind(Host(port=0)) as listener:
        address, port = listener.getsockname()
        assert address == "127.0.0.1"
        assert port > 0


@pytest.mark.parametrize("address", ["", "::"])
def test_every_interface_means_both_families(address):
    if not socket.has_dualstack_ipv6():
        pytest.skip("no IPv6 here")
    with bind(Host(address=address, port=0)) as listener:
        port = listener.getsockname()[1]
        for loopback in ("127.0.0.1", "::1"):
            socket.create_connection((loopback, port), timeout=10).close()


def test_name_with_several_addresses_prefers_ipv4():
    with bind(Host(address="localhost", port=0)) as listener:
        assert listener.family == socket.AF_INET


@pytest.mark.parametrize(
    ("address", "reason"), [("127.0.0.1", "bind: address already in use"), ("host.invalid", "bind: ")]
)
def test_address_that_cannot_be_bound_is_an_error_in_one_line(tmp_path, capsys, address, reason):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        host = Host(address=address, port=taken.getsockname()[1])
        assert serve(Settings(models=tmp_path, host=host), create_app) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: listen tcp {host}: {reason}")


WITHOUT = """
import sys
if sys.argv[1] == "old protobuf":
    import google.protobuf.runtime_version
    google.protobuf.runtime_version.MAJOR = 5
elif sys.argv[1] == "very old protobuf":
    import google.protobuf.runtime_version
    del google.protobuf.runtime_version.VersionError
else:
    sys.modules[sys.argv[1]] = None
from pathlib import Path
from puna.api.app import create_app
from puna.daemon.server import serve
from puna.config.host import Host
from puna.config.settings import Settings
path = Path(sys.argv[2])
sys.exit(serve(Settings(models=path, host=Host(port=0), kvcached_socket=path / "s.sock"), create_app))
"""


@pytest.mark.parametrize("package", ["h2", "google.protobuf", "old protobuf", "very old protobuf"])
def test_kvcached_without_its_packages_says_what_to_install(tmp_path, package):
    command = [sys.executable, "-c", WITHOUT, package, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    text = 'Error: OLLAMA_KVCACHED_SOCKET needs further packages: pip install "puna[kvcached]"'
    assert done.stderr.splitlines() == [text]
    assert list(tmp_path.iterdir()) == []


def test_kvcached_socket_that_cannot_be_bound_is_an_error_in_one_line(tmp_path, capsys):
    path = tmp_path / "nowhere" / "s.sock"
    assert serve(Settings(models=tmp_path, host=Host(port=0), kvcached_socket=path), create_app) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line == f"Error: listen unix {path}: bind: no such file or directory"
