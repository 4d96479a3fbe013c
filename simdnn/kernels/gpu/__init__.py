"""Kernels that GPUs of all vendors share: vector pipes, grids, convolutions as products."""
