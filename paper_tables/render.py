"""One frame as .tex (booktabs), .md, .html and .csv: the same cells in all four."""

from pathlib import Path

import pandas as pd

from artifact.files import replacing, write_text

_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title><style>
body {{ font: 14px/1.4 sans-serif; margin: 1em; color: #222 }}
table {{ border-collapse: collapse }}
thead th {{ position: sticky; top: 0; background: #fff; border-top: 2px solid; border-bottom: 1px solid; text-align: left }}
tbody {{ border-bottom: 2px solid }}
th, td {{ padding: .25em .7em; vertical-align: top; max-width: 32em }}
tbody tr:nth-child(even) {{ background: #f5f5f5 }}
</style></head><body>
{table}
</body></html>
"""


def texts(frame: pd.DataFrame) -> pd.DataFrame:
    """Cells as they are shown: numbers to four significant digits, nothing for a missing one."""

    def cell(value: object) -> str:
        if value is None or (isinstance(value, float) and pd.isna(value)) or value is pd.NA:
            return ""
        return (
            f"{value:.4g}"
            if isinstance(value, float) and not float(value).is_integer()
            else f"{value:g}"
            if isinstance(value, float)
            else str(value)
        )

    return frame.map(cell)


def write(frame: pd.DataFrame, name: str, folder: Path) -> None:
    """Write the four forms, each whole or not at all. `name` without a suffix."""
    shown = texts(frame)
    with replacing(folder / f"{name}.csv") as part:
        frame.to_csv(part, index=False, lineterminator="\n", float_format="%.6g")
    write_text(folder / f"{name}.md", shown.to_markdown(index=False, disable_numparse=True) + "\n")
    table = shown.to_html(index=False, border=0)
    write_text(folder / f"{name}.html", _PAGE.format(title=name, table=table))
    titled = shown.rename(columns=lambda c: str(c).replace("_", r"\_").replace("%", r"\%"))
    style = titled.style.hide(axis="index").format(escape="latex")
    write_text(folder / f"{name}.tex", style.to_latex(hrules=True))
