"""Kernels of NVIDIA GPUs: products on CUDA cores and tensor cores."""
