"""PTX instructions on the accumulators of mma.m16n8 where they lie, as kernels of attention use them: rows are reduced
and scaled in registers, and two blocks packed as an operand of the next product.

A thread has two neighbouring columns of a row of 16 x 8 sums, four threads (a quad) a row (PTX ISA, "Matrix Fragments
for mma.m16n8k16"). So what a thread keeps of a row is 16 rows of four lanes here, half as many as the sums have: `even`
and `odd` take the first, or the second, column of each thread. All else that goes on in a row stays in its thread, but
for shfl.sync.bfly, which trades numbers within a quad.

ex2.approx, lg2.approx and rcp.approx are tables of the hardware's that nobody has published. Here they are within what
the manual allows, and 1/x correctly rounded: bits of a GPU differ in the last place at times.
"""

from __future__ import annotations

from math import log

from isa_models.algebra import Value
from isa_models.errors import InvalidArgument, counted
from isa_models.formats import fmt
from isa_models.instruction import GPU_REGISTRY, define, example
from isa_models.nvidia.platforms import PLATFORMS, WARP
from isa_models.nvidia.vector import MANUAL, canonical, row
from isa_models.rounding import round_to

_COLUMNS = 8  # of a block of sums
_WAYS = (("even", 0), ("odd", 1))
_EIGHT = {WARP * 32: tuple(name for name, p in PLATFORMS.items() if p.async_copies)}  # sm_80 and later
_TERMS = [log(2) ** power / prod for power, prod in enumerate((1, 1, 2, 6, 24, 120, 720, 5040))]
_LEAST = 2.0**-126  # normal number of f32
_ROOT_OF_HALF = 0x3F3504F3  # as f32
_SERIES = [2 / log(2) / n for n in (1, 3, 5, 7, 9, 11)]  # of log2((1 + s) / (1 - s)) / s, in s squared


def _of_thread(name: str, way: int) -> None:
    """An instruction of two operands, the second of which is one of a thread's two columns."""
    unit, label = GPU_REGISTRY[name], _WAYS[way][0]

    def apply(acc: Value, x: Value) -> Value:
        found: Value = unit.function(acc, x.split(2)[way])
        return found

    column = "first" if way == 0 else "second"
    text = f"{unit.doc.splitlines()[0]} The second operand is the {column} column of each thread."
    result = unit(*[[1.0], [5.0, 9.0][way : way + 1]]).tolist()
    row(f"{name}.{label}", "f32 <- f32, f32*2", apply, text, "[1], [5, 9]", str(result), chooses=unit.chooses)


for _name in ("ptx_max.f32", "add.rn.f32"):
    for _way in (0, 1):
        _of_thread(_name, _way)


def _spread(of_thread: Value) -> Value:
    """A number of each thread beside both of its columns."""
    return of_thread.interleave(of_thread)


def _scaled(x: Value, factor: Value) -> Value:
    return canonical(x * _spread(factor))


def _less(x: Value, less: Value, imm: int) -> Value:
    factor = x.view("u32").literal(imm).view("f32")
    return canonical(x.fma(factor, _spread(less * -1.0)))


def _joined(total: Value, x: Value, factor: Value) -> Value:
    return canonical(x.fma(_spread(factor), total))


def _plus(a: Value, b: Value, imm: int) -> Value:
    return canonical(b.fma(a.view("u32").literal(imm).view("f32"), a))


row(
    "mul.rn.f32.thread",
    "f32 <- f32, f32*0.5",
    _scaled,
    "Both columns of each thread times its number.",
    "[1, 2, 3, 4], [10, 100]",
    "[10.0, 20.0, 300.0, 400.0]",
)
row(
    "fma.rn.f32.imm.thread",
    "f32 <- f32, f32*0.5",
    _less,
    "Both columns of each thread times a number, less its own, rounded once.",
    "[1, 2], [0.5], imm=0x40000000",
    "[1.5, 3.5]",
    immediate_bits=32,
)
row(
    "fma.rn.f32.thread",
    "f32 <- f32, f32, f32*0.5",
    _joined,
    "Sums, and both columns of each thread times its number, rounded once.",
    "[1, 2, 3, 4], [1, 1, 1, 1], [10, 100]",
    "[11.0, 12.0, 103.0, 104.0]",
    accumulates=True,
)
row(
    "fma.rn.f32.imm",
    "f32 <- f32, f32",
    _plus,
    "The first operand plus the second times a number, rounded once.",
    "[1, 2], [3, 4], imm=0x40000000",
    "[7.0, 10.0]",
    immediate_bits=32,
)


