"""The tables of docs/leaderboard.md and docs/findings/ are what their commands print from the stored numbers."""

import pytest

import draw_findings
import draw_leaderboard
from browser import READY, chromium
from places import ROOT

PAGES = sorted((ROOT / "docs" / "findings").glob("*.md"))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_a_finding_shows_what_its_command_prints(page):
    text = page.read_text(encoding="utf-8")
    assert draw_findings.PART.search(text)
    assert text == draw_findings.written(text), "run: python docs/draw_findings.py"


@pytest.mark.slow
def test_the_leaderboard_shows_what_its_file_holds():
    text = draw_leaderboard.PAGE.read_text(encoding="utf-8")
    assert text == draw_leaderboard.written(text), "run: python docs/draw_leaderboard.py"


@pytest.mark.slow
@pytest.mark.parametrize("width", [1280, 800, 400])
def test_the_page_of_the_board_needs_nothing_and_fits(width):
    with chromium() as browser:
        page = browser.new_page(viewport={"width": width, "height": 900})
        asked, complaints = [], []
        page.on("request", lambda request: asked.append(request.url))
        page.on("console", lambda message: complaints.append(message.text) if message.type == "error" else None)
        page.goto((ROOT / "docs" / "leaderboard" / "index.html").as_uri())
        page.wait_for_selector(READY, state="attached")
        assert len(asked) == 1
        assert not complaints
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        before = page.inner_text("#verdict")
        page.select_option("#data", label="sentiment_trees")
        assert "node_degree" in page.inner_text("#verdict") != before
        page.select_option("#metric", label="path recovery")
        assert "nothing was measured" in page.inner_text("#verdict")
