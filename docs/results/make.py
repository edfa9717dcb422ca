"""Tables and figures of these pages, from the rows of the study's runs.

    python docs/results/make.py keep runs/study/NAME ...   # a finished run's rows into rows/
    python docs/results/make.py keep runs/ablations        # likewise
    python docs/results/make.py bank weak runs/bank        # what the banks of a policy say of PRMs
    python docs/results/make.py                            # rows/ into tables/ and figures

Rows are kept without texts, trees and times, so that the tables can be made anew, and other ones
made, without hours of searching.
"""

from __future__ import annotations

import json
import pathlib
import sys
from collections.abc import Iterable, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from cats_jax.live.ledger import Ledger
from cats_jax.reporting import report, statistics
from cats_jax.reporting.report import Group
from cats_jax.runs.folder import Row, read_run
from theory import paper
from theory.estimators.correlation import spearman

HERE = pathlib.Path(__file__).parent
ROWS, TABLES, FIGURES = HERE / "rows", HERE / "tables", HERE / "figures"

PRMS = ("exact", "sparse", "pruned-50", "monte-carlo", "pruned-80", "labels-only")
POLICIES = ("weak", "strong")
SIZES = (4, 16, 64, 256)

PRICE = 0.2
"""Of 100 candidates, in the comparisons of values; that of `cats_jax.training.ablations`."""

_REPLAYS = 8
"""Of a question with one action, to choose it, and as many to value the choice."""

_COSTS = ("candidates", "generated", "prompt_computed", "prm_computed")
_COLUMNS = ("question", "strategy", "num_candidates", "prm", "seed", "correct", "covered")


# Rows


def keep(folder: pathlib.Path) -> None:
    """A run's rows, or an ablation study's results, as one file in `rows/`."""
    ROWS.mkdir(exist_ok=True)
    results = sorted(folder.glob("*/*/result.json"))
    if results:
        keep_ablations(folder.name, results)
        return
    run = read_run(folder)
    columns: dict[str, list] = {name: [getattr(row, name) for row in run.rows] for name in _COLUMNS}
    columns |= {name: [getattr(row.ledger, name) for row in run.rows] for name in _COSTS}
    columns["level"] = [row.meta.get("level", 0) for row in run.rows]
    columns["actions"] = [json.dumps(row.actions) for row in run.rows]
    table = pa.table(columns)
    policy = pathlib.PurePath(run.manifest["config"]["policy"]["path"]).name
    table = table.replace_schema_metadata({"policy": policy})
    pq.write_table(table, ROWS / f"{folder.name}.parquet", compression="zstd", compression_level=19)


def keep_ablations(study: str, results: Sequence[pathlib.Path]) -> None:
    """Results of `cats-jax ablations`; rows that are not among them stay as they were kept."""
    # Here, because the tables alone need no JAX.
    from cats_jax.training.ablations import load_ablations

    documents = []
    for path in results:
        document = {"table": path.parts[-3], **json.loads(path.read_text(encoding="utf-8"))}
        document["num_iterations"] = document.pop("made_of")["row"]["num_iterations"]
        documents.append(document)
    new = {(document["table"], document["label"]) for document in documents}
    # As in the recipe; folders are in the order of their names.
    order = [(table, row.label) for table, rows in load_ablations().items() for row in rows]
    file = ROWS / f"{study}.json"
    if file.is_file():
        before = json.loads(file.read_text(encoding="utf-8"))
        documents += [d for d in before if (d["table"], d["label"]) not in new]
    documents = [d for d in documents if (d["table"], d["label"]) in order]
    documents.sort(key=lambda d: order.index((d["table"], d["label"])))
    file.write_text(json.dumps(documents, indent=0) + "\n", encoding="utf-8")


