"""Operators on text, which vectorizers of scikit-learn are exported as: case and stop words, tokens, counts of n-grams,
hashes. What they cost is not known: text has no kernel here.

ONNX states StringNormalizer, TfIdfVectorizer and the others of its own domain; the tokenizer and the hash are
onnxruntime's (onnxruntime/contrib_ops/cpu/tokenizer.cc and murmur_hash3.cc, whose hash is Austin Appleby's MurmurHash3,
32 bits). Case is that of single characters, as C libraries change it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import counted
from isa_models.readings.arrays import Array
from simdnn.networks.kernels import Kernels
from simdnn.networks.model import Node
from simdnn.networks.ops.registry import MICROSOFT, ML, need, operator

_CASES: dict[str, Callable[[str], str]] = {"LOWER": str.lower, "UPPER": str.upper, "NONE": str}
_MARKS = "\x02", "\x03"  # tokens ahead of a text and behind it
_MOST_PATTERN = 1 << 10  # characters of a regular expression


def _check_text(x: Array) -> None:
    need(x.dtype.kind == "O", f"an input of {x.dtype}; text is needed")


def _cased(text: str, case: str) -> str:
    """Each character in another case, which is one character, too: "ß" has no capital, and "İ" a plain "i".

    >>> _cased("Straße", "UPPER"), _cased("ÄBİ", "LOWER")
    ('STRAßE', 'äbi')
    """
    if case == "LOWER":
        return "".join(c.lower()[0] for c in text)
    return "".join(made if len(made := _CASES[case](c)) == 1 else c for c in text)


def _text_array(k: Kernels, found: list[str], shape: tuple[int, ...], x: Array) -> Array:
    """Text as an array."""
    result = np.empty(len(found), object)
    result[:] = found
    return k.plain(result.reshape(shape), x)


def _in_rows(k: Kernels, rows: list[list[str]], longest: int, pad: str, x: Array) -> Array:
    """Texts of each of x's elements along a new last dimension, as long as the longest."""
    return _text_array(
        k, [text for row in rows for text in (*row, *[pad] * (longest - len(row)))], (*x.shape, longest), x
    )


@operator("StringNormalizer")
def string_normalizer(k: Kernels, node: Node, x: Array) -> Array:
    """A line of texts (C,) or (1, C) in another case, without stop words; one empty text where none is left."""
    _check_text(x)
    need(x.size > 0 and (x.ndim == 1 or x.ndim == 2 and len(x) == 1), f"an input of shape {x.shape}; (C,) or (1, C)")
    case, exact = node.text("case_change_action", "NONE"), bool(node.integer("is_case_sensitive", 0))
    need(case in _CASES, f"case_change_action={case!r}; allowed: {', '.join(_CASES)}")
    compared: Callable[[str], str] = str if exact else lambda text: _cased(text, "LOWER")
    stops = {compared(word) for word in node.get("stopwords") or []}
    kept = [_cased(text, case) for text in x.reshape(-1).tolist() if compared(text) not in stops] or [""]
    return _text_array(k, kept, (*x.shape[:-1], len(kept)), x)


# -- tokens -----------------------------------------------------------------------------------------------------------
def _pattern(text: str) -> re.Pattern[str]:
    """A regular expression in RE2's syntax, as far as Python's `re` has it, whose classes are ASCII's."""
    need(len(text) <= _MOST_PATTERN, f"a regular expression of {len(text)} characters; at most {_MOST_PATTERN}")
    try:
        return re.compile(text, re.ASCII)
    except re.error as error:
        raise InvalidArgument(f"the regular expression {text!r:.60}: {error}") from None


def _matches(pattern: re.Pattern[str], text: str, least: int) -> Iterator[str]:
    """Matches of at least `least` characters; behind a shorter one the search goes on one character further."""
    at = 0
    while (found := pattern.search(text, at)) is not None:
        if len(found[0]) >= least:
            yield found[0]
        at = found.end() if len(found[0]) >= least else found.start() + 1
        if at > len(text):
            return


def _between(separators: list[re.Pattern[str]], text: str, least: int) -> list[str]:
    """Pieces of at least `least` characters: the first separator cuts the text, each other one the pieces."""
    row = [text]
    for separator in separators:
        parts: list[str] = []
        for piece in row:
            start = at = 0
            while at <= len(piece) and (found := separator.search(piece, at)) is not None:
                parts.append(piece[start : found.start()])
                start = at = found.end() if found[0] else found.start() + 1
            parts.append(piece[start:])
        row = [part for part in parts if len(part) >= least]
    return row


