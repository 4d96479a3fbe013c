"""Machines as data: a TOML file each, the records that they become, their schema and their loader."""