def measure_bank(policy: str, banks: pathlib.Path) -> None:
    """What the banks say of each PRM: sparsity, errors on test questions, an oracle's searches."""
    # Here, because the tables alone need no JAX.
    import search
    from cats_jax.bank.calibrate import calibrate_bank
    from cats_jax.bank.layout import load_bank
    from cats_jax.evaluation.replay import allocation_oracle, replay
    from cats_jax.specs.calibrations import load_calibrations

    test = banks / f"{policy}-test"
    sparsity = json.loads((test / "sparsity.json").read_text(encoding="utf-8"))
    fitted = calibrate_bank(load_bank(banks / f"{policy}-controller"), load_bank(test), seed=0)
    found: dict[str, dict] = {
        prm: {
            "total": sparsity[prm][0],
            "last_layer": sparsity[prm][1],
            "pair": fitted["prms"][prm]["pair"][0],
            "cross_entropy": fitted["prms"][prm]["cross_entropy"][0],
        }
        for prm in PRMS
    }
    bank = load_bank(test, calibrations=load_calibrations(policy))
    rows = search.CATS.actions.rows
    strategy = allocation_oracle(
        search.CATS, sample=rows.index((8, 1, 1.0, 1.0, 0)), stop=rows.index((0, 1, 0.6, 1.0, 0))
    )
    constant = search.cats(search.constant_policy, search.CATS)
    for place, prm in enumerate(bank.prms):
        for size in (16, 64):
            result = replay(bank.arrays, strategy, prm=place, num_candidates=size, knows_truth=True)
            found[prm][f"oracle_{size}"] = [
                float(result.correct.mean()),
                float(result.tokens.mean()),
            ]
        plays = [
            [
                replay(bank.arrays, constant, np.int32(row), prm=place, num_candidates=16, seed=n)
                for n in range(2 * _REPLAYS)
            ]
            for row, (_, num_retain, *_) in enumerate(rows)
            if num_retain == 1
        ]
        found[prm]["hindsight_16"] = _best_in_hindsight(
            *(
                np.array([[getattr(play, name) for play in each] for each in plays])
                for name in ("correct", "candidates", "tokens")
            )
        )
    path = ROWS / f"bank-{policy}.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _best_in_hindsight(
    correct: np.ndarray, candidates: np.ndarray, tokens: np.ndarray
) -> list[float]:
    """Accuracy and tokens if each question had the action that suits it, from [A, S, Q].

    The action is chosen by half of the replays and valued by the others: their luck is not counted.
    """
    value = correct - PRICE * candidates / 100.0
    best = value[:, :_REPLAYS].mean(axis=1).argmax(axis=0)
    questions = np.arange(len(best))
    return [
        float(each[:, _REPLAYS:].mean(axis=1)[best, questions].mean()) for each in (correct, tokens)
    ]


def load(names: Iterable[str]) -> dict[str, list[Group]]:
    """Groups of the named files that are there, by policy."""
    rows: dict[str, list[Row]] = {}
    for name in names:
        path = ROWS / f"{name}.parquet"
        if not path.is_file():
            continue
        table = pq.read_table(path)
        policy = (table.schema.metadata or {})[b"policy"].decode()
        rows.setdefault(policy, []).extend(map(_row, table.to_pylist()))
    # Greedy decoding is in every run, and the same in each.
    return {
        policy: report.groups({(row.key): row for row in found}.values())
        for policy, found in rows.items()
    }


def _row(values: dict) -> Row:
    costs = {name: values[name] for name in _COSTS}
    key = "|".join(str(values[name]) for name in _COLUMNS[:5])
    return Row(
        key=key,
        **{name: values[name] for name in _COLUMNS},
        meta={"level": values["level"]},
        answer=None,
        gold="",
        status="answered",
        reason="",
        steps=0,
        ledger=Ledger(**costs),
        actions=tuple(tuple(action) for action in json.loads(values["actions"])),
    )


# Tables


def write(name: str, header: Sequence[str], lines: Sequence[Sequence[str]]) -> None:
    """A Markdown table as `tables/NAME.md`; none without lines."""
    if not lines:
        return
    TABLES.mkdir(exist_ok=True)
    rows = [header, ["---"] * len(header), *lines]
    text = "\n".join("| " + " | ".join(row) + " |" for row in rows) + "\n"
    (TABLES / f"{name}.md").write_text(text, encoding="utf-8")


def share(value: float) -> str:
    """Three decimals without the zero in front: .672."""
    return f"{value:.3f}".removeprefix("0")


def cell(group: Group | None) -> str:
    """Accuracy and tokens."""
    if group is None:
        return ""
    return f"{share(group.accuracy().value)} ({group.mean('tokens'):.0f})"


