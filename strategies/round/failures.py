"""What ends a run: too many rounds in a row without a step."""


class TooManyFailedRounds(RuntimeError):
    """Too few nodes replied, or none moved the model, too many rounds in a row."""
