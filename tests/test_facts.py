"""Facts of a number format, a kernel or an instruction are fields of it: no code reads them out of a name."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

import simdnn
from isa_models.formats import FORMATS
from tests.sources import parsed, statements

ROOT = Path(__file__).parent.parent
#: folders where names are text that somebody wrote: assembly, benchdnn's options, rows of machines' files
READ_AS_TEXT = ("simdnn/assembly", "simdnn/benchdnn", "isa_models/machines")
MODULES = [
    path
    for folder in ("simdnn", "isa_models")
    for path in sorted((ROOT / folder).rglob("*.py"))
    if not path.relative_to(ROOT).as_posix().startswith(READ_AS_TEXT)
]
#: what holds the name of a format, a kernel, an instruction or a loop
NAMES = {"var", "dtype", "src", "wei", "dst", "mnemonic", "instruction", "kernel", "source", "stored", "kind"}
NAMES |= {"name", "tensor", "op", "post_op", "implementation", "library", "machine", "form"}
TESTS = {"startswith", "endswith", "removeprefix", "removesuffix", "split", "partition", "rpartition", "rsplit"}
PATTERNS = {"match", "fullmatch", "search", "findall", "sub"}
#: what is read all the same: names that a user or a file wrote, patterns that a user writes, and what is only shown
WRITTEN = {
    # forms are the keys of machines' tables: operands as an assembler has them
    ("simdnn/timing/cpu/steps.py", "_NARROW.sub('r64', form)"),
    ("simdnn/timing/cpu/steps.py", "re.sub('[xyz]mm', register, form)"),
    ("simdnn/timing/cpu/steps.py", "re.findall('[xyz]mm', form)"),
    ("simdnn/timing/cpu/steps.py", "step.form.rpartition(',')"),
    ("simdnn/calibration/figures.py", "form.split(',')"),
    ("simdnn/calibration/forms.py", "form.split(',')"),
    ("simdnn/calibration/forms.py", "re.search('\\\\{k\\\\}|bcst|\\\\bcl\\\\b|,1$|agen', form)"),
    # what somebody typed: instructions, options, patterns; and names of CPUs and their features in other people's words
    ("simdnn/calibration/forms.py", "name.startswith(('intel', 'sse', 'mmx'))"),
    ("simdnn/calibration/forms.py", "re.sub('[._-]', '', name)"),
    ("simdnn/cli/explain.py", "name.split('.')"),
    ("simdnn/cli/explain.py", "name.startswith('--')"),
    ("simdnn/cli/run.py", "' with ' not in args.machine"),
    # an implementation in a library's own words, which no kernel here is called
    ("simdnn/libraries/onednn/log.py", "name.partition(':')"),
    # a column of a table names the kernels of a layer, which are looked up
    ("simdnn/networks/schemas.py", "given.name.startswith(_INTERNAL)"),  # ONNX's rule for attributes
    ("simdnn/networks/runner.py", "implementation.split(' + ')"),
    # whose names: Python's, ONNX's and LLVM's, options of a form in the browser, columns of a report
    ("simdnn/__init__.py", "name.startswith('_')"),
    ("isa_models/keywords.py", "name.startswith('_')"),
    ("simdnn/primitives/result.py", "name.startswith('_')"),
    ("simdnn/networks/ops/shape.py", "name.startswith('value_')"),
    ("simdnn/networks/ops/shape.py", "name.removesuffix('s')"),
    ("isa_models/isa.py", "name.startswith('amx-')"),
    ("isa_models/aliases.py", "name.startswith(begins)"),  # of instructions that an intrinsic's name is like
    ("isa_models/host/forks.py", "name.split('.')"),
    ("simdnn/teach/forms.py", "name.startswith(prefix)"),
    ("simdnn/teach/forms.py", "name.removeprefix(prefix)"),
    ("simdnn/reporting/pages.py", "name.endswith('_share')"),
    ("simdnn/reporting/pages.py", "name.startswith('share')"),
    # the one template of a family of forms, and the registry that its members are asked from
    ("isa_models/gpu/naming.py", "self.pattern.fullmatch(name)"),
    ("isa_models/instruction.py", "name.split('.')"),
    # a page of a manual is named after the instruction
    ("isa_models/intel_gpu/vector.py", "name.split('.')"),
    ("isa_models/nvidia/vector.py", "name.split('.')"),
    # how a program is shown
    ("simdnn/program/records.py", "self.name.partition(' ')"),
    ("simdnn/timing/gpu/estimate.py", "program.name.split()"),
}


def ends_in_a_name(node: ast.expr) -> bool:
    """Whether an expression is a variable or a field that holds such a name, or a NumPy type's name."""
    if isinstance(node, ast.Attribute):
        return node.attr in NAMES or node.attr == "name" and ends_in_a_name(node.value)
    return isinstance(node, ast.Name) and (node.id in NAMES or node.id.endswith(("_type", "dtype")))


