"""A machine's table as OSACA reads it: by hand, and by the tool itself where it is installed."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import isa_models
import simdnn
from isa_models import InvalidArgument, Unimplemented
from simdnn.assembly.export import machine_file, throughput
from simdnn.cli import main

LOOP = "".join(f"vfmadd231ps zmm{i}, zmm31, zmmword ptr [rax+{64 * i}]\n" for i in range(12))  # no chain binds
LOOP += "vpdpbusd zmm12, zmm30, zmm29\nadd rax, 768\n"


def forms(text: str, *mnemonics: str) -> list[str]:
    """The instruction forms of some mnemonics."""
    return [form for form in re.split(r"(?m)^(?=- name: )", text)[1:] if form.split()[2] in mnemonics]


def test_a_row_says_what_the_table_does() -> None:
    zen4 = isa_models.cpu_machine("zen4")
    text = machine_file(zen4)
    (form,) = (f for f in forms(text, "vpdpbusd") if f.count("name: zmm") == 2 and "memory" in f)
    row, load = zen4.timing("vpdpbusd", "zmm,zmm,m512"), zen4.core.load(512)
    assert f"latency: {row.latency + load.latency:g}" in form and f"uops: {row.slots}" in form
    assert f"[{row.occupancy}, ['FP0', 'FP1']], [{load.pipes:g}, ['LD0', 'LD1']]" in form
    assert form.index("memory") < form.index("zmm")  # AT&T order: the destination stands last
    (move,) = (f for f in forms(text, "vmovups") if f.count("name: zmm") == 2)
    assert zen4.timing("vmovups", "zmm,zmm").eliminated and "port_pressure: []" in move and "latency: 0" in move
    head = text.partition("instruction_forms:")[0]
    assert f"ROB_size: {zen4.core.reorder_buffer}\n" in head and "isa: x86" in head
    assert "{k}" not in text and "tmm" not in text
    count = int(re.findall(r"; (\d+) are left out", text)[0])
    assert count + len(re.findall("(?m)^- name: ", text)) == len(zen4.instructions)


def test_throughput_is_that_of_the_ports() -> None:
    assert throughput([]) == 0 and throughput([(2.0, ("a", "b"))]) == 1
    assert throughput([(1.0, ("a", "b")), (1.0, ("b", "c")), (1.0, ("b",))]) == 1


@pytest.mark.filterwarnings("ignore")  # OSACA's own
@pytest.mark.parametrize("name", ["clx", "zen4"])
def test_osaca_reads_it(name: str, tmp_path: Path) -> None:
    """The same cycles by ports, and the loads' and products' latencies, from OSACA with this file."""
    parsers, semantics = pytest.importorskip("osaca.parser"), pytest.importorskip("osaca.semantics")
    text = machine_file(isa_models.cpu_machine(name))
    path = tmp_path / f"{name}.yml"  # all rows take OSACA's YAML reader half a minute
    used = forms(text, "vfmadd231ps", "vpdpbusd", "add")
    path.write_text(text.partition("instruction_forms:")[0] + "instruction_forms:\n" + "".join(used))
    parser = parsers.get_parser("x86", "INTEL")
    kernel = parser.parse_file(LOOP)
    made = semantics.ArchSemantics(parser, semantics.MachineModel(path_to_yaml=str(path)))
    made.normalize_instruction_forms(kernel)
    made.add_semantics(kernel)
    made.assign_optimal_throughput(kernel)
    ours = simdnn.analyze(LOOP, machine=name)
    assert max(made.get_throughput_sum(kernel)) == pytest.approx(ours.cycles_per_iteration, rel=0.1)
    zmm = isa_models.cpu_machine(name)
    wanted = zmm.timing("vfmadd231ps", "zmm,zmm,m512").latency + zmm.core.load(512).latency
    assert kernel[0].latency == wanted and kernel[12].latency == zmm.timing("vpdpbusd", "zmm,zmm,zmm").latency


def test_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(Unimplemented, match="reads no machine file.*osaca"):
        machine_file(isa_models.cpu_machine("zen4"), "llvm-mca")
    with pytest.raises(InvalidArgument, match="osaca"):
        machine_file(isa_models.cpu_machine("zen4"), "osacca")
    with pytest.raises(InvalidArgument, match="'b580' is a GPU"):
        machine_file(isa_models.machine("b580"))
    assert main(["machines", "export", "clx", "--for", "osaca", "-o", str(tmp_path / "clx.yml")]) == 0
    assert (tmp_path / "clx.yml").read_text().startswith("# clx of simdnn")
    assert main(["machines", "export", "clx", "--for", "llvm-mca"]) != 0
    assert main(["machines", "export", "clx", "spr"]) == 2 and "one machine" in capsys.readouterr().err


def test_a_loop_is_analyzed_and_its_machine_exported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    loop, table = tmp_path / "loop.s", tmp_path / "clx.yml"
    loop.write_text("vaddps zmm0, zmm0, zmm1\n")
    command = ["analyze", str(loop), "--machine", "clx"]
    assert main([*command, "--export", "osaca"]) == 0
    assert capsys.readouterr().out == machine_file(isa_models.machine("clx"))
    assert main([*command, "--export", "osaca", "-o", str(table)]) == 0
    assert table.read_text() == machine_file(isa_models.machine("clx")) and "4.00 cycles" in capsys.readouterr().out
    assert main([*command, "--export", "llvm-mca"]) == 1 and "-mcpu names one of them" in capsys.readouterr().err
    with pytest.raises(SystemExit):
        main([*command, "--export", "osacca"])
    assert "did you mean 'osaca'" in capsys.readouterr().err
    assert main([*command, "--export", "osaca", "--json"]) == 2 and "both want" in capsys.readouterr().err
    assert main([*command, "--export", "osaca", "--timeline"]) == 2 and "one of them" in capsys.readouterr().err
