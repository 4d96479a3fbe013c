"""How much oneDNN 3.13 takes of a kind, which primitives and benchdnn's syntax go by."""

MOST_DIMS = 12  # dimensions of a tensor
MOST_POST_OPS = 32
