"""The step bank on the host: recorded once over the bridges, replayed in the graph ever after.

    cats-jax bank recipes/bank/weak-controller.yaml --output runs/bank/weak-controller

`load_bank` gives the arrays for `search.bank`; see docs/train/bank.md.
"""
