"""The site that `make docs` builds: the repository's Markdown as it stands, the notebooks as stored, the docstrings.

The source folder is the repository's root, so that a link means the same here and on a forge.
"""

from __future__ import annotations

import re
from importlib import metadata
from typing import Any

project = "simdnn"
author = project_copyright = "The simdnn developers"
version = release = metadata.version("simdnn")

extensions = ["myst_nb", "sphinx.ext.autodoc"]
include_patterns = ["docs/*.md", "docs/**/*.md", "notebooks/*.ipynb", "README.md", "CHANGELOG.md", "CONTRIBUTING.md"]
exclude_patterns = [
    ".*",
    "build",
    "dist",
    "results",
    "tests",
    "simdnn",
    "isa_models",
    "workloads",
    "tools",
    "benchmarks",
]
root_doc = "docs/index"

nb_execution_mode = "off"  # the tests execute notebooks; pages show what is stored
nb_render_markdown_format = "gfm"  # the answers of lessons have tables, which CommonMark has not
myst_heading_anchors = 4  # as forges name headings
myst_enable_extensions = ["colon_fence"]

smartquotes = False  # code stands in docstrings, and "" is an empty text
default_role = "literal"  # docstrings have code between single backquotes
maximum_signature_line_length = 88
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages, and those that have no page
nitpicky = True
suppress_warnings = ["myst-nb.lexer"]  # notebooks that do not say their language hold Python

html_theme = "furo"
html_title = f"simdnn {release}"
html_copy_source = False
html_extra_path = ["site"]  # index.html, which leads to docs/index.html


def plain(_app: Any, _what: str, _name: str, _object: Any, _options: Any, lines: list[str]) -> None:
    """Docstrings are plain text: a star is a star, and a list may follow a line at once."""
    found: list[str] = []
    for line in lines:
        if line.lstrip().startswith("- ") and found and found[-1].strip() and not found[-1].lstrip().startswith("- "):
            found.append("")
        code = line.lstrip().startswith((">>>", "..."))
        parts = re.split(r"(`[^`]*`)", line)
        found.append(
            line if code else "".join(p if p.startswith("`") else re.sub(r"([*|]|_\b)", r"\\\1", p) for p in parts)
        )
    lines[:] = found


def of_others(app: Any, _what: str, _name: str, member: Any, skip: bool, _options: Any) -> bool:
    """Whether a member is left out: what a module imports for itself is not its to describe."""
    owners = ("simdnn.plot",) if app.env.docname == "docs/api/plot" else ("simdnn", "isa_models")
    return skip or not str(getattr(member, "__module__", None) or owners[0]).startswith(owners)


def without_arguments(_app: Any, what: str, *_: Any) -> tuple[str, None] | None:
    """Nobody calls an exception: it has no signature."""
    return ("", None) if what == "exception" else None


def setup(app: Any) -> None:
    """Sphinx calls it."""
    app.connect("autodoc-process-docstring", plain)
    app.connect("autodoc-skip-member", of_others)
    app.connect("autodoc-process-signature", without_arguments)
