"""A site: what its owner lets a submitted experiment do, and what it has done."""