def find(groups: Sequence[Group], strategy: str, size: int, prm: str | None) -> Group | None:
    """The group, if it was run; without a PRM the one that has none."""
    wanted = [
        group
        for group in groups
        if group.strategy == strategy
        and group.prm in (None, prm)
        and (group.num_candidates == size or strategy == "greedy")
    ]
    return wanted[0] if wanted else None


def accuracies(name: str, groups: Sequence[Group], sizes: Sequence[int]) -> None:
    """Every strategy with every PRM: accuracy (tokens), one table per N."""
    strategies = list(dict.fromkeys(group.strategy for group in groups))
    # Greedy decoding stands beside every N, but makes no table by itself.
    for size in sorted(set(sizes) & {group.num_candidates for group in groups}):
        lines = []
        for strategy in strategies:
            cells = [cell(find(groups, strategy, size, prm)) for prm in PRMS]
            if any(cells):
                lines.append([strategy, *cells])
        write(f"{name}-{size}", ["strategy", *PRMS], lines)


def is_baseline(group: Group) -> bool:
    """A fixed strategy: nothing decides node by node."""
    return not any(row.actions for row in group.rows)


def equal_compute(
    name: str, groups: Sequence[Group], labels: Sequence[str], cost: str
) -> dict[str, dict[str, int]]:
    """Each cell of a policy against the best fixed baseline of at most 1.25 times its cost."""
    lines = []
    verdicts = {label: dict.fromkeys(("wins", "ties", "loses"), 0) for label in labels}
    for group in groups:
        if group.strategy not in labels:
            continue
        limit = report.SIMILAR_COMPUTE * group.mean(cost)
        rivals = [
            other
            for other in groups
            if is_baseline(other) and other.prm in (None, group.prm) and other.mean(cost) <= limit
        ]
        if not rivals:
            continue
        rival = max(rivals, key=lambda other: other.accuracy().value)
        result = report.compare(group, rival)
        assert result is not None
        verdicts[group.strategy][result.verdict] += 1
        difference = result.difference
        lines.append(
            [
                group.strategy,
                str(group.num_candidates),
                str(group.prm),
                f"{share(group.accuracy().value)} ({group.mean(cost):.0f})",
                f"{rival.name}: {share(rival.accuracy().value)} ({rival.mean(cost):.0f})",
                f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})",
                f"{result.p_value:.2g}",
                result.verdict,
            ]
        )
    header = ["strategy", "N", "PRM", f"its accuracy ({cost})", "best baseline of that cost"]
    write(name, [*header, "difference, 95 % interval", "p", "it"], lines)
    return verdicts


def same_size(name: str, groups: Sequence[Group], label: str) -> None:
    """A policy against each fixed strategy at the same N, over PRMs."""
    lines = []
    for strategy in dict.fromkeys(group.strategy for group in groups if is_baseline(group)):
        cells = []
        for size in SIZES:
            pairs = [
                (find(groups, label, size, prm), find(groups, strategy, size, prm)) for prm in PRMS
            ]
            if not all(one and two for one, two in pairs):
                cells.append("")
                continue
            verdicts, differences, tokens = [], [], []
            for mine, other in pairs:
                assert mine is not None
                assert other is not None
                result = report.compare(mine, other)
                assert result is not None
                verdicts.append(result.verdict)
                differences.append(result.difference.value)
                tokens.append(other.mean("tokens") / mine.mean("tokens"))
            counts = "/".join(str(verdicts.count(each)) for each in ("wins", "ties", "loses"))
            cells.append(f"{counts}, {np.mean(differences):+.3f}, {np.mean(tokens):.1f}")
        if any(cells):
            lines.append([strategy, *cells])
    write(name, ["against", *(f"N = {size}" for size in SIZES)], lines)


def count(name: str, verdicts: dict[str, dict[str, int]]) -> None:
    """Wins, ties and losses of several comparisons."""
    lines = [[label, *(str(found[key]) for key in found)] for label, found in verdicts.items()]
    write(name, ["comparison", "wins", "ties", "loses"], lines)


