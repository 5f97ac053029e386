"""`python -m artifact.execute_notebook`: run the notebook (jupytext source) from the repository's root; IPYNB and HTML out."""

import argparse
import os
import re
import sys
from pathlib import Path

import jupytext
import nbclient
import nbformat
from nbconvert import HTMLExporter

from .errors import ArtifactError
from .files import ROOT, write_text

SOURCE = Path(__file__).with_name("notebook.py")
CELL_TIMEOUT_S = 300


def execute(run: Path) -> tuple[str, str]:
    """(notebook JSON, HTML) of the executed notebook. Raises `ArtifactError` with the first error of a cell."""
    os.environ["FUSEDCC_RUN"] = str(run)
    os.environ.setdefault("JUPYTER_PLATFORM_DIRS", "1")
    notebook = jupytext.read(SOURCE, fmt="py:percent")
    notebook.metadata["kernelspec"] = {"name": "python3", "display_name": "Python 3", "language": "python"}
    client = nbclient.NotebookClient(
        notebook, timeout=CELL_TIMEOUT_S, kernel_name="python3", resources={"metadata": {"path": str(ROOT)}}
    )
    try:
        client.execute()
    except nbclient.exceptions.CellExecutionError as error:
        raise ArtifactError(f"notebook: {error.ename}: {error.evalue}") from None
    return nbformat.writes(notebook), page(notebook)


def page(notebook: nbformat.NotebookNode) -> str:
    """A notebook as one HTML page that asks for nothing from the network."""
    exporter = HTMLExporter(template_name="classic", embed_images=True)
    exporter.exclude_input_prompt = True
    exporter.mathjax_url = ""
    html, _ = exporter.from_notebook_node(notebook)
    # jQuery, require.js and mermaid would be fetched (or, without an address, the page itself as a script); nothing here needs them.
    return re.sub(r'<script src="[^"]*"></script>|<script type="module">.*?</script>', "", html, flags=re.DOTALL)


def main(arguments: list[str] | None = None) -> int:
    p = argparse.ArgumentParser(prog="python -m artifact.execute_notebook", description=__doc__)
    p.add_argument("--run", type=Path, required=True, help="folder of the run, such as results/emulator")
    p.add_argument("--out", type=Path, required=True)
    p.add_argument("--html", type=Path, required=True)
    options = p.parse_args(arguments)
    try:
        notebook, html = execute(options.run)
        write_text(options.out, notebook)
        write_text(options.html, html)
    except ArtifactError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(f"notebook: {options.html}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
