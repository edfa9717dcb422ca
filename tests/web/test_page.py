"""Pages of runs in headless Chromium (`make test-web`): what a reader does, and what texts can't.

Needs the browser as `chromium`, which Debian's package of that name installs.
"""

import dataclasses
import pathlib
import re
import shutil
import time
from collections.abc import Iterator

import pytest
from hostile_run import HOSTILE, write_hostile_run
from playwright import sync_api as playwright
from run_folders import candidate, row_of, searched, write_run

from cats_jax.cli import run as run_command
from cats_jax.grading.boxed_integer import BoxedIntegerGrader
from cats_jax.reporting.right_path import follow_right_path
from cats_jax.reporting.selection import in_question_order
from cats_jax.runs.folder import read_run

pytestmark = [pytest.mark.web, pytest.mark.timeout(120)]

_FLAGS = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


class Tab:
    """A page in the browser, with what it said and asked for.

    Attributes:
        page: Playwright's page.
        trouble: errors and warnings of its console, uncaught errors, and requests for anything but
            the file itself and data in it.
    """

    def __init__(self, page, path: pathlib.Path) -> None:
        self.page, self._url = page, path.as_uri()
        self.trouble: list[str] = []
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.trouble.append(f"uncaught: {error}"))
        page.on("request", self._asked)
        page.on("dialog", lambda dialog: self.trouble.append(f"dialog: {dialog.message}"))

    def open(self, address: str = "") -> None:
        """Open the page at an address after "#", in a fresh document."""
        self.page.goto("about:blank")
        self.page.goto(self._url + (f"#{address}" if address else ""))
        self.until("performance.getEntriesByName('ready').length > 0")

    def reload(self) -> None:
        self.page.reload()
        self.until("performance.getEntriesByName('ready').length > 0")

    def until(self, condition: str) -> None:
        """Wait until a condition in JavaScript holds.

        Playwright's own way polls inside the page, which the page's policy forbids.
        """
        end = time.monotonic() + 20
        while not self.page.evaluate(condition):
            assert time.monotonic() < end, f"never true: {condition}"
            time.sleep(0.02)

    @property
    def address(self) -> dict[str, str]:
        """What the address says after "#"."""
        code = "() => Object.fromEntries(new URLSearchParams(location.hash.slice(1)))"
        return self.page.evaluate(code)

    def texts(self, selector: str) -> list[str]:
        return self.page.locator(selector).all_inner_texts()

    def _said(self, message) -> None:
        if message.type in ("error", "warning"):
            self.trouble.append(f"console: {message.text}")

    def _asked(self, request) -> None:
        if not request.url.startswith(("data:", "about:", self._url)):
            self.trouble.append(f"request: {request.url[:200]}")


@pytest.fixture(scope="module")
def browser() -> Iterator:
    path = shutil.which("chromium")
    if path is None:
        pytest.fail("there is no chromium: `make test-web` as root, or apt-get install chromium")
    with playwright.sync_playwright() as driver:
        running = driver.chromium.launch(executable_path=path, args=_FLAGS)
        yield running
        running.close()


@pytest.fixture
def open_tab(browser):
    """Opens a page in a tab, which must have no trouble at the end of the test."""
    tabs = []

    def open_page(path: pathlib.Path, **options) -> Tab:
        context = browser.new_context(**{"viewport": {"width": 1280, "height": 900}, **options})
        tabs.append(Tab(context.new_page(), path))
        return tabs[-1]

    yield open_page
    trouble = [line for tab in tabs for line in tab.trouble]
    for tab in tabs:
        tab.page.context.close()
    assert not trouble


_RECIPE = """
name: small
policy: {path: weak, max_step_tokens: 32, max_answer_tokens: 64}
prms: [exact]
calibration: weak
strategies: [beam, {name: cats, checkpoint: cats}]
num_candidates: [4, 16]
questions: {world: test, count: 6}
trees: true
"""


@pytest.fixture(scope="module")
def real(tmp_path_factory) -> pathlib.Path:
    """A run of the embedded models, and its page beside it."""
    folder = tmp_path_factory.mktemp("real")
    (folder / "small.yaml").write_text(_RECIPE)
    run = folder / "run"
    assert run_command(["evaluate", str(folder / "small.yaml"), "--output", str(run)]) == 0
    assert run_command(["page", str(run)]) == 0
    return run


