"""An OpenAI-compatible server whose answers come from a search; needs the extra `serve`."""
