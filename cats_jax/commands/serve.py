"""`cats-jax serve`: an OpenAI-compatible server whose answers come from a search."""

from __future__ import annotations

import os
import pathlib
from typing import TYPE_CHECKING

import tyro

from ..errors import BadInputError

if TYPE_CHECKING:
    from rich.console import Console

    from ..specs.recipe import Recipe

_TOKEN = "CATS_JAX_TOKEN"
_WORLD = pathlib.Path(__file__).with_name("serve.yaml")


def serve(
    recipe: tyro.conf.Positional[pathlib.Path | None] = None,
    *,
    host: str = "127.0.0.1",
    port: int = 8000,
    model_name: str | None = None,
    token_file: pathlib.Path | None = None,
    in_flight: int | None = None,
    max_waiting: int = 64,
    max_prompt_characters: int = 8192,
    ignore_sampling: tuple[str, ...] = (),
    grace: float = 30.0,
    functions: bool = True,
) -> int:
    """Serve searches to OpenAI's clients: /v1/chat/completions, /v1/models, /healthz, /metrics.

    The environment variable CATS_JAX_TOKEN may hold the bearer token. After SIGTERM or Ctrl+C the
    server takes no new searches. It ends when the searches in flight have ended, at the latest
    after --grace seconds.

    Args:
        recipe: recipe whose policy, PRM, strategies, N and limits are served; its first strategy, N
            and seed are the defaults, its largest N the limit. Default: the embedded world's policy
            "weak" and PRM "exact".
        host: address to listen on; an address that other machines can reach needs a token.
        port: port to listen on; 0 takes a free one.
        model_name: name of the served model; default: the last part of the policy's path.
        token_file: file with the bearer token that clients give as their API key.
        in_flight: number of searches at once; default: the recipe's.
        max_waiting: largest number of searches that wait for a place; others are refused (429).
        max_prompt_characters: largest number of characters of a message.
        ignore_sampling: parameters of a request that are ignored rather than refused, such as
            temperature, top_p, max_tokens, max_completion_tokens and stop; a reply names those
            that it ignores.
        grace: longest time in seconds that searches continue after a signal.
        functions: run the code of functions that the recipe names as module:function.
    """
    token = _token(token_file)
    _check_limits(max_waiting, max_prompt_characters, grace)
    try:
        from ..server.app import make_app
        from ..server.connections import most_connections
        from ..server.engine import Engine
        from ..server.metrics import ServerMetrics
        from ..server.offer import Offer
        from ..server.run import Server, bind, url
    except ModuleNotFoundError as error:
        raise BadInputError(
            f"serve needs {error.name!r}, which is not installed: install the extra 'serve'"
        ) from error
    from ..models.hub import fetch_models
    from ..models.serving.call_threads import abandon_calls
    from ..models.source import ModelFolders
    from .terminal import make_console

    console = make_console(stderr=True)
    found = _recipe(recipe, in_flight, console, functions=functions)
    name = found.policy.name if model_name is None else model_name
    offer = Offer(
        found,
        name=name,
        max_prompt_characters=max_prompt_characters,
        ignore_sampling=ignore_sampling,
    )
    connections = most_connections(found.in_flight + max_waiting)
    with bind(host, port, token) as sock:
        fetch_models((found.policy, *found.prms))
        loaded = offer.load(ModelFolders())
        for line in loaded.warnings:
            console.print(f"warning: {line}", markup=False, soft_wrap=True)
        metrics = ServerMetrics()
        engine = Engine(loaded, max_waiting=max_waiting, metrics=metrics)
        started = (
            f"model {name!r} at {url(sock)}: {', '.join(offer.strategies)}; N up to "
            f"{offer.max_candidates}; {found.in_flight} searches at once, {max_waiting} may wait; "
            f"{'with a token' if token else 'without a token, for this machine only'}"
        )
        app = make_app(offer, engine, metrics, token, host=host)
        engine.start()
        Server(
            app,
            engine,
            connections=connections,
            grace=grace,
            ready=lambda: console.print(started, markup=False, soft_wrap=True),
        ).run_until_signal(sock)
    failed = engine.state == "failed"
    abandon_calls()  # of searches that outlasted the grace
    console.print("the server has ended")
    return int(failed)


def _check_limits(max_waiting: int, max_prompt_characters: int, grace: float) -> None:
    if max_waiting < 0:
        raise BadInputError(f"--max-waiting {max_waiting}: must be at least 0")
    if max_prompt_characters < 1:
        raise BadInputError(f"--max-prompt-characters {max_prompt_characters}: must be at least 1")
    if not 0 <= grace < float("inf"):
        raise BadInputError(f"--grace {grace}: must be a number of seconds >= 0")


def _recipe(
    path: pathlib.Path | None, in_flight: int | None, console: Console, *, functions: bool
) -> Recipe:
    """The recipe to serve, by default that of the embedded world; prints a line per function."""
    from ..specs.functions import function_lines
    from ..specs.recipe import load_recipe, parse_recipe
    from ..storage.yaml_reading import load_yaml

    changes = {} if in_flight is None else {"in_flight": in_flight}
    if path is None:
        found = parse_recipe(load_yaml(_WORLD, "recipe") | changes)
    else:
        found = load_recipe(path, changes)
    for line in function_lines(found.strategies, found.policy, found.prms, allowed=functions):
        console.print(line, markup=False, soft_wrap=True)
    return found


def _token(path: pathlib.Path | None) -> str | None:
    """The bearer token from the file, else from the environment, or None."""
    if path is None:
        token, where = os.environ.get(_TOKEN), _TOKEN
        if token is None:
            return None
    else:
        where = f"--token-file {str(path)!r}"
        try:
            token = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise BadInputError(f"{where} can't be read: {error}") from error
    token = token.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise BadInputError(
            f"{where} must hold one token of visible ASCII characters, such as one made by "
            "`openssl rand -hex 32`"
        )
    return token
