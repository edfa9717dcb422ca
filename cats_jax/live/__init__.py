"""A live search: the driver that runs questions against models, and the results it gives."""
