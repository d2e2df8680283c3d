"""Flower Grids: deliver messages to nodes."""
