"""A page in a headless Chromium: Debian's, driven by Playwright. Without one of the two the tests skip; in CI they fail."""

import shutil
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from missing import skip_or_fail

LAPTOP = {"width": 1366, "height": 768}
READY = "body[data-ready]"


@dataclass
class Opened:
    """A page, and everything that it asked for or complained about."""

    page: Any
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def source(self, name):
        """The columns of one of the sources that Bokeh draws, such as `graph-edges`."""
        return self.page.evaluate(
            """(name) => {
                const found = Bokeh.documents.map((one) => one.get_model_by_name(name)).find((one) => one !== null);
                return Object.fromEntries(Object.entries(found.data).map(([key, column]) => [key, Array.from(column)]));
            }""",
            name,
        )

    def pixel(self, figure, x, y):
        """Where a point of a figure is on the screen."""
        return self.page.evaluate(
            """([name, x, y]) => {
                const plot = Bokeh.documents.map((one) => one.get_model_by_name(name)).find((one) => one !== null);
                const view = Bokeh.index.find_one(plot);
                const [frame, corner] = [view.frame.bbox, view.el.getBoundingClientRect()];
                const [across, up] = [plot.x_range, plot.y_range];
                return [corner.left + frame.left + frame.width * (x - across.start) / (across.end - across.start),
                    corner.top + frame.top + frame.height * (up.end - y) / (up.end - up.start)];
            }""",
            [figure, x, y],
        )

    def hover(self, figure, x, y):
        """Put the mouse on a point, as a hand would: not in one jump; what the tooltip says, row by row."""
        self.page.locator(f"#{figure}").scroll_into_view_if_needed()
        left, top = self.pixel(figure, x, y)
        self.page.mouse.move(left - 3, top - 3)
        self.page.mouse.move(left, top, steps=3)
        tooltip = self.page.locator(".bk-Tooltip table").first
        tooltip.wait_for(state="visible")
        title = self.page.locator(".bk-Tooltip b").first.inner_text()
        rows = tooltip.locator("tr").all()
        return title, dict(tuple(row.locator("td").all_inner_texts()) for row in rows)


@contextmanager
def chromium():
    """The browser."""
    path = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if path is None:
        skip_or_fail("no Chromium; run: apt-get install chromium")
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        skip_or_fail("no Playwright; run: make setup")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])  # containers run as root
        yield browser
        browser.close()


@contextmanager
def opened(browser, path, *, folded=False, **options):
    """The page at a path, ready; the part for experts is open unless it is to stay folded."""
    context = browser.new_context(**{"viewport": LAPTOP, **options})
    context.set_default_timeout(120_000)  # of a machine that is busy with other things
    found = Opened(context.new_page())
    found.page.on("request", lambda request: found.requests.append(request.url))
    found.page.on("pageerror", lambda error: found.complaints.append(str(error)))
    found.page.on(
        "console",
        lambda message: found.complaints.append(message.text) if message.type in {"error", "warning"} else None,
    )
    found.page.goto(path.as_uri())
    found.page.wait_for_selector(READY)
    if not folded:
        found.page.evaluate("document.getElementById('expert').open = true")
        found.page.wait_for_selector("body[data-layers]")
    yield found
    context.close()