def test_the_summary_has_every_configuration(real, open_tab):
    tab = open_tab(real / "page.html")
    tab.open()
    rows = read_run(real).rows
    table = tab.page.locator("table.accuracy tbody tr")
    assert table.count() == len({(row.strategy, row.num_candidates, row.prm) for row in rows})
    shown = {tuple(text.split("\t")[:4]) for text in table.all_inner_texts()}
    right = [row.correct for row in rows if (row.strategy, row.num_candidates) == ("cats", 16)]
    assert ("CATS", "16", "exact", f"{sum(right) / len(right):.3f}") in shown
    tab.page.wait_for_selector("figure img")
    tab.until("[...document.images].every((image) => image.complete && image.naturalWidth > 0)")
    # A row leads to its questions.
    tab.page.locator("table.accuracy a", has_text="beam search").first.click()
    tab.page.wait_for_selector("table.questions-table")
    assert tab.address["strategy"] == "beam"


def test_filters_leave_the_questions_of_the_run(real, open_tab):
    tab = open_tab(real / "page.html")
    tab.open("view=questions")
    rows = read_run(real).rows
    assert len(tab.texts("a.open")) == 6

    def ids() -> set[str]:
        return {link.get_attribute("data-question") for link in tab.page.locator("a.open").all()}

    for name, value in (("strategy", "beam"), ("n", "4"), ("outcome", "wrong")):
        tab.page.select_option(f"select[name={name}]", value)
        tab.until(f"location.hash.includes('{name}=')")
    counted = [row for row in rows if (row.strategy, row.num_candidates) == ("beam", 4)]
    assert {row.correct for row in counted} == {True, False}  # else the test shows nothing
    tab.until("document.querySelector('select[name=outcome]').value === 'wrong'")
    assert ids() == {row.question for row in counted if not row.correct}
    tab.reload()
    assert ids() == {row.question for row in counted if not row.correct}
    tab.page.click("text=Clear")
    tab.until("document.querySelectorAll('a.open').length === 6")
    text = tab.texts("a.open")[2]
    tab.page.keyboard.press("/")
    tab.until("document.activeElement.id === 'search'")
    tab.page.keyboard.type(text)
    tab.until("document.querySelectorAll('a.open').length === 1")
    assert tab.texts("a.open") == [text]
    tab.page.fill("#search", "no question has this")
    tab.page.wait_for_selector("text=No question fits these filters.")


def test_each_mark_says_of_which_configuration_it_is(tmp_path, open_tab):
    step = candidate(1, 0, 0, "\\boxed{6}", 0.9, kept=True, done=True, answer="6")
    result = searched("q", "1+2+3=?", [step], chosen=1)
    settings = [(label, n) for label in ("beam", "cats", "majority") for n in (4, 16)]
    rows = [
        row_of(result, "6" if n == 4 else "7", label, n, meta={"level": level}, dataset=name)
        for name, level in (("one", 1), ("two", 2))
        for label, n in settings
    ]
    rows = [dataclasses.replace(row, key=f"{row.dataset}|{row.key}") for row in rows]
    del rows[-5]  # of the second question: beam, N = 16
    folder = write_run(tmp_path / "run", [(row, result) for row in rows], trees=False)
    tab = open_tab(_page_of(folder))
    tab.open("view=questions")
    assert tab.texts(".marks .mark-group") == ["✓✗", "✓✗", "✓✗", "✓·", "✓✗", "✓✗"]
    assert tab.texts(".marks-legend li") == [
        f"{title} exact N=4, 16" for title in ("beam search", "CATS", "majority voting")
    ]
    names = [
        [mark.get_attribute("aria-label") for mark in line.locator(".verdict").all()]
        for line in tab.page.locator(".marks").all()
    ]
    assert names[0][:2] == [
        "beam search N=4, PRM exact: right",
        "beam search N=16, PRM exact: wrong",
    ]
    assert names[1][1] == "beam search N=16, PRM exact: no row"
    assert any("Mean tokens" in text for text in tab.texts("th"))
    tab.page.select_option("select[name=strategy]", "beam")
    tab.until("document.querySelectorAll('.marks').length === 0")