@operator("Tokenizer", domain=MICROSOFT)
def tokenizer(k: Kernels, node: Node, x: Array) -> Array:
    """Tokens of texts (C,) or (N, C) along a new last dimension, padded: matches of `tokenexp`, or what is between
    `separators` (a single empty one: characters). `mark` puts one token ahead and one behind.
    """
    _check_text(x)
    need(x.ndim in (1, 2), f"an input of shape {x.shape}; (C,) or (N, C) is needed")
    separators, expression = node.get("separators"), node.get("tokenexp")
    need(bool(separators) != bool(expression), "separators or tokenexp, and not both, are needed")
    least, pad = node.integer("mincharnum", 1), node.text("pad_value", "")
    need(least > 0, f"mincharnum={least}; 1 or more is needed")
    if expression == ".":
        separators, expression = [""], None
    need(least == 1 or separators != [""], f"mincharnum={least} of single characters; 1 works")
    if expression:
        pattern = _pattern(expression)
        rows = [list(_matches(pattern, text, least)) for text in x.reshape(-1).tolist()]
    elif list(separators) == [""]:
        rows = [list(text) for text in x.reshape(-1).tolist()]
    else:
        patterns = [_pattern(s) for s in separators]
        rows = [_between(patterns, text, least) for text in x.reshape(-1).tolist()]
    longest = max(map(len, rows), default=0)
    if not longest:
        return np.empty((*x.shape, 0), object)
    if node.integer("mark", 0):
        rows, longest = [[_MARKS[0], *row, _MARKS[1]] for row in rows], longest + 2
    return _in_rows(k, rows, longest, pad, x)


@operator("TfIdfVectorizer")
def tf_idf_vectorizer(k: Kernels, node: Node, x: Array) -> Array:
    """Counts of n-grams of lines (C,) or (N, C) of text or integers, or whether there are any, times weights."""
    need(x.ndim <= 2 and x.dtype.kind in "Oiu", f"an input of {x.dtype}, {x.shape}; text or integers, (C,) or (N, C)")
    mode, places = node.text("mode"), node.integers("ngram_indexes")
    need(mode in ("TF", "IDF", "TFIDF"), f"mode={mode!r}; allowed: TF, IDF, TFIDF")
    need(bool(places) and min(places) >= 0, "ngram_indexes: one place and more from 0 on")
    shortest, longest = node.integer("min_gram_length"), node.integer("max_gram_length")
    known = _grams(node, shortest, longest)
    need(max(known.values(), default=0) < len(places), f"{len(places)} ngram_indexes for more n-grams")
    given = node.get("weights") or [1.0] * len(places)
    need(len(given) == len(places), f"{counted(len(given), 'weight')} for {len(places)} n-grams")
    weights = np.array([1.0] * len(places) if mode == "TF" else given, np.float32)
    counts = np.zeros((x.shape[0] if x.ndim == 2 else 1, max(places) + 1), np.float32)
    for row, line in zip(counts, x.reshape(len(counts), -1).tolist(), strict=True):
        for gram in _seen(line, shortest, longest, node.integer("max_skip_count")):
            if (number := known.get(gram)) is not None:
                row[places[number]] = weights[number] + (np.float32(0) if mode == "IDF" else row[places[number]])
    return k.plain(counts if x.ndim == 2 else counts[0], x)


def _grams(node: Node, shortest: int, longest: int) -> dict[tuple[object, ...], int]:
    """The numbers of the n-grams of these lengths, which stand one length after the other in a pool."""
    pool, starts = node.get("pool_strings") or node.get("pool_int64s") or [], node.integers("ngram_counts")
    need(0 < shortest <= longest <= len(starts), f"n-grams of {shortest} to {longest}; {len(starts)} lengths are there")
    need(starts == sorted(starts) and starts[0] >= 0 and starts[-1] <= len(pool), f"ngram_counts {starts[:8]}")
    known: dict[tuple[object, ...], int] = {}
    number = 0
    for n, (start, stop) in enumerate(zip(starts, [*starts[1:], len(pool)], strict=True), 1):
        need((stop - start) % n == 0, f"{stop - start} entries are no {n}-grams")
        for at in range(start, stop, n):
            if shortest <= n <= longest:
                known[tuple(pool[at : at + n])] = number
            number += 1
    return known


