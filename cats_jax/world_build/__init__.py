"""The making of the embedded world: its models are trained and its simulator is fitted.

`python -m cats_jax.world_build.build` rebuilds the shipped assets.
"""
