"""Readings of an instruction: NumPy arrays, LLVM code, traced values, intervals; each implements the value algebra."""
