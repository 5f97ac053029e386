"""What can be judged of a figure's looks without eyes: colours, sizes of letters, labels that lie over one another, times without limits."""

import itertools
from importlib import import_module
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from matplotlib.colors import to_rgb
from matplotlib.figure import Figure
from matplotlib.text import Text
from matplotlib.transforms import Bbox
from test_figures import ROOT, data, model_frames, timing  # noqa: F401 (the fixture)

from figures import CATALOG, inputs, operator_times, style

# Machado, Oliveira and Fernandes (2009): full protanopia and deuteranopia, on linear RGB.
MODELLED = [f"{batch}|{tables}" for batch in (512, 1024, 2048, 4096) for tables in (16, 64, 256)]
VISIONS = {
    "protan": [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]],
    "deutan": [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.011820, 0.042940, 0.968881]],
}


def seen(colour: str, vision: str) -> np.ndarray:
    """A colour as somebody with this vision sees it, in [0, 1]."""
    return np.clip(np.array(VISIONS[vision]) @ np.array(to_rgb(colour)) ** 2.2, 0, 1) ** (1 / 2.2)


@pytest.mark.parametrize("vision", VISIONS)
def test_series_differ_in_colour_and_in_marker(vision: str) -> None:
    assert len(set(style.MARKERS.values())) == len(style.MARKERS)
    for one, two in itertools.combinations(("fused", "bulk", "own", "library"), 2):
        assert np.linalg.norm(seen(style.COLOURS[one], vision) - seen(style.COLOURS[two], vision)) > 0.1, (one, two)


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As many cases as the case lists have, under their own names."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "model").mkdir()
    for name, frame in model_frames().items():
        if {"case", "operator"} <= set(frame) and name not in ("occupancy", "traffic"):
            other = frame[frame["case"] != "a"]
            frame = pd.concat(
                [other, *(frame[frame["case"] == "a"].assign(case=c) for c in MODELLED)], ignore_index=True
            )
        frame.to_csv(folder / "model" / f"{name}.csv", index=False)
    few = timing()
    timed = []
    for operator, part in few[few["case"] == "small"].groupby("operator"):
        cases = pd.read_csv(ROOT / "experiments" / "cases" / f"{operator}.csv", comment="#")["case"]
        timed += [part.assign(case=case) for case in cases]
    pd.concat(timed).to_csv(folder / "timing.csv", index=False)
    return folder


def drawn(name: str, folder: Path) -> Figure:
    module = import_module(f"figures.{CATALOG[name]}")
    made = module.draw(
        module.rows(inputs.load(folder / "model", [folder / "timing.csv"], ROOT / "artifact" / "claims.yaml"))
    )
    made.draw_without_rendering()
    return made


def shown(made: Figure) -> dict[Text, Bbox]:
    """Every text that a reader sees, with its box in pixels."""
    hidden: set[Text] = set()
    for axes in made.axes:
        for axis in (axes.xaxis, axes.yaxis):
            low, high = sorted(axis.get_view_interval())
            for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
                if not axes.axison or not low <= tick.get_loc() <= high:
                    hidden.update(tick.findobj(Text))
    texts = [t for t in made.findobj(Text) if t.get_visible() and t.get_text().strip() and t not in hidden]
    return {t: t.get_window_extent() for t in texts}


def apart(one: Text, two: Text) -> bool:
    """Whether two slanted labels of one axis, whose boxes always meet, are a line's height from each other."""
    angle = one.get_rotation()
    if angle % 90 == 0 or two.get_rotation() != angle:
        return False
    (x0, y0), (x1, y1) = (t.get_transform().transform(t.get_position()) for t in (one, two))
    across = abs((x1 - x0) * np.sin(np.radians(angle)) - (y1 - y0) * np.cos(np.radians(angle)))
    return across >= one.get_fontsize() * one.get_figure(root=True).dpi / 72


@pytest.mark.filterwarnings("error:constrained_layout")
@pytest.mark.parametrize("size", ["few", "many"])
@pytest.mark.parametrize("name", sorted(CATALOG))
def test_letters_are_large_enough_whole_and_apart(name: str, size: str, request: pytest.FixtureRequest) -> None:
    made = drawn(name, request.getfixturevalue({"few": "data", "many": "many"}[size]))
    try:
        boxes = shown(made)
        page = made.bbox.padded(1)
        for text, box in boxes.items():
            assert text.get_fontsize() >= 7, text
            assert page.x0 <= box.x0 and page.y0 <= box.y0 and box.x1 <= page.x1 and box.y1 <= page.y1, f"cut: {text}"
        for (one, a), (two, b) in itertools.combinations(boxes.items(), 2):
            assert apart(one, two) or not a.padded(-1).overlaps(b.padded(-1)), (
                f"{one.get_text()!r} lies over {two.get_text()!r}"
            )
    finally:
        plt.close(made)


def test_without_limits_times_stand_by_themselves() -> None:
    rows = operator_times.rows(
        inputs.Inputs(timing=timing().assign(limit_us=np.nan, machine="new-gpu")), "gemv_all_reduce"
    )
    made = operator_times.draw(rows, "gemv_all_reduce")
    (axes,) = made.axes
    assert axes.get_xlabel().startswith("time (µs)") and "new-gpu" in made.get_supxlabel()
    assert not any("nan" in t.get_text() for t in axes.get_yticklabels())
    shown = np.concatenate([line.get_xdata() for line in axes.lines if line.get_marker() in style.MARKERS.values()])
    assert set(shown) == set(rows["time_us"])
    plt.close(made)


def test_what_is_missing_or_suspect_is_shown() -> None:
    """One case without a fused arm, one without any result, one whose samples are suspect."""
    frame = timing()
    own = frame[frame["operator"] == "gemv_all_reduce"]
    gone = {"status": "missing", "reason": "out of memory", "time_us": np.nan, "sample": 0}
    whole = own[own["case"] == "small"]
    first = whole[whole["sample"] == 0]
    frame = pd.concat(
        [
            own[~((own["case"] == "small") & (own["arm"] == "fused.peer"))],
            first[first["arm"] == "fused.peer"].assign(**gone),
            first.assign(case="huge", limit_us=np.nan, **gone),
            whole.assign(case="noisy", status="suspect", reason="clocks fell"),
        ]
    )
    rows = operator_times.rows(inputs.Inputs(timing=frame), "gemv_all_reduce")
    notes = rows.set_index(["case", "series"])["note"]
    assert notes["small", "fused"] == "missing: out of memory" and notes["noisy", "fused"] == "suspect: clocks fell"
    assert set(rows[rows["case"] == "huge"]["note"]) == {"missing: out of memory"} and notes["large", "fused"] == ""
    made = operator_times.draw(rows, "gemv_all_reduce")
    (axes,) = made.axes
    hollow = [y for line in axes.lines if line.get_fillstyle() == "none" for y in line.get_ydata()]
    assert sorted(hollow) == [2] * 5 + [4]  # huge: every series; small: fused
    crossed = np.concatenate([line.get_ydata() for line in axes.lines if line.get_marker() == "x"])
    assert len(crossed) == len(rows[rows["case"] == "noisy"]) and len(set(crossed)) == 1
    assert [t.get_text() for t in axes.get_yticklabels()] == ["small  10 µs", "large  10 µs", "huge", "noisy  10 µs"]
    assert "crossed: suspect\nhollow, beside the frame: no result" in axes.get_xlabel()
    plt.close(made)
