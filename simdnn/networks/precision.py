"""The precision modes that studies compare: what is stored in which type, and which kernels may run it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from functools import cached_property

from isa_models import GpuMachine, InvalidArgument, Machine, Unimplemented, UnknownName
from isa_models.errors import did_you_mean, some, unknown_name
from isa_models.isa import caps, implied
from isa_models.keywords import typed_parts
from simdnn.networks.narrow_weights import NARROW_MODES, NarrowMode
from simdnn.primitives.attr import STRATEGIES


@typed_parts()
@dataclass(frozen=True)
class Mode:
    """One precision mode.

    `isas`: the ISA caps that bring its kernels, best first; the first that a machine has is the one it runs under.
    `gpus`: the vendors whose GPUs have its kernels, or platforms of them; there the cap is the platform.
    A mode with `fpmath` keeps f32 data, and what it computes in is the machine's choice (a hint).
    """

    name: str
    title: str
    src: str
    weights: str
    isas: tuple[str, ...]
    exact_int8: bool | None = None
    fpmath: str | None = None
    acc_mode: str | None = None  # the type of sums that is asked for, as in `Attr`
    weight_group: int = 0  # k of stored weights that share a scale (u8 and u4: and a zero point) in a channel; 0: none
    zero_points: str = "auto"  # of integer products: the strategy by which weights' zero points are taken off
    narrow: str = ""  # of weights stored as floats of 8 or 4 bits: how (`simdnn.networks.narrow_weights`)
    per_tensor: bool = False  # integer weights have one scale, not one for each output channel
    default: bool = True  # among those that run where none is named
    gpus: tuple[str, ...] = ()
    layers: tuple[tuple[str, str], ...] = ()  # of a recipe: the mode of each layer by its name; others are f32

    def of_layer(self, layer: str) -> Mode:
        """The mode of one layer: of a recipe the layer's own, else this one.

        >>> mixed = recipe({"conv1": "bf16"})
        >>> mixed.of_layer("conv1").name, mixed.of_layer("fc").name, MODES["f16"].of_layer("fc").name
        ('bf16', 'f32', 'f16')
        """
        return MODES[self.by_layer.get(layer, "f32")] if self.layers else self

    @cached_property
    def by_layer(self) -> Mapping[str, str]:
        """`layers` as a table."""
        return dict(self.layers)

    def isa_at(self, layer: str, machine: Machine | GpuMachine, cap: str | None = None) -> str:
        """The ISA cap that one layer of a recipe runs under; `InvalidArgument` where the machine lacks its mode."""
        own = self.of_layer(layer)
        found = own.isa(machine, cap)
        if found is None:
            able = ", ".join(mode.name for mode in MODES.values() if mode.isa(machine, cap) and not mode.by_token)
            said = f"layer {layer!r} in {own.name!r} {own.needs(machine)}; machine {machine.name!r}"
            raise InvalidArgument(f"{said}{f' up to {cap!r}' if cap else ''} runs {able}")
        return found

    @property
    def parts(self) -> tuple[Mode, ...]:
        """The modes of a recipe's layers, each once; of another mode itself.

        >>> [mode.name for mode in recipe({"conv1": "bf16", "conv2": "f16", "fc": "bf16"}).parts]
        ['bf16', 'f16']
        """
        return tuple(dict.fromkeys(MODES[name] for _, name in self.layers)) or (self,)

    @property
    def is_integer(self) -> bool:
        return self.src in ("u8", "s8")

    @property
    def by_token(self) -> bool:
        """Whether it is of integer products with parameters by group along K, whose sources are quantized by token."""
        return self.is_integer and bool(self.weight_group)

    @property
    def stores(self) -> bool:
        """Whether weights are stored smaller than their floating source: as integers by group, or as narrow floats."""
        return bool(self.weight_group or self.narrow) and not self.is_integer

    def fpmath_of(self, layer: str, layers: str = "*") -> str | None:
        """The math mode of one layer where only `layers` are in the mode (patterns of a shell, by commas).

        >>> MODES["fpmath-bf16"].fpmath_of("conv1", "conv*"), MODES["fpmath-bf16"].fpmath_of("fc", "conv*")
        ('bf16', 'strict')
        """
        return self.fpmath if self.fpmath is None or matches(layer, layers) else "strict"

    def usual(self, machine: Machine | GpuMachine) -> bool:
        """Whether it is among those that run where none is named: f16, too, on a GPU."""
        return self.default or isinstance(machine, GpuMachine) and self.src == "f16"

    def needs(self, machine: Machine | GpuMachine) -> str:
        """A refusal's words: the ISA caps, or the GPUs, that have kernels for it."""
        if isinstance(machine, GpuMachine):
            if not self.gpus:
                return "is for CPUs"
            where = f"{machine.vendor}'s {machine.platform.name}"
            return f"has no kernel on {where}; GPUs that have one: {', '.join(self.gpus)}"
        return f"needs {' or '.join(self.isas)}"

    def isa(self, machine: Machine | GpuMachine, cap: str | None = None) -> str | None:
        """The ISA cap that the mode runs under on a machine (at most `cap`), or None where it cannot."""
        if isinstance(machine, GpuMachine):
            return machine.platform.name if {machine.vendor, machine.platform.name} & {*self.gpus} else None
        allowed = implied(cap) if cap else set(self.isas)
        return next((isa for isa in self.isas if machine.supports(isa) and isa in allowed), None)


