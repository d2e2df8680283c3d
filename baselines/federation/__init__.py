"""Federations of sites with data of their own: what is agreed, checked, provisioned and submitted."""
