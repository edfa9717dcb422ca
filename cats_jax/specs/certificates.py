"""Certificates that `cats-jax certify` wrote, and the terms that must hold when one is used.

A certificate is about one strategy, with its calibration, at one N with one policy and PRM, under
the run's limits and on the distribution of the run's questions. Devices and batches may differ,
because they do not change the distribution of results.
"""

from __future__ import annotations

import json
import pathlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ..errors import BadInputError, known_names, quoted
from ..storage.manifest import differences, with_current_names
from ..storage.reading import read_json, reading
from ..storage.rules import (
    ANYTHING,
    COUNT,
    MAPPING,
    NUMBER,
    SHARE,
    TEXT,
    Rule,
    check_entries,
    list_of,
    mapping_of,
    mapping_with,
    optional,
    pairs_of,
)
from .calibrations import IDENTITY, CalibrationValues, with_defaults
from .functions import is_function_name

KIND = "certificate"
"""Value of the file's entry `kind`."""

LIMITS = ("max_depth", "budget", "max_tokens", "max_seconds")
"""Entries of a recipe that bound a search."""

_POLICY = (
    "format",
    "dtype",
    "quantization",
    "step_separator",
    "max_step_tokens",
    "max_answer_tokens",
    "engine_args",
)
_PRM = ("format", "dtype", "quantization", "engine_args")
_DATASET = ("world", "levels", "dataset", "split", "file")
_COLUMNS = ("question_column", "answer_column")
_CHANCE = Rule("a number between 0 and 1", lambda value: NUMBER.holds(value) and 0 < value < 1)
_CALIBRATION = Rule(
    f"a list of 1 to {len(IDENTITY)} finite numbers",
    lambda value: list_of(NUMBER).holds(value) and 1 <= len(value) <= len(IDENTITY),
)
_ASKED = Rule(
    "a mapping, in which files is one, too",
    lambda value: MAPPING.holds(value) and MAPPING.holds(value.get("files", {})),
)
_FILE = {
    "delta": _CHANCE,
    "words": TEXT,
    "num_questions": COUNT,
    "chosen": optional(COUNT),
    "configurations": list_of(MAPPING),
    "config": MAPPING,
    "models": mapping_of(optional(MAPPING)),
    "revisions": optional(MAPPING),
    "asked": optional(mapping_of(_ASKED)),
    "contents": optional(mapping_of(TEXT)),
    "spent": optional(mapping_with(fitted_on=list_of(TEXT), chosen_on=list_of(TEXT))),
}
_CONFIGURATION = {
    "strategy": TEXT,
    "num_candidates": COUNT,
    "prm": optional(TEXT),
    "threshold": optional(SHARE),
}
_CONFIG = {
    "policy": MAPPING,
    "prms": list_of(MAPPING),
    "strategies": list_of(MAPPING),
    "questions": list_of(MAPPING),
    "calibration": optional(pairs_of(_CALIBRATION)),
}
_STRATEGY = {"name": TEXT, "options": optional(pairs_of(ANYTHING))}
_EARLIER = {
    "calibration": optional(_CALIBRATION),
    "path_score": optional(TEXT),
    "threshold": optional(SHARE),
}
_EARLIER_DEFAULTS = dict.fromkeys(_EARLIER)
_OPTIONAL = dict.fromkeys(("revisions", "asked", "contents", "spent"))
"""Entries that files may lack."""
_TITLES = {"prm": "PRM"}


def probability(delta: float) -> str:
    """1 - delta in words: "0.95", and "1 - 1e-08" where it would be printed as 1."""
    return f"{1 - delta:g}" if f"{1 - delta:g}" != "1" else f"1 - {delta:g}"


@dataclass(frozen=True)
class CertifiedClaim:
    """What a certificate states about the strategy that it chose.

    Attributes:
        file: path of the certificate.
        claim: the claim as a clause, such as "accuracy above 0.55".
        delta: largest probability that the claim is false, in (0, 1).
        about: the data set whose distribution the claim is about.
        num_questions: number of questions that certified it.
        num_candidates: the certified N.
        prm: label of the PRM in the certified run; None for a strategy that reads no scores.
        path_score: the PRM's aggregation in that run; None for the strategy's.
        calibration: values of the PRM's calibration in that run.
        threshold: lowest score of an answer that is given; None gives all answers.
        terms: values that must be the same, see `terms`.
        elsewhere: whether the strategy may run under other terms, without the guarantee.
        fitted_on: digests of the questions that its calibration was fitted on.
        chosen_on: digests of the questions on which it was chosen, including those of earlier
            certificates.
    """

    file: str
    claim: str
    delta: float
    about: str
    num_questions: int
    num_candidates: int
    prm: str | None
    path_score: str | None
    calibration: CalibrationValues
    terms: Mapping[str, Any] = field(hash=False, repr=False)
    elsewhere: bool = False
    threshold: float | None = None
    fitted_on: frozenset[str] = field(default=frozenset(), repr=False)
    chosen_on: frozenset[str] = field(default=frozenset(), repr=False)


