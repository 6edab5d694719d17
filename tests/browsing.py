"""A real browser for tests of pages: Chromium, headless, without a network."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

#: Elements that are wider than what is shown of them, or reach beyond the page, but for what is hidden on purpose.
CUT = """
const wide = document.documentElement.clientWidth + 1;
return [...document.querySelectorAll('main *')].filter(e => {
  if (e.closest('svg') || e.closest('thead') || e.closest('details:not([open])')) return false;
  const box = e.getBoundingClientRect();
  return box.right > wide || (e.scrollWidth > e.clientWidth + 1 && getComputedStyle(e).display !== 'inline');
}).map(e => e.tagName + '.' + e.className + ': ' + e.textContent.slice(0, 40));
"""


class Browser:
    """A driver of Chromium; every other attribute is Selenium's."""

    def __init__(self, driver: Any) -> None:
        self._driver = driver

    def __getattr__(self, name: str) -> Any:
        return getattr(self._driver, name)

    def size(self, width: int, height: int) -> None:
        """Show pages at this width, in the pixels that pages count in; a narrow one is a phone's."""
        shown = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600}
        self._driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", shown)

    def messages(self) -> list[str]:
        """What pages have written to the console, with requests that were refused."""
        return [entry["message"] for entry in self._driver.get_log("browser")]

    def picture(self, path: Any) -> None:
        """A picture of what is shown; where DPEM_PICTURES names a folder, a copy stays there."""
        self._driver.save_screenshot(str(path))
        if folder := os.environ.get("DPEM_PICTURES"):
            shutil.copy(path, folder)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser; the test is skipped where none is installed, or none that the driver can start."""
    chrome, driver = shutil.which("chromium") or shutil.which("google-chrome"), shutil.which("chromedriver")
    if chrome is None or driver is None:
        pytest.skip("no Chromium with its driver on this machine")
    webdriver = pytest.importorskip("selenium.webdriver")
    from selenium.common.exceptions import WebDriverException

    options = webdriver.ChromeOptions()
    options.binary_location = chrome
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"):
        options.add_argument(flag)
    options.add_argument("--host-resolver-rules=MAP * ~NOTFOUND")
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    try:
        started = webdriver.Chrome(options=options, service=webdriver.ChromeService(executable_path=driver))
    except WebDriverException as error:
        pytest.skip(f"Chromium does not start: {error.msg}")
    try:
        yield Browser(started)
    finally:
        started.quit()
