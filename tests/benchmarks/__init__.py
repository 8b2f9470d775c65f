"""Benchmarks: programs that print ratios measured side by side; no test asserts a time."""
