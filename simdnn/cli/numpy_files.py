"""Arrays in files of NumPy's, as options name them: whatever else lies there is told in one line."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np

from isa_models import InvalidArgument
from isa_models.errors import some
from isa_models.host import pipes
from isa_models.readings.arrays import Array


def one(path: Path, what: str) -> Array:
    """The array in an .npy file, or in an .npz file of a single one."""
    found = _read(path, what, ".npy")
    if isinstance(found, dict) and len(found) != 1:
        raise InvalidArgument(f"{path} holds no {what} ({len(found)} arrays); an .npy, or one array, is needed")
    return next(iter(found.values())) if isinstance(found, dict) else found


def by_name(path: Path, what: str, names: Sequence[str]) -> dict[str, Array]:
    """The arrays in an .npz file; that in an .npy file where one of `names` alone can be its own."""
    found = _read(path, what, ".npz")
    if isinstance(found, dict):
        return found
    if len(names) != 1:
        raise InvalidArgument(
            f"{path} holds no {what} (one array without a name); an .npz with {some(names)} is needed"
        )
    return {names[0]: found}


def _read(path: Path, what: str, form: str) -> Array | dict[str, Array]:
    try:
        pipes.refuse(path)
        with path.open("rb") as stream:
            file = np.load(stream, allow_pickle=False)
            return file if isinstance(file, np.ndarray) else {name: file[name] for name in file.files}
    except Exception as error:  # whatever NumPy's readers of archives and headers meet
        said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        if "pickle" in said:  # what NumPy takes any other file for
            said = "it is no file of NumPy's, or has Python objects in it"
        reason = " ".join(said.split())[:80]
        raise InvalidArgument(f"{path} holds no {what} ({reason}); an {form} is needed") from None