def test_two_configurations_that_differ(real, open_tab):
    rows = {(r.strategy, r.num_candidates, r.question): r for r in read_run(real).rows}
    questions = dict.fromkeys(row.question for row in in_question_order(rows.values()))
    differ = [q for q in questions if rows["beam", 4, q].correct != rows["cats", 16, q].correct]
    assert differ  # else the test shows nothing: take another seed or more questions
    tab = open_tab(real / "page.html")
    tab.open("view=questions&a=beam|4|exact|0&b=cats|16|exact|0&differ=correct")
    found = [link.get_attribute("data-question") for link in tab.page.locator("a.open").all()]
    assert found == differ
    tab.page.locator("a.open").first.click()
    tab.page.wait_for_selector(".panels.two")
    assert tab.page.locator("[role=tree]").count() == 2
    assert tab.page.locator(".difference").inner_text().startswith("Kept paths first differ at")
    tab.page.click("text=Go there")
    badge = tab.page.locator("[aria-selected=true] > .line .badge.only")
    assert badge.count() >= 1


def test_a_path_by_keyboard_and_a_link_to_its_node(real, open_tab):
    run = read_run(real)
    row = next(r for r in run.rows if (r.strategy, r.num_candidates) == ("cats", 16) and r.correct)
    result = run.tree(row)
    chosen = result.paths[result.chosen or 0]
    tab = open_tab(real / "page.html", color_scheme="dark")
    tab.open("view=questions&strategy=cats&n=16")
    keys = tab.page.keyboard
    keys.press("j")
    while tab.page.evaluate("document.activeElement.dataset.question") != row.question:
        keys.press("j")
    keys.press("Enter")
    tab.page.wait_for_selector("[role=tree]")
    node = "document.activeElement.dataset.node"
    tab.until(f"{node} !== undefined")
    followed = [int(tab.page.evaluate(node))]
    for _ in chosen.nodes[1:]:
        keys.press("ArrowRight")  # into the open line: to its first child
        followed.append(int(tab.page.evaluate(node)))
    assert tuple(followed) == chosen.nodes
    line = tab.page.locator("[aria-selected=true] > .line").inner_text()
    assert result.answer is not None
    assert result.answer in line
    assert tab.address["node"] == str(chosen.nodes[-1])
    detail = tab.page.locator("[aria-selected=true] > .detail").inner_text()
    score = result.candidates[chosen.nodes[-1] - 1].score
    assert f"{score:.4f}" in detail
    # Everything is where it was after a reload.
    tab.reload()
    assert int(tab.page.evaluate(node)) == chosen.nodes[-1]
    assert tab.address == {**tab.address, "strategy": "cats", "n": "16", "question": row.question}
    # The number of decisions and of candidates are those of the run.
    budget = tab.page.locator(".step-table summary").inner_text()
    assert f"{len(result.candidates)} candidate" in budget
    assert f"{len(result.decisions)} decision" in budget
    keys.press("Escape")
    tab.page.wait_for_selector("table.questions-table")
    focused = tab.page.evaluate("document.activeElement.dataset.question")
    assert focused == row.question
    keys.press("?")
    assert tab.page.locator("#help").is_visible()
    keys.press("Escape")
    assert not tab.page.locator("#help").is_visible()


def test_the_lost_path_is_marked_as_in_the_terminal(real, open_tab):
    run = read_run(real)
    fates = [
        (row, follow_right_path(run, row, run.tree(row), BoxedIntegerGrader()))
        for row in run.rows
        if row.strategy == "beam" and row.num_candidates == 4
    ]
    row, fate = next(found for found in fates if found[1].cause in ("dropped", "not sampled"))
    tab = open_tab(real / "page.html")
    tab.open(f"question={row.question}&a=beam|4|exact|0")
    assert tab.texts(".fate") == [fate.sentence]
    assert fate.knowledge in tab.page.locator(".panel").inner_text()
    marks = {text for line in tab.texts(".badge.remark") for text in [line.removeprefix("◀ ")]}
    assert marks
    assert marks <= set(fate.remarks.values())
    assert any(text.startswith("the right path was lost here") for text in marks)


