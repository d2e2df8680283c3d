"""Turn the labels of any file into classes, by one rule.

A class is a text, with surrounding blanks stripped and characters composed (Unicode NFC); bytes are UTF-8.
Whole numbers are written without a point: 1, 1.0 and "1.0" are one class (01 is another). Empty values, NaN
and infinity are missing labels. Classes are those that occur: first texts in alphabetical order, then
numbers by size; a class' number is its position. A schema, or a column that declares its classes, takes
precedence.
"""

import math
import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from numbers import Real

from baselines.errors import DataError

RULE_VERSION = 2  # raise it when the same labels give other classes, so that prepared data are made anew
MAX_CLASSES = 20  # classes allowed in any case; more need two rows each
MISSING_VALUES = ("", "nan", "nat", "<na>")  # libraries' texts for a missing value, in lower case
NUMBER_PATTERN = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")
WHOLE_PATTERN = re.compile(r"(-?[0-9]+)\.0+")


def clean_text(text: str) -> str:
    """Return a text without surrounding blanks, and composed: é is one character, not e and an accent."""
    return unicodedata.normalize("NFC", text.strip())


def class_name(label: object) -> str | None:
    """Return the class of one label; None if it is missing.

    Raises
    ------
    UnicodeDecodeError : for bytes that are not UTF-8
    TypeError : for several values
    """
    if hasattr(label, "__len__") and not isinstance(label, str | bytes):
        raise TypeError("a label is one value")
    if label is None or (isinstance(label, Real) and not math.isfinite(label)):
        return None
    if isinstance(label, float) and label.is_integer():
        return str(int(label))
    text = clean_text(label.decode() if isinstance(label, bytes) else str(label))
    if text.lower() in MISSING_VALUES:
        return None
    whole = WHOLE_PATTERN.fullmatch(text)
    return whole[1] if whole else text


def class_names(labels: Iterable[object], where: str, public: str, may_miss: bool = False) -> list[str]:
    """Return the class of each label.

    Parameters
    ----------
    labels : plain Python values
    where : where the labels are, for their owner
    public : the same for everybody else
    may_miss : whether labels may be missing; their class is then ""

    Raises
    ------
    DataError : for labels that are missing, not UTF-8, or several in one row
    """
    names: list[str] = []
    counts = dict.fromkeys(("missing", "several", "bytes"), 0)
    for label in labels:
        try:
            name = class_name(label)
            counts["missing"] += name is None
            names.append(name or "")
        except TypeError:
            counts["several"] += 1
        except UnicodeDecodeError:
            counts["bytes"] += 1
    if count := counts["several"]:
        line = (
            f"{where} holds several values in {count} rows: expected one label in each, a text or a number"
        )
        raise DataError(line, f"data: {public} holds several values in {count} rows")
    if count := counts["bytes"]:
        line = f"{where} holds bytes that are no UTF-8 in {count} rows: save the labels as text"
        raise DataError(line, f"data: {public} holds no UTF-8 in {count} rows")
    if (count := counts["missing"]) and not may_miss:
        line = f"{where} is empty in {count} rows: fill or remove them"
        raise DataError(line, f"data: {public} is empty in {count} rows")
    return names


def list_classes(names: Sequence[str], where: str) -> list[str]:
    """Return the classes that occur, in order.

    Raises
    ------
    DataError : for a single class, and for too many classes for the number of rows
    """
    classes = sorted(set(names), key=_order)
    if len(classes) == 1:
        line = f"{where} holds a single class, {classes[0]!r}: expected two or more"
        raise DataError(line, "data: there is a single class")
    most = max(MAX_CLASSES, len(names) // 2)
    if len(classes) > most:
        line = (
            f"{where} holds {len(classes)} classes in {len(names)} rows, e.g. {classes[:3]}: expected at "
            f"most {most}; are these ids, or numbers to predict?"
        )
        raise DataError(line, f"data: there are {len(classes)} classes in {len(names)} rows")
    return classes


def _order(name: str) -> tuple[bool, Decimal, str]:
    is_number = NUMBER_PATTERN.fullmatch(name) is not None
    return is_number, Decimal(name if is_number else 0), name