def read_certificate(
    path: str, *, elsewhere: bool = False
) -> tuple[dict[str, Any], CertifiedClaim]:
    """The strategy that a certificate chose, and what is certified about it.

    Args:
        path: path of a certificate.json.
        elsewhere: see `CertifiedClaim`.

    Returns:
        The strategy's entry in the certified run's manifest ("name", "label" and "options"), and
        the certificate.

    Raises:
        BadInputError: there is no such file, `cats-jax certify` did not write it, or it certifies
            no configuration.
    """
    content = read_content(path)
    where = f"certificate {path!r}"
    with reading(where, "make it anew by `cats-jax certify`"):
        if (content["models"] or {}).get("bank") is not None:
            raise BadInputError(
                f"{where} is of a replay of a step bank, whose results differ from those of "
                "searches: certify a run without --bank"
            )
        if content["chosen"] is None:
            raise BadInputError(f"{where} certifies no configuration: certify a run that does")
        chosen = content["configurations"][content["chosen"]]
        chosen = {"threshold": None, **chosen}
        check_entries(chosen, _CONFIGURATION, "configurations: ")
        config, label, prm = content["config"], chosen["strategy"], chosen["prm"]
        strategy = _labelled(config["strategies"], label)
        check_entries({"options": None, **strategy}, _STRATEGY, "strategies: ")
        (questions,) = config["questions"]
        scorer = {} if prm is None else _labelled(config["prms"], prm)
        values = dict(config.get("calibration") or ()).get(prm)
        # The run of a certificate searched and answered by the values of this certificate.
        earlier = _EARLIER_DEFAULTS | (strategy.get("certified") or {})
        check_entries(earlier, _EARLIER, "strategies.certified: ")
        if strategy.get("certified"):
            scorer, values = earlier, earlier["calibration"]
        thresholds = [chosen["threshold"], earlier["threshold"]]
        certified = CertifiedClaim(
            file=path,
            claim=content["words"],
            delta=content["delta"],
            about=str(questions.get("label") or "its data set"),
            num_questions=content["num_questions"],
            num_candidates=chosen["num_candidates"],
            prm=prm,
            path_score=scorer.get("path_score"),
            calibration=with_defaults([float(value) for value in values or IDENTITY]),
            terms=terms(
                config,
                content["models"],
                label,
                prm,
                *(content.get(name) for name in ("revisions", "asked", "contents")),
            ),
            elsewhere=elsewhere,
            threshold=max((each for each in thresholds if each is not None), default=None),
            **{name: frozenset(digests) for name, digests in spent(content).items()},
        )
    return strategy, certified


def read_content(path: str) -> dict[str, Any]:
    """The content of a certificate's file; BadInputError unless `cats-jax certify` wrote it."""
    where = f"certificate {path!r}"
    if not pathlib.Path(path).is_file():
        raise BadInputError(f"{where}: no such file: `cats-jax certify RUN --output` writes one")
    what = "is not a certificate of this version"
    with reading(where, "make it anew by `cats-jax certify`", what):
        content = with_current_names(read_json(pathlib.Path(path)))
        if not isinstance(content, dict) or content.get("kind") != KIND:
            raise ValueError(f"'kind' must be {KIND!r}")
        check_entries({**_OPTIONAL, **content}, _FILE)
        check_entries({"calibration": None, **content["config"]}, _CONFIG, "config.")
        number = len(content["configurations"])
        if content["chosen"] is not None and content["chosen"] >= number:
            raise ValueError(f"'chosen' is {content['chosen']}, and there are {number}")
    return content


def spent(content: Mapping[str, Any]) -> dict[str, list[str]]:
    """Entry `spent` of a manifest or a certificate: digests of questions, by their use.

    "fitted_on": the calibration was fitted on them. "chosen_on": a strategy was chosen on them.
    Files of earlier versions lack the entry.
    """
    found = content.get("spent") or {}
    return {name: list(found.get(name, ())) for name in ("fitted_on", "chosen_on")}


