"""Names of models for completion: of the server if one answers at once, else of the store."""

from __future__ import annotations

from puna.cli.client import Client, is_local
from puna.cli.errors import CliError
from puna.config.settings import Settings, SettingsError

_TIMEOUT_S = 0.5


def model_names() -> list[str]:
    """Nothing is started for it, and nothing said of what fails."""
    try:
        settings = Settings.from_environment()
    except SettingsError:
        return []
    try:
        with Client(settings.host, timeout_s=_TIMEOUT_S) as client:
            return [str(model["name"]) for model in client.get("/api/tags")["models"]]
    except (CliError, KeyError, TypeError):  # it need not be a server of models that answers
        return _stored(settings) if is_local(settings.host) else []


def _stored(settings: Settings) -> list[str]:
    from puna.registry import Store

    return [model.name.short for model in Store(settings.models, settings.read_only_models).list()]
