"""The page of `simdnn teach`: instructions, kernels and machines to play with, on loopback or as files.

A view is a module with `FIELDS` of a form and a function `answer` from what was written in them to data; the data are
the package's own readings, and templates show them. `server` is the one module that knows of the web.
"""
