"""Bounds, budgets and misranking: the theory of the paper, checked and corrected.

The paper is the one named in `theory.paper`, which holds its tables as data. Sections, equations
and theorems are cited by their printed numbers, tables by their labels in its source.

Every function takes numbers or arrays that broadcast, computes in float64 and returns the value of
the formula as it comes, never clipped; `is_vacuous_upper` and `is_vacuous_lower` tell whether it
says anything. What is undefined raises a ValueError that names argument, value and assumption, also
when one element of an array offends; a defined question whose answer is "no such number" returns
infinity.

`theory.estimators` finds from data what the bounds take as given; `theory.check_all()` and each
`theory.check_*` put a claim to the test (`theory.checks`).
"""

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import paper as paper
from .accuracy import (
    accuracy_lower_bound,
    accuracy_lower_bound_averaged,
    accuracy_lower_bound_margin,
    accuracy_lower_bound_margin_dependent,
    accuracy_lower_bound_pairs,
    accuracy_lower_bound_threshold,
    accuracy_lower_bound_union,
    accuracy_two_level_rademacher,
    accuracy_two_level_uniform,
    coverage,
)
from .bernoulli import kl_bernoulli, kl_inverse
from .budget import (
    largest_budget,
    optimal_num_candidates,
    required_coverage,
    smallest_budget,
    smallest_budget_margin,
)
from .certificates import is_best_certified, is_correct_certified
from .misranking import (
    misranking_any_number,
    misranking_bernstein,
    misranking_hoeffding,
    misranking_paper,
    misranking_rademacher,
    misranking_sum,
    misranking_truncated_gaussian,
    misranking_uniform,
    misranking_worst_case,
    misranking_worst_case_dependent,
)
from .pac_bayes import (
    catoni_bound,
    deviation_probability,
    dirac_bound,
    generalization_gap_bound,
    holdout_bound,
    lambda_bound,
    maurer_pinsker_bound,
    mcallester_bound,
    occam_bound,
    seeger_bound,
    tolstikhin_seldin_bound,
)
from .sparsity import (
    Sparsity,
    measure_sparsity,
    sparsity_bound,
    support_code_c,
    support_code_length,
)
from .vacuity import is_vacuous_lower, is_vacuous_upper

# What the documentation lists.
__all__ = [
    "Sparsity",
    "accuracy_lower_bound",
    "accuracy_lower_bound_averaged",
    "accuracy_lower_bound_margin",
    "accuracy_lower_bound_margin_dependent",
    "accuracy_lower_bound_pairs",
    "accuracy_lower_bound_threshold",
    "accuracy_lower_bound_union",
    "accuracy_two_level_rademacher",
    "accuracy_two_level_uniform",
    "catoni_bound",
    "coverage",
    "deviation_probability",
    "dirac_bound",
    "generalization_gap_bound",
    "holdout_bound",
    "is_best_certified",
    "is_correct_certified",
    "is_vacuous_lower",
    "is_vacuous_upper",
    "kl_bernoulli",
    "kl_inverse",
    "lambda_bound",
    "largest_budget",
    "maurer_pinsker_bound",
    "mcallester_bound",
    "measure_sparsity",
    "misranking_any_number",
    "misranking_bernstein",
    "misranking_hoeffding",
    "misranking_paper",
    "misranking_rademacher",
    "misranking_sum",
    "misranking_truncated_gaussian",
    "misranking_uniform",
    "misranking_worst_case",
    "misranking_worst_case_dependent",
    "occam_bound",
    "optimal_num_candidates",
    "required_coverage",
    "seeger_bound",
    "smallest_budget",
    "smallest_budget_margin",
    "sparsity_bound",
    "support_code_c",
    "support_code_length",
    "tolstikhin_seldin_bound",
]

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """`checks`, `estimators`, every `check_*`: loaded when asked for, for checks need JAX."""
        if name in ("checks", "estimators"):
            return _import_module(f".{name}", __name__)
        if name.startswith("check_"):
            checks = _import_module(".checks", __name__)
            found = checks.check_all if name == "check_all" else checks.CHECKS.get(name[6:])
            if found is not None:
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
