"""`python -m emulator COMMAND`: the emulator for kernels of any origin. Exits 0, 1 with a finding, 2 when something asked for is wrong."""

import argparse
import importlib
import os
import sys

# Whether kernels are interpreted is fixed when triton is imported, which a command's module does.
os.environ["TRITON_INTERPRET"] = "1"

from .errors import EmulatorError

COMMANDS = {
    "check": "run a program of several ranks under many schedules; stop at the first finding",
    "campaign": "break kernels on purpose, rule by rule: is every mistake found?",
    "soak": "run thousands of schedules of correct programs, resumable; keep what was seen in a CSV file",
}


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser(
        prog="python -m emulator", description="Multi-rank Triton kernels under an adversary."
    )
    parsers = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    for name, purpose in COMMANDS.items():
        command = parsers.add_parser(name, help=purpose, description=purpose)
        if argv[:1] == [name]:  # the other's module is not needed
            module = importlib.import_module(
                f".{name}", f"{__package__}.mutants" if name == "campaign" else __package__
            )
            module.configure(command)
    arguments = parser.parse_args(argv)
    try:
        return module.run(arguments)
    except EmulatorError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
