"""Colours of log lines: on a terminal, and not where NO_COLOR is set."""

from io import StringIO

import pytest

from baselines.engine.loggers import is_colored, without_colors


class Terminal(StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_alone_has_colors(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert is_colored(Terminal())
    assert not is_colored(StringIO())
    monkeypatch.setenv("NO_COLOR", "1")
    assert not is_colored(Terminal())


def test_codes_are_taken_out() -> None:
    assert without_colors("\x1b[92mINFO \x1b[0m:      [1m] round 1\n") == "INFO :      [1m] round 1\n"
