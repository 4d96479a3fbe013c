"""A small part of Python as machine code: a class whose fields are integers, floats and arrays of them.

The core model is simulated some thousand instructions at a time, which takes an interpreter a tenth of a second. Its
class is plain Python all the same, and runs as it stands; this module reads its source and has LLVM compile it. What it
understands is what the class needs: assignments, `if`, `while`, `for` over a `range`, calls of methods and of `min`,
`max`, `math.ceil`, `math.floor`, `int` and `float`, and arithmetic of 64-bit integers and floats, rounded as Python
does. Whatever else it meets is an error when the class is compiled, never another meaning.

Compiling takes half a second, so the machine code is kept in the user's cache folder, under a digest of the sources.
"""

from __future__ import annotations

import ast
import ctypes
import functools
import hashlib
import inspect
import itertools
import sys
import textwrap
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from isa_models.host.file_cache import keep, kept

Ints = list[int]
Floats = list[float]

_TYPES = {"int": "i64", "float": "double", "None": "void", "Ints": "i64*", "Floats": "double*"}
_ELEMENTS = {"i64*": "i64", "double*": "double"}
_INTEGER = {ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.BitAnd: "and", ast.BitOr: "or", ast.BitXor: "xor"}
_SHIFTS = {ast.LShift: "shl", ast.RShift: "ashr"}
_FLOAT = {ast.Add: "fadd", ast.Sub: "fsub", ast.Mult: "fmul", ast.Div: "fdiv"}
_TESTS = {ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge", ast.Eq: "eq", ast.NotEq: "ne"}
_ROUNDINGS = ("ceil", "floor")


class Scalar(NamedTuple):
    """An operand of LLVM's and its type: i64, double, or i1."""

    type: str
    name: str


class NotUnderstood(TypeError):
    """Source that is no part of the language: a fault of the class that was to be compiled."""


def fields_of(kind: type) -> dict[str, str]:
    """The declared fields of a class and its bases, with LLVM's types, in the order of the record."""
    found: dict[str, str] = {}
    for base in reversed(kind.__mro__):
        for name, hint in vars(base).get("__annotations__", {}).items():
            found[name] = _TYPES[hint]
    return found


def text_of(kind: type, entries: Sequence[str]) -> str:
    """LLVM's text of all methods of a class; those named in `entries` can be called from outside."""
    methods: dict[str, tuple[ast.FunctionDef, dict[str, Any]]] = {}
    for base in reversed(kind.__mro__[:-1]):
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(base))).body
        assert isinstance(tree, ast.ClassDef)
        scope = vars(sys.modules[base.__module__])
        methods |= {node.name: (node, scope) for node in tree.body if isinstance(node, ast.FunctionDef)}
    fields = fields_of(kind)
    results = {name: _TYPES[ast.unparse(node.returns or ast.Constant(None))] for name, (node, _) in methods.items()}
    parts = [_Method(node, scope, fields, results, name in entries).text for name, (node, scope) in methods.items()]
    record = ", ".join("ptr" if kind in _ELEMENTS else kind for kind in fields.values())
    declared = [f"declare double @llvm.{name}.f64(double)" for name in _ROUNDINGS]
    return "\n".join([f"%State = type {{ {record} }}", *declared, *parts, "!0 = !{}"])


