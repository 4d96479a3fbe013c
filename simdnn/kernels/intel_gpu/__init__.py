"""Kernels of Intel GPUs: products on DPAS, DP4A and the vector pipe."""
