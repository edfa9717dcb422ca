"""What the labels of strategies in kept rows stand for, as tables and figures show them."""

from __future__ import annotations

CONTROLLERS = {
    "clone0": "clone, seed 0",
    "clone1": "clone, seed 1",
    "clone2": "clone, seed 2",
    "asking0": "clone, selective PRM calls, seed 0",
    "asking1": "clone, selective PRM calls, seed 1",
    "asking2": "clone, selective PRM calls, seed 2",
    "trained0": "PPO on the bank, seed 0",
    "trained1": "PPO on the bank, seed 1",
    "loop2": "PPO with selective PRM calls, seed 2",
    "loop3": "PPO with selective PRM calls, seed 3",
    "fifty2": "clone, selective PRM calls, seed 2, calibrated on 50 questions",
    "moved2": "clone, selective PRM calls, seed 2, calibrated for weak",
}
"""Controllers by the label of their rows, or by its beginning up to a price."""

_BEFORE_PRICE = ", price "


def shown(label: str) -> str:
    """The name of a controller, or of its configuration at a price; other labels as they are."""
    controller, _, price = label.partition("-")
    if controller not in CONTROLLERS:
        return label
    return CONTROLLERS[controller] + (_BEFORE_PRICE + price if price else "")


def family_and_setting(name: str) -> tuple[str, str]:
    """A shown name in two parts: what configurations share, and their price or threshold."""
    for separator in (_BEFORE_PRICE, "-"):
        family, found, setting = name.partition(separator)
        if found:
            return family, setting
    return name, ""
