"""A site: what its owner allows a submitted experiment to do, and a record of what was done."""
