"""The schema of a GPU's file: reads TOML into a `GpuMachine`, or says which key is wrong, what was expected and met."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from isa_models.gpu.platforms import PLATFORMS, Platform
from isa_models.machines.content import open_table
from isa_models.machines.gpu_record import SYSTOLIC_TYPES, GpuCache, GpuMachine, Latency
from isa_models.machines.toml_table import Table
from isa_models.records.frozen import Frozen


def read_gpu_machine(path: Path) -> GpuMachine:
    """Read and validate one file; `MachineFileError` names the first key that is wrong."""
    return gpu_machine_of(open_table(path), path)


def gpu_machine_of(top: Table, path: Path) -> GpuMachine:
    """The GPU that a file's table describes."""
    name, title, vendor, named = (top.text(key) for key in ("name", "title", "vendor", "platform"))
    if named not in PLATFORMS:
        raise top.error("platform", f"one of {', '.join(PLATFORMS)}", named)
    platform = PLATFORMS[named]
    cores, clock = _cores(top.table("cores"), platform), _clock(top.table("frequency"))
    engine = _engine(top.table("engine"))
    latency = _latency(top.table("latency"), platform)
    caches = [_cache(row) for row in top.tables("caches")]
    if [cache.name for cache in caches] != ["L1", "L2"]:
        raise top.error("caches", "L1 and L2, in this order", [cache.name for cache in caches])
    memory = _memory(top.table("dram")) | (_launch(top.table("launch")) if top.has("launch") else {})
    top.close_all()
    if bool(engine["systolic_ops"]) != platform.has_matrix_unit:
        raise top.error("engine.systolic_ops", f"rates exactly where {named} has a matrix unit", engine["systolic_ops"])
    return GpuMachine(
        name,
        title,
        vendor,
        platform,
        **cores,
        **clock,
        **engine,
        latency=latency,
        caches=(caches[0], caches[1]),
        **memory,
        provenance=Frozen(top.reader.provenance),
        path=path,
    )


def _cores(table: Table, platform: Platform) -> dict[str, Any]:
    """How many there are of each kind, by the vendor's words in the file."""
    words = ("sms", "partitions", "dies") if platform.warp else ("xe_cores", "engines", "stacks")
    fields = ("xe_cores", "engines_per_core", "stacks")
    return {field: table.figure_integer(word, 1, 4096) for field, word in zip(fields, words, strict=True)}


def _clock(table: Table) -> dict[str, Any]:
    ghz = table.figure_number("ghz", 0.1, 10)
    return {
        "ghz": ghz,
        "max_ghz": table.figure_number("max_ghz", ghz, 10) if table.has("max_ghz") else None,
        "base_ghz": table.figure_number("base_ghz", 0.1, ghz) if table.has("base_ghz") else None,
        "full_load_ghz": Frozen(_by_type(table.table("full_load_ghz"), 0.1, ghz) if table.has("full_load_ghz") else {}),
        "lane_ops": table.figure_number("lane_ops", 0, 1000, 0.0),
    }


def _engine(table: Table) -> dict[str, Any]:
    """Rates of the vector pipe and of matrix units, as shares of others where the record has them so."""
    threads = table.figure_integer("threads", 2, 64)
    vector = {key: table.figure_number(f"{key}_ops", 1, 1e5) for key in ("f32", "f16", "dp4a")}
    share = table.figure_number("s32_multiply_share", 0.01, 1)
    converts = table.figure_number("conversion_share", 0.01, 1) if table.has("conversion_share") else 1.0
    shares = {key: table.figure_number(key, 0.01, 4, 1.0) for key in ("mma_share", "dpas_share", "f16_sums_share")}
    for key in ("alu_share", "special_share"):
        shares[key] = table.figure_number(key, 0.01, 1) if table.has(key) else 0.0
    systolic, co_issue = _systolic(table)
    return {
        "threads": threads,
        "vector_ops": Frozen(vector),
        "s32_multiply_share": share,
        "conversion_share": converts,
        **shares,
        "systolic_ops": Frozen(systolic),
        "co_issue": co_issue,
    }


def _memory(table: Table) -> dict[str, Any]:
    gb_s = table.figure_number("gb_s", 0.1, 1e6)
    return {
        "dram_gb_s": gb_s,
        "sustained_gb_s": table.figure_number("sustained_gb_s", 0.1, gb_s, gb_s),
        "read_gb_s": table.figure_number("read_gb_s", 0.1, gb_s) if table.has("read_gb_s") else 0.0,
    }


def _launch(table: Table) -> dict[str, Any]:
    return {
        "launch_us": table.figure_number("us", 0, 1000),
        "staged_us": table.figure_number("staged_us", 0, 1000, 0.0),
    }


def _systolic(engine: Table) -> tuple[dict[str, float], bool]:
    """Rates by type, and whether the vector pipe works beside; nothing where there is no such pipe."""
    if not engine.has("systolic_ops"):
        return {}, False
    return _by_type(engine.table("systolic_ops"), 1, 1e6), engine.figure_flag("co_issue")


def _by_type(table: Table, least: float, most: float) -> dict[str, float]:
    """Figures by operand type, as far as there are any."""
    return {key: table.figure_number(key, least, most) for key in SYSTOLIC_TYPES if table.has(key)}


def _latency(table: Table, platform: Platform) -> Latency:
    dpas = {n: table.figure_number(f"dpas_{n}", 1, 1000) for n in (1, 2, 8)} if platform.exec_size else {}
    keys = ["vector", "vector_wide", "math", "l1", "slm", "l2", "dram", "barrier"]
    keys += ["mma"] if platform.tensor_cores else []
    return Latency(Frozen(dpas), *(table.figure_number(key, 0, 1e5) for key in keys))


def _cache(row: Table) -> GpuCache:
    name = row.text("name")
    row.key = f"caches.{name}"
    return GpuCache(
        name,
        row.figure_integer("size_bytes"),
        row.figure_integer("line_bytes", 8, 4096),
        row.figure_number("bytes_per_cycle", 0.01, 1e6),
    )
