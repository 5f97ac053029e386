"""What the tests of trials run in a process that interprets kernels: prints one JSON line. argv: folder of the tiny subject."""

import json
import sys
from dataclasses import asdict

sys.path.insert(0, sys.argv[1])

from emulator import EmulatorError
from emulator.mutants import mutate
from emulator.mutants.loader import override, source_of
from emulator.mutants.reach import marked, reached
from emulator.mutants.subjects import LaunchMutant, Subject
from emulator.mutants.trial import reach, trial


def subject(program: str, *args: object) -> Subject:
    return Subject("tiny", f"tiny.programs:{program}", args, 2, 2, ("tiny.kernel",), heap_bytes=1 << 16)


def attacked(
    program: str, sources: dict[str, str], change: LaunchMutant | None = None, *args: object, limit_s: float = 60
) -> list:
    outcomes = trial(subject(program, *args), sources, change, ("races", "weak", "sc"), 30, 10, 5, limit_s)
    for outcome in outcomes:
        assert outcome.time_s >= 0
    return [{k: v for k, v in asdict(o).items() if k != "time_s"} for o in outcomes]


def refused(task: object) -> str:
    try:
        task()
    except EmulatorError as error:
        return str(error)
    return ""


def overridden() -> dict:
    import importlib

    found = {}
    with override({"tiny.numbers": "VALUE = 2\n"}):
        import tiny.numbers

        found["inside"] = tiny.numbers.VALUE
        found["twice"] = refused(lambda: override({"tiny.numbers": ""}).__enter__())
    found["left"] = "tiny.numbers" in sys.modules
    found["after"] = importlib.import_module("tiny.numbers").VALUE
    found["loaded"] = refused(lambda: override({"tiny.numbers": ""}).__enter__())
    for name in [n for n in sys.modules if n.startswith("tiny")]:
        del sys.modules[name]
    try:
        with override({"tiny.numbers": "VALUE = 2\n"}):
            import tiny.numbers

            raise KeyError
    except KeyError:
        found["after_error"] = "tiny.numbers" in sys.modules
    found["unknown"] = refused(lambda: source_of("tiny.nothing"))
    return found


def main() -> None:
    source = source_of("tiny.kernel")
    assert "tiny.kernel" not in sys.modules
    mutants = {m.name.partition(":")[0]: m for m in mutate(source)}
    found = {"override": overridden()}
    lines = reach(subject("push"), {"tiny.kernel": source})["tiny.kernel"]
    found["reached"] = {m.name.partition(":")[0]: reached(source, m.line, lines) for m in mutate(source)}
    found["marked"] = marked(source).count("_reached_lines.add")
    found["unchanged"] = attacked("push", {})
    # Modules of the unchanged run stay; a campaign gives each trial a process of its own.
    found["not fresh"] = refused(lambda: attacked("push", {"tiny.kernel": source}))
    for name in [n for n in sys.modules if n.startswith("tiny")]:
        del sys.modules[name]
    for rule in ("release_to_relaxed@push", "drop_barrier@push", "drop_wait@push"):
        found[rule] = attacked("push", {"tiny.kernel": mutants[rule].source})
    found["invalid"] = attacked("push", {"tiny.kernel": source.replace("tl.arange", "tl.nothing")})
    found["refuses"] = attacked("too_many", {})
    found["first seed"] = trial(subject("push"), {}, None, ("races",), 3, 0, 100, 60)[0].seeds_tried
    found["limit"] = trial(subject("push"), {}, None, ("races",), 10_000, 0, 0, 0.05)[0].seeds_tried
    found["launch"] = attacked("push", {}, LaunchMutant("other_value", {"VALUE": 8}))
    found["residency"] = attacked("push_two", {}, LaunchMutant("one_resident", {}, resident=1))
    print(json.dumps(found))


main()
