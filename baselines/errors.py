"""Errors that end a run: a user's mistake, or a failure that its log explains."""


class UserError(Exception):
    """A mistake that the user can fix: one line with what is wrong, what was expected, what to do."""

    def __str__(self) -> str:
        """Return the message on one line, even if it quotes libraries' errors."""
        return " ".join(super().__str__().split())


class RunFailed(RuntimeError):
    """A run that did not finish in other programs; the message has the reason and the end of the log."""


class RunDiverged(RunFailed):
    """A run whose last evaluation is not finite; the message has the first such round and the likely cause."""


class JobFailed(Exception):
    """A failed job of a sweep, whose error has been printed.

    Parameters
    ----------
    status : its exit status
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)  # so that it can be pickled
        self.status = status


class DataError(UserError):
    """Data that cannot be used, with one message for their owner and another for everybody else.

    Parameters
    ----------
    line : for the owner of the data, with the details needed to fix them
    public : may leave the owner's machine: a code and a count, such as ``schema: 3 labels are not in the
        schema``; no value, no path, and no column that is not in the schema
    """

    def __init__(self, line: str, public: str) -> None:
        super().__init__(line)
        self.public = public
