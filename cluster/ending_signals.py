"""How Ctrl-C and SIGTERM end a service."""

import signal

_ENDING = (signal.SIGINT, signal.SIGTERM)


def end_on_signals() -> None:
    """Have the first signal end the service in good order, and the next one this process, whatever it hangs in.

    The first raises ``KeyboardInterrupt``.
    """

    def first(*_: object) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)  # the kernel's: Python's handlers wait for C code to return
        raise KeyboardInterrupt

    for number in _ENDING:
        signal.signal(number, first)
