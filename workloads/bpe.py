"""Text to tokens and back: byte-level BPE as GGUF metadata describe it.

A text is cut into words, each word's UTF-8 bytes become the characters of GPT-2's alphabet, and the pair of neighbours
that stands first in the list of merges is merged again and again (A. Radford et al., "Language models are unsupervised
multitask learners", 2019, section 2.2; P. Gage, 1994). Words are cut as the tokenizer of SmolLM does: each digit by
itself, then GPT-2's pattern.
"""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from isa_models.errors import InvalidArgument, Unimplemented
from workloads.gguf import Gguf

_PRE = "smollm"
# No digits are left where this is used, so that [^\W_] is a letter.
_WORD = re.compile(r"'s|'t|'re|'ve|'m|'ll|'d| ?[^\W_]+| ?(?:[^\w\s]|_)+|\s+(?!\S)|\s+")


@dataclass(frozen=True)
class Tokenizer:
    """`tokens`: the text of each number, in GPT-2's alphabet; `ranks`: of each pair that is merged, its place."""

    tokens: Sequence[str]
    ranks: Mapping[tuple[str, str], int]

    @functools.cached_property
    def numbers(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}

    def encode(self, text: str) -> list[int]:
        """The tokens of a text; what looks like a control token is text like any other.

        Raises `InvalidArgument` where the vocabulary lacks a byte of the text.
        """
        try:
            return [self.numbers[part] for word in words(text) for part in self._merged(_spelled(word))]
        except KeyError as error:
            raise InvalidArgument(f"the vocabulary has no {error.args[0]!r}; {len(self.tokens)} tokens") from None

    def decode(self, numbers: Sequence[int]) -> str:
        """The text of tokens; bytes that are no UTF-8 become U+FFFD. Raises `InvalidArgument` for unknown numbers."""
        if wrong := [n for n in numbers if not 0 <= n < len(self.tokens)]:
            raise InvalidArgument(f"token {wrong[0]}; the vocabulary has {len(self.tokens)}")
        bytes_of = {character: byte for byte, character in alphabet().items()}
        characters = "".join(self.tokens[number] for number in numbers)
        content = b"".join(bytes([bytes_of[c]]) if c in bytes_of else c.encode() for c in characters)
        return content.decode("utf-8", errors="replace")

    def _merged(self, word: str) -> tuple[str, ...]:
        parts = tuple(word)
        while len(parts) > 1:
            pair = min(zip(parts, parts[1:], strict=False), key=lambda pair: self.ranks.get(pair, len(self.ranks)))
            if pair not in self.ranks:
                break
            parts = _joined(parts, pair)
        return parts


def tokenizer(file: Gguf) -> Tokenizer:
    """The tokenizer that a GGUF file describes. Raises `Unimplemented` for one that is no BPE cut as SmolLM's."""
    model, pre = file.get("tokenizer.ggml.model", str), file.get("tokenizer.ggml.pre", str, "")
    if model != "gpt2" or pre != _PRE:
        raise Unimplemented(f"tokenizer {model!r:.40} with {pre!r:.40}; byte-level BPE 'gpt2' with {_PRE!r} is known")
    pairs = [merge.split(" ") for merge in file.get("tokenizer.ggml.merges", list)]
    if wrong := [" ".join(pair) for pair in pairs if len(pair) != 2]:
        raise InvalidArgument(f"merge {wrong[0]!r:.60}; two parts and a space between them are needed")
    return Tokenizer(file.get("tokenizer.ggml.tokens", list), {(a, b): rank for rank, (a, b) in enumerate(pairs)})


def words(text: str) -> list[str]:
    """A text cut into the words that are merged by themselves.

    >>> words("It's 42 !")
    ['It', "'s", ' ', '4', '2', ' !']
    """
    pieces: list[str] = []
    rest = ""
    for character in text:
        if unicodedata.category(character).startswith("N"):
            pieces += [*_WORD.findall(rest), character]
            rest = ""
        else:
            rest += character
    return pieces + _WORD.findall(rest)


@functools.cache
def alphabet() -> dict[int, str]:
    """GPT-2's printable character for each byte: itself where it is one, else the next from U+0100 on.

    >>> alphabet()[ord("a")], alphabet()[ord(" ")]
    ('a', 'Ġ')
    """
    printable = {*range(ord("!"), ord("~") + 1), *range(ord("¡"), ord("¬") + 1), *range(ord("®"), ord("ÿ") + 1)}
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def _spelled(word: str) -> str:
    return "".join(alphabet()[byte] for byte in word.encode())


def _joined(parts: tuple[str, ...], pair: tuple[str, str]) -> tuple[str, ...]:
    """The parts with every occurrence of a pair as one, from the left."""
    found: list[str] = []
    at = 0
    while at < len(parts):
        both = parts[at : at + 2] == pair
        found.append(pair[0] + pair[1] if both else parts[at])
        at += 2 if both else 1
    return tuple(found)
