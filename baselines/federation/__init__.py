"""Federations of sites with their own data: agree, check, provision, submit."""
