"""Modules and files that most lessons read first: tests/lessons.py has them ready in the process that it forks."""

import os

os.environ["MPLBACKEND"] = "module://matplotlib_inline.backend_inline"  # as a Jupyter kernel has it
os.environ["PYDEVD_DISABLE_FILE_VALIDATION"] = "1"  # no warning of a debugger that nobody starts

import ipykernel.inprocess.blocking  # noqa: E402, F401
import ipykernel.inprocess.ipkernel  # noqa: E402, F401
import ipykernel.inprocess.manager  # noqa: E402, F401
import matplotlib.pyplot  # noqa: E402, F401
import nbformat  # noqa: E402, F401
import numpy as np  # noqa: E402
import onnx  # noqa: E402, F401

import simdnn.plot  # noqa: E402, F401
import workloads  # noqa: E402, F401

for machine in ("zen4", "b580"):
    simdnn.matmul(np.ones((1, 1), np.int8), np.ones((1, 1), np.int8), machine=machine, engine="reference")
