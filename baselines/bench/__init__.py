"""Benchmarks: measure each workload beside its limit and its alternatives, in one run.

A limit is the same work as a plain loop that a good engineer would write by hand (``by_hand.py``). Ratios
matter most: contenders are measured alternately, so that a busy machine affects all of them.
"""
