"""How Ctrl-C and SIGTERM end a service."""

import signal

_ENDING = (signal.SIGINT, signal.SIGTERM)


def end_on_signals() -> None:
    """The first signal raises ``KeyboardInterrupt``, which ends the service in order; the next kills this process.

    The second works even where the process hangs.
    """

    def first(*_: object) -> None:
        for number in _ENDING:
            signal.signal(number, signal.SIG_DFL)  # the kernel's handler: Python's would wait for C code to return
        raise KeyboardInterrupt

    for number in _ENDING:
        signal.signal(number, first)
