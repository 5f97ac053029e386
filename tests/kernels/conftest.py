"""What the tests of the build share: one build of `build_kernels`, made once."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from kernels.build import builder, targets

sys.path.append(str(Path(__file__).parent))


@dataclass(frozen=True)
class Built:
    """Rows and assembly of every kernel of `build_kernels` on every target."""

    folder: Path
    report: builder.Report

    def row(self, kernel: str, target: str) -> dict[str, Any]:
        return next(row for row in self.report.rows if (row["kernel"], row["target"]) == (kernel, target))

    def assembly(self, kernel: str, target: str) -> str:
        return (self.folder / f"{kernel}.{target}.{targets.get(target).assembly}").read_text()

    def findings(self, kernel: str, target: str) -> list[str]:
        return [f for f in self.report.findings if f.startswith(f"{kernel} {target} ")]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    folder = tmp_path_factory.mktemp("assembly")
    pairs = [pair for pair in builder.select("build_kernels", None, None) if pair[0].kernel != "too_big"]  # slow
    return Built(folder, builder.build(pairs, "build_kernels", folder))
