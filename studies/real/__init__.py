"""The study of released language models: adapters, their calibration, and a demo."""