def matches(name: str, patterns: str) -> bool:
    """Whether a name fits one of the patterns of a shell in a comma list."""
    return any(fnmatchcase(name, pattern) for pattern in patterns.split(","))


_FLOAT = ("avx512_core", "avx2")
_BF16 = ("avx512_core_amx", "avx512_core_bf16")
#: what can be chosen for one problem on one machine: a mode's name, or its parts, and which kernels are allowed
CHOICES = ("mode", "src", "weights", "group", "zero_points", "fpmath", "acc_mode", "exact_int8", "isa", "dispatch")
ANY_ISA = tuple(reversed(caps()))
_VNNI = ("avx512_core_amx", "avx512_core_vnni", "avx2_vnni")
GPUS = ("Intel", "NVIDIA")
_TENSOR_CORES = ("ampere", "ada", "hopper")  # of bf16 and of bytes


def _int8(src: str, per_tensor: bool, default: bool = False) -> list[Mode]:
    """int8 products as a library computes them without VNNI, fast and exactly, and with it.

    Fast: pairs of products in 16 bits, which saturate; with s8 sources oneDNN's way around that, sources shifted by 128
    and, in convolutions, halved weights.
    """
    name = "int8" + ("-s8" if src == "s8" else "") + ("-tensor" if per_tensor else "")
    what = f"{src} x s8" + (" with one scale" if per_tensor else "")
    fast = "pairs saturate at 16 bits" if src == "u8" else "shifted to u8; convolutions halve weights, others saturate"
    rows = (
        ("fast", f"{what} without VNNI; {fast}", _FLOAT, False),
        ("exact", f"{what} without VNNI, exact", _FLOAT, True),
        ("vnni", f"{what} exact, VNNI or AMX allowed (GPUs: DPAS, DP4A, tensor cores)", _VNNI, True),
    )
    return [
        Mode(
            f"{name}-{kind}",
            title,
            src,
            "s8",
            isas,
            exact_int8=exact,
            default=default,
            per_tensor=per_tensor,
            gpus=("Intel", *_TENSOR_CORES) if kind == "vnni" else (),
        )
        for kind, title, isas, exact in rows
    ]


def _by_group() -> list[Mode]:
    """int8 products whose weights have parameters by group along K, as language models are stored.

    Zero points by each strategy of `Attr(zero_point_strategy=…)`. The sums of "precomputed" and the matrix of "bias"
    are there already: the kernel that quantizes the source makes the one, whoever likes the other.
    """
    what = "s8 sources, {} weights a scale{} for up to 128 k each"
    plain = Mode("int8-group", what.format("s8", ""), "s8", "s8", ANY_ISA, True, weight_group=128, default=False)
    return [replace(plain, gpus=GPUS[:1])] + [
        replace(
            plain,
            name=f"int8-zp-{strategy.replace('_', '-')}",
            title=f"{what.format('u8', ' and a zero point')}, {strategy}",
            weights="u8",
            zero_points=strategy,
            gpus=GPUS[:1],
        )
        for strategy in STRATEGIES
        if strategy != "auto"
    ]


def _narrow() -> list[Mode]:
    """Sources of f32, or quantized as they come (on CPUs), by weights of 8 and 4 bits that are floats; bf16 is allowed
    inside. Convolutions keep f32.
    """
    return [
        Mode(
            name,
            _title(narrow),
            "f32",
            narrow.weights.dtype,
            ANY_ISA,
            fpmath="bf16",
            narrow=name,
            default=False,
            gpus=() if narrow.source else GPUS,
        )
        for name, narrow in NARROW_MODES.items()
    ]


