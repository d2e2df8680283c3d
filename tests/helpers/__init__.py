"""What several tests use: small federations, runs in this process, plain loops to compare with.

``tests/`` is on the path of pytest, so that a test writes ``from helpers.runs import launch``.
"""
