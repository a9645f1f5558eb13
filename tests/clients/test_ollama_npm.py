"""npm's `ollama`, unmodified."""

from __future__ import annotations

import json
import subprocess

import pytest

from tests.clients.agent_model import NAME
from tests.clients.conftest import NPM

pytestmark = pytest.mark.e2e

SCRIPT = """
import { Ollama } from 'ollama'
const client = new Ollama({ host: process.argv[1] }), model = process.argv[2]
const options = { temperature: 0, num_predict: 64 }
const ask = (text, more = {}) =>
  client.chat({ model, options, messages: [{ role: 'user', content: text }], ...more })
const age = { type: 'integer', minimum: 0, maximum: 150 }
const schema = { type: 'object', properties: { age }, required: ['age'] }
const city = { type: 'object', properties: { city: { enum: ['Oslo', 'Rome'] } }, required: ['city'] }
const tool = { type: 'function', function: { name: 'weather', description: 'of a city', parameters: city } }
const parts = []
for await (const part of await ask('Say hello.', { stream: true })) parts.push(part.message.content)
const tool_choice = 'required'
const called = await ask('How is the weather in Rome?', { tools: [tool], tool_choice })
console.log(JSON.stringify({
  chat: (await ask('Say hello.')).message.content,
  streamed: parts.join(''),
  structured: JSON.parse((await ask('How old is Bob? He is 42.', { format: schema })).message.content),
  calls: called.message.tool_calls,
  embeddings: (await client.embed({ model, input: ['a', 'b'] })).embeddings.map(e => e.length),
  capabilities: (await client.show({ model })).capabilities,
}))
"""


def test_all_that_it_does(url):
    done = subprocess.run(
        ["node", "--input-type=module", "--eval", SCRIPT, "--", url, NAME],
        cwd=NPM.parent,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    result = json.loads(done.stdout)
    assert result["chat"] == result["streamed"] != ""
    assert isinstance(result["structured"]["age"], int)
    called = result["calls"][0]
    assert called["function"]["name"] == "weather"
    assert called["function"]["arguments"]["city"] in ("Oslo", "Rome")
    assert len(set(result["embeddings"])) == 1
    assert "tools" in result["capabilities"]
