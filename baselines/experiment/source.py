"""Source: the hashes by which two processes, or two runs, know whether they run the same code."""

import hashlib
import sysconfig
from collections.abc import Iterable
from functools import cache
from importlib.util import find_spec
from pathlib import Path

from .config import ROOT

# What decides results, also as git understands it.
COVERED = ("strategies/**/*.py", "clients/**/*.py", "baselines/**/*.py", "conf/**/*.yaml")
INSTALLED = [Path(sysconfig.get_path(name)).resolve() for name in ("stdlib", "platlib", "purelib")]


@cache
def source_hash() -> str:
    """Return a hash of this installation's code and configuration: equal code, equal results."""
    return _hash(ROOT, (path for pattern in COVERED for path in sorted(ROOT.glob(pattern))))


def own_sources(targets: Iterable[str]) -> dict[str, str]:
    """Return a hash of each package of the user's own, by its name, that one of these targets is of."""
    ours = {pattern.partition("/")[0] for pattern in COVERED}
    names = dict.fromkeys(target.partition(".")[0] for target in targets)
    found = {name: _files(name) for name in names if name not in ours}
    return {name: _hash(folder, files) for name, (folder, files) in found.items() if files}


def _files(package: str) -> tuple[Path, list[Path]]:
    """Return a package's folder and Python files; no files where pip has installed it, or Python."""
    spec = find_spec(package)
    places = [Path(place) for place in (spec and spec.submodule_search_locations) or ()]
    if not places and spec and spec.origin and spec.has_location:
        return Path(spec.origin).parent, _not_installed([Path(spec.origin)])
    files = sorted(path for place in places for path in place.rglob("*.py"))
    return places[0] if places else Path(), _not_installed(files)


def _not_installed(files: list[Path]) -> list[Path]:
    return (
        [] if any(files[:1] and files[0].resolve().is_relative_to(place) for place in INSTALLED) else files
    )


def _hash(root: Path, files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.relative_to(root).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:16]
