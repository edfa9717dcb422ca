"""Search strategies: values of `Strategy` for the one loop of `search.step`."""
