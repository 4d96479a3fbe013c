"""How many random examples a property is tried on: as many as its test says under `thorough`, a part under `quick`."""

from __future__ import annotations

from hypothesis import settings

THOROUGH = 60  # examples of a property that names no number
QUICK = 12
LEAST = 2


def examples(thorough: int) -> settings:
    """Settings of a test of so many examples, fewer where the profile loaded tries fewer.

    Each example of a few tests costs a second, so every test names what it deserves, and the profile scales all.
    """
    return settings(max_examples=max(LEAST, thorough * settings.default.max_examples // THOROUGH))
