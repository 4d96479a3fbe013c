"""Parts that GPUs of all vendors share: blocks of lanes, and platforms."""
