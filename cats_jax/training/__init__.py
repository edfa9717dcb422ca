"""Training of controllers: environments, collected decisions, rivals and ablations."""
