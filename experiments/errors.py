"""The one error that a user's mistake raises in this package."""


class ExperimentError(ValueError):
    """A case, option or machine that no experiment can use: the message says which, its value and what is allowed, in one line."""


def require(condition: bool, thing: str, value: object, allowed: str) -> None:
    """Raise `ExperimentError` with the house form of the message unless `condition` holds."""
    if not condition:
        raise ExperimentError(f"{thing} is {value!r}; allowed: {allowed}")
