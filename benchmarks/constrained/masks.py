"""What a mask takes, with a vocabulary like Qwen's: 151,936 tokens, in which tags are tokens, but text."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import mean

from benchmarks.figures import Row, Target
from puna._native import CompiledGrammar, GrammarTokenizer, ReplyGrammar, compute_masks
from puna.chat.grammars.builder import GrammarBuilder
from puna.chat.grammars.task import ReplyTask
from puna.chat.replies.families.family import Family
from puna.chat.replies.families.registry import FAMILIES
from puna.chat.replies.thinking import THINK
from puna.chat.tools import Tool, ToolFunction
from puna.engine.grammars.compiling import compile_grammar
from puna.engine.grammars.limits import REPLY_S, TOKEN_S
from puna.engine.grammars.vocabulary import grammar_tokenizer
from puna.gguf import GgufFile
from puna.tokenizer import Tokenizer, load_tokenizer

_NUM_TOKENS = 151_936
_TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>", "<tool_response>", "</tool_response>")
_USER_DEFINED = 4
_LONGEST_MASK_US = 50.0

_STRING = {"type": "string"}
_TOOL = Tool(
    ToolFunction(
        "write_file",
        parameters={
            "type": "object",
            "properties": {"path": _STRING, "content": _STRING, "mode": {"type": "integer"}},
            "required": ["path", "content"],
        },
    )
)
_PROSE = (
    "The user wants a page that shows what the forecast says, so I should look at what is there first. "
    'It says "sunny" for Monday & 17 degrees; then rain. 3 < 4, and a<b holds.\n\nNow:\n- **one**: the page\n'
)
_PAGE = (
    '<html>\n<body class="a">\n  <h1>Title</h1>\n  <p>Some <b>bold</b> text</p>\n  <ul>\n    <li>one</li>\n'
    '  </ul>\n  <script>\n    for (let i = 0; i < n << 2; i++) {\n      add("a", i);\n    }\n  </script>\n'
    "</body>\n</html>"
)
_THOUGHTS, _TEXT = f"{_PROSE}</think>\n\n", f"{_PROSE}```\n{_PAGE}\n```\n"
_JSON = json.dumps({"name": "write_file", "arguments": {"path": "a/b.html", "content": _PAGE}})
_PARAMETERS = f"<parameter=path>\na/b.html\n</parameter>\n<parameter=content>\n{_PAGE}\n</parameter>"
_CALLS = {
    "hermes": f"<tool_call>\n{_JSON}\n</tool_call>",
    "qwen3-coder": f"<tool_call>\n<function=write_file>\n{_PARAMETERS}\n</function>\n</tool_call>",
}


def mask_rows(path: Path) -> list[Row]:
    """Of a reply's parts, in one thread, with nothing else to do. path: a GGUF file whose vocabulary is
    taken, cut to as many tokens.
    """
    tokenizer = _tokenizer(path)
    start = time.perf_counter()
    prepared_vocabulary = grammar_tokenizer(tokenizer)
    compiled = {name: _compiled(prepared_vocabulary, tokenizer, FAMILIES[name]) for name in _CALLS}
    prepared = f"{time.perf_counter() - start:.2f} s"
    rows = [Row(f"vocabulary of {tokenizer.vocab_size} prepared, two grammars compiled", prepared)]
    for name, call in _CALLS.items():
        parts = {"thoughts": _THOUGHTS, "text": _TEXT, "a call": call}
        first, later = (_times(compiled[name], tokenizer, list(parts.values())) for _ in range(2))
        for part, cold, warm in zip(parts, first, later, strict=True):
            figures = f"{mean(cold):.0f} us on average, {max(cold):.0f} at most; later {mean(warm):.0f} us"
            target = Target(_LONGEST_MASK_US, is_least=False)
            rows.append(Row(f"a mask in {part}, {name}", figures, target=target, value=mean(cold)))
    return rows


def _tokenizer(path: Path) -> Tokenizer:
    with GgufFile(path) as file:
        metadata = dict(file.metadata)
    keys = ("tokens", "token_type", *(["scores"] if "tokenizer.ggml.scores" in metadata else []))
    tokens, types, *scores = (list(metadata[f"tokenizer.ggml.{key}"])[:_NUM_TOKENS] for key in keys)
    num_words = len(tokens) - len(_TAGS)
    tokens[num_words:], types[num_words:] = _TAGS, [_USER_DEFINED] * len(_TAGS)
    for key, values in zip(keys, (tokens, types, *scores), strict=True):
        metadata[f"tokenizer.ggml.{key}"] = values
    return load_tokenizer(metadata)


def _compiled(vocabulary: GrammarTokenizer, tokenizer: Tokenizer, family: Family) -> CompiledGrammar:
    assert family.grammar is not None
    builder = GrammarBuilder(tokenizer.find_control)
    task = ReplyTask(tools=[_TOOL], thinking=THINK, starts_thinking=True)
    compiled = compile_grammar(vocabulary, builder.grammar(family.grammar(builder, task)))
    if not isinstance(compiled, CompiledGrammar):
        raise RuntimeError(str(compiled))
    return compiled


def _times(compiled: CompiledGrammar, tokenizer: Tokenizer, parts: Sequence[str]) -> list[list[float]]:
    """In microseconds: of each part's masks, with what accepting the tokens takes."""
    reply = ReplyGrammar(compiled, reply_s=REPLY_S, token_s=TOKEN_S)
    return [[_time(reply, token) for token in tokenizer.encode_within(part)] for part in parts]


def _time(reply: ReplyGrammar, token: int) -> float:
    start = time.perf_counter()
    compute_masks([reply], [()])
    reply.accept([token])
    return (time.perf_counter() - start) * 1e6
