"""Flower Grids: how messages reach the nodes."""