def _title(narrow: NarrowMode) -> str:
    """A line about sources and weights of narrow floats."""
    shared = {"tensor": "one scale", "channel": "a scale a channel", "nvfp4": "an f8 scale for 16 k, one for all"}
    weights, source = (
        f"{form.dtype} {side}, {shared.get(form.scale, f'a power of two for {form.group} k ({form.scale})')}"
        if form
        else f"f32 {side}"
        for form, side in ((narrow.weights, "weights"), (narrow.source, "sources"))
    )
    return f"{source}, {weights}" if narrow.source is None else f"{source}; {weights}"


_MODES = (
    Mode("f32", "f32, fused multiply-add", "f32", "f32", _FLOAT, gpus=GPUS),
    Mode("bf16", "bf16 products, f32 sums", "bf16", "bf16", _BF16, gpus=("Intel", *_TENSOR_CORES)),
    *_int8("u8", per_tensor=False, default=True),
    Mode("f16", "f16 data", "f16", "f16", ANY_ISA, default=False, gpus=GPUS),
    *(
        Mode(
            f"fpmath-{mode}",
            f"f32 data, {mode} allowed inside",
            "f32",
            "f32",
            ANY_ISA,
            fpmath=mode,
            default=False,
            gpus=GPUS,
        )
        for mode in ("tf32", "bf16", "f16")
    ),
    *(
        Mode(
            name,
            f"f32 sources, {bits} weights a scale for up to {group} k each, bf16 allowed inside",
            "f32",
            bits,
            ANY_ISA,
            fpmath="bf16",
            weight_group=group,
            default=False,
            gpus=GPUS,
        )
        for name, bits, group in (("s8-weights", "s8", 128), ("s4-weights", "s4", 128), ("s4-g32", "s4", 32))
    ),
    *_narrow(),
    *_int8("u8", per_tensor=True),
    *_int8("s8", per_tensor=False),
    *_int8("s8", per_tensor=True),
    *_by_group(),
)
MODES: Mapping[str, Mode] = {mode.name: mode for mode in _MODES}


def recipe(modes: Mapping[str, str], name: str = "recipe") -> Mode:
    """The mode in which each layer has a mode of its own. Raises `UnknownName`, and `InvalidArgument` for no layers."""
    if not isinstance(modes, Mapping) or not modes:
        raise InvalidArgument(f"a recipe of {modes!r:.60}; a mode by layer is needed, as {{'conv1': 'bf16'}}")
    for mode in modes.values():
        if mode not in MODES:
            raise unknown_name("mode", str(mode), MODES, "simdnn list modes")
    title = "each layer in a mode of its own"
    return Mode(name, title, "", "", ANY_ISA, default=False, gpus=GPUS, layers=tuple(modes.items()))


def check_layers(mode: Mode, layers: Sequence[str]) -> Sequence[str]:
    """A network's layers; `UnknownName` where a recipe names another one."""
    for name, _ in mode.layers:
        if name not in layers:
            question = did_you_mean(name, layers)
            near = f": {question}" if question else "."
            raise UnknownName(f"unknown layer {name!r} in the recipe{near} The network has {some(layers)}")
    return layers


def check_filters(mode: Mode, layers: Iterable[str]) -> None:
    """`Unimplemented` where a recipe puts a convolution, one of `layers`, in a mode that is of products alone."""
    for layer, own in ((layer, mode.of_layer(layer)) for layer in layers):
        if NarrowMode.kept(own.narrow, convolutions=True):
            works = ", ".join(name for name, one in NARROW_MODES.items() if one.of_filters)
            said = "a convolution has no weights in blocks along K"
            raise Unimplemented(f"layer {layer!r} in {own.name!r}: {said}; what works: fpmath-{own.fpmath}, {works}")


def of_activations(mode: Mode) -> Mode:
    """The mode for a product of activations, which nobody has stored: symmetric s8 in place of zero points; in place of
    narrow floats f32, with the mode's math.

    >>> of_activations(MODES["mxfp4"]).weights, of_activations(MODES["int8-zp-direct"]).weights
    ('f32', 's8')
    """
    if mode.narrow:
        return replace(mode, weights="f32", narrow="")
    return mode if mode.zero_points == "auto" else replace(mode, weights="s8", zero_points="auto")


