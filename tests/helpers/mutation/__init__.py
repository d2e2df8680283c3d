"""scripts/mutate."""