class _Method:
    """The text of one method."""

    def __init__(
        self, node: ast.FunctionDef, scope: dict[str, Any], fields: dict[str, str], results: dict[str, str], entry: bool
    ) -> None:
        self.scope, self.fields, self.results = scope, fields, results
        self.index = {name: i for i, name in enumerate(fields)}
        self.result = results[node.name]
        self.lines: list[str] = []
        self.slots: list[str] = []
        self.locals: dict[str, tuple[str, str]] = {}  # name to type and slot
        self.jumps: list[tuple[str, str]] = []  # (where `continue` goes, where `break` goes)
        self.count = 0
        self.ended = False  # whether what comes next cannot be reached
        heads = ["ptr noalias %self"]
        for argument in node.args.args[1:]:
            kind = _TYPES[ast.unparse(argument.annotation or ast.Constant(None))]
            heads.append(f"{kind} %in.{argument.arg}")
            self.store(argument.arg, Scalar(kind, f"%in.{argument.arg}"))
        self.body(node.body)
        if not self.ended:
            self.line("ret void" if self.result == "void" else "unreachable")
        linkage = "" if entry else "internal "
        head = f"define {linkage}{self.result} @{node.name}({', '.join(heads)}) nounwind"
        self.text = "\n".join([f"{head} {{", "entry:", *self.slots, *self.lines, "}"])

    # -- lines --------------------------------------------------------------------------------------------------------

    def fail(self, node: ast.AST) -> NotUnderstood:
        return NotUnderstood(f"line {getattr(node, 'lineno', '?')}: {ast.unparse(node)}")

    def fresh(self, prefix: str = "v") -> str:
        self.count += 1
        return f"%{prefix}{self.count}"

    def line(self, text: str) -> None:
        if not self.ended:
            self.lines.append(f"  {text}")

    def value(self, kind: str, text: str) -> Scalar:
        name = self.fresh()
        self.line(f"{name} = {text}")
        return Scalar(kind, name)

    def jump(self, label: str) -> None:
        self.line(f"br label {label}")
        self.ended = True

    def branch(self, test: Scalar, yes: str, no: str) -> None:
        self.line(f"br i1 {test.name}, label {yes}, label {no}")
        self.ended = True

    def start(self, label: str) -> None:
        self.ended = False
        self.lines.append(f"{label[1:]}:")

    # -- statements ---------------------------------------------------------------------------------------------------

    def body(self, statements: Sequence[ast.stmt]) -> None:
        for statement in statements:
            if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                continue  # a docstring
            handler: Callable[[Any], None] | None = getattr(self, f"on_{type(statement).__name__}", None)
            if handler is None:
                raise self.fail(statement)
            handler(statement)

    def on_Expr(self, node: ast.Expr) -> None:  # noqa: N802  # named by the class of the node
        self.expression(node.value)

    def on_Pass(self, node: ast.Pass) -> None:  # noqa: N802
        pass

    def on_Assign(self, node: ast.Assign) -> None:  # noqa: N802
        (target,) = node.targets
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            found = [self.expression(part) for part in node.value.elts]
            for one, value in zip(target.elts, found, strict=True):
                self.assign(one, value)
        else:
            self.assign(target, self.expression(node.value))

    def on_AugAssign(self, node: ast.AugAssign) -> None:  # noqa: N802
        self.assign(
            node.target, self.operation(node, node.op, self.expression(node.target), self.expression(node.value))
        )

    def on_If(self, node: ast.If) -> None:  # noqa: N802
        yes, no, done = self.fresh("yes"), self.fresh("no"), self.fresh("done")
        self.branch(self.test(node.test), yes, no)
        self.start(yes)
        self.body(node.body)
        self.jump(done)
        self.start(no)
        self.body(node.orelse)
        self.jump(done)
        self.start(done)

    def on_While(self, node: ast.While) -> None:  # noqa: N802
        head, inside, done = self.fresh("head"), self.fresh("inside"), self.fresh("done")
        self.jump(head)
        self.start(head)
        self.branch(self.test(node.test), inside, done)
        self.start(inside)
        self.jumps.append((head, done))
        self.body(node.body)
        self.jumps.pop()
        self.jump(head)
        self.start(done)

    def on_For(self, node: ast.For) -> None:  # noqa: N802
        call = node.iter
        if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Name) and call.func.id == "range"):
            raise self.fail(call)
        bounds = [self.expression(argument) for argument in call.args]
        first, last = bounds if len(bounds) == 2 else [Scalar("i64", "0"), *bounds]
        counter = self.fresh("counter")
        self.slots.append(f"  {counter} = alloca i64")
        head, inside, following, done = (self.fresh(name) for name in ("head", "inside", "next", "done"))
        self.line(f"store i64 {first.name}, ptr {counter}")
        self.jump(head)
        self.start(head)
        at = self.value("i64", f"load i64, ptr {counter}")
        self.branch(self.value("i1", f"icmp slt i64 {at.name}, {last.name}"), inside, done)
        self.start(inside)
        self.assign(node.target, at)
        self.jumps.append((following, done))
        self.body(node.body)
        self.jumps.pop()
        self.jump(following)
        self.start(following)
        self.line(f"store i64 {self.value('i64', f'add i64 {at.name}, 1').name}, ptr {counter}")
        self.jump(head)
        self.start(done)

    def on_Return(self, node: ast.Return) -> None:  # noqa: N802
        if node.value is None:
            self.line("ret void")
        else:
            found = self.converted(self.expression(node.value), self.result)
            self.line(f"ret {self.result} {found.name}")
        self.ended = True

    def on_Break(self, node: ast.Break) -> None:  # noqa: N802
        self.jump(self.jumps[-1][1])

    def on_Continue(self, node: ast.Continue) -> None:  # noqa: N802
        self.jump(self.jumps[-1][0])

    # -- places -------------------------------------------------------------------------------------------------------

    def assign(self, target: ast.expr, value: Scalar) -> None:
        if isinstance(target, ast.Name):
            self.store(target.id, value)
        else:
            kind, place = self.place(target)
            self.line(f"store {kind} {self.converted(value, kind).name}, ptr {place}")

    def store(self, name: str, value: Scalar) -> None:
        """Into a local variable, which has the type of what it gets first."""
        if name not in self.locals:
            slot = self.fresh(f"{name}.")
            self.slots.append(f"  {slot} = alloca {value.type}")
            self.locals[name] = value.type, slot
        kind, slot = self.locals[name]
        self.line(f"store {kind} {self.converted(value, kind).name}, ptr {slot}")

    def place(self, node: ast.expr) -> tuple[str, str]:
        """Type and address of a field, or of an element of one."""
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "self":
            at = self.fresh()
            self.line(f"{at} = getelementptr %State, ptr %self, i32 0, i32 {self.index[node.attr]}")
            return self.fields[node.attr], at
        if isinstance(node, ast.Subscript):
            kind, field = self.place(node.value)
            base = self.value("ptr", f"load ptr, ptr {field}, !invariant.load !0")
            kind, index = _ELEMENTS[kind], self.expression(node.slice)
            at = self.fresh()
            self.line(f"{at} = getelementptr {kind}, ptr {base.name}, i64 {index.name}")
            return kind, at
        raise self.fail(node)

    # -- expressions --------------------------------------------------------------------------------------------------

    def expression(self, node: ast.expr) -> Scalar:
        if isinstance(node, ast.Constant):
            return self.constant(node, node.value)
        if isinstance(node, ast.Name):
            if node.id not in self.locals:
                return self.constant(node, self.scope.get(node.id))
            kind, slot = self.locals[node.id]
            return self.value(kind, f"load {kind}, ptr {slot}")
        if isinstance(node, ast.Attribute | ast.Subscript):
            kind, place = self.place(node)
            return self.value(kind, f"load {kind}, ptr {place}")
        if isinstance(node, ast.BinOp):
            return self.operation(node, node.op, self.expression(node.left), self.expression(node.right))
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            found = self.expression(node.operand)
            return self.operation(node, ast.Sub(), self.converted(Scalar("i64", "0"), found.type), found)
        if isinstance(node, ast.IfExp):
            return self.either(node)
        if isinstance(node, ast.Call):
            return self.call(node)
        return self.test(node)

    def constant(self, node: ast.expr, value: object) -> Scalar:
        if type(value) is int:
            return Scalar("i64", str(value))
        if type(value) is float:
            return Scalar("double", f"0x{int.from_bytes(ctypes.c_double(value), sys.byteorder):016X}")
        raise self.fail(node)

    def converted(self, value: Scalar, kind: str) -> Scalar:
        if value.type == kind:
            return value
        if (value.type, kind) == ("i64", "double"):
            return self.value("double", f"sitofp i64 {value.name} to double")
        if (value.type, kind) == ("i1", "i64"):
            return self.value("i64", f"zext i1 {value.name} to i64")
        raise NotUnderstood(f"{value.type} where {kind} is needed")

    def alike(self, a: Scalar, b: Scalar) -> tuple[Scalar, Scalar, str]:
        kind = "double" if "double" in (a.type, b.type) else "i64"
        return self.converted(a, kind), self.converted(b, kind), kind

    def operation(self, node: ast.AST, op: ast.operator, left: Scalar, right: Scalar) -> Scalar:
        a, b, kind = self.alike(left, right)
        if kind == "double":
            if type(op) not in _FLOAT:
                raise self.fail(node)
            return self.value(kind, f"{_FLOAT[type(op)]} double {a.name}, {b.name}")
        if word := _INTEGER.get(type(op)) or _SHIFTS.get(type(op)):
            return self.value(kind, f"{word} i64 {a.name}, {b.name}")
        if isinstance(op, ast.FloorDiv | ast.Mod):
            return self.floored(a.name, b.name, isinstance(op, ast.Mod))
        raise self.fail(node)

    def floored(self, a: str, b: str, rest: bool) -> Scalar:
        """Quotient or rest of a division that rounds down."""
        cut = self.value("i64", f"srem i64 {a}, {b}").name
        signs = self.value("i64", f"xor i64 {cut}, {b}").name
        below = self.value("i1", f"icmp slt i64 {signs}, 0").name
        some = self.value("i1", f"icmp ne i64 {cut}, 0").name
        off = self.value("i1", f"and i1 {below}, {some}").name
        if rest:
            more = self.value("i64", f"select i1 {off}, i64 {b}, i64 0").name
            return self.value("i64", f"add i64 {cut}, {more}")
        less = self.value("i64", f"sext i1 {off} to i64").name
        return self.value("i64", f"add i64 {self.value('i64', f'sdiv i64 {a}, {b}').name}, {less}")

    def either(self, node: ast.IfExp) -> Scalar:
        yes, no, done = self.fresh("yes"), self.fresh("no"), self.fresh("done")
        name = self.fresh("either")[1:]
        self.branch(self.test(node.test), yes, no)
        for label, part in ((yes, node.body), (no, node.orelse)):
            self.start(label)
            self.store(name, self.expression(part))
            self.jump(done)
        self.start(done)
        return self.expression(ast.Name(name))

    def test(self, node: ast.expr) -> Scalar:
        """A condition; numbers are compared with something, never taken as one."""
        if isinstance(node, ast.Compare):
            operands = [self.expression(part) for part in (node.left, *node.comparators)]
            pairs = zip(node.ops, itertools.pairwise(operands), strict=True)
            found = [self.compared(op, *pair) for op, pair in pairs]
            return functools.reduce(lambda a, b: self.value("i1", f"and i1 {a.name}, {b.name}"), found)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.value("i1", f"xor i1 {self.test(node.operand).name}, true")
        if isinstance(node, ast.BoolOp):
            return self.shortened(node)
        if isinstance(node, ast.Name) and self.locals.get(node.id, ("", ""))[0] == "i1":
            return self.expression(node)
        raise self.fail(node)

    def compared(self, op: ast.cmpop, left: Scalar, right: Scalar) -> Scalar:
        a, b, kind = self.alike(left, right)
        word = _TESTS[type(op)]
        if kind == "double":
            return self.value("i1", f"fcmp {'une' if word == 'ne' else 'o' + word} double {a.name}, {b.name}")
        return self.value("i1", f"icmp {word if word in ('eq', 'ne') else 's' + word} i64 {a.name}, {b.name}")

    def shortened(self, node: ast.BoolOp) -> Scalar:
        """`and`, `or`: what comes later is looked at only where it decides."""
        name, done = self.fresh("both")[1:], self.fresh("done")
        for part in node.values:
            found = self.test(part)
            self.store(name, found)
            later = self.fresh("later")
            self.branch(found, *((later, done) if isinstance(node.op, ast.And) else (done, later)))
            self.start(later)
        self.jump(done)
        self.start(done)
        return self.expression(ast.Name(name))

    def call(self, node: ast.Call) -> Scalar:
        values = [self.expression(argument) for argument in node.args]
        function = node.func
        if isinstance(function, ast.Attribute) and isinstance(function.value, ast.Name):
            owner, name = function.value.id, function.attr
            if owner == "self":
                given = ", ".join(["ptr %self", *(f"{value.type} {value.name}" for value in values)])
                if self.results[name] == "void":
                    self.line(f"call void @{name}({given})")
                    return Scalar("void", "")
                return self.value(self.results[name], f"call {self.results[name]} @{name}({given})")
            if owner == "math" and name in _ROUNDINGS:
                (value,) = values
                if value.type == "i64":
                    return value
                rounded = self.value("double", f"call double @llvm.{name}.f64(double {value.name})")
                return self.value("i64", f"fptosi double {rounded.name} to i64")
        if isinstance(function, ast.Name) and function.id in ("min", "max"):
            return functools.reduce(functools.partial(self.extreme, function.id), values)
        if isinstance(function, ast.Name) and function.id == "float":
            return self.converted(values[0], "double")
        if isinstance(function, ast.Name) and function.id == "int":
            return values[0] if values[0].type == "i64" else self.value("i64", f"fptosi double {values[0].name} to i64")
        raise self.fail(node)

    def extreme(self, which: str, left: Scalar, right: Scalar) -> Scalar:
        """Python's: the first of equals."""
        a, b, kind = self.alike(left, right)
        test = self.compared(ast.Lt() if which == "min" else ast.Gt(), b, a)
        return self.value(kind, f"select i1 {test.name}, {kind} {b.name}, {kind} {a.name}")


