"""NVIDIA GPU instructions by PTX's names; importing this package registers them."""

from isa_models.nvidia import dots, fragments, mma, steps, vector

__all__ = ["dots", "fragments", "mma", "steps", "vector"]
