"""The making of the embedded world: its models are trained and its simulator is fitted.

`python -m studies.world.models.build` rebuilds the shipped assets, except for the simulator, which
`python -m studies.world.models.fit_simulator` fits.
"""
