"""The project's addresses in a built package: hatchling asks this hook for `urls` and `readme`.

A package index shows README.md far from the files beside it, so its links and pictures must be absolute there, and
relative in the sources, where they work on any forge. The address is that of the checkout's git remote, at the commit
that is built; a wheel built from an sdist takes what the sdist's metadata says. Without either nothing is claimed: no
addresses, and links as they stand.
"""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

_REMOTE = re.compile(r"(?:https://|ssh://)?(?:[^@/]+@)?([\w.-]+\.[a-z]+)(?::\d+)?[:/]([\w./~-]+?)(?:\.git)?/?")
_SOURCE = re.compile(r"(?m)^Project-URL: Source, (\S+)/tree/(\w+)\s*$")
_LINK = re.compile(r"(!?)\[([^\]]*)\]\((?!https?://|#)([^)\s]+)\)")


class AddressHook(MetadataHookInterface):
    """The hook that `[tool.hatch.metadata.hooks.custom]` names."""

    def update(self, metadata: dict[str, Any]) -> None:
        """Fill in the fields that pyproject.toml calls dynamic."""
        root = Path(self.root)
        text = (root / "README.md").read_text(encoding="utf-8")
        found = source(root)
        if found:
            repository, commit = found
            text = absolute(text, repository, commit)
            metadata["urls"] = {
                "Source": f"{repository}/tree/{commit}",
                "Documentation": f"{repository}/blob/{commit}/docs/index.md",
                "Changelog": f"{repository}/blob/{commit}/CHANGELOG.md",
                "Issues": f"{repository}/issues",
            }
        metadata["readme"] = {"content-type": "text/markdown", "text": text}


def source(root: Path) -> tuple[str, str] | None:
    """The repository's address and the commit, from git or, in an unpacked sdist, from its PKG-INFO; else None."""
    try:
        described = (root / "PKG-INFO").read_text(encoding="utf-8")
    except OSError:
        described = ""
    if found := _SOURCE.search(described):
        return found[1], found[2]
    repository = address(_git(root, "remote", "get-url", "origin")) if (root / ".git").exists() else ""
    return (repository, _git(root, "rev-parse", "HEAD")) if repository else None


def address(remote: str) -> str:
    """The page of a repository that git knows as a remote; empty for one on this machine.

    >>> address("git@example.org:group/simdnn.git"), address("https://user:word@example.org/group/simdnn")
    ('https://example.org/group/simdnn', 'https://example.org/group/simdnn')
    >>> address("/srv/simdnn.git"), address("")
    ('', '')
    """
    found = _REMOTE.fullmatch(remote)
    return f"https://{found[1]}/{found[2]}" if found else ""


def absolute(text: str, repository: str, commit: str) -> str:
    """Markdown with its relative links made absolute; pictures as files, all else as pages.

    >>> absolute("![a](docs/a.png) [b](b.md#c) [d](https://e.f)", "https://example.org/x", "1234")
    '![a](https://example.org/x/raw/1234/docs/a.png) [b](https://example.org/x/blob/1234/b.md#c) [d](https://e.f)'
    """
    return _LINK.sub(
        lambda m: f"{m[1]}[{m[2]}]({repository}/{'raw' if m[1] else 'blob'}/{commit}/{m[3].removeprefix('./')})", text
    )


def _git(root: Path, *words: str) -> str:
    try:
        done = subprocess.run(["git", "-C", str(root), *words], capture_output=True, text=True, check=False)
    except OSError:  # no git
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
