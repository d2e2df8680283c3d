"""What a site's owner allows a submitted experiment to do, and a record of what was done."""
