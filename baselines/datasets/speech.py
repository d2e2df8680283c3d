"""speech: predict the next characters of a play; each speaker is a natural partition.

LEAF's Shakespeare (Caldas et al. 2019) divides plays in this way. The text is your own, or a small
generated one, which needs no download and in which every speaker has favourite words.
"""

import re
from pathlib import Path

import numpy as np
import torch

from baselines.errors import UserError
from clients import NextToken
from strategies.shared.checks import require

from .dataset import Dataset

VOCABULARY = 96  # a new line and ASCII's printable characters; others are read as "?"
SPEAKERS = ["Ada", "Ben", "Cleo", "Dora", "Emil", "Flora", "Gus", "Hedda", "Ivo", "Juno"]
WORDS = (
    "the miller|my sister|an old king|the captain|her friend|a stranger|nobody|the baker",
    "has lost|will sell|cannot find|dreams of|paints|has hidden|wants|remembers",
    "a silver ring|the long letter|three apples|the garden|a red coat|his ship|the key|our song",
    "by the river|before dawn|in winter|without a word|near the mill|on Sunday|at last|again",
)
LINES = 60  # per speaker, on average


def speech(path: str | None, length: int, test_size: float, data_seed: int) -> Dataset:
    """Return windows of ``length`` characters and, as targets, the characters that follow each.

    Parameters
    ----------
    path : a text file of speeches: a line with a name and a colon, lines, an empty line; None: generated
    length : characters of an example, T
    test_size : the share of each speaker's examples, the last ones, that is for testing
    data_seed : of the generated text

    Raises
    ------
    UserError : for a file that cannot be read, or without two speakers of two examples each
    """
    require(0 < test_size < 1, "dataset.load.test_size", test_size, "a fraction between 0 and 1")
    text = generate_text(data_seed) if path is None else _read(path)
    by_speaker = {name: windows(lines, length) for name, lines in split_by_speaker(text).items()}
    speakers = [part for _, part in sorted(by_speaker.items()) if len(part) > 1]
    if len(speakers) < 2:
        raise UserError(
            f"dataset.load.path={path} has {len(speakers)} speakers with two examples of {length} characters: "
            "expected lines such as 'ROMEO:', what is said, and an empty line; or lower dataset.load.length"
        )
    tests = [max(1, round(test_size * len(part))) for part in speakers]
    train = np.concatenate([part[:-n] for part, n in zip(speakers, tests, strict=True)])
    test = np.concatenate([part[-n:] for part, n in zip(speakers, tests, strict=True)])
    who = np.arange(len(speakers))
    owners = np.repeat(who, [len(part) - n for part, n in zip(speakers, tests, strict=True)])
    return Dataset(
        torch.from_numpy(train[:, :-1]),
        torch.from_numpy(train[:, 1:]),
        torch.from_numpy(test[:, :-1]),
        torch.from_numpy(test[:, 1:]),
        NextToken(),
        owners=owners,
        num_classes=VOCABULARY,
        labels=owners,
        test_labels=np.repeat(who, tests),
    )


def split_by_speaker(text: str) -> dict[str, str]:
    """Return what each speaker says, in the order of the text."""
    lines_of: dict[str, list[str]] = {}
    for name, lines in re.findall(r"^([^\n:]+):\n(.+?)(?:\n\n|\n?\Z)", text, flags=re.M | re.S):
        lines_of.setdefault(name, []).append(lines)
    return {name: "\n".join(speeches) for name, speeches in lines_of.items()}


def windows(text: str, length: int) -> np.ndarray:
    """Return [n, length + 1] tokens: each window begins with the last character of the previous one."""
    codes = np.frombuffer(text.encode("ascii", "replace"), dtype=np.uint8).astype(np.int64)
    printable = (codes >= 32) & (codes < 127)
    tokens = np.where(printable, codes - 31, np.where(codes == ord("\n"), 0, ord("?") - 31))
    count = max(0, (len(tokens) - 1) // length)
    places = np.arange(count)[:, None] * length + np.arange(length + 1)
    return tokens[places]


def generate_text(seed: int) -> str:
    """Return a meaningless play, in which every speaker prefers some words."""
    rng = np.random.default_rng(seed)
    choices = [part.split("|") for part in WORDS]
    taste = {name: [rng.dirichlet(np.full(len(part), 0.3)) for part in choices] for name in SPEAKERS}
    speeches = []
    for name in rng.choice(SPEAKERS, LINES * len(SPEAKERS)):
        words = [rng.choice(part, p=p) for part, p in zip(choices, taste[str(name)], strict=True)]
        speeches.append(f"{name}:\n{' '.join(words).capitalize()}.")
    return "\n\n".join(speeches) + "\n"


def _read(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"dataset.load.path={path} cannot be read: {error}") from error
