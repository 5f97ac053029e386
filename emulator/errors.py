"""Everything that can go wrong in the emulator: each error is one readable text, and pickles, so that it can cross processes."""


class EmulatorError(ValueError):
    """Base of all; also raised itself for wrong arguments (one line: the thing, its value, what is allowed)."""


class ProgramFailed(EmulatorError):
    """The program or a kernel of one rank raised; the text names rank, work-group, source line and the exception."""


class RankDied(EmulatorError):
    """A rank's process ended without a word (killed, exited, crashed); the text names the rank and how it ended."""


class Hang(EmulatorError):
    """No rank makes progress; the text says which work-group of which rank waits where, for what, and what it sees."""


class OutOfHeap(EmulatorError):
    """A symmetric allocation, or the heaps themselves, do not fit; the text names size and limit."""


class TooManyWorkGroups(EmulatorError):
    """A kernel whose work-groups wait for one another was launched with more of them than can be resident."""


class BadAddress(EmulatorError):
    """A kernel used an address that this rank may not touch: past a heap's end, or mapped by another rank only."""


class RaceFound(EmulatorError):
    """Replay mode: two accesses are not ordered; the text names both and what is missing."""


class Unsupported(EmulatorError):
    """Inline assembly or an external function that has no emulation; the text says where to register one."""
