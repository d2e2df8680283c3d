"""Batched nodes: their parameters lie in one stack."""
