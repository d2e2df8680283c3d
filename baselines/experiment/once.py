"""Once: a warning in the log, however often what it tells of is found."""

import logging
from functools import cache

logger = logging.getLogger("flwr")


@cache
def warn_once(text: str) -> None:
    """Log a warning that has not been logged yet."""
    logger.warning(text)
