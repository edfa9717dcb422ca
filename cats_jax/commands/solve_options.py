"""How `solve` loads its models: as other commands do, with a server of its own for the PRM."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ..errors import BadInputError
from ..specs.models import PAID_KEYS
from .model_options import ModelOptions

_OF_ENDPOINTS = ("backend", "served_name", "api_key_env", *PAID_KEYS)
"""Settings of a server, which the policy and the PRM do not share if one of them is remote."""


@dataclass(frozen=True)
class SolveOptions(ModelOptions):
    """How policy and PRM are loaded.

    Attributes:
        prm_backend: address of a server for the PRM alone, or of the chat endpoint of --prm
            chat-judge. The options without --prm- then hold for the policy only.
        prm_served_name: name of the PRM at --prm-backend.
        prm_api_key_env: name of the environment variable that holds the API key.
        prm_max_model_len: largest number of tokens of a sequence of the PRM at --prm-backend;
            default: the model's own.
        prm_price: prices of a million tokens that the judge's endpoint reads, and of a million that
            it writes.
        prm_max_cost: largest cost of all requests to the judge, in the unit of the prices.
        prm_max_requests_per_minute: largest number of requests to the judge in a minute.
        prm_replies: file of the judge's replies.
    """

    prm_backend: str | None = None
    prm_served_name: str | None = None
    prm_api_key_env: str | None = None
    prm_max_model_len: int | None = None
    prm_price: tuple[float, float] | None = None
    prm_max_cost: float | None = None
    prm_max_requests_per_minute: float | None = None
    prm_replies: str | None = None

    def of_each(self, *, chat: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """The settings of the policy and of the PRM, which share them unless one is remote.

        `chat` says whether the policy is a model of a chat endpoint.

        Raises:
            BadInputError: an option is out of its range, or is for a server without an address.
        """
        shared, server = self.settings(), self._prm_server()
        policy = prm = shared
        if chat:
            if server is not None:
                self._check_remote()
            policy = {"chat": True, **{n: shared[n] for n in shared if n in _OF_ENDPOINTS}}
            prm = {name: shared[name] for name in shared if name not in _OF_ENDPOINTS}
        return policy, prm if server is None else server

    def given_for_each(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """As `of_each`, without the settings of a model for which no option was given."""
        policy, prm = self.of_each()
        shared = any(not option.startswith("--prm-") for option in self.given())
        return policy if shared else {}, prm if shared or self.prm_backend is not None else {}

    def _check_remote(self) -> None:
        """Raise BadInputError for an option that neither of two servers honours."""
        for option in self.given():
            name = option.removeprefix("--").replace("-", "_")
            if name not in _OF_ENDPOINTS and not name.startswith("prm_"):
                raise BadInputError(
                    f"{option}: is for a model that is loaded here, and both models are on "
                    "servers: leave it out"
                )

    def _prm_server(self) -> dict[str, Any] | None:
        """The settings of a PRM on a server of its own; None without one."""
        names = (*_OF_ENDPOINTS, "max_model_len")
        given = {name: getattr(self, f"prm_{name}") for name in names}
        given = {name: value for name, value in given.items() if value is not None}
        if given and "backend" not in given:
            option = next(iter(given)).replace("_", "-")
            raise BadInputError(
                f"--prm-{option}: is for a PRM on a server of its own: give --prm-backend, too"
            )
        if not given:
            return None
        if not given["backend"].startswith(("http://", "https://")):
            raise BadInputError(
                f"--prm-backend {given['backend']!r}: must be the address of a server, such as "
                "https://openrouter.ai/api; leave it out for a PRM that is loaded here"
            )
        if "max_cost" in given and "price" not in given:
            raise BadInputError("--prm-max-cost: needs --prm-price X Y, from which costs follow")
        settings = ModelOptions(**given).settings()
        return {name: settings[name] for name in given}
