"""Random input to the commands, and the judge of how they end."""
