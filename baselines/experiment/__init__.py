"""What an experiment is: from an override string to objects."""
