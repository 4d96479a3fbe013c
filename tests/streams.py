"""The text that a command wrote to its streams."""

from __future__ import annotations

import pytest


def error_line(capsys: pytest.CaptureFixture[str]) -> str:
    """The one line on standard error; nothing on standard output."""
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("simdnn: error: ") and captured.err.count("\n") == 1
    return captured.err
