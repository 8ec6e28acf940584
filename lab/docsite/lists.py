"""Lists as GitHub reads them: one may follow a paragraph at once, where Python-Markdown wants an empty line."""

import re

_CODE_OR_LIST = re.compile(r"^```.*?^```|^(?P<before>(?!- |  |\d+\. )\S[^\n]*\n)(?=- )", re.MULTILINE | re.DOTALL)


def with_space_before_lists(text: str) -> str:
    """Return the text with an empty line before each list that follows a paragraph; code stays."""
    return _CODE_OR_LIST.sub(lambda match: f"{match['before']}\n" if match["before"] else match[0], text)
