"""Loops in assembly or machine code: assembled, decoded, and read by the clock (`simdnn.analyze`)."""

#: tools that a machine's table can be asked for (`export`)
TOOLS = ("osaca", "llvm-mca")