def levels(name: str, groups: Sequence[Group], strategies: Sequence[tuple[str, int]]) -> None:
    """Accuracy by the level of the question."""
    lines = []
    for strategy, size in strategies:
        for prm in ("exact", "monte-carlo"):
            group = find(groups, strategy, size, prm)
            if group is None or (group.prm is None and prm != "exact"):
                continue
            by_level: dict[int, list[float]] = {}
            for row in group.rows:
                by_level.setdefault(row.meta["level"], []).append(float(row.correct))
            shares = [share(float(np.mean(by_level[level]))) for level in sorted(by_level)]
            lines.append([strategy, str(group.num_candidates), group.prm or "-", *shares])
    write(name, ["strategy", "N", "PRM", *(f"level {level}" for level in range(1, 6))], lines)


def seeds(name: str, groups: Sequence[Group], prefix: str) -> None:
    """Controllers of several seeds: mean accuracy with Student's interval over seeds."""
    lines = []
    for size in SIZES:
        cells = []
        for prm in PRMS:
            found = [
                group
                for group in groups
                if group.strategy.startswith(prefix)
                and group.num_candidates == size
                and group.prm == prm
            ]
            if len(found) < 2:
                cells.append("")
                continue
            mean = statistics.mean_of_seeds([group.accuracy().value for group in found])
            tokens = np.mean([group.mean("tokens") for group in found])
            half = (mean.high - mean.low) / 2
            cells.append(f"{share(mean.value)} ± {share(half)} ({tokens:.0f})")
        if any(cells):
            lines.append([str(size), *cells])
    write(name, ["N", *PRMS], lines)


def seeds_at_prices(name: str, groups: Sequence[Group]) -> None:
    """Controllers of several seeds, KIND-PRICE-SEED: accuracy minus price, over PRMs and N."""
    values: dict[tuple[str, str], list[str]] = {}
    for label in sorted({group.strategy for group in groups}):
        kind, price, _ = label.split("-")
        found = [
            group.accuracy().value - float(price) * group.mean("candidates") / 100.0
            for group in groups
            if group.strategy == label
        ]
        values.setdefault((kind, price), []).append(share(float(np.mean(found))))
    lines = [[f"{kind} scores", price, *row] for (kind, price), row in values.items()]
    count_of_seeds = max(len(row) for row in values.values())
    write(name, ["ranked by", "price", *(f"seed {n}" for n in range(count_of_seeds))], lines)


def trainings(name: str, groups: Sequence[Group]) -> None:
    """Controllers by how they were trained, LABEL-SEED: mean over seeds, lowest and highest."""
    labels = list(dict.fromkeys(group.strategy.rpartition("-")[0] for group in groups))
    sizes = sorted({group.num_candidates for group in groups} - {1})
    values = [
        [label, *(_values_of_seeds(groups, label, size) for size in sizes)]
        for label in filter(None, labels)
    ]
    write(f"{name}-values", ["training", *(f"N = {size}" for size in sizes)], values)
    for size in sizes:
        greedy = find(groups, "greedy", size, None)
        lines = [["greedy decoding", *([cell(greedy)] * len(PRMS))]]
        for label in filter(None, labels):
            cells = []
            for prm in PRMS:
                found = [
                    group
                    for group in groups
                    if group.strategy.rpartition("-")[0] == label
                    and group.num_candidates == size
                    and group.prm == prm
                ]
                accuracy = [group.accuracy().value for group in found]
                tokens = np.mean([group.mean("tokens") for group in found])
                cells.append(
                    f"{share(float(np.mean(accuracy)))} [{share(min(accuracy))}, "
                    f"{share(max(accuracy))}] ({tokens:.0f})"
                )
            lines.append([label, *cells])
        write(f"{name}-{size}", ["training", *PRMS], lines)


def _values_of_seeds(groups: Sequence[Group], label: str, size: int) -> str:
    """Accuracy minus price, mean over PRMs: over all seeds, and in brackets of each."""
    by_seed: dict[str, list[float]] = {}
    for group in groups:
        training, _, seed = group.strategy.rpartition("-")
        if training == label and group.num_candidates == size:
            by_seed.setdefault(seed, []).append(float(np.mean(list(_values(group).values()))))
    means = [float(np.mean(by_seed[seed])) for seed in sorted(by_seed)]
    return f"{share(float(np.mean(means)))} ({', '.join(map(share, means))})"