def _texts_to(node, candidates):
    """The texts of a path, from its last candidate."""
    texts = []
    while node:
        texts.append(candidates[node - 1].text)
        node = candidates[node - 1].parent
    return tuple(texts)


def test_every_candidate_can_be_reached(real, open_tab):
    run = read_run(real)
    row = next(r for r in run.rows if (r.strategy, r.num_candidates) == ("beam", 16))
    result = run.tree(row)
    tab = open_tab(real / "page.html")
    tab.open(f"question={row.question}&a=beam|16|exact|0")
    # Open all lines until nothing is folded.
    tab.page.evaluate(
        """() => { for (;;) {
            const item = document.querySelector('[aria-expanded=false], [data-fold]');
            if (item === null) return;
            item.focus();
            item.dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}));
        } }"""
    )
    badges = tab.page.evaluate(
        """() => [...document.querySelectorAll('[role=treeitem] > .line')].map((line) =>
            [...line.querySelectorAll('.badge')].map((badge) => badge.textContent))"""
    )
    times = [[int(text[1:].split(",")[0]) for text in line if text[0] == "×"] for line in badges]
    assert sum(max(line, default=1) for line in times) == len(result.candidates)
    # Equal paths are one line: each line of a group of siblings has other texts.
    distinct = {_texts_to(node.id, result.candidates) for node in result.candidates}
    assert len(badges) == len(distinct)
    assert len(distinct) < len(result.candidates)  # else the test shows nothing
    shown = tab.page.locator("[role=treeitem].kept, [role=treeitem].chosen").count()
    kept = {_texts_to(node.id, result.candidates) for node in result.candidates if node.kept}
    assert shown == len(kept)


def test_a_narrow_screen_does_not_scroll_sideways(real, open_tab):
    row = read_run(real).rows[0]
    tab = open_tab(real / "page.html", viewport={"width": 360, "height": 740})
    two = f"question={row.question}&a=beam|16|exact|0&b=cats|16|exact|0"
    for address in ("", "view=questions", two):
        tab.open(address)
        width = tab.page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, address


# Texts that want to run


@pytest.fixture(scope="module")
def hostile(tmp_path_factory) -> pathlib.Path:
    return _page_of(write_hostile_run(tmp_path_factory.mktemp("hostile")))


def _painted_over(tab) -> list[str]:
    """Lines whose mark is covered by something else at its centre, once it is in view."""
    return tab.page.evaluate(
        """() => [...document.querySelectorAll('.line > .mark')].filter((mark) => {
            mark.scrollIntoView({block: 'center'});
            const box = mark.getBoundingClientRect();
            const [x, y] = [box.x + box.width / 2, box.y + box.height / 2];
            return !mark.contains(document.elementFromPoint(x, y));
        }).map((mark) => mark.parentElement.textContent.slice(0, 80))"""
    )


def test_nothing_in_a_text_runs_or_stops_the_page(hostile, open_tab):
    tab = open_tab(hostile)
    for address in ("", "view=questions"):
        tab.open(address)
        tab.page.wait_for_timeout(100)
        assert tab.page.evaluate("window.hit") is None
    links = [link.get_attribute("href") for link in tab.page.locator("a.open").all()]
    assert len(links) == 2
    for link in links:
        started = time.monotonic()
        tab.open(link.removeprefix("#"))
        for _ in range(2):  # folds in folds
            for fold in tab.page.locator("[data-fold] > .line").all():
                fold.click()
        assert time.monotonic() - started < 20
        # Each text is there: as a kept step with an equal dropped one, and as an invalid step.
        assert tab.page.locator("[role=treeitem]").count() == 2 * len(HOSTILE)
        for more in tab.page.locator(".tree button.link").all()[:3]:
            more.click()
        for line in tab.page.locator("[role=treeitem] > .line").all()[:4]:
            line.hover()
        assert tab.page.evaluate("window.hit") is None
        forbidden = "main :is(script, iframe, object, embed, link, base, form[action], [srcdoc])"
        assert tab.page.locator(forbidden).count() == 0
        handlers = """() => [...document.querySelectorAll('main *')].flatMap((element) =>
            [...element.attributes].filter(({name, value}) => name.startsWith('on') ||
              /^\\s*javascript:/i.test(value)))"""
        assert tab.page.evaluate(f"({handlers})().length") == 0
        shown = tab.page.locator("main").inner_text()
        assert HOSTILE[2].split(">")[0] in shown
        assert not re.search("\u0301{7}", shown)
        assert _painted_over(tab) == []
        assert not set("\u202e\u2066\u200b\x00\x1b\U000e0041") & set(shown)
        assert tab.page.evaluate("document.documentElement.scrollWidth") <= 1280


