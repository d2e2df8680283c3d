"""Which tests run a line, and whether they notice that it has changed.

A mutant is tried in a process forked from this one, in which torch and Flower are imported already, so
that a trial costs its tests. No file is changed: the mutant is imported in the module's place.
"""

import contextlib
import importlib.abc
import importlib.util
import os
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from coverage import CoverageData

from helpers.mutation.mutants import Mutant

OPTIONS = ("-p", "no:xdist", "-p", "no:cacheprovider")
CPU_SECONDS = 60  # of one test, of a few; an endless loop is noticed, too
WALL_SECONDS = 120.0  # so is a mutant that waits
OURS = ("strategies", "clients", "baselines")


class TestsFail(RuntimeError):
    """The tests fail without any mutant."""


class Tests:
    """The tests of a folder of ``tests/``, and which of them run a line.

    Parameters
    ----------
    root : the checkout
    folder : a package's name, and that of its folder of tests
    cache : where the coverage is kept from run to run, while no file has changed
    """

    def __init__(self, root: Path, folder: str, cache: Path) -> None:
        self.root, self.folder = root, f"tests/{folder}"
        data = cache / f"{folder}.coverage"
        sources = [p for name in (*OURS, "tests") for p in (root / name).rglob("*.py")]
        newest = max(path.stat().st_mtime for path in sources if "mutation" not in path.parts)
        if not data.exists() or data.stat().st_mtime < newest:
            self._measure(folder, data)
        self.coverage = CoverageData(str(data))
        self.coverage.read()

    def _measure(self, folder: str, data: Path) -> None:
        new = data.with_suffix(".new")
        measured = (f"--cov={folder}", "--cov-context=test", "--cov-report=")
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *OPTIONS, *measured, self.folder],
            cwd=self.root,
            env={**os.environ, "COVERAGE_FILE": str(new)},
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        if done.returncode:
            raise TestsFail(f"{self.folder} fails without a mutant:\n{done.stdout[-3000:]}")
        new.rename(data)

    def of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the changed statement, those named after the module first.

        Where the statement runs on import alone: the files with a test that runs any line of its file.
        """
        by_line = self.coverage.contexts_by_lineno(str(self.root / mutant.file))
        first, last = mutant.lines
        contexts = set[str]().union(*(by_line.get(line, ()) for line in range(first, last + 1)))
        on_import = contexts == {""}
        if on_import:
            contexts = contexts.union(*by_line.values())
        tests = {context.rsplit("|", 1)[0] for context in contexts} - {""}
        if on_import:
            tests = {test.split("::")[0] for test in tests}
        stem = Path(mutant.file).stem
        return sorted(tests, key=lambda test: (stem not in Path(test.split("::")[0]).name, test))


class Mutated(importlib.abc.MetaPathFinder, importlib.abc.InspectLoader):
    """Imports the mutant where its module is asked for."""

    def __init__(self, root: Path, mutant: Mutant) -> None:
        self.path, self.source = root / mutant.file, mutant.source
        parts = Path(mutant.file).with_suffix("").parts
        self.name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def find_spec(self, name, path=None, target=None):  # type: ignore[no-untyped-def]
        if name != self.name:
            return None
        return importlib.util.spec_from_file_location(name, self.path, loader=self)

    def get_source(self, fullname: str) -> str:
        return self.source

    def is_package(self, fullname: str) -> bool:
        return self.path.name == "__init__.py"

    def get_filename(self, fullname: str) -> str:
        return str(self.path)


class Progress:
    """A plugin that notes which test runs, and gives each its own time."""

    def __init__(self, note: Path) -> None:
        self.note = note

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        self.note.write_text(nodeid, encoding="utf-8")
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + CPU_SECONDS
        resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.RLIM_INFINITY))


def warm_up(root: Path, folders: Sequence[str]) -> None:
    """Import what the tests import, and forget what is ours: a trial imports it anew."""
    with _silence():
        pytest.main([*OPTIONS, "-p", "no:cov", "--collect-only", *folders])
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None)
        ours = file is not None and any(root / each in Path(file).parents for each in (*OURS, "tests"))
        if ours and Path(__file__).parent not in Path(str(file)).parents:
            del sys.modules[name]


def verdict(root: Path, mutant: Mutant, tests: Sequence[str]) -> str:
    """Return what became of a mutant: ``killed``, ``killed by the time limit`` or ``survived``.

    A test that fails without the change as well tells nothing, and is left out.
    """
    unchanged = replace(mutant, source=(root / mutant.file).read_text(encoding="utf-8"))
    left = list(tests)
    while left:
        status, last = _trial(root, mutant, left)
        if status == "survived" or (last and _trial(root, unchanged, [last])[0] == "survived"):
            return status
        if not last:  # none began: the module cannot be imported
            if _trial(root, unchanged, [*left, "--collect-only"])[0] == "survived":
                return status
            raise TestsFail(f"of {mutant.file}: the tests are not found without the mutant either: {left}")
        print(f"    left out, as it fails without the mutant: {last}", flush=True)
        left.remove(last)
    return "survived"


def _trial(root: Path, mutant: Mutant, tests: Sequence[str]) -> tuple[str, str]:
    """Return what became of it, and the last test that began."""
    with tempfile.TemporaryDirectory() as folder:
        note = Path(folder, "test")
        note.touch()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                sys.meta_path.insert(0, Mutated(root, mutant))
                with _silence():
                    code = int(pytest.main([*OPTIONS, "-p", "no:cov", "-x", *tests], [Progress(note)]))
            finally:
                os._exit(code)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:
            if time.time() > note.stat().st_mtime + WALL_SECONDS:
                os.kill(child, signal.SIGKILL)
            time.sleep(0.05)
        last = note.read_text(encoding="utf-8")
    if os.WIFSIGNALED(ended[1]):
        return "killed by the time limit", last
    return "killed" if ended[1] else "survived", last


@contextlib.contextmanager
def _silence():  # type: ignore[no-untyped-def]
    """Keep what is printed to oneself, by whatever way."""
    kept = [os.dup(descriptor) for descriptor in (1, 2)]
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        for descriptor in (1, 2):
            os.dup2(nowhere, descriptor)
        yield
    finally:
        for descriptor, old in zip((1, 2), kept, strict=True):
            os.dup2(old, descriptor)
            os.close(old)
        os.close(nowhere)