def correlations(name: str, groups: Sequence[Group], properties: dict[str, dict]) -> None:
    """Sparsity beside what each PRM is worth, and rank correlations with exact p-values."""
    columns = {
        "best-of-N 16": [find(groups, "best_of_n", 16, prm) for prm in PRMS],
        "beam 16": [find(groups, "beam", 16, prm) for prm in PRMS],
        "CATS 16": [find(groups, "cats", 16, prm) for prm in PRMS],
    }
    values = {
        "total sparsity": [properties[prm]["total"] for prm in PRMS],
        "last-layer sparsity": [properties[prm]["last_layer"] for prm in PRMS],
        "pair error": [1.0 - properties[prm]["pair"] for prm in PRMS],
        "cross-entropy": [properties[prm]["cross_entropy"] for prm in PRMS],
    }
    for label, found in columns.items():
        if all(found):
            values[label] = [group.accuracy().value for group in found if group]
    lines = [
        [prm, *(f"{values[column][row]:.4f}" for column in values)] for row, prm in enumerate(PRMS)
    ]
    write(name, ["PRM", *values], lines)
    lines = []
    for predictor in ("total sparsity", "last-layer sparsity"):
        row = [predictor]
        for target in list(values)[2:]:
            if len(set(values[target])) == 1:
                row.append("all equal")
                continue
            found = spearman(values[predictor], values[target])
            row.append(f"{found.value:+.2f} ({found.p_value:.2g})")
        lines.append(row)
    write(f"{name}-correlations", ["Spearman (p)", *list(values)[2:]], lines)


def oracle(name: str, groups: Sequence[Group], properties: dict[str, dict]) -> None:
    """An allocation that knows the truth, with the same PRM, beside the controller."""
    lines = []
    for size in (16, 64):
        ceiling = [properties[prm][f"oracle_{size}"] for prm in PRMS]
        cells = [f"{share(accuracy)} ({tokens:.0f})" for accuracy, tokens in ceiling]
        lines.append(["oracle's allocation, replayed", str(size), *cells])
        if all(f"hindsight_{size}" in properties[prm] for prm in PRMS):
            pairs = [properties[prm][f"hindsight_{size}"] for prm in PRMS]
            cells = [f"{share(accuracy)} ({tokens:.0f})" for accuracy, tokens in pairs]
            lines.append(["each question's best constant action, replayed", str(size), *cells])
        for label in ("cats-0.005", "cats-0.02", "cats"):
            cells = [cell(find(groups, label, size, prm)) for prm in PRMS]
            if any(cells):
                lines.append([f"{label}, live", str(size), *cells])
    write(name, ["allocation", "N", *PRMS], lines)


def chosen_on_validation(
    name: str, validation: Sequence[Group], test: Sequence[Group], size: int
) -> None:
    """The fixed configuration or rule of the highest value on validation, on test beside CATS."""
    lines = []
    for prm in PRMS:
        rivals = [
            group
            for group in validation
            if group.prm in (None, prm)
            and group.num_candidates in (1, size)
            and group.strategy.split("-")[0] != "cats"
        ]
        best = max(rivals, key=lambda group: np.mean(list(_values(group).values())))
        rival = find(test, best.strategy, best.num_candidates, prm)
        mine = find(test, "cats", size, prm)
        assert rival is not None
        assert mine is not None
        one, two = _values(mine), _values(rival)
        difference = statistics.bootstrap_mean([one[key] - two[key] for key in one])
        seeds = [
            np.mean(list(_values(group).values()))
            for group in test
            if group.strategy.startswith("cats-seed")
            and group.prm == prm
            and group.num_candidates == size
        ]
        lines.append(
            [
                prm,
                best.strategy,
                cell(rival),
                cell(mine),
                f"{difference.value:+.3f} ({difference.low:+.3f} to {difference.high:+.3f})",
                f"{np.mean(list(two.values())):.3f}",
                f"{min(seeds):.3f}-{max(seeds):.3f}" if seeds else "",
            ]
        )
    header = ["PRM", "best of validation", "on test", "CATS", "CATS' value more", "its value"]
    write(f"{name}-{size}", [*header, "five seeds of CATS"], lines)


def _values(group: Group) -> dict[str, float]:
    """Accuracy minus the price of the candidates, by question."""
    right, candidates = group.by_question(), group.by_question("candidates")
    return {question: right[question] - PRICE * candidates[question] / 100.0 for question in right}


