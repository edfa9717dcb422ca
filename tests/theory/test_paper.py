"""The paper's tables as data: every figure as recorded elsewhere and as printed in the source."""

import re

import pytest
import yaml

from theory import paper

# Table of tables.yaml -> (rows of `theory.paper`, column there -> field here, label in the paper).
TABLES = {
    "compare": (paper.COMPARISON, {}, "tab:compare"),
    "sparsity": (paper.SPARSITY, {"parameters_billion": "parameters"}, "tab:sparse"),
    "ablation_sparsity": (paper.SPARSITY_ABLATION, {}, "tab:abl_sparse"),
    "ablation_reward": (paper.REWARD_ABLATION, {}, "tab:lambda"),
    "ablation_networks": (paper.NETWORK_ABLATION, {}, "tab:actor-critic-ablation"),
    "ablation_discount": (paper.DISCOUNT_ABLATION, {}, "tab:gamma-ablation"),
}
PRMS = tuple(row.prm for row in paper.SPARSITY)


def recorded(rows):
    """Rows of `theory.paper` as printed: parameters in billions."""
    return [
        [
            round(value / 1e9, 6) if name == "parameters" else value
            for name, value in row._asdict().items()
        ]
        for row in rows
    ]


@pytest.fixture(scope="module")
def tables(shared):
    return yaml.safe_load(shared("paper/tables.yaml").read_text())


@pytest.fixture(scope="module")
def source(shared):
    return shared("paper/paper.tex").read_text()


def test_every_figure_and_name_is_the_recorded_one(tables):
    recorded_tables = {name for name, table in tables.items() if "rows" in table}
    assert recorded_tables == set(TABLES)
    for name, (rows, renamed, _) in TABLES.items():
        columns = [renamed.get(column, column) for column in tables[name]["columns"]]
        assert columns == list(rows[0]._fields)
        assert tables[name]["rows"] == recorded(rows)


def printed(source, label):
    """The body rows of a table of the paper's source, cell by cell, without markup."""
    before, after = source.split(rf"\label{{{label}}}", 1)
    # A label stands before or after the body of its own table.
    opened = before.rsplit(r"\begin{table}", 1)[1]
    body = opened if r"\end{tabular}" in opened else after
    body = body.split(r"\midrule", 1)[1].split(r"\bottomrule", 1)[0]
    rows = []
    for line in re.split(r"\\\\", body):
        line = re.sub(r"\\(midrule|cite\{[^}]*\}|bf)|\\textbf|[{}]", "", line)
        rows.append([cell.strip() for cell in line.split("&")])
    return [row for row in rows if len(row) > 1]


def says(cell, value):
    """Whether a printed cell has this value; numbers as numbers, for 1.0 may be printed as 1."""
    if value is None or isinstance(value, str):
        return cell == (value or "-")
    return float(cell.removesuffix("B")) == value


@pytest.mark.parametrize("name", TABLES)
def test_every_figure_and_name_is_the_printed_one(source, name):
    rows, _, label = TABLES[name]
    ours, theirs = recorded(rows), printed(source, label)
    if name == "ablation_sparsity":  # printed as two blocks, with and without
        halves = [[row[0], *row[1:3]] for row in ours] + [[row[0], *row[3:]] for row in ours]
        ours = halves
    if name == "ablation_discount":  # printed as one row of accuracies under one of discounts
        header = re.search(r"\\\(\\gamma\\\)((?: & [\d.]+)+)", source)
        assert header is not None
        discounts = [float(cell) for cell in header[1].split("&")[1:]]
        assert discounts == [row[0] for row in ours]
        ours = [["Accuracy (\\%)", *(row[1] for row in ours)]]
    assert len(theirs) == len(ours)
    for their, our in zip(theirs, ours, strict=True):
        assert len(their) == len(our), their
        for cell, value in zip(their, our, strict=True):
            assert says(cell, value), (their, our)


