"""Texts as tokens: numbers of words and parts of words, equally many for each text.

``tokenizers``, the package behind it, is optional and imported where it is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from baselines.errors import UserError

PADDING = 0  # the token that fills up a short text
PADDING_NAMES = ("[PAD]", "<pad>")  # tokenizers' names for it
UNKNOWN = "[UNK]"
MISSING_PACKAGE = "dataset=text needs the package tokenizers: pip install -e '.[text]'"


@dataclass(frozen=True)
class TextEncoder:
    """Turns texts into tokens [n, length] in int64, and knows their table's columns.

    Parameters
    ----------
    tokenizer : of the package tokenizers, as JSON
    length : tokens of a text; longer ones are cut, shorter ones filled up with ``PADDING``
    column, label : the table's columns with the texts and their labels
    classes : the names of the classes; None if they are numbers
    """

    tokenizer: str
    length: int
    column: str
    label: str
    classes: tuple[str, ...] | None = None

    @classmethod
    def of(cls, fields: Mapping[str, Any]) -> "TextEncoder":
        """Return the encoder from plain fields, after ``dataclasses.asdict`` and JSON."""
        classes = fields["classes"]
        return cls(**{**fields, "classes": None if classes is None else tuple(classes)})

    def __call__(self, texts: Sequence[str]) -> Tensor:
        """Return the tokens of each text."""
        encodings = self._tokenizer.encode_batch(list(texts))
        return torch.tensor([one.ids for one in encodings], dtype=torch.int64).view(-1, self.length)

    @property
    def num_tokens(self) -> int:
        """How many tokens the tokenizer knows."""
        return int(self._tokenizer.get_vocab_size())

    @cached_property
    def _tokenizer(self) -> Any:
        tokenizer = import_tokenizers().Tokenizer.from_str(self.tokenizer)
        filler = tokenizer.id_to_token(PADDING)
        tokenizer.enable_truncation(self.length)
        tokenizer.enable_padding(length=self.length, pad_id=PADDING, pad_token=filler)
        return tokenizer


def import_tokenizers() -> Any:
    """Return the package.

    Raises
    ------
    UserError : where it is not installed
    """
    try:
        import tokenizers
    except ImportError as error:
        raise UserError(MISSING_PACKAGE) from error
    return tokenizers


def train_tokenizer(texts: Sequence[str], vocabulary: int) -> str:
    """Train a tokenizer and return it as JSON; the order of the texts does not matter.

    Its tokens are lower-case words and parts of rare words: byte-pair encoding (Sennrich,
    Haddow and Birch, *Neural Machine Translation of Rare Words with Subword Units*, ACL 2016).

    Raises
    ------
    UserError : for texts with more different characters than ``vocabulary`` allows
    """
    tokenizers = import_tokenizers()
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token=UNKNOWN))  # WordPiece's numbers vary
    tokenizer.normalizer = tokenizers.normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=vocabulary, special_tokens=[PADDING_NAMES[0], UNKNOWN], show_progress=False
    )
    tokenizer.train_from_iterator(texts, trainer)
    _check_size(tokenizer, vocabulary, "the training texts have signs for")
    return str(tokenizer.to_str())


def read_tokenizer(path: str, vocabulary: int) -> str:
    """Return a tokenizer's file.

    Raises
    ------
    UserError : for one that cannot be read, has more than ``vocabulary`` tokens, or fills up texts with
        another token than ``PADDING``
    """
    tokenizers = import_tokenizers()
    try:
        content = Path(path).read_text(encoding="utf-8")
        tokenizer = tokenizers.Tokenizer.from_str(content)
    except Exception as error:  # the package's errors
        raise UserError(
            f"dataset.tokenizer={path} cannot be read ({error}): expected a tokenizer.json of the package "
            "tokenizers"
        ) from error
    _check_size(tokenizer, vocabulary, f"dataset.tokenizer={path} has")
    if (filler := tokenizer.id_to_token(PADDING)) not in PADDING_NAMES:
        raise UserError(
            f"dataset.tokenizer={path}: its token {PADDING} is {filler!r}; expected {' or '.join(PADDING_NAMES)}, "
            "with which short texts are filled up"
        )
    return content


def _check_size(tokenizer: Any, vocabulary: int, subject: str) -> None:
    if (size := tokenizer.get_vocab_size()) > vocabulary:
        raise UserError(
            f"dataset.vocabulary={vocabulary}, and {subject} {size} tokens: set dataset.vocabulary={size}"
        )
