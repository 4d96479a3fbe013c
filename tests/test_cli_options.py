"""No option is ignored: what a command does not take with a kind of argument is wrong usage, told in one line."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from simdnn import cli
from simdnn.cli import machines, run, verify
from tests.effort import one_in

#: words that are each kind of argument; none of them is run here, as the option beside them is refused first
EXAMPLES = {
    run: {
        "layer tables": ["resnet50"],
        "layer tables with --no-values": ["resnet50", "--no-values"],
        "networks that classify labelled data": ["digits"],
        "MODEL.onnx": ["none.onnx"],
        "MODEL.onnx with --feeds": ["none.onnx", "--feeds", "none.npz"],
        "MODEL.onnx with --blame": ["none.onnx", "--blame", "bf16"],
        "MODEL.onnx with --blame and --feeds": ["none.onnx", "--blame", "bf16", "--feeds", "none.npz"],
        "MODEL.onnx with --no-values": ["none.onnx", "--no-values", "--modes", "f32"],
        "fetched networks": ["ocr"],
        "fetched networks that make pictures": ["sr"],
        "fetched language models": ["llm"],
        "fetched language models with --prompt": ["llm", "--prompt", "One"],
    },
    machines: {
        "list": ["list"],
        "show": ["show", "zen4"],
        "check": ["check"],
        "save": ["save", "zen4"],
        "export": ["export", "zen4"],
    },
    verify: {"instructions": [], "--timing": ["--timing"]},
}
#: with these the options make another kind of argument
TURNS = {"no_values", "feeds", "prompt", "timing", "blame"}
#: commands all of whose options mean something with all that they take; each one's cross-checks have tests of their own
WHOLE = {
    "study",
    "analyze",
    "inspect",
    "invariance",
    "lint",
    "list",
    "calibrate",
    "fetch-models",
    "completion",
    "report",
    "teach",
    "tune",
}
#: commands with a syntax of their own: an option is an operand's name or benchdnn's
OWN = {"bench", "explain"}


def actions(command: str) -> list[argparse.Action]:
    (subparsers,) = (a for a in cli._parser(command)._actions if isinstance(a, argparse._SubParsersAction))
    return [a for a in subparsers.choices[command]._actions if a.option_strings and a.dest != "help"]


def value_of(action: argparse.Action) -> list[str]:
    if action.nargs == 0:
        return []
    known = {"machine": "skx", "modes": "f32", "isa": "avx2", "layers": "a*", "shape": "x=1", "feeds": "x.npz"}
    if action.choices:
        return [str(next(iter(action.choices)))]
    return [known.get(action.dest, "2" if action.dest in ("threads", "seed", "samples") else "x.png")]


def cases() -> Iterator[tuple[str, str, str, str]]:
    for module, kinds in EXAMPLES.items():
        command = module.__name__.rpartition(".")[2]
        for kind in kinds:
            for action in actions(command):
                if action.dest not in module.TAKES[kind] | TURNS:
                    yield command, kind, action.dest, action.option_strings[0]


def test_every_command_and_option_is_in_a_table() -> None:
    """A new option of a command must say with which kinds of argument it means something."""
    listed = {module.__name__.rpartition(".")[2] for module in EXAMPLES}
    assert {name for name, *_ in cli.COMMANDS} == listed | WHOLE | OWN
    for module, kinds in EXAMPLES.items():
        command = module.__name__.rpartition(".")[2]
        assert set(kinds) == set(module.TAKES)
        dests = {a.dest for a in actions(command)} - {"force"}  # which goes with any file that is written
        assert dests == frozenset().union(*module.TAKES.values()), command


@one_in(3)
@pytest.mark.parametrize(("command", "kind", "dest", "option"), list(cases()))
def test_an_option_that_says_nothing_is_refused(
    command: str, kind: str, dest: str, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (action,) = (a for a in actions(command) if a.dest == dest)
    module = import_module(f"simdnn.cli.{command}")
    assert cli.main([command, *EXAMPLES[module][kind], option, *value_of(action)]) == 2
    captured = capsys.readouterr()
    assert captured.err.startswith(f"simdnn: error: {option} is for ") and captured.err.count("\n") == 1
    assert not captured.out


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["run", "digits", "--fpmath-layers", "conv*", "--modes", "f32"], "--fpmath-layers without a math mode"),
        (["run", "digits", "--seed", "0"], "--seed is for"),
        (["run", "digits", "--modes", "f32,mine.json"], "a recipe's file is for --recipe"),
        (["run", "ocr", "--prompt=x"], "--prompt is for fetched language models; it"),
        (["verify", "--machine", "zen4"], "--machine is for --timing"),
        (["bench", "--from-verbose", "none.log", "--trace", "x.json"], "--trace is for problems"),
        (["explain", "vpdpbusd", "--json"], "-o and --json are for steps"),
        (["explain", "matmul", "4x4:4x4", "--at", "0,0", "--strides", "2"], "a matmul has none"),
        (["explain", "conv", "ic4ih4oc4kh3", "--at", "0,0,0,0", "--padding", "1"], "the problem says it"),
        (["explain", "matmul", "--src", "a.npy", "--weights", "b.npy", "--at", "0,0", "--seed", "1"], "--seed is for"),
        (["analyze", "-", "--seed", "1"], "belong to --values"),
        (["study", "none.toml", "--jobs", "2", "--dask", "tcp://host:1"], "--jobs is for workers on this host"),
        (["lint", "digits", "--seed", "1"], "nothing is drawn for a layer table"),
        (["tune", "cancer", "--jobs", "2", "--dask", "tcp://host:1"], "--jobs is for workers on this host"),
    ],
)
def test_combinations(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    assert message in capsys.readouterr().err


SET = ["--set", "core.dispatch_slots=2"]


@one_in(3)
@pytest.mark.parametrize(
    "words",
    [
        ["run", "digits", "--modes", "f32"],
        ["bench", "--mode=P", "--matmul", "4x32:32x8"],
        ["explain", "matmul", "2x8:8x2", "--at", "0,0"],
        ["analyze", "LOOP"],
        ["study", "STUDY", "--jobs", "1"],
        ["machines", "show", "zen4"],
        ["lint", "digits", "--modes", "f32"],
    ],
    ids=lambda words: words[0],
)
def test_a_figure_is_set_wherever_a_machine_stands(
    words: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    loop, study = tmp_path / "loop.s", tmp_path / "study.toml"
    loop.write_text("nop\nnop\nnop\nnop\n", encoding="utf-8")
    fixed = 'machine = "zen4"\nmode = "f32"\nm = 4\nn = 8\nk = 8\n'
    study.write_text(f'[study]\nkind = "matmul"\n[fixed]\n{fixed}', encoding="utf-8")
    words = [{"LOOP": str(loop), "STUDY": str(study)}.get(word, word) for word in words]
    assert cli.main([*words, "--json"]) == 0
    before = capsys.readouterr().out
    assert cli.main([*words, *SET, "--json"]) == 0
    after = capsys.readouterr().out
    assert words[0] == "explain" or before != after  # an element's value is the same on any machine
    assert cli.main([*words, "--set", "core.nothing=2"]) == 2
    assert "'core.nothing'" in capsys.readouterr().err
    assert cli.main([*words, "--set", "core.dispatch_slots=["]) == 2
    assert "a value as TOML has it" in capsys.readouterr().err


def test_a_machine_is_saved_as_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.toml"
    assert cli.main(["machines", "save", "zen4", *SET, "--set", "instructions.vpdp*.latency=3", "-o", str(path)]) == 0
    assert len(path.read_text(encoding="utf-8").splitlines()) == 4
    capsys.readouterr()
    loop = tmp_path / "loop.s"
    loop.write_text("vpdpbusd zmm0, zmm1, zmm2\nnop\nnop\nnop\n", encoding="utf-8")
    assert cli.main(["analyze", str(loop), "--machine", str(path), "--json"]) == 0
    saved = capsys.readouterr().out
    assert cli.main(["analyze", str(loop), *SET, "--set", "instructions.vpdp*.latency=3", "--json"]) == 0
    assert capsys.readouterr().out == saved
    assert cli.main(["machines", "save", "-o", str(path)]) == 2
    assert cli.main(["machines", "save", "zen4", "--set", "nonsense=1"]) == 2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--matmul", "2x3:3x4", "--dt=bf16"], "--dt=bf16 behind the last problem"),
        (["--matmul", "2x3:3x4", "--mode=P"], "--mode=P behind the last problem"),
        (["--matmul", "2x3:3x4", "--match=x"], "--match=x behind the last problem"),
        (["--from-verbose", "log.txt", "--mode=P"], "--mode=P is for problems"),
    ],
)
def test_bench_ignores_no_option(words: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Options hold for the problems behind them, as in benchdnn, which says nothing of one without any."""
    assert cli.main(["bench", *words]) == 2
    assert message in capsys.readouterr().err
