"""The study of released language models: adapters, linear PRMs, recorded searches and a demo."""
