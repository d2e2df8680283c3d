"""Flower's quickstart for PyTorch."""