_PLANTS = (
    """() => { document.body.innerHTML += '<img src=x onerror="window.hit=1">'; }""",
    """() => { document.body.append(document.createElement('script'));
               document.body.lastChild.append('window.hit=1'); }""",
    """() => { document.body.append(document.createElement('img'));
               document.body.lastChild.setAttribute('onerror', 'window.hit=1');
               document.body.lastChild.src = 'data:,'; }""",
    "() => { document.body.append(document.createElement('a')); "
    "document.body.lastChild.href = 'javascript:window.hit=1'; document.body.lastChild.click(); }",
)
_TRUSTED_TYPES = "; require-trusted-types-for &#x27;script&#x27;; trusted-types &#x27;none&#x27;"


@pytest.mark.parametrize("trusted_types", [True, False])
def test_planted_markup_would_not_run(trusted_types, hostile, tmp_path, open_tab):
    # The policy holds if escaping fails, also in browsers that know no trusted types.
    text = hostile.read_text("utf-8")
    assert _TRUSTED_TYPES in text
    path = tmp_path / "page.html"
    path.write_text(text if trusted_types else text.replace(_TRUSTED_TYPES, ""), "utf-8")
    tab = open_tab(path)
    for plant in _PLANTS:
        tab.open()
        assert not tab.trouble
        refused = ""
        try:
            tab.page.evaluate(plant)
        except playwright.Error as error:
            refused = str(error)
        tab.page.wait_for_timeout(100)
        assert tab.page.evaluate("window.hit") is None
        assert "Trusted" in refused or any(
            "Content Security Policy" in line or "Trusted" in line for line in tab.trouble
        )
        tab.trouble.clear()


# Mathematics and runs without trees


def _write(folder, texts, tree=True, ids=("q",)) -> pathlib.Path:
    """The page of a run whose search has one path of these steps, for questions of these ids."""
    last = len(texts)
    nodes = [candidate(i, i - 1, i - 1, text, 0.5, kept=True) for i, text in enumerate(texts, 1)]
    nodes[-1].done, nodes[-1].answer = True, "$x$"
    result = searched("q", "What is $x^2$ for $5 and $6?", nodes, chosen=last)
    row = row_of(result, "2", prm=None)
    rows = [dataclasses.replace(row, key=f"{row.key}{name}", question=name) for name in ids]
    return _page_of(write_run(folder, [(row, result) for row in rows], trees=tree))


def _page_of(folder: pathlib.Path) -> pathlib.Path:
    assert run_command(["page", str(folder)]) == 0
    return folder / "page.html"


def test_mathematics_is_rendered_and_the_rest_stays_text(tmp_path, open_tab):
    texts = [
        r"So $\frac{1}{2}$ and \(y_1\).",
        r"$$\sum_{i=1}^n i$$ \[\sqrt{2}\]",
        r"It costs $5 and $6, \frac{1}{2} is text, $\nosuchmacro{1}$ too, \$3\$ as well",
        r"$a$" * 3,
        r"$\href{https://example.org}{x}$ and $\includegraphics{x.png}$",
    ]
    tab = open_tab(_write(tmp_path / "run", texts))
    tab.open("question=q&a=beam|4|-|0")
    items = tab.page.locator("[role=treeitem] > .line .text")
    counts = [items.nth(index).locator("math").count() for index in range(len(texts))]
    assert counts == [2, 2, 0, 3, 0]
    assert items.nth(2).inner_text() == texts[2]
    assert items.nth(4).locator(".model").inner_text() == texts[4]
    assert tab.page.locator("math mfrac").count() == 1
    assert tab.page.locator("math[display=block]").count() == 2
    assert tab.page.locator(".question-text math").count() == 1


