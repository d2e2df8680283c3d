"""One line for every hyper-parameter out of range."""

import math


def require(valid: bool, name: str, value: object, expected: str) -> None:
    """Raise ``ValueError`` with one line that names the value and what was expected."""
    if not valid or (isinstance(value, float) and math.isnan(value)):
        raise ValueError(f"{name}={value} is out of range: expected {expected}")
