"""A CPU core's clock: streams of instructions, ports, chains, phases of a program."""
