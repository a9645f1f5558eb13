"""Sockets of a service lie where nobody else can put one."""

from __future__ import annotations

import os
import socket
import stat

import pytest

from puna.unix_socket import listen_privately

pytestmark = pytest.mark.unit


def test_only_the_user_may_connect_and_what_was_left_is_replaced(tmp_path):
    path = tmp_path / "s.sock"
    for _ in range(2):
        with listen_privately(path):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            with pytest.raises(OSError, match="in use"):
                listen_privately(path)
            socket.socket(socket.AF_UNIX).connect(str(path))


def test_what_is_no_dead_socket_of_ours_stays(tmp_path):
    path = tmp_path / "s.sock"
    path.write_text("precious")
    with pytest.raises(FileExistsError, match="not a socket"):
        listen_privately(path)
    link = tmp_path / "link.sock"
    link.symlink_to(path)
    with pytest.raises(FileExistsError, match="not a socket"):
        listen_privately(link)
    assert path.read_text() == "precious"


def test_directory_that_others_can_write_is_refused_unless_it_is_sticky(tmp_path):
    directory = tmp_path / "shared"
    directory.mkdir()
    directory.chmod(0o777)
    with pytest.raises(PermissionError, match="others may write"):
        listen_privately(directory / "s.sock")
    directory.chmod(0o1777)
    listen_privately(directory / "s.sock").close()


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a directory away")
def test_directory_of_another_user_is_refused(tmp_path):
    directory = tmp_path / "foreign"
    directory.mkdir()
    os.chown(directory, 12345, 12345)
    with pytest.raises(PermissionError, match="belongs to another user"):
        listen_privately(directory / "s.sock")
