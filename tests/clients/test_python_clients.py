"""Libraries that people build on, unmodified: chat, streams, tools, structured answers, embeddings."""

import asyncio
import json
import os
import subprocess
import sys
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from tests.clients.agent_model import NAME
from tests.clients.conftest import CHECKOUT

pytestmark = pytest.mark.e2e

HELLO = "Say hello."


class Person(BaseModel):
    name: Literal["Bob", "Eve"]
    age: Annotated[int, Field(ge=0, le=150)]


def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather of a city."""
    return f"Snow in {city}"


def test_langchain_ollama(url):
    from langchain_ollama import ChatOllama, OllamaEmbeddings

    chat = ChatOllama(model=NAME, base_url=url, temperature=0, num_predict=64)
    whole = chat.invoke(HELLO).content
    assert whole == "".join(str(chunk.content) for chunk in chat.stream(HELLO)) != ""
    assert isinstance(chat.with_structured_output(Person, method="json_schema").invoke("Bob is 42."), Person)
    called = chat.bind_tools([weather]).invoke("How is the weather in Rome?")
    assert {call["name"] for call in called.tool_calls} <= {"weather"}
    vectors = OllamaEmbeddings(model=NAME, base_url=url).embed_documents(["a", "b"])
    assert len(vectors[0]) == len(vectors[1]) > 0


def test_langchain_openai(url):
    from langchain_openai import ChatOpenAI, OpenAIEmbeddings

    chat = ChatOpenAI(model=NAME, base_url=f"{url}/v1", api_key="unused", temperature=0, max_tokens=64)
    whole = chat.invoke(HELLO).content
    assert whole == "".join(str(chunk.content) for chunk in chat.stream(HELLO)) != ""
    assert isinstance(chat.with_structured_output(Person).invoke("Bob is 42."), Person)
    called = chat.bind_tools([weather], tool_choice="required").invoke("How is the weather in Rome?")
    assert called.tool_calls[0]["name"] == "weather"
    embeddings = OpenAIEmbeddings(
        model=NAME, base_url=f"{url}/v1", api_key="unused", check_embedding_ctx_length=False
    )
    assert len(embeddings.embed_query("a")) > 0


def test_llama_index(url):
    from llama_index.core.llms import ChatMessage
    from llama_index.core.tools import FunctionTool
    from llama_index.llms.ollama import Ollama

    llm = Ollama(model=NAME, base_url=url, temperature=0, additional_kwargs={"num_predict": 64})
    hello = [ChatMessage(role="user", content=HELLO)]
    whole = llm.chat(hello).message.content
    assert whole == "".join(str(part.delta) for part in llm.stream_chat(hello)) != ""
    assert isinstance(llm.as_structured_llm(Person).complete("Bob is 42.").raw, Person)
    tool = FunctionTool.from_defaults(weather)
    reply = llm.chat_with_tools([tool], user_msg="How is the weather in Rome?")
    calls = llm.get_tool_calls_from_response(reply, error_on_no_tool_call=False)
    assert {call.tool_name for call in calls} <= {"weather"}


@pytest.mark.parametrize("provider", ["ollama_chat", "openai"])
def test_litellm(url, provider):
    import litellm

    base = url if provider == "ollama_chat" else f"{url}/v1"
    options: dict[str, Any] = {
        "model": f"{provider}/{NAME}",
        "api_base": base,
        "api_key": "unused",
        "temperature": 0,
        "frequency_penalty": 0,
        "stop": "zebra",
        "max_tokens": 64,
        "messages": [{"role": "user", "content": HELLO}],
    }
    whole = litellm.completion(**options).choices[0].message.content
    parts = [chunk.choices[0].delta.content or "" for chunk in litellm.completion(**options, stream=True)]
    assert whole == "".join(parts) != ""
    structured = litellm.completion(**options, response_format=Person)
    Person.model_validate_json(structured.choices[0].message.content)
    embedding = litellm.embedding(
        model=f"{provider.removesuffix('_chat')}/{NAME}", input=["a"], api_base=base, api_key="unused"
    )
    assert len(embedding.data[0]["embedding"]) > 0


def test_llm_ollama(url, tmp_path):
    environ = {**os.environ, "OLLAMA_HOST": url, "LLM_USER_PATH": str(tmp_path)}

    def llm(*arguments: str) -> str:
        command = [sys.executable, "-m", "llm", *arguments]
        return subprocess.run(
            command, env=environ, cwd=CHECKOUT, capture_output=True, text=True, timeout=120, check=True
        ).stdout

    assert NAME in llm("models")
    assert llm("-m", NAME, "-o", "num_predict", "64", HELLO).strip()
    schema = json.dumps(Person.model_json_schema())
    Person.model_validate_json(llm("-m", NAME, "--schema", schema, "Bob is 42."))


def test_instructor(url):
    import instructor
    from openai import OpenAI

    client = OpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    for mode in (instructor.Mode.JSON_SCHEMA, instructor.Mode.TOOLS):
        asking = instructor.from_openai(client, mode=mode)
        person = asking.chat.completions.create(
            model=NAME,
            messages=[{"role": "user", "content": "Bob is 42."}],
            response_model=Person,
            max_retries=0,
            temperature=0,
        )
        assert isinstance(person, Person)


@pytest.mark.parametrize("api", ["chat_completions", "responses"])
def test_openai_agents(url, api):
    from agents import (
        Agent,
        ModelSettings,
        OpenAIChatCompletionsModel,
        OpenAIResponsesModel,
        Runner,
        function_tool,
        set_tracing_disabled,
    )
    from openai import AsyncOpenAI

    set_tracing_disabled(True)
    client = AsyncOpenAI(base_url=f"{url}/v1", api_key="unused", max_retries=0)
    kind = OpenAIChatCompletionsModel if api == "chat_completions" else OpenAIResponsesModel
    agent = Agent(
        name="reporter",
        model=kind(model=NAME, openai_client=client),
        tools=[function_tool(weather)],
        tool_use_behavior="stop_on_first_tool",  # a small model may call and call
        model_settings=ModelSettings(
            tool_choice="required", parallel_tool_calls=False, temperature=0, max_tokens=64
        ),
    )
    result = asyncio.run(Runner.run(agent, "How is the weather in Rome?"))
    assert [item.type for item in result.new_items] == ["tool_call_item", "tool_call_output_item"]
    assert result.final_output in ("Snow in Oslo", "Snow in Rome")
