"""Devices: what the engine needs of one, and a folder for each."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from puna.backends.base import Backend


def prepare_devices() -> None:
    """For a process that can neither read their code nor ask for their units any more when it opens one."""
    import puna.backends.cpu  # noqa: F401
    from puna._native import ask_for_matrix_unit

    ask_for_matrix_unit()


def open_device(name: str = "cpu", num_threads: int | None = None, kv_type: str = "f16") -> Backend:
    """num_threads: of the host; None: as many as compute best. kv_type: what keys and values are stored as.

    Raises ValueError for a device that there is not.
    """
    if name != "cpu":
        raise ValueError(f'unknown device "{name}"; there is: cpu')
    from puna.backends.cpu import CpuBackend  # the daemon, which needs no device, knows this package, too

    return CpuBackend(num_threads, kv_type=kv_type)
