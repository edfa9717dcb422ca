"""Published search libraries, driven unchanged from local checkouts, next to this package."""
