"""Build the objects of an experiment from an override string."""
