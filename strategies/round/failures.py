"""What ends a round without a step, and a run: too many such rounds in a row."""


class NoStep(Exception):
    """Why a round takes no step."""


class TooManyFailedRounds(RuntimeError):
    """Too few nodes replied, or none moved the model, too many rounds in a row."""
