"""Times of a page of `cats-jax page` in headless Chromium, by the browser's own clock.

    .venv/bin/python benchmarks/page_opening.py runs/NAME/page.html

Prints the size of the file, the time to the first contentful paint, and the time until the index is
open (medians of several loads). Then it opens questions, each with the trees of the first and the
last configuration, and prints the time from the request to the drawn trees, and the size of the
JavaScript heap.
"""

import argparse
import pathlib
import statistics

from playwright.sync_api import Page, sync_playwright

LOADS, QUESTIONS = 7, 50
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page", type=pathlib.Path)
    path = parser.parse_args().page.resolve()
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        paints, ready = [], []
        for _ in range(LOADS):
            page = browser.new_page()
            open_page(page, path.as_uri())
            paints.append(entry(page, "first-contentful-paint", "startTime"))
            ready.append(entry(page, "ready", "startTime"))
            page.close()
        page = browser.new_page()
        opened = open_questions(page, path.as_uri())
        heap = page.evaluate("performance.memory.usedJSHeapSize") / 1e6
        browser.close()
    print(f"{path.name}: {path.stat().st_size / 1e6:.1f} MB")
    print(f"first contentful paint: {statistics.median(paints):.0f} ms")
    print(f"index open, summary drawn: {statistics.median(ready):.0f} ms")
    slowest = max(opened)
    print(f"open a question: {statistics.median(opened):.0f} ms, at most {slowest:.0f} ms")
    print(f"JavaScript heap after {len(opened)} questions: {heap:.0f} MB")


def open_page(page: Page, address: str) -> None:
    page.goto(address)
    while not page.evaluate("performance.getEntriesByName('ready').length"):
        page.wait_for_timeout(10)


def entry(page: Page, name: str, value: str) -> float:
    return page.evaluate(f"performance.getEntriesByName('{name}')[0].{value}")


def open_questions(page: Page, address: str) -> list[float]:
    """Milliseconds from asking for a question to its trees on the screen, side by side if two."""
    open_page(page, address + "#view=questions")
    settings = page.eval_on_selector_all(
        "select[name=a] option", "options => options.map(option => option.value)"
    )
    a, b = settings[1], settings[-1]  # the first option is "nothing"
    page.select_option("select[name=a]", a)
    page.wait_for_timeout(300)
    page.select_option("select[name=b]", b)
    page.wait_for_timeout(300)
    links = page.eval_on_selector_all("a.open", "links => links.map(link => link.hash)")
    for number, link in enumerate(links[:QUESTIONS], 1):
        page.evaluate(f"location.hash = {link!r}")
        while page.evaluate("performance.getEntriesByName('open question').length") < number:
            page.wait_for_timeout(10)
    return page.evaluate("performance.getEntriesByName('open question').map(e => e.duration)")


if __name__ == "__main__":
    main()
