"""Tools as a coding agent offers them with every turn: twelve, 9 KB of JSON."""

from __future__ import annotations

from typing import Any

_PATH = {"type": "string", "description": "The absolute path of the file; it must not be relative."}
_TIMEOUT = {
    "type": "integer",
    "minimum": 1000,
    "maximum": 600_000,
    "description": "How long to wait for it to end, in milliseconds; two minutes by default.",
}
_ADVICE = (
    "Prefer this to the shell. Several calls may stand in one reply if none of them needs what another one "
    "brings. Paths are absolute. What is longer than 2,000 lines is cut, and says so at its end; ask for the "
    "rest with offset and limit. The result is text, one line for each thing that was found, and is empty if "
    "there was none. Do not call it again with the same arguments: the result would be the same."
)


def _tool(
    name: str, description: str, required: list[str], /, **properties: dict[str, Any]
) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": properties,
        "required": required,
        "additionalProperties": False,
    }
    return {"name": name, "description": f"{description} {_ADVICE}", "parameters": parameters}


def _text(description: str) -> dict[str, Any]:
    return {"type": "string", "description": description}


def _choice(description: str, *values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values), "description": description}


def _number(description: str) -> dict[str, Any]:
    return {"type": "integer", "minimum": 0, "description": description}


def _flag(description: str) -> dict[str, Any]:
    return {"type": "boolean", "description": description}


_TASK = {
    "type": "object",
    "properties": {
        "content": {"type": "string", "minLength": 1},
        "status": _choice("How far it is.", "pending", "in_progress", "completed"),
        "priority": _choice("How much it matters.", "high", "medium", "low"),
    },
    "required": ["content", "status", "priority"],
    "additionalProperties": False,
}
_EDIT = {
    "type": "object",
    "properties": {
        "old_string": _text("The text to replace; it must occur once."),
        "new_string": _text("What it becomes."),
        "replace_all": _flag("Wherever it occurs."),
    },
    "required": ["old_string", "new_string"],
    "additionalProperties": False,
}

FUNCTIONS: list[dict[str, Any]] = [
    _tool(
        "read_file",
        "Reads a file, or a part of it.",
        ["path"],
        path=_PATH,
        offset=_number("The first line."),
        limit=_number("How many lines."),
    ),
    _tool(
        "write_file",
        "Writes a file in place of what was there.",
        ["path", "content"],
        path=_PATH,
        content=_text("All of it."),
    ),
    _tool(
        "edit_file",
        "Replaces text in a file.",
        ["path", "edits"],
        path=_PATH,
        edits={"type": "array", "items": _EDIT, "minItems": 1},
    ),
    _tool(
        "run_command",
        "Runs a command in a shell that stays as it was left.",
        ["command", "description"],
        command=_text("The command."),
        description=_text("What it does, in five to ten words."),
        timeout=_TIMEOUT,
        in_background=_flag("Do not wait for its end."),
    ),
    _tool(
        "find_files",
        "Finds files whose paths match a pattern.",
        ["pattern"],
        pattern=_text("With * and **."),
        path=_PATH,
    ),
    _tool(
        "search_text",
        "Finds lines that match a regular expression.",
        ["pattern"],
        pattern=_text("The regular expression."),
        path=_PATH,
        glob=_text("Only in files whose paths match this pattern."),
        output_mode=_choice("What to show.", "content", "files_with_matches", "count"),
        context=_number("Lines to show around each one."),
        multiline=_flag("The expression may match line breaks."),
        head_limit=_number("Results to show at most."),
    ),
    _tool(
        "list_directory",
        "Lists a directory.",
        ["path"],
        path=_PATH,
        ignore={"type": "array", "items": {"type": "string"}, "description": "Patterns to leave out."},
    ),
    _tool(
        "fetch_page",
        "Fetches a page and answers a question about it.",
        ["url", "prompt"],
        url={"type": "string", "format": "uri", "description": "The page's address."},
        prompt=_text("What to find out."),
    ),
    _tool(
        "search_web",
        "Searches the web.",
        ["query"],
        query={"type": "string", "minLength": 2, "description": "What to search for."},
        allowed_domains={"type": "array", "items": {"type": "string"}},
        blocked_domains={"type": "array", "items": {"type": "string"}},
    ),
    _tool(
        "write_tasks",
        "Keeps the list of what is to be done.",
        ["tasks"],
        tasks={"type": "array", "items": _TASK},
    ),
    _tool(
        "start_agent",
        "Has another agent do a task, and returns what it reports.",
        ["description", "prompt", "kind"],
        description=_text("The task in three to five words."),
        prompt=_text("The task."),
        kind=_choice("Which agent.", "general", "explore", "plan", "review"),
    ),
    _tool(
        "edit_notebook",
        "Replaces, inserts or deletes a cell of a notebook.",
        ["path", "new_source"],
        path=_PATH,
        cell_id=_text("Of the cell, or of the one in front of the new one."),
        cell_type=_choice("What is in it.", "code", "markdown"),
        edit_mode=_choice("What to do.", "replace", "insert", "delete"),
        new_source=_text("The cell's text."),
    ),
]
"""As OpenAI's API has them."""

ANSWER_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "summary": {"type": "string"},
        "title": {"type": "string"},
        "rating": {"type": "integer", "minimum": 1, "maximum": 5},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 24}, "maxItems": 8},
    },
    "required": ["summary", "title", "rating", "tags"],
    "additionalProperties": False,
}
"""Of an answer that begins with a text of any length."""
