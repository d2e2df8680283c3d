"""Turn signals into ``KeyboardInterrupt``, so that every context manager can clean up."""

import contextlib
import signal
from collections.abc import Iterator
from types import FrameType
from typing import Any

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def make_interruptible() -> Iterator[None]:
    """Let SIGTERM (a scheduler's) and SIGHUP (a closed terminal's) interrupt as Ctrl-C does.

    An ignored signal stays ignored: after ``nohup``, or in the background of a script.
    """
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        for number, handler in handlers.items():
            if handler is not signal.SIG_IGN:
                signal.signal(number, _interrupt)
        yield
    finally:
        _restore(handlers)


@contextlib.contextmanager
def ignore_signals() -> Iterator[None]:
    """Ignore signals, as a second Ctrl-C, while other programs are being ended."""
    handlers = {number: signal.signal(number, signal.SIG_IGN) for number in SIGNALS}
    try:
        yield
    finally:
        _restore(handlers)


@contextlib.contextmanager
def restore_handlers() -> Iterator[None]:
    """Restore the signal handlers afterwards, whatever a library sets meanwhile."""
    handlers = {number: signal.getsignal(number) for number in SIGNALS}
    try:
        yield
    finally:
        _restore(handlers)


def _restore(handlers: dict[signal.Signals, Any]) -> None:
    for number, handler in handlers.items():
        signal.signal(number, handler)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)
