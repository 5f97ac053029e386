"""The report and the notebook in a real browser: figures are drawn, nothing is asked from the network, the console is clean.

A second script is put into a copy of the page: it opens every result as a reader would and leaves what it finds in the document's text.
"""

import base64
import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import nbformat
import pytest

from artifact import execute_notebook
from artifact.files import ROOT

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no chromium here (Debian: apt-get install chromium)")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--virtual-time-budget=20000", "--enable-logging=stderr", "--v=0",
    "--host-resolver-rules=MAP * ~NOTFOUND",
)  # fmt: skip
# What Snakemake's own page says on the console whatever it holds.
KNOWN = ("cdn.tailwindcss.com should not be used in production",)
PROBE = """
<script>
window.addEventListener('load', () => setTimeout(() => {
  const asked = performance.getEntriesByType('resource').map(e => e.name).filter(n => !/^(data|blob|file):/.test(n));
  const sizes = [...document.images].map(i => [i.naturalWidth, i.naturalHeight]);
  const drawn = [...document.querySelectorAll('svg')].map(s => s.getBoundingClientRect()).map(r => [r.width, r.height]);
  const found = {asked, sizes, drawn, words: document.body.innerText.length,
                 results: typeof results === 'undefined' ? null : Object.fromEntries(Object.entries(results).map(([k, v]) => [k, v.data_uri]))};
  const text = document.createElement('pre');
  text.id = 'probe';
  text.textContent = btoa(unescape(encodeURIComponent(JSON.stringify(found))));
  document.body.appendChild(text);
}, 3000));
</script>
"""


def opened(page: str, folder: Path) -> tuple[dict, list[str]]:
    """(what the probe found, lines of the console) of a page."""
    copy = folder / "page.html"
    at = page.rindex("</body>")
    copy.write_text(page[:at] + PROBE + page[at:])
    done = subprocess.run(
        [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", "--dump-dom", copy.as_uri()],
        capture_output=True, text=True, timeout=120, check=False, env=os.environ | {"HOME": str(folder)},
    )  # fmt: skip
    probe = re.search(r'<pre id="probe">([^<]*)</pre>', done.stdout)
    assert probe, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line and not any(k in line for k in KNOWN)]
    return json.loads(base64.b64decode(probe.group(1))), console


def image(uri: str, folder: Path) -> list[int]:
    """Natural size of a figure that a page holds."""
    folder.mkdir()
    found, _ = opened(f'<html><body><img src="{uri}"></body></html>', folder)
    return found["sizes"][0]


def check_report(page: str, figures: set[str], folder: Path) -> None:
    found, console = opened(page, folder)
    assert found["asked"] == [] and console == []
    assert found["words"] > 100 and found["results"] is not None
    assert figures <= {Path(name).name for name in found["results"]}
    svg = {name: uri for name, uri in found["results"].items() if name.endswith(".svg")}
    for at, uri in enumerate(svg.values()):
        assert min(image(uri, folder / f"figure{at}")) > 50


def test_report(workflow, tmp_path):
    target = "results/emulator/figures/tasks.svg"
    for arguments in ([], ["--report", "report.html"]):
        done = workflow.run(*arguments, target, "--config", "backend=emulator")
        assert done.returncode == 0, done.stderr[-2000:]
    check_report((workflow.folder / "report.html").read_text(), {"tasks.svg"}, tmp_path)


def test_notebook(tmp_path):
    shape = '<svg xmlns="http://www.w3.org/2000/svg" width="90" height="60"><rect width="90" height="60"/></svg>'
    output = nbformat.v4.new_output("display_data", {"image/svg+xml": shape})
    cells = [nbformat.v4.new_markdown_cell("# Title " + "word " * 30), nbformat.v4.new_code_cell("1", outputs=[output])]
    found, console = opened(execute_notebook.page(nbformat.v4.new_notebook(cells=cells)), tmp_path)
    assert found["asked"] == [] and console == []
    assert found["words"] > 100 and all(min(size) > 50 for size in found["drawn"] + found["sizes"])
    assert found["drawn"] + found["sizes"]


def test_report_and_notebook_of_a_finished_run(tmp_path):
    report = ROOT / "results" / "report.html"
    if not report.is_file():
        pytest.skip("no finished run in results/: snakemake all")
    figures = {p.name for p in (ROOT / "results").glob("*/figures/*.svg")}
    check_report(report.read_text(), figures, tmp_path)
    for number, page in enumerate((ROOT / "results").glob("*/notebook.html")):
        (tmp_path / f"notebook{number}").mkdir()
        found, console = opened(page.read_text(), tmp_path / f"notebook{number}")
        assert found["asked"] == [] and console == [] and len(found["sizes"] + found["drawn"]) > 1