def terms(
    config: Mapping[str, Any],
    models: Mapping[str, Any],
    strategy: str,
    prm: str | None,
    revisions: Mapping[str, int] | None,
    asked: Mapping[str, Any] | None,
    contents: Mapping[str, str] | None,
) -> dict[str, Any]:
    """The values that must be the same in a certified run and where its certificate is used.

    Args:
        config, models, revisions, asked, contents: entries of the manifest of a run; `asked` is
            None for an earlier version.
        strategy, prm: labels of the strategy and of its PRM in the run.

    Returns:
        Plain JSON values: models with their digests and settings, limits, the rule of the method,
        and the data sets.
    """
    method = _labelled(config["strategies"], strategy)
    controller = models.get(f"controller {strategy}")
    found: dict[str, Any] = {
        "policy": models.get("policy"),
        "policy settings": _settings(config["policy"], _POLICY),
        "prm": None,
        "prm settings": None,
        "controller": controller,
        "limits": {name: config.get(name) for name in LIMITS},
        "rule of the method": (revisions or {}).get(method["name"]),
        "asked": None,
        "functions": [method["name"]] if is_function_name(method["name"]) else [],
        "data sets": [
            _dataset(spec, asked or {}, contents or {}) for spec in config.get("questions", ())
        ],
    }
    if asked is not None:
        found["asked"] = {
            "policy": asked.get("policy"),
            "prm": None if prm is None else asked.get(f"prm {prm}"),
            "rewriting": asked.get(f"rewriting {strategy}"),
            "comparison": asked.get(f"comparison {strategy}"),
        }
    if prm is not None:
        scorer = _labelled(config["prms"], prm)
        found["prm"] = models.get(f"prm {prm}")
        found["prm settings"] = _settings(scorer, _PRM)
    functions = [(found[kind] or {}).get("function") for kind in ("policy", "prm")]
    found["functions"] += filter(None, functions)
    return json.loads(json.dumps(found))


def broken_terms(certified: CertifiedClaim, here: Mapping[str, Any]) -> list[str]:
    """The differences between the terms of a search, `here`, and of a certificate, one clause each.

    If the questions are unknown, `here` lacks "data sets".
    """
    there = certified.terms
    broken = [
        clause
        for kind in ("policy", "prm", "controller")
        if (clause := _other_model(kind, there[kind], here[kind]))
    ]
    for name in ("policy settings", "prm settings", "limits", "rule of the method"):
        broken += differences(there[name], here[name], name)
    broken += _other_asking(there["asked"], here["asked"])
    (wanted,) = there["data sets"]
    for other in here.get("data sets", ()):
        if other == wanted:
            continue
        if (shown := _described(other)) == _described(wanted):
            broken.append(f"the data set is {shown} with another content")
        else:
            broken.append(f"the data set is {shown}, not {_described(wanted)}")
    return broken


def _other_asking(there: Any, here: Any) -> list[str]:
    """Differences in how models are prompted, one clause each."""
    if there is None:
        return ["its run keeps no digests of tokenizers, formats and data files: evaluate again"]
    broken = []
    for kind in ("policy", "prm", "rewriting", "comparison"):
        title = _TITLES.get(kind, kind)
        old, new = there[kind] or {}, here[kind] or {}
        files, others = old.get("files") or {}, new.get("files") or {}
        broken += [
            f"the {title}'s {name} is another one"
            for name in sorted({*files, *others})
            if files.get(name) != others.get(name)
        ]
        key = "max_model_len"
        broken += differences(old.get(key), new.get(key), f"{kind} settings.{key}")
    return broken


def _settings(model: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Settings of a model; a format's file is compared by its content, see `_other_asking`."""
    found = {name: model.get(name) for name in names}
    if str(found["format"]).endswith((".yaml", ".yml")):
        found["format"] = "a file"
    return found


def _other_model(kind: str, there: Any, here: Any) -> str | None:
    """The clause for another model; models are compared by their files, not by folder names."""
    title = _TITLES.get(kind, kind)
    if there == here or (there and here and "sha256" in there and _files(there) == _files(here)):
        return None
    names = [None if each is None else _name(each) for each in (here, there)]
    if names[0] == names[1]:
        others = (there or {}).get("examples") != (here or {}).get("examples")
        return f"the {title} {names[0]!r} has other {'examples' if others else 'files'}"
    return f"the {title} is {names[0]!r}, not {names[1]!r}"


def _files(fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in fingerprint.items() if key != "name"}


def _name(fingerprint: Mapping[str, Any]) -> str:
    return str(fingerprint.get("name") or fingerprint.get("function"))


def _dataset(
    spec: Mapping[str, Any], asked: Mapping[str, Any], contents: Mapping[str, str]
) -> dict[str, Any]:
    """The identity of a data set, without the choice of rows, their order, and their seed.

    A file is identified by its name without folders, its content and the columns that are read. A
    data set on the hub is identified by its name, its split and the digest of its questions and
    answers.
    """
    named = {name: spec[name] for name in _DATASET if spec.get(name) is not None}
    if "file" in named:
        named |= {name: spec[name] for name in _COLUMNS if spec.get(name) is not None}
        named["file"] = pathlib.Path(named["file"]).name
        content = (asked.get(f"questions {spec.get('label')}") or {}).get("file")
        named["sha256"] = content or "not known"
    elif "dataset" in named:
        named["sha256"] = contents.get(str(spec.get("label"))) or "not known"
    return named


def _described(dataset: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in dataset.items() if name != "sha256")


def _labelled(specs: Sequence[Mapping[str, Any]], label: str) -> dict[str, Any]:
    for spec in specs:
        if spec.get("label") == label:
            return dict(spec)
    labels = [str(spec.get("label")) for spec in specs]
    raise BadInputError(f"label {quoted(label)} is not in the run: {known_names(label, labels)}")
