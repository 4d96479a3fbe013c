"""This host's own cycles: a timer without performance counters, and a machine file made with it."""
