"""Kernels of x86 CPUs: products on vector units and tiles, and everything around them."""
