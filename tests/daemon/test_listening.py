"""Where the daemon listens, and what it says when it can't."""

from __future__ import annotations

import socket

import pytest

from puna.daemon.server import bind, serve
from puna.host import Host
from puna.settings import Settings

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
        assert serve(Settings(models=tmp_path, host=host)) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"Error: listen tcp {host}: {reason}")
