"""Requests to the engine and what they get back; these structs also travel over the worker's socket."""

from __future__ import annotations

from typing import Literal

import msgspec

from puna.gguf.pooling import Pooling

FinishReason = Literal["stop", "length", "cancelled", "error", "busy", "refused"]
"""busy: the queue is full, the request was not taken. refused: it asks for what cannot be done."""


Bytes = bytes
"""By another name, for structs with a field called bytes."""


class GenerationError(RuntimeError):
    """The engine refused a request, or gave up on it; the text says why."""


class SamplingParams(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How the next token is drawn; the meaning of each field is that of Ollama's options."""

    temperature: float = 0.8
    top_k: int = 40
    top_p: float = 0.9
    min_p: float = 0.0
    typical_p: float = 1.0
    repeat_last_n: int = 64
    repeat_penalty: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    """None: a random one."""
    logit_bias: dict[int, float] = {}
    num_logprobs: int = -1
    """-1: none; 0: of the chosen token; n: of the n most likely tokens, too."""


class Request(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A prompt to continue. An `id` is used once: late outputs of a cancelled request still bear it."""

    id: str
    model_id: str
    prompt: list[int]
    images: list[Bytes] = []
    """Encoded, in the order in which the prompt shows them; only llama.cpp's server sees any."""
    pieces: list[str] = []
    """With images: the prompt as text without BOS, cut where they stand; one more than images. `prompt` has
    the tokens of the text alone."""
    text: str = ""
    """The prompt as a text, in place of tokens; only for an engine with a tokenizer of its own."""
    adapter: str = ""
    """Id of a LoRA adapter that is loaded for the model; empty: none."""
    boundaries: list[int] = []
    """Positions in the prompt, ascending, where later prompts are likely to part from it: of a conversation,
    the last is where the reply is asked for. Of use to models with recurrent layers only."""
    sampling: SamplingParams = SamplingParams()
    max_tokens: int | None = None
    """None: until a stop token or the end of the context."""
    stop_tokens: list[int] = []
    stop: list[str] = []
    """Strings that end the reply before them; only for models whose token table is known."""
    pooling: Pooling | None = None
    """No reply: the prompt's embedding, with the hidden states of these tokens. Most of what follows is then
    of no use."""
    grammar: str = ""
    """Of llguidance: what the reply may be; empty: anything."""
    json_schema: str = ""
    """What the reply may be, in place of a grammar; only for llama.cpp's server."""
    shown_tokens: list[int] = []
    """Control tokens whose text belongs to the reply's."""
    context_length: int | None = None
    """Longest prompt and answer together, in tokens; never more than the model's own limit."""
    num_threads: int | None = None
    """Threads that compute its steps; None: all. Beside requests that want more, it gets more."""
    shift: bool = False
    """When the context is full: True discards the older half of what follows the first `num_keep` tokens and
    goes on; False ends with "length"."""
    num_keep: int = 0
    priority: int = 0
    """Requests of a higher one go first, and are preempted last."""
    cache_prompt: bool = True
    """Whether KV that is already there may be used."""
    cache_salt: str = ""
    """KV is shared only among requests with the same salt."""
    cache_to_disk: bool = True
    """False: KV that only such requests have needed is never written to a disk."""
    session: str | None = None
    """Keeps the KV of prompt and answer under this name when the request is done."""
    num_draft: int | None = None
    """Tokens drafted and verified in one step, at most; None: as many as pay, 0: none."""
    draft_model_id: str | None = None
    """A resident model with the same vocabulary that drafts; None: what followed the same tokens before."""


class TokenLogprob(msgspec.Struct, omit_defaults=True):
    """Log-probability of a token under the model's own distribution, before any sampling parameter."""

    token: int
    logprob: float
    bytes: Bytes = b""
    """What it stands for, if the token table is known; also of control tokens, which are not shown."""
    top: list[TokenLogprob] = []
    """The most likely ones in its place, best first."""


class RequestStats(msgspec.Struct):
    """Counts and durations of one request; monotonic clock."""

    prompt_tokens: int
    cached_tokens: int
    """Prompt tokens whose KV was already there."""
    prompt_ns: int
    """From the request's first step until its first token, or its end."""
    generated_tokens: int
    """Tokens drawn, a stop token included."""
    generation_ns: int
    """From the first token until the end."""
    drafted_tokens: int = 0
    """Tokens drafted."""
    accepted_tokens: int = 0
    """Those of them that were right."""


class StepOutput(msgspec.Struct, omit_defaults=True, gc=False):
    """The result of one step for one request."""

    request_id: str
    text: str = ""
    """Complete characters, and nothing of what may be a stop string; without a token table, none."""
    tokens: list[int] = []
    """Those whose text begins in `text`; at the end of a reply that no stop string ended, all that are left.
    Never the stop token."""
    logprobs: list[TokenLogprob] | None = None
    """One per token, if the request asked for them."""
    embedding: Bytes = b""
    """Of a request with `pooling`, at its end: float32 [hidden_size], of any length."""
    finish_reason: FinishReason | None = None
    stop_string: str = ""
    """The one that ended the reply, if one did."""
    error: str | None = None
    """What went wrong, if finish_reason is "error" or "refused"."""
    stats: RequestStats | None = None
    """At the end."""
