"""Exactness: where and how far results are from exact arithmetic, why two machines differ, and what helps."""
