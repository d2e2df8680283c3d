"""Source: the hashes by which two processes, or two runs, know whether they run the same code."""

import hashlib
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from .places import ROOT

# What decides results, also as git understands it.
COVERED = ("strategies/**/*.py", "clients/**/*.py", "baselines/**/*.py", "conf/**/*.yaml")


@cache
def source_hash() -> str:
    """Return a hash of this installation's code and configuration: equal code, equal results."""
    paths = (path for pattern in COVERED for path in sorted(ROOT.glob(pattern)))
    return _hash((path.relative_to(ROOT).as_posix(), path) for path in paths)


def own_sources(targets: Iterable[str]) -> dict[str, str]:
    """Return a hash of each package of the user's own, by its name, that one of these targets is of."""
    known = {pattern.partition("/")[0] for pattern in COVERED} | sys.stdlib_module_names
    names = dict.fromkeys(target.partition(".")[0] for target in targets)
    found = {name: [*_files(name)] for name in names if name not in known}
    return {name: _hash(files) for name, files in found.items() if files}


def _files(package: str) -> Iterator[tuple[str, Path]]:
    """Yield a package's Python files, and their names in it; none of one that pip has installed."""
    spec = find_spec(package)
    if spec is None:
        return
    module = [spec.origin] if spec.origin and spec.has_location else []
    for place in map(Path, spec.submodule_search_locations or module):
        if not any(place.parent.glob("*.dist-info")):  # which pip leaves beside what it installs
            files = sorted(place.rglob("*.py")) if place.is_dir() else [place]
            yield from ((file.relative_to(place.parent).as_posix(), file) for file in files)


def _hash(files: Iterable[tuple[str, Path]]) -> str:
    digest = hashlib.sha256()
    for name, path in files:
        digest.update(name.encode() + path.read_bytes())
    return digest.hexdigest()[:16]