row(
    "rz.b32",
    "u32 <- u32, u32",
    lambda a, b: a ^ b,
    "Zero, where the next product reads the zero register for its sums: no instruction stands for it.",
    "[12], [12]",
    "[0]",
    clears=True,
    rate="none",
)
row("mov.b32", "u32 <- u32", lambda a: a | 0, "A copy.", "[7]", "[7]")
row(
    "selp.f32.seen",
    "f32 <- f32",
    lambda x: x.eq(float("-inf")).where(x.literal(0.0), x),
    "The number itself; zero in place of minus infinity, the maximum of what nothing was seen of.",
    "[7, -3]",
    "[7.0, -3.0]",
    chooses=True,
)
row(
    "selp.f32.some",
    "f32 <- f32",
    lambda x: x.eq(0.0).where(x.literal(1.0), x),
    "The number itself; one in place of zero, the sum of nothing.",
    "[7, 0]",
    "[7.0, 1.0]",
    chooses=True,
)


# -- special functions ------------------------------------------------------------------------------------------------
def _flushed(x: Value) -> Value:
    """Zero of its sign in place of a subnormal number."""
    return (x < _LEAST).where((x > -_LEAST).where(x * 0.0, x), x)


def _power(n: Value) -> Value:
    """2**n of an integer n as f32, which is a normal number."""
    return ((n + 127) << 23).view("f32")


def _ex2(x: Value) -> Value:
    inside = (x < 130.0).where(x, x.literal(130.0))
    inside = (inside > -130.0).where(inside, x.literal(-130.0))
    whole = inside.round_even()
    rest = inside - whole
    total = x.literal(_TERMS[-1])
    for term in reversed(_TERMS[:-1]):
        total = total.fma(rest, x.literal(term))
    n = whole.to("s32")
    half = n >> 1  # in two steps, as 2**n may be no normal number
    return canonical(x.is_nan().where(x, _flushed(total * _power(half) * _power(n - half))))


row(
    "ex2.approx.ftz.f32",
    "f32 <- f32",
    _ex2,
    "2**x to within 2**-22 of itself; subnormal results are zero.",
    "[-1, 0.5, -200]",
    "[0.5, 1.4142135381698608, 0.0]",
    rate="special",
)


def _lg2(x: Value) -> Value:
    """The exponent, and a series in (m - 1) / (m + 1) of the significand m between the roots of 1/2 and 2."""
    bits = x.view("u32")
    exponent = ((bits - _ROOT_OF_HALF).view("s32") >> 23).to("f32")
    m = (bits - (((bits - _ROOT_OF_HALF).view("s32") >> 23) << 23).view("u32")).view("f32")
    s = (m - 1.0) / (m + 1.0)
    square, total = s * s, x.literal(_SERIES[-1])
    for term in reversed(_SERIES[:-1]):
        total = total.fma(square, x.literal(term))
    found = (total * s) + exponent
    least, none = x.literal(float("-inf")), x.literal(float("nan"))
    found = (x < _LEAST).where((x > -_LEAST).where(least, none), found)
    return canonical(x.eq(float("inf")).where(x, x.is_nan().where(x, found)))


row(
    "lg2.approx.ftz.f32",
    "f32 <- f32",
    _lg2,
    "The logarithm to base 2, to within 2**-22 (of itself, beyond 1/2 to 2); subnormal numbers are zero.",
    "[8, 0.25, 0]",
    "[3.0, -2.0, -inf]",
    rate="special",
)
row(
    "rcp.approx.ftz.f32",
    "f32 <- f32",
    lambda x: canonical(_flushed(x.literal(1.0) / x)),
    "1/x, correctly rounded where the manual allows one unit in the last place; subnormal results are zero.",
    "[4]",
    "[0.25]",
    rate="special",
)


