"""splitmix64: the same numbers on every machine, Python and numpy version."""

import numpy as np

_GAMMA = 0x9E3779B97F4A7C15
_MASK = (1 << 64) - 1
_BATCH = 256


class Rng:
    """A stream of 64-bit integers; `stream` gives independent streams for one seed."""

    def __init__(self, seed: int, stream: int = 0):
        self._state = (seed * 0xD1342543DE82EF95 + stream * 0xA0761D6478BD642F + 0x1234567) & _MASK
        self._ready: list[int] = []

    def next(self) -> int:
        """The next integer in [0, 2**64)."""
        if not self._ready:
            steps = np.arange(1, _BATCH + 1, dtype=np.uint64)
            with np.errstate(over="ignore"):
                z = np.uint64(self._state) + steps * np.uint64(_GAMMA)
                z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
                z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
                z = z ^ (z >> np.uint64(31))
            self._state = (self._state + _BATCH * _GAMMA) & _MASK
            self._ready = z[::-1].tolist()
        return self._ready.pop()

    def below(self, n: int) -> int:
        """An integer in [0, n)."""
        return self.next() % n if n > 1 else 0
