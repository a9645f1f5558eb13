"""The whole examination."""

from __future__ import annotations

from collections.abc import Iterator

from puna.cli.doctor.configuration import server_finding, setting_findings, store_findings
from puna.cli.doctor.findings import Finding, has_error, show
from puna.cli.doctor.machine import machine_findings
from puna.cli.output.json import print_json
from puna.cli.run.reply import spinner
from puna.config.settings import Settings, SettingsError


def doctor(model: str, *, as_json: bool = False) -> int:
    """Prints what is found, of the model alone if one is given; 1 if something does not work, else 0."""
    with spinner():
        findings = list(_examine(model))
    if as_json:
        print_json({"healthy": not has_error(findings), "findings": findings})
    else:
        show(findings)
    return int(has_error(findings))


def _examine(model: str) -> Iterator[Finding]:
    try:
        settings = Settings.from_environment()
    except SettingsError as error:
        yield Finding(area="Settings", name="value", text=str(error), level="error")
        return
    if model:
        from puna.cli.doctor.model import model_findings  # the engine takes a while to import

        yield from model_findings(model, settings)
        return
    yield from machine_findings(settings)
    yield from setting_findings(settings)
    yield server_finding(settings)
    yield from store_findings(settings)