def test_a_rewrite_is_drawn_below_its_answer(tmp_path, open_tab):
    """The question, two answers, a rewrite of the second one, and a rewrite of that."""
    end = {"kept": True, "done": True}
    answers = [
        candidate(1 + i, 0, i, f"\\boxed{{{i}}}", 0.1 * i, answer=str(i), rewrites=of, **end)
        for i, of in enumerate((None, None, 2, 3))
    ]
    result = searched("q", "1+2=?", answers, chosen=4)
    folder = write_run(tmp_path / "run", [(row_of(result, "3", "mctsr"), result)])
    tab = open_tab(_page_of(folder))
    tab.open("question=q&a=mctsr|4|exact|0")
    items = tab.page.locator("[role=treeitem][data-node]").all()
    levels = {item.get_attribute("data-node"): item.get_attribute("aria-level") for item in items}
    assert levels == {"1": "1", "2": "1", "3": "2", "4": "3"}
    assert tab.page.locator("[role=treeitem].chosen").count() == 1


def test_every_question_can_be_opened(tmp_path, open_tab):
    """Also without trees, with ids alike where the page cuts them or with half of a character."""
    ids = ("x" * 100, "x" * 101)
    tab = open_tab(_write(tmp_path / "run", ["a"], tree=False, ids=ids))
    for index in range(len(ids)):
        tab.open("view=questions")
        tab.page.locator("a.open").nth(index).click()
        assert "no search tree" in tab.page.locator(".panel").inner_text()
        assert tab.page.locator("[role=tree]").count() == 0
        # Of two questions the first has none before it, and the second none after it.
        ways = [tab.page.locator(f"#go-{way}[href]").count() for way in ("previous", "next")]
        assert ways == ([0, 1] if index == 0 else [1, 0])
    assets = pathlib.Path(__file__).resolve().parents[2] / "cats_jax/page/assets"
    functions = "".join((assets / name).read_text() for name in ("text.js", "state.js", "data.js"))
    halves = tab.page.evaluate(
        f"() => {{ {functions}"
        """
          const question = (id) => ({id, dataset: "", text: null, gold: "", notes: []});
          const columns = {question: [], correct: [], covered: []};
          const part = {strategies: [], configurations: [], rows: columns};
          const questions = ["\\ud800", "\\udbff", "a\\udc00", "\\u{1f600}"].map(question);
          return readPart({...part, questions}, 0).questions.map(({key}) =>
            new URLSearchParams(hashOf({question: key}).slice(1)).get("question") === key);
        }"""
    )
    assert halves == [True] * 4


def test_the_documented_parts_of_the_address_are_those_of_the_page(real, open_tab):
    root = pathlib.Path(__file__).resolve().parents[2]
    state = (root / "cats_jax/page/assets/state.js").read_text()
    defaults = state.partition("DEFAULTS = {")[2].partition("};")[0]
    table = (root / "docs/evaluate/page.md").read_text().partition("| part | value |")[2]
    lines = [line for line in table.partition("\n\n")[0].splitlines() if line.startswith("| `")]
    documented = {name for line in lines for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    assert documented == set(re.findall(r"(\w+):", defaults))
    run = read_run(real)
    row = next(r for r in run.rows if (r.strategy, r.num_candidates) == ("beam", 16) and r.answer)
    result = run.tree(row)
    node = result.paths[result.chosen or 0].nodes[-1]
    tab = open_tab(real / "page.html")
    tab.open(f"question={row.question}&a=beam%7C16%7Cexact%7C0&b=cats%7C16%7Cexact%7C0&node={node}")
    assert tab.texts(".panel h3") == ["beam search N=16, PRM exact", "CATS N=16, PRM exact"]
    assert tab.page.evaluate("document.activeElement.dataset.node") == str(node)


def test_an_address_that_fits_nothing_is_answered_in_words(real, open_tab):
    tab = open_tab(real / "page.html")
    tab.open("question=<img src=x onerror=alert(1)>&a=none")
    assert "This page has no question" in tab.page.locator("main").inner_text()
    row = read_run(real).rows[0]
    tab.open(f"question={row.question}&a=none|1|-|9&node=99999&part=77&sort=-none&n=x")
    assert tab.page.locator(".question-text").count() == 1
