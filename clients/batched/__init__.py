"""Nodes that train as one program: their parameters lie in one stack."""
