"""The way of a generate or chat request: checks, the model, the prompt, the reply. Both faces come here."""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field

import msgspec

from puna.api.checks import (
    answer_format,
    check_capabilities,
    check_extensions,
    check_raw,
    check_sampling,
    check_tokens_exist,
    check_top_logprobs,
    effective_think,
)
from puna.api.context import ApiContext
from puna.api.errors import ApiError
from puna.api.images.checking import check_places, prepared_images
from puna.api.names import find_model, parse_name
from puna.api.options import Options, parse_options
from puna.api.replying.engine_requests import engine_request
from puna.api.replying.events import Event, Finish, Rendered
from puna.api.replying.generation import Clock, generate_reply
from puna.api.replying.merging import merge
from puna.api.requests import ChatRequest, GenerateRequest, InferenceRequest, Think
from puna.api.tool_choices import parse_tool_choice
from puna.chat.messages import Message
from puna.chat.prompt import Prompt, PromptRequest
from puna.chat.templates.model_templates import ModelTemplates
from puna.chat.tools import Tool, ToolChoice
from puna.daemon.runtime import ResidentModel, Runtime
from puna.registry import ModelNotFound, StoredModel

_ANY_LENGTH = 2**31 - 1
"""Of a context, in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Task:
    """What tells generate and chat apart."""

    verb: str
    is_empty: bool
    """Nothing to answer: the client wants the model loaded, or unloaded."""
    needs: tuple[str, ...]
    """Capabilities, besides completion."""
    without_name: ApiError
    check: Callable[[], None] = lambda: None
    messages: list[Message] = field(default_factory=list)
    tools: list[Tool] = field(default_factory=list)
    tool_choice: ToolChoice = field(default_factory=ToolChoice)
    prompts: Sequence[str | list[int]] = ()
    system: str = ""
    images: list[bytes] = field(default_factory=list)
    """In the order of their messages."""
    template: str = ""
    """Instead of the model's own."""
    suffix: str = ""
    context: list[int] = field(default_factory=list)
    num_choices: int = 1
    """Replies to each prompt."""
    must_think: bool = True
    """If thoughts are asked for."""
    is_raw: bool = False
    gives_context: bool = False


def generate(
    context: ApiContext,
    request: GenerateRequest,
    *,
    prompts: Sequence[str | list[int]] = (),
    num_choices: int = 1,
) -> AsyncGenerator[Event, None]:
    """Events of one request; each choice ends with Finish, or there is only Rendered.

    prompts: instead of the request's own; tokens are taken as they are.
    num_choices: replies to each; the i-th one to prompt p is choice p * num_choices + i.
    Raises what puna.api.errors has a status for.
    """
    prompts = prompts or [request.prompt]

    needs = {"insert": request.suffix, "vision": request.images}
    task = _Task(
        verb="generate",
        is_empty=not any(prompts),
        needs=tuple(capability for capability, wanted in needs.items() if wanted),
        without_name=ApiError(404, "model '' not found"),
        check=lambda: check_raw(request),
        prompts=prompts,
        images=request.images,
        system=request.system,
        suffix=request.suffix,
        template=request.template,
        context=request.context,
        num_choices=num_choices,
        is_raw=request.raw,
        gives_context=not request.raw,
    )
    return _infer(context, request, task)


def chat(
    context: ApiContext, request: ChatRequest, *, num_choices: int = 1, must_think: bool = True
) -> AsyncGenerator[Event, None]:
    """Events of one request; each choice ends with Finish, or there is only Rendered.

    must_think: if thoughts are asked for; else a model that has none does without.
    Raises what puna.api.errors has a status for.
    """
    return _infer(context, request, _chat_task(request, num_choices, must_think))


async def chat_prompt_request(context: ApiContext, request: ChatRequest) -> tuple[StoredModel, PromptRequest]:
    """What a text worker is asked for where nothing is to be generated: the prompt of any length. A model
    that has no thoughts does without. Raises what puna.api.errors has a status for.
    """
    task = _chat_task(request, must_think=False)
    model = await find_model(context.runtime.store, request.model)
    think, _ = await _check(context, request, task, model)
    templates = context.inspector.templates(model, model.template or "")
    prompt = _prompt_request(request, task, model, templates, think, context_length=_ANY_LENGTH)
    return model, msgspec.structs.replace(prompt, truncate=False)


def _chat_task(request: ChatRequest, num_choices: int = 1, must_think: bool = True) -> _Task:
    images = [image for message in request.messages for image in message.images]
    needs = {"tools": request.tools, "vision": images}
    return _Task(
        verb="chat",
        is_empty=not request.messages,
        needs=tuple(capability for capability, wanted in needs.items() if wanted),
        without_name=ApiError(400, "model is required"),
        messages=request.messages,
        images=images,
        tools=request.tools,
        tool_choice=parse_tool_choice(request.tool_choice, parallel=True),
        num_choices=num_choices,
        must_think=must_think,
    )


