"""Programs that end badly, in the place of verification's own."""

import os
from typing import Any


def kill_rank_one(symm: Any, operator: str, case: dict, fault: str = "") -> list:
    """Rank 1 dies as by a signal while the others wait."""
    if symm.rank == 1:
        os.kill(os.getpid(), 9)
    symm.barrier()
    return []
