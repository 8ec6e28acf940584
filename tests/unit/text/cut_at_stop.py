from collections.abc import Sequence


def cut_at_stop(text: str, stops: Sequence[str]) -> str | None:
    """Reference: the shortest prefix that ends in a stop string, less the longest one it ends in."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - len(max(complete, key=len))]
    return None
