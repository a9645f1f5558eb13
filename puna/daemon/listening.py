"""Opens the sockets on which the daemon listens, or says why it cannot."""

from __future__ import annotations

import errno
import os
import socket
from collections.abc import Generator
from contextlib import ExitStack, contextmanager

from puna.config.host import Host, join_host_port
from puna.config.settings import Settings
from puna.daemon.kvcached import MissingPackage, require_packages
from puna.kvcached.service.endpoint import Endpoint, open_endpoint
from puna.unix_socket import listen_privately


class CannotListen(Exception):
    """The text says where, and why not."""


@contextmanager
def listening(settings: Settings) -> Generator[tuple[socket.socket, Endpoint | None], None, None]:
    """For HTTP, and for the kvcached service if it is wanted. Raises CannotListen."""
    host = settings.host
    with ExitStack() as opened:
        try:
            listener = opened.enter_context(bind(host))
        except OSError as error:
            raise CannotListen(f"listen {host.network} {host}: bind: {_reason(error)}") from error
        if host.socket is not None:
            opened.callback(host.socket.unlink, missing_ok=True)
        if (path := settings.kvcached_socket) is None:
            yield listener, None
            return
        try:
            require_packages()
            endpoint = opened.enter_context(open_endpoint(path))
        except MissingPackage as error:
            raise CannotListen(str(error)) from error
        except OSError as error:
            raise CannotListen(f"listen unix {path}: bind: {_reason(error)}") from error
        yield listener, endpoint


def bind(host: Host) -> socket.socket:
    """A bound socket; an empty address and "::" mean every interface, IPv4 and IPv6. Raises OSError."""
    if host.socket is not None:
        return listen_privately(host.socket)
    if host.address in ("", "::") and socket.has_dualstack_ipv6():
        return socket.create_server(("::", host.port), family=socket.AF_INET6, dualstack_ipv6=True)
    found = socket.getaddrinfo(host.address or "0.0.0.0", host.port, type=socket.SOCK_STREAM)
    # As Go does: of a name's addresses, IPv4 is preferred.
    family, _, _, _, address = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    return socket.create_server((str(address[0]), host.port), family=family)


def name_of(listener: socket.socket) -> str:
    """As OLLAMA_HOST takes it."""
    bound = listener.getsockname()
    return f"unix:{bound}" if isinstance(bound, str) else join_host_port(bound[0], bound[1])


def _reason(error: OSError) -> str:
    # Errors of name resolution have negative numbers, those of ours words, and socket.create_server adds
    # words to the others.
    if error.errno is not None and error.errno > 0 and error.errno not in (errno.EACCES, errno.EEXIST):
        return os.strerror(error.errno).lower()
    return (error.strerror or str(error)).lower()
