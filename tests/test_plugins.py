"""Users' packages: the example of CONTRIBUTING.md installed from a folder, packages that fail, and that quarrel."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import textwrap
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
DOCUMENT = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
TEXT = DOCUMENT.partition("## A package of your own\n")[2].partition("\n## ")[0]
FILES = dict(re.findall(r"(?ms)^```\w+ file=(\S+)\n(.*?)^```", TEXT))
DEFINES = """
    from isa_models.instruction import define
    @define("{name}", "s32 <- s32", {{512: ("avx512_core",)}}, "ours", native=False)
    def twice(a):
        return a + a
"""


def install(folder: Path, name: str, module: str, text: str | None = None) -> None:
    """A package as an installer leaves it: its metadata beside its module."""
    metadata = folder / f"{name.replace('-', '_')}-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[simdnn]\n{module} = {module}\n")
    if text is not None:
        (folder / f"{module}.py").write_text(textwrap.dedent(text))


def python(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    code = [sys.executable, *args]
    own = {"PYTHONPATH": os.pathsep.join([str(folder), str(ROOT)]), "HOME": str(folder)}
    env = {"XDG_CACHE_HOME": str(Path.home() / ".cache"), **os.environ, **own}  # code that is kept stays so
    return subprocess.run(code, capture_output=True, text=True, cwd=folder, env=env, check=False)


def told(folder: Path, code: str) -> list[str]:
    found = python(folder, "-c", textwrap.dedent(code))
    assert found.returncode == 0, found.stderr
    return found.stdout.splitlines()


@pytest.fixture
def example(tmp_path: Path) -> Path:
    project = tomllib.loads(FILES["pyproject.toml"])["project"]
    ((_, module),) = project["entry-points"]["simdnn"].items()
    install(tmp_path, project["name"], module)
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_the_example_does_what_it_says(example: Path) -> None:
    (session,) = re.findall(r"(?ms)^```python\n(>>>.*?)^```", TEXT)
    (example / "session.txt").write_text(session)
    found = python(example, "-m", "doctest", "session.txt")
    assert found.returncode == 0, found.stdout + found.stderr


def test_what_a_package_adds_computes(example: Path) -> None:
    """Values, cycles, candidates; beside what it computes on a machine without its instruction."""
    pytest.importorskip("onnx")
    code = """
        import sys, pickle, numpy as np, simdnn, isa_models
        from onnx import TensorProto, helper
        assert "more_dots" not in sys.modules
        [isa_models.machine(name) for name in ("icx", "clx", "znver4", "a770", "max1550")]
        isa_models.instruction("dpas.s8.u8.8.1.x8.s32"), isa_models.instruction("vpdpbusd")
        isa_models.formats.fmt("bf16"), isa_models.formats.name_of(np.dtype("i1"))
        assert "more_dots" not in sys.modules
        rng = np.random.default_rng(0)
        src, weights = (rng.integers(-128, 128, shape).astype(np.int8) for shape in ((9, 70), (70, 33)))
        r = simdnn.matmul(src, weights, machine="icy", dispatch="gemm:avx512_core_vnni_signed")
        assert (r.output == src.astype(int) @ weights.astype(int)).all()
        assert r.implementation == "gemm:avx512_core_vnni_signed" and "vdotss" in set(r.instructions.instruction)
        rows = r.dispatch.set_index("implementation").cycles
        assert rows["gemm:avx512_core_vnni_signed"] == r.cycles and rows["gemm:avx512_core_vnni"] > 0
        assert simdnn.matmul(src, weights, machine="icx").implementation == "gemm:avx512_core_vnni"
        assert pickle.loads(pickle.dumps(isa_models.instruction("vdotss"))) is isa_models.instruction("vdotss")
        form = isa_models.formats.fmt("f8_e3m4")
        assert isa_models.formats.name_of(form.dtype) == "f8_e3m4" and form.dtype.itemsize == 1
        ports = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
        node = helper.make_node("SignedSquare", ["x"], ["y"], domain="more_dots")
        opsets = [helper.make_opsetid("", 20), helper.make_opsetid("more_dots", 1)]
        model = helper.make_model(helper.make_graph([node], "g", ports[:1], ports[1:]), opset_imports=opsets)
        found = simdnn.load(model).run({"x": np.array([-2, 0, 3], "f")}, machine="icy")
        print(found.outputs["y"].tolist(), found.cycles > 0)
    """
    assert told(example, code) == ["[-4.0, 0.0, 9.0] True"]


def test_lists_show_what_a_package_adds(example: Path) -> None:
    names = {"machines": "icy", "kernels": "gemm:avx512_core_vnni_signed", "instructions": "vdotss"}
    code = f"from simdnn.cli import main; print([main(['list', what]) for what in {[*names]}])"
    found = python(example, "-c", code)
    assert (found.returncode, found.stderr) == (0, "") and found.stdout.endswith("[0, 0, 0]\n")
    assert all(re.search(rf"(?m)^{name} ", found.stdout) for name in names.values())


def test_one_that_fails_is_told_and_leaves_nothing(tmp_path: Path) -> None:
    """All that it had registered before is gone; others work; errors for unknown names speak of it, no others."""
    install(tmp_path, "broken", "broken_one", DEFINES.format(name="vhalf") + "    import nowhere_at_all\n")
    install(tmp_path, "whole", "whole_one", DEFINES.format(name="vtwice"))
    listed = python(tmp_path, "-m", "simdnn", "list", "instructions")
    assert listed.returncode == 0 and "vtwice" in listed.stdout and "vhalf" not in listed.stdout
    assert listed.stderr.startswith("simdnn: warning: module 'broken_one' of package 'broken 1.0' failed: Module")
    assert "nowhere_at_all" in listed.stderr and len(listed.stderr.splitlines()) == 1
    code = """
        import isa_models, numpy as np, simdnn
        print(isa_models.instruction("vtwice")([4]).tolist())
        asked = {
            "instruction": lambda: isa_models.instruction("vhalf"),
            "machine": lambda: isa_models.machine("vhalf"),
            "format": lambda: isa_models.formats.fmt("vhalf"),
            "kernel": lambda: simdnn.estimate("matmul", m=8, n=8, k=8, machine="zen4", dispatch="vhalf"),
        }
        for ask in asked.values():
            try:
                ask()
            except simdnn.SimdnnError as error:
                print("broken_one" in str(error) and "broken 1.0" in str(error) and "vhalf" in str(error))
    """
    assert told(tmp_path, code) == ["[8]", *["True"] * 4]
    failed = python(tmp_path, "-m", "simdnn", "explain", "vhalf")
    assert failed.returncode == 2 and "broken 1.0" in failed.stderr and "Traceback" not in failed.stderr


def test_a_machine_file_that_breaks_its_schema_is_told(tmp_path: Path) -> None:
    """In the list of the others, and where it is asked for."""
    text = """
        from pathlib import Path
        from isa_models.machines import shipped
        shipped.register(Path(__file__).parent / "folder")
    """
    install(tmp_path, "cores", "cores_one", text)
    (tmp_path / "folder" / "gpu").mkdir(parents=True)
    (tmp_path / "folder" / "bad.toml").write_text('base = "icx"\ncolour = "blue"\n')
    (tmp_path / "folder" / "good.toml").write_text('base = "zen4"\n[core]\ndispatch_slots = 8\n')
    (tmp_path / "folder" / "gpu" / "big.toml").write_text('base = "b580"\n')
    for what in ("machines", "isa"):
        listed = python(tmp_path, "-m", "simdnn", "list", what)
        assert listed.returncode == 0 and " good" in listed.stdout.replace("\n", " ") and "icx" in listed.stdout
        assert "bad.toml" in listed.stderr and len(listed.stderr.splitlines()) == 1
    code = """
        import isa_models, simdnn
        print(isa_models.machine("good").name, isa_models.machine("big").name, "big" in isa_models.gpu_machine_names())
        big, known = (simdnn.estimate("matmul", m=8, n=8, k=8, machine=name) for name in ("big", "b580"))
        print((big.implementation, big.cycles) == (known.implementation, known.cycles))
        try:
            isa_models.machine("bad")
        except isa_models.MachineFileError as error:
            print("colour" in str(error))
    """
    assert told(tmp_path, code) == ["good big True", "True", "True"]


def test_two_packages_with_one_name_are_both_named(tmp_path: Path) -> None:
    for name in ("one", "other", "third"):
        install(tmp_path, name, f"module_{name}", DEFINES.format(name="vtwice"))
    install(tmp_path, "thief", "module_thief", DEFINES.format(name="vpdpbusd"))
    code = """
        import isa_models
        try:
            isa_models.instruction("vtwice")
        except isa_models.UnknownName as error:
            print(all(f"{name} 1.0" in str(error) for name in ("one", "other", "third")), "simdnn itself" in str(error))
        print(len(isa_models.instruction("vpdpbusd").operands))
    """
    assert told(tmp_path, code) == ["True True", "3"]


def test_nothing_is_looked_for_at_the_start(tmp_path: Path) -> None:
    install(tmp_path, "loud", "loud_one", "raise SystemExit(3)")
    code = "import sys, simdnn, isa_models; print('importlib.metadata' in sys.modules, 'loud_one' in sys.modules)"
    assert told(tmp_path, code)[0].endswith("False")
    assert told(tmp_path, "import isa_models; print('icx' in isa_models.machine_names())") == ["True"]
