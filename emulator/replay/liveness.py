"""Hangs and livelocks in words: who waits for what, and who was to bring it."""

from typing import TYPE_CHECKING

from .report import Report, element, site_text, value_at
from .workgroup import SPINNING

if TYPE_CHECKING:
    from .engine import Run
    from .workgroup import WorkGroup


def hang_report(run: "Run") -> Report:
    """Nobody can go on: the waits-for chain."""
    lines, sites, waits = [], set(), []
    for wg in sorted(run.spinning, key=lambda w: w.key):
        for where, op in wg.waits:
            sites.add(site_text(op.site))
            last = run.memory.messages[where.buf.last.item(where.lo)]
            value = value_at(where.buf, where.lo)
            writer = (
                "nobody has written it"
                if last is None
                else f"last written by {last.thread.name} {site_text(last.site)}{_is(run, last.thread.name)}"
            )
            lines.append(
                f"{wg.name} waits at {site_text(op.site)} for {element(where.buf, where.lo)} = {value}; {writer}"
            )
            waits.append(
                {
                    "who": wg.name,
                    "site": site_text(op.site),
                    "buffer": where.buf.name,
                    "owner": where.buf.rank,
                    "index": where.lo,
                    "value": value,
                }
            )
    for wg in run.meeting.values():
        lines.append(f"{wg.name} waits at {site_text(wg.pending.site)} in nvshmem_barrier_all")
    for host in run.hosts:
        if host.waiting:
            ids = [wg.key[2] for wg in host.waiting]
            lines.append(
                f"rank {host.rank} WG {ids[0]}{f' to {ids[-1]}' if len(ids) > 1 else ''} have not started: "
                f"only {run.options.resident} work-groups are resident and none of them ends"
            )
        elif host.asked in ("barrier", "exchange"):
            ended = [h.rank for h in run.hosts if h.finished]
            lines.append(
                f"{host.name} waits in {host.asked}"
                + (f"; rank {', '.join(map(str, ended))} has ended" if ended else "")
            )
    starved = any(host.waiting for host in run.hosts)
    text = "nobody can go on\n  " + "\n  ".join(lines)
    return Report("hang", text, run.seed, tuple(sorted(sites)), {"waits": waits, "not_started": starved})


def _is(run: "Run", name: str) -> str:
    """What the writer itself does now."""
    wg = next((w for w in run.spinning if w.name == name), None)
    return ", which waits too" if wg is not None else ""


def livelock_report(run: "Run") -> Report:
    """Too many operations: where each work-group is."""
    alive: list[WorkGroup] = [wg for host in run.hosts for wg in host.groups if wg.pending is not None]
    lines = [
        f"{wg.name} is at {site_text(wg.pending.site)} ({wg.pending.name}) after {wg.count} operations"
        + (", spinning" if wg.state == SPINNING else "")
        for wg in alive
    ]
    sites = tuple(sorted({site_text(wg.pending.site) for wg in alive}))
    text = f"no end after {run.steps} operations\n  " + "\n  ".join(lines)
    return Report("livelock", text, run.seed, sites, {"steps": run.steps})
