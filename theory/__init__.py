"""Bounds, budgets and misranking: the theory of the paper, checked and corrected.

`theory.paper` names the paper and has its tables as data. Sections, equations and theorems are
cited by their printed numbers, tables by their labels in its source.

Arguments are numbers or arrays that broadcast; those with the type `float` or `int` are one number.
Every function computes in float64 and returns the value of the formula, never clipped;
`is_vacuous_upper` and `is_vacuous_lower` tell whether it is vacuous. An undefined value, even of
one array element, raises a ValueError that names argument, value and assumption. If no number has
the requested property, the result is infinity, or 0 in place of a largest number.

`theory.estimators` estimates from data what the bounds take as given. Each `theory.check_*` tests a
claim, and `theory.check_all()` tests all (`theory.checks`).
"""

__distribution__ = "cats-jax"

from importlib import import_module as _import_module
from typing import TYPE_CHECKING as _TYPE_CHECKING

from . import paper as paper
from .accuracy import accuracy_lower_bound as accuracy_lower_bound
from .accuracy import accuracy_lower_bound_averaged as accuracy_lower_bound_averaged
from .accuracy import accuracy_lower_bound_margin as accuracy_lower_bound_margin
from .accuracy import accuracy_lower_bound_margin_dependent as accuracy_lower_bound_margin_dependent
from .accuracy import accuracy_lower_bound_pairs as accuracy_lower_bound_pairs
from .accuracy import accuracy_lower_bound_threshold as accuracy_lower_bound_threshold
from .accuracy import accuracy_lower_bound_union as accuracy_lower_bound_union
from .accuracy import accuracy_two_level_rademacher as accuracy_two_level_rademacher
from .accuracy import accuracy_two_level_uniform as accuracy_two_level_uniform
from .accuracy import coverage as coverage
from .bernoulli import kl_bernoulli as kl_bernoulli
from .bernoulli import kl_inverse as kl_inverse
from .betting import anytime_lower as anytime_lower
from .betting import anytime_upper as anytime_upper
from .betting import betting_lower as betting_lower
from .betting import betting_p as betting_p
from .betting import betting_upper as betting_upper
from .betting import binary_log_wealth as binary_log_wealth
from .betting import cost_upper as cost_upper
from .betting import log_wealth as log_wealth
from .betting import paired_lower as paired_lower
from .betting import paired_upper as paired_upper
from .betting import running_log_wealth as running_log_wealth
from .budget import largest_budget as largest_budget
from .budget import optimal_num_candidates as optimal_num_candidates
from .budget import required_coverage as required_coverage
from .budget import smallest_budget as smallest_budget
from .budget import smallest_budget_margin as smallest_budget_margin
from .certificates import is_best_certified as is_best_certified
from .certificates import is_correct_certified as is_correct_certified
from .misranking import misranking_any_number as misranking_any_number
from .misranking import misranking_bernstein as misranking_bernstein
from .misranking import misranking_hoeffding as misranking_hoeffding
from .misranking import misranking_paper as misranking_paper
from .misranking import misranking_rademacher as misranking_rademacher
from .misranking import misranking_sum as misranking_sum
from .misranking import misranking_truncated_gaussian as misranking_truncated_gaussian
from .misranking import misranking_uniform as misranking_uniform
from .misranking import misranking_worst_case as misranking_worst_case
from .misranking import misranking_worst_case_dependent as misranking_worst_case_dependent
from .pac_bayes import catoni_bound as catoni_bound
from .pac_bayes import deviation_probability as deviation_probability
from .pac_bayes import dirac_bound as dirac_bound
from .pac_bayes import generalization_gap_bound as generalization_gap_bound
from .pac_bayes import holdout_bound as holdout_bound
from .pac_bayes import lambda_bound as lambda_bound
from .pac_bayes import maurer_pinsker_bound as maurer_pinsker_bound
from .pac_bayes import mcallester_bound as mcallester_bound
from .pac_bayes import occam_bound as occam_bound
from .pac_bayes import occam_kl_bound as occam_kl_bound
from .pac_bayes import seeger_bound as seeger_bound
from .pac_bayes import tolstikhin_seldin_bound as tolstikhin_seldin_bound
from .selective import Selective as Selective
from .selective import certify_selective as certify_selective
from .sequential import Settled as Settled
from .sequential import settle as settle
from .sequential import settle_mean as settle_mean
from .sparsity import Sparsity as Sparsity
from .sparsity import measure_sparsity as measure_sparsity
from .sparsity import sparsity_bound as sparsity_bound
from .sparsity import support_code_c as support_code_c
from .sparsity import support_code_length as support_code_length
from .stopping import Stopping as Stopping
from .stopping import certify_stopping as certify_stopping
from .testing import Certified as Certified
from .testing import binomial_lower as binomial_lower
from .testing import binomial_upper as binomial_upper
from .testing import certify as certify
from .testing import reject as reject
from .testing import selective_p as selective_p
from .vacuity import is_vacuous_lower as is_vacuous_lower
from .vacuity import is_vacuous_upper as is_vacuous_upper

if not _TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """`checks`, `estimators` and `check_*`, loaded on first access because checks need JAX."""
        if name in ("checks", "estimators"):
            return _import_module(f".{name}", __name__)
        if name.startswith("check_"):
            checks = _import_module(".checks", __name__)
            found = checks.check_all if name == "check_all" else checks.CHECKS.get(name[6:])
            if found is not None:
                return found
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
