"""Layouts of a benchdnn case's tensors: which ones primitives here read as they are, and the copies of others."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from isa_models import Unimplemented
from simdnn.benchdnn.layouts import Moved, letters_of, moved
from simdnn.primitives.run import Target

if TYPE_CHECKING:
    from simdnn.benchdnn.options import Case

ANY_TAG = ("", "any", "undef")
#: drivers whose outputs don't hang on the order that elements lie in
ANY_ORDER = ("eltwise", "binary", "reorder", "sum", "concat", "shuffle", "prelu")
Named = tuple[str, tuple[int, ...], str]  # a tensor: name, shape, type


def blocks_alike(case: Case, shape: tuple[int, ...]) -> list[str]:
    """Layouts in blocks of channels in which oneDNN's outputs are those of channels that lie last (docs/numerics.md,
    rule 18): for a batch normalization where a kernel with registers of that many takes both.
    """
    if len(shape) < 3 or case.driver not in ("pool", "resampling", "reduction", "bnorm"):
        return []
    sizes, options = [8, 16], case.options
    if case.driver == "bnorm":
        wide = "avx512_core" in Target.of(options["machine"], options["isa"] or None, 1, "auto", "onednn").caps
        sizes = [8] * (options["dt"].split(":")[0] == "f32") + [16] * wide if shape[1] % 16 == 0 else []
    return [f"aB{'cdefgh'[: len(shape) - 2]}{size}b" for size in sizes]


def lies_last(case: Case, shape: tuple[int, ...]) -> bool:
    """Whether a library is asked about an image whose channels lie last, or in blocks that come to the same."""
    options = case.options
    if options["dispatch"] == "fastest" or case.driver in (*ANY_ORDER, "lnorm"):
        return False
    if case.driver == "deconv":
        return options["stag"] not in ANY_TAG
    letters = letters_of("abx", len(shape))
    src = next((tag for tag in (options["stag"], options["tag"].split(":")[0]) if tag not in ANY_TAG), "abx")
    dst = options["dtag"] if options["dtag"] not in ANY_TAG else src
    return letters_of(src, len(shape)) != letters or letters_of(dst, len(shape)) in blocks_alike(case, shape)


def tags_of(case: Case, count: int) -> tuple[list[str], str]:
    """Tags of the sources and of the destination; without one of its own it has the first source's."""
    single = case.options["tag"].split(":")
    sources = case.options["stag"].split(":") if case.options["stag"] not in ANY_TAG else single[:1]
    sources = sources * count if len(sources) == 1 else sources
    if len(sources) != count:
        raise Unimplemented(f"--stag={case.options['stag']} for {count} sources")
    dst = case.options["dtag"] if case.options["dtag"] not in ANY_TAG else (*single, "any")[1]
    return sources, dst if dst not in ANY_TAG else sources[0]


def _own(tag: str, ndims: int) -> bool:
    """Whether kernels here read a layout as it is: rows, or channels last."""
    return tag in ANY_TAG or letters_of(tag, ndims) in (letters_of("abx", ndims), letters_of("axb", ndims))


def copies(case: Case, tensors: Sequence[Named]) -> tuple[Moved, ...]:
    """The copies of sources and destination (the last one) whose layouts kernels here do not read."""
    tags, dst = tags_of(case, len(tensors) - 1)
    wanted = zip((*tags, dst), tensors, strict=True)
    return tuple(moved(name, tag, shape, dtype) for tag, (name, shape, dtype) in wanted if not _own(tag, len(shape)))


def copies_alike(case: Case, tensors: Sequence[Named]) -> tuple[Moved, ...]:
    """The copies of what lies in another order than the first source, for an operator that takes any order."""
    tags, dst = tags_of(case, len(tensors) - 1)
    found: list[Moved] = []
    first = letters_of(tags[0], len(tensors[0][1])) if tags[0] not in ANY_TAG else ""
    for tag, (name, shape, dtype) in zip((*tags[1:], dst), tensors[1:], strict=True):
        several = sum(size > 1 for size in shape) > 1
        if tag in ANY_TAG or not several or letters_of(tag, len(shape)) == first:
            continue
        other = tags[0] if _own(tag, len(shape)) and first else tag
        found.append(moved(name, other, shape, dtype))
    return tuple(found)


def copies_of_images(case: Case, tensors: Sequence[Named]) -> tuple[Moved, ...]:
    """The copies of the first source and the destination, which are images, where their channels are not last."""
    found = []
    tags, ends = (case.options["stag"], case.options["dtag"]), (tensors[0], tensors[-1])
    for tag, (name, shape, dtype) in zip(tags, ends, strict=True):
        if tag not in ANY_TAG and letters_of(tag, len(shape)) != letters_of("axb", len(shape)):
            found.append(moved(name, tag, shape, dtype))
    return tuple(found)
