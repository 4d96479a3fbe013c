"""WordPiece: sentences to token numbers, as BERT's uncased models read them.

J. Devlin et al., "BERT", NAACL 2019, section 3.2, and the tokenization that its authors published with the models:
text is cleaned, lower-cased and stripped of accents, split at white space and around punctuation and CJK characters;
each word is then cut into the longest pieces that the vocabulary holds, from left to right, "##" before all but the
first. A word with a part that is in no piece, or of more than 100 characters, is one unknown token. Names of special
tokens in a text are text.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from os import PathLike
from pathlib import Path

from isa_models.errors import InvalidArgument
from workloads import untrusted

_SPECIAL = ("[UNK]", "[CLS]", "[SEP]", "[PAD]")
_LONGEST = 100
_CJK = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class WordPiece:
    """A tokenizer over a vocabulary.

    >>> WordPiece(["[PAD]", "[UNK]", "[CLS]", "[SEP]", "play", "##ing", "!"]).encode("Playing chess!")
    [2, 4, 5, 1, 6, 3]
    """

    pieces: Iterable[str]
    numbers: dict[str, int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        self.__dict__["numbers"] = {piece: i for i, piece in enumerate(self.pieces)}
        if lacking := [token for token in _SPECIAL if token not in self.numbers]:
            raise InvalidArgument(f"a vocabulary of {len(self.numbers)} pieces without {lacking[0]}")

    def encode(self, text: str, most: int | None = None) -> list[int]:
        """The numbers of a sentence's tokens, [CLS] first and [SEP] last; cut to `most` of them."""
        found = [number for word in words(text) for number in self._word(word)]
        if most is not None:
            found = found[: max(most - 2, 0)]
        return [self.numbers["[CLS]"], *found, self.numbers["[SEP]"]]

    def _word(self, word: str) -> list[int]:
        found: list[int] = []
        start = 0
        while start < len(word) <= _LONGEST:
            ends = range(len(word), start, -1)
            pieces = (("##" if start else "") + word[start:end] for end in ends)
            end, piece = next(((e, p) for e, p in zip(ends, pieces, strict=True) if p in self.numbers), (0, ""))
            if not end:
                break
            found.append(self.numbers[piece])
            start = end
        return found if start == len(word) else [self.numbers["[UNK]"]]


def read(path: str | PathLike[str]) -> WordPiece:
    """The tokenizer of a vocab.txt: a piece a line."""
    file = Path(path)
    try:
        text = untrusted.content(file).decode("utf-8")
    except UnicodeDecodeError as error:
        raise InvalidArgument(f"{file.name} is no UTF-8 text ({error})") from None
    return WordPiece(text.removesuffix("\n").split("\n"))


def words(text: str) -> list[str]:
    """The words and punctuation marks of a text, lower-cased, without accents.

    >>> words("Naïve  café's #1")
    ['naive', 'cafe', "'", 's', '#', '1']
    """
    kept = (c for c in text if c not in "\0\N{REPLACEMENT CHARACTER}" and (c in "\t\n\r" or not _is_control(c)))
    spaced = "".join(f" {c} " if _is_cjk(c) else c for c in kept)
    plain = "".join(c.lower() for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn")
    return [part for word in plain.split() for part in _parts(word)]


def _parts(word: str) -> Iterator[str]:
    """A word without white space, cut around its punctuation."""
    start = 0
    for i, c in enumerate(word):
        if _is_punctuation(c):
            if start < i:
                yield word[start:i]
            yield c
            start = i + 1
    if start < len(word):
        yield word[start:]


def _is_control(c: str) -> bool:
    return unicodedata.category(c) in ("Cc", "Cf", "Co", "Cs")


def _is_punctuation(c: str) -> bool:
    """Unicode's, and every other ASCII character that is neither letter, digit nor space."""
    return unicodedata.category(c).startswith("P") or (c.isascii() and not c.isalnum() and c > " " and c != "\x7f")


def _is_cjk(c: str) -> bool:
    return any(first <= ord(c) <= last for first, last in _CJK)
