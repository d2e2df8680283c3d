"""What Hydra says of jobs, folders and plugins, in our words, or not at all where ours say it already."""

import contextlib
import warnings
from collections.abc import Iterator

from hydra.core.utils import JobReturn, JobStatus

PLUGINS = ("joblib", "submitit", "optuna")  # extras of ours, which bring launchers and sweepers of Hydra's


@contextlib.contextmanager
def without_hydras_lines() -> Iterator[None]:
    """Let Hydra raise what ended a job without printing "Error executing job with overrides"."""
    announcing: property = vars(JobReturn)["return_value"]
    JobReturn.return_value = property(_returned, announcing.fset)  # type: ignore[method-assign,assignment]
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "provider=hydra.searchpath")  # the line of ours says it
            yield
    finally:
        JobReturn.return_value = announcing  # type: ignore[method-assign,assignment]


def extra_for(missing: str, expected: str) -> str:
    """Return what to do about a missing option: install the plugin that has it, or choose another."""
    if not missing.startswith("hydra/"):
        return expected
    for plugin in PLUGINS:
        if missing.rpartition("/")[2].startswith(plugin):  # as submitit_local, too
            return f"it comes with one of Hydra's plugins: pip install -e '.[{plugin}]'"
    return f"{expected}, or install Hydra's plugins: pip install -e '.[{','.join(PLUGINS)}]'"


def _returned(self: JobReturn) -> object:
    """Return what a job returned, or raise what it raised."""
    assert self.status is not JobStatus.UNKNOWN
    if self.status is JobStatus.FAILED:
        raise self._return_value
    return self._return_value
