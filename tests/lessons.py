"""A notebook executed by itself, in a process where what lessons import is there already.

Each runs in a fork of one server, which has imported packages and read machines once: half the time of a short lesson.
Where processes can't fork, it starts from nothing.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
import numpy as np
from matplotlib.axes import Axes

LIMIT = 600  # seconds that a notebook may take


def executed(notebook: Any, folder: Path) -> Any:
    """The notebook with the outputs of a run in a process of its own, whose working directory is `folder`.

    Cells run in a Jupyter kernel, as a user's do. Models that may have been fetched are not found: their networks take
    a minute, and tests/networks/test_real.py runs them. Progress is off: lines of it are no outputs to keep.
    """
    start = "forkserver" if "forkserver" in multiprocessing.get_all_start_methods() else "spawn"
    context: Any = multiprocessing.get_context(start)
    context.set_forkserver_preload(["tests.lessons_warm"])
    path = folder / "notebook.ipynb"
    nbformat.write(notebook, path)
    process = context.Process(target=_execute, args=(path,))
    process.start()
    process.join(LIMIT)
    if process.exitcode is None:
        process.kill()
    assert process.exitcode == 0, f"the process ended with {process.exitcode} (None: not within {LIMIT} seconds)"
    found = nbformat.read(path, 4)
    for output in (output for cell in found.cells for output in cell.get("outputs", [])):
        assert output.output_type != "error", "\n".join(output.traceback)
    return found


def hidden_marks(ax: Axes) -> Iterator[tuple[float, float]]:
    """The points, drawn as marks, that lie beyond the limits of their axes, where nobody sees them."""
    marked = [np.asarray(line.get_xydata()) for line in ax.lines if line.get_marker() not in (None, "", " ", "None")]
    scattered = [
        np.asarray(drawn.get_offsets()) for drawn in ax.collections if drawn.get_offset_transform() is ax.transData
    ]
    low, high = np.sort([ax.get_xlim(), ax.get_ylim()]).T
    for points in (*marked, *scattered):
        shown = np.isfinite(points).all(axis=-1)
        out = ((points < low) | (points > high)).any(axis=-1)
        yield from (tuple(point) for point in points[shown & out])


def _draw(ax: Axes, *args: Any, _drawn: Any = Axes.draw, **kwargs: Any) -> None:
    """Draw axes as ever; an error where a point is not to be seen."""
    assert not (hidden := list(hidden_marks(ax))), f"points beyond the axes {ax.get_title()!r}: {hidden}"
    _drawn(ax, *args, **kwargs)


def _execute(path: Path) -> None:
    """Run all cells of a file in its folder, and write their outputs into it."""
    from ipykernel.inprocess.blocking import BlockingInProcessKernelClient
    from ipykernel.inprocess.manager import InProcessKernelManager

    Axes.draw = _draw  # type: ignore[method-assign]
    os.chdir(path.parent)
    os.environ.update(SIMDNN_PROGRESS="0", SIMDNN_MODELS=str(path.parent / "models"))
    book = nbformat.read(path, 4)
    manager = InProcessKernelManager(client_factory=BlockingInProcessKernelClient)
    manager.start_kernel()
    manager.kernel.shell.run_line_magic("matplotlib", "inline")
    client = manager.client()
    client.start_channels()
    for cell in book.cells:
        if cell.cell_type == "code":
            cell.outputs = []
            client.execute(cell.source)
            while (said := client.get_iopub_msg(timeout=LIMIT))["content"].get("execution_state") != "idle":
                _add(cell, said)
    nbformat.write(book, path)
    os._exit(0)  # the kernel's threads would never end


def _add(cell: Any, said: dict[str, Any]) -> None:
    """Put a message of the kernel into its cell."""
    kind, content = said["msg_type"], said["content"]
    if kind == "execute_input":
        cell.execution_count = content["execution_count"]
    elif kind == "stream" and cell.outputs and cell.outputs[-1].get("name") == content["name"]:
        cell.outputs[-1].text += content["text"]
    elif kind in ("stream", "display_data", "execute_result", "error"):
        cell.outputs.append(nbformat.v4.output_from_msg(said))
