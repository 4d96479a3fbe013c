"""Loops in decoded code, found in its control flow: which are there, how deep, and the way round each.

Loops are those of P. Havlak, "Nesting of reducible and irreducible loops" (TOPLAS 19, 1997): a depth-first search
numbers the blocks, and from the last block back each one gathers those that reach its back edges.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import iced_x86 as iced

_F = iced.FlowControl
_BRANCHES = (_F.CONDITIONAL_BRANCH, _F.UNCONDITIONAL_BRANCH)
ENDS = (_F.RETURN, _F.INDIRECT_BRANCH, _F.EXCEPTION)  # nothing follows that is known


@dataclass(frozen=True)
class LoopPath:
    """The way round a loop: indices of instructions in their order, none where other loops are in it."""

    path: tuple[int, ...]
    depth: int  # 1 for one in no other
    is_innermost: bool
    has_one_entry: bool


class Flow:
    """The basic blocks of some code, and which follow each, the next in place first."""

    def __init__(self, code: Sequence[Any]) -> None:
        self.code = code
        place = {one.ip: index for index, one in enumerate(code)}
        first, behind = code[0].ip, code[-1].next_ip
        starts = {0}
        self.astray: list[int] = []  # bytes at which branches stand that go to the middle of an instruction
        jumps: dict[int, int] = {}
        for index, one in enumerate(code):
            if (flow := one.flow_control) == _F.NEXT:
                continue
            if flow in _BRANCHES:
                target = one.near_branch_target
                if target in place:
                    jumps[index] = place[target]
                    starts.add(place[target])
                elif first < target < behind:
                    self.astray.append(one.ip - first)
            if flow in _BRANCHES or flow in ENDS:
                starts.add(index + 1)
        self.starts = sorted(start for start in starts if start < len(code))
        self.ends = [*self.starts[1:], len(code)]
        block_of = {start: number for number, start in enumerate(self.starts)}
        self.next: list[list[int]] = []
        for number, end in enumerate(self.ends):
            flow = code[end - 1].flow_control
            falls = flow != _F.UNCONDITIONAL_BRANCH and flow not in ENDS and end < len(code)
            following = [number + 1] if falls else []
            if end - 1 in jumps and (target := block_of[jumps[end - 1]]) not in following:
                following.append(target)
            self.next.append(following)

    def instructions(self, blocks: Sequence[int]) -> tuple[int, ...]:
        return tuple(index for block in blocks for index in range(self.starts[block], self.ends[block]))

    def loops(self) -> list[LoopPath]:
        """All loops, each before those in it."""
        members, entered = _members(self.next)
        inside = {block: head for head, blocks in members.items() for block in blocks}
        depth: dict[int, int] = {}
        found = []
        for head in reversed(members):  # outer ones before those in them
            depth[head] = depth[inside[head]] + 1 if head in inside else 1
            innermost = not any(block in members for block in members[head])
            path = self.instructions(self._way(head, members[head] | {head})) if innermost else ()
            found.append(LoopPath(path, depth[head], innermost, head not in entered))
        return found

    def _way(self, head: int, blocks: set[int]) -> list[int]:
        """Once round a loop, from the first of its addresses on; a branch with both ways in the loop is not taken."""
        way, seen = [head], {head: 0}
        while onward := [block for block in self.next[way[-1]] if block in blocks]:
            if onward[0] in seen:
                way = way[seen[onward[0]] :]
                break
            seen[onward[0]] = len(way)
            way.append(onward[0])
        first = way.index(min(way))
        return way[first:] + way[:first]

    def from_entry(self) -> tuple[int, ...]:
        """The instructions from the first on, no branch taken but those that must be, to where that ends."""
        way = {0: None}
        last = 0
        while (onward := self.next[last]) and onward[0] not in way:
            last = onward[0]
            way[last] = None
        return self.instructions(list(way))


def _members(following: Sequence[Sequence[int]]) -> tuple[dict[int, set[int]], set[int]]:
    """The blocks directly in each loop, by its head, and the heads of loops that are also entered elsewhere.

    Of an inner loop its head alone is among the blocks.
    """
    order, number, last, tree = _search(following)
    before: list[list[int]] = [[] for _ in following]
    for block, targets in enumerate(following):
        for target in targets:
            before[target].append(block)
    whole = list(range(len(following)))  # union-find: the head of the outermost loop found so far

    def head_of(block: int) -> int:
        while whole[block] != block:
            whole[block] = whole[whole[block]]
            block = whole[block]
        return block

    members: dict[int, set[int]] = {}
    entered: set[int] = set()
    for head in reversed(order):
        back = [b for b in before[head] if number[head] <= number[b] <= last[head]]
        if not back:
            continue
        inside = {head_of(block) for block in back} - {head}
        work, elsewhere = list(inside), False
        while work:
            for block in before[work.pop()]:
                one = head_of(block)
                if tree[one] != tree[head]:  # padding that falls into the loop, and that nobody reaches
                    continue
                if not number[head] <= number[one] <= last[head]:
                    elsewhere = True
                elif one != head and one not in inside:
                    inside.add(one)
                    work.append(one)
        if elsewhere:
            entered.add(head)
        for block in inside:
            whole[block] = head
        members[head] = inside
    return members, entered


def _search(following: Sequence[Sequence[int]]) -> tuple[list[int], list[int], list[int], list[int]]:
    """A depth-first search from each block not yet seen: blocks in order; their numbers, last descendants, roots."""
    number, last, tree = ([-1] * len(following) for _ in range(3))
    order: list[int] = []
    for root in range(len(following)):
        if number[root] >= 0:
            continue
        stack: list[tuple[int, Iterator[int]]] = []
        new: int | None = root
        while new is not None or stack:
            if new is not None:
                number[new], tree[new] = len(order), root
                order.append(new)
                stack.append((new, iter(following[new])))
            block, onward = stack[-1]
            new = next((target for target in onward if number[target] < 0), None)
            if new is None:
                last[block] = len(order) - 1
                stack.pop()
    return order, number, last, tree