def test_the_grid_of_experiments_is_the_printed_one(source):
    setup = source.split(r"\subsection{Experimental Setup}")[1].split(r"\subsection{Results}")[0]
    sizes = ", ".join(str(size) for size in paper.NUM_CANDIDATES)
    assert rf"$N \in \{{{sizes}\}}$" in setup
    # Three policies stand in one expression.
    setup = setup.replace(
        "Qwen2.5-Instruct (0.5B, 3B, and 7B)",
        "Qwen2.5-Instruct-0.5B Qwen2.5-Instruct-3B Qwen2.5-Instruct-7B",
    )
    for name in (*paper.POLICIES, *PRMS):
        assert name in setup, name
    assert len(set(paper.POLICIES)) == len(set(PRMS)) == 5


# What needs no source


def test_every_model_that_the_paper_ran_has_a_hub_id():
    bases = {row.base_model for row in paper.COMPARISON if row.method == "CATS"}
    assert set(paper.HUB_IDS) == {*paper.POLICIES, *PRMS, *bases}
    for name in paper.HUB_IDS.values():
        assert re.fullmatch(r"[\w.-]+/[\w.-]+", name), name
    # Two spellings of two policies, and no two other names for one model.
    assert len(set(paper.HUB_IDS.values())) == 10
    for policy, base in (
        ("LLaMA3.1-Instruct-8B", "Llama-3.1-8B-Instruct"),
        ("LLaMA3.2-Instruct-1B", "Llama-3.2-1B-Instruct"),
    ):
        assert paper.HUB_IDS[policy] == paper.HUB_IDS[base]


def test_sizes_in_names_are_the_sizes_of_the_models():
    """Skywork-PRM-1.5B is not the 7B model: names, hub ids and printed sizes agree."""
    for name, hub_id in paper.HUB_IDS.items():
        size = re.search(r"([\d.]+)B", name)
        in_id = re.search(r"([\d.]+)[Bb]", hub_id)
        assert size is not None
        assert in_id is not None
        assert size[1] == in_id[1], (name, hub_id)
    for row in paper.SPARSITY:
        size = re.search(r"([\d.]+)B", row.prm)
        assert size is not None
        assert row.parameters / 1e9 == pytest.approx(float(size[1]), abs=0.15)


def test_the_same_prms_stand_in_both_tables():
    assert tuple(row.prm for row in paper.SPARSITY_ABLATION) == PRMS


def test_nonzero_parameters_are_derived():
    assert [round(row.nonzero_parameters) for row in paper.SPARSITY] == [
        6_903_810_000,
        7_975_396_000,
        7_975_396_000,
        1_535_534_000,
        7_037_520_000,
    ]


def test_the_policy_of_the_ablations_is_told_by_their_mean():
    """All of H.2 has its best row at 84.71, the mean of H.1 with sparsity, which is 84.708."""
    mean = sum(row.math500_with for row in paper.SPARSITY_ABLATION) / 5
    assert mean == pytest.approx(84.708, abs=1e-9)
    for rows in (paper.REWARD_ABLATION, paper.NETWORK_ABLATION, paper.DISCOUNT_ABLATION):
        assert max(row.accuracy for row in rows) == round(mean, 2)
    best = [
        max(rows, key=lambda row: row.accuracy)
        for rows in (paper.REWARD_ABLATION, paper.NETWORK_ABLATION, paper.DISCOUNT_ABLATION)
    ]
    assert [tuple(row)[:-1] for row in best] == [(0.2, 0.5, 0.3), (2, 128, 2, 256), (0.9,)]


def test_what_the_docstrings_say_of_the_figures():
    with_sparsity = [(row.math500_with, row.aime24_with) for row in paper.SPARSITY_ABLATION]
    without = [(row.math500_without, row.aime24_without) for row in paper.SPARSITY_ABLATION]
    gains = [
        sum(a[i] - b[i] for a, b in zip(with_sparsity, without, strict=True)) / 5 for i in (0, 1)
    ]
    assert gains == pytest.approx([1.106, 0.702], abs=5e-4)
    best, _, *others = paper.REWARD_ABLATION
    drops = [round(best.accuracy - row.accuracy, 2) for row in others]
    assert drops == [0.56, 0.66, 0.59, 1.25, 1.06, 2.46]
    own = [row for row in paper.COMPARISON if row.method == "CATS"]
    assert (len(paper.COMPARISON) - len(own), len(own)) == (8, 4)
