"""Speed of the engines on this host: `python -m benchmarks`."""
