"""A round around the update rule: client selection, replies, evaluation."""
