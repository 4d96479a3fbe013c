"""A GPU's clock: engines that switch between threads, with caches and memory."""
