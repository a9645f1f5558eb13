"""The OpenAPI document says what the server does: generated requests get documented replies, and soon.

PUNA_TEST_EXAMPLES: requests for each operation; `make api-fuzz` has many more than the usual few.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from schemathesis import Case
from schemathesis.checks import load_all_checks
from schemathesis.generation.modes import GenerationMode
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance
from schemathesis.specs.openapi.schemas import OpenApiSchema

from puna.api.app import ROUTES, create_app
from puna.api.openapi.document import openapi_document
from puna.daemon.runtime import Observation
from puna.engine.observation.stats import EngineStats
from tests.api.conftest import AddModel, Client
from tests.api.fake_runtime import FakeRuntime
from tests.serving import served

pytestmark = pytest.mark.unit

NUM_EXAMPLES = int(os.environ.get("PUNA_TEST_EXAMPLES", "3"))
TIMEOUT_S = 20
MODELS = ["m", "thinker", "caller", "embedder", "bare", "unknown", "", "a/b/c/d/e"]
NAMES = {"model": MODELS, "source": MODELS, "destination": ["copy"], "name": ["given", ""]}
"""Values of fields with which requests come further than to the model that is not there."""


def document() -> dict[str, Any]:
    """With names of models that there are."""
    described = openapi_document(ROUTES)
    for name, schema in described["components"]["schemas"].items():
        fields = schema.get("properties", {})
        for field in NAMES.keys() & fields.keys():
            of_other = name == "DeleteRequest" and field == "model"
            fields[field] = {"enum": ["deleted", "unknown"] if of_other else NAMES[field]}
    return described


DOCUMENT = document()
SCHEMA: OpenApiSchema = schemathesis.openapi.from_dict(DOCUMENT)
OPERATIONS = {found.ok().label: found.ok() for found in SCHEMA.get_all_operations()}


@pytest.fixture(scope="module")
def checks() -> list[Any]:
    load_all_checks()
    return [status_code_conformance, content_type_conformance]


@pytest.fixture
def url(runtime: FakeRuntime, add_model: AddModel) -> Iterator[str]:
    for name, file in (("m", "plain"), ("deleted", "plain"), *((name, name) for name in MODELS[1:5])):
        add_model(name, file)
    runtime.observation = Observation(EngineStats(1 << 30, [], memory_limit_bytes=1 << 30), 1, {})
    with served(create_app(runtime)) as port:
        yield f"http://127.0.0.1:{port}"


@pytest.mark.parametrize("label", OPERATIONS)
def test_generated_requests_get_documented_replies(url: str, label: str, checks: list[Any]) -> None:
    def check(case: Case) -> None:
        response = case.call(base_url=url, timeout=TIMEOUT_S)
        case.validate_response(response, checks=checks)
        assert b"internal server error" not in response.content

    operation = OPERATIONS[label]
    can_be_wrong = bool(operation.query) or any(
        each.media_type == "application/json" for each in operation.body
    )
    for mode in GenerationMode if can_be_wrong else [GenerationMode.POSITIVE]:
        strategy = operation.as_strategy(mode)
        settings(
            max_examples=NUM_EXAMPLES,
            deadline=None,
            derandomize=NUM_EXAMPLES < 100,
            database=None,
            phases=[Phase.generate],
            suppress_health_check=list(HealthCheck),
        )(given(strategy)(check))()


def test_every_route_is_in_the_document(client: Client) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert paths == openapi_document(ROUTES)["paths"]
    for route in ROUTES:
        (operations,) = [found for path, found in paths.items() if path == route.path.replace(":path", "")]
        assert {method.lower() for method in route.methods} & operations.keys()
        assert all(operation["summary"] for operation in operations.values())


def test_the_page_needs_nothing_from_elsewhere(client: Client) -> None:
    page = client.get("/docs")
    assert page.headers["content-type"].startswith("text/html")
    assert "openapi.json" in page.text
    assert "http:" not in page.text
    assert "https:" not in page.text
