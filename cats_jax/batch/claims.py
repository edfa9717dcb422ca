"""A claim that ends a run as soon as it is settled: its premises, and its certificate."""

from __future__ import annotations

import dataclasses
import json
import pathlib

from ..errors import BadInputError
from ..evaluation.evaluate import Evaluation
from ..evaluation.until_certified import AccuracyClaim
from ..reporting.anytime_certificates import AnytimeCertificate, certify_anytime
from ..reporting.certificate_premises import check_premises
from ..runs.folder import RunFolder
from ..storage.durable import whole_text
from .ray_options import RayOptions


def accuracy_claim(
    target: float | None, delta: float | None, against: str | None, searching: RayOptions
) -> AccuracyClaim | None:
    """The claim of --until-certified; None without one.

    Raises:
        BadInputError: a number is not between 0 and 1, or the options do not go together.
    """
    if target is None:
        for name, value in (("--delta", delta), ("--against", against)):
            if value is not None:
                raise BadInputError(
                    f"{name}={value!s:.80} is that of --until-certified: give both, or none"
                )
        return None
    if searching.ray is not None:
        raise BadInputError(
            "--until-certified looks at each question in order, which workers do not keep: give it "
            "without --ray"
        )
    return AccuracyClaim(target, 0.05 if delta is None else delta, against)


def ended_by(claim: AccuracyClaim, evaluation: Evaluation, folder: pathlib.Path) -> Evaluation:
    """The evaluation, to be stopped as soon as a claim is settled.

    Raises:
        BadInputError: no answers to its questions could certify the claim.
    """
    check_premises(repr(str(folder)), evaluation.manifest)
    claim.check(evaluation.cells, len(evaluation.questions.questions))
    if len(evaluation.recipe.questions) > 1:
        raise BadInputError(
            "--until-certified: the recipe has several data sets, and a certificate is about one: "
            "leave one in it"
        )
    return dataclasses.replace(evaluation, manifest=claim.of(evaluation.manifest))


def write_certificate(
    run: RunFolder, evaluation: Evaluation, claim: AccuracyClaim
) -> AnytimeCertificate:
    """Write the certificate of a settled claim to certificate.json in the run's folder."""
    questions, seed = evaluation.questions.questions, evaluation.cells[0].seed
    certificate = certify_anytime(run, claim, questions, seed)
    with whole_text(run.folder / "certificate.json") as file:
        file.write(json.dumps(certificate.as_json(), indent=1) + "\n")
    return certificate
