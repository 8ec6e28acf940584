"""A second reader of what models write in the form of hermes: the service's own is not judged by itself. Pure."""

import re

_PARTS = re.compile(
    r"<think>(?P<thought>.*?)</think>"
    r'|<tool_call>\s*\{"name": "(?P<name>\w+)", "arguments": (?P<arguments>.*?)\}\s*</tool_call>'
    r"|(?P<said>(?:(?!<think>|<tool_call>).)+)",
    re.DOTALL,
)


def read_hermes(text: str) -> str | None:
    """An answer's text as all APIs tell it (``answers``); None where this reader does not know."""
    told, at = "", 0
    for part in _PARTS.finditer(text):
        if part.start() != at:
            return None
        at = part.end()
        head = f"call of {part['name']}" if part.lastgroup == "arguments" else part.lastgroup
        told += f"\n[{head}]\n{part[part.lastgroup or 0]}"
    return told if at == len(text) else None
