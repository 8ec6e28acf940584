"""Why a request was not served, in the words of llm-d's router, for what comes behind it."""

from typing import Literal

from outrider.contracts.errors import NotAdmittedError

DROPPED_HEADER = "x-llm-d-request-dropped-reason"
DroppedReason = Literal["rejected-saturated", "rejected-ttl-expired", "rejected-no-endpoints"]


def dropped_reason(error: BaseException, status: int) -> DroppedReason | None:
    """The reason of a refusal by its error; None for other answers.

    A batch gateway retries what is saturated, and gives up what has waited in vain.
    """
    if status == 503:
        return "rejected-no-endpoints"
    if status != 429:
        return None
    waited = isinstance(error, NotAdmittedError) and error.waited
    return "rejected-ttl-expired" if waited else "rejected-saturated"