def ablations() -> None:
    """One table per study and per table of `recipes/study/ablations.yaml`."""
    for path in sorted(ROWS.glob("ablations*.json")):
        ablation_tables(path)


def ablation_tables(path: pathlib.Path) -> None:
    """The tables of one study, the paper's figures beside the rows that it has."""
    tables: dict[str, list[dict]] = {}
    for document in json.loads(path.read_text(encoding="utf-8")):
        tables.setdefault(document["table"], []).append(document)
    for name, documents in tables.items():
        printed = papers_figures(name)
        lines = []
        for document in documents:
            accuracy, candidates = np.array(document["accuracy"]), np.array(document["candidates"])
            value = statistics.mean_of_seeds(np.mean(accuracy - PRICE * candidates / 100.0, axis=1))
            cells = [
                f"{share(accuracy[:, place].mean())} ({candidates[:, place].mean():.0f})"
                for place in range(accuracy.shape[1])
            ]
            half = (value.high - value.low) / 2
            collapsed = f"{sum(document['collapsed'])}/{len(document['collapsed'])}"
            entropy = f"{np.mean(document['entropy']):.2f}"
            worth = f"{value.value:.3f} ± {half:.3f}"
            line = [document["label"], *cells, worth, entropy, collapsed]
            lines.append([*line, printed[document["label"]]] if printed else line)
        header = ["row", "N = 16", "N = 64", "accuracy minus price", "entropy", "collapsed"]
        write(f"{path.stem}-{name}", [*header, "the paper, %"] if printed else header, lines)


def papers_figures(table: str) -> dict[str, str]:
    """What the paper prints for the rows of one of its tables, by our label; {} for tables of ours.

    Accuracy in percent on MATH-500, mean over PRMs and budgets; for the sparsity, whose table has a
    row for each PRM, the mean over PRMs, then the same on AIME24.
    """
    match table:
        case "sparsity":
            columns = zip(*(row[1:] for row in paper.SPARSITY_ABLATION), strict=True)
            math_with, aime_with, math_without, aime_without = map(np.mean, columns)
            return {
                "with": f"{math_with:.2f}; {aime_with:.2f}",
                "without": f"{math_without:.2f}; {aime_without:.2f}",
            }
        case "reward":
            return {
                f"cost {row.lambda_c:g}, margin {row.lambda_m:g}, score {row.lambda_r:g}": (
                    f"{row.accuracy:.2f}"
                )
                for row in paper.REWARD_ABLATION
            }
        case "networks":
            return {
                f"actor {row.actor_layers}x{row.actor_dim}, "
                f"critic {row.critic_layers}x{row.critic_dim}": f"{row.accuracy:.2f}"
                for row in paper.NETWORK_ABLATION
            }
        case "discount":
            return {f"{row.discount:g}": f"{row.accuracy:.2f}" for row in paper.DISCOUNT_ABLATION}
        case _:
            return {}


# Figures


def frontier(name: str, groups: Sequence[Group], labels: dict[str, str]) -> None:
    """Accuracy against tokens: all baselines, their upper frontier, and the policies."""
    figure = Figure(figsize=(13, 7.5), layout="constrained")
    FigureCanvasAgg(figure)
    panels = figure.subplots(2, 3, sharex=True).flatten()
    marks = {"greedy": "P", "majority": "v", "best_of_n": "s", "best_of_n_weighted": "D"}
    for axes, prm in zip(panels, PRMS, strict=True):
        mine = [group for group in groups if group.prm in (None, prm)]
        baselines = [group for group in mine if is_baseline(group)]
        points = sorted((group.mean("tokens"), group.accuracy().value) for group in baselines)
        for strategy in dict.fromkeys(group.strategy for group in baselines):
            line = [group for group in baselines if group.strategy == strategy]
            axes.plot(
                [group.mean("tokens") for group in line],
                [group.accuracy().value for group in line],
                marker=marks.get(strategy, "^"),
                color="#888888" if not strategy.startswith("beam") else "#444444",
                markerfacecolor="white" if strategy == "beam-T0.6" else None,
                linestyle="none",
                markersize=5,
                label=strategy,
            )
        best = np.maximum.accumulate([value for _, value in points])
        axes.step([x for x, _ in points], best, where="post", color="#888888", linewidth=1)
        for (label, color), marker in zip(labels.items(), "oXd*h", strict=True):
            line = [group for group in mine if group.strategy == label]
            if not line:
                continue
            accuracy = [group.accuracy() for group in line]
            axes.errorbar(
                [group.mean("tokens") for group in line],
                [value.value for value in accuracy],
                yerr=[
                    [value.value - value.low for value in accuracy],
                    [value.high - value.value for value in accuracy],
                ],
                marker=marker,
                color=color,
                linestyle="-",
                linewidth=0.8,
                elinewidth=0.6,
                markersize=6,
                label=label,
            )
        axes.set_xscale("log")
        axes.set_title(f"PRM {prm}", fontsize=10)
        axes.grid(True, which="major", color="#e5e5e5", linewidth=0.5)
    handles, names = panels[0].get_legend_handles_labels()
    figure.legend(handles, names, fontsize=8, loc="outside lower center", ncols=len(handles))
    for axes in (panels[0], panels[3]):
        axes.set_ylabel("accuracy (bars: 95 %)")
    for axes in panels[3:]:
        axes.set_xlabel("tokens per question")
    FIGURES.mkdir(exist_ok=True)
    figure.savefig(FIGURES / f"{name}.png", dpi=110)


