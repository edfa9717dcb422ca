"""The study of the embedded world: how it is made, and what the published tables are made from."""
