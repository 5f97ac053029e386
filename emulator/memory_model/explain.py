"""Why no happens-before leads from one access to another, in words: which flag could have ordered them, and what it lacks."""

from dataclasses import replace

from .memory import Memory
from .order import Scope, Sem, Thread, inclusive
from .races import Conflict

_SCOPE = {Scope.CTA: "block", Scope.GPU: "gpu", Scope.SYS: "system"}


def missing_order(memory: Memory, conflict: Conflict, place) -> str:
    """One clause. `place(message)` names a flag with its site, e.g. "`ready[3]` (gemv.py:90)"."""
    a, b = conflict.earlier, conflict.later
    if a is None:
        return "no rank has stored there"
    if conflict.kind == "lanes":
        return "different threads of the work-group may do them, and no block barrier is between"
    if conflict.kind == "scope":
        return f"their scopes ({_SCOPE[a.scope]} and {_SCOPE[b.scope]}) do not include each other's thread"
    if (a.thread.rank, a.thread.block) == (b.thread.rank, b.thread.block) and a.thread.role != "host":
        return "different threads of the work-group do them, and no block barrier is between"
    if b.thread.role in ("nic", "async") and b.thread.name.startswith(f"{a.thread.name} "):
        return "one thread of the work-group issues the copy, and no block barrier is between"
    if (a.sem is Sem.PLAIN) != (b.sem is Sem.PLAIN):
        plain, strong = (a, b) if a.sem is Sem.PLAIN else (b, a)
        return f"{plain.thread.name} accesses with a plain {plain.op} what {strong.thread.name} uses as a flag, which orders nothing"
    if a.thread.role == "nic" and a.op.endswith("(source)"):
        return "the put may still be reading its source: no quiet before"
    if a.thread.role == "nic":
        return "the put was issued but nothing waited for it: no quiet, no fence before the flag, no signal of its own"
    if a.thread.role == "async":
        return "the asynchronous store was still in flight: no full wait by its issuer before the flag"
    flags = [entry for t in _mates(memory, a.thread) for entry in t.log if entry[0] == "wrote" and _after(entry, t, a)]
    reads = [(t, entry) for t in _mates(memory, b.thread) for entry in t.log if entry[0] == "read"]
    if not flags:
        return f"{a.thread.name} has raised no flag after it"
    found = _pair(flags, reads)
    if found is None:  # through somebody in between: who has read a flag of the first?
        reads = [
            (t, e)
            for t in memory.threads
            if t is not a.thread
            for e in t.log
            if e[0] == "read" and e[1].thread is not t
        ]
        found = _pair(flags, reads)
        if found is not None:
            b = replace(b, thread=found[1])
    if found is not None:
        return _weakness(a, b, *found, place)
    return f"{b.thread.name} has read no flag that {a.thread.name} raised after it (the next one: {place(flags[0][1])})"


def _pair(flags: list, reads: list) -> tuple | None:
    """A flag that was raised and a read of it, or of a write that came after it: (flag, reader, message read, order, scope)."""
    for fits in (lambda message, flag: message is flag, _carries):  # the flag itself says more than what came after it
        for _, flag, *_ in flags:
            for reader, (_, message, how, reach, *_) in reads:
                if fits(message, flag):
                    return flag, reader, message, how, reach
    return None


def _mates(memory: Memory, t: Thread) -> list[Thread]:
    return [x for x in memory.threads if x.rank == t.rank and x.block == t.block and x.block is not None] or [t]


def _after(entry, t: Thread, a) -> bool:
    """Whether the flag was written after the access (exactly for the same thread; by time for its mates)."""
    _, flag, *_, clock = entry
    return clock >= a.clock if t is a.thread else flag.time >= a.time


def _carries(message, flag) -> bool:
    """Whether the message came after the flag in its location and so may carry on its release."""
    return message.where.buf is flag.where.buf and message.where.lo == flag.where.lo and message.id > flag.id


def _weakness(a, b, flag, reader: Thread, message, how: Sem, reach: Scope, place) -> str:
    """What is wrong with the pair (flag written, flag read) that should have ordered a before b."""
    name = place(flag)
    covering = [r for r in flag.records if r.vc[a.thread.index] >= a.clock]
    if not flag.records:
        return f"the flag {name} was written relaxed, with no fence before it"
    if not covering:
        return f"no block barrier is between the access and the release of the flag {name}, which is done by another thread"
    narrow = next((r for r in covering if not inclusive(r.scope, r.thread, Scope.SYS, reader)), None)
    if narrow is not None and len(covering) == 1:
        return f"the flag {name} was released at {_SCOPE[narrow.scope]} scope, and {reader.name} is {_far(narrow.thread, reader)}"
    if not inclusive(flag.scope, flag.thread, Scope.SYS, reader):
        return f"the flag {name} was written at {_SCOPE[flag.scope]} scope, and {reader.name} is {_far(flag.thread, reader)}"
    if message is not flag and not any(r in message.records for r in covering):
        return f"the release of the flag {name} is not carried on by the write {place(message)} that was read instead"
    if not how.acquires:
        return f"{reader.name} read the flag {name} without acquiring it, and with no fence after it"
    if not inclusive(reach, reader, Scope.SYS, flag.thread):
        return f"{reader.name} acquired the flag {name} at {_SCOPE[reach]} scope, and it was written {_far(reader, flag.thread)}"
    if reader is not b.thread:
        return f"the flag {name} was acquired by one thread of {reader.name}, with no block barrier before the access by another"
    return f"the flag {name} was read only after it"


def _far(one: Thread, other: Thread) -> str:
    return "on another gpu" if one.rank != other.rank else "in another work-group"