def _seen(line: list[object], shortest: int, longest: int, skips: int) -> Iterator[tuple[object, ...]]:
    """The n-grams of a line, whose items stand up to `skips` apart; single ones are seen once."""
    if shortest == 1:
        yield from ((item,) for item in line)
    for step in range(1, skips + 2):
        for n in range(max(2, shortest), longest + 1):
            for at in range(len(line) - step * (n - 1)):
                yield tuple(line[at : at + step * n : step])


# -- text by itself ---------------------------------------------------------------------------------------------------
@operator("StringConcat")
def string_concat(k: Kernels, node: Node, a: Array, b: Array) -> Array:
    """Texts one behind the other, which broadcast."""
    _check_text(a)
    _check_text(b)
    shape = k.broadcast(a, b)
    left, right = (np.broadcast_to(v, shape).reshape(-1).tolist() for v in (a, b))
    return _text_array(k, [one + other for one, other in zip(left, right, strict=True)], shape, a)


@operator("RegexFullMatch")
def regex_full_match(k: Kernels, node: Node, x: Array) -> Array:
    """Whether a whole text matches."""
    _check_text(x)
    pattern = _pattern(node.text("pattern", ""))
    return k.plain(np.array([pattern.fullmatch(t) is not None for t in x.reshape(-1)], bool).reshape(x.shape), x)


@operator("StringSplit")
def string_split(k: Kernels, node: Node, x: Array) -> tuple[Array, Array]:
    """The parts of each text along a new last dimension, padded by empty ones, and how many there are."""
    _check_text(x)
    delimiter, most = node.get("delimiter") or None, node.integer("maxsplit", -1)
    texts = [text if delimiter else text.strip() for text in x.reshape(-1).tolist()]
    rows = [text.split(delimiter, most) if text else [] for text in texts]
    longest = max(map(len, rows), default=0)
    return _in_rows(k, rows, longest, "", x), np.array([*map(len, rows)], np.int64).reshape(x.shape)


# -- hashes and dictionaries ------------------------------------------------------------------------------------------
_BITS = (1 << 32) - 1


def _turned(v: int, by: int) -> int:
    return (v << by | v >> 32 - by) & _BITS


def _mixed(block: int) -> int:
    return _turned(block * 0xCC9E2D51 & _BITS, 15) * 0x1B873593 & _BITS


def murmur(key: bytes, seed: int) -> int:
    """MurmurHash3 of 32 bits.

    >>> murmur(b"", 0), murmur(b"hello", 0)
    (0, 613153351)
    """
    found = seed & _BITS
    whole = len(key) // 4 * 4
    for at in range(0, whole, 4):
        found = _turned(found ^ _mixed(int.from_bytes(key[at : at + 4], "little")), 13) * 5 + 0xE6546B64 & _BITS
    found ^= _mixed(int.from_bytes(key[whole:], "little")) ^ len(key)
    found = (found ^ found >> 16) * 0x85EBCA6B & _BITS
    found = (found ^ found >> 13) * 0xC2B2AE35 & _BITS
    return found ^ found >> 16


@operator("MurmurHash3", domain=MICROSOFT)
def murmur_hash(k: Kernels, node: Node, x: Array) -> Array:
    """The hash of each text, or integer of 32 bits, as u32 or s32."""
    need(
        x.dtype == object or x.dtype.kind in "iu" and x.itemsize == 4, f"an input of {x.dtype}; text, s32 and u32 work"
    )
    seed, unsigned = node.integer("seed", 0), bool(node.integer("positive", 1))
    keys = [v.encode() for v in x.reshape(-1)] if x.dtype == object else [v.tobytes() for v in x.reshape(-1)]
    found = np.array([murmur(key, seed) for key in keys], np.uint32).reshape(x.shape)
    return k.plain(found if unsigned else found.view(np.int32), x)


@operator("CategoryMapper", domain=ML)
def category_mapper(k: Kernels, node: Node, x: Array) -> Array:
    """A number for a text, or a text for a number."""
    names, numbers = node.get("cats_strings") or [], node.get("cats_int64s") or []
    need(bool(names) and len(names) == len(numbers), f"{len(names)} cats_strings and {len(numbers)} cats_int64s")
    if x.dtype.kind == "O":
        known = dict(zip(names, numbers, strict=True))
        other = node.integer("default_int64", -1)
        return k.plain(np.array([known.get(t, other) for t in x.reshape(-1)], np.int64).reshape(x.shape), x)
    need(x.dtype == np.int64, f"an input of {x.dtype}; text and s64 work")
    by_number = dict(zip(numbers, names, strict=True))
    absent = node.text("default_string", "_Unused")
    return _text_array(k, [by_number.get(v, absent) for v in x.reshape(-1).tolist()], x.shape, x)
