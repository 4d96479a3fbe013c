"""Loops in assembly or machine code: assembled, decoded, and read by the clock (`simdnn.analyze`)."""
