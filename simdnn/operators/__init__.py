"""Operators as primitives beside products, each a network of a few nodes: values and cost."""
