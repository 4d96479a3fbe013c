"""The clock: cycles and bytes of Programs on a machine's core, caches, memory and channels."""
