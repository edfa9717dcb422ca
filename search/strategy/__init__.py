"""Search methods: values of `Strategy` for the one loop of `search.loop`."""
