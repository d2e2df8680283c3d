"""Shadowed: an option of the user's own that has the name of one of the project's, and would not be read.

Hydra takes an option from the first folder that has it, and the project's comes first.
"""

from collections.abc import Iterator, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.types import RunMode
from omegaconf import DictConfig

from baselines.errors import UserError


def check(overrides: Sequence[str], sources: Sequence[DictConfig], conf: Path) -> None:
    """Refuse an option that a configuration takes from ``conf`` and that an added folder has, too.

    Parameters
    ----------
    overrides, sources : the configuration's, and where Hydra looks for options
    conf : the project's folder of options

    Raises
    ------
    UserError : in one line that names the file
    """
    added = [folder for source in sources if "searchpath" in source.provider for folder in _folders(source)]
    twice = {path: folder for folder in added for path in _options(folder) if (conf / path).is_file()}
    if not twice:
        return
    loader = GlobalHydra.instance().config_loader()
    taken = loader.compute_defaults_list("config", list(overrides), RunMode.RUN).defaults
    for option in taken:
        path = f"{option.config_path}.yaml"
        if path in twice:
            raise UserError(
                f"{twice[path] / path} would not be read: the project has a {path} of its own; rename yours"
            )


def _folders(source: DictConfig) -> Iterator[Path]:
    if source.schema == "file":
        yield Path(source.path)
    elif source.schema == "pkg":
        with suppress(ImportError):  # of which Hydra warns
            spec = find_spec(source.path)
            yield from map(Path, spec.submodule_search_locations or () if spec else ())


def _options(folder: Path) -> Iterator[str]:
    return (path.relative_to(folder).as_posix() for path in folder.rglob("*.yaml"))
