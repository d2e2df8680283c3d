"""Benchmarks: each workload beside its limit and its alternatives, in one run.

A limit is the same work as a plain loop that a good engineer would write by hand (``by_hand.py``). Ratios
are what counts: the contenders take turns, so that a busy moment of the machine strikes all of them.
"""
