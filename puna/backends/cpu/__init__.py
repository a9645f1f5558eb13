"""The CPU backend."""

from puna.backends.cpu.backend import CpuBackend

__all__ = ["CpuBackend"]
