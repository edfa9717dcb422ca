"""Bridges to language models: the one impure point of a search. Import the module you need."""
