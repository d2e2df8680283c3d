"""Errors that end a run: a user's mistake, or a failure that its log explains."""


class UserError(Exception):
    """A mistake that the user can fix: one line with what is wrong, what was expected, what to do."""

    def __str__(self) -> str:
        """Return the line, whatever libraries it quotes."""
        return " ".join(super().__str__().split())


class RunFailed(RuntimeError):
    """A run that other programs carried out and did not finish: what happened, and the end of the log."""


class RunDiverged(RunFailed):
    """A run whose last evaluation is not finite: since which round, and the likely cause."""


class JobFailed(Exception):
    """A job of a sweep that failed and has said why.

    Parameters
    ----------
    status : the exit status that it stands for
    """

    def __init__(self, status: int) -> None:
        super().__init__(status)  # so that it travels between processes
        self.status = status


class DataError(UserError):
    """Data that cannot be used: one line for whoever holds them, another for everybody else.

    Parameters
    ----------
    line : for the owner of the data, with what they need to mend it
    public : what may leave the owner's machine: a code and a count, such as ``schema: 3 labels are not in
        the schema``; no value, no path, no column that the schema does not name
    """

    def __init__(self, line: str, public: str) -> None:
        super().__init__(line)
        self.public = public
