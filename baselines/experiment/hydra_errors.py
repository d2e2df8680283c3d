"""Hydra's own lines about a job that failed or a folder that is missing: ours says it already."""

import contextlib
import warnings
from collections.abc import Iterator

from hydra.core.utils import JobReturn, JobStatus


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


def _returned(self: JobReturn) -> object:
    """Return what a job returned, or raise what it raised."""
    assert self.status is not JobStatus.UNKNOWN
    if self.status is JobStatus.FAILED:
        raise self._return_value
    return self._return_value