def is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) < 30


def read_from_names(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in TESTS:
            if ends_in_a_name(node.func.value):
                yield ast.unparse(node)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in PATTERNS:
            if any(map(ends_in_a_name, node.args)):
                yield ast.unparse(node)
        if isinstance(node, ast.Compare):
            left, right = node.left, node.comparators[0]
            first = isinstance(left, ast.Subscript) and ends_in_a_name(left.value) and is_text(right)
            asked = is_text(left) or isinstance(left, ast.Name) and left.id in ("word", "part", "text")
            within = isinstance(node.ops[0], (ast.In, ast.NotIn)) and asked and ends_in_a_name(right)
            if first or within:
                yield ast.unparse(node)


@pytest.mark.parametrize("folder", ["simdnn", "isa_models"])
def test_nothing_is_read_out_of_a_name(folder: str) -> None:
    found = {
        (path.relative_to(ROOT).as_posix(), text)
        for path in MODULES
        if path.is_relative_to(ROOT / folder)
        for text in read_from_names(parsed(path))
    }
    assert found == {one for one in WRITTEN if one[0].startswith(folder)}, sorted(found ^ WRITTEN)


def test_the_search_finds_what_it_is_for() -> None:
    code = "\n".join(
        [
            "a = dtype[0] == 'u'",
            "b = problem.src[0] in 'su'",
            "c = 'float' in x.dtype.name",
            "d = variant.kernel.startswith('wdec')",
            "e = dtype == 'f32'",
            "f = post_op.split(':')[0]",
            "g = any(word in op.instruction for word in words)",
            "h = 'zp' in tensor or _SUMS.fullmatch(row.mnemonic)",
        ]
    )
    assert len(list(read_from_names(ast.parse(code)))) == 8


def test_formats_say_what_they_are() -> None:
    integers = {name for name, form in FORMATS.items() if form.is_integer}
    assert integers == {f"{sign}{bits}" for sign in "su" for bits in (2, 4, 8, 16, 32, 64)}
    assert all(FORMATS[name].signed == (name[0] == "s") for name in integers)
    assert [name for name, form in FORMATS.items() if form.is_truth] == ["b1"]


#: below the primitives: where a scale or a zero point changes is a `Param` there, which alone puts it in words
BELOW = ("simdnn/kernels", "simdnn/libraries", "simdnn/explanations", "simdnn/numerics", "simdnn/timing")
WORDING = {"simdnn/kernels/common/params.py", "simdnn/kernels/common/epilogue.py"}
WORDS = {"per_token", "grouped"}


def test_where_a_parameter_changes_is_a_param() -> None:
    """No kernel, library or clock reads or compares the words for it."""
    found = {
        f"{path.relative_to(ROOT).as_posix()}:{node.lineno}"
        for path in MODULES
        if (name := path.relative_to(ROOT).as_posix()).startswith(BELOW) and name not in WORDING
        if any(word in path.read_text(encoding="utf-8") for word in (*WORDS, "granularity"))
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Constant)
        and node.value in WORDS
        or isinstance(node, ast.Attribute)
        and node.attr == "granularity"
    }
    assert found == set()


#: who takes an attribute as the caller wrote it, beside what users call: the door where it meets a problem's shape
DOOR = {
    "matmul_on",
    "convolution_on",
    "estimate_on",
    "_problem",
    "_prepared",
    "kind_of_call",
    "resolved",
    "attr_of",
    "of",
    "weights_tag",
    "layout",
    "_refuse_math",
    "_reductions",
}


def test_an_attribute_is_asked_at_the_door_alone() -> None:
    """Below it everything reads what it was resolved to, modes and post-operations as well."""
    allowed = {*DOOR, *dir(simdnn)}
    found = {
        f"{path.name}:{function.name}"
        for path in MODULES
        if path.relative_to(ROOT).as_posix().startswith(("simdnn/primitives", *BELOW)) and path.name != "attr.py"
        for function in statements(parsed(path))
        if isinstance(function, ast.FunctionDef) and function.name not in allowed
        for arg in (*function.args.args, *function.args.kwonlyargs)
        if arg.arg == "attr"
    }
    assert found == set()
