"""The one error that a user's mistake raises in this package."""


class ArtifactError(ValueError):
    """A file, option or machine that cannot be used: the message says which, its value and what is allowed, in one line."""


def require(condition: bool, thing: str, value: object, allowed: str) -> None:
    """Raise `ArtifactError` with the house form of the message unless `condition` holds."""
    if not condition:
        raise ArtifactError(f"{thing} is {value!r}; allowed: {allowed}")
