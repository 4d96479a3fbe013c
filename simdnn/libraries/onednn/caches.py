"""Bytes of a core's caches that oneDNN 3.13's estimates count on; `FIRST` and `SECOND` of CPUs with tiles."""


def counted_on(first: int, second: int) -> tuple[int, int]:
    """The bytes that count of a first and a second cache; the library reads their sizes from the CPU, AMD's too.

    >>> counted_on(32 * 1024, 512 * 1024)
    (28672, 393216)
    """
    return first * 7 // 8, second * 3 // 4


FIRST_LEVEL, SECOND_LEVEL = 48 * 1024, 2048 * 1024
FIRST, SECOND = counted_on(FIRST_LEVEL, SECOND_LEVEL)
FIRST_BESIDE_TILES = FIRST_LEVEL * 5 // 6