def check_groups(mode: Mode) -> None:
    """`Unimplemented` for a network with data in a mode of integer products with parameters by group along K.

    Its sources would be quantized as it runs, by token, which no network here does.
    """
    if mode.by_token:
        raise Unimplemented(f"{mode.name}: parameters by group along K of integer products are of layer tables")


Choice = tuple[dict[Mode, str], dict[Mode, str]]  # modes with their ISA caps; and those left out, with the reason


def choose(
    machine: Machine | GpuMachine,
    modes: Iterable[str] | None = None,
    isa: str | None = None,
    known: Mapping[str, Mode] = MODES,
    all_of: bool = True,
) -> Choice:
    """The modes to run with the ISA cap of each, and those left out with the reason.

    `modes=None` asks for the usual ones; then what the machine lacks is left out, and of named ones without `all_of`. A
    mode named that the machine lacks is an `InvalidArgument` else, as an `isa` that it lacks is, and as usual ones that
    it all lacks are; a name that is not `known` is an `UnknownName`.

    >>> from isa_models import machine
    >>> run, lacking = choose(machine("skx"))
    >>> [mode.name for mode in run], [mode.name for mode in lacking]
    (['f32', 'int8-fast', 'int8-exact'], ['bf16', 'int8-vnni'])
    """
    has = (machine.platform.name,) if isinstance(machine, GpuMachine) else machine.isa
    if isa is not None and not (isinstance(isa, str) and isa in has):
        implied(isa)  # an unknown name is told apart from one that the machine lacks
        raise InvalidArgument(f"isa={isa!r}; machine {machine.name!r} has {', '.join(has)}")
    names = tuple(n for n in known if known[n].usual(machine)) if modes is None else tuple(modes)
    for name in names:
        if not isinstance(name, str) or name not in known:
            raise unknown_name("mode", name, known, "simdnn list modes")
    names = tuple(dict.fromkeys(names))
    if not names:
        raise InvalidArgument(f"no mode given; allowed: {', '.join(known)}")
    run: dict[Mode, str] = {}
    lacking: dict[Mode, str] = {}
    for mode in map(known.__getitem__, names):
        found = mode.isa(machine, isa)
        if found:
            run[mode] = found
        else:
            limit = f"isa={isa!r} does not include" if mode.isa(machine) else f"machine {machine.name!r} does not have"
            lacking[mode] = f"{mode.needs(machine)}, which {limit}"
            if isinstance(machine, GpuMachine):
                lacking[mode] = f"{mode.needs(machine)}; {machine.name!r} is {machine.title}"
    if lacking and modes is not None and all_of:
        mode, reason = next(iter(lacking.items()))
        able = some([m.name for m in known.values() if m.isa(machine, isa)])
        raise InvalidArgument(f"mode {mode.name!r} {reason}; modes that run: {able}")
    if not run and all_of:
        mode, reason = next(iter(lacking.items()))
        raise InvalidArgument(f"no mode runs; {mode.name!r} {reason}")
    return run, lacking


def named_modes(
    machine: Machine | GpuMachine, names: Sequence[str], isa: str | None, known: Mapping[str, Mode]
) -> dict[Mode, str | None]:
    """The modes of a list of names, as `choose` finds them; `InvalidArgument` for what is no list of names."""
    if isinstance(names, str) or not isinstance(names, Iterable):
        parts = names.split(",") if isinstance(names, str) else ["f32", "bf16"]
        raise InvalidArgument(f"modes={names!r:.60}; a list of names is needed, as {parts}")
    return {**choose(machine, names, isa, known)[0]}


def choose_each(
    places: Sequence[tuple[Machine | GpuMachine, str | None]],
    modes: Iterable[str] | None = None,
    known: Mapping[str, Mode] = MODES,
) -> list[Choice]:
    """The modes of each of some places, as `choose` finds them: a machine and an ISA cap (None: all that it has).

    Where there are several, each leaves out the modes named that it lacks; one that all lack is an `InvalidArgument`.

    >>> from isa_models import machine
    >>> found = choose_each([(machine("skx"), None), (machine("clx"), None)], ["int8-vnni"])
    >>> [[mode.name for mode in run] for run, lacking in found]
    [[], ['int8-vnni']]
    """
    names = None if modes is None else [*modes]
    found = [choose(one, names, isa, known, all_of=names is None or len(places) == 1) for one, isa in places]
    for mode in found[0][1] if names is not None else ():
        if all(mode in lacking for _, lacking in found):
            choose(places[0][0], [mode.name], places[0][1], known)  # which says why
    return found
