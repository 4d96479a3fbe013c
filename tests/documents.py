"""Code of the documents, run as it stands. `python -m tests.documents FILE.md …` writes shown outputs anew.

A document is a session: its fenced blocks run in their order, in one empty folder, with the names of the blocks before.

    python     statements, or a doctest where it begins with >>>
    console    lines `$ simdnn …`, run in this process; what stands below a command is its output, `…` for what is cut
    python     with `needs=PACKAGE` behind it: of a package that is no dependency; compiled, and not run
    any other  `file=NAME` behind the language writes the block into the folder; else it is there to be read
"""

from __future__ import annotations

import contextlib
import doctest
import importlib.util
import io
import re
import shlex
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from isa_models.formats import FORMATS

ROOT = Path(__file__).parents[1]
DOCUMENTS = tuple(
    sorted(path.relative_to(ROOT).as_posix() for path in (*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")))
)
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
_FENCE = re.compile(r"(?ms)^(?P<indent> *)```(?P<info>[^\n`]*)\n(?P<text>.*?)^(?P=indent)```$")
_PLAIN = ("", "text", "csv", "toml", "json", "{toctree}", "{eval-rst}")  # languages of which nothing runs


@dataclass(frozen=True)
class Block:
    """A fenced block: where its text begins, its language, what stands behind that, and the text."""

    document: str
    start: int
    language: str
    file: str
    text: str
    needs: str = ""

    @property
    def place(self) -> str:
        """The document and the line, for messages."""
        return f"{self.document}:{(ROOT / self.document).read_text(encoding='utf-8')[: self.start].count(chr(10)) + 1}"


@dataclass(frozen=True)
class Command:
    """A command of a console block, and what is shown of its output (None: nothing)."""

    words: list[str]
    shown: str | None
    start: int  # of what is shown, within the document
    end: int


def blocks(document: str) -> list[Block]:
    """The fenced blocks of a document."""
    found = []
    for match in _FENCE.finditer((ROOT / document).read_text(encoding="utf-8")):
        language, *rest = match["info"].split() or [""]
        file = next((word.removeprefix("file=") for word in rest if word.startswith("file=")), "")
        needs = next((word.removeprefix("needs=") for word in rest if word.startswith("needs=")), "")
        found.append(Block(document, match.start("text"), language, file, match["text"], needs))
    return found


def commands(block: Block) -> Iterator[Command]:
    """The commands of a console block, each with its output. A backslash at a line's end joins the next one."""
    parts = list(re.finditer(r"(?m)^\$ ((?:.*\\\n)*.*)\n", block.text))
    for part, following in zip(parts, [*parts[1:], None], strict=True):
        end = following.start() if following else len(block.text)
        shown = block.text[part.end() : end]
        words = shlex.split(part[1].replace("\\\n", " "), comments=True)
        yield Command(words, shown or None, block.start + part.end(), block.start + end)


def _without_others(names: list[str]) -> None:
    """Forget the formats that a document registered."""
    for name in {*FORMATS} - {*names}:
        del FORMATS[name]


class Session:
    """A document's blocks, run one after another in a folder that is the working directory meanwhile."""

    def __init__(self, document: str, folder: Path) -> None:
        self.document, self.folder = document, folder
        self.names: dict[str, Any] = {"__name__": document, **prepare(folder)}

    def run(self, differ: Callable[[Command, str], None]) -> int:
        """Run all; `differ` hears of a command whose output is not what is shown. The count of what ran."""
        count = 0
        with contextlib.chdir(self.folder), contextlib.ExitStack() as stack:
            stack.callback(_without_others, [*FORMATS])
            for block in blocks(self.document):
                assert block.language in ("python", "console", *_PLAIN), f"{block.place}: {block.language!r}?"
                if block.file:
                    path = self.folder / block.file
                    path.parent.mkdir(parents=True, exist_ok=True)
                    path.write_text(block.text, encoding="utf-8")
                elif block.needs:
                    assert block.language == "python" and f"import {block.needs}" in block.text, block.place
                    compile(block.text, block.place, "exec")
                elif block.language == "python":
                    self._python(block)
                    count += 1
                elif block.language == "console":
                    for command in commands(block):
                        count += self._command(block, command, differ)
        return count

    def _python(self, block: Block) -> None:
        if not block.text.startswith(">>>"):
            exec(compile(block.text, block.place, "exec"), self.names)
            return
        test = doctest.DocTestParser().get_doctest(block.text, self.names, block.place, self.document, 0)
        said = io.StringIO()
        doctest.DocTestRunner(optionflags=FLAGS).run(test, out=said.write, clear_globs=False)
        self.names = test.globs
        assert not said.getvalue(), f"{block.place}\n{said.getvalue()}"

    def _command(self, block: Block, command: Command, differ: Callable[[Command, str], None]) -> bool:
        assert command.words[0] == "simdnn", f"{block.place}: {command.words}"
        if reason(command.words):
            assert command.shown is None, f"{block.place}: {command.words} shows an output that nothing checks"
            return False
        found, status = output(command.words[1:])
        assert status == 0 or "simdnn: error: " in (command.shown or ""), (
            f"{block.place}: {command.words} ended with {status}"
        )
        shown = command.shown
        if shown is not None and not doctest.OutputChecker().check_output(shown.replace("…", "..."), found, FLAGS):
            differ(command, found)
        return True


def output(words: list[str]) -> tuple[str, int]:
    """The text that a command prints (with standard error where it fails), and its exit status."""
    from simdnn.cli import main

    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            status = main(words)
        except SystemExit as end:
            status = int(end.code or 0)
    return out.getvalue() + (err.getvalue() if status else ""), status


#: commands that no test runs, by their first words, and why
ELSEWHERE = {
    "fetch-models": "downloads packages",
    "run ocr": "needs fetched models",
    "run llm": "needs fetched models",
    **{f"tune {network}": "needs fetched models, and searches for hours" for network in ("ocr", "sr", "minilm", "llm")},
    "calibrate": "measures this host for half a minute",
    "verify": "runs this host's own instructions for half a minute",
    "teach": "serves until it is ended; tests/teach/test_server.py runs it, and --export",
}


def reason(words: list[str]) -> str:
    """Why no test runs a command; empty where one does."""
    if words[0] != "simdnn":
        return "another program's"
    if "--dask" in words:
        return "needs a cluster"
    said = " ".join(words[1:])
    return next((why for start, why in ELSEWHERE.items() if f"{said} ".startswith(f"{start} ")), "")


#: other programs that documents name in indented lists, by how the line begins, and why no test runs them
OTHERS = {
    "make ": "takes as long as the tests, or installs; tests/test_documents.py looks its target up",
    "python3 -m venv ": "installs",
    "pip install ": "installs",
    ".venv/bin/pip install ": "installs",
    ".venv/bin/jupyter ": "serves until it is ended",
    "dask ": "needs a cluster",
    "source <(simdnn completion bash)": "is a shell's; tests/test_completion.py runs it",
}


@dataclass(frozen=True)
class Listed:
    """A command in an indented list; what stands two blanks behind it explains it."""

    document: str
    line: int
    words: list[str]


def listed(document: str) -> list[Listed]:
    """The commands of a document that are indented by four blanks, as lists of commands are."""
    text = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), (ROOT / document).read_text(encoding="utf-8"))
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if match := re.match(r" {4}(simdnn .*?)(?: {2,}.*)?$", line):
            found.append(Listed(document, number, shlex.split(match[1])))
    return found


