"""Machine files of a user: a good one is a machine like those shipped, a broken one is refused with its key."""

from __future__ import annotations

import itertools
import re
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest

from isa_models.errors import MachineFileError, UnknownName
from isa_models.machines.loader import cpu_machine as machine
from isa_models.machines.shipped import MACHINES_DIR
from tools import make_machine_rows
from tools.machine_row import read


@cache
def small_file() -> str:
    """The Zen 4 file with three instruction rows."""
    head, mark, rows = (MACHINES_DIR / "zen4.toml").read_text(encoding="utf-8").partition(make_machine_rows.MARK)
    wanted = {("vpdpbusd", "zmm,zmm,zmm"), ("vmulps", "zmm,zmm,zmm"), ("vmovups", "zmm,m512")}
    few = [row for row in read(tomllib.loads(rows)["instructions"]["rows"]) if (row.mnemonic, row.form) in wanted]
    return head + mark + str(make_machine_rows.instructions(few))


def sub(pattern: str, replacement: str) -> Callable[[str], str]:
    def change(text: str) -> str:
        changed, count = re.subn(pattern, replacement, text, count=1, flags=re.M)
        assert count == 1 and changed != text, f"the test's own pattern {pattern!r} changed nothing"
        return changed

    return change


MUTATIONS: list[tuple[Callable[[str], str], str]] = [
    (sub(r"^name = .*\n", ""), "'name'"),
    (sub(r'^name = "zen4"', "name = 4"), "'name'"),
    (sub(r'"avx512_core_vnni"', '"avx512_vnni"'), "'isa'"),
    (sub(r"^isa = \[.*\]", 'isa = "avx2"'), "'isa'"),
    (sub(r"^cores = \{value = 96", "cores = {value = 0"), "'cores.value'"),
    (sub(r"^cores = \{value = 96", 'cores = {value = "96"'), "'cores.value'"),
    (sub(r"^cores = .*", "cores = 96"), "'cores'"),
    (sub(r"^base_ghz = \{value = 3.69, ", "base_ghz = {"), "'frequency.base_ghz.value'"),
    (sub(r"^base_ghz", "bass_ghz"), "'frequency.base_ghz'"),
    (sub(r"^\[frequency\]", "[frequency]\nturbo_ghz = {value = 4.0}"), "'frequency.turbo_ghz'"),
    (sub(r"^\[core\]", "[kernel]"), "'core.ports'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = 6.5"), "'core.dispatch_slots.value'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = true"), "'core.dispatch_slots.value'"),
    (sub(r"(^dispatch_slots = .*)documented", r"\1guessed"), "'core.dispatch_slots.confidence'"),
    (sub(r'(^retire_slots = .*)source = "[^"]*"', r'\1source = ""'), "'core.retire_slots.source'"),
    (sub(r"^reorder_buffer = .*\n", ""), "'core.reorder_buffer'"),
    (sub(r"^load_queue = \{value = 88", "load_queue = {value = -1"), "'core.load_queue.value'"),
    (sub(r"^load_ports = \{value = \[\"LD0\"", 'load_ports = {value = ["LD7"'), "'core.load_ports.value'"),
    (sub(r'^load_ports = \{value = \["LD0", "LD1"\]', "load_ports = {value = []"), "'core.load_ports.value'"),
    (sub(r'"FP0", "FP1", "FP2"', '"FP0", "FP0", "FP2"'), "'core.ports.value'"),
    (sub(r"\[0\.5, 0\.932\]", "[0.5, 9.32]"), "'core.addend_chain_use.value'"),
    (sub(r"\[0\.5, 0\.932\]", "[0.0, 0.932]"), "'core.addend_chain_use.value'"),
    (sub(r'^ports = \["LD0", "LD1"\]', 'ports = ["LD0", "FP0"]'), "'core.scheduler[3].ports'"),
    (sub(r'^ports = \["LD0", "LD1"\]', 'ports = ["LD0"]'), "'core.scheduler'"),
    (sub(r"^size = 32", "size = 0"), "'core.scheduler[0].size'"),
    (sub(r'^banks = \[\["FP0"', 'banks = [["ALU0"'), "'core.scheduler[0].banks[0]'"),
    (sub(r"^pipes = 2", "pipes = 3"), "'core.load'"),
    (sub(r"^latency = 8\n", ""), "'core.load[3].latency'"),
    (sub(r"^commit_cycles = 2", "commit_cycles = 0"), "'core.store[2].commit_cycles'"),
    (sub(r"^size_bytes = \{value = 1048576", "size_bytes = {value = 1024"), "'caches.L2.size_bytes'"),
    (sub(r"^line_bytes = \{value = 64", 'line_bytes = {value = "64"'), "'caches.L1.line_bytes.value'"),
    (sub(r"^ways = \{value = 8", "ways = {value = 7"), "'caches.L1.ways.value'"),
    (sub(r"\[0\.5, 0\.5\]", "[0.5, 1.99]"), "'caches.L3.keeps.value'"),
    (sub(r"\[0\.5, 0\.5\]", "[inf, 0.5]"), "'caches.L3.keeps.value'"),
    (sub(r"^gb_s_core = .*\n", ""), "'dram.gb_s_core'"),
    (sub(r"^gb_s_socket = \{value = 460", "gb_s_socket = {value = 1"), "'dram.gb_s_socket.value'"),
    (sub(r"^\[sources\]", "[sources]\nodd = 3"), "'sources.odd'"),
    (sub(r"^\[instructions\]", "[orders]"), "'instructions'"),
    (sub(r"latency = 4, slots", "latency = -4, slots"), "'instructions.vpdpbusd zmm,zmm,zmm.latency'"),
    (sub(r'(vpdpbusd.*)"FP1"', r'\1"FP9"'), "'instructions.vpdpbusd zmm,zmm,zmm.uops[0]'"),
    (sub(r'(vpdpbusd.*)"FP1"', r'\1"LD0"'), "'instructions.vpdpbusd zmm,zmm,zmm.uops[0]'"),
    (sub(r"(vpdpbusd.*)uops = \[\[.*?\]\]", r"\1uops = [[]]"), "'instructions.vpdpbusd zmm,zmm,zmm.uops'"),
    (sub(r"(vpdpbusd.*)uops = \[\[.*?\]\]", r'\1uops = "FP0"'), "'instructions.vpdpbusd zmm,zmm,zmm.uops'"),
    (sub(r"(vpdpbusd.*)occupancy = 2", r"\1ocupancy = 2"), "'instructions.vpdpbusd zmm,zmm,zmm.ocupancy'"),
    (sub(r"(vpdpbusd.*)slots = 1, ", r"\1"), "'instructions.vpdpbusd zmm,zmm,zmm.slots'"),
    (sub(r'(vpdpbusd.*), source = "[^"]*"', r"\1"), "'instructions.vpdpbusd zmm,zmm,zmm.source'"),
    (sub(r'(vpdpbusd.*), confidence = "[^"]*"', r"\1"), "'instructions.vpdpbusd zmm,zmm,zmm.confidence'"),
    (sub(r"^(  \{mnemonic = \"vpdpbusd.*\n)", r"\1\1"), "'instructions.vpdpbusd zmm,zmm,zmm.form'"),
    (sub(r"rows = \[(.|\n)*\]", "rows = []"), "'instructions.rows'"),
    (sub(r"^\[dram\]", "[dram"), ""),
    (sub(r"^banks = .*", 'banks = [["FP0"], ["FP1"], ["FP2"]]'), "'core.scheduler[0].banks'"),
    (sub(r"^banks = .*", 'banks = [["FP0", "FP2"], ["FP1"]]'), "'core.scheduler[0].banks'"),
    (sub(r"^dealt = true\n", ""), "'core.scheduler[2].dealt'"),
    (
        sub(r'^name = "integer"', 'name = "integer"\nqueue = 9\nbanks = [["ALU0"], ["ALU1"]]'),
        "'core.scheduler[2].banks'",
    ),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = 1000000000"), "'core.dispatch_slots.value'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = 0x" + "f" * 9000), "'core.dispatch_slots.value'"),
    (sub(r"^dispatch_slots = \{value = 6", "dispatch_slots = {value = " + "9" * 9000), ""),
    (sub(r"^gb_s_core = \{value = [\d.]+", "gb_s_core = {value = nan"), "'dram.gb_s_core.value'"),
    (sub(r"^gb_s_core = \{value = [\d.]+", "gb_s_core = {value = inf"), "'dram.gb_s_core.value'"),
    (sub(r"^\[dram\]", "x = " + "[" * 5000 + "]" * 5000), ""),
    (sub(r"^\[dram\]", '[dram]\n"' + "k" * 9000 + '" = 1'), "'dram.kkk"),
    (lambda text: text[: text.index('source = "', len(text) // 2) + 12], ""),
    (lambda text: text[: len(text) // 3].rpartition("\n[")[0], "'"),
    (lambda text: "", "'sources': expected a table, or base = 'zen4'"),
    (lambda text: "\0", ""),
]


def test_the_small_file_is_good(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(small_file(), encoding="utf-8")
    mine = machine(path)
    assert mine.timing("vpdpbusd", "zmm,zmm,zmm") == machine("zen4").timing("vpdpbusd", "zmm,zmm,zmm")
    assert machine(str(path)) is mine


@pytest.mark.parametrize("index", range(len(MUTATIONS)))
def test_broken_files_name_the_key(index: int, tmp_path: Path) -> None:
    change, key = MUTATIONS[index]
    path = tmp_path / "broken.toml"
    path.write_text(change(small_file()), encoding="utf-8")
    with pytest.raises(MachineFileError) as caught:
        machine(path)
    message = str(caught.value)
    assert (
        (f"key {key}" if key else "toml: expected TOML") in message
        and "expected" in message
        and "met" in message
        and "\n" not in message
    )
    assert len(message) < 600


def test_any_key_gone_or_of_another_kind_is_an_error_or_optional(tmp_path: Path) -> None:
    """Delete or blank each line of the head in turn: a typed error or a machine, never another exception."""
    lines = small_file().splitlines(keepends=True)
    path = tmp_path / "broken.toml"
    refused = 0
    for index, how in itertools.product(range(len(lines)), ("delete", "nonsense")):
        line = lines[index]
        if line.startswith("#") or not line.strip():
            continue
        changed = "" if how == "delete" else re.sub(r"=.*", '= ["?", 1, {a = 1}]', line)
        path.write_text("".join([*lines[:index], changed, *lines[index + 1 :]]), encoding="utf-8")
        try:
            machine(path)
        except MachineFileError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > 1.5 * sum(1 for line in lines if line.strip() and not line.startswith("#"))


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(UnknownName, match="no machine file .*none.toml.*zen4"):
        machine(tmp_path / "none.toml")
    (tmp_path / "folder.toml").mkdir()
    with pytest.raises(UnknownName, match="no machine file .*folder.toml"):
        machine(tmp_path / "folder.toml")


def test_what_is_no_file_of_text(tmp_path: Path) -> None:
    for data in (b"\xff\xfe\0", bytes(range(256)), "name = 'x'".encode("utf-16")):
        other = tmp_path / "binary.toml"
        other.write_bytes(data)
        with pytest.raises(MachineFileError, match="expected TOML"):
            machine(other)
    with other.open("wb") as stream:
        stream.truncate(1 << 30)
    with pytest.raises(MachineFileError, match="at most 16777216 bytes, met 1073741824"):
        machine(other)
    for name in ("a\0.toml", "x" * 5000, "", "/dev/zero", str(tmp_path)):
        with pytest.raises((UnknownName, MachineFileError)):
            machine(name)
