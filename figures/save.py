"""Write a figure: PDF, PNG, SVG and its tidy CSV, the same bytes for the same rows."""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd
from matplotlib.figure import Figure

from artifact.files import replacing

# No dates and no versions in the files, so that a redraw from the CSV is the same file.
_METADATA = {
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
    "png": {"Software": None},
}


def through_csv(rows: pd.DataFrame, path: Path) -> pd.DataFrame:
    """Write the rows and read them back: a figure is always drawn from what its CSV says."""
    with replacing(path) as part:
        rows.to_csv(part, index=False, lineterminator="\n", float_format="%.6g")
    return pd.read_csv(path, keep_default_na=True)


def save(figure: Figure, name: str, folder: Path) -> list[Path]:
    """Write the drawing in three formats; the paths."""
    paths = []
    for suffix, metadata in _METADATA.items():
        path = folder / f"{name}.{suffix}"
        with replacing(path) as part:
            figure.savefig(part, format=suffix, metadata=metadata)
        paths.append(path)
    plt.close(figure)
    return paths
