"""Passes over a graph before it runs: what runtimes make of a model as they load it, each a function of graphs."""
