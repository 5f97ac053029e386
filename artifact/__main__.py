"""`python -m artifact COMMAND`: doctor, claims, operators, config, documents, lock, package."""

import sys
from importlib import import_module

COMMANDS = {
    "doctor": "what this machine can run, what is skipped, and why",
    "claims": "judge the claims on result files (what `snakemake claims` runs)",
    "operators": "list the registered PyTorch operators",
    "config": "check a configuration, or write schema.json, README.md and config.yaml anew",
    "documents": "make the generated parts of README and appendix anew, or check them",
    "lock": "make requirements.lock and environment.yml from the installed packages, or check them",
    "package": "one archive with checksums and RO-Crate metadata",
}
MODULES = {"claims": "judge"}


def main(arguments: list[str] | None = None) -> int:
    given = sys.argv[1:] if arguments is None else arguments
    if not given or given[0] in ("-h", "--help"):
        print(__doc__)
        for name, words in COMMANDS.items():
            print(f"  {name:10} {words}")
        return 0
    if given[0] not in COMMANDS:
        print(f"error: command is {given[0]!r}; allowed: {', '.join(COMMANDS)}", file=sys.stderr)
        return 2
    return int(import_module(f".{MODULES.get(given[0], given[0])}", __package__).main(given[1:]))


if __name__ == "__main__":
    sys.exit(main())
