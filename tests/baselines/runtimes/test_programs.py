"""Programs end with the context that started them, whatever happens in it."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from baselines.engine.signals import SIGNALS
from baselines.errors import RunFailed
from baselines.runtimes.processes import Programs
from helpers.checkout import ROOT

SLEEP = "import time; time.sleep(600)"
# A program with a child in a session of its own, which no signal to the parent reaches.
FAMILY = f"""
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", {SLEEP!r}], start_new_session=True)
print(child.pid, flush=True)
time.sleep(600)
"""
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); print(0, flush=True); " + SLEEP


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


def first_line(log: Path) -> str:
    for _ in range(600):
        if log.exists() and "\n" in log.read_text():
            return log.read_text().splitlines()[0]
        time.sleep(0.05)
    raise AssertionError(f"nothing in {log}")


def runs(pid: int) -> bool:
    """Say whether a process lives; one that has ended and waits to be collected does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


@pytest.fixture
def programs(tmp_path: Path) -> Programs:
    (tmp_path / "logs").mkdir()
    return Programs(tmp_path, dict(os.environ), tmp_path / "logs")


needs_proc = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="no /proc on this system")


@needs_proc
@pytest.mark.parametrize("error", [None, RuntimeError, KeyboardInterrupt, SystemExit])
def test_leaving_the_context_ends_programs_and_their_children(
    error: type[BaseException] | None, programs: Programs, tmp_path: Path
) -> None:
    started: set[int] = set()

    def leave() -> None:
        with programs:
            programs.start("family", python(FAMILY))
            child = int(first_line(tmp_path / "logs" / "family.log"))
            started.update({child, *(process.pid for process in programs._processes.values())})
            assert all(map(runs, started))
            if error:
                raise error

    with pytest.raises(error) if error else contextlib.nullcontext():
        leave()
    assert len(started) == 2
    assert not any(map(runs, started))


@needs_proc
def test_a_program_that_does_not_listen_to_sigterm_is_killed(
    programs: Programs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("baselines.runtimes.processes.END_SECONDS", 0.3)
    with programs:
        programs.start("deaf", python(DEAF))
        first_line(tmp_path / "logs" / "deaf.log")
        (process,) = programs._processes.values()
    assert process.poll() == -signal.SIGKILL


@pytest.fixture
def handled() -> Iterator[None]:
    """Start from the system's handlers, as a program in the foreground does."""
    before = {number: signal.signal(number, signal.SIG_DFL) for number in SIGNALS}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


PARENT = f"""
import os, pathlib, sys, time
from baselines.runtimes.processes import Programs
home = pathlib.Path(sys.argv[1])
with Programs(home, dict(os.environ), home) as programs:
    programs.start("family", [sys.executable, "-c", {FAMILY!r}])
    time.sleep(600)
"""


@pytest.mark.slow
@needs_proc
def test_programs_and_their_children_end_after_a_parent_that_is_killed(tmp_path: Path) -> None:
    parent = subprocess.Popen([*python(PARENT), str(tmp_path)], cwd=ROOT)
    child = int(first_line(tmp_path / "family.log"))
    assert runs(child)
    parent.kill()
    parent.wait()
    deadline = time.monotonic() + 30
    while runs(child) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not runs(child)


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("number", SIGNALS)
def test_a_signal_interrupts_and_the_handlers_come_back(programs: Programs, number: signal.Signals) -> None:
    def interrupted() -> None:
        with programs:
            programs.start("sleep", python(SLEEP))
            os.kill(os.getpid(), number)
            time.sleep(60)

    with pytest.raises(KeyboardInterrupt, match=number.name):
        interrupted()
    (process,) = programs._processes.values()
    assert process.poll() is not None
    assert {signal.getsignal(number) for number in SIGNALS} == {signal.SIG_DFL}


@pytest.mark.usefixtures("handled")
@pytest.mark.parametrize("number", SIGNALS)
def test_an_ignored_signal_stays_ignored(programs: Programs, number: signal.Signals) -> None:
    """As after nohup, or in the background of a script."""
    signal.signal(number, signal.SIG_IGN)
    with programs:
        os.kill(os.getpid(), number)
    assert signal.getsignal(number) is signal.SIG_IGN


def test_waiting_for_a_program_that_has_ended_shows_the_end_of_its_log(programs: Programs) -> None:
    with programs:
        programs.start("broken", python("print('no such option'); raise SystemExit(3)"))
        with pytest.raises(
            RunFailed, match=r"(?s)broken does not listen on .*broken\.log:\nno such option"
        ):
            programs.wait_for("broken", 9, timeout=60)


def test_waiting_returns_when_the_program_listens(programs: Programs) -> None:
    code = (
        "import socket, time; s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen(); "
        "print(s.getsockname()[1], flush=True); time.sleep(600)"
    )
    with programs:
        programs.start("server", python(code))
        port = int(first_line(programs.logs / "server.log"))
        programs.wait_for("server", port, timeout=60)


def test_following_shows_and_logs_the_output_and_returns_the_status(
    programs: Programs, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = "import os, sys; print(os.getcwd()); print('bad', file=sys.stderr); sys.exit(4)"
    with programs:
        assert programs.follow("talk", python(code)) == 4
    printed = sorted(capsys.readouterr().out.splitlines())
    assert printed == sorted([str(tmp_path.resolve()), "bad"])
    assert sorted((tmp_path / "logs" / "talk.log").read_text().splitlines()) == printed
