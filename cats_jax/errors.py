"""The errors a user of cats-jax can meet, and what each means for the process."""


class BadInputError(ValueError):
    """The caller's input breaks a rule; raised before expensive work starts (exit code 2).

    The message is one line that names the input, the rule it breaks and the way out.
    """


class ScorerContractError(RuntimeError):
    """A process reward model broke its contract: wrong number of scores, NaN, or outside [0, 1].

    Names the question and the step. It fails that question; it is never turned into a score.
    """
