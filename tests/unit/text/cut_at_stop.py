from collections.abc import Sequence


def cut_at_stop(text: str, stops: Sequence[str]) -> str | None:
    """Reference: the shortest prefix that ends in a stop string, less the longest one it ends in."""
    for end in range(len(text) + 1):
        complete = [stop for stop in stops if text[:end].endswith(stop)]
        if complete:
            return text[: end - len(max(complete, key=len))]
    return None


def held_back(text: str, stops: Sequence[str]) -> int:
    """Reference: characters of the longest end of ``text`` that a stop string begins with and goes beyond."""
    lengths = (n for stop in stops for n in range(len(stop)) if text.endswith(stop[:n]))
    return max(lengths, default=0)
