"""`simdnn completion SHELL`: the script that completes commands, options and names in a shell.

The script is whole in itself: names are those known when it is written, machines of other packages and `host` among
them, so that no key waits for Python.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from isa_models.errors import SimdnnError, how_to_install

SHELLS = ("bash", "zsh", "fish")
EPILOG = """\
now, and in every shell to come:
  bash  source <(simdnn completion bash)
        simdnn completion bash > ~/.local/share/bash-completion/completions/simdnn
  zsh   source <(simdnn completion zsh)
        simdnn completion zsh > DIR/_simdnn, DIR a folder of $fpath
  fish  simdnn completion fish | source
        simdnn completion fish > ~/.config/fish/completions/simdnn.fish"""


@dataclass(frozen=True)
class Names:
    """The values that an argument may have: some of the names, files beside them, or a comma list of them."""

    kind: str
    names: Callable[[], list[str]]
    files: bool = False
    comma: bool = False

    def function(self) -> str:
        """The name of the shells' function that offers them."""
        return f"_simdnn_{self.kind}"

    def bash(self) -> str:
        """The function in bash; it is given the word so far."""
        head = 'local head="${1%"${1##*,}"}"; ' if self.comma else ""
        word, prefix = ('"${1##*,}"', ' -P "$head"') if self.comma else ('"$1"', "")
        files = '; compgen -f -- "$1"' if self.files else ""
        return f'{self.function()}() {{ {head}compgen{prefix} -W "{" ".join(self.names())}" -- {word}{files}; }}'

    def zsh(self) -> str:
        """The function in zsh."""
        names = " ".join(self.names())
        if self.comma:
            return f"{self.function()}() {{ _values -s , {self.kind} {names} }}"
        files = " 'files:file:_files'" if self.files else ""
        return f"{self.function()}() {{ _alternative '{self.kind}:{self.kind}:({names})'{files} }}"

    def fish(self) -> str:
        """The words in fish, as its `complete --arguments` takes them."""
        return " ".join(self.names()) + (" (__fish_complete_path (commandline -ct))" if self.files else "")


def _machines() -> list[str]:
    import isa_models

    return [*isa_models.machine_names(), *isa_models.gpu_machine_names()]


def _workloads() -> list[str]:
    import workloads

    return list(dict.fromkeys([*workloads.names(), *workloads.REAL_NETWORKS]))


def _modes() -> list[str]:
    from simdnn.networks.precision import MODES

    return list(MODES)


def _caps() -> list[str]:
    from isa_models.isa import caps

    return list(caps())


def _subjects() -> list[str]:
    from isa_models import GPU_REGISTRY, REGISTRY

    return ["matmul", "conv", *REGISTRY, *GPU_REGISTRY]


def _models() -> list[str]:
    from workloads.packages import MODELS

    return [*MODELS, "all"]


_MACHINES = Names("machine", _machines, files=True)
_CAPS = Names("cap", _caps)
_MODES = Names("mode", _modes, comma=True)
#: what is known of an argument, by argparse's name of it; a path is a file
OFFERS: Mapping[str, Names] = {
    "machine": _MACHINES,
    "compare_with": _MACHINES,
    "names": _MACHINES,
    "workload": Names("workload", _workloads, files=True),
    "modes": _MODES,
    "isa": _CAPS,
    "subject": Names("subject", _subjects),
    "name": Names("model", _models),
}
_FILES = frozenset(
    {"file", "model", "output", "plot", "pictures", "feeds", "results", "from_verbose", "trace", "result"}
)
#: options of the commands that read their words themselves
WORDS: Mapping[str, tuple[str, ...]] = {
    "bench": ("matmul", "conv", "ip", "machine", "isa", "from-verbose", "trace", "output", "json", "force"),
    "explain": ("at", "dt", "machine", "isa", "exact", "json", "output", "force"),
}
_FLAGS = frozenset({"matmul", "conv", "ip", "exact", "json", "force"})


def add(subparsers: Any) -> None:
    """Describe the command to argparse."""
    parser = subparsers.add_parser(
        "completion",
        description="Prints the script that completes simdnn's commands, options and names in a shell.",
        epilog=EPILOG,
    )
    parser.add_argument("shell", choices=SHELLS)
    parser.set_defaults(function=main)


def main(args: argparse.Namespace) -> int:
    """The command."""
    print(script(args.shell))
    return 0


def script(shell: str) -> str:
    """The completion script for one of `SHELLS`. Raises `SimdnnError` where shtab, which writes it, is missing."""
    try:
        shtab: Any = import_module("shtab")
    except ImportError:
        raise SimdnnError(f"completion needs shtab: {how_to_install('completion')}") from None
    parser = _described()
    for subparser in _commands(parser).values():
        for action in subparser._actions:
            if action.choices is not None or action.nargs == 0:
                continue
            if action.dest in OFFERS:
                known = OFFERS[action.dest]
                action.complete = {"bash": known.function(), "zsh": known.function(), "fish": known.fish()}  # type: ignore[attr-defined]
            elif action.dest in _FILES:
                action.complete = shtab.FILE  # type: ignore[attr-defined]
    own = {names.kind: names for names in OFFERS.values()}.values()
    preamble = {
        "bash": "\n".join(names.bash() for names in own),
        "zsh": "\n".join(names.zsh() for names in own),
    }
    return str(shtab.complete(parser, shell, preamble=preamble))


def _described() -> argparse.ArgumentParser:
    """A parser with the options of every command."""
    from simdnn.cli import COMMANDS

    parser = argparse.ArgumentParser(prog="simdnn")
    subparsers = parser.add_subparsers()
    for name, module, title in COMMANDS:
        if name not in WORDS:
            import_module(f"simdnn.cli.{module}").add(_Titled(subparsers, title))
            continue
        words = subparsers.add_parser(name, help=title)
        words.add_argument("subject" if name == "explain" else "problem", nargs="*")
        for option in WORDS[name]:
            words.add_argument(f"--{option}", action="store_true" if option in _FLAGS else "store")
    return parser


@dataclass(frozen=True)
class _Titled:
    """Subparsers that give a command its title as help; commands without are left out of scripts."""

    subparsers: Any
    title: str

    def add_parser(self, name: str, **texts: Any) -> Any:
        return self.subparsers.add_parser(name, help=self.title, **texts)


def _commands(parser: argparse.ArgumentParser) -> Mapping[str, argparse.ArgumentParser]:
    (found,) = (action.choices for action in parser._actions if isinstance(action, argparse._SubParsersAction))
    return found
