"""Products whose weights come in a plain layout, which the kernel then packs in every run."""

from __future__ import annotations

from dataclasses import dataclass, replace

from isa_models import SimdnnError
from isa_models.formats import fmt
from simdnn.kernels.common.problems import MatmulProblem
from simdnn.primitives import Attr
from simdnn.primitives.mathmode import EXACT_INT8
from simdnn.primitives.problems import CONV_WEI_TAGS, WEI_TAGS
from simdnn.primitives.result import Estimate
from simdnn.primitives.run import Target, chosen, priced


def layout_of(constant: bool, gpu: bool) -> str:
    """The `wei_tag` of a product in a network: nobody packs ahead of time what another node has made.

    Kernels of GPUs read it as it is made.
    """
    return "any" if constant or gpu else "ab"


@dataclass(frozen=True)
class _InForce:
    """Modes that a product was priced in."""

    fpmath: str
    exact_int8: bool | None
    acc_mode: str
    forced: bool = False


def plain_cycles(product: Estimate, target: Target, attr: Attr) -> tuple[str, float] | None:
    """The plain layout in which a product takes the fewest cycles, and those; None where no kernel takes one, or the
    library's choice for them is not known.
    """
    tags = WEI_TAGS if isinstance(product.problem, MatmulProblem) or target.gpu else CONV_WEI_TAGS
    exact = EXACT_INT8.asked_for(attr.exact_int8) if not fmt(product.problem.src).is_float else None
    modes = _InForce(product.fpmath, exact, attr.acc_mode or "")
    met = []
    for tag in tags[1:]:
        try:
            problem = replace(product.problem, wei_tag=tag)
            met.append((priced(chosen(problem, target, modes), target).cycles, tag))
        except (SimdnnError, TypeError):  # a problem without layouts has no such field
            continue
    return (min(met)[1], min(met)[0]) if met else None
