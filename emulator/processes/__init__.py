"""Mode `processes`: an OS process a rank, real concurrency, late and reordered delivery."""

from .options import Counts, Options
from .pool import Ranks
from .programs import name_of

__all__ = ["Counts", "Options", "Ranks", "name_of"]
