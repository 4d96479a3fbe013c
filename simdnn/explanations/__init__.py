"""Explanations: how a lane of an instruction, or an element of an output, came about."""
