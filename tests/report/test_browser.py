"""Reports as a person sees them: in a browser, on a wide screen and on a telephone."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Page, chromium
from fedlsvi import FedLSVI
from fedlsvi.algorithms import make, names
from fedlsvi.cli import main
from fedlsvi.envs import RandomLinearMDP
from fedlsvi.experiments import ranking
from fedlsvi.features import FourierFeatures
from fedlsvi.report import write_report
from repeats import repeats

FIGURES = {"seeds": 7, "black-box": 6, "comparison": 4, "black-boxes": 4, "compared": 2}
FIGURES = dict(list(FIGURES.items())[: repeats(2, len(FIGURES))])
"""Page → how many figures it must show; comparisons only where CI is set."""

SIDEWAYS = """[...document.querySelectorAll(".scroll")].filter(e => e.scrollWidth > e.clientWidth)
  .map(e => e.querySelector("th").textContent)"""
"""First heads of the tables that do not fit."""

HEADS = """[...document.querySelectorAll(".stack td")]
  .map(e => getComputedStyle(e, "::before").content.replaceAll('"', ""))"""
"""What is written before the cells of a row that are below each other."""

HALF_EMPTY = """[...document.querySelectorAll(".figures")].filter(e => {
    const last = e.lastElementChild.getBoundingClientRect(), all = e.getBoundingClientRect();
    return last.right < all.right - 20; }).map(e => e.textContent)"""
"""Captions of the figures beside whose last one there is nothing."""

WIDTHS = (1280, 390)
SMALLEST = 12.0
"""Pixels of the smallest letters that are read without effort."""


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """One report of each kind."""
    out = tmp_path_factory.mktemp("reports")
    env = RandomLinearMDP(6, 3, 4, horizon=3, seed=1, initial="uniform")
    runs = [FedLSVI(n_agents=3).learn(env, 2000, seed=s, progress=False) for s in range(3)]
    features = FourierFeatures(4, bandwidth=[1.5, 1.5, 0.15, 1.5])
    learner = FedLSVI(n_agents=2, value_range=20, lam=0.01, beta=0.5, gamma=100)
    poles = [
        learner.learn("CartPole-v1", 15, seed, features=features, horizon=20, progress=False)
        for seed in range(2)
    ]
    made = {
        "seeds": write_report(runs, out / "seeds", alone=runs[1:])[0],
        "black-box": write_report(poles, out / "black-box")[0],
    }
    if "compared" in FIGURES:
        rival = make("coop-lsvi", n_agents=3).learn(env, 300, progress=False)
        fixed = make("periodic", n_agents=2, value_range=20, period=5)
        other = fixed.learn("CartPole-v1", 15, 0, features=features, horizon=20, progress=False)
        made["comparison"] = write_report([*runs, rival], out / "comparison")[0]
        made["black-boxes"] = write_report([*poles, other], out / "black-boxes")[0]
        asked = "--env river-swim --algorithms fed-lsvi,independent --agents 2 --episodes 50"
        folder = out / "compared"
        more = ["--jobs", "1", "--seeds", "0:2", "--out", str(folder)]
        assert main(["compare", *asked.split(), *more]) == 0
        assert main(["report", str(folder)]) == 0
        made["compared"] = folder / "report.html"
    return made


def test_a_black_box_is_held_against_the_random_policy(reports: dict[str, Path]) -> None:
    text = reports["black-box"].read_text(encoding="utf-8")
    for words in (
        "<h2>Return</h2>",
        "uniform random policy",
        "learned policy",
        "the last tenth of the",
    ):
        assert words in text
    assert "<h2>Regret</h2>" not in text


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("kind", FIGURES)
def test_reads_well(kind: str, width: int, page: Page, reports: dict[str, Path]) -> None:
    page.open(reports[kind], width)
    check(page, reports[kind], width)
    found = page.measure()
    assert found["figures"] == FIGURES[kind]
    assert found["narrowest"] > 0.8 * min(width, 480)  # a figure that fills the screen can be read
    page.evaluate("document.querySelectorAll('details').forEach(d => { d.open = true; })")
    check(page, reports[kind], width)
    wide = page.evaluate(SIDEWAYS)
    assert wide == []
    assert page.evaluate(HALF_EMPTY) == []
    if width < 600 and kind != "compared":
        assert {"bound", "measured", "verdict"} <= {h.split(",")[0] for h in page.evaluate(HEADS)}


def test_a_half_that_is_empty_is_seen(page: Page, reports: dict[str, Path]) -> None:
    page.open(reports["seeds"], 1280)
    page.evaluate("document.querySelector('.figures').lastElementChild.remove()")
    assert len(page.evaluate(HALF_EMPTY)) == 1


@pytest.mark.parametrize("known", ["regret", "return"])
def test_a_long_ranking_of_large_numbers_fits(
    known: str, page: Page, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every algorithm there is, seeds far apart, millions of rounds: no table scrolls, the names
    are those that a user types, and the size of the problem is said."""
    folder = tmp_path / "compared"
    about = "--env river-swim --algorithms fed-lsvi --agents 2 --episodes 5 --seeds 0:2 --jobs 1"
    assert main(["compare", *about.split(), "--out", str(folder)]) == 0
    question, found = ranking._read(folder)
    runs = [
        replace(run, regret=1.23e9 * (i + 1), uniform=3.3e9, rounds=10**6 * (i + 1),
                scalars=10**10 * (i + 1), seconds=12345.6,
                scalars_by_category=dict.fromkeys(run.scalars_by_category, 10**10))
        for i, run in enumerate(found["fed-lsvi"])
    ]  # fmt: skip
    if known == "return":
        runs = [
            replace(run, regret=None, late=None, late_return=-12345.6,
                    curve={"t": [1, 5], "scalars": [0, 9], "return": [-1e5, 1e5]})
            for run in runs
        ]  # fmt: skip
    every = dict.fromkeys(names(), runs)
    question = replace(question, own={name: {} for name in every}, unable=list(every))
    monkeypatch.setattr(ranking, "_read", lambda folder: (question, every))
    path = ranking.write_comparison(folder, tmp_path / "page")[0]
    for width in WIDTHS:
        page.open(path, width)
        check(page, path, width)
        assert page.evaluate(SIDEWAYS) == page.evaluate(HALF_EMPTY) == []
    text = path.read_text(encoding="utf-8")
    assert "2 agents, 5 episodes each, horizon 20, 12 features" in text
    said = re.sub(r"<pre.*?</pre>|<style.*?</style>|<[^>]+>|src=\S+", " ", text, flags=re.DOTALL)
    assert set(names()) <= set(said.split())
    assert re.findall(r"\b[a-z]+_[a-z_]+\b|\b[A-Z]+[a-z]+[A-Z]\w*", said) == []


