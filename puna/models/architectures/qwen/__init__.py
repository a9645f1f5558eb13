"""Qwen, from 1.5 on."""