async def _infer(context: ApiContext, request: InferenceRequest, task: _Task) -> AsyncGenerator[Event, None]:
    clock = Clock(arrival_ns=time.monotonic_ns())
    keep_alive_s = request.keep_alive_s()
    request.think_mode()  # like the body's other fields, wrong whatever the model is
    check_top_logprobs(request.top_logprobs)
    check_extensions(request, max(len(task.prompts), 1) * task.num_choices)
    if not request.model:
        raise task.without_name
    if task.is_empty and keep_alive_s == 0:
        await _unload(context.runtime, request.model)
        yield Finish("unload")
        return
    model = await find_model(context.runtime.store, request.model)
    think, options = await _check(context, request, task, model)
    images = await prepared_images(task.images, context.images)
    draft = await find_model(context.runtime.store, options.draft_model) if options.draft_model else None
    async with context.runtime.resident(
        model,
        num_ctx=options.num_ctx,
        keep_alive=keep_alive_s,
        draft_model=str(draft.name) if draft else None,
        num_gpu=options.num_gpu,
        sees=bool(images),
    ) as resident:
        clock.loaded_ns = time.monotonic_ns()
        check_tokens_exist(options, resident.info.vocab_size)
        if task.is_empty:
            yield Finish("load")
            return
        prompts = await context.runtime.text.build_prompts(
            resident.text,
            _prompt_request(
                request,
                task,
                resident.model,
                context.inspector.templates(resident.model, resident.model.template or ""),
                think,
                context_length=resident.context_length,
                num_keep=options.num_keep,
                with_boundaries=resident.info.state_bytes > 0,
            ),
        )
        places = [prompt.cut.images for prompt in prompts if prompt.cut]
        check_places(images, places, task.num_choices)
        if request.debug_render_only:
            cut = prompts[0].cut
            yield Rendered(prompts[0].text, len(cut.images) if cut else 0)
            return
        replies = _replies(context.runtime, request, task, options, prompts, resident, images, clock)
        async with aclosing(merge(replies)) as events:
            async for event in events:
                yield event


def _replies(
    runtime: Runtime,
    request: InferenceRequest,
    task: _Task,
    options: Options,
    prompts: Sequence[Prompt],
    resident: ResidentModel,
    images: Sequence[bytes],
    clock: Clock,
) -> list[AsyncGenerator[Event, None]]:
    """Of each prompt as many as are asked for."""
    asked = [
        (prompt, engine_request(runtime.new_request_id(), request, options, prompt, resident, choice, images))
        for prompt in prompts
        for choice in range(task.num_choices)
    ]
    return [
        generate_reply(
            runtime, each, prompt, clock, tools=task.tools, index=index, with_context=task.gives_context
        )
        for index, (prompt, each) in enumerate(asked)
    ]


async def _check(
    context: ApiContext, request: InferenceRequest, task: _Task, model: StoredModel
) -> tuple[Think, Options]:
    """Refuses what this model cannot do. Raises what puna.api.errors has a status for."""
    task.check()
    if not task.is_raw:
        await context.inspector.check_template(model)
    record = await context.inspector.record(model)
    think = effective_think(request, record, must_think=task.must_think)
    check_capabilities(request, model, record, task.verb, task.needs)
    answer_format(request.format)  # like the body's other fields, wrong whatever the model is
    options = parse_options(model.params, request.options)
    check_sampling(options)
    return think, options


async def _unload(runtime: Runtime, text: str) -> None:
    """The model need not be loaded. ApiError (404) if there is none of that name."""
    try:
        await runtime.unload(str(parse_name(text)))
    except ModelNotFound as error:
        raise ApiError(404, f"model '{text}' not found") from error


def _prompt_request(
    request: InferenceRequest,
    task: _Task,
    model: StoredModel,
    templates: ModelTemplates,
    think: Think,
    *,
    context_length: int,
    num_keep: int = 0,
    with_boundaries: bool = False,
) -> PromptRequest:
    return PromptRequest(
        messages=[_without_images(message) for message in task.messages],
        num_images=len(task.images) if task.prompts else 0,
        prompts=list(task.prompts),
        tools=task.tools,
        tool_choice=task.tool_choice,
        answer=answer_format(request.format),
        raw=task.is_raw,
        context=task.context,
        system=task.system or model.system or "",
        embedded=[Message(role=message.role, content=message.content) for message in model.messages],
        think=think.enabled,
        think_level=think.level,
        suffix=task.suffix,
        template=task.template,
        templates=templates,
        forgets_thoughts=bool(task.messages) and _forgets_thoughts(model),
        context_length=context_length,
        num_keep=num_keep,
        truncate=request.truncate,
        shift=request.shift,
        with_boundaries=with_boundaries,
    )


def _without_images(message: Message) -> Message:
    """Only with how many there are: who makes the prompt needs no more."""
    return msgspec.structs.replace(message, images=[b""] * len(message.images)) if message.images else message


def _forgets_thoughts(model: StoredModel) -> bool:
    """Models that must not see what they thought before the user's latest message."""
    return model.config.family == "qwen3" or model.name.model.lower() == "deepseek-r1"