# -- between threads, and to the next product -------------------------------------------------------------------------
def _traded(x: Value, imm: int) -> Value:
    lanes = [lane ^ imm for lane in range(x.lanes)]
    if (absent := max(lanes)) >= x.lanes:
        raise InvalidArgument(f"shfl.bfly.f32: imm={imm} asks {counted(x.lanes, 'lane')} for lane {absent}")
    return x.permute(lanes)


define(
    "shfl.bfly.f32",
    "f32 <- f32",
    _EIGHT,
    MANUAL + "shfl.sync",
    GPU_REGISTRY,
    native=False,
    warp=WARP,
    rate="shuffle",
    doc=example(
        "shfl.bfly.f32",
        "The lane whose number differs in the bits of imm.",
        "[1, 5, 4, 2], imm=2",
        "[4.0, 2.0, 1.0, 5.0]",
    ),
)(_traded)


def _pack(dtype: str) -> None:
    """Two blocks of sums, side by side, as an operand of 16 columns."""

    def packed(a: Value, b: Value) -> Value:
        rows = [range(at, min(at + _COLUMNS, a.lanes)) for at in range(0, a.lanes, _COLUMNS)]
        places = [place for row in rows for side in (0, a.lanes) for place in (side + lane for lane in row)]
        return round_to(canonical(a.concat(b).permute(places)), dtype)

    row(
        f"cvt.rn.{dtype}x2.f32",
        f"{dtype} <- f32*0.5, f32*0.5",
        packed,
        f"Rows of eight numbers of a, each with that of b behind it, as {dtype}, nearest even: two numbers at a time.",
        "[1.5], [2.5]",
        "[1.5, 2.5]",
        caps=_EIGHT,
        rate="packed",
    )


for _dtype in ("f16", "bf16"):
    assert fmt(_dtype).bits == 16
    _pack(_dtype)


# -- masks ------------------------------------------------------------------------------------------------------------
def _columns(x: Value, imm: int) -> Value:
    hidden = x.concat(x.literal(float("-inf")))
    return hidden.permute([lane if lane % _COLUMNS < imm else x.lanes + lane for lane in range(x.lanes)])


def _seen(x: Value, limit: Value, imm: int, below: bool) -> Value:
    a, b, c, d = (limit.literal(imm + column) for column in (0, 2, 4, 6))  # the first column of a quad's threads
    places = [thread % 4 * limit.lanes + thread for thread in range(limit.lanes)]
    first = a.concat(b).concat(c.concat(d)).permute(places)
    even, odd = x.split(2)
    least = even.literal(float("-inf"))
    seen = [limit > first, limit > first + 1] if below else [first >= limit, first + 1 >= limit]
    return seen[0].where(even, least).interleave(seen[1].where(odd, least))


def _below(x: Value, limit: Value, imm: int) -> Value:
    return _seen(x, limit, imm, below=True)


def _from(x: Value, limit: Value, imm: int) -> Value:
    return _seen(x, limit, imm, below=False)


row(
    "selp.f32.columns",
    "f32 <- f32",
    _columns,
    "Columns below a number in each row of eight, minus infinity in the others: a comparison of a thread's column.",
    "[1, 2, 3, 4, 5, 6, 7, 8], imm=2",
    "[1.0, 2.0, -inf, -inf, -inf, -inf, -inf, -inf]",
    chooses=True,
)
row(
    "selp.f32.below",
    "f32 <- f32, s32*0.5",
    _below,
    "Columns imm + c, of c from 0 to 7, below each thread's number; minus infinity in the others.",
    "[1, 2, 3, 4, 5, 6, 7, 8], [18, 18, 18, 18], imm=16",
    "[1.0, 2.0, -inf, -inf, -inf, -inf, -inf, -inf]",
    chooses=True,
    immediate_bits=32,
)
row(
    "selp.f32.from",
    "f32 <- f32, s32*0.5",
    _from,
    "Columns imm + c, of c from 0 to 7, from each thread's number on; minus infinity in the others.",
    "[1, 2, 3, 4, 5, 6, 7, 8], [18, 18, 18, 18], imm=16",
    "[-inf, -inf, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]",
    chooses=True,
    immediate_bits=32,
)
