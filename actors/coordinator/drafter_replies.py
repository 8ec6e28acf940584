"""Checks of a drafter's replies, and texts of its failures, that are the same whatever carries the messages."""

from outrider.contracts.errors import DrafterBrokenError, DrafterSilentError
from outrider.wire.replies import Answer, Reply


def checked_answer(name: str, reply: Reply) -> Answer:
    if not isinstance(reply, Answer):
        raise DrafterBrokenError(f"drafter {name} needs to send an Answer, found {reply!r:.60}")
    return reply


def checked_probe(name: str, reply: Reply, reply_bytes: int) -> Answer:
    answer = checked_answer(name, reply)
    if len(answer.data) != reply_bytes:
        raise DrafterBrokenError(f"drafter {name} needs to send {reply_bytes} bytes, found {len(answer.data)}")
    return answer


def silent(name: str, deadline_s: float) -> DrafterSilentError:
    return DrafterSilentError(
        f"drafter {name} needs to answer within {deadline_s:g} s and did not; the generation continues without it"
    )


def broken(name: str, error: DrafterBrokenError) -> DrafterBrokenError:
    return DrafterBrokenError(f"drafter {name}: {error}")