def check(page: Page, path: Path, width: int) -> None:
    """Nothing complained, nothing was fetched, everything is there and fits."""
    found = page.measure()
    assert not page.complaints
    outside = [url for url in page.requests if not url.startswith("data:")]
    assert outside == [path.absolute().as_uri()]
    assert found["empty"] == found["hidden"] == 0
    assert found["scrolls"] <= width
    assert found["smallest"] >= SMALLEST


FAULTS = {
    "a script that fails": ("</body>", "<script>throw Error('no')</script></body>"),
    "a console error": ("</body>", "<script>console.error('no')</script></body>"),
    "an address outside": ("</body>", '<img src="http://localhost:9/x.png"></body>'),
    "a broken figure": ("data:image/svg+xml;base64,", "data:image/svg+xml;base64,AAAA"),
    "a hidden figure": ("figure img {", "figure img { visibility: hidden;"),
    "a page too wide": ("</body>", "<div style='width: 1300px'>wide</div></body>"),
    "letters too small": (".note {", ".note { font-size: 9px;"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_are_seen(fault: str, page: Page, reports: dict[str, Path], tmp_path: Path) -> None:
    """The check above fails on each page that deserves it."""
    text = reports["black-box"].read_text(encoding="utf-8")
    broken = tmp_path / "broken.html"
    broken.write_text(text.replace(*FAULTS[fault], 1), encoding="utf-8")
    page.open(broken, 390)
    with pytest.raises(AssertionError):
        check(page, broken, 390)
