"""The pages that need no server: every example of every view, and every instruction, as files that link each other."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from hashlib import sha256
from pathlib import Path

from isa_models import InvalidArgument
from simdnn.files import MARK, check, write_text
from simdnn.teach import instruction
from simdnn.teach.server import VIEWS, create_app, render

_ABOUT = "simdnn-teach.json"  # says who wrote the folder


def export(folder: Path) -> int:
    """Write the pages into a folder that is empty or was written so before; how many there are.

    Raises `InvalidArgument` for a folder that holds anything else, as `simdnn.files.check` does.
    """
    app = create_app()
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir()) and not (folder / _ABOUT).is_file()):
        raise InvalidArgument(f"{folder} holds something else already; a new folder, or an empty one, is needed")
    folder.mkdir(parents=True, exist_ok=True)
    check(folder / _ABOUT)
    files = _Files()
    with app.test_request_context("/"):
        for (view, texts), name in files.all():
            write_page(folder / name, render(view, dict(texts), files.link, live=False))
    assert app.static_folder is not None
    shutil.copytree(app.static_folder, folder / "static", dirs_exist_ok=True)
    write_text(folder / _ABOUT, json.dumps(MARK | {"pages": len(files.names)}))
    return len(files.names)


def write_page(path: Path, text: str) -> None:
    """A page of a folder that is this package's own."""
    path.write_text(text, encoding="utf-8")


class _Files:
    """The pages that there are, and their files' names."""

    def __init__(self) -> None:
        self.names: dict[tuple[str, tuple[tuple[str, str], ...]], str] = {("", ()): "index.html"}
        for view, module in VIEWS.items():
            self._add(view, {})
            for _, texts in module.EXAMPLES:
                self._add(view, texts)
        for name in instruction.names():
            self._add("instruction", {"name": name})

    def all(self) -> list[tuple[tuple[str, tuple[tuple[str, str], ...]], str]]:
        return list(self.names.items())

    def link(self, view: str, texts: Mapping[str, str]) -> str:
        """The file of a page, relative to the others; "" where there is none of it."""
        if view.startswith("static/"):
            return view
        return self.names.get((view, tuple(sorted(texts.items()))), "")

    def _add(self, view: str, texts: Mapping[str, str]) -> None:
        key = view, tuple(sorted(texts.items()))
        words = re.sub(r"[^a-z0-9.]+", "-", "-".join(value for _, value in key[1]).lower())[:60].strip("-.")
        digest = sha256(repr(key).encode()).hexdigest()[:6] if len(key[1]) > 1 else ""
        self.names[key] = "-".join(filter(None, (view, words, digest))) + ".html"
