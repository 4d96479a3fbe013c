"""GPU files: complete, sourced, consistent with what is published, and refused with the key where broken."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import isa_models
from isa_models import GpuMachine, MachineFileError, Unimplemented, UnknownName, UnknownTiming
from isa_models.machines.content import content
from isa_models.machines.loader import gpu_machine
from isa_models.machines.provenance import CONFIDENCES
from isa_models.machines.shipped import GPU_MACHINES_DIR, gpu_machine_names

INTEL = ("a770", "b580", "dg1", "lnl", "max1100", "max1550", "max1550_stack")
NVIDIA = ("a100", "a100-pcie", "h100", "h100-pcie", "h200", "l40s", "rtx4090", "titan_xp", "v100")
ALL = gpu_machine_names()


def test_names_and_cache() -> None:
    assert list(ALL) == sorted(path.stem for path in GPU_MACHINES_DIR.glob("*.toml")) and {*INTEL, *NVIDIA} <= set(ALL)
    for name in ALL:
        found = isa_models.machine(name)
        assert isinstance(found, GpuMachine) and found.name == name and isa_models.machine(found) is found
        assert isa_models.machine(name) is found
    with pytest.raises(UnknownName, match="did you mean 'a770'"):
        isa_models.machine("a777")
    with pytest.raises(Unimplemented, match="is a GPU"):
        isa_models.cpu_machine("a770")


@pytest.mark.parametrize("name", ALL)
def test_every_figure_has_a_source(name: str) -> None:
    found = gpu_machine(name)
    assert len(found.provenance) >= 20
    for key, provenance in found.provenance.items():
        assert provenance.source.strip() and provenance.confidence in CONFIDENCES, key
    values = len(re.findall(r"'value': ", repr(content(found.path))))
    assert values == len(found.provenance)


@pytest.mark.parametrize(
    "name,dtype,tops",
    [
        ("dg1", "f32", 2.53),
        ("dg1", "dp4a", 10.1),
        ("a770", "f32", 17.2),
        ("a770", "f16", 138),
        ("a770", "s8", 275),
        ("max1550", "f32", 52.4),
        ("max1550", "tf32", 419),
        ("max1550", "bf16", 839),
        ("max1550", "s8", 1678),
        ("max1550_stack", "s8", 839),
        ("max1100", "f16", 355),
        ("lnl", "s8", 67.2),
        ("titan_xp", "f32", 12.15),
        ("v100", "f32", 15.7),
        ("v100", "f16", 125),
    ],
)
def test_peaks_are_the_published_ones(name: str, dtype: str, tops: float) -> None:
    assert gpu_machine(name).peak_ops(dtype) / 1e12 == pytest.approx(tops, rel=0.01)


def test_peak_of_the_b580_at_its_highest_clock() -> None:
    b580 = gpu_machine("b580")
    assert b580.max_ghz is not None
    assert b580.peak_ops("s8") * b580.max_ghz / b580.ghz / 1e12 == pytest.approx(233, rel=0.01)


def test_what_a_machine_lacks_is_said() -> None:
    with pytest.raises(UnknownTiming, match="no DPAS at all"):
        gpu_machine("dg1").peak_ops("s8")
    with pytest.raises(UnknownTiming, match="f16, s8, s4"):
        gpu_machine("a770").systolic_rate("tf32", "tf32")
    assert gpu_machine("a770").systolic_rate("s4", "u8") == (256, "s8")
    assert gpu_machine("a770").systolic_rate("u2", "s4") == (512, "s4")
    assert gpu_machine("dg1").latency.dpas == {}
    assert [gpu_machine("b580").latency.dpas_of(n) for n in (1, 2, 5, 8)] == [22, 23, 28, 33]


@pytest.mark.parametrize(
    "old,new,message",
    [
        ('platform = "xe2"', 'platform = "xe9"', "'platform': expected one of"),
        ('value = 8, source = "xe2', 'value = 0, source = "xe2', "cores.engines.value"),
        ('name = "L2"', 'name = "L3"', "'caches': expected L1 and L2"),
        ("[dram]", "[dram]\nmistake = 1", "'dram.mistake'"),
        ("co_issue = {value = true", "co_issue = {value = 1", "co_issue.value"),
        ('confidence = "estimated"', 'confidence = "guessed"', "confidence"),
        ("gb_s = {value = 456", "gb_s = {value = -1", "dram.gb_s.value"),
        ("[engine.systolic_ops]", "[engine.systolic]", "engine.co_issue"),
    ],
)
def test_a_broken_file_names_the_key(old: str, new: str, message: str, tmp_path: Path) -> None:
    text = (GPU_MACHINES_DIR / "b580.toml").read_text()
    assert old in text
    path = tmp_path / "mine.toml"
    path.write_text(text.replace(old, new))
    with pytest.raises(MachineFileError, match=re.escape(message)):
        isa_models.machine(path)


def test_a_file_of_ones_own(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text((GPU_MACHINES_DIR / "b580.toml").read_text().replace('name = "b580"', 'name = "mine"'))
    found = isa_models.machine(str(path))
    assert isinstance(found, GpuMachine) and found.name == "mine" and found.engines == 160


def test_a_v100_has_the_vendors_figures() -> None:
    v100 = gpu_machine("v100")
    assert v100.nvidia and not gpu_machine("a770").nvidia
    assert (v100.xe_cores, v100.engines_per_core, v100.dram_gb_s, v100.ghz) == (80, 4, 900, 1.53)
    assert v100.vector_ops["f16"] == 2 * v100.vector_ops["f32"] and 0 < v100.launch_us < 10
    assert v100.engines * v100.ghz * 32 == pytest.approx(15_667, rel=1e-3)
    for dtype in ("bf16", "s8", "tf32"):
        with pytest.raises(UnknownTiming, match="no rate of mma"):
            v100.peak_ops(dtype)
