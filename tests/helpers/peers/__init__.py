"""What the comparisons with other programs share."""
