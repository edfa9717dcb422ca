"""A run folder whose model, data set and recipe wrote texts that try to run or to break a page."""

import pathlib

from cats_jax.live.ledger import Ledger
from cats_jax.live.results import Candidate, DecisionRow, SearchPath, SearchResult
from cats_jax.protocols import Question
from cats_jax.runs.folder import Row, RunWriter, row_key
from cats_jax.storage.manifest import make_manifest

HIT = "window.hit=1"
"""What each planted script does; a page on which it ran has `window.hit`."""

LONG = "a" * 1_000_000

HOSTILE = (
    f"</script><script>{HIT}</script>",
    f"</SCRIPT ><script src='data:text/javascript,{HIT}'></script>",
    f"<img src=x onerror='{HIT}'><svg onload='{HIT}'><iframe srcdoc='<script>{HIT}</script>'>",
    f"\"' onmouseover='{HIT}' onfocus='{HIT}' autofocus=\"",
    f"<a href='javascript:{HIT}'>[x](javascript:{HIT})</a>",
    "<!-- <![CDATA[ ]]> --> {{trees}} {{scripts}}",
    rf"$\href{{javascript:{HIT}}}{{x}}$ $\url{{javascript:{HIT}}}$ $\htmlData{{a={HIT}}}{{x}}$",
    rf"$\htmlStyle{{color:red}}{{x}}$ $\text{{<img src=x onerror={HIT}>}}$",
    r"$\includegraphics{https://example.org/x.png}$ <link rel=stylesheet href=//example.org/x>",
    r"$\def\a{\a\a}\a$ $\def\b#1{#1#1}\b{\b{\b{\b{\b{\b{\b{\b{\b{\b{xx}}}}}}}}}}$",
    r"$\rule{1000000em}{1000000em}$ $\kern{9999999em}x$ $\fcolorbox{red}{blue}{x}$",
    "$" + "x^{" * 300 + "}" * 300 + "$",
    "$" + r"\left(" * 150 + "x" + r"\right)" * 150 + "$",
    "$" + "\\sqrt" * 190 + " x$",
    "$" * 10_000 + "\\[" * 5_000 + "\\(" * 5_000,
    "\u202etxet desrever\u202c \u2066\u200b\ufeff \x00\x07\x1b[31m \ud800 \U000e0041",
    "Z" + "\u0301" * 1000,
    LONG,
    "word " * 20_000,
    "\n" * 5_000 + "end",
    "__proto__",
)
"""Texts of steps, among them one of 1 MB and mathematics that would take for ever."""


def write_hostile_run(folder: pathlib.Path) -> pathlib.Path:
    """Write a run of two questions and two strategies with `HOSTILE` wherever a text may be."""
    with RunWriter(folder, run_manifest(HOSTILE[0])) as writer:
        for number, question in enumerate((HOSTILE[1], "constructor")):
            for strategy in ("beam", HOSTILE[2]):
                result = _result(HOSTILE[3 + number])
                row = Row(
                    key=row_key(strategy, 4, HOSTILE[4], 0, question),
                    question=question,
                    strategy=strategy,
                    num_candidates=4,
                    prm=HOSTILE[4],
                    seed=0,
                    meta={"level": HOSTILE[0], HOSTILE[2]: LONG, "__proto__": {"a": 1}},
                    answer=HOSTILE[6],
                    gold=HOSTILE[0],
                    correct=strategy == "beam",
                    status="answered",
                    reason=HOSTILE[2],
                    steps=2,
                    ledger=result.ledger,
                )
                writer.add(row, result)
    return folder


def run_manifest(name: str) -> dict[str, object]:
    """A manifest with all that readers of run folders look at."""
    return make_manifest(
        config={
            "name": name,
            "strategies": [],
            "prms": [],
            "policy": {"path": "weak"},
            "questions": [{"world": "test"}],
            "max_depth": 10,
        },
        models={"policy": {"name": name}},
        questions={"source": name, "count": 2},
        seeds=[0],
    )


def _result(question: str) -> SearchResult:
    """A tree with each hostile text as a kept, as a dropped and as an invalid step."""
    nodes: list[Candidate] = []
    for text in HOSTILE:
        for kept, invalid in ((True, None), (False, None), (False, text)):
            score = None if invalid else 0.25
            nodes.append(
                Candidate(
                    len(nodes) + 1, 0, 0, 0, len(nodes), text, (), 3, -1.0, score, score, invalid,
                    done=kept, answer=text if kept else None, kept=kept,
                )
            )  # fmt: skip
    path = SearchPath((HOSTILE[0],), (0.25,), 0.25, HOSTILE[0], (1,))
    decision = DecisionRow(0, 1, 0, (0.5, 1e300, -0.0), 3, 2, 1, 1.0, 0.9, 0, 1, 0.25)
    return SearchResult(
        question=Question("q", question),
        answer=HOSTILE[0],
        chosen=0,
        status="answered",
        reason="",
        steps=1,
        paths=[path],
        candidates=nodes,
        decisions=[decision],
        ledger=Ledger(candidates=len(nodes), generated=7, prm_computed=4),
    )
