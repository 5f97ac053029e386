"""The one error that a user's mistake raises in this package."""


class ProblemError(ValueError):
    """A problem that no kernel can run: the message names the thing, its value and what is allowed, in one line."""


def require(condition: bool, thing: str, value: object, allowed: str) -> None:
    """Raise `ProblemError` with the house form of the message unless `condition` holds."""
    if not condition:
        raise ProblemError(f"{thing} is {value!r}; allowed: {allowed}")


WORLD_SIZES = (1, 2, 4, 8)


def require_world_size(world_size: int) -> None:
    """Every operator is verified at these world sizes and refuses the others."""
    require(world_size in WORLD_SIZES, "world_size", world_size, "1, 2, 4 or 8")
