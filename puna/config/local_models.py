"""Where other programs keep their models, by the same settings as theirs."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

_MAX_CHARS = 4096


def find_local_models(environ: Mapping[str, str], home: Path) -> tuple[Path, Path]:
    """Directories of Hugging Face's programs and of LM Studio, which need not be there."""
    return _hugging_face(environ, home), _lm_studio(home)


def _hugging_face(environ: Mapping[str, str], home: Path) -> Path:
    for variable in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if text := environ.get(variable):
            return _expanded(text, home)
    if text := environ.get("HF_HOME"):
        return _expanded(text, home) / "hub"
    cache = environ.get("XDG_CACHE_HOME")
    return (_expanded(cache, home) if cache else home / ".cache") / "huggingface" / "hub"


def _lm_studio(home: Path) -> Path:
    """Its home may have been moved, which a file says; that of older versions was elsewhere."""
    directory = home / ".lmstudio"
    try:
        with (home / ".lmstudio-home-pointer").open() as file:
            directory = Path(file.read(_MAX_CHARS).strip() or directory)
    except (OSError, ValueError):
        pass
    older = home / ".cache" / "lm-studio"
    return (older if older.is_dir() and not directory.is_dir() else directory) / "models"


def _expanded(text: str, home: Path) -> Path:
    return home / text.removeprefix("~/") if text.startswith("~/") else Path(text)