# -- machine code ------------------------------------------------------------------------------------------------------


def compiled(kind: type, entries: dict[str, Sequence[Any]]) -> dict[str, Callable[..., int]]:
    """Functions of the state's address, and of integers, for the methods named; each returns an integer."""
    import llvmlite.binding as llvm

    llvm.initialize_native_target()
    llvm.initialize_native_asmprinter()
    target = llvm.Target.from_default_triple()
    cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    sources = [inspect.getsource(sys.modules[base.__module__]) for base in (*kind.__mro__[:-1], _Method)]
    digest = hashlib.sha256("\n".join([*sources, repr(llvm.llvm_version_info), cpu, features]).encode()).hexdigest()
    name = f"{digest[:32]}.o"
    image = kept(name)
    if image is None:
        code = target.create_target_machine(cpu=cpu, features=features, opt=2, reloc="pic", codemodel="small", jit=True)
        module = llvm.parse_assembly(text_of(kind, tuple(entries)), llvm.create_context())
        tuning = llvm.create_pipeline_tuning_options(speed_level=1)  # 2 takes twice as long, for code as fast
        tuning.loop_vectorization = tuning.slp_vectorization = tuning.loop_unrolling = False
        passes = llvm.create_pass_builder(code, tuning)
        passes.getModulePassManager().run(module, passes)
        image = code.emit_object(module)
        keep(name, image)
    jit = llvm.create_lljit_compiler(target.create_target_machine(jit=True, codemodel="small", reloc="pic"))
    builder = llvm.JITLibraryBuilder().add_object_img(image).add_current_process()
    for name in entries:
        builder.export_symbol(name)
    library = builder.link(jit, f"{kind.__name__}{digest}")
    found: dict[str, Callable[..., int]] = {}
    for name, arguments in entries.items():
        function = ctypes.CFUNCTYPE(ctypes.c_int64, ctypes.c_void_p, *arguments)(library[name])
        function.keep = jit, library  # type: ignore[attr-defined]  # which own the code
        found[name] = function
    return found
