"""Bytes of caches that oneDNN 3.13's estimates count on, of CPUs with 48 KiB and 2 MiB a core, and what they fill."""

FIRST_LEVEL, SECOND_LEVEL = 48 * 1024, 2048 * 1024
FIRST, SECOND = FIRST_LEVEL * 7 // 8, SECOND_LEVEL * 3 // 4
FIRST_BESIDE_TILES = FIRST_LEVEL * 5 // 6
