"""What every handler works with."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

from starlette.requests import Request

from puna.api.bodies.body_budget import BodyBudget
from puna.api.inspection import Inspector
from puna.api.observability.http_counts import HttpCounts
from puna.daemon.converting import Converter
from puna.daemon.images import ImageConverter
from puna.daemon.runtime import Runtime
from puna.registry.shared_pulls import SharedPulls


@dataclass(frozen=True, slots=True)
class ApiContext:
    """One per app."""

    runtime: Runtime
    inspector: Inspector
    bodies: BodyBudget
    http_counts: HttpCounts = field(default_factory=HttpCounts)
    pulls: SharedPulls = field(default_factory=SharedPulls)
    converter: Converter = field(default_factory=Converter)
    conversions: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(1))
    """Held by a conversion: one takes all cores."""
    images: ImageConverter = field(default_factory=ImageConverter)


def context_of(request: Request) -> ApiContext:
    """The context of the app that `request` came to."""
    context: ApiContext = request.app.state.context
    return context
