"""Lanes of a vector at places that vary, in LLVM: a function over memory that takes one after the other.

Of an element at such a place LLVM makes a copy of the whole vector in memory, each time, and looks through all copies
at each: code for 32 lanes of a table took a minute to compile where a function has many.
"""

from __future__ import annotations

_TEXT = """define internal {result} @{name}({table} %table, {index} %index) nounwind {{
entry:
  %from = alloca {table}, align 64
  %at = alloca {index}, align 64
  %to = alloca {result}, align 64
  store {table} %table, ptr %from, align 64
  store {index} %index, ptr %at, align 64
  br label %lane
lane:
  %i = phi i64 [ 0, %entry ], [ %next, %lane ]
  %place = getelementptr {place}, ptr %at, i64 %i
  %number = load {place}, ptr %place
  %wide = {wide}
  %source = getelementptr {lane}, ptr %from, i64 %wide
  %item = load {lane}, ptr %source
  %target = getelementptr {lane}, ptr %to, i64 %i
  store {lane} %item, ptr %target
  %next = add i64 %i, 1
  %more = icmp ult i64 %next, {lanes}
  br i1 %more, label %lane, label %done
done:
  %found = load {result}, ptr %to, align 64
  ret {result} %found
}}"""


def lookup_function(table: int, lane: str, lanes: int, place: str) -> tuple[str, str]:
    """The name and the definition of a function that looks `lanes` places up in a table of an LLVM type's lanes.

    >>> lookup_function(4, "float", 8, "i32")[0]
    'lookup.4.float.8.i32'
    """
    name = f"lookup.{table}.{lane}.{lanes}.{place}"
    wide = "add i64 %number, 0" if place == "i64" else f"zext {place} %number to i64"
    vectors = {
        "table": f"<{table} x {lane}>",
        "index": f"<{lanes} x {place}>",
        "result": f"<{lanes} x {lane}>",
    }
    return name, _TEXT.format(name=name, lane=lane, lanes=lanes, place=place, wide=wide, **vectors)
