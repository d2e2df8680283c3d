"""A sweep as one HTML page that needs no server and no network: python -m baselines.compare --html."""
