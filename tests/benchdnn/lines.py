"""Words of benchdnn's command line read, and answered."""

from __future__ import annotations

from typing import Any

from simdnn.benchdnn import Answer, answer, read


def cases(*words: str) -> list[Any]:
    return [case for line in read(words) for case in line.cases()]


def texts(*words: str) -> list[str]:
    return [case.text for case in cases(*words)]


def answers(*words: str) -> list[Answer]:
    return [answer(case) for case in cases(*words)]
