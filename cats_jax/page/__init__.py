"""One self-contained HTML page of run folders: summary, figures, questions and search trees."""
