"""One line for every hyper-parameter out of range."""

import math


def require(valid: bool, name: str, value: object, expected: str) -> None:
    """Raise ``ValueError`` with one line that names the value and what was expected."""
    if not valid or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{name}={value} is out of range: expected {expected}")


def require_count(name: str, value: object, *, optional: bool = False) -> None:
    """Raise ``ValueError`` for anything but a whole number above 0, or None where that is allowed."""
    whole = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    valid = whole or (optional and value is None)
    require(valid, name, value, "a whole number above 0" + ", or null" * optional)
