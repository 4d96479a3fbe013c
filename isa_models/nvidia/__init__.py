"""NVIDIA GPU instructions by PTX's names; importing this package registers them."""

from isa_models.nvidia import dots, mma, vector

__all__ = ["dots", "mma", "vector"]
