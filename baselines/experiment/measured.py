"""Metrics: is what early stopping and the objective go by measured at all?"""

from collections.abc import Iterable

from baselines.errors import UserError

from .settings import Settings

USUAL = "test/accuracy"  # the objective that nobody has chosen; some data have no accuracy
BY_TASK = ("test", "validation")  # the splits whose metrics are the task's and no others


def without_test_set(settings: Settings) -> str:
    """Say that the server has no test set, and what decided that."""
    reason = "central_test=none" if settings.central_test == "none" else "all data lie at the nodes"
    return f"the server has no test set ({reason})"


def check(told: Settings, metrics: Iterable[str], *, has_test_set: bool) -> None:
    """Refuse the name of a metric that the task, which gives ``metrics``, does not measure.

    Raises
    ------
    UserError : for one of the test or the validation set; nodes may tell what they like
    """
    asked = {} if told.objective == USUAL else {"objective": told.objective}
    if told.early_stopping.patience is not None:
        asked["early_stopping.metric"] = told.early_stopping.metric
    known = sorted(name.replace("-", "_") for name in metrics)
    for key, name in asked.items():
        split, _, metric = name.partition("/")
        if split == "test" and not has_test_set:
            raise UserError(f"{key}={name}: {without_test_set(told)}; set e.g. node-test/accuracy")
        if split in BY_TASK and metric not in known:
            ways = " or ".join(f"{split}/{one}" for one in known)
            raise UserError(f"{key}={name} is not measured: expected {ways}")
