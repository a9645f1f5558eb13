"""Ways to say the same conversation so that stricter templates take it.

Each changes only the messages that it is about, and what it makes of them depends on little before them and
on nothing behind them: so the prompt of a conversation that goes on still begins as before.
"""

from __future__ import annotations

import hashlib
import string
from collections.abc import Callable, Sequence

import msgspec

from puna.chat.messages import Message, ToolCall

Repair = Callable[[Sequence[Message]], list[Message]]

_NOTHING = " "
"""Of an answer: some templates refuse an empty one."""
_ID_LENGTH = 9
_ID_ALPHABET = string.ascii_letters + string.digits


def short_ids(messages: Sequence[Message]) -> list[Message]:
    """Ids of calls have nine letters or digits (Mistral)."""
    return [
        msgspec.structs.replace(
            message,
            tool_calls=[msgspec.structs.replace(call, id=_short_id(call.id)) for call in message.tool_calls],
            tool_call_id=_short_id(message.tool_call_id),
        )
        for message in messages
    ]


def _short_id(call_id: str | None) -> str | None:
    if call_id is None or (len(call_id) == _ID_LENGTH and all(c in _ID_ALPHABET for c in call_id)):
        return call_id
    digest = hashlib.sha256(call_id.encode(errors="replace")).digest()
    return "".join(_ID_ALPHABET[byte % len(_ID_ALPHABET)] for byte in digest[:_ID_LENGTH])


def single_calls(messages: Sequence[Message]) -> list[Message]:
    """An assistant's message has one call, and its result follows it (Llama 3)."""
    result: list[Message] = []
    for caller, group in _turns(messages):
        if caller is None or len(caller.tool_calls) < 2:
            result += group if caller is None else [caller, *group]
            continue
        for number, call in enumerate(caller.tool_calls):
            alone = Message("assistant", tool_calls=[call])
            result.append(alone if number else msgspec.structs.replace(caller, tool_calls=[call]))
            result += _taken(group, call)
        result += group
    return result


def _turns(messages: Sequence[Message]) -> list[tuple[Message | None, list[Message]]]:
    """Messages with calls, each with the results behind it; the others are in groups without such a one."""
    turns: list[tuple[Message | None, list[Message]]] = []
    for message in messages:
        if message.tool_calls:
            turns.append((message, []))
        elif turns and (message.role == "tool" or turns[-1][0] is None):
            turns[-1][1].append(message)
        else:
            turns.append((None, [message]))
    return turns


def _taken(results: list[Message], call: ToolCall) -> list[Message]:
    """The result of this call: the one with its id, else the next one; it is not among `results` any more."""
    by_id = (
        i for i, message in enumerate(results) if call.id is not None and message.tool_call_id == call.id
    )
    index = next(by_id, 0)
    return [results.pop(index)] if results else []


def calls_apart(messages: Sequence[Message]) -> list[Message]:
    """Calls are in a message of their own, behind what is said (DeepSeek R1)."""
    result: list[Message] = []
    for message in messages:
        if message.tool_calls and message.content:
            result.append(msgspec.structs.replace(message, tool_calls=[]))
            result.append(Message(message.role, tool_calls=message.tool_calls))
        else:
            result.append(message)
    return result


def orphans_as_user(messages: Sequence[Message]) -> list[Message]:
    """Results of calls that are not there come from the user (gpt-oss, MiniMax)."""
    result: list[Message] = []
    for message in messages:
        is_result = message.role == "tool"
        follows_call = bool(result) and (result[-1].role == "tool" or bool(result[-1].tool_calls))
        result.append(_told_result(message) if is_result and not follows_call else message)
    return result


def calls_as_text(messages: Sequence[Message]) -> list[Message]:
    """Calls and results are what is said: for templates that know of neither."""
    return [_told_call(_told_result(message)) for message in messages]


def _told_call(message: Message) -> Message:
    if not message.tool_calls:
        return message
    calls = [msgspec.json.encode(call.function).decode() for call in message.tool_calls]
    return msgspec.structs.replace(message, content=_joined(message.content, *calls), tool_calls=[])


def _told_result(message: Message) -> Message:
    if message.role != "tool":
        return message
    of_what = f" of {message.tool_name}" if message.tool_name else ""
    return Message("user", f"Result{of_what}:\n{message.content}", images=message.images)


def developer_as_system(messages: Sequence[Message]) -> list[Message]:
    """There is no `developer`, which is a newer name for the system."""
    return [
        msgspec.structs.replace(message, role="system") if message.role == "developer" else message
        for message in messages
    ]


def one_system(messages: Sequence[Message]) -> list[Message]:
    """The system's messages at the beginning are one."""
    count = num_leading_system(messages)
    if count < 2:
        return list(messages)
    return [Message("system", _joined(*(m.content for m in messages[:count]))), *messages[count:]]


def later_system_as_user(messages: Sequence[Message]) -> list[Message]:
    """System messages within the conversation come from the user (Qwen 3.5, Mistral, SmolLM 3)."""
    count = num_leading_system(messages)
    return [*messages[:count], *map(_from_user, messages[count:])]


def all_system_as_user(messages: Sequence[Message]) -> list[Message]:
    """There is no system (Gemma 2)."""
    return [_from_user(message) for message in messages]


def _from_user(message: Message) -> Message:
    return msgspec.structs.replace(message, role="user") if message.role == "system" else message


def merged_runs(messages: Sequence[Message]) -> list[Message]:
    """Nobody speaks twice in a row (Gemma, Mistral, Llama 2)."""
    result: list[Message] = []
    for message in messages:
        last = result[-1] if result else None
        if last is None or message.role != last.role or message.role not in ("user", "assistant"):
            result.append(message)
        else:
            result[-1] = Message(
                message.role,
                _joined(last.content, message.content),
                thinking=_joined(last.thinking or "", message.thinking or "") or None,
                tool_calls=[*last.tool_calls, *message.tool_calls],
                images=[*last.images, *message.images],
            )
    return result


def without_empty_answers(messages: Sequence[Message]) -> list[Message]:
    """An answer says something, or calls something (Mistral)."""
    return [m for m in messages if m.role != "assistant" or m.content or m.tool_calls]


def user_first(messages: Sequence[Message]) -> list[Message]:
    """The user begins, with an empty message."""
    count = num_leading_system(messages)
    if count < len(messages) and messages[count].role == "user":
        return list(messages)
    return [*messages[:count], Message("user"), *messages[count:]]


def answer_before_user(messages: Sequence[Message]) -> list[Message]:
    """Between results and what the user says there is an answer, an empty one (Mistral)."""
    result: list[Message] = []
    for message in messages:
        if message.role == "user" and result and result[-1].role == "tool":
            result.append(Message("assistant", _NOTHING))
        result.append(message)
    return result


def num_leading_system(messages: Sequence[Message]) -> int:
    """How many messages of the system a conversation begins with."""
    return next((i for i, message in enumerate(messages) if message.role != "system"), len(messages))


def _joined(*texts: str) -> str:
    return "\n\n".join(filter(None, texts))
