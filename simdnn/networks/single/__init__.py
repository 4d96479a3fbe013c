"""Networks of one operator: primitives beside products, each with values and cost."""
