"""The step bank on the host: recorded once from the models, then replayed in the graph.

    cats-jax bank recipes/bank/weak-controller.yaml --output runs/bank/weak-controller

`load_bank` returns the arrays for `search.bank`; see docs/train/bank.md.
"""