def make() -> None:
    """All tables and figures that the kept rows allow."""
    verdicts: dict[str, dict[str, int]] = {}
    live = load(f"{policy}-{part}" for policy in POLICIES for part in _PARTS)
    for policy, groups in live.items():
        accuracies(f"live-{policy}", groups, SIZES)
        for cost in ("tokens", "candidates"):
            found = equal_compute(f"equal-{cost}-{policy}", groups, tuple(_COLORS), cost)
            verdicts |= {
                f"{policy}, {label}, equal {cost}": each
                for label, each in found.items()
                if any(each.values())
            }
        strategies = [("greedy", 1), ("majority", 16), ("best_of_n", 16), ("beam", 16)]
        levels(f"levels-{policy}", groups, [*strategies, ("cats", 16), ("cats-0.02", 16)])
        seeds(f"seeds-{policy}", groups, "cats-seed")
        same_size(f"same-n-{policy}", groups, "cats")
        if (ROWS / f"bank-{policy}.json").is_file():
            properties = json.loads((ROWS / f"bank-{policy}.json").read_text(encoding="utf-8"))
            correlations(f"sparsity-{policy}", groups, properties)
            oracle(f"oracle-{policy}", groups, properties)
        frontier(f"frontier-{policy}", groups, _COLORS)
    count("verdicts", verdicts)
    for policy, groups in load(("weak-test-replay", "strong-test-replay")).items():
        accuracies(f"replay-{policy}", groups, SIZES)
        validation = load((f"{policy}-validation-replay",))
        for size in sorted({group.num_candidates for group in groups} - {1}):
            if policy in validation:
                chosen_on_validation(f"chosen-{policy}", validation[policy], groups, size)
    for policy, groups in load(("weak-seeds-validation",)).items():
        seeds_at_prices(f"validation-{policy}", groups)
    for policy, groups in load(("weak-transfer",)).items():
        trainings(f"transfer-{policy}", groups)
    for policy, groups in load(("weak-offline",)).items():
        accuracies(f"offline-{policy}", groups, SIZES)
    for groups in load(("weak-paper", "weak-ablations")).values():
        accuracies("live-ablations", groups, SIZES)
    ablations()


_COLORS = {
    "cats": "#1f5fa8",
    "cats-0.02": "#b3541e",
    "cats-0.005": "#4d8c4a",
    "paper": "#7a4fa3",
    "calibrated": "#c2a01f",
}
_BASELINES = ("baselines-small", "baselines-64", "baselines-256")
_PARTS = (*_BASELINES, "cats", "cats-256", "seeds", "from-weak", "paper", "calibrated")


if __name__ == "__main__":
    if sys.argv[1:2] == ["keep"]:
        for argument in sys.argv[2:]:
            keep(pathlib.Path(argument))
    elif sys.argv[1:2] == ["bank"] and len(sys.argv) == 4:
        measure_bank(sys.argv[2], pathlib.Path(sys.argv[3]))
    elif len(sys.argv) == 1:
        make()
    else:
        sys.exit(__doc__)
