"""What the server and the nodes have in common; all that ``clients`` may import from here."""
