"""Qwen2-VL and Qwen2.5-VL, their text: rotated as Qwen2, since a text's three positions are one."""

from __future__ import annotations

from puna.models.architectures.qwen2 import trace as trace
