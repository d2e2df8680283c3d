"""Reproduce a paper's table: plan its runs, run what is missing, and write ours beside the paper's.

Read ``__main__.py`` first, then ``plan.py``.
"""
