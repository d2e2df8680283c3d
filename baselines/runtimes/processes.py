"""Programs: run other programs beside this one, and end them reliably."""

import contextlib
import socket
import subprocess
import sys
import time
from pathlib import Path

from baselines.engine import signals
from baselines.engine.loggers import is_colored, without_colors
from baselines.errors import RunFailed

from . import guardian

HOST = "127.0.0.1"
END_SECONDS = guardian.END_SECONDS


class Programs:
    """A context that ends its programs on exit: after success, an error, Ctrl-C or SIGTERM.

    A program's children end with it, even detached ones: all carry a mark in their environment (on Linux;
    elsewhere a program must end its own children, as Flower's do). After SIGKILL the guardian ends them.

    Parameters
    ----------
    directory : where programs start, a folder without code that they might import by mistake
    environment : of every program
    logs : the folder that their output goes to, as ``<name>.log``
    """

    def __init__(self, directory: Path, environment: dict[str, str], logs: Path) -> None:
        self.directory = directory
        self.environment = environment | {guardian.PROGRAMS_VARIABLE: str(directory)}
        self.logs = logs
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> None:
        """Start a program in the background."""
        with open(self._log(name), "wb") as log:
            self._processes[name] = self._popen(command, log.fileno())

    def follow(self, name: str, command: list[str]) -> int:
        """Run a program to its end, echo its output, and return its exit status."""
        process = self._processes[name] = self._popen(command, subprocess.PIPE)
        assert process.stdout is not None
        with open(self._log(name), "wb") as log:
            for line in process.stdout:
                log.write(line)
                text = line.decode(errors="replace")
                print(text if is_colored(sys.stdout) else without_colors(text), end="", flush=True)
        return process.wait()

    def wait_for(self, name: str, port: int, timeout: float) -> None:
        """Wait until a program listens on its port.

        Raises
        ------
        RunFailed : when it has ended, or does not listen within ``timeout`` seconds
        """
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline and self._processes[name].poll() is None:
            with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
                return
            time.sleep(0.1)
        raise RunFailed(f"{name} does not listen on {HOST}:{port}; {self.tail(name)}")

    def tail(self, name: str, lines: int = 15) -> str:
        """Return the end of a program's log, with the file's name above it."""
        path = self._log(name)
        text = path.read_text(errors="replace").rstrip() if path.exists() else ""
        return "\n".join([f"the end of {path}:", *text.splitlines()[-lines:]])

    def __enter__(self) -> "Programs":
        """Let SIGTERM and SIGHUP interrupt as Ctrl-C does, so that the context is left; start the guardian."""
        self._interruptible = signals.make_interruptible()
        self._interruptible.__enter__()
        self._guardian = subprocess.Popen(
            [sys.executable, "-I", guardian.__file__, str(self.directory)],
            stdin=subprocess.PIPE,
            start_new_session=True,
        )
        return self

    def __exit__(self, *_: object) -> None:
        """End every program."""
        try:
            with signals.ignore_signals():
                guardian.end(self._alive, END_SECONDS)
                self._guardian.communicate()  # its input ends, and no program is left
        finally:
            self._interruptible.__exit__(None, None, None)

    def _log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def _popen(self, command: list[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            env=self.environment,
            cwd=self.directory,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,  # Ctrl-C on the terminal reaches this process alone
        )

    def _alive(self) -> set[int]:
        """Return the process ids of the programs and of every process that carries their mark."""
        alive = {process.pid for process in self._processes.values() if process.poll() is None}
        return alive | guardian.find_marked(str(self.directory))
