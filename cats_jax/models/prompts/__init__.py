"""How questions and steps become text for a policy: chat templates, prompts, separators."""
