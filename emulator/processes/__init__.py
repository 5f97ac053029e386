"""Mode `processes`: an OS process a rank, real concurrency, late and reordered delivery."""

from .options import Counts, Options
from .pool import Ranks

__all__ = ["Counts", "Options", "Ranks"]
