"""A round around the update rule: whom to ask, what came back, what is evaluated."""
