"""Which of benchdnn's options simdnn models, which it accepts without effect, and which it knows but cannot do."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from isa_models import InvalidArgument, machine
from isa_models.block_formats import BLOCK_FORMATS
from isa_models.errors import unknown_name
from isa_models.intel_gpu import FLOAT_MODELS
from isa_models.isa import caps
from simdnn.benchdnn import attributes
from simdnn.primitives.accumulation import check_acc_mode
from simdnn.primitives.attr import STRATEGIES, Attr
from simdnn.primitives.dispatch import check_dispatch

DRIVERS = ("matmul", "conv", "ip", "deconv")
OPERATORS = (  # drivers of one operator: `operators`
    *("softmax", "eltwise", "binary", "lnorm", "pool", "bnorm", "gnorm", "reduction", "prelu", "concat", "sum"),
    *("shuffle", "resampling", "lrn", "reorder"),
)
MODES = ("C", "P", "CP", "F", "S")  # F and S are benchdnn's shorter ways to measure: the cost alone, as P
DIRECTIONS = ("FWD_B", "FWD_D", "FWD_I", "BWD_D", "BWD_W", "BWD_WB", "BWD_DW")
ALGORITHMS = ("direct", "auto", "wino", "convolution_direct", "convolution_auto", "convolution_wino")


@dataclass(frozen=True)
class Option:
    """An option that holds for the problems after it: a comma list of values, each checked by `check`.

    An empty value means the default. `drivers`: which problems it concerns. `kept`: --reset leaves it.
    """

    name: str
    default: str
    check: Callable[[str], object]
    drivers: tuple[str, ...] = DRIVERS
    kept: bool = False


def _type(text: str) -> object:
    return attributes.data_type("--bia-dt", text)


def _types(text: str) -> object:
    types = text.split(":")
    if len(types) not in (1, 3):
        raise InvalidArgument(f"--dt={text[:60]!r}; src:weights:dst is needed, as u8:s8:s32, or one type for all")
    blocks = [place for place, part in enumerate(types) if place == 1 and part in BLOCK_FORMATS]  # weights of ggml's
    return [part if place in blocks else attributes.data_type("--dt", part) for place, part in enumerate(types)]


def data_types(option: str, counts: Sequence[int]) -> Callable[[str], object]:
    """A check for types between colons, as many as `counts` allows."""

    def check(text: str) -> object:
        types = text.split(":")
        if len(types) not in counts:
            raise InvalidArgument(
                f"{option}={text[:60]!r}; {' or '.join(map(str, counts[:2]))} types are needed, as f32:s8"
            )
        return [attributes.data_type(option, part) for part in types]

    return check


#: letters that stand together in a tag: of dimensions by number, of images, weights and sequences
_DIMENSIONS = tuple(map(frozenset, ("abcdefghijkl", "ncdhw", "goidhw", "tnc", "ldnc", "ldigo")))


def tag(text: str) -> object:
    letters = {c.lower() for c in text if c.isalpha()} - {"x"}
    known = text in ("any", "undef") or any(letters <= dims for dims in _DIMENSIONS)
    if not (known and text.isascii() and text.isalnum() and len(text) <= 40):
        raise InvalidArgument(f"tag {text[:60]!r}; any, or letters such as ab, ba, abx, axb")
    return text


def tags(text: str) -> object:
    """Tags between colons, one for each source, or one for all; an empty one is any."""
    return [tag(part) for part in text.split(":") if part]


def integer(what: str) -> Callable[[str], object]:
    def check(text: str) -> object:
        if not (text.isascii() and text.isdigit() and len(text) <= 9):
            raise InvalidArgument(f"{what}={text[:60]!r}; an integer of at least 0 is needed")
        return int(text)

    return check


def anything(text: str) -> object:
    """Any text is taken as it is."""
    return text


def one_of(what: str, allowed: tuple[str, ...], fold: Callable[[str], str] = str) -> Callable[[str], object]:
    def check(text: str) -> object:
        if fold(text) not in allowed:
            raise unknown_name(what, text[:40], allowed)
        return text

    return check


def _isa(text: str) -> object:
    return one_of("ISA", caps())(text) if text else text


def _parameters(option: str) -> Option:
    return Option(option, "", lambda text: attributes.parameters(option, text))


def _refused(name: str, *drivers: str) -> Option:
    """Known, and not modelled: a value other than the neutral ones of `NEUTRAL` makes problems unimplemented."""
    return Option(name, "", anything, drivers or DRIVERS)


#: in the order in which the cross product runs: the last one fastest
OPTIONS: Mapping[str, Option] = {
    option.name: option
    for option in (
        Option("machine", "zen4", machine, kept=True),
        Option("isa", "", _isa, kept=True),
        Option("dispatch", "fastest", check_dispatch, kept=True),
        Option("zero-point-strategy", "auto", one_of("zero-point strategy", STRATEGIES), kept=True),
        Option("engine", "", anything, kept=True),
        Option("dir", "FWD_B", one_of("--dir", DIRECTIONS, str.upper), ("conv", "ip", "deconv")),
        Option("dt", "f32", _types),
        Option("stag", "any", tag),
        Option("wtag", "any", tag),
        Option("dtag", "any", tag),
        Option("alg", "direct", one_of("--alg", ALGORITHMS, str.lower), ("conv", "deconv")),
        _refused("encoding", "matmul"),
        _refused("grouped", "matmul"),
        Option("strides", "", anything),
        Option("runtime_dims_masks", "", anything, ("matmul",)),
        _parameters("attr-scales"),
        _parameters("attr-zero-points"),
        _parameters("attr-precomputed-reductions"),
        Option("attr-post-ops", "", attributes.post_ops),
        Option("attr-fpmath", "", attributes.math_mode),
        Option("attr-exact-int8", "", attributes.truth),
        Option("attr-float-model", Attr.float_model, one_of("float model", tuple(FLOAT_MODELS))),
        Option("attr-acc-mode", "", lambda text: check_acc_mode(text) if text else text),
        _refused("attr-rounding-mode"),
        _refused("attr-dropout"),
        Option("bia-dt", "undef", _type),
        Option("bia_mask", "", integer("--bia_mask"), ("matmul",)),
        Option("mb", "0", integer("--mb"), ("conv", "ip", "deconv")),
    )
}
ALIASES = {
    "bia_dt": "bia-dt",
    "runtime_dim_mask": "runtime-dim-mask",
    "attr-zero-point-strategy": "zero-point-strategy",
}
#: values of options that are known and not modelled under which a problem is what it would be without them
NEUTRAL: Mapping[str, tuple[str, ...]] = {
    "engine": ("",),  # and the machine's own kind: `tasks`
    "encoding": ("", "::"),
    "grouped": ("",),
    "attr-rounding-mode": ("", "dst:environment"),
    "attr-dropout": ("",),
}
#: how benchdnn itself measures, reports and checks: no effect here
IGNORED = frozenset(
    "allow-enum-tags-only attr-deterministic attr-same-pd-check attr-scratchpad canonical check-ref-impl cold-cache "
    "cpu-isa-hints ctx-exe ctx-init execution-mode fast-ref fix-times-per-prb global-impl global-skip-impl impl "
    "inplace max-ms-per-prb mem-check memory-kind mode-modifier num-streams perf-template repeats-per-prb skip-impl "
    "stream-kind summary verbose".split()
)
OTHER_DRIVERS = frozenset("brgemm graph rnn sdpa self zeropad".split())
FLAGS = ("batch", "match", "mode", "reset")
MODELLED = f"drivers: {', '.join(f'--{d}' for d in sorted((*DRIVERS, *OPERATORS), key='deconv'.__eq__))}"
SUBSET = (
    f"{MODELLED}; options: --batch=FILE --reset --match=REGEX "
    f"--mode={'|'.join(MODES)} --dt --stag --wtag --dtag --bia-dt --bia_mask --dir=FWD_B|FWD_D|FWD_I --mb --alg "
    "--strides --runtime_dims_masks "
    "--attr-fpmath --attr-scales --attr-zero-points --attr-precomputed-reductions --attr-post-ops "
    "--attr-exact-int8=true|false --attr-float-model --attr-acc-mode --machine --isa --dispatch --zero-point-strategy; "
    "of drivers of one operator: --sdt --ddt --dt --tag --alg --axis --alpha --beta --flags --group --p --eps --scales "
    "--attr-scales --attr-zero-points --attr-post-ops"
)
