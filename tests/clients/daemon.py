"""`python -m tests.clients.daemon`: a real daemon, with a scripted engine or calls that are forced.

--scripted: its engine worker is tests.clients.scripted_engine.
--force-call NAME: as long as a conversation has no result of a tool, the model must call this one; then it
must answer with a short JSON object, since a model that is no agent may go on for ever.
"""

from __future__ import annotations

import argparse
import json
from typing import Any

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from puna.api.app import create_app
from puna.config.settings import Settings
from puna.daemon.server import serve
from puna.worker.process import ChildProcess

_ENGINE = "puna.worker.engine"


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scripted", action="store_true")
    parser.add_argument("--force-call")
    arguments = parser.parse_args()
    if arguments.scripted:
        _use_scripted_engine()
    return serve(Settings.from_environment(), lambda runtime: _app(create_app(runtime), arguments.force_call))


def _use_scripted_engine() -> None:
    spawn = ChildProcess.spawn

    async def spawn_scripted(module: str) -> Any:
        return await spawn("tests.clients.scripted_engine" if module == _ENGINE else module)

    ChildProcess.spawn = spawn_scripted  # type: ignore[method-assign]


def _app(app: ASGIApp, tool: str | None) -> ASGIApp:
    return app if tool is None else _ForcedCall(app, tool)


_ANSWER = {
    "type": "object",
    "properties": {"answer": {"type": "string", "maxLength": 40}},
    "required": ["answer"],
    "additionalProperties": False,
}


class _ForcedCall:
    """Changes requests that have tools: what a client could ask for as well."""

    def __init__(self, app: ASGIApp, tool: str) -> None:
        self._app = app
        responses = {"tool_choice": {"type": "function", "name": tool}, "parallel_tool_calls": False}
        messages = {"tool_choice": {"type": "tool", "name": tool, "disable_parallel_tool_use": True}}
        self._first = {"/v1/responses": responses, "/v1/messages": messages}
        text = {"format": {"type": "json_schema", "name": "answer", "schema": _ANSWER}}
        output = {"format": {"type": "json_schema", "schema": _ANSWER}}
        self._then = {
            "/v1/responses": {"text": text, "tool_choice": "none"},
            "/v1/messages": {"output_config": output, "tool_choice": {"type": "none"}},
        }

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] not in self._first:
            await self._app(scope, receive, send)
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        changed = [{"type": "http.request", "body": self._changed(scope["path"], body), "more_body": False}]

        async def receive_changed() -> Message:
            return changed.pop() if changed else await receive()

        headers = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
        headers.append((b"content-length", str(len(changed[0]["body"])).encode()))
        await self._app({**scope, "headers": headers}, receive_changed, send)

    def _changed(self, path: str, body: bytes) -> bytes:
        request = json.loads(body)
        text = body.decode()
        has_result = '"tool_result"' in text or '"function_call_output"' in text
        if request.get("tools"):
            request |= (self._then if has_result else self._first)[path]
        return json.dumps(request).encode()


if __name__ == "__main__":
    raise SystemExit(main())
