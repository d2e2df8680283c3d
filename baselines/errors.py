"""The one exception that a user's mistake ends in."""


class UserError(Exception):
    """A mistake that the user can mend: one line with what is wrong, what was expected, what to do."""
