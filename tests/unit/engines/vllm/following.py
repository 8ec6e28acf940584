"""What followers in processes of their own are told to do. Each imports this file anew: it imports next to nothing."""

import os
import signal
import threading
from typing import Any

from outrider.engines.vllm import followers
from outrider.engines.vllm.followers import Answer, Followers


def ready(fault: str = "") -> Answer:
    if fault:
        raise ValueError(fault)
    return answer


def answer(method: str, args: Any, kwargs: Any) -> object:
    if method == "fail":
        raise ValueError("asked to")
    if method == "die":
        os.kill(os.getpid(), signal.SIGKILL)
    return method, args, kwargs


def started(*faults: str) -> Followers:
    group = Followers(ready, [(fault,) for fault in faults])
    group.beside(lambda: None, deadline_s=None)
    return group


def stuck() -> None:
    """Wait, as in a collective, for a rank that is gone."""
    followers.GRACE_S = 0.2
    group = started("")
    group.broadcast("die", (), {})
    group.beside(threading.Event().wait)