def inline(document: str) -> list[Listed]:
    """The commands within sentences that are whole: a workload, and no place for one."""
    text = _FENCE.sub(lambda match: "\n" * match[0].count("\n"), (ROOT / document).read_text(encoding="utf-8"))
    found = []
    for match in re.finditer(r"`(simdnn [a-z]+ [a-z0-9][^`…]*)`", text):
        found.append(Listed(document, text[: match.start()].count("\n") + 1, shlex.split(" ".join(match[1].split()))))
    return found


def prepare(folder: Path) -> dict[str, Any]:
    """Put what documents speak of into a session's folder, and return the names that they speak of."""
    shutil.copytree(ROOT / "docs/studies", folder / "docs/studies", ignore=shutil.ignore_patterns("*.jsonl"))
    (folder / "loop.s").write_text("vpdpbusd zmm0, zmm1, zmm2\nvpdpbusd zmm3, zmm1, zmm2\n", encoding="utf-8")
    (folder / "FILE").write_text("--dt=u8:s8:s32 mb1ic16ih8oc16kh3ph1\n", encoding="utf-8")
    log = (
        "onednn_verbose,primitive,exec,cpu,matmul,brg:avx512_core,undef,src_f32::blocked:ab::f0 wei_f32::blocked:ab::f0"
    )
    (folder / "LOG").write_text(f"{log} dst_f32::blocked:ab::f0,,,64x512:512x64,0.1\n", encoding="utf-8")
    (folder / "result.json").write_text(
        '{"written_by": "simdnn", "answers": [{"machine": "zen4", "cycles": 1.0}]}', encoding="utf-8"
    )
    if importlib.util.find_spec("onnx"):
        import onnx

        from tests.networks.models import small_cnn

        onnx.save(small_cnn(), folder / "model.onnx")
    return {"image": np.random.default_rng(0).standard_normal((1, 3, 12, 12)).astype(np.float32)}


def rewrite(document: str) -> int:
    """Write the outputs that a document shows anew where they differ; how many did."""
    found: list[tuple[Command, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        Session(document, Path(folder)).run(lambda command, text: found.append((command, text)))
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    for command, new in reversed(found):
        lines = [line.rstrip() for line in new.rstrip().splitlines()]
        text = text[: command.start] + "\n".join(lines) + "\n" + text[command.end :]
    path.write_text(text, encoding="utf-8")
    return len(found)


if __name__ == "__main__":
    for name in sys.argv[1:]:
        where = Path(name).resolve().relative_to(ROOT).as_posix()
        print(f"{where}: {rewrite(where)} outputs written")
